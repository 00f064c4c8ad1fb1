//! The filter on one shard.

use super::rules::{Action, Faults};
use crate::completion::{Completion, Outcome, Sink};
use crate::device::Device;
use crate::error::{IoError, IoErrorKind};
use crate::info::DeviceInfo;
use crate::request::{Op, Request};
use crate::reservation::Reservations;
use braid_shard::ring::Bufs;
use braid_shard::{IdleHook, Shard};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// A device that misbehaves as its [`Faults`] say.
pub struct Fault {
    inner: Rc<dyn Device>,
    faults: Faults,
    shard: Shard,
    hanging: RefCell<Vec<(Request, Completion)>>,
    /// The number of releases at the last check.
    released: Cell<u64>,
    hook: Rc<dyn IdleHook>,
}

impl Fault {
    /// Puts the filter in front of `inner`.
    pub fn new(shard: &Shard, inner: Rc<dyn Device>, faults: &Faults) -> Rc<Fault> {
        let fault = Rc::new_cyclic(|own: &Weak<Fault>| Fault {
            inner,
            faults: faults.clone(),
            shard: shard.clone(),
            hanging: RefCell::new(Vec::new()),
            released: Cell::new(faults.releases()),
            hook: Rc::new(Release(own.clone())),
        });
        shard.on_idle(Rc::clone(&fault.hook));
        faults.watch(shard.remote());
        fault
    }

    /// Requests that hang now.
    pub fn hanging(&self) -> usize {
        self.hanging.borrow().len()
    }

    fn pass(&self, request: Request, done: Completion) {
        if self.faults.is_gone() {
            fail(IoErrorKind::Gone, request.op, done);
        } else {
            self.inner.submit(request, done);
        }
    }

    fn release(&self) -> bool {
        let releases = self.faults.releases();
        if self.released.replace(releases) == releases || self.hanging.borrow().is_empty() {
            return false;
        }
        for (request, done) in self.hanging.take() {
            self.pass(request, done);
        }
        true
    }

    fn delay(&self, nanos: u64, request: Request, done: Completion) {
        let (shard, inner, faults) =
            (self.shard.clone(), Rc::clone(&self.inner), self.faults.clone());
        self.shard.spawn(async move {
            shard.sleep(nanos).await;
            if faults.is_gone() {
                fail(IoErrorKind::Gone, request.op, done);
            } else {
                inner.submit(request, done);
            }
        });
    }

    fn tear(&self, blocks: u64, request: Request, done: Completion) {
        let Request { offset, op } = request;
        let block = u64::from(self.info().logical_block.max(1));
        let first = match &op {
            Op::Write { bufs, .. } => first_bytes(bufs, blocks.saturating_mul(block)),
            _ => Bufs::new(),
        };
        if first.is_empty() {
            return fail(IoErrorKind::Medium, op, done);
        }
        let torn = Rc::new(Torn(Cell::new(Some((op, done)))));
        let part = Request { offset, op: Op::Write { bufs: first, fua: false } };
        self.inner.submit(part, Completion::new(torn, 0));
    }

    fn flip(&self, request: Request, done: Completion) {
        if !matches!(request.op, Op::Read(_)) || request.is_empty() {
            return self.inner.submit(request, done);
        }
        let bit = self.faults.draw(request.len() * 8);
        let flip = Rc::new(Flip { bit, done: Cell::new(Some(done)) });
        self.inner.submit(request, Completion::new(flip, 0));
    }
}

impl Device for Fault {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn submit(&self, request: Request, done: Completion) {
        if self.faults.is_gone() {
            return fail(IoErrorKind::Gone, request.op, done);
        }
        match self.faults.decide(&request) {
            None => self.inner.submit(request, done),
            Some(Action::Fail(kind)) => fail(kind, request.op, done),
            Some(Action::Hang) => self.hanging.borrow_mut().push((request, done)),
            Some(Action::Delay(nanos)) => self.delay(nanos, request, done),
            Some(Action::Torn(blocks)) => self.tear(blocks, request, done),
            Some(Action::FlipBit) => self.flip(request, done),
        }
    }

    fn reservations(&self) -> Option<Rc<dyn Reservations>> {
        self.inner.reservations()
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        self.shard.remove_idle_hook(&self.hook);
    }
}

struct Release(Weak<Fault>);

impl IdleHook for Release {
    fn on_idle(&self) -> bool {
        self.0.upgrade().is_some_and(|fault| fault.release())
    }
}

fn fail(kind: IoErrorKind, op: Op, done: Completion) {
    done.complete(Outcome::failed(IoError::new(kind), op));
}

/// Buffers of the first `len` bytes.
fn first_bytes(bufs: &Bufs, len: u64) -> Bufs {
    let mut left = len;
    let mut first = Bufs::new();
    for buf in bufs {
        let take = left.min(buf.len() as u64);
        if take > 0 {
            first.push(buf.slice(0..take as usize));
        }
        left -= take;
    }
    first
}

/// Fails a torn write once its first part has been written.
struct Torn(Cell<Option<(Op, Completion)>>);

impl Sink for Torn {
    fn complete(&self, _: u64, _: Outcome) {
        if let Some((op, done)) = self.0.take() {
            fail(IoErrorKind::Medium, op, done);
        }
    }
}

/// Flips a bit of the data that was read.
struct Flip {
    bit: u64,
    done: Cell<Option<Completion>>,
}

impl Sink for Flip {
    fn complete(&self, _: u64, mut outcome: Outcome) {
        if let (Ok(()), Op::Read(bufs)) = (outcome.result, &mut outcome.op) {
            let mut at = (self.bit / 8) as usize;
            for buf in bufs {
                if let Some(byte) = buf.get_mut(at) {
                    *byte ^= 1 << (self.bit % 8);
                    break;
                }
                at -= buf.len();
            }
        }
        if let Some(done) = self.done.take() {
            done.complete(outcome);
        }
    }
}
