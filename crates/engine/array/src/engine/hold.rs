//! Requests that wait while stripes move to other shards.

use braid_device::{Completion, Device, Request};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A request that waits, and where it came in.
type Kept = (Request, Rc<dyn Device>, Completion);

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Hold {
    on: Cell<bool>,
    kept: RefCell<Vec<Kept>>,
}

impl Hold {
    /// Requests that come from now on wait.
    pub(crate) fn begin(&self) {
        self.on.set(true);
    }

    /// Requests are to wait.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.get()
    }

    /// Keeps a request, for `device`, until the [end](Hold::end).
    pub(crate) fn keep(&self, request: Request, device: Rc<dyn Device>, done: Completion) {
        self.kept.borrow_mut().push((request, device, done));
    }

    /// Requests go on, those that waited first.
    pub(crate) fn end(&self) {
        self.on.set(false);
        // Taken out first: what is submitted may complete at once and submit more.
        for (request, device, done) in self.kept.take() {
            device.submit(request, done);
        }
    }
}
