//! Files that wait to be removed, or to lose the extents beyond their ends.

use braid_filesystem::Ino;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};

/// The files that wait to be removed.
#[derive(Default)]
pub struct Orphans {
    /// In the order in which they are removed.
    pub queue: RefCell<VecDeque<Ino>>,
    /// A task is at work on the queue.
    pub running: Cell<bool>,
    /// Files that are shorter than their extents, which are still to be taken away: before anything is written beyond their
    /// ends.
    pub cut: RefCell<BTreeSet<Ino>>,
}

impl Orphans {
    /// True while something is being removed.
    pub fn is_busy(&self) -> bool {
        self.running.get()
    }
}
