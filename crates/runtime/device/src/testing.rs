//! Shared by the tests of this crate: a clock that jumps, and shorthands for requests.

use crate::device::Device;
use crate::error::{IoError, IoErrorKind};
use crate::info::DeviceInfo;
use crate::request::{Op, Request};
use crate::{Completion, IoSets, Outcome, Sink};
use braid_shard::{Nanos, Reactor, Shard};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A clock that stands still until everything waits; then it jumps to the next deadline.
pub(crate) struct VirtualClock(Cell<Nanos>);

impl VirtualClock {
    pub(crate) fn at(start: Nanos) -> VirtualClock {
        VirtualClock(Cell::new(start))
    }
}

impl Reactor for VirtualClock {
    fn now(&self) -> Nanos {
        self.0.get()
    }

    fn poll(&self) -> bool {
        false
    }

    fn park(&self, deadline: Option<Nanos>, _: &dyn Fn() -> bool) {
        let deadline = deadline.expect("everything waits and no timer is set: a lost wake-up");
        self.0.set(self.0.get().max(deadline));
    }
}

/// A shard whose clock is virtual and starts at 1 s.
pub(crate) fn shard() -> Shard {
    Shard::with_reactor(0, Rc::new(VirtualClock::at(1_000_000_000)))
}

/// One request, to its end.
pub(crate) fn ask(shard: &Shard, device: &Rc<dyn Device>, request: Request) -> Outcome {
    let (device, sets) = (Rc::clone(device), IoSets::new(shard));
    shard.block_on(async move { sets.one(&*device, request).await })
}

/// Writes `len` bytes of `byte`.
pub(crate) fn fill(shard: &Shard, offset: u64, len: usize, byte: u8) -> Request {
    let mut buf = shard.pool().get(len);
    buf.fill(byte);
    Request::write(offset, buf.freeze(), false)
}

/// The bytes that a read gave.
pub(crate) fn bytes(outcome: Outcome) -> Vec<u8> {
    outcome.result.unwrap();
    let Op::Read(bufs) = outcome.op else { panic!("not the read back") };
    bufs.iter().flat_map(|buf| buf.iter().copied()).collect()
}

/// Outcomes in the order of completion.
#[derive(Default)]
pub(crate) struct Seen(pub(crate) RefCell<Vec<(u64, Outcome)>>);

impl Sink for Seen {
    fn complete(&self, token: u64, outcome: Outcome) {
        self.0.borrow_mut().push((token, outcome));
    }
}

impl Seen {
    pub(crate) fn submit(self: &Rc<Seen>, device: &dyn Device, token: u64, request: Request) {
        device.submit(request, Completion::new(Rc::clone(self) as Rc<dyn Sink>, token));
    }

    /// Tokens with their errors, in the order of completion.
    pub(crate) fn results(&self) -> Vec<(u64, Option<IoErrorKind>)> {
        let seen = self.0.borrow();
        seen.iter().map(|(token, outcome)| (*token, outcome.result.err().map(|e| e.kind))).collect()
    }
}

/// Logs what arrives, in front of another device; one block may be unreadable.
pub(crate) struct Log {
    pub(crate) inner: Rc<dyn Device>,
    pub(crate) seen: RefCell<Vec<(&'static str, u64, u64)>>,
    pub(crate) bad: Cell<Option<u64>>,
}

impl Log {
    pub(crate) fn new(inner: Rc<dyn Device>) -> Rc<Log> {
        Rc::new(Log { inner, seen: RefCell::default(), bad: Cell::new(None) })
    }
}

impl Device for Log {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn submit(&self, request: Request, done: Completion) {
        let (from, len) = (request.offset, request.len());
        let what = match &request.op {
            Op::Read(_) => "read",
            Op::Write { fua: false, .. } => "write",
            Op::Write { fua: true, .. } => "write fua",
            Op::Flush => "flush",
            Op::Discard { .. } => "discard",
            Op::WriteZeroes { .. } => "zero",
        };
        self.seen.borrow_mut().push((what, from, len));
        match self.bad.get() {
            Some(bad) if what == "read" && (from..from + len).contains(&bad) => {
                done.finish(Err(IoError::new(IoErrorKind::Medium)), request.op);
            }
            _ => self.inner.submit(request, done),
        }
    }
}
