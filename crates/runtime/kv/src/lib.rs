//! A transactional store of keys and values, kept in regions of devices.
//!
//! An engine uses [`Store`], whose requests are answered later, on the shard that made them. The implementation is an
//! embedded database on a thread of its own, or a model in the simulator.
//!
//! This crate does not know the meaning of the keys.

#![forbid(unsafe_code)]

#[cfg(test)]
mod crash_tests;
mod database;
#[cfg(test)]
mod disk_tests;
#[cfg(test)]
mod format_tests;
#[cfg(test)]
mod growth_tests;
mod image;
mod mirror;
pub mod model;
mod page_source;
pub mod region;
mod store;
mod sums;
#[cfg(test)]
pub(crate) mod testing;
mod thread;

pub use image::REGION_MIN;
pub use mirror::Dropped;
pub use store::{Answer, Begun, Change, Pair, Store, StoreError, StoreSpace};
pub use thread::{KvStore, Open, catches_panics};
