//! A transactional store of keys and values, kept in regions of devices.
//!
//! [`Store`] is what an engine sees: requests that are answered later, on its own shard. Behind it stands an
//! embedded database on a thread of its own, or a model in the simulator.
//!
//! What this crate does not know: what the keys mean.

#![forbid(unsafe_code)]

#[cfg(test)]
mod crash_tests;
mod database;
#[cfg(test)]
mod disk_tests;
mod image;
mod mirror;
pub mod model;
mod page_source;
pub mod region;
mod sums;
#[cfg(test)]
pub(crate) mod testing;
mod thread;

pub use image::REGION_MIN;
pub use mirror::Dropped;
pub use thread::{KvStore, Open};

use std::future::Future;
use std::pin::Pin;

/// A key and its new value, or `None` to remove it.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// An answer that comes later, on the shard that asked.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>>>>;

/// Why the store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Nothing was changed; the store goes on.
    #[error("the metadata region is full: remove files, or add a brick with room for metadata")]
    NoSpace,
    /// What was read is not what was written, and no other copy has it. Nothing was changed.
    #[error("the metadata is damaged: {0}")]
    Damaged(String),
    /// The store can only be opened again, if at all.
    #[error("the metadata store failed: {0}")]
    Failed(String),
}

/// Bytes of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSpace {
    /// What it can hold.
    pub capacity: u64,
    /// What is taken.
    pub used: u64,
}

/// Keys and values, ordered by key as bytes.
pub trait Store {
    /// The value of `key`.
    fn get(&self, key: &[u8]) -> Answer<Option<Vec<u8>>>;

    /// The first `limit` pairs with keys from `from` on, before `to`.
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Answer<Vec<Pair>>;

    /// Makes all changes, or none, and answers when they are durable. A key stands at most once among them. What was asked
    /// before this sees the state before, what is asked afterwards the state after.
    fn commit(&self, changes: Vec<Change>) -> Answer<()>;

    /// How full it is.
    fn space(&self) -> StoreSpace;
}
