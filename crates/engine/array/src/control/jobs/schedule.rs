//! The job of an array that runs, how the last one ended, and what decides on the next.
//!
//! Does not know what a job does, nor which members there are.

use crate::control::jobs::foreground::Foreground;
use crate::control::jobs::stuck::Stuck;
use crate::jobs::{Job, Plan};
use crate::options::{Scrub, SyncRange, SyncSpeed};
use crate::status::{JobKind, JobStatus, LastJob, Scrubbed};
use braid_shard::{Nanos, Shard};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// See the module's documentation.
pub(crate) struct Schedule {
    pub(crate) work: RefCell<Work>,
    pub(crate) speed: Rc<Cell<SyncSpeed>>,
    /// The part of the array that checks and repairs go through.
    pub(crate) range: Cell<SyncRange>,
    pub(crate) foreground: Foreground,
    /// No job may start: stripes are being given to other shards.
    pub(crate) forbidden: Cell<bool>,
    /// Another change of shape begins as soon as all jobs are done.
    pub(crate) more_follows: Cell<bool>,
}

impl Scrub {
    /// Its kind of job.
    pub(crate) fn kind(&self) -> JobKind {
        if self.repair { JobKind::Repair } else { JobKind::Check }
    }
}

/// A check or repair that was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) nr: u64,
    pub(crate) scrub: Scrub,
}

/// The state of one array's jobs.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) job: Option<Rc<Job>>,
    pub(crate) last: Option<LastJob>,
    /// A check or repair that was asked for.
    pub(crate) wanted: Option<Wanted>,
    /// Checks and repairs that were asked for so far.
    pub(crate) scrubs: u64,
    /// The number of the one that runs.
    pub(crate) scrub: Option<u64>,
    /// Mismatches of the last check or repair, in sectors.
    pub(crate) mismatch_cnt: u64,
    /// The places that it found.
    pub(crate) scrubbed: Option<Scrubbed>,
    /// Those that could not go on.
    pub(crate) stuck: Stuck,
    paused: bool,
    /// A job is under way, its start or its end, or [forbidden](Schedule::forbidden).
    pub(crate) busy: bool,
}

impl Schedule {
    pub(crate) fn new(speed: SyncSpeed, range: SyncRange) -> Schedule {
        Schedule {
            work: RefCell::default(),
            speed: Rc::new(Cell::new(speed)),
            range: Cell::new(range),
            foreground: Foreground::default(),
            forbidden: Cell::new(false),
            more_follows: Cell::new(false),
        }
    }

    /// The kind of the job that runs.
    pub(crate) fn running(&self) -> Option<JobKind> {
        self.work.borrow().job.as_ref().map(|job| job.kind())
    }

    /// Progress of the job that runs.
    pub(crate) fn status(&self, now: Nanos) -> Option<JobStatus> {
        self.work.borrow().job.as_ref().map(|job| job.status(now))
    }

    /// Has the job that runs end at its next checkpoint.
    pub(crate) fn cancel(&self) {
        if let Some(job) = &self.work.borrow().job {
            job.cancel();
        }
    }

    /// Jobs make no progress until this is called with false.
    pub(crate) fn pause(&self, paused: bool) {
        self.work.borrow_mut().paused = paused;
        if let Some(job) = &self.work.borrow().job {
            job.pause(paused);
        }
    }

    /// A new job, which is the one that runs from here on.
    pub(crate) fn begin(&self, shard: &Shard, plan: Plan) -> Rc<Job> {
        let mut work = self.work.borrow_mut();
        let job = Job::new(shard, plan, Rc::clone(&self.speed), work.paused);
        work.job = Some(Rc::clone(&job));
        job
    }

    /// The job has ended so.
    pub(crate) fn end(&self, last: LastJob) {
        let mut work = self.work.borrow_mut();
        work.last = Some(last);
        work.job = None;
    }
}
