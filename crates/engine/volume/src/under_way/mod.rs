//! The job and the check that are under way in a volume, as the volume holds them. They are carried out above it.
//!
//! | file | subject |
//! |---|---|
//! | `jobs` | the job: which it is, how far it is, why it stops |
//! | `check` | the check: how far it is, how the last one ended |
//! | `report` | the findings of a check |
//! | `pace` | how many moves are under way, and how fast |

mod check;
mod jobs;
mod pace;
mod report;

pub use check::{Check, CheckEnd, Halt};
pub use jobs::{JobState, JobStatus, Jobs, NewJob, Running, Stop};
pub use pace::STEP_NANOS;
pub use report::{CheckReport, Lost};
