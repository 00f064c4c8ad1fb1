//! ExtentGroup of 64 consecutive stripes of one file, in memory.

use braid_filesystem::Ino;
use braid_format::volume::extent::{Extent, PER_GROUP};
use std::cell::RefCell;

/// One group of extents.
pub struct ExtentGroup {
    ino: Ino,
    group: u64,
    list: RefCell<[Extent; PER_GROUP as usize]>,
}

impl ExtentGroup {
    /// As recorded.
    pub fn new(ino: Ino, group: u64, list: [Extent; PER_GROUP as usize]) -> ExtentGroup {
        ExtentGroup { ino, group, list: RefCell::new(list) }
    }

    /// The file and the group.
    pub fn key(&self) -> (Ino, u64) {
        (self.ino, self.group)
    }

    /// The extent of stripe `stripe`, which is in this group.
    pub fn get(&self, stripe: u64) -> Extent {
        self.list.borrow()[(stripe % PER_GROUP) as usize]
    }

    /// Sets it. The caller tells the transaction.
    pub fn set(&self, stripe: u64, extent: Extent) {
        self.list.borrow_mut()[(stripe % PER_GROUP) as usize] = extent;
    }

    /// All, for the record.
    pub fn list(&self) -> [Extent; PER_GROUP as usize] {
        *self.list.borrow()
    }

    /// The stripes of this group that have an extent.
    pub fn placed(&self) -> Vec<(u64, Extent)> {
        let first = self.group * PER_GROUP;
        let list = self.list.borrow();
        let placed = list.iter().zip(first..).filter(|(extent, _)| !extent.is_hole());
        placed.map(|(extent, stripe)| (stripe, *extent)).collect()
    }
}
