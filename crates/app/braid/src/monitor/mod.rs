//! Events of arrays, with mdadm's names and some of our own, and who is told of them.
//!
//! | file | subject |
//! |---|---|
//! | `telling` | mail, a program, webhooks: each in its own time |
//! | `watching` | what has happened from one look at the arrays to the next |
//! | `jobs` | the part of that which is about a job |
//! | `slow` | members that are slow beside the others |
//!
//! Works on what `detail` says, so that the server and `braid monitor`, which asks it, see the same.

mod jobs;
pub mod slow;
pub mod telling;
pub mod watching;

pub use braid_control::protocol::Event;
