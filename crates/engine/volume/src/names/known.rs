//! Names that were looked for lately, whether they were there or not, so that making, opening or removing a file does
//! not ask the store for what the look-up before it has just found out.
//!
//! Entries change in three places only (`add_entry`, `take_entry` and repairs), which all tell; so what is known is
//! never wrong.

use braid_filesystem::Ino;
use braid_format::volume::entry::ByName;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// Names kept: at most twice as many, some MiB.
const KEPT: usize = 32 << 10;

/// The names of one directory each, and what they stand for; `None`: there is no such name.
type Names = HashMap<(Ino, Box<[u8]>), Option<ByName>>;

/// What is known of names.
#[derive(Default)]
pub struct KnownNames {
    young: RefCell<Names>,
    /// Those that were not asked for since the young ones became too many.
    old: RefCell<Names>,
    changes: Cell<u64>,
}

impl KnownNames {
    /// What is known of a name.
    pub fn get(&self, directory: Ino, name: &[u8]) -> Option<Option<ByName>> {
        let key = (directory, name.into());
        if let Some(found) = self.young.borrow().get(&key) {
            return Some(*found);
        }
        let found = self.old.borrow_mut().remove(&key)?;
        self.keep(key, found);
        Some(found)
    }

    /// How often entries have changed: what is read from the store is known only when none has meanwhile.
    pub fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// The store holds this, as it was after so many [`changes`](KnownNames::changes).
    pub fn read(&self, directory: Ino, name: &[u8], entry: Option<ByName>, changes: u64) {
        if changes == self.changes.get() {
            self.keep((directory, name.into()), entry);
        }
    }

    /// An entry has come, or gone.
    pub fn changed(&self, directory: Ino, name: &[u8], entry: Option<ByName>) {
        self.changes.set(self.changes.get() + 1);
        let key = (directory, name.into());
        self.old.borrow_mut().remove(&key);
        self.keep(key, entry);
    }

    /// Entries have changed that nobody told of.
    pub fn forget(&self) {
        self.changes.set(self.changes.get() + 1);
        self.young.borrow_mut().clear();
        self.old.borrow_mut().clear();
    }

    fn keep(&self, key: (Ino, Box<[u8]>), entry: Option<ByName>) {
        let mut young = self.young.borrow_mut();
        young.insert(key, entry);
        if young.len() >= KEPT {
            *self.old.borrow_mut() = std::mem::take(&mut *young);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_since_it_was_read_is_not_taken_for_known() {
        let known = KnownNames::default();
        let entry = ByName { ino: 7, cookie: 1, kind: 8 };
        let before = known.changes();
        known.changed(1, b"a", Some(entry));
        known.read(1, b"a", None, before);
        assert_eq!(known.get(1, b"a"), Some(Some(entry)));
        known.changed(1, b"a", None);
        assert_eq!((known.get(1, b"a"), known.get(2, b"a")), (Some(None), None));
    }

    #[test]
    fn names_that_are_asked_for_stay_and_others_go() {
        let known = KnownNames::default();
        known.read(1, b"asked", None, 0);
        known.read(1, b"not asked", None, 0);
        for at in 0..3 * KEPT {
            known.read(2, &at.to_le_bytes(), None, 0);
            assert!(known.get(1, b"asked").is_some());
        }
        assert_eq!(known.get(1, b"not asked"), None);
        assert!(known.young.borrow().len() + known.old.borrow().len() <= 2 * KEPT);
    }
}
