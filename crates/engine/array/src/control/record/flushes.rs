//! The right to flush the members of an array, and a note on the last flush that failed.

use braid_shard::Shard;
use braid_shard::sync::Budget;
use std::cell::RefCell;
use std::rc::Rc;

/// The flushes of one array.
pub(crate) struct Flushes {
    /// The right to flush members.
    pub(crate) alone: Rc<Budget>,
    /// Of the last flush that failed: of which member, and why.
    failure: RefCell<Option<String>>,
}

impl Flushes {
    pub(super) fn new(shard: &Shard) -> Flushes {
        Flushes { alone: Budget::new(shard, 1), failure: RefCell::default() }
    }

    pub(super) fn note_failure(&self, sentence: String) {
        *self.failure.borrow_mut() = Some(sentence);
    }

    /// A sentence on the last flush that failed.
    pub(crate) fn last_failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }
}
