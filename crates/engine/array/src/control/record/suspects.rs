//! The state of flushes, and of members that have failed and are not recorded as failed yet.

use crate::engine::home::FlushAnswer;
use crate::state::view::MemberNr;
use braid_shard::Shard;
use braid_shard::sync::{Budget, Notify};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The flushes of one array.
pub(crate) struct Flushes {
    /// The right to flush members.
    pub(crate) alone: Rc<Budget>,
    /// Clients that wait for the next flush.
    pub(crate) waiting: RefCell<Vec<FlushAnswer>>,
    /// A task flushes for clients.
    pub(crate) busy: Cell<bool>,
    /// Of the last flush that failed: of which member, and why.
    pub(crate) failure: RefCell<Option<String>>,
}

/// Members that have failed and are not recorded as such, and why.
pub(crate) struct Suspects {
    pub(crate) noted: RefCell<Vec<(MemberNr, String)>>,
    /// Told when a report of an engine has arrived.
    pub(crate) heard: Notify,
    /// A member is faulty in the roster and not yet in the survivors' superblocks.
    pub(crate) unrecorded: Cell<bool>,
}

impl Flushes {
    pub(crate) fn new(shard: &Shard) -> Flushes {
        let (waiting, busy) = (RefCell::default(), Cell::new(false));
        Flushes { alone: Budget::new(shard, 1), waiting, busy, failure: RefCell::default() }
    }

    /// A sentence on the last flush that failed.
    pub(crate) fn last_failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }
}

impl Suspects {
    pub(crate) fn new(shard: &Shard) -> Suspects {
        Suspects {
            noted: RefCell::default(),
            heard: Notify::new(shard),
            unrecorded: Cell::new(false),
        }
    }
}
