//! The partial parity log (PPL) of RAID5: before a write that leaves some data of a stripe as it is, the
//! XOR of that data is logged on the member that holds the stripe's parity, so that parity can be made
//! consistent after a crash without knowing which part of the write reached the members.
//!
//! Owns the log's header, the walk over the units of a member's log, and the writes that its newest unit asks for
//! ([`recover()`]). Does no I/O: the caller passes each area as bytes, and says which member holds the parity of a stripe.
//!
//! Invariant: an entry that is impossible for the array, or whose partial parity is damaged, is not replayed. It is
//! reported as a mismatch, and the array needs a resync.
//!
//! Source of the format: Linux `md_p.h` (ppl_header), `raid5-ppl.c` and
//! `Documentation/driver-api/md/raid5-ppl`.

mod log;
mod recover;
#[cfg(test)]
mod tests;

pub use log::{
    ENTRIES_MAX, Entry, HEADER, Header, PplError, Unit, empty_header, entry_checksum, newest,
    signature,
};
pub use recover::{Mismatch, Recovered, Replay, Shape, clean_after, recover};
