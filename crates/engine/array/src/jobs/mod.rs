//! Long jobs: resync, check, repair and recovery, each a cursor that moves over the array in windows.
//!
//! `job` sends the windows out at the pace that limits and foreground I/O allow; `window` says what
//! is done in one; `meter` measures the rate. Who is rebuilt, and what a job's progress means for the
//! superblocks, is control's business.

mod job;
mod meter;
pub(crate) mod window;

pub(crate) use job::{Job, JobEnd, Plan};
