//! Superblocks and bitmap: read from the members, judged, and written there.
//!
//! | file | subject |
//! |---|---|
//! | `superblock` | the superblock of one member, before and outside of any running array |
//! | `component` | how much of each component the array uses |
//! | `bitmap` | the write-intent bitmap |
//! | `ppl` | the partial parity log |
//! | `journal` | the ring of a journal device |
//! | `heartbeat` | whoever uses the array says so, for other hosts |
//! | `reservations` | disks that take the writes of this host alone |
//! | `holder` | a member that a log is replayed to |
//!
//! When superblocks and bad-block logs are written is control's business.

pub(crate) mod bitmap;
pub(crate) mod component;
pub(crate) mod heartbeat;
pub(crate) mod holder;
pub(crate) mod journal;
pub(crate) mod ppl;
pub(crate) mod reservations;
pub mod superblock;
