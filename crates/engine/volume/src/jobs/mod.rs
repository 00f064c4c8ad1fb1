//! Long jobs: stripes go to other extents while the volume is used.
//!
//! | file | subject |
//! |---|---|
//! | `wanted` | where a job wants a stripe to be |
//! | `run` | a walk over all recorded extents, and the moves under way |
//! | `control` | start, pause, resume, cancel, progress |
//! | `checking` | the same for the check, which moves nothing |
//! | `migrating` | many files go to one brick |
//! | `bricks` | bricks that come, change and go |
//! | `shrinking` | a brick gives up the end of its data area |
//!
//! One job at a time, and a check beside it. A job is recorded, with a cursor before which everything is done; after a crash it goes on from
//! there. A move that a crash cuts off has moved nothing.

mod bricks;
mod checking;
mod control;
mod migrating;
mod run;
mod shrinking;
mod wanted;

pub use bricks::BrickToAdd;
