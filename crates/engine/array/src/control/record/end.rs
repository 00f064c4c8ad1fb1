//! The end of an array: how far the stop has come, and what it could not finish.

use crate::status::Left;
use std::cell::{Cell, RefCell};

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct End {
    begun: Cell<bool>,
    left: RefCell<Option<Left>>,
}

impl End {
    /// The array is to be stopped. True when it was before.
    pub(crate) fn begin(&self) -> bool {
        self.begun.replace(true)
    }

    /// The array is being stopped, or has been.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.get()
    }

    /// The array has been stopped, and the state of its members is `left`.
    pub(crate) fn finish(&self, left: Left) {
        *self.left.borrow_mut() = Some(left);
    }

    /// The array has been stopped.
    pub(crate) fn is_over(&self) -> bool {
        self.left.borrow().is_some()
    }

    /// The state that the stop left behind, once it is over.
    pub(crate) fn left(&self) -> Option<Left> {
        self.left.borrow().clone()
    }
}
