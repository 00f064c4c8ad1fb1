//! Long jobs: resync, check, repair and recovery, each a cursor that moves over the array in windows.
//!
//! | file | subject |
//! |---|---|
//! | `job` | sends the windows out at the pace that limits and foreground I/O allow |
//! | `window` | one window: units of one owner, locked together |
//! | `at_once` | parts of a window that are under way at the same time |
//! | `units` | what windows of every level do with their units |
//! | `scrub_parity` | a window of a level with parity |
//! | `compare` | parity held against data, and whose block is wrong |
//! | `scrub_copies` | a window of a level with copies |
//! | `vote` | copies held against each other |
//! | `replace` | a window of a member that is being replaced: copied to its replacement |
//! | `correct` | blocks that a repair writes, read back afterwards |
//! | `relocate` | a window of a reshape: from one geometry to the other |
//! | `gentle` | the bytes that are asked for at a time while clients want the members |
//! | `meter` | the rate |
//!
//! Control decides which member is rebuilt, and records a job's progress in the superblocks.

mod at_once;
mod compare;
mod correct;
mod gentle;
mod job;
mod meter;
pub(crate) mod relocate;
mod replace;
mod scrub_copies;
mod scrub_parity;
mod units;
mod vote;
pub(crate) mod window;

pub(crate) use job::{Job, JobEnd, Plan, Step};
