//! The [`Device`] trait, its kinds, and the filters that stack over any device.
//!
//! A device is a flat range of bytes that takes [`Request`]s and completes each exactly once, now
//! (within `submit`) or later on the same shard. Requests own their buffers until they complete.
//! Arrays are devices too, so anything stacks.
//!
//! This crate does not know RAID, metadata, protocols.

#![deny(unsafe_code)]

mod agreeing;
pub mod blocks;
mod completion;
pub mod counts;
mod device;
mod error;
pub mod fault;
pub mod file;
pub mod holes;
mod info;
mod io_set;
pub mod meter;
pub mod model;
pub mod overlay;
pub mod plug;
pub mod ram;
mod random;
pub mod read_ahead;
pub mod request;
pub mod reservation;
mod size;
pub mod space;
pub mod spec;
mod target;
#[cfg(test)]
pub(crate) mod testing;
pub mod trace;
pub mod volatile;
pub mod watch;
pub mod write_back;

pub use agreeing::{FindAgreeing, Sought};
pub use braid_shard::ring::{BufMuts, Bufs};
pub use completion::{Completion, Outcome, Sink};
pub use device::Device;
pub use error::{IoError, IoErrorKind};
pub use holes::{FindHoles, Holes};
pub use info::DeviceInfo;
pub use io_set::{IoSet, IoSets, Outcomes};
pub use request::{Op, Request};
pub use size::SizeError;
pub use target::{OpenError, Opener, Target, TargetInfo};
