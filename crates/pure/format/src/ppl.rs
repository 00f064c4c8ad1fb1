//! The partial parity log (PPL) of RAID5: before a write that leaves some data of a stripe as it is, the
//! XOR of that data is logged on the member that holds the stripe's parity, so that a crash in the middle
//! of the write can be mended without knowing which part of it arrived.
//!
//! Owns the log's header, the walk over the units of a member's log, and what its newest unit asks to be
//! written ([`recover()`]). Does no I/O: areas come as bytes. Which member holds the parity of a stripe is
//! told by the caller.
//!
//! Invariant: of an entry that is not possible for the array, or whose partial parity is damaged, nothing is
//! replayed; it counts as a mismatch, and the array needs a resync.
//!
//! Source of the format: Linux `md_p.h` (ppl_header), `raid5-ppl.c` and
//! `Documentation/driver-api/md/raid5-ppl`.

mod log;
mod recover;
#[cfg(test)]
mod tests;

pub use log::{
    ENTRIES_MAX, Entry, HEADER, Header, PplError, Unit, empty_header, newest, signature,
};
pub use recover::{Mismatch, Recovered, Replay, Shape, clean_after, recover};
