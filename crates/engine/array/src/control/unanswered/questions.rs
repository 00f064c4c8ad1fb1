//! The questions to members while their array, or one above it, is being stopped, and the time for which each has said nothing.
//!
//! Does not know who asks, nor what follows from silence.

use crate::state::view::MemberNr;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The questions to the members of one array.
#[derive(Default)]
pub(crate) struct Questions {
    pub(super) asked: RefCell<Vec<Rc<Question>>>,
    /// Nothing is asked any more.
    pub(super) over: Cell<bool>,
    /// Looks for which an array above still waits, as far as it has said.
    pub(super) above: Cell<u32>,
    /// Somebody looks because an array above waits.
    pub(super) watched: Cell<bool>,
}

impl Questions {
    /// Silence counts from now on.
    pub(super) fn begin(&self) {
        self.asked.borrow().iter().for_each(|question| question.silent.set(0));
    }
}

/// A member, and what it says.
pub(crate) struct Question {
    pub(super) nr: MemberNr,
    /// It has not answered what it was asked last.
    pub(super) open: Cell<bool>,
    /// Requests that it had completed when it was looked at last.
    pub(super) answers: Cell<u64>,
    /// Looks since it completed anything.
    pub(super) silent: Cell<u32>,
    /// Looks since it was asked.
    pub(super) looks: Cell<u32>,
}
