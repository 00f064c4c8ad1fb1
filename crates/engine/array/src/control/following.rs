//! The end of a change in several steps of which the first has begun: what the array is to become when it can go on.
//!
//! It is known while the array runs, and to nobody after that: the superblocks know of the step that is under way, and the
//! command, given again, of the others.
//!
//! Does not know the steps.

use braid_layout::Level;
use std::cell::{Cell, RefCell};

/// The shape of an array at the end of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// The level.
    pub level: Level,
    /// md's number of the layout.
    pub layout: u32,
    /// Bytes of a chunk; 0 where there are none.
    pub chunk_size: u64,
    /// Slots.
    pub raid_disks: usize,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Following {
    goal: RefCell<Option<(Goal, Option<String>)>>,
    /// Grows with each goal: a task that has another number has nothing to do any more.
    nr: Cell<u64>,
    /// A step to it is being begun.
    acting: Cell<bool>,
}

impl Following {
    /// The array is to become this, and not what it was to become before. Gives the number of the goal.
    pub(crate) fn set(&self, goal: Goal) -> u64 {
        *self.goal.borrow_mut() = Some((goal, None));
        self.nr.set(self.nr.get() + 1);
        self.nr.get()
    }

    /// There is nothing that it is to become.
    pub(crate) fn clear(&self) {
        self.nr.set(self.nr.get() + 1);
        *self.goal.borrow_mut() = None;
    }

    /// A step was refused, and nobody tries it again.
    pub(crate) fn refused(&self, why: String) {
        self.nr.set(self.nr.get() + 1);
        if let Some((_, refused)) = self.goal.borrow_mut().as_mut() {
            *refused = Some(why);
        }
    }

    /// The goal, and why it is not reached, if a step was refused.
    pub(crate) fn goal(&self) -> Option<(Goal, Option<String>)> {
        self.goal.borrow().clone()
    }

    /// The goal, as long as no step was refused.
    pub(crate) fn under_way(&self) -> Option<Goal> {
        let goal = self.goal.borrow();
        goal.as_ref().filter(|(_, refused)| refused.is_none()).map(|(goal, _)| *goal)
    }

    /// The goal with this number is still that of the array.
    pub(crate) fn is(&self, nr: u64) -> bool {
        self.nr.get() == nr
    }

    /// A step begins, or has begun.
    pub(crate) fn acts(&self, acting: bool) {
        self.acting.set(acting);
    }

    /// The goal, for a caller that is no step to it.
    pub(crate) fn of_others(&self) -> Option<Goal> {
        self.under_way().filter(|_| !self.acting.get())
    }
}
