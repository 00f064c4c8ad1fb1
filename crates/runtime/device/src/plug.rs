//! A plug collects requests while the shard has runnable tasks, then sorts them, merges neighbours into vectored
//! requests, and submits them together.
//!
//! There is no timer and no size to tune: a request waits only while other work of the same turn may still
//! add a neighbour. Reads merge with reads, writes with writes of the same durability. A flush
//! is submitted after the requests that were collected before it.
//!
//! An idle SSD gets a contiguous run as two requests rather than one. With a single one, everybody who waits would come
//! back at the same time, and the SSD would be idle until they have submitted again; with two it works on the second
//! meanwhile. The halves never get smaller than the requests that the run was cut from ([`Device::cut_from`]).
//!
//! When a merged read fails with a medium error its parts are read again one by one, so that a bad block fails
//! only the requests that cover it.

use crate::agreeing::{FindAgreeing, Sought};
use crate::completion::{Completion, Outcome, Sink};
use crate::counts::Counts;
use crate::device::Device;
use crate::error::IoErrorKind;
use crate::holes::FindHoles;
use crate::info::DeviceInfo;
use crate::meter::Metered;
use crate::request::{Op, Request};
use braid_shard::ring::{BufMuts, SEGMENTS_MAX};
use braid_shard::{IdleHook, Shard};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};

/// Largest merged request in bytes: enough for any disk to reach its full rate, small enough to limit latency.
const MERGED_MAX: u64 = 4 << 20;

/// A contiguous run is not split into requests smaller than this, in bytes.
const SPLIT_MIN: u64 = 128 << 10;

/// Counters since the plug was made; see [`Plug::stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlugStats {
    /// Requests that were submitted to the plug.
    pub requests_in: u64,
    /// Requests that the plug has submitted to the device.
    pub requests_out: u64,
    /// Bytes of reads and writes.
    pub bytes: u64,
}

/// A device whose requests are plugged.
pub struct Plug {
    inner: Rc<dyn Device>,
    /// The same device, if it is an SSD whose runs are split in two while it is idle.
    split_when_idle: Option<Rc<Metered>>,
    /// See [`Device::cut_from`].
    cut_from: Cell<u64>,
    collected: RefCell<Vec<(Request, Completion)>>,
    /// Swapped with `collected` at every unplug, so that neither allocates in steady state.
    spare: RefCell<Vec<(Request, Completion)>>,
    /// Parts of failed merged reads, to be submitted one by one.
    retries: RefCell<Vec<(Request, Completion)>>,
    merges: RefCell<Vec<Rc<Merge>>>,
    arrived: RefCell<Counts>,
    requests_out: Cell<u64>,
    /// False: requests are only counted and passed on immediately.
    collects: bool,
    shard: Shard,
    hook: Rc<dyn IdleHook>,
    own: Weak<Plug>,
}

impl Plug {
    /// Plugs `inner`; unplugs whenever `shard` has nothing runnable.
    pub fn new(shard: &Shard, inner: Rc<dyn Device>) -> Rc<Plug> {
        Plug::with(shard, inner, None, true)
    }

    /// The same for a metered device, of which the plug can tell whether it is idle.
    pub fn metered(shard: &Shard, inner: Rc<Metered>) -> Rc<Plug> {
        Plug::with(shard, Rc::clone(&inner) as Rc<dyn Device>, Some(inner), true)
    }

    /// A plug that only counts requests and passes them on immediately, to measure the benefit of plugging.
    pub fn disabled(shard: &Shard, inner: Rc<dyn Device>) -> Rc<Plug> {
        Plug::with(shard, inner, None, false)
    }

    fn with(
        shard: &Shard,
        inner: Rc<dyn Device>,
        meter: Option<Rc<Metered>>,
        collects: bool,
    ) -> Rc<Plug> {
        let split_when_idle = meter.filter(|_| !inner.info().rotational);
        let plug = Rc::new_cyclic(|own| Plug {
            inner,
            split_when_idle,
            cut_from: Cell::new(0),
            collected: RefCell::new(Vec::new()),
            spare: RefCell::new(Vec::new()),
            retries: RefCell::new(Vec::new()),
            merges: RefCell::new(Vec::new()),
            arrived: RefCell::default(),
            requests_out: Cell::new(0),
            collects,
            shard: shard.clone(),
            hook: Rc::new(Unplug(own.clone())),
            own: own.clone(),
        });
        shard.on_idle(Rc::clone(&plug.hook));
        plug
    }

    /// Counts of requests in and out.
    pub fn stats(&self) -> PlugStats {
        let arrived = self.arrived.borrow();
        PlugStats {
            requests_in: arrived.requests(),
            requests_out: self.requests_out.get(),
            bytes: arrived.reads.bytes + arrived.writes.bytes,
        }
    }

    /// Counts of requests before merging.
    pub fn arrived(&self) -> Counts {
        *self.arrived.borrow()
    }

    fn count_out(&self) {
        self.requests_out.set(self.requests_out.get() + 1);
    }

    fn unplug(&self) -> bool {
        let again = self.submit_retries();
        if self.collected.borrow().is_empty() {
            return again;
        }
        let mut batch = std::mem::replace(&mut *self.collected.borrow_mut(), self.spare.take());
        self.submit_batch(&mut batch);
        batch.clear();
        *self.spare.borrow_mut() = batch;
        true
    }

    fn submit_retries(&self) -> bool {
        if self.retries.borrow().is_empty() {
            return false;
        }
        for (request, done) in self.retries.take() {
            self.count_out();
            self.inner.submit(request, done);
        }
        true
    }

    fn submit_batch(&self, batch: &mut Vec<(Request, Completion)>) {
        // The stable sort would allocate, and requests at the same offset may go in any order.
        batch.sort_unstable_by_key(|(request, _)| (kind(&request.op), request.offset));
        let most = self.merged_max(batch);
        let mut queue = batch.drain(..).peekable();
        while let Some((mut request, done)) = queue.next() {
            let mut merge: Option<Rc<Merge>> = None;
            let mut first = Some(done);
            while let Some((next, _)) = queue.peek() {
                if !joins(&request, next, most) {
                    break;
                }
                let Some((next, next_done)) = queue.next() else { break };
                let merge = merge.get_or_insert_with(|| self.new_merge());
                if let Some(done) = first.take() {
                    merge.add(done, &request);
                }
                merge.add(next_done, &next);
                append(&mut request.op, next.op);
            }
            self.count_out();
            match (merge, first) {
                (Some(merge), _) => {
                    self.inner.submit(request, Completion::new(merge, 0));
                }
                (None, Some(done)) => self.inner.submit(request, done),
                // `first` is taken only when a merge was made.
                (None, None) => {}
            }
        }
    }

    /// Largest merged request for this batch, in bytes.
    fn merged_max(&self, batch: &[(Request, Completion)]) -> u64 {
        let idle = self.split_when_idle.as_ref().is_some_and(|meter| meter.is_idle());
        if !idle || batch.len() < 2 {
            return MERGED_MAX;
        }
        let all: u64 = batch.iter().map(|(request, _)| data_len(request)).sum();
        match all / 2 >= self.cut_from.get() {
            true => (all / 2).clamp(SPLIT_MIN, MERGED_MAX),
            false => MERGED_MAX,
        }
    }

    fn new_merge(&self) -> Rc<Merge> {
        self.merges.borrow_mut().pop().unwrap_or_else(|| {
            Rc::new_cyclic(|own| Merge {
                parts: RefCell::new(Vec::new()),
                home: self.own.clone(),
                own: own.clone(),
            })
        })
    }
}

impl Device for Plug {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn cut_from(&self, bytes: u64) {
        self.cut_from.set(bytes);
        self.inner.cut_from(bytes);
    }

    fn layers(&self) -> u32 {
        self.inner.layers()
    }

    fn may_hang(&self) -> bool {
        self.inner.may_hang()
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

    fn find_agreeing(&self, sought: Sought) -> FindAgreeing {
        self.inner.find_agreeing(sought)
    }

    fn holes(&self, bytes: Range<u64>) -> FindHoles {
        self.inner.holes(bytes)
    }

    fn submit(&self, request: Request, done: Completion) {
        self.arrived.borrow_mut().add(&request.op, request.len());
        if matches!(request.op, Op::Flush) || !self.collects {
            // A flush only has to cover completed writes, and those collected here are not completed. But
            // submitting them first costs nothing and keeps the order in which they came.
            self.unplug();
            self.count_out();
            self.inner.submit(request, done);
            return;
        }
        self.collected.borrow_mut().push((request, done));
    }
}

impl Drop for Plug {
    fn drop(&mut self) {
        self.shard.remove_idle_hook(&self.hook);
    }
}

struct Unplug(Weak<Plug>);

impl IdleHook for Unplug {
    fn on_idle(&self) -> bool {
        self.0.upgrade().is_some_and(|plug| plug.unplug())
    }
}

/// Sort key for submission: reads go before writes, and requests of one kind are neighbours for merging.
fn kind(op: &Op) -> u8 {
    match op {
        Op::Read(_) => 0,
        Op::Write { fua: false, .. } => 1,
        Op::Write { fua: true, .. } => 2,
        Op::WriteZeroes { .. } => 3,
        Op::Discard { .. } => 4,
        Op::Flush => 5,
    }
}

fn segments(op: &Op) -> usize {
    match op {
        Op::Read(bufs) => bufs.len(),
        Op::Write { bufs, .. } => bufs.len(),
        _ => 0,
    }
}

/// Bytes of data that the request reads or writes.
fn data_len(request: &Request) -> u64 {
    match request.op {
        Op::Read(_) | Op::Write { .. } => request.len(),
        _ => 0,
    }
}

fn joins(request: &Request, next: &Request, most: u64) -> bool {
    let data = matches!(request.op, Op::Read(_) | Op::Write { .. });
    data && kind(&request.op) == kind(&next.op)
        && request.offset + request.len() == next.offset
        && request.len() + next.len() <= most
        && segments(&request.op) + segments(&next.op) <= SEGMENTS_MAX
}

fn append(op: &mut Op, next: Op) {
    match (op, next) {
        (Op::Read(bufs), Op::Read(more)) => bufs.extend(more),
        (Op::Write { bufs, .. }, Op::Write { bufs: more, .. }) => bufs.extend(more),
        // `joins` admits only equal kinds that carry data.
        _ => {}
    }
}

/// One of the requests in a merged one.
struct Part {
    done: Completion,
    offset: u64,
    len: u64,
    segments: usize,
}

/// Distributes the outcome of a merged request to the completions of its parts.
struct Merge {
    parts: RefCell<Vec<Part>>,
    home: Weak<Plug>,
    own: Weak<Merge>,
}

impl Merge {
    fn add(&self, done: Completion, request: &Request) {
        let (offset, len) = (request.offset, request.len());
        let part = Part { done, offset, len, segments: segments(&request.op) };
        self.parts.borrow_mut().push(part);
    }
}

impl Sink for Merge {
    fn complete(&self, _: u64, outcome: Outcome) {
        let mut parts = std::mem::take(&mut *self.parts.borrow_mut());
        let plug = self.home.upgrade();
        let result = outcome.result;
        let medium = result.is_err_and(|error| error.kind == IoErrorKind::Medium);
        match outcome.op {
            Op::Read(bufs) => {
                let mut bufs = bufs.into_iter();
                for Part { done, offset, len, segments } in parts.drain(..) {
                    let mut own: BufMuts = bufs.by_ref().take(segments).collect();
                    if let (true, 1, Some(plug)) = (own.is_empty(), segments, &plug) {
                        // A device that was given up keeps the buffers, so the part gets a new one.
                        own.push(plug.shard.pool().get(len as usize));
                    }
                    let op = Op::Read(own);
                    match &plug {
                        // A sink must not submit, so the part waits until the shard is idle.
                        Some(plug) if medium => {
                            plug.retries.borrow_mut().push((Request { offset, op }, done));
                        }
                        _ => done.finish(result, op),
                    }
                }
            }
            Op::Write { bufs, fua } => {
                let mut bufs = bufs.into_iter();
                for Part { done, segments, .. } in parts.drain(..) {
                    let bufs = bufs.by_ref().take(segments).collect();
                    done.finish(result, Op::Write { bufs, fua });
                }
            }
            _ => {
                for Part { done, .. } in parts.drain(..) {
                    done.finish(result, Op::Flush);
                }
            }
        }
        *self.parts.borrow_mut() = parts;
        if let (Some(plug), Some(own)) = (plug, self.own.upgrade()) {
            plug.merges.borrow_mut().push(own);
        }
    }
}

#[cfg(test)]
#[path = "plug_tests.rs"]
mod tests;
