//! A mirror of one or two regions, each block with a checksum, which is a [`Device`](braid_device::Device) for any user.
//!
//! A block that one half has lost, or gives otherwise than it was written, is had from the other half and mended. A half
//! that fails is detached, and its owner told so. After an unclean stop the second half is made equal to the first.
//!
//! Beyond what every device does, a [`Mirror`] keeps a small *root* that is replaced as a whole, commits a batch of blocks with it
//! by one flush, and lets users who can [verify](Mirror::begin_verification) what they read say which blocks are right
//! where a power failure has separated blocks from their checksums.
//!
//! This crate does not know what the blocks mean.

#![forbid(unsafe_code)]

mod error;
mod halves;
mod header;
mod layout;
mod mirror;
mod region;
mod sums;
#[cfg(test)]
mod tests;

pub use error::{MirrorError, is_damage};
pub use halves::Detached;
pub use mirror::join::Joining;
pub use mirror::open::Open;
pub use mirror::{Mirror, ROOT};
pub use region::{BLOCK, Region};
