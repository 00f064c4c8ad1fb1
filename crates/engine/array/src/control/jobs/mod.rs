//! Decides which job is due, runs it, and remembers how it ended.
//!
//! As in md, one job runs at a time: a reshape that was begun before all else, a recovery before a resync
//! (redundancy that is missing is worse than redundancy that may be wrong), either before a check or repair. A job that gives way
//! or is cancelled goes on from its checkpoint when its turn comes, except for checks and repairs,
//! which end: whoever asked for one knows where to go on (`scrub`).
//!
//! | file | subject |
//! |---|---|
//! | `recovery` | what progress and end of a recovery or resync mean for views and superblocks |
//! | `replacing` | a member that serves and is copied to its replacement meanwhile |
//! | `scrub` | checks and repairs: asked for, gone on with, reported |
//! | `reshape` | the data of an array moved to another shape, window by window |
//! | `moving` | one window of it |
//! | `way` | where a reshape's data lies, and how far its next window may go |
//! | `schedule` | the job that runs, and what is remembered of the last |
//! | `stuck` | jobs that could not go on, and when they are tried again |
//! | `foreground` | the I/O of clients, for which jobs make room |

mod foreground;
mod moving;
mod recovery;
mod replacing;
mod reshape;
pub(crate) mod schedule;
mod scrub;
pub(crate) mod stuck;
pub(crate) mod way;

use crate::control::bitmap::WriteIntent;
use crate::control::journal::WriteJournal;
use crate::control::ppl::PartialParity;
use crate::control::record::Record;
use crate::control::record::members::Standing;
use crate::engine::Engine;
use crate::engine::window::WindowKind;
use crate::error::ControlError;
use crate::jobs::{Job, JobEnd, Plan};
use crate::options::{AssembleOptions, SyncSpeed};
use crate::state::findings::{Findings, Verdict};
use crate::state::geometry::{Geometry, REGION};
use crate::state::view::MemberNr;
use crate::status::{JobKind, JobOutcome, LastJob};
use braid_layout::Layout;
use braid_shard::Nanos;
use schedule::{Schedule, Wanted};
use std::rc::Rc;
use stuck::MayStick;

/// Bytes of a member that a window covers, about.
const WINDOW: u64 = 1 << 20;
/// Foreground I/O counts as going on for so long after it was seen, in nanoseconds.
const BUSY_FOR: Nanos = 20_000_000;
/// Engines are asked for their counters this often, in nanoseconds.
const LOOK_EVERY: Nanos = 5_000_000;

/// A job that should run.
#[derive(Clone, Copy, Debug)]
enum Due {
    /// Go on with the reshape that the superblocks speak of.
    Reshape,
    /// Fill this member, which is a spare or was being filled already.
    Recover(MemberNr),
    /// Fill this member, which is to replace one that serves, or is a spare that may.
    Replace(MemberNr),
    Resync,
    Scrub(Wanted),
}

/// The jobs of one array.
pub struct Jobs {
    record: Rc<Record>,
    bitmap: Rc<WriteIntent>,
    ppl: Rc<PartialParity>,
    journal: Rc<WriteJournal>,
    /// Bytes that caches may take.
    memory_max: u64,
    pub(super) schedule: Schedule,
}

impl Jobs {
    /// None runs yet. They are told of members that come and go.
    pub(super) fn new(
        record: &Rc<Record>,
        bitmap: &Rc<WriteIntent>,
        (ppl, journal): (&Rc<PartialParity>, &Rc<WriteJournal>),
        options: &AssembleOptions,
    ) -> Rc<Jobs> {
        let jobs = Rc::new(Jobs {
            record: Rc::clone(record),
            bitmap: Rc::clone(bitmap),
            ppl: Rc::clone(ppl),
            journal: Rc::clone(journal),
            memory_max: options.memory_max,
            schedule: Schedule::new(options.sync_speed, options.sync_range),
        });
        let listening = Rc::downgrade(&jobs);
        record.when_members_change(move || {
            if let Some(jobs) = listening.upgrade() {
                jobs.look_again();
            }
        });
        jobs
    }

    /// The kind of the job that runs, or is about to.
    pub(super) fn job_kind_now(&self) -> Option<JobKind> {
        if let Some(kind) = self.schedule.running() {
            return Some(kind);
        }
        if self.record.roster.borrow().shared.reshape.is_some() {
            // Nothing else is done before it has ended.
            return Some(JobKind::Reshape);
        }
        self.due().map(|due| match due {
            Due::Reshape => JobKind::Reshape,
            Due::Recover(_) | Due::Replace(_) => JobKind::Recover,
            Due::Resync => JobKind::Resync,
            Due::Scrub(wanted) => wanted.scrub.kind(),
        })
    }

    /// md's "idle": ends a check or repair; a resync or recovery starts again from its checkpoint.
    pub fn cancel_job(&self) {
        self.schedule.work.borrow_mut().wanted = None;
        self.schedule.cancel();
    }

    /// md's "frozen": no job makes progress until it is called with false. Windows in flight are
    /// completed.
    pub fn pause_jobs(&self, paused: bool) {
        self.schedule.pause(paused);
    }

    /// Waits until no job runs and none is due, or the array has been stopped.
    pub async fn wait_idle(&self) {
        let idle = || (self.record.end.has_begun() || !self.is_working()).then_some(());
        self.record.changed.wait_for(idle).await;
    }

    fn is_working(&self) -> bool {
        let follows = self.schedule.more_follows.get() && self.is_settled();
        follows || self.schedule.work.borrow().busy || self.due().is_some()
    }

    /// Nothing is under way or due, and all redundancy is there: the moment for another change of shape.
    pub(super) fn is_settled(&self) -> bool {
        let roster = self.record.roster.borrow();
        let whole = roster.degraded(self.record.widest().slots()) == 0;
        let settled = roster.shared.reshape.is_none()
            && roster.resynced == u64::MAX
            && roster.being_replaced().is_none()
            && !roster.members.iter().any(|member| member.standing.is_filled());
        let works = !self.record.read_only && !roster.broken && !self.record.end.has_begun();
        drop(roster);
        whole && settled && works && !self.schedule.work.borrow().busy && self.due().is_none()
    }

    /// Has no job start, and a stop wait, until [`Jobs::allow`].
    ///
    /// # Errors
    /// The job that runs, or is about to.
    pub(super) fn forbid(&self) -> Result<(), JobKind> {
        let mut work = self.schedule.work.borrow_mut();
        if std::mem::replace(&mut work.busy, true) {
            let running = work.job.as_ref().map(|job| job.kind());
            let wanted = work.wanted.map(|wanted| wanted.scrub.kind());
            return Err(running.or(wanted).unwrap_or(JobKind::Resync));
        }
        self.schedule.forbidden.set(true);
        Ok(())
    }

    /// Jobs may start again.
    pub(super) fn allow(&self) {
        self.schedule.forbidden.set(false);
        self.schedule.work.borrow_mut().busy = false;
        self.record.changed.notify_all();
    }

    /// Sets the limits of background jobs, in KiB per second and member.
    ///
    /// # Errors
    /// A maximum of 0, or below the minimum.
    pub fn set_sync_speed(&self, min_kib: u64, max_kib: u64) -> Result<(), ControlError> {
        if max_kib == 0 || max_kib < min_kib {
            let array = self.record.name.clone();
            return Err(ControlError::Speed { array, min: min_kib, max: max_kib });
        }
        self.schedule.speed.set(SyncSpeed { min_kib, max_kib });
        Ok(())
    }

    /// The members are not what they were: what was stuck may work now, and a job that is less
    /// urgent than a recovery gives way to it.
    pub(crate) fn look_again(&self) {
        self.schedule.work.borrow_mut().stuck.forget();
        let due = self.due();
        let work = self.schedule.work.borrow();
        let Some(job) = &work.job else { return };
        let gives_way = match due {
            Some(Due::Recover(_)) => {
                !matches!(job.kind(), JobKind::Recover | JobKind::Reshape)
                    || job.replaces()
                    || self.is_better_together(job)
            }
            Some(Due::Replace(_)) => matches!(job.kind(), JobKind::Check | JobKind::Repair),
            _ => false,
        };
        if gives_way {
            job.cancel();
        }
    }

    /// Tries jobs again that could not go on; false when there are none.
    pub fn try_again(&self) -> bool {
        let now = self.record.shard.now();
        let any = {
            let mut work = self.schedule.work.borrow_mut();
            let any = !work.stuck.waiting(now).is_empty();
            work.stuck.forget();
            any
        };
        if any {
            self.record.changed.notify_all();
        }
        any
    }

    fn due(&self) -> Option<Due> {
        let (roster, work) = (self.record.roster.borrow(), self.schedule.work.borrow());
        let now = self.record.shard.now();
        let may = |job| !work.stuck.holds(job, now);
        if self.record.read_only
            || self.record.end.has_begun()
            || self.schedule.forbidden.get()
            || roster.broken
            || roster.lacks_journal()
        {
            return None;
        }
        if !self.record.geometry().level.has_redundancy() {
            return None;
        }
        if roster.shared.reshape.is_some() {
            return may(MayStick::Reshape).then_some(Due::Reshape);
        }
        if may(MayStick::Recovery) {
            let rebuilding = roster
                .members
                .iter()
                .find(|member| matches!(member.standing, Standing::Rebuilding { .. }));
            let spare = roster.members.iter().find(|member| member.standing == Standing::Spare);
            let empty = roster.empty_slot(self.record.geometry().slots()).is_some();
            if let Some(member) = rebuilding.or(spare.filter(|_| empty)) {
                return Some(Due::Recover(member.nr));
            }
        }
        if roster.resynced != u64::MAX && may(MayStick::Resync) {
            return Some(Due::Resync);
        }
        // After the resync: it makes what both hold the same.
        if roster.resynced == u64::MAX
            && may(MayStick::Replacement)
            && let Some(nr) = roster.replacement_due()
        {
            return Some(Due::Replace(nr));
        }
        work.wanted.map(Due::Scrub)
    }

    /// Runs what is due, one after the other, until the array stops.
    pub(crate) async fn supervise(self: Rc<Self>) {
        loop {
            let next = self
                .record
                .changed
                .wait_for(|| {
                    if self.record.end.has_begun() {
                        return Some(None);
                    }
                    self.due().map(Some)
                })
                .await;
            let Some(due) = next else { return };
            self.schedule.work.borrow_mut().busy = true;
            match due {
                Due::Reshape => self.reshape().await,
                Due::Recover(nr) => self.recover(nr).await,
                Due::Replace(nr) => self.replace(nr).await,
                Due::Resync => self.resync().await,
                Due::Scrub(wanted) => self.scrub(wanted).await,
            }
            self.schedule.work.borrow_mut().busy = false;
            self.record.changed.notify_all();
            // A job that ends at once must not keep the shard from everything else.
            self.record.shard.yield_now().await;
        }
    }

    pub(crate) fn log_findings(&self, kind: JobKind, findings: &Findings) {
        let array = &self.record.name;
        for (nr, bytes) in &findings.wrong {
            let name = self.record.member_name(*nr);
            tracing::warn!("array {array}: {kind}: {name} is wrong in {bytes} bytes");
        }
        if let Some(first) = findings.places.iter().find(|place| place.verdict == Verdict::Lost) {
            tracing::error!(
                "array {array}: {kind}: {} bytes of members cannot be read, and the others are not enough to compute \
                 them; the first belong to array bytes {} to {}",
                findings.lost,
                first.array.start,
                first.array.end
            );
        }
        if findings.unmended > 0 {
            let bytes = findings.unmended;
            tracing::error!("array {array}: {kind}: {bytes} bytes of members could not be mended");
        }
    }

    pub(crate) fn new_job(&self, plan: Plan) -> Rc<Job> {
        let job = self.schedule.begin(&self.record.shard, plan);
        if self.record.end.has_begun() {
            job.cancel();
        }
        job
    }

    /// The end of a job that would fail again at once, where it has `failed`: it is tried again later.
    pub(super) fn end_job_or_wait(&self, job: &Job, end: JobEnd, (kind, failed): (MayStick, bool)) {
        let outcome = outcome(job, end);
        if let JobOutcome::Failed(why) = &outcome
            && failed
        {
            let now = self.record.shard.now();
            let wait = self.schedule.work.borrow_mut().stuck.failed(kind, why.clone(), now);
            let (shard, record) = (self.record.shard.clone(), Rc::downgrade(&self.record));
            self.record.shard.spawn(async move {
                shard.sleep(wait).await;
                if let Some(record) = record.upgrade() {
                    record.changed.notify_all();
                }
            });
            let (array, job, seconds) = (&self.record.name, job.kind(), wait / 1_000_000_000);
            tracing::warn!("array {array}: {job} is tried again in {seconds} s");
        } else if outcome == JobOutcome::Done {
            self.schedule.work.borrow_mut().stuck.went_on(kind);
        }
        self.end_with(job, outcome);
    }

    pub(crate) fn end_job(&self, job: &Job, end: JobEnd) {
        self.end_with(job, outcome(job, end));
    }

    fn end_with(&self, job: &Job, outcome: JobOutcome) {
        if let JobOutcome::Failed(why) = &outcome {
            tracing::error!("array {}: {} ended: {why}", self.record.name, job.kind());
        }
        self.schedule.end(LastJob { kind: job.kind(), outcome, mismatches: job.mismatches() });
    }

    /// A function that tells whether foreground I/O goes on; it has the engines asked now and then.
    pub(crate) fn is_busy(self: &Rc<Self>) -> impl Fn() -> bool + use<> {
        let jobs = Rc::clone(self);
        move || {
            let now = jobs.record.shard.now();
            let foreground = &jobs.schedule.foreground;
            if !foreground.asking.get() && now.saturating_sub(foreground.asked.get()) >= LOOK_EVERY
            {
                foreground.asking.set(true);
                foreground.asked.set(now);
                let jobs = Rc::clone(&jobs);
                jobs.record.shard.clone().spawn(async move { jobs.look().await });
            }
            foreground.seen.get().is_some_and(|seen| now.saturating_sub(seen) < BUSY_FOR)
        }
    }

    async fn look(&self) {
        let count = |engine: &Engine| {
            let counters = engine.measured.counters();
            counters.reads + counters.writes
        };
        let requests: u64 = self.record.engines.ask(count).await.into_iter().flatten().sum();
        let foreground = &self.schedule.foreground;
        if foreground.requests.replace(requests) != requests {
            foreground.seen.set(Some(self.record.shard.now()));
        }
        foreground.asking.set(false);
    }
}

/// How `job` ended, for people.
fn outcome(job: &Job, end: JobEnd) -> JobOutcome {
    match end {
        JobEnd::Done => JobOutcome::Done,
        JobEnd::Cancelled => JobOutcome::Interrupted,
        JobEnd::Failed(error) => {
            JobOutcome::Failed(format!("at byte {}: {error}", job.bytes(job.done())))
        }
    }
}

/// A job over all units from that with byte `from` on: a component byte at parity levels, an array
/// byte at levels 1 and 10.
pub(crate) fn plan(
    geometry: &Geometry,
    job: JobKind,
    window: WindowKind,
    member: Option<MemberNr>,
    from: u64,
) -> Plan {
    let (bytes_per_unit, end, total_bytes) = match &geometry.layout {
        Layout::Parity(parity) => {
            (parity.chunk_size(), parity.stripes(), parity.used_component_size())
        }
        Layout::Mirror(mirror) => (REGION, geometry.units(), mirror.array_size()),
        other => (other.chunk_size().max(1), geometry.units(), other.array_size()),
    };
    // The last unit may be a part of one, and then its end is a byte within it.
    let first = if from >= total_bytes { end } else { from / bytes_per_unit };
    Plan {
        job,
        window: Some(window),
        member,
        first: first.min(end),
        end,
        only: None,
        units_per_window: (WINDOW / bytes_per_unit).max(1),
        bytes_per_unit,
        total_bytes,
        mismatches: 0,
    }
}
