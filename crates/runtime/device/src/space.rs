//! Writes that fail for want of space (a sparse file on a full file system): they are held back and retried.
//!
//! Such a write just takes longer and nothing has failed: the user has to free some space. A flush that fails with
//! the same error is not held back, because it reports the loss of writes that were acknowledged before.
//!
//! It does not know devices: the meter passes failed requests in, and submits the ones to be retried.

use crate::completion::{Completion, Outcome};
use crate::error::{IoError, IoErrorKind};
use crate::request::{Op, Request};
use crate::watch::POLL_INTERVAL;
use braid_shard::Nanos;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Interval of the retries, in nanoseconds.
pub const RETRY_INTERVAL: Nanos = 5_000_000_000;

/// The receiver of reports about writes of one device that wait for space.
pub struct Space {
    /// Number of devices that have writes waiting, or just retried.
    pub waiting: Arc<AtomicU32>,
    /// Called when the device has started or ceased to be one of them. Must not submit requests.
    pub tell: Box<dyn Fn()>,
}

/// The writes of one device that wait for space.
#[derive(Default)]
pub(crate) struct Waiting {
    space: RefCell<Option<Space>>,
    held: RefCell<Vec<(Request, Completion)>>,
    /// The device is counted in [`Space::waiting`].
    counted: Cell<bool>,
    polls: Cell<u64>,
}

/// True if the operation came back with the data that a retry needs.
fn can_be_retried(op: &Op) -> bool {
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

    /// Takes a request that has failed: holds it back, or completes it.
    #[cold]
    pub(crate) fn failed(&self, offset: u64, outcome: Outcome, done: Completion) {
        let no_space = outcome.result.is_err_and(|error| error.kind == IoErrorKind::NoSpace);
        let waits = self.space.borrow().is_some() && no_space;
        if !waits || !can_be_retried(&outcome.op) {
            return done.complete(outcome);
        }
        self.held.borrow_mut().push((Request { offset, op: outcome.op }, done));
        self.count(true);
    }

    fn count(&self, waits: bool) {
        if self.counted.replace(waits) == waits {
            return;
        }
        self.polls.set(0);
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

    /// Called at each poll of the watch; true when it is time to retry.
    pub(crate) fn is_time(&self) -> bool {
        if !self.counted.get() {
            return false;
        }
        self.polls.set(self.polls.get() + 1);
        if self.held.borrow().is_empty() {
            // All retried writes have succeeded, or are in flight.
            self.count(false);
            return false;
        }
        self.polls.get().is_multiple_of(RETRY_INTERVAL / POLL_INTERVAL)
    }

    pub(crate) fn take(&self) -> Vec<(Request, Completion)> {
        self.held.take()
    }

    /// Stops holding back writes; those held now complete with an error of this kind.
    pub(crate) fn end(&self, kind: IoErrorKind) {
        self.count(false);
        self.space.take();
        for (request, done) in self.held.take() {
            done.complete(Outcome::failed(IoError::new(kind), request.op));
        }
    }
}
