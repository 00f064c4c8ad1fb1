//! Counters and latencies of an engine: of the requests that come to it, and of the work that it does for them.

use crate::status::Counters;
use braid_device::meter::{Figures, Meter};
use braid_device::{Completion, Op};
use braid_shard::Shard;
use std::cell::Cell;
use std::rc::Rc;

/// See the module's documentation.
pub(crate) struct Measured {
    /// Counts the work; requests are counted by the meter.
    done: Cell<Counters>,
    requests: Rc<Meter>,
    /// Some member is worth a look at the clock.
    timed: Cell<bool>,
}

impl Measured {
    /// Nothing has come yet.
    pub(super) fn new(shard: &Shard) -> Measured {
        Measured { done: Cell::default(), requests: Meter::new(shard), timed: Cell::new(false) }
    }

    /// The latencies of requests are measured from now on.
    pub(super) fn time_requests(&self) {
        self.timed.set(true);
    }

    /// The latencies of requests are measured: a look at the clock costs little of one.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.timed.get()
    }

    /// A request for `len` bytes has come; gives `done`, which is timed where that costs little of a request.
    // In every request's way, and too large for the compiler to inline it of its own accord.
    #[inline(always)]
    pub(crate) fn arrives(&self, op: &Op, len: u64, done: Completion) -> Completion {
        self.requests.count(op, len);
        if self.timed.get() { self.requests.time(op, done) } else { done }
    }

    /// Counts a request for `len` bytes, whose latency is not measured.
    #[inline(always)]
    pub(crate) fn count_request(&self, op: &Op, len: u64) {
        self.requests.count(op, len);
    }

    /// Counts what is done for requests.
    #[inline]
    pub(crate) fn count(&self, more: impl FnOnce(&mut Counters)) {
        let mut counters = self.done.get();
        more(&mut counters);
        self.done.set(counters);
    }

    /// Counters since the start.
    pub(crate) fn counters(&self) -> Counters {
        let arrived = self.requests.counts();
        Counters {
            reads: arrived.reads.requests,
            read_bytes: arrived.reads.bytes,
            writes: arrived.writes.requests,
            written_bytes: arrived.writes.bytes,
            ..self.done.get()
        }
    }

    /// Counts, sizes and latencies of the requests that came to the array.
    pub(crate) fn figures(&self) -> Figures {
        Figures { timed: self.timed.get(), ..self.requests.figures() }
    }
}
