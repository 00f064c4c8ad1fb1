//! A transactional store of keys and values, kept in a [mirror](braid_mirror::Mirror).
//!
//! An engine uses [`Store`], whose requests are answered later, on the shard that made them. The implementation is an
//! embedded database on a thread of its own, or a model in the simulator.
//!
//! This crate does not know the meaning of the keys, nor how many regions there are and what becomes of damaged blocks.

#![forbid(unsafe_code)]

mod ahead;
#[cfg(test)]
mod crash_tests;
mod database;
#[cfg(test)]
mod format_tests;
#[cfg(test)]
mod growth_tests;
mod handle;
pub mod model;
mod storage;
mod store;
#[cfg(test)]
pub(crate) mod testing;
mod thread;

pub use database::REGION_MIN;
pub use store::{Answer, Begun, Change, Pair, Store, StoreError, StoreSpace};
pub use thread::{KvStore, catches_panics};
