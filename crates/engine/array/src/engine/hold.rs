//! Requests that wait: all of them, while stripes move to other shards or the shape of the array changes, or those that
//! touch a window of it, while a reshape moves what is in it.
//!
//! Several may want all to wait at a time: requests go on when the last of them says so.

use braid_device::{Completion, Device, IoError, IoErrorKind, Request};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// A request that waits, and where it came in.
type Kept = (Request, Rc<dyn Device>, Completion);

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Hold {
    /// Any request may have to wait.
    on: Cell<bool>,
    /// Those who want all of them to wait.
    all: Cell<u32>,
    /// Array bytes.
    window: RefCell<Option<Range<u64>>>,
    kept: RefCell<Vec<Kept>>,
    /// Requests that would wait fail.
    refuses: Cell<bool>,
}

impl Hold {
    /// Requests that come from now on wait.
    pub(crate) fn begin(&self) {
        self.all.set(self.all.get() + 1);
        self.on.set(true);
    }

    /// Some requests may have to wait: see [`Hold::keeps`].
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.get()
    }

    /// A request for these array bytes has to wait; an empty range is no particular one.
    pub(crate) fn keeps(&self, bytes: &Range<u64>) -> bool {
        let meets = |window: &Range<u64>| window.start < bytes.end && bytes.start < window.end;
        self.all.get() > 0 || self.window.borrow().as_ref().is_some_and(meets)
    }

    /// Keeps a request, for `device`, until nothing is in its way, unless that is said to be for ever.
    pub(crate) fn keep(&self, request: Request, device: Rc<dyn Device>, done: Completion) {
        if self.refuses.get() {
            return done.finish(Err(IoError::new(IoErrorKind::Gone)), request.op);
        }
        self.kept.borrow_mut().push((request, device, done));
    }

    /// Once requests go on, those that touch these array bytes wait all the same; `None`: none do. Requests wait now.
    pub(crate) fn set_window(&self, window: Option<Range<u64>>) {
        debug_assert!(self.all.get() > 0);
        *self.window.borrow_mut() = window;
    }

    /// While `on`, requests that would wait fail, since nobody knows that what they wait for will ever come; those that have
    /// waited, too.
    pub(crate) fn refuse(&self, on: bool) {
        self.refuses.set(on);
        if on {
            for (request, _, done) in self.kept.take() {
                done.finish(Err(IoError::new(IoErrorKind::Gone)), request.op);
            }
        }
    }

    /// Requests go on, those that waited first, unless somebody else wants them to wait.
    pub(crate) fn end(&self) {
        let left = self.all.get().saturating_sub(1);
        self.all.set(left);
        if left > 0 {
            return;
        }
        self.on.set(self.window.borrow().is_some());
        // Taken out first: what is submitted may complete at once and submit more, or wait again.
        for (request, device, done) in self.kept.take() {
            device.submit(request, done);
        }
    }
}
