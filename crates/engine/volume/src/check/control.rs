//! The checks of a volume: one at most is under way. It moves nothing, so it may be under way beside a job.
//!
//! The state of a check is kept in memory: a pause keeps it, and a check that a crash or an unmount interrupted begins
//! anew at the next mount. It is recorded only so that it does.

use super::one::{Check, CheckEnd, Halt};
use super::report::CheckReport;
use super::walk::Walk;
use crate::error::VolumeError;
use crate::files::Files;
use crate::parts::Parts;
use crate::progress::JobStatus;
use braid_format::volume::job::{JobKind, JobRecord};
use braid_format::volume::{BLOCK, keys};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// The checks of a volume.
pub struct Checks {
    on: Rc<Parts>,
    files: Rc<Files>,
    /// The check under way.
    current: RefCell<Option<Rc<Check>>>,
    /// The end of the last one since the mount.
    last: RefCell<Option<CheckEnd>>,
    /// The volume is being closed: no check starts any more.
    suspended: Cell<bool>,
}

impl Checks {
    /// Of these parts; none under way, and none that has ended.
    pub fn new(on: Parts, files: Rc<Files>) -> Checks {
        Checks {
            on: Rc::new(on),
            files,
            current: RefCell::new(None),
            last: RefCell::new(None),
            suspended: Cell::new(false),
        }
    }

    fn current(&self) -> Option<Rc<Check>> {
        self.current.borrow().clone()
    }

    /// Checks all metadata, with `repair` puts right what can be, and waits for the end.
    ///
    /// # Errors
    /// As [`start`](Checks::start); when metadata cannot be read at all, or the check was cancelled.
    pub async fn check(self: &Rc<Self>, repair: bool) -> Result<CheckReport, VolumeError> {
        let check = self.begin(kind_of(repair))?;
        match check.wait_end().await {
            CheckEnd::Done(report) => Ok((*report).clone()),
            CheckEnd::Failed(errno) => {
                Err(VolumeError::File { doing: "checking the volume", errno })
            }
            CheckEnd::Cancelled => Err(VolumeError::Refused("the check was cancelled".into())),
        }
    }

    /// Starts a check of all metadata. It runs in the background, in small steps, and beside another job.
    ///
    /// # Errors
    /// When one is under way, the volume is being unmounted, or `repair` is wanted and nothing can be changed.
    pub fn start(self: &Rc<Self>, repair: bool) -> Result<(), VolumeError> {
        self.begin(kind_of(repair)).map(|_| ())
    }

    /// Starts to read all data and to hold it against its checksums. It runs in the background, and beside another job.
    ///
    /// # Errors
    /// As [`start`](Checks::start), and when the volume has no checksums.
    pub fn start_scrub(self: &Rc<Self>) -> Result<(), VolumeError> {
        if !self.on.sums.is_on() {
            let why =
                "the volume was made without checksums: there is nothing to hold its data against";
            return Err(VolumeError::Refused(why.into()));
        }
        self.begin(JobKind::Scrub).map(|_| ())
    }

    fn begin(self: &Rc<Self>, kind: JobKind) -> Result<Rc<Check>, VolumeError> {
        if self.suspended.get() {
            return Err(VolumeError::Refused("the volume is being unmounted".into()));
        }
        if let Some(current) = self.current() {
            return Err(VolumeError::Busy { running: current.kind().name() });
        }
        if kind == JobKind::Repair {
            let doing = "starting a repair";
            let writable = self.on.transactions.writable();
            writable.map_err(|errno| VolumeError::File { doing, errno })?;
        }
        let check = self.new_check(kind);
        self.run_in_background(&check);
        self.record(Some(&check));
        Ok(check)
    }

    fn new_check(&self, kind: JobKind) -> Rc<Check> {
        let total = match kind {
            JobKind::Scrub => self.on.bricks.usage().0 * BLOCK,
            _ => self.on.transactions.store().space().used,
        };
        Check::new(&self.on.shard, total.max(1), kind)
    }

    fn run_in_background(self: &Rc<Self>, check: &Rc<Check>) {
        *self.current.borrow_mut() = Some(Rc::clone(check));
        *self.last.borrow_mut() = None;
        let (own, check) = (Rc::clone(self), Rc::clone(check));
        self.on.shard.spawn(async move {
            let end = match Walk::run(Rc::clone(&own.on), &own.files, &check).await {
                Ok(report) => CheckEnd::Done(Arc::new(report)),
                Err(Halt::Failed(errno)) => CheckEnd::Failed(errno),
                Err(Halt::Ended) => CheckEnd::Cancelled,
            };
            own.current.borrow_mut().take();
            *own.last.borrow_mut() = Some(end.clone());
            // One that the unmount interrupts begins anew at the next mount.
            if !own.suspended.get() || matches!(end, CheckEnd::Done(_)) {
                own.record(None);
            }
            check.finish(end);
        });
    }

    /// Records the check under way, or that there is none.
    fn record(&self, check: Option<&Check>) {
        // Nothing is recorded where nothing is committed.
        if self.on.transactions.writable().is_ok() {
            let record = check.map(|check| check.record().encode());
            self.on.transactions.set(keys::CHECK.to_vec(), record);
        }
    }

    /// The check under way.
    pub fn status(&self) -> Option<JobStatus> {
        self.current().map(|check| check.status())
    }

    /// The end of the last check since the mount; `None`: none has, or one is under way.
    pub fn last(&self) -> Option<CheckEnd> {
        self.last.borrow().clone()
    }

    /// The check stops after the step under way, and what it has seen stays good; or it goes on.
    pub fn set_paused(&self, paused: bool) {
        if let Some(check) = self.current() {
            check.set_paused(paused);
            self.record(Some(&check));
        }
    }

    /// Ends the check after the step under way.
    pub fn cancel(&self) {
        if let Some(check) = self.current() {
            check.cancel();
        }
    }

    /// Waits until no check is under way, or it is paused.
    pub async fn wait(&self) {
        if let Some(check) = self.current() {
            check.wait_stopped().await;
        }
    }

    /// Begins the check anew that an earlier life left unfinished.
    ///
    /// # Errors
    /// When its record cannot be read.
    pub async fn resume_recorded(self: &Rc<Self>) -> Result<(), VolumeError> {
        let Some(bytes) = self.on.transactions.get(keys::CHECK).await? else { return Ok(()) };
        let record = JobRecord::parse(&bytes)?;
        let check = self.new_check(record.kind);
        check.set_paused(record.paused);
        self.run_in_background(&check);
        Ok(())
    }

    /// No check starts any more. The one under way ends, and the next mount begins it anew.
    pub async fn suspend(&self) {
        self.suspended.set(true);
        if let Some(check) = self.current() {
            check.cancel();
            check.wait_end().await;
        }
    }
}

fn kind_of(repair: bool) -> JobKind {
    if repair { JobKind::Repair } else { JobKind::Check }
}
