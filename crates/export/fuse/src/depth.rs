//! The work that a mount has for its file system's shard: other shards take part from a number on.

use std::cell::{Cell, OnceCell};

/// Requests that are under way, or wait.
#[derive(Default)]
pub(crate) struct Depth {
    under_way: Cell<usize>,
    /// In the kernel, by guess.
    waiting: Cell<usize>,
    told: OnceCell<Box<dyn Fn(usize)>>,
}

impl Depth {
    /// One more is under way.
    pub fn begin(&self) {
        self.under_way.set(self.under_way.get() + 1);
        self.tell();
    }

    /// One that was under way has ended.
    pub fn end(&self) {
        self.under_way.set(self.under_way.get() - 1);
        self.tell();
    }

    /// Requests under way.
    pub fn under_way(&self) -> usize {
        self.under_way.get()
    }

    /// So many requests wait in the kernel, by guess.
    pub fn waits(&self, waiting: usize) {
        if self.waiting.replace(waiting) != waiting {
            self.tell();
        }
    }

    /// `told` hears the number of all together, whenever it changes. Once for each mount.
    pub fn tell_to(&self, told: impl Fn(usize) + 'static) {
        let _ = self.told.set(Box::new(told));
    }

    fn tell(&self) {
        if let Some(told) = self.told.get() {
            told(self.under_way.get() + self.waiting.get());
        }
    }
}
