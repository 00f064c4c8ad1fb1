//! Several requests at once, awaited together.
//!
//! ```text
//! let mut set = sets.start();
//! set.submit(0, &*member, Request::read(at, buffer));
//! set.submit(1, &*other, Request::read(at, another));
//! for (tag, outcome) in set.finish().await { … }
//! ```
//!
//! When every device completes at submit the await does not suspend. Nothing is allocated once
//! the pool of sets has grown to the number in use.

use crate::completion::{Completion, Outcome, Sink};
use crate::device::Device;
use crate::error::IoError;
use crate::request::{Op, Request, only};
use braid_shard::ring::{BufMuts, Bufs};
use braid_shard::{Buf, BufMut, Shard, TaskId};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::Poll;

struct State {
    shard: Shard,
    pending: Cell<u32>,
    /// A task is to be woken when so many requests are pending, or fewer.
    wakes_at: Cell<Option<u32>>,
    waiter: Cell<TaskId>,
    requests: RefCell<Requests>,
    /// The buffers of reads that have succeeded, by their tags.
    reads: RefCell<[Option<BufMut>; READS]>,
}

/// The requests of a set.
#[derive(Default)]
struct Requests {
    /// In the order of submission.
    placed: Vec<Placed>,
    /// In the order of completion.
    ended: Vec<Ended>,
    /// The first so many outcomes were taken: their operations are gone.
    taken: usize,
}

/// The place of a request: first byte, and length in bytes.
struct Placed {
    offset: u64,
    len: u64,
}

struct Ended {
    /// The number of the request in the upper 32 bits, its tag in the lower.
    token: u64,
    outcome: Outcome,
}

/// Marks the token of a request whose success is not kept.
const ERROR_ONLY: u64 = 1 << 63;
/// Marks the token of a read whose buffer is kept by its tag.
const READ: u64 = 1 << 62;
/// Reads of which a set keeps the buffers by their tags.
const READS: usize = 3;

impl Requests {
    #[inline]
    fn take(&mut self) -> Option<(u64, Outcome)> {
        let Ended { token, outcome } = self.ended.get_mut(self.taken)?;
        self.taken += 1;
        let op = std::mem::replace(&mut outcome.op, Op::Flush);
        Some((*token, Outcome { result: outcome.result, op }))
    }

    fn not_taken(&self) -> &[Ended] {
        self.ended.get(self.taken..).unwrap_or_default()
    }

    #[inline(never)]
    fn clear(&mut self) {
        self.placed.clear();
        self.ended.clear();
        self.taken = 0;
    }
}

impl Sink for State {
    fn complete(&self, token: u64, outcome: Outcome) {
        match token & (ERROR_ONLY | READ) {
            ERROR_ONLY if outcome.result.is_ok() => release(outcome.op),
            READ if outcome.result.is_ok() => self.keep_read(token as u32, outcome.op),
            _ => self.keep(token, outcome),
        }
        let pending = self.pending.get() - 1;
        self.pending.set(pending);
        if self.wakes_at.get().is_some_and(|at| pending <= at) {
            self.wake();
        }
    }
}

impl State {
    /// Forgets all requests, none of which is in flight.
    #[inline(always)]
    fn clear(&self) {
        let mut requests = self.requests.borrow_mut();
        match requests.ended.is_empty() {
            true => requests.placed.clear(),
            false => requests.clear(),
        }
        // Buffers that nobody has taken are not needed any more.
        let mut reads = self.reads.borrow_mut();
        if reads.iter().any(Option::is_some) {
            *reads = Default::default();
        }
    }

    #[inline(always)]
    fn keep_read(&self, nr: u32, op: Op) {
        let Op::Read(bufs) = op else { return };
        let Ok(buf) = only(bufs) else { return };
        if let Some(place @ None) = self.reads.borrow_mut().get_mut(nr as usize) {
            *place = Some(buf);
        }
    }

    #[inline(never)]
    fn wake(&self) {
        self.wakes_at.set(None);
        self.shard.wake(self.waiter.get());
    }

    #[inline(never)]
    fn keep(&self, token: u64, outcome: Outcome) {
        let token = token & !(ERROR_ONLY | READ);
        self.requests.borrow_mut().ended.push(Ended { token, outcome });
    }

    /// Wakes the current task when so many requests are pending, or fewer.
    fn wake_at(&self, pending: u32) {
        self.waiter.set(self.shard.current_task());
        self.wakes_at.set(Some(pending));
    }
}

/// Drops the buffers of a request that has ended.
#[inline(always)]
fn release(op: Op) {
    match op {
        // Nearly all have one.
        Op::Write { bufs, .. } => drop(only(bufs)),
        op => drop(op),
    }
}

/// Makes [`IoSet`]s for one shard and keeps their state for reuse. Cheap to clone.
#[derive(Clone)]
pub struct IoSets {
    shard: Shard,
    free: Rc<RefCell<Vec<Rc<State>>>>,
}

/// Requests in flight together.
pub struct IoSet {
    state: Rc<State>,
    home: Rc<RefCell<Vec<Rc<State>>>>,
}

impl IoSets {
    /// A pool of sets for tasks of `shard`.
    pub fn new(shard: &Shard) -> IoSets {
        IoSets { shard: shard.clone(), free: Rc::new(RefCell::new(Vec::new())) }
    }

    /// An empty set.
    #[inline]
    pub fn start(&self) -> IoSet {
        let kept = self.free.borrow_mut().pop();
        let state = kept.unwrap_or_else(|| self.new_state());
        IoSet { state, home: Rc::clone(&self.free) }
    }

    #[cold]
    fn new_state(&self) -> Rc<State> {
        Rc::new(State {
            shard: self.shard.clone(),
            pending: Cell::new(0),
            wakes_at: Cell::new(None),
            waiter: Cell::new(TaskId::NONE),
            requests: RefCell::default(),
            reads: RefCell::default(),
        })
    }

    /// Submits one request and waits for its outcome.
    pub async fn one(&self, device: &dyn Device, request: Request) -> Outcome {
        let mut set = self.start();
        set.submit(0, device, request);
        let mut outcomes = set.finish().await;
        match outcomes.next() {
            Some((_, outcome)) => outcome,
            // A set yields the outcomes of all its requests, and this one had one request.
            None => unreachable!("a finished set holds an outcome per request"),
        }
    }
}

impl IoSet {
    /// Submits `request`; its outcome will carry `tag`.
    // A write has four of these: where the request is made, nothing has to be found out of it again.
    #[inline(always)]
    pub fn submit(&mut self, tag: u32, device: &dyn Device, request: Request) {
        self.submit_as(u64::from(tag), device, request);
    }

    /// Submits read `nr`, one of three at most, whose buffer [`take_read`](IoSet::take_read) gives. It has an outcome only if
    /// it fails.
    // A write reads two blocks, so these make their request where the device gets it.
    #[inline(always)]
    pub fn submit_read(&mut self, nr: usize, device: &dyn Device, offset: u64, buf: BufMut) {
        debug_assert!(nr < READS);
        let done = self.place(nr as u64 | READ, offset, buf.len() as u64);
        device.submit(Request { offset, op: Op::Read(BufMuts::from_buf([buf])) }, done);
    }

    /// Submits a write whose buffer and success nobody looks at: it has an outcome only if it fails.
    #[inline(always)]
    pub fn submit_write(
        &mut self,
        tag: u32,
        device: &dyn Device,
        offset: u64,
        buf: Buf,
        fua: bool,
    ) {
        let done = self.place(u64::from(tag) | ERROR_ONLY, offset, buf.len() as u64);
        let op = Op::Write { bufs: Bufs::from_buf([buf]), fua };
        device.submit(Request { offset, op }, done);
    }

    #[inline(always)]
    fn submit_as(&mut self, token: u64, device: &dyn Device, request: Request) {
        let done = self.place(token, request.offset, request.len());
        device.submit(request, done);
    }

    /// Notes that a request is about to be submitted.
    #[inline(always)]
    fn place(&mut self, token: u64, offset: u64, len: u64) -> Completion {
        self.state.pending.set(self.state.pending.get() + 1);
        let number = {
            let placed = &mut self.state.requests.borrow_mut().placed;
            placed.push(Placed { offset, len });
            placed.len() as u64 - 1
        };
        Completion::new(Rc::clone(&self.state) as Rc<dyn Sink>, number << 32 | token)
    }

    /// Requests not completed yet.
    #[inline]
    pub fn pending(&self) -> u32 {
        self.state.pending.get()
    }

    /// Waits for the next outcome and returns it with its tag; `None` after the last.
    pub async fn next(&mut self) -> Option<(u32, Outcome)> {
        let state = &self.state;
        poll_fn(|_| {
            let outcome = state.requests.borrow_mut().take();
            if outcome.is_some() || state.pending.get() == 0 {
                return Poll::Ready(outcome.map(|(token, outcome)| (token as u32, outcome)));
            }
            state.wake_at(u32::MAX);
            Poll::Pending
        })
        .await
    }

    /// Waits for the requests that were submitted so far, whose outcomes are kept; more may be submitted then.
    #[inline]
    pub async fn all(&self) {
        if self.state.pending.get() > 0 {
            poll_fn(|_| {
                if self.state.pending.get() == 0 {
                    return Poll::Ready(());
                }
                self.state.wake_at(0);
                Poll::Pending
            })
            .await;
        }
    }

    /// True when `is` holds for the error of an outcome that has come and was not taken yet.
    #[inline]
    pub fn any_error(&self, is: impl Fn(&IoError) -> bool) -> bool {
        let requests = self.state.requests.borrow();
        requests.not_taken().iter().any(|ended| ended.outcome.result.as_ref().is_err_and(&is))
    }

    /// An outcome that has come and was not taken yet, with its tag.
    #[inline]
    pub fn take(&mut self) -> Option<(u32, Outcome)> {
        let (token, outcome) = self.state.requests.borrow_mut().take()?;
        Some((token as u32, outcome))
    }

    /// Some request has ended whose outcome was kept and not taken yet.
    #[inline]
    pub fn any_outcome(&self) -> bool {
        !self.state.requests.borrow().not_taken().is_empty()
    }

    /// The buffer of read `nr` of [`submit_read`](IoSet::submit_read), once that has ended; `None` when it failed.
    #[inline(always)]
    pub fn take_read(&mut self, nr: usize) -> Option<BufMut> {
        self.state.reads.borrow_mut().get_mut(nr)?.take()
    }

    /// Forgets the requests that have ended, so that the next of the same operation come from the start. Outcomes that were
    /// not taken are dropped.
    #[inline]
    pub fn clear(&mut self) {
        if self.state.pending.get() == 0 {
            self.state.clear();
        }
    }

    /// Waits for all requests and returns the outcomes that [`next`](IoSet::next) has not returned.
    #[inline]
    pub async fn finish(self) -> Outcomes {
        self.all().await;
        Outcomes { set: self }
    }
}

impl Drop for IoSet {
    #[inline]
    fn drop(&mut self) {
        // A set that is dropped with requests in flight must not be reused: late outcomes would get into the next set.
        if self.state.pending.get() == 0 {
            self.state.clear();
            self.home.borrow_mut().push(Rc::clone(&self.state));
        }
    }
}

/// The outcomes of a finished set by tag, in the order of completion: an iterator.
pub struct Outcomes {
    set: IoSet,
}

impl Outcomes {
    /// True when `is` holds for the error of an outcome that was not taken yet.
    pub fn any_error(&self, is: impl Fn(&IoError) -> bool) -> bool {
        let requests = self.set.state.requests.borrow();
        requests.not_taken().iter().any(|ended| ended.outcome.result.as_ref().is_err_and(&is))
    }

    /// The next outcome, with its tag and the byte range of its request.
    pub fn next_placed(&mut self) -> Option<(u32, Range<u64>, Outcome)> {
        let mut requests = self.set.state.requests.borrow_mut();
        let (token, outcome) = requests.take()?;
        let placed = requests.placed.get((token >> 32) as usize);
        let (offset, len) = placed.map_or((0, 0), |placed| (placed.offset, placed.len));
        Some((token as u32, offset..offset.saturating_add(len), outcome))
    }
}

impl Iterator for Outcomes {
    type Item = (u32, Outcome);

    #[inline]
    fn next(&mut self) -> Option<(u32, Outcome)> {
        self.set.take()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.set.state.requests.borrow().not_taken().len();
        (left, Some(left))
    }
}

impl ExactSizeIterator for Outcomes {}

#[cfg(test)]
#[path = "io_set_tests.rs"]
mod tests;
