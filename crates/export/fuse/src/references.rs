//! The references that the kernel holds on a file system: look-ups not yet forgotten, files not yet closed.
//!
//! When a mount ends the kernel does not give them back one by one, so they are counted here and given back at
//! once.

use braid_filesystem::{FileSystem, Ino};
use std::cell::RefCell;
use std::collections::HashMap;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct References(RefCell<HashMap<Ino, Held>>);

#[derive(Default)]
struct Held {
    look_ups: u64,
    opens: u64,
}

impl References {
    pub(crate) fn looked_up(&self, ino: Ino) {
        self.change(ino, |held| held.look_ups += 1);
    }

    pub(crate) fn forgotten(&self, ino: Ino, count: u64) {
        self.change(ino, |held| held.look_ups = held.look_ups.saturating_sub(count));
    }

    pub(crate) fn opened(&self, ino: Ino) {
        self.change(ino, |held| held.opens += 1);
    }

    pub(crate) fn closed(&self, ino: Ino) {
        self.change(ino, |held| held.opens = held.opens.saturating_sub(1));
    }

    fn change(&self, ino: Ino, change: impl FnOnce(&mut Held)) {
        let mut all = self.0.borrow_mut();
        let held = all.entry(ino).or_default();
        change(held);
        if held.look_ups == 0 && held.opens == 0 {
            all.remove(&ino);
        }
    }

    /// Closes and forgets everything, in the order of the numbers.
    pub(crate) fn give_back(&self, fs: &impl FileSystem) {
        let mut all: Vec<(Ino, Held)> = self.0.borrow_mut().drain().collect();
        all.sort_unstable_by_key(|(ino, _)| *ino);
        for (ino, held) in all {
            (0..held.opens).for_each(|_| fs.close(ino));
            if held.look_ups > 0 {
                fs.forget(ino, held.look_ups);
            }
        }
    }
}
