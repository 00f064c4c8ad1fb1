//! Meters: how many requests there were, how large, how long they took, how many were under way.
//!
//! A [`Meter`] belongs to whoever sees the requests: a filter in front of a device ([`Metered`]), or an array for
//! those that come to it. Latencies are kept in histograms that never grow (two digits, 128 ns to 100 s; what is
//! outside counts as the nearest); time under way adds up, so that the mean queue depth of an interval is what it grew
//! by, divided by the interval (Little's law). The clock is looked at once for what is submitted or completes
//! together ([`Shard::recently`]).
//!
//! A device that does not answer can be given up ([`Metered::give_up`]): who waits is answered, later requests are refused,
//! and what the device still has of earlier ones stays its own until it completes them. `watch` looks for requests that
//! are under way for too long.
//!
//! Invariant: until a device is given up nothing is changed, neither order nor outcome, and nothing is allocated for a
//! request in steady state.

use crate::completion::{Completion, Outcome, Sink};
use crate::counts::{Counts, Direction};
use crate::device::Device;
use crate::error::{IoError, IoErrorKind};
use crate::info::DeviceInfo;
use crate::request::{Op, Request};
use crate::space::{Space, Waiting};
use crate::watch::{Overdue, Watch};
use braid_shard::ring::BufMuts;
use braid_shard::{Nanos, Shard};
use hdrhistogram::Histogram;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// The shortest latency that is told from none, in nanoseconds.
const SHORTEST: u64 = 128;
/// The longest that is told from longer ones.
const LONGEST: u64 = 100_000_000_000;
/// Significant decimal digits.
const DIGITS: u8 = 2;

/// Latencies of the requests of one direction, from submission to completion.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    /// The sum, in nanoseconds.
    pub total: Nanos,
    /// The longest, in nanoseconds.
    pub max: Nanos,
    /// All of them, in nanoseconds; `None` before the first.
    pub histogram: Option<Histogram<u64>>,
}

impl Latency {
    /// Requests that have completed.
    pub fn requests(&self) -> u64 {
        self.histogram.as_ref().map_or(0, Histogram::len)
    }

    /// The latency in nanoseconds that this share of requests (0 to 1) did not exceed; 0 when there were none.
    pub fn quantile(&self, share: f64) -> Nanos {
        self.histogram.as_ref().map_or(0, |all| all.value_at_quantile(share).min(self.max))
    }

    fn add(&mut self, nanos: Nanos) {
        self.total += nanos;
        self.max = self.max.max(nanos);
        if self.histogram.is_none() {
            // Refused only for bounds or digits that make no sense, and these are constants.
            self.histogram = Histogram::new_with_bounds(SHORTEST, LONGEST, DIGITS).ok();
        }
        if let Some(all) = &mut self.histogram {
            all.saturating_record(nanos);
        }
    }

    /// Adds what another has measured.
    pub fn join(&mut self, other: &Latency) {
        self.total += other.total;
        self.max = self.max.max(other.max);
        match (&mut self.histogram, &other.histogram) {
            (Some(all), Some(more)) => {
                // Refused only where the ranges differ, and all have the same.
                let _ = all.add(more);
            }
            (all @ None, Some(more)) => *all = Some(more.clone()),
            (_, None) => {}
        }
    }
}

/// The figures of a meter since it was made.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Requests, by kind and size.
    pub counts: Counts,
    /// The clock is looked at: what follows is measured.
    pub timed: bool,
    /// Latencies, by direction ([`Direction::ALL`]).
    pub latency: [Latency; 4],
    /// Requests under way now.
    pub in_flight: u64,
    /// Time in which any request was under way, in nanoseconds.
    pub busy: Nanos,
    /// Time since the meter was made, in nanoseconds.
    pub age: Nanos,
}

impl Figures {
    /// The latencies of one direction.
    pub fn latency(&self, direction: Direction) -> &Latency {
        &self.latency[direction as usize]
    }

    /// Adds what the meter of another shard has measured. Times of being busy add up too: where shards are busy at
    /// the same time, the sum is more than the time in which any of them was.
    pub fn join(&mut self, other: &Figures) {
        self.counts.join(&other.counts);
        self.timed |= other.timed;
        self.latency.iter_mut().zip(&other.latency).for_each(|(sum, more)| sum.join(more));
        self.in_flight += other.in_flight;
        self.busy += other.busy;
        self.age = self.age.max(other.age);
    }
}

/// A request under way.
struct Started {
    done: Completion,
    direction: Direction,
    since: Nanos,
    offset: u64,
    /// Bytes of a read into one buffer; 0 for all else.
    one_buffer: usize,
}

fn one_buffer(op: &Op) -> usize {
    match op {
        Op::Read(bufs) if bufs.len() == 1 => bufs.first().map_or(0, |buf| buf.len()),
        _ => 0,
    }
}

#[derive(Default)]
struct Times {
    latency: [Latency; 4],
    started: Slab<Started>,
    busy: Nanos,
    /// Since when any request has been under way, while there is one.
    busy_since: Nanos,
}

/// See the module's documentation.
pub struct Meter {
    counts: RefCell<Counts>,
    times: RefCell<Times>,
    made: Nanos,
    shard: Shard,
    /// Requests that were given up and that the device has not completed yet.
    owed: Cell<u32>,
    /// Requests that the device has completed.
    answers: Cell<u64>,
    space: Waiting,
    own: Weak<Meter>,
}

impl Meter {
    /// A meter that has seen nothing yet.
    pub fn new(shard: &Shard) -> Rc<Meter> {
        Rc::new_cyclic(|own| Meter {
            counts: RefCell::default(),
            times: RefCell::default(),
            made: shard.now(),
            shard: shard.clone(),
            owed: Cell::new(0),
            answers: Cell::new(0),
            space: Waiting::default(),
            own: own.clone(),
        })
    }

    /// Counts a request of `len` bytes.
    #[inline]
    pub fn count(&self, op: &Op, len: u64) {
        self.counts.borrow_mut().add(op, len);
    }

    /// Measures from now on until what this gives is completed, which completes `done`.
    pub fn time(&self, op: &Op, done: Completion) -> Completion {
        self.time_at(0, op, done)
    }

    fn time_at(&self, offset: u64, op: &Op, done: Completion) -> Completion {
        let Some(own) = self.own.upgrade() else { return done };
        let (direction, since) = (Direction::of(op), self.shard.coarse_now());
        let mut times = self.times.borrow_mut();
        if times.started.is_empty() {
            times.busy_since = since;
        }
        let one_buffer = one_buffer(op);
        let key = times.started.insert(Started { done, direction, since, offset, one_buffer });
        Completion::new(own, key as u64)
    }

    fn is_idle(&self) -> bool {
        self.times.borrow().started.is_empty()
    }

    fn oldest(&self) -> Option<Nanos> {
        self.times.borrow().started.iter().map(|(_, started)| started.since).min()
    }

    /// Answers whoever waits. The buffers are the device's until it completes: reads get others.
    fn give_up(&self) {
        let given_up = {
            let mut times = self.times.borrow_mut();
            if !times.started.is_empty() {
                times.busy += self.shard.coarse_now().saturating_sub(times.busy_since);
            }
            std::mem::take(&mut times.started)
        };
        self.owed.set(self.owed.get().saturating_add(given_up.len() as u32));
        let error = IoError { kind: IoErrorKind::Gone, errno: libc::ETIMEDOUT };
        for (_, started) in given_up {
            let op = match started.direction {
                Direction::Read => {
                    let len = started.one_buffer;
                    let buf = (len > 0).then(|| self.shard.pool().get(len));
                    Op::Read(buf.into_iter().collect::<BufMuts>())
                }
                _ => Op::Flush,
            };
            started.done.complete(Outcome::failed(error, op));
        }
    }

    /// The device has completed a request that was given up. After the last one it is let go: somebody may wait for it
    /// to be closed.
    #[cold]
    fn ended_after_all(&self) {
        self.owed.set(self.owed.get().saturating_sub(1));
        if self.owed.get() == 0 {
            let watch = self.shard.local::<Watch>();
            // Later: the device is still within its own completion.
            self.shard.spawn(async move { watch.let_go() });
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    /// The figures so far.
    pub fn figures(&self) -> Figures {
        let times = self.times.borrow();
        let in_flight = times.started.len() as u64;
        let now = self.shard.now();
        let running = if in_flight > 0 { now.saturating_sub(times.busy_since) } else { 0 };
        Figures {
            counts: self.counts(),
            timed: true,
            latency: times.latency.clone(),
            in_flight,
            busy: times.busy + running,
            age: now.saturating_sub(self.made),
        }
    }
}

impl Sink for Meter {
    fn complete(&self, token: u64, outcome: Outcome) {
        let now = self.shard.coarse_now();
        let mut times = self.times.borrow_mut();
        let Some(ended) = times.started.try_remove(token as usize) else {
            // It was given up. Nothing has been submitted since, so that no other request has its token.
            drop(times);
            return self.ended_after_all();
        };
        self.answers.set(self.answers.get() + 1);
        times.latency[ended.direction as usize].add(now.saturating_sub(ended.since));
        if times.started.is_empty() {
            times.busy += now.saturating_sub(times.busy_since);
        }
        drop(times);
        if outcome.result.is_err() {
            return self.space.ended(ended.offset, outcome, ended.done);
        }
        ended.done.complete(outcome);
    }
}

/// A filter that measures what goes to the device behind it. Latencies are taken where requests are worth
/// being collected ([`DeviceInfo::wants_plug`]); to devices in memory a look at the clock would cost too much of a
/// request, so those are counted only.
pub struct Metered {
    inner: Rc<dyn Device>,
    meter: Rc<Meter>,
    timed: bool,
    /// The shard's watch, which looks here while something is under way.
    watch: Rc<Watch>,
    overdue: RefCell<Option<Overdue>>,
    given_up: Cell<bool>,
    own: Weak<Metered>,
}

impl Metered {
    /// Measures what goes to `inner` on `shard`.
    pub fn new(shard: &Shard, inner: Rc<dyn Device>) -> Rc<Metered> {
        let timed = inner.info().wants_plug || inner.may_hang();
        let watch = shard.local::<Watch>();
        Rc::new_cyclic(|own| Metered {
            inner,
            meter: Meter::new(shard),
            timed,
            watch,
            overdue: RefCell::default(),
            given_up: Cell::new(false),
            own: own.clone(),
        })
    }

    /// The same as any device.
    pub fn as_device(self: &Rc<Metered>) -> Rc<dyn Device> {
        Rc::clone(self) as Rc<dyn Device>
    }

    /// Nothing is under way; not known, and so false, of a device that is not timed.
    pub fn is_idle(&self) -> bool {
        self.timed && self.meter.is_idle()
    }

    /// The figures so far.
    pub fn figures(&self) -> Figures {
        Figures { timed: self.timed, ..self.meter.figures() }
    }

    /// Has `overdue` called once a second while a request is under way for longer than it says. Of devices that are
    /// not timed nothing is known.
    pub fn when_overdue(&self, overdue: Option<Overdue>) {
        if self.given_up.get() {
            return;
        }
        let watched = overdue.is_some();
        *self.overdue.borrow_mut() = overdue;
        if watched {
            self.watch.add(&self.own);
            if self.timed && !self.is_idle() {
                self.watch.start(&self.meter.shard);
            }
        }
    }

    /// For how long the oldest request is under way, in nanoseconds; `None` when there is none.
    pub fn waiting(&self) -> Option<Nanos> {
        let since = self.meter.oldest()?;
        Some(self.meter.shard.now().saturating_sub(since))
    }

    /// Requests that the device has completed, well or not; 0 of a device that is not timed.
    pub fn answers(&self) -> u64 {
        self.meter.answers.get()
    }

    /// The device does not answer, or its answers are not wanted any more: requests under way end with
    /// [`IoErrorKind::Gone`], and so do all later ones. What the device completes afterwards is dropped.
    pub fn give_up(&self) {
        if self.given_up.replace(true) {
            return;
        }
        self.overdue.take();
        self.meter.give_up();
        self.meter.space.end(IoErrorKind::Gone);
        if let Some(own) = self.own.upgrade()
            && self.owed() > 0
        {
            self.watch.owes(own);
        }
    }

    /// Requests that were given up and that the device has still to complete: it may yet write what they say.
    pub fn owed(&self) -> u32 {
        self.meter.owed.get()
    }

    /// Writes that find no space wait from now on, and are tried again.
    pub fn wait_for_space(&self, space: Space) {
        self.meter.space.begin(space);
    }

    /// Writes that wait for space.
    pub fn held(&self) -> usize {
        self.meter.space.held()
    }

    /// Tries writes again that wait for space; says how many.
    pub fn try_again(&self) -> usize {
        let held = self.meter.space.take();
        let writes = held.len();
        for (request, done) in held {
            let done = self.meter.time_at(request.offset, &request.op, done);
            self.inner.submit(request, done);
        }
        writes
    }

    /// Writes that find no space are answered so from now on, those that wait too.
    pub fn end_waiting(&self) {
        self.meter.space.end(IoErrorKind::NoSpace);
    }

    /// Looks at what is under way; true while there is anything.
    pub(crate) fn look(&self) -> bool {
        if self.meter.space.is_time() {
            self.try_again();
        }
        self.look_at_oldest() || self.meter.space.is_waiting()
    }

    fn look_at_oldest(&self) -> bool {
        let Some(waiting) = self.waiting() else { return false };
        if self.inner.waits_for_space() {
            return true;
        }
        // Taken out meanwhile: it may set another.
        let overdue = self.overdue.take();
        if let Some(overdue) = overdue {
            if waiting >= overdue.limit {
                (overdue.tell)(waiting);
            }
            let mut slot = self.overdue.borrow_mut();
            if slot.is_none() && !self.given_up.get() {
                *slot = Some(overdue);
            }
        }
        !self.given_up.get()
    }
}

impl Device for Metered {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn submit(&self, request: Request, done: Completion) {
        if self.given_up.get() {
            let error = IoError { kind: IoErrorKind::Gone, errno: libc::ETIMEDOUT };
            return done.complete(Outcome::failed(error, request.op));
        }
        self.meter.count(&request.op, request.len());
        if !self.timed {
            return self.inner.submit(request, done);
        }
        if self.meter.is_idle() {
            self.watch.start(&self.meter.shard);
        }
        let done = self.meter.time_at(request.offset, &request.op, done);
        self.inner.submit(request, done);
    }

    fn cut_from(&self, bytes: u64) {
        self.inner.cut_from(bytes);
    }

    fn layers(&self) -> u32 {
        self.inner.layers()
    }

    fn may_hang(&self) -> bool {
        self.timed
    }

    fn hurry(&self) {
        self.inner.hurry();
    }

    fn waits_for_silent(&self) -> bool {
        self.inner.waits_for_silent()
    }

    fn waits_for_space(&self) -> bool {
        self.inner.waits_for_space()
    }
}

#[cfg(test)]
#[path = "meter_tests.rs"]
mod tests;
