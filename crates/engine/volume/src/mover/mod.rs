//! Long jobs: stripes go to other extents while the volume is used.
//!
//! | file | subject |
//! |---|---|
//! | `part` | what this part is made of, and the job that it holds |
//! | `running` | a job under way: how far it is, why it stops |
//! | `control` | start, pause, resume, cancel, progress |
//! | `planning` | the bytes that a job will move, before it begins |
//! | `run` | a walk over all recorded extents, and the moves under way |
//! | `wanted` | where a job wants a stripe to be |
//! | `versions` | stripes that only snapshots have |
//! | `migrating` | where files are told to be |
//! | `shrinking` | a brick gives up the end of its data area |
//!
//! One job at a time, and a check beside it. A job is recorded, with a cursor before which everything is done; after a crash it goes on from
//! there. A move that a crash cuts off has moved nothing.

mod control;
mod copying;
mod migrating;
mod part;
mod planning;
mod run;
mod running;
mod shrinking;
#[cfg(test)]
mod tests;
mod versions;
mod wanted;

pub use part::{Mover, Room};
pub use running::NewJob;
