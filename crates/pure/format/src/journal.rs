//! The journal device of RAID4, 5 and 6: a ring of meta blocks, each followed by the data and parity blocks
//! that it names.
//!
//! Owns the meta block ([`Meta`]), the walk from the tail to the end of the log ([`Walk`]) and the writes to the members
//! that a log asks for ([`Recovery`]). Does no I/O: the caller reads the blocks that the walk names.
//! Positions are ring sectors: sectors from the journal's data offset, modulo the ring.
//!
//! Invariant: lengths are checked although the checksum of their block was right. A walk visits no sector of the ring
//! twice, so it always ends.
//!
//! Source of the format: Linux `md_p.h` (r5l structures) and `raid5-cache.c`.

mod meta;
mod recovery;
#[cfg(test)]
mod tests;
mod walk;

pub use meta::{BLOCK, BLOCK_SECTORS, Meta, MetaError, Payload, SEQ_GAP, Seed};
pub use recovery::{Recovery, StripeWrite};
pub use walk::{End, Found, Walk, WalkError, ring_sectors};
