//! The superblock of a brick of a volume: which volume and which brick it is, its weight and state, where its
//! metadata region and its data are.
//!
//! braid's own format; every byte of it stands in docs/volume-on-disk.md. Two copies of 4096 bytes are on a
//! brick, at byte 0 and at the last whole 4096 bytes of what the brick uses; [`choose`] decides which of them
//! is current. Reads no device and no clock.
//!
//! Invariant: no input makes it panic, and what [`BrickSuperblock::parse`] accepts,
//! [`BrickSuperblock::to_bytes`] writes back so that the same is read again. Every area of a superblock that was
//! accepted is inside the device, outside both copies, and no two share a byte.

mod areas;
mod copies;
mod error;
mod members;
mod name;
mod raw;
mod states;
mod superblock;
#[cfg(test)]
mod tests;

pub use areas::{Area, BLOCK, MAX_GROWN, second_copy_at, usable_size};
pub use copies::{Chosen, Copy, choose};
pub use error::BrickError;
pub use members::{Away, BrickIds};
pub use name::{MAX_NAME, VolumeName, VolumeNameError};
pub use raw::{MAGIC, MAX_AWAY, MAX_HOLDERS, MAX_RUNS, SUPERBLOCK_LEN, VERSION};
pub use states::{BrickState, MetadataState, VolumeState};
pub use superblock::{BrickSuperblock, MAX_GENERATION, MAX_STRIPE, MIN_STRIPE};
