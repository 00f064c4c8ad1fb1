//! The partial parity log on the members: its areas, and its replay at assembly.
//!
//! Each member has an area of its own, and the log of a stripe goes to the member that holds the stripe's parity. The format
//! is md's ([`braid_format::ppl`]), and md replays only the newest *unit* of each area. So a unit is written only when all
//! that the one before it was for is durable on the members, or lost with them.
//!
//! | file | subject |
//! |---|---|
//! | `area` | where units go within an area, and what an empty one holds |
//! | `replay` | what the logs of an array that was not stopped cleanly ask for, and doing it |
//!
//! A log is *in use* when its first header has a generation above 0: braid writes that when redundancy holds everywhere, so
//! that a log in use without an entry says that nothing was being written. md writes 0 there, which says nothing.

pub(crate) mod area;
pub(crate) mod replay;
