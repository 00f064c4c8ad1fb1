//! One job: a cursor over a range of units, a bounded number of windows in flight, a pace.
//!
//! A window goes to the shard that owns its units. Windows end in any order; what counts as done is
//! the part of the range below which all have ended. While foreground I/O is seen and the job is at
//! its minimum rate, one small window is in flight (see [`Gentle`]); above the maximum rate none are started.
//!
//! What windows have found counts as soon as they lie below that point, so that a job that is gone through in parts, each from
//! where the one before had come to, finds everything once.
//!
//! Does not know why the units are gone through, nor what is on disk.
//!
//! Invariant: when [`Job::run`] returns, no window is in flight.

use crate::engine::Engine;
use crate::engine::window::{Window, WindowKind, WindowReport};
use crate::jobs::gentle::Gentle;
use crate::jobs::meter::Meter;
use crate::jobs::window::carry_out;
use crate::metadata::bitmap::ranges::{Piece, Ranges};
use crate::options::SyncSpeed;
use crate::state::findings::Findings;
use crate::state::view::MemberNr;
use crate::status::{JobKind, JobStatus};
use braid_device::{IoError, IoErrorKind};
use braid_shard::sync::Notify;
use braid_shard::{Nanos, Shard};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::{Pin, pin};
use std::rc::Rc;

/// Windows in flight on members that have nothing else to do.
const IN_FLIGHT: u32 = 8;
/// Windows in flight while foreground I/O is seen.
const IN_FLIGHT_BUSY: u32 = 1;
/// Steps are so many times as far apart as one takes while foreground I/O is seen: less than one request of 100 meets one.
const STEPS_APART: u64 = 150;
/// Checkpoints in a whole run, about, as md makes them.
const CHECKPOINTS: u64 = 16;
/// The longest sleep of the pace, in nanoseconds: a change of limits is noticed after that.
const NAP: Nanos = 100_000_000;
const SECOND: u128 = 1_000_000_000;

/// The range that a job covers.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) job: JobKind,
    /// The work on each of its windows; `None`: it goes in steps, on the home shard.
    pub(crate) window: Option<WindowKind>,
    /// The member that is filled.
    pub(crate) member: Option<MemberNr>,
    /// Units `first..end`.
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// Go through these bytes only, counted as progress is.
    pub(crate) only: Option<Ranges>,
    pub(crate) units_per_window: u64,
    /// Bytes that a unit counts for in progress and rate, and bytes of the whole range from 0.
    pub(crate) bytes_per_unit: u64,
    pub(crate) total_bytes: u64,
    /// Sectors found not to match below `first`, by an earlier part of the same job.
    pub(crate) mismatches: u64,
}

/// Windows that have ended while others before them have not.
struct Ended {
    /// The unit behind the last.
    end: u64,
    mismatches: u64,
    findings: Findings,
}

/// A step of a job that goes in steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// All units below are done.
    pub(crate) done: u64,
    /// When its last part began, which requests may have had to wait for.
    pub(crate) began: Nanos,
}

/// The outcome of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobEnd {
    Done,
    Cancelled,
    Failed(IoError),
}

impl JobEnd {
    /// More members have failed than the level allows, so that the end of a job cannot be recorded.
    pub(crate) const TOO_FEW: JobEnd =
        JobEnd::Failed(IoError { kind: IoErrorKind::Lost, errno: 0 });
}

/// A checkpoint that is being recorded.
type Recording<'a> = Option<Pin<Box<dyn Future<Output = ()> + 'a>>>;

/// Waits for `other`, while a checkpoint is recorded.
async fn beside(recording: &mut Recording<'_>, other: impl Future<Output = ()>) {
    let mut other = pin!(other);
    poll_fn(|cx| {
        if recording.as_mut().is_some_and(|recording| recording.as_mut().poll(cx).is_ready()) {
            *recording = None;
        }
        other.as_mut().poll(cx)
    })
    .await;
}

/// See the module's documentation.
pub(crate) struct Job {
    shard: Shard,
    plan: Plan,
    speed: Rc<Cell<SyncSpeed>>,
    /// The next unit to start.
    next: Cell<u64>,
    /// All units below have ended.
    done: Cell<u64>,
    /// Windows that have ended above `done`, by their first unit.
    ended: RefCell<BTreeMap<u64, Ended>>,
    in_flight: Cell<u32>,
    /// Slices of the unit before `next` that are left to be started.
    left: Cell<u64>,
    /// Found in the slices of that unit so far.
    of_unit: RefCell<(u64, Findings)>,
    gentle: RefCell<Gentle>,
    /// Windows ended so far.
    reports: Cell<u64>,
    error: Cell<Option<IoError>>,
    mismatches: Cell<u64>,
    findings: RefCell<Findings>,
    cancelled: Cell<bool>,
    paused: Cell<bool>,
    changed: Notify,
    meter: RefCell<Meter>,
    /// When the window before the next one was started, and its bytes of progress: what the maximum
    /// rate puts off the next one by, asked anew each time since the rate may be changed meanwhile.
    last_window: Cell<(Nanos, u64)>,
}

impl Job {
    pub(crate) fn new(
        shard: &Shard,
        plan: Plan,
        speed: Rc<Cell<SyncSpeed>>,
        paused: bool,
    ) -> Rc<Job> {
        let first = plan.first;
        let now = shard.now();
        Rc::new(Job {
            shard: shard.clone(),
            speed,
            next: Cell::new(first),
            done: Cell::new(first),
            ended: RefCell::new(BTreeMap::new()),
            in_flight: Cell::new(0),
            left: Cell::new(0),
            of_unit: RefCell::default(),
            gentle: RefCell::new(Gentle::new(plan.bytes_per_unit)),
            reports: Cell::new(0),
            error: Cell::new(None),
            mismatches: Cell::new(plan.mismatches),
            findings: RefCell::new(Findings::default()),
            cancelled: Cell::new(false),
            paused: Cell::new(paused),
            changed: Notify::new(shard),
            meter: RefCell::new(Meter::new(now, first.saturating_mul(plan.bytes_per_unit))),
            last_window: Cell::new((now, 0)),
            plan,
        })
    }

    pub(crate) fn kind(&self) -> JobKind {
        self.plan.job
    }

    /// It fills a replacement.
    pub(crate) fn replaces(&self) -> bool {
        matches!(self.plan.window, Some(WindowKind::Replace { .. }))
    }

    /// The work on each of its windows.
    pub(crate) fn window(&self) -> Option<WindowKind> {
        self.plan.window
    }

    /// The member that it fills.
    pub(crate) fn member(&self) -> Option<MemberNr> {
        self.plan.member
    }

    pub(crate) fn mismatches(&self) -> u64 {
        self.mismatches.get()
    }

    /// Takes the findings, leaving none.
    pub(crate) fn take_findings(&self) -> Findings {
        self.findings.take()
    }

    /// The findings below the unit that the job has come to.
    pub(crate) fn findings(&self) -> Findings {
        self.findings.borrow().clone()
    }

    /// Bytes of progress at which the job began and will end.
    pub(crate) fn range(&self) -> Range<u64> {
        self.bytes(self.plan.first)..self.bytes(self.plan.end)
    }

    /// Starts no further window; [`Job::run`] returns when those in flight have ended.
    pub(crate) fn cancel(&self) {
        self.cancelled.set(true);
        self.changed.notify_all();
    }

    /// Starts no further window until it is called with false.
    pub(crate) fn pause(&self, paused: bool) {
        self.paused.set(paused);
        self.changed.notify_all();
    }

    pub(crate) fn status(&self, now: Nanos) -> JobStatus {
        let done = self.bytes(self.done.get());
        let total = self.plan.total_bytes;
        let rate = self.meter.borrow().rate(now, done);
        JobStatus {
            kind: self.plan.job,
            done,
            total,
            rate,
            eta_seconds: (total - done).checked_div(rate),
            member: self.plan.member,
            mismatches: self.mismatches.get(),
        }
    }

    /// Bytes of progress that `units` are.
    pub(crate) fn bytes(&self, units: u64) -> u64 {
        units.saturating_mul(self.plan.bytes_per_unit).min(self.plan.total_bytes)
    }

    /// Goes through the range. `busy` says whether foreground I/O is seen; `advanced` is told the
    /// unit below which all is done whenever that has moved; `checkpoint` records it, about sixteen
    /// times in all, and is awaited.
    pub(crate) async fn run(
        self: &Rc<Self>,
        engine: &Rc<Engine>,
        busy: impl Fn() -> bool,
        advanced: impl Fn(u64),
        checkpoint: impl AsyncFn(u64),
    ) -> JobEnd {
        let step = ((self.plan.end - self.plan.first.min(self.plan.end)) / CHECKPOINTS).max(1);
        let mut recorded = self.done.get();
        // Windows go on meanwhile.
        let mut recording: Recording<'_> = None;
        loop {
            let reports = self.reports.get();
            let before = self.done.get();
            beside(&mut recording, self.start_windows(engine, &busy)).await;
            if self.in_flight.get() == 0 && !self.goes_on() {
                break;
            }
            if self.reports.get() == reports {
                beside(&mut recording, self.wait_for_news(reports)).await;
            } else {
                // Members that complete at submit must not keep the shard from everything else.
                beside(&mut recording, self.shard.yield_now()).await;
            }
            let done = self.done.get();
            if done != before {
                self.meter.borrow_mut().note(self.shard.now(), self.bytes(done));
                advanced(done);
            }
            if done - recorded >= step && done < self.plan.end && recording.is_none() {
                recording = Some(Box::pin(checkpoint(done)));
                recorded = done;
            }
        }
        if let Some(recording) = recording {
            recording.await;
        }
        if self.error.get().is_some() {
            // Nobody goes on from here, so everything counts that was seen.
            for ended in self.ended.take().into_values() {
                self.count(ended.mismatches, ended.findings);
            }
        }
        self.end()
    }

    /// The outcome, now that nothing is under way and nothing will be started.
    fn end(&self) -> JobEnd {
        match self.error.get() {
            Some(error) => JobEnd::Failed(error),
            None if self.done.get() < self.plan.end => JobEnd::Cancelled,
            None => JobEnd::Done,
        }
    }

    /// Goes through the range on this shard, step after step: `step` is given the first unit that is left.
    pub(crate) async fn run_steps(
        self: &Rc<Self>,
        busy: impl Fn() -> bool,
        step: impl AsyncFn(u64) -> Result<Step, IoError>,
    ) -> JobEnd {
        let mut took = 0;
        while self.may_step(&busy, took).await {
            let (first, before) = (self.done.get(), self.shard.now());
            match step(first).await {
                Ok(Step { done, began }) => {
                    took = self.shard.now().saturating_sub(began);
                    self.next.set(done);
                    self.done.set(done);
                    let bytes = (done - first).saturating_mul(self.plan.bytes_per_unit);
                    self.last_window.set((before, bytes));
                    self.meter.borrow_mut().note(self.shard.now(), self.bytes(done));
                }
                Err(error) => self.error.set(Some(error)),
            }
            // Members that complete at submit must not keep the shard from everything else.
            self.shard.yield_now().await;
        }
        self.end()
    }

    /// Waits until the next step may begin; false when there is none. A step cannot be made small: while foreground I/O is
    /// seen, and the job is not below its least rate, so much time is left to it that few of its requests meet a step.
    async fn may_step(&self, busy: &impl Fn() -> bool, took: Nanos) -> bool {
        let ended = self.shard.now();
        let pause = took.saturating_mul(STEPS_APART);
        while self.goes_on() {
            if self.paused.get() {
                let over = || (!self.paused.get() || !self.goes_on()).then_some(());
                self.changed.wait_for(over).await;
                continue;
            }
            let gives_way = self.done.get() > self.plan.first && self.gives_way(busy);
            let pause = if gives_way { pause } else { 0 };
            let until = self.not_before().max(ended.saturating_add(pause));
            let wait = until.saturating_sub(self.shard.now());
            if wait == 0 {
                return true;
            }
            self.shard.sleep(wait.min(NAP)).await;
        }
        false
    }

    /// A step may have another part: nobody else wants the members, and nobody has set a greatest rate, or waits for an end.
    pub(crate) fn may_take_more(&self, busy: impl Fn() -> bool) -> bool {
        let limited = self.speed.get().max_kib != u64::MAX;
        self.goes_on() && !self.paused.get() && !limited && !busy()
    }

    /// More windows will be started.
    fn goes_on(&self) -> bool {
        let left = self.next.get() < self.plan.end || self.left.get() != 0;
        left && !self.cancelled.get() && self.error.get().is_none()
    }

    async fn wait_for_news(&self, reports: u64) {
        let waiting_is_over = || {
            let paused = self.paused.get() && self.goes_on();
            let news = self.reports.get() != reports || (self.in_flight.get() == 0 && !paused);
            news.then_some(())
        };
        self.changed.wait_for(waiting_is_over).await;
    }

    async fn start_windows(self: &Rc<Self>, engine: &Rc<Engine>, busy: impl Fn() -> bool) {
        for _ in 0..IN_FLIGHT {
            // The slices of a unit are gone through one after the other.
            let gentle = self.gives_way(&busy);
            let alone = gentle || self.left.get() != 0;
            let limit = if alone { IN_FLIGHT_BUSY } else { IN_FLIGHT };
            if !self.goes_on() || self.paused.get() || self.in_flight.get() >= limit {
                return;
            }
            let wait = self.not_before().saturating_sub(self.shard.now());
            if wait > 0 {
                if self.in_flight.get() == 0 {
                    self.shard.sleep(wait.min(NAP)).await;
                }
                return;
            }
            self.start_window(engine, gentle);
        }
    }

    /// Foreground I/O is seen, and the job is not below its least rate.
    fn gives_way(&self, busy: impl Fn() -> bool) -> bool {
        let least = self.speed.get().min_kib.saturating_mul(1024);
        let rate = || self.meter.borrow().rate(self.shard.now(), self.bytes(self.done.get()));
        busy() && rate() >= least
    }

    fn start_window(self: &Rc<Self>, engine: &Rc<Engine>, gentle: bool) {
        let Some(kind) = self.plan.window else { return };
        let block = engine.info.logical_block;
        let (piece, last) = match self.left.take() {
            0 => match self.next_piece(block) {
                Some(piece) if gentle => self.first_slices(piece, block),
                Some(piece) => (piece, true),
                None => return,
            },
            left => self.more_slices(left, gentle, block),
        };
        let Piece { first, count, slices } = piece;
        let view = engine.view();
        let geometry = view.geometry_of(first);
        let owner = geometry.owner(first);
        let most = self.plan.units_per_window.min(count);
        let count = (1..most).find(|more| geometry.owner(first + more) != owner).unwrap_or(most);
        self.next.set(first + count);
        let bytes = self.gentle.borrow().bytes_of(count, slices, block);
        self.last_window.set((self.shard.now(), bytes));
        self.in_flight.set(self.in_flight.get() + 1);
        let window = Window { kind, first, count, slices };
        let (job, engine) = (Rc::clone(self), Rc::clone(engine));
        let began = self.shard.now();
        self.shard.spawn(async move {
            let report = if owner == engine.shard.id() {
                carry_out(&engine, window).await
            } else {
                let answer = engine.mesh.window(owner, window).await;
                answer.unwrap_or(WindowReport::failed(IoError::new(IoErrorKind::Refused)))
            };
            if gentle {
                let nanos = job.shard.now().saturating_sub(began);
                job.gentle.borrow_mut().took(began, bytes, nanos);
            }
            job.window_ended(window, report, last);
        });
    }

    /// As much of a piece as is asked of the members at once while somebody else wants them; true when that is all of it.
    fn first_slices(&self, piece: Piece, block: u32) -> (Piece, bool) {
        let gentle = self.gentle.borrow();
        let units = gentle.units();
        if units > 0 {
            return (Piece { count: piece.count.min(units), ..piece }, true);
        }
        let taken = gentle.slices(piece.slices, block);
        self.left.set(piece.slices & !taken);
        (Piece { count: 1, slices: taken, ..piece }, taken == piece.slices)
    }

    /// More of the unit that is gone through in slices, or all that is left of it.
    fn more_slices(&self, left: u64, gentle: bool, block: u32) -> (Piece, bool) {
        let taken = if gentle { self.gentle.borrow().slices(left, block) } else { left };
        self.left.set(left & !taken);
        (Piece { first: self.next.get() - 1, count: 1, slices: taken }, taken == left)
    }

    /// The next piece of work; everything before it counts as done. `None`: nothing is left.
    fn next_piece(&self, block: u32) -> Option<Piece> {
        let (next, end) = (self.next.get(), self.plan.end);
        let piece = match &self.plan.only {
            None => Some(Piece { first: next, count: end - next, slices: u64::MAX }),
            Some(only) => only.next(next, self.plan.bytes_per_unit, block.into()),
        };
        let piece = piece.filter(|piece| piece.first < end);
        let first = piece.map_or(end, |piece| piece.first);
        if first > next {
            self.next.set(first);
            self.units_ended(
                next,
                Ended { end: first, mismatches: 0, findings: Findings::default() },
            );
        }
        piece.map(|piece| Piece { count: piece.count.min(end - first), ..piece })
    }

    fn units_ended(&self, first: u64, units: Ended) {
        let mut all = self.ended.borrow_mut();
        all.insert(first, units);
        while let Some(Ended { end, mismatches, findings }) = all.remove(&self.done.get()) {
            self.done.set(end);
            self.count(mismatches, findings);
        }
    }

    fn count(&self, mismatches: u64, findings: Findings) {
        self.mismatches.set(self.mismatches.get() + mismatches);
        self.findings.borrow_mut().take(findings);
    }

    /// When the last window is over at the maximum rate, which is when the next one may start.
    fn not_before(&self) -> Nanos {
        let most = u128::from(self.speed.get().max_kib.max(1)) * 1024;
        let (started, bytes) = self.last_window.get();
        let time = u64::try_from(u128::from(bytes) * SECOND / most).unwrap_or(u64::MAX);
        started.saturating_add(time)
    }

    /// `last`: nothing of its units is left.
    fn window_ended(&self, window: Window, report: WindowReport, last: bool) {
        self.in_flight.set(self.in_flight.get() - 1);
        self.reports.set(self.reports.get() + 1);
        let (more, end) = (report.mismatches, window.first + window.count);
        let found = report.findings.map(|found| *found).unwrap_or_default();
        // Findings in slices of a unit count with the unit: a job that goes through it again finds them once.
        let (mut mismatches, mut findings) = self.of_unit.take();
        mismatches += more;
        findings.take(found);
        match report.result {
            Ok(()) if last => self.units_ended(window.first, Ended { end, mismatches, findings }),
            Ok(()) => *self.of_unit.borrow_mut() = (mismatches, findings),
            Err(error) => {
                self.count(mismatches, findings);
                if self.error.get().is_none() {
                    self.error.set(Some(error));
                }
            }
        }
        self.changed.notify_all();
    }

    /// All units below have ended.
    pub(crate) fn done(&self) -> u64 {
        self.done.get()
    }

    /// All units below have been started.
    pub(crate) fn started(&self) -> u64 {
        self.next.get()
    }
}
