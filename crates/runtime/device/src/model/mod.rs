//! Modelled members, `model:KIND,SIZE`: memory that takes as long as a disk would.
//!
//! When a request ends is decided as it is submitted, from a timeline
//! that all shards share; a task per device carries it out at that time on the shard's clock,
//! real or virtual. The same requests at the same times end at the same times.
//!
//! It does not know why anybody would want a slow device.

mod device;
mod parameters;
#[cfg(test)]
mod tests;
mod timeline;

pub use device::Model;
pub use parameters::{Kind, ModelError, ModelSpec, Parameters, Seek};
