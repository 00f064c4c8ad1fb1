//! Modelled members, `model:KIND,SIZE`: memory that takes as long as a disk would.
//!
//! The completion time of a request is computed when it is submitted, from a timeline that all shards share. A task per
//! device carries the request out at that time by the shard's clock, real or virtual. So the same requests at the same
//! times always complete at the same times.

mod device;
mod parameters;
#[cfg(test)]
mod tests;
mod timeline;

pub use device::Model;
pub use parameters::{Kind, ModelError, ModelSpec, Parameters, Seek};
