//! The on-disk formats: the md superblock (0.90 and 1.x), its bitmap, bad-block log, partial parity log and journal, the
//! layout that `create` chooses for them, and the signatures of other formats that a device may hold. The superblock of a
//! volume's brick and the records of its metadata are braid's own; its access control lists are those of Linux.
//!
//! This crate converts between bytes and structures. It does no I/O, reads no clock and generates no random numbers: times and
//! uuids are passed in. It does not know how a RAID level arranges the data; level and layout are numbers here.
//!
//! Invariant: no input makes it panic. What [`superblock::Superblock::parse`] accepts,
//! [`superblock::Superblock::to_bytes`] writes back with the same bytes, unless the feature bits in it
//! contradicted the fields they announce.
//!
//! Units: a sector is 512 bytes, whatever the device's logical block size is.

#![forbid(unsafe_code)]

pub mod access_list;
pub mod badblocks;
pub mod bitmap;
pub mod brick;
mod crc;
pub mod heartbeat;
pub mod journal;
pub mod placement;
pub mod ppl;
pub mod signature;
pub mod superblock;
pub mod uuid_text;
pub mod volume;

/// Bytes in a sector, the unit of every offset and size that md stores.
pub const SECTOR: usize = 512;
