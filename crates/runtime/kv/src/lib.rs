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
#[cfg(test)]
mod growth_tests;
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
pub use thread::{KvStore, Open, catches_panics};

use std::future::Future;
use std::pin::Pin;

/// A key and its new value, or `None` to remove it.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// An answer that comes later, on the shard that asked.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>>>>;

/// A commit that is being prepared. Nothing of it reaches a device before it is told to go on.
pub struct Begun {
    /// Tells it. Dropped instead, the commit fails, and the store with it.
    pub go: Box<dyn FnOnce()>,
    /// The answer, as that of [`Store::commit`].
    pub done: Answer<()>,
}

/// Why the store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Nothing was changed; the store goes on.
    #[error(
        "the metadata region is full: remove files, or make it larger: braid volume grow-metadata"
    )]
    NoSpace,
    /// What was read is not what was written, and no other copy has it. Nothing was changed.
    #[error("the metadata is damaged: {0}")]
    Damaged(String),
    /// The store can only be opened again, if at all.
    #[error("the metadata store failed: {0}")]
    Failed(String),
}

/// How full a store is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSpace {
    /// Bytes that it can hold.
    pub capacity: u64,
    /// Bytes that are taken. All of them: what makes it larger may be refused, and only what makes it smaller is sure to be
    /// taken.
    pub used: u64,
    /// Changes that one commit may have; one with more may be refused for want of room.
    pub changes: u64,
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

    /// Begins a commit while something else becomes durable that must be so before. A store that could do nothing yet
    /// gives the changes back: then [`commit`](Store::commit) is as fast.
    ///
    /// # Errors
    /// The changes, as they were given.
    fn begin_commit(&self, changes: Vec<Change>) -> Result<Begun, Vec<Change>> {
        Err(changes)
    }

    /// How full it is.
    fn space(&self) -> StoreSpace;
}
