//! Places of 64 consecutive stripes of one file, in memory.

use braid_filesystem::Ino;
use braid_format::volume::place::{PER_GROUP, Place};
use std::cell::RefCell;

/// One group of places.
pub struct Places {
    ino: Ino,
    group: u64,
    list: RefCell<[Place; PER_GROUP as usize]>,
}

impl Places {
    /// As recorded.
    pub fn new(ino: Ino, group: u64, list: [Place; PER_GROUP as usize]) -> Places {
        Places { ino, group, list: RefCell::new(list) }
    }

    /// The file and the group.
    pub fn key(&self) -> (Ino, u64) {
        (self.ino, self.group)
    }

    /// The place of stripe `stripe`, which is in this group.
    pub fn get(&self, stripe: u64) -> Place {
        self.list.borrow()[(stripe % PER_GROUP) as usize]
    }

    /// Sets it. The caller tells the transaction.
    pub fn set(&self, stripe: u64, place: Place) {
        self.list.borrow_mut()[(stripe % PER_GROUP) as usize] = place;
    }

    /// All, for the record.
    pub fn list(&self) -> [Place; PER_GROUP as usize] {
        *self.list.borrow()
    }

    /// The stripes of this group that have a place.
    pub fn placed(&self) -> Vec<(u64, Place)> {
        let first = self.group * PER_GROUP;
        let list = self.list.borrow();
        let placed = list.iter().zip(first..).filter(|(place, _)| !place.is_hole());
        placed.map(|(place, stripe)| (stripe, *place)).collect()
    }
}
