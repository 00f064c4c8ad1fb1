//! A filter that reads ahead: where small reads follow each other on a device, as those of small files do that were written one
//! after the other, one longer read answers many.
//!
//! Invariant: every change of the device comes through the filter, which forgets what it overlaps when it has ended: what was
//! read while it was on its way may be of before it.

use crate::agreeing::{FindAgreeing, Sought};
use crate::completion::{Completion, Outcome, Sink};
use crate::device::Device;
use crate::holes::FindHoles;
use crate::info::DeviceInfo;
use crate::io_set::IoSets;
use crate::request::{Op, Request};
use crate::reservation::Reservations;
use braid_shard::plant::planted;
use braid_shard::ring::BufMuts;
use braid_shard::{Buf, Shard};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::{Rc, Weak};

/// The longest read that is called small, in bytes.
const SMALL: u64 = 64 << 10;
/// A read that begins at most so many bytes behind the end of an earlier one follows it: what lies between may have been freed,
/// or belong to a file that nobody asks for.
const GAP: u64 = 64 << 10;
/// Bytes that are read instead of a small read: first, and at most, doubled each time in between.
const WINDOW_MIN: u64 = 64 << 10;
const WINDOW_MAX: u64 = 256 << 10;
/// Readers that are told apart, by where they read last.
const STREAMS: usize = 4;
/// Parts of the device that are kept in memory.
const SPANS: usize = 4;

/// A reader that goes on and on.
#[derive(Clone, Copy)]
struct Stream {
    /// The end of its last read.
    end: u64,
    /// Bytes that were read ahead for it last; 0: none were.
    window: u64,
}

/// A part of the device that was read.
struct Span {
    from: u64,
    bytes: Buf,
}

impl Span {
    fn range(&self) -> Range<u64> {
        self.from..self.from + self.bytes.len() as u64
    }
}

/// A part that is being read; true: it has changed since.
type Reading = (Range<u64>, Rc<Cell<bool>>);

#[derive(Default)]
struct State {
    /// The one that has read last comes last; so with the spans.
    streams: VecDeque<Stream>,
    spans: VecDeque<Span>,
    reading: Vec<Reading>,
}

/// See the module's documentation.
pub struct ReadAhead {
    shard: Shard,
    sets: IoSets,
    below: Rc<dyn Device>,
    state: RefCell<State>,
    /// Changes on their way.
    changes: RefCell<Slab<(Range<u64>, Completion)>>,
    me: Weak<ReadAhead>,
}

impl State {
    /// Bytes to be read for a small read of `bytes`; `None`: just these.
    fn window(&mut self, bytes: &Range<u64>) -> Option<u64> {
        let follows = |stream: &Stream| bytes.start.wrapping_sub(stream.end) <= GAP;
        let known = self.streams.iter().position(follows).and_then(|at| self.streams.remove(at));
        if known.is_none() && self.streams.len() >= STREAMS {
            self.streams.pop_front();
        }
        let window = known.map_or(0, |stream| (stream.window * 2).clamp(WINDOW_MIN, WINDOW_MAX));
        self.streams.push_back(Stream { end: bytes.end, window });
        (window > bytes.end - bytes.start).then_some(window)
    }

    /// A read was answered from memory.
    fn went_on(&mut self, bytes: &Range<u64>) {
        let follows = |stream: &Stream| bytes.start.wrapping_sub(stream.end) <= GAP;
        if let Some(at) = self.streams.iter().position(follows)
            && let Some(stream) = self.streams.remove(at)
        {
            self.streams.push_back(Stream { end: bytes.end, ..stream });
        }
    }

    /// The bytes of a range, if they are in memory.
    fn known(&self, bytes: &Range<u64>) -> Option<Buf> {
        let within = |span: &&Span| {
            let range = span.range();
            range.start <= bytes.start && bytes.end <= range.end
        };
        let span = self.spans.iter().find(within)?;
        let (from, to) = (bytes.start - span.from, bytes.end - span.from);
        Some(span.bytes.slice(from as usize..to as usize))
    }

    /// What was read of a range is not so any more.
    fn forget(&mut self, changed: &Range<u64>) {
        let overlaps = |range: &Range<u64>| range.start < changed.end && changed.start < range.end;
        if planted("read-ahead-not-forgotten") {
            return;
        }
        self.spans.retain(|span| !overlaps(&span.range()));
        for (_, has_changed) in self.reading.iter().filter(|(range, _)| overlaps(range)) {
            has_changed.set(true);
        }
    }
}

impl ReadAhead {
    /// Over `below`, on the same shard, with nothing read.
    pub fn new(shard: &Shard, below: Rc<dyn Device>) -> Rc<ReadAhead> {
        let (shard, sets) = (shard.clone(), IoSets::new(shard));
        Rc::new_cyclic(|me| ReadAhead {
            shard,
            sets,
            below,
            state: RefCell::default(),
            changes: RefCell::default(),
            me: Weak::clone(me),
        })
    }

    fn read(&self, request: Request, done: Completion) {
        let len = request.len();
        let bytes = request.offset..request.offset + len;
        if len > SMALL || len == 0 {
            return self.below.submit(request, done);
        }
        let mut state = self.state.borrow_mut();
        if let Some(known) = state.known(&bytes) {
            state.went_on(&bytes);
            drop(state);
            let Op::Read(mut bufs) = request.op else { return };
            fill(&mut bufs, &known);
            return done.complete(Outcome::ok(Op::Read(bufs)));
        }
        let window = state.window(&bytes);
        let end = window.map_or(0, |window| (bytes.start + window).min(self.below.info().size));
        let Some(own) = self.me.upgrade().filter(|_| end > bytes.end) else {
            drop(state);
            return self.below.submit(request, done);
        };
        let has_changed = Rc::new(Cell::new(false));
        state.reading.push((bytes.start..end, Rc::clone(&has_changed)));
        drop(state);
        self.shard.spawn(async move { own.read_span(end, request, done, has_changed).await });
    }

    /// Reads from the start of `request` to `end`, answers the request, and keeps the rest for those to come.
    async fn read_span(
        &self,
        end: u64,
        request: Request,
        done: Completion,
        has_changed: Rc<Cell<bool>>,
    ) {
        let (from, len) = (request.offset, request.len());
        let memory = self.shard.pool().get((end - from) as usize);
        let outcome = self.sets.one(&*self.below, Request::read(from, memory)).await;
        self.state.borrow_mut().reading.retain(|(_, known)| !Rc::ptr_eq(known, &has_changed));
        let read = match (outcome.result, outcome.op) {
            (Ok(()), Op::Read(mut bufs)) => bufs.pop(),
            _ => None,
        };
        let (Some(read), Op::Read(_)) = (read, &request.op) else {
            // What was not asked for may be what cannot be read.
            return self.below.submit(request, done);
        };
        let (span, Op::Read(mut bufs)) = (read.freeze(), request.op) else { return };
        fill(&mut bufs, &span[..len as usize]);
        if !has_changed.get() {
            let mut state = self.state.borrow_mut();
            if state.spans.len() >= SPANS {
                state.spans.pop_front();
            }
            state.spans.push_back(Span { from, bytes: span });
        }
        done.complete(Outcome::ok(Op::Read(bufs)));
    }
}

/// Copies `bytes` to buffers of as many bytes together.
fn fill(bufs: &mut BufMuts, bytes: &[u8]) {
    let mut rest = bytes;
    for buf in bufs.iter_mut() {
        let (part, others) = rest.split_at(buf.len().min(rest.len()));
        buf[..part.len()].copy_from_slice(part);
        rest = others;
    }
}

impl Sink for ReadAhead {
    fn complete(&self, token: u64, outcome: Outcome) {
        let ended = self.changes.borrow_mut().try_remove(token as usize);
        if let Some((range, done)) = ended {
            self.state.borrow_mut().forget(&range);
            done.complete(outcome);
        }
    }
}

impl Device for ReadAhead {
    fn info(&self) -> &DeviceInfo {
        self.below.info()
    }

    fn submit(&self, request: Request, done: Completion) {
        match &request.op {
            Op::Read(_) => self.read(request, done),
            Op::Flush => self.below.submit(request, done),
            Op::Write { .. } | Op::Discard { .. } | Op::WriteZeroes { .. } => {
                // Whoever calls holds it.
                let Some(own) = self.me.upgrade() else { return };
                let end = request.offset.saturating_add(request.len());
                let change = self.changes.borrow_mut().insert((request.offset..end, done));
                self.below.submit(request, Completion::new(own as Rc<dyn Sink>, change as u64));
            }
        }
    }

    fn cut_from(&self, bytes: u64) {
        self.below.cut_from(bytes);
    }

    fn layers(&self) -> u32 {
        self.below.layers()
    }

    fn may_hang(&self) -> bool {
        self.below.may_hang()
    }

    fn hurry(&self) {
        self.below.hurry();
    }

    fn waits_for_silent(&self) -> bool {
        self.below.waits_for_silent()
    }

    fn find_agreeing(&self, sought: Sought) -> FindAgreeing {
        let Some(own) = self.me.upgrade() else { return Sought::nowhere() };
        let found = self.below.find_agreeing(sought);
        Box::pin(async move {
            let found = found.await;
            // What was read ahead may be what was not right.
            let end = sought.offset.saturating_add(sought.len as u64);
            own.state.borrow_mut().forget(&(sought.offset..end));
            found
        })
    }

    fn holes(&self, bytes: Range<u64>) -> FindHoles {
        self.below.holes(bytes)
    }

    fn reservations(&self) -> Option<Rc<dyn Reservations>> {
        self.below.reservations()
    }

    fn waits_for_space(&self) -> bool {
        self.below.waits_for_space()
    }
}

#[cfg(test)]
#[path = "read_ahead_tests.rs"]
mod tests;
