//! The check as a job. It moves nothing, so it may be under way beside another job.
//!
//! The state of a check is kept in memory: a pause keeps it, and a check that a crash or an unmount interrupted begins
//! anew at the next mount. It is recorded only so that it does.

use crate::error::VolumeError;
use crate::under_way::{Check, CheckEnd, CheckReport, Halt, JobState, JobStatus, STEP_NANOS};
use crate::volume::Volume;
use braid_format::volume::job::{JobKind, JobRecord};
use braid_format::volume::keys;
use std::rc::Rc;
use std::sync::Arc;

impl Volume {
    /// Checks all metadata, with `repair` puts right what can be, and waits for the end.
    ///
    /// # Errors
    /// As [`start_check`](Volume::start_check); when metadata cannot be read at all, or the check was cancelled.
    pub async fn check(self: &Rc<Self>, repair: bool) -> Result<CheckReport, VolumeError> {
        let check = self.begin_check(repair)?;
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
    pub fn start_check(self: &Rc<Self>, repair: bool) -> Result<(), VolumeError> {
        self.begin_check(repair).map(|_| ())
    }

    fn begin_check(self: &Rc<Self>, repair: bool) -> Result<Rc<Check>, VolumeError> {
        if self.jobs.is_suspended() {
            return Err(VolumeError::Refused("the volume is being unmounted".into()));
        }
        if let Some(current) = self.jobs.checks.current() {
            return Err(VolumeError::Busy { running: current.kind().name() });
        }
        if repair {
            let doing = "starting a repair";
            self.writable().map_err(|errno| VolumeError::File { doing, errno })?;
        }
        let check = self.new_check(repair);
        self.run_in_background(&check);
        self.record_check(&check);
        Ok(check)
    }

    fn new_check(&self, repair: bool) -> Rc<Check> {
        let total = self.transactions.store().space().used.max(1);
        Check::new(&self.shard, total, repair)
    }

    fn run_in_background(self: &Rc<Self>, check: &Rc<Check>) {
        *self.jobs.checks.current.borrow_mut() = Some(Rc::clone(check));
        *self.jobs.checks.last.borrow_mut() = None;
        let (own, check) = (Rc::clone(self), Rc::clone(check));
        self.shard.spawn(async move {
            let end = match own.run_check(&check).await {
                Ok(report) => CheckEnd::Done(Arc::new(report)),
                Err(Halt::Failed(errno)) => CheckEnd::Failed(errno),
                Err(Halt::Ended) => CheckEnd::Cancelled,
            };
            let checks = &own.jobs.checks;
            checks.current.borrow_mut().take();
            *checks.last.borrow_mut() = Some(end.clone());
            // One that the unmount interrupts begins anew at the next mount.
            if !own.jobs.is_suspended() || matches!(end, CheckEnd::Done(_)) {
                own.forget_record();
            }
            *check.end.borrow_mut() = Some(end);
            check.changed.notify_all();
        });
    }

    fn record_check(&self, check: &Check) {
        // Nothing is recorded where nothing is committed.
        if self.writable().is_ok() {
            let record = JobRecord {
                kind: check.kind(),
                brick: None,
                ino: 0,
                cursor: (0, 0),
                done: 0,
                total: check.total,
                paused: check.paused.get(),
            };
            self.transactions.set(keys::CHECK.to_vec(), Some(record.encode()));
        }
    }

    fn forget_record(&self) {
        if self.writable().is_ok() {
            self.transactions.set(keys::CHECK.to_vec(), None);
        }
    }

    /// Between two steps of a check: requests of files go first, and while it is paused nothing happens.
    pub(crate) async fn rest_of_check(&self, check: &Check) -> Result<(), Halt> {
        self.shard.next_turn().await;
        let pace = &self.jobs.pace;
        self.shard.sleep(pace.rest(self.shard.now(), || self.has_heads())).await;
        let fresh = check.fresh.take();
        loop {
            let goes_on = || (check.ends.get() || !check.paused.get()).then_some(());
            check.changed.wait_for(goes_on).await;
            if check.ends.get() {
                return Err(Halt::Ended);
            }
            match pace.wait_check(self.shard.now(), fresh) {
                0 => return Ok(()),
                wait => self.shard.sleep(wait.min(STEP_NANOS)).await,
            }
        }
    }

    /// The check under way.
    pub fn check_job(&self) -> Option<JobStatus> {
        let check = self.jobs.checks.current()?;
        Some(JobStatus {
            kind: check.kind(),
            brick: None,
            ino: None,
            done: check.done.get(),
            total: check.total,
            state: if check.paused.get() { JobState::Paused } else { JobState::Running },
        })
    }

    /// The end of the last check since the mount; `None`: none has, or one is under way.
    pub fn last_check(&self) -> Option<CheckEnd> {
        self.jobs.checks.last.borrow().clone()
    }

    /// The check stops after the step under way; what it has seen stays good.
    pub fn pause_check(&self) {
        self.set_check_paused(true);
    }

    /// A check that was paused goes on.
    pub fn resume_check(&self) {
        self.set_check_paused(false);
    }

    fn set_check_paused(&self, paused: bool) {
        if let Some(check) = self.jobs.checks.current() {
            check.paused.set(paused);
            check.changed.notify_all();
            self.record_check(&check);
        }
    }

    /// Ends the check after the step under way.
    pub fn cancel_check(&self) {
        if let Some(check) = self.jobs.checks.current() {
            check.ends.set(true);
            check.changed.notify_all();
        }
    }

    /// Waits until no check is under way, or it is paused.
    pub async fn wait_check(&self) {
        if let Some(check) = self.jobs.checks.current() {
            let stopped = || (check.end.borrow().is_some() || check.paused.get()).then_some(());
            check.changed.wait_for(stopped).await;
        }
    }

    /// Begins the check anew that an earlier life left unfinished.
    pub(super) async fn resume_recorded_check(self: &Rc<Self>) -> Result<(), VolumeError> {
        let Some(bytes) = self.transactions.get(keys::CHECK).await? else { return Ok(()) };
        let record = JobRecord::parse(&bytes)?;
        let check = self.new_check(record.kind == JobKind::Repair);
        check.paused.set(record.paused);
        self.run_in_background(&check);
        Ok(())
    }

    /// Ends the check, so that the volume can be closed; the next mount begins it anew.
    pub(super) async fn suspend_check(&self) {
        if let Some(check) = self.jobs.checks.current() {
            self.cancel_check();
            check.wait_end().await;
        }
    }
}
