//! A mirror of up to three regions, each block with a checksum, which is a [`Device`](braid_device::Device) for any user.
//!
//! A block that one leg has lost, or gives otherwise than it was written, is had from another leg and mended. A leg
//! that fails is detached, and its owner told so. After an unclean stop all legs are made equal.
//!
//! Beyond what every device does, a [`Mirror`] keeps a small *root* that is replaced as a whole, commits a batch of blocks with it
//! by one flush, and lets users who can [verify](Mirror::begin_verification) what they read say which blocks are right
//! where a power failure has separated blocks from their checksums.
//!
//! This crate does not know what the blocks mean.

#![forbid(unsafe_code)]

mod error;
mod header;
mod layout;
mod legs;
mod mirror;
mod region;
mod sums;
#[cfg(test)]
mod tests;

pub use error::{MirrorError, is_damage};
pub use legs::{Detached, LEGS_MAX};
pub use mirror::join::Joining;
pub use mirror::open::Open;
pub use mirror::{Mirror, ROOT};
pub use region::{BLOCK, Region};
