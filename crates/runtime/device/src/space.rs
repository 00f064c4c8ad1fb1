//! Writes that find no space (a sparse file on a file system that is full): kept, and tried again.
//!
//! Whoever waits for such a write goes on waiting, and nothing has failed: what is to be done is to make room. A flush is
//! not kept: what it finds missing was acknowledged before, and is lost.
//!
//! Does not know devices: a meter gives what has ended, and submits what is to be tried again.

use crate::completion::{Completion, Outcome};
use crate::error::{IoError, IoErrorKind};
use crate::request::{Op, Request};
use crate::watch::LOOK_EVERY;
use braid_shard::Nanos;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Between two attempts, in nanoseconds.
pub const TRY_EVERY: Nanos = 5_000_000_000;

/// Space waits of one device, and the shard state that is told of them.
pub struct Space {
    /// Devices whose writes wait, or have just been tried again.
    pub waiting: Arc<AtomicU32>,
    /// Called when the device has joined them or has left. Must not submit requests.
    pub tell: Box<dyn Fn()>,
}

/// The writes of one device that wait.
#[derive(Default)]
pub(crate) struct Waiting {
    space: RefCell<Option<Space>>,
    held: RefCell<Vec<(Request, Completion)>>,
    /// Counted among those that wait.
    counted: Cell<bool>,
    looks: Cell<u64>,
}

/// Enough of it has come back to be written again.
fn can_be_tried_again(op: &Op) -> bool {
    match op {
        Op::Write { bufs, .. } => !bufs.is_empty(),
        Op::WriteZeroes { .. } => true,
        _ => false,
    }
}

impl Waiting {
    pub(crate) fn begin(&self, space: Space) {
        *self.space.borrow_mut() = Some(space);
    }

    /// A request has ended with an error: keeps it, or completes it.
    #[cold]
    pub(crate) fn ended(&self, offset: u64, outcome: Outcome, done: Completion) {
        let no_space = outcome.result.is_err_and(|error| error.kind == IoErrorKind::NoSpace);
        let waits = self.space.borrow().is_some() && no_space;
        if !waits || !can_be_tried_again(&outcome.op) {
            return done.complete(outcome);
        }
        self.held.borrow_mut().push((Request { offset, op: outcome.op }, done));
        self.count(true);
    }

    fn count(&self, waits: bool) {
        if self.counted.replace(waits) == waits {
            return;
        }
        self.looks.set(0);
        if let Some(space) = self.space.borrow().as_ref() {
            match waits {
                true => space.waiting.fetch_add(1, Ordering::Relaxed),
                false => space.waiting.fetch_sub(1, Ordering::Relaxed),
            };
            (space.tell)();
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.held.borrow().len()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.counted.get()
    }

    /// One more look has been taken: true when it is time to try again.
    pub(crate) fn is_time(&self) -> bool {
        if !self.counted.get() {
            return false;
        }
        self.looks.set(self.looks.get() + 1);
        if self.held.borrow().is_empty() {
            // All that was tried again has been taken, or is under way.
            self.count(false);
            return false;
        }
        self.looks.get().is_multiple_of(TRY_EVERY / LOOK_EVERY)
    }

    pub(crate) fn take(&self) -> Vec<(Request, Completion)> {
        self.held.take()
    }

    /// Nothing waits any more: what does is answered with an error of this kind.
    pub(crate) fn end(&self, kind: IoErrorKind) {
        self.count(false);
        self.space.take();
        for (request, done) in self.held.take() {
            done.complete(Outcome::failed(IoError::new(kind), request.op));
        }
    }
}
