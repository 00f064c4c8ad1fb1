//! A job of a running array, as it is sent over the control socket.

use braid_array::status::JobStatus;
use braid_control::protocol::Job;

/// A job as it is sent.
pub(super) fn job_of(job: &JobStatus) -> Job {
    Job {
        kind: job.kind.to_string(),
        done: job.done,
        total: job.total,
        rate: job.rate,
        eta_seconds: job.eta_seconds,
        mismatches: job.mismatches,
    }
}
