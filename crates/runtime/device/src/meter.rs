//! Meters: numbers, sizes and latencies of requests, and the queue depth.
//!
//! A [`Meter`] belongs to whoever sees the requests: a filter in front of a device ([`Metered`]), or an array for
//! the requests that it receives. Latencies are kept in histograms of fixed size (two digits, 128 ns to 100 s; values
//! outside count as the nearest limit). The sum of the latencies over an interval, divided by the interval, is the mean
//! queue depth (Little's law). Requests that are submitted or complete together read the clock once
//! ([`Shard::coarse_now`]).
//!
//! A device that does not answer can be given up ([`Metered::give_up`]): the requests in flight fail, later ones are
//! refused, and the device keeps the buffers of the earlier ones until it completes them. `watch` finds requests that
//! are in flight for too long.
//!
//! Invariant: until a device is given up the filter changes neither order nor outcome of requests (writes that
//! wait for space excepted), and in steady state it allocates nothing for a request.

use crate::agreeing::{FindAgreeing, Sought};
use crate::completion::{Completion, Outcome, Sink};
use crate::counts::{Counts, Direction, Tally};
use crate::device::Device;
use crate::error::{IoError, IoErrorKind};
use crate::holes::FindHoles;
use crate::info::DeviceInfo;
use crate::request::{Op, Request};
use crate::reservation::Reservations;
use crate::space::{Space, Waiting};
use crate::watch::{self, Overdue, Watched};
use braid_shard::ring::BufMuts;
use braid_shard::{Nanos, Shard};
use hdrhistogram::Histogram;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};

/// The watch of a shard over its metered devices: `shard.local::<Watch>()`.
pub type Watch = watch::Watch<Metered>;

/// The smallest latency that the histogram distinguishes from zero, in nanoseconds.
const SHORTEST: u64 = 128;
/// The largest latency that the histogram distinguishes from larger ones, in nanoseconds.
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
    /// Their distribution, in nanoseconds; `None` before the first.
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
            // Fails only for invalid bounds or digits, and these are constants.
            self.histogram = Histogram::new_with_bounds(SHORTEST, LONGEST, DIGITS).ok();
        }
        if let Some(all) = &mut self.histogram {
            all.saturating_record(nanos);
        }
    }

    /// Adds the measurements of another.
    pub fn join(&mut self, other: &Latency) {
        self.total += other.total;
        self.max = self.max.max(other.max);
        match (&mut self.histogram, &other.histogram) {
            (Some(all), Some(more)) => {
                // Fails only if the ranges differ, and all histograms have the same.
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
    /// The meter reads the clock, so the following figures are measured.
    pub timed: bool,
    /// Latencies, by direction ([`Direction::ALL`]).
    pub latency: [Latency; 4],
    /// Requests in flight now.
    pub in_flight: u64,
    /// Time during which at least one request was in flight, in nanoseconds.
    pub busy: Nanos,
    /// Time since the meter was made, in nanoseconds.
    pub age: Nanos,
}

impl Figures {
    /// The latencies of one direction.
    pub fn latency(&self, direction: Direction) -> &Latency {
        &self.latency[direction as usize]
    }

    /// Adds the figures of another shard's meter. Busy times are added too, so if shards were busy at the
    /// same time the sum is larger than the time during which any of them was.
    pub fn join(&mut self, other: &Figures) {
        self.counts.join(&other.counts);
        self.timed |= other.timed;
        self.latency.iter_mut().zip(&other.latency).for_each(|(sum, more)| sum.join(more));
        self.in_flight += other.in_flight;
        self.busy += other.busy;
        self.age = self.age.max(other.age);
    }
}

/// A request in flight.
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
    /// Start of the busy period, while a request is in flight.
    busy_since: Nanos,
}

/// See the module's documentation.
pub struct Meter {
    counts: Tally,
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
    /// A meter with all figures at zero.
    pub fn new(shard: &Shard) -> Rc<Meter> {
        Rc::new_cyclic(|own| Meter {
            counts: Tally::default(),
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
    #[inline(always)]
    pub fn count(&self, op: &Op, len: u64) {
        if !self.counts.add_common(op) {
            self.counts.add(op, len);
        }
    }

    /// Starts to time a request. Completing the result ends the measurement and completes `done`.
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

    /// Fails all requests in flight. The device keeps their buffers until it completes them, so reads get other ones.
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

    /// The device has completed a request that was given up. After the last one the device is released, because
    /// somebody may wait until it is closed.
    #[cold]
    fn completed_late(&self) {
        self.owed.set(self.owed.get().saturating_sub(1));
        if self.owed.get() == 0 {
            let watch = self.shard.local::<Watch>();
            // In a task, because the device is still busy completing the request.
            self.shard.spawn(async move { watch.release_completed() });
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.counts.counts()
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
            // It was given up. No request has been submitted since, so none can have reused its token.
            drop(times);
            return self.completed_late();
        };
        self.answers.set(self.answers.get() + 1);
        times.latency[ended.direction as usize].add(now.saturating_sub(ended.since));
        if times.started.is_empty() {
            times.busy += now.saturating_sub(times.busy_since);
        }
        drop(times);
        if outcome.result.is_err() {
            return self.space.failed(ended.offset, outcome, ended.done);
        }
        ended.done.complete(outcome);
    }
}

/// A filter that measures the requests to the device behind it. For devices in memory requests are only
/// counted, since reading the clock would take a noticeable part of their time; see [`Figures::timed`].
pub struct Metered {
    inner: Rc<dyn Device>,
    meter: Rc<Meter>,
    timed: bool,
    /// Requests are counted and passed on: they are not timed, and the device is not given up.
    only_counts: Cell<bool>,
    /// The shard's watch, which polls this device while requests are in flight.
    watch: Rc<Watch>,
    overdue: RefCell<Option<Overdue>>,
    given_up: Cell<bool>,
    own: Weak<Metered>,
}

impl Metered {
    /// Measures the requests to `inner` on `shard`.
    pub fn new(shard: &Shard, inner: Rc<dyn Device>) -> Rc<Metered> {
        let timed = inner.info().wants_plug || inner.may_hang();
        let watch = shard.local::<Watch>();
        Rc::new_cyclic(|own| Metered {
            inner,
            meter: Meter::new(shard),
            timed,
            only_counts: Cell::new(!timed),
            watch,
            overdue: RefCell::default(),
            given_up: Cell::new(false),
            own: own.clone(),
        })
    }

    /// The same filter as a trait object.
    pub fn as_device(self: &Rc<Metered>) -> Rc<dyn Device> {
        Rc::clone(self) as Rc<dyn Device>
    }

    /// True when nothing is in flight. Always false for a device that is not timed, since then it is unknown.
    pub fn is_idle(&self) -> bool {
        self.timed && self.meter.is_idle()
    }

    /// The figures so far.
    pub fn figures(&self) -> Figures {
        Figures { timed: self.timed, ..self.meter.figures() }
    }

    /// The requests that have completed, and the sum of their latencies in nanoseconds; none for a device that is not timed.
    pub fn completed(&self) -> (u64, Nanos) {
        let times = self.meter.times.borrow();
        let all = times.latency.iter();
        all.fold((0, 0), |(requests, nanos), one| (requests + one.requests(), nanos + one.total))
    }

    /// Calls `overdue` once a second while a request has been in flight for longer than its limit. Never happens for
    /// devices that are not timed.
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

    /// Nanoseconds for which the oldest request has been in flight; `None` when there is none.
    pub fn waiting(&self) -> Option<Nanos> {
        let since = self.meter.oldest()?;
        Some(self.meter.shard.now().saturating_sub(since))
    }

    /// Requests that the device has completed, with success or not; 0 for a device that is not timed.
    pub fn answers(&self) -> u64 {
        self.meter.answers.get()
    }

    /// Gives the device up, because it does not answer or was failed: requests in flight end with
    /// [`IoErrorKind::Gone`], and so do all later ones. Completions that the device delivers afterwards are ignored.
    pub fn give_up(&self) {
        if self.given_up.replace(true) {
            return;
        }
        self.only_counts.set(false);
        self.overdue.take();
        self.meter.give_up();
        self.meter.space.end(IoErrorKind::Gone);
        if let Some(own) = self.own.upgrade()
            && self.owed() > 0
        {
            self.watch.keep(own);
        }
    }

    /// Requests that were given up and that the device has not completed. It may still write their data.
    pub fn owed(&self) -> u32 {
        self.meter.owed.get()
    }

    /// From now on, writes that fail for want of space are held back and retried.
    pub fn wait_for_space(&self, space: Space) {
        self.meter.space.begin(space);
    }

    /// Number of writes that wait for space.
    pub fn held(&self) -> usize {
        self.meter.space.held()
    }

    /// Retries the writes that wait for space; returns their number.
    pub fn try_again(&self) -> usize {
        let held = self.meter.space.take();
        let writes = held.len();
        for (request, done) in held {
            let done = self.meter.time_at(request.offset, &request.op, done);
            self.inner.submit(request, done);
        }
        writes
    }

    /// From now on, writes that fail for want of space are not held back; those that wait fail now.
    pub fn end_waiting(&self) {
        self.meter.space.end(IoErrorKind::NoSpace);
    }

    #[inline(never)]
    fn submit_uncommon(&self, request: Request, done: Completion) {
        if self.given_up.get() {
            return refuse(request, done);
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

    fn report_overdue(&self) -> bool {
        let Some(waiting) = self.waiting() else { return false };
        if self.inner.waits_for_space() {
            return true;
        }
        // Taken out during the call, which may set another one.
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

impl Watched for Metered {
    fn poll(&self) -> bool {
        if self.meter.space.is_time() {
            self.try_again();
        }
        self.report_overdue() || self.meter.space.is_waiting()
    }

    fn owed(&self) -> u32 {
        self.meter.owed.get()
    }

    fn name(&self) -> &str {
        &self.inner.info().name
    }
}

#[cold]
fn refuse(request: Request, done: Completion) {
    let error = IoError { kind: IoErrorKind::Gone, errno: libc::ETIMEDOUT };
    done.complete(Outcome::failed(error, request.op));
}

impl Device for Metered {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn submit(&self, request: Request, done: Completion) {
        if !self.only_counts.get() || !self.meter.counts.add_common(&request.op) {
            return self.submit_uncommon(request, done);
        }
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

    fn reservations(&self) -> Option<Rc<dyn Reservations>> {
        self.inner.reservations()
    }

    fn waits_for_space(&self) -> bool {
        self.inner.waits_for_space()
    }

    fn find_agreeing(&self, sought: Sought) -> FindAgreeing {
        self.inner.find_agreeing(sought)
    }

    fn holes(&self, bytes: Range<u64>) -> FindHoles {
        self.inner.holes(bytes)
    }
}

#[cfg(test)]
#[path = "meter_tests.rs"]
mod tests;
