//! The questions to members while their array is being stopped, and the time for which each has said nothing.
//!
//! Does not know who asks, nor what follows from silence.

use crate::view::MemberNr;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The questions to the members of one array.
#[derive(Default)]
pub(crate) struct Questions {
    pub(super) asked: RefCell<Vec<Rc<Question>>>,
    /// Nothing is asked any more.
    pub(super) over: Cell<bool>,
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
