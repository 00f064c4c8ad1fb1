//! The progress of a job or a check.

use braid_filesystem::Ino;
use braid_format::volume::job::JobKind;

/// The state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It moves stripes.
    Running,
    /// It waits to be resumed.
    Paused,
    /// It ended before its time.
    Failed(String),
}

/// Progress of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStatus {
    /// The work that it does.
    pub kind: JobKind,
    /// The brick that it is about.
    pub brick: Option<u16>,
    /// The file that it is about.
    pub ino: Option<Ino>,
    /// Bytes that have been moved.
    pub done: u64,
    /// Bytes that were to be moved at the start.
    pub total: u64,
    /// Its state.
    pub state: JobState,
}
