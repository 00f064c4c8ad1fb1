//! The extents of one file that are in memory: in groups of 64 consecutive stripes, as they are recorded.

use braid_filesystem::Ino;
use braid_format::volume::extent::{Extent, PER_GROUP, encode};
use braid_format::volume::keys;
use braid_kv::Change;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

/// The extents of one file that are in memory. Those of a file in memory belong to it; the map of all extents loads and
/// changes them.
pub struct FileExtents {
    ino: Ino,
    groups: RefCell<BTreeMap<u64, Rc<ExtentGroup>>>,
    /// No transaction with extents of the file was closed yet, so the store is not asked for them.
    unstored: Cell<bool>,
    /// The subvolume that the file belongs to.
    subvolume: Cell<u16>,
}

/// One group of extents.
pub struct ExtentGroup {
    ino: Ino,
    group: u64,
    list: RefCell<[Extent; PER_GROUP as usize]>,
    /// A bit for each extent that a snapshot has, too: it is neither written to nor freed.
    shared: Cell<u64>,
    file: Weak<FileExtents>,
}

impl FileExtents {
    pub(super) fn new(ino: Ino, is_new: bool, subvolume: u16) -> FileExtents {
        FileExtents {
            ino,
            groups: RefCell::default(),
            unstored: Cell::new(is_new),
            subvolume: Cell::new(subvolume),
        }
    }

    /// The subvolume that the file belongs to.
    pub fn subvolume(&self) -> u16 {
        self.subvolume.get()
    }

    /// The file belongs to another one from now on.
    pub fn set_subvolume(&self, subvolume: u16) {
        self.subvolume.set(subvolume);
    }

    /// The file.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// A group that is in memory.
    pub fn known(&self, group: u64) -> Option<Rc<ExtentGroup>> {
        self.groups.borrow().get(&group).cloned()
    }

    /// True when nothing of the file was ever recorded.
    pub fn is_unstored(&self) -> bool {
        self.unstored.get()
    }

    pub(super) fn keep(
        self: &Rc<Self>,
        group: u64,
        list: [Extent; PER_GROUP as usize],
        shared: u64,
    ) -> Rc<ExtentGroup> {
        let kept = Rc::new(ExtentGroup {
            ino: self.ino,
            group,
            list: RefCell::new(list),
            shared: Cell::new(shared),
            file: Rc::downgrade(self),
        });
        self.groups.borrow_mut().insert(group, Rc::clone(&kept));
        kept
    }

    /// Takes groups out of memory that nobody uses; gives how many are left.
    pub(super) fn release(&self, is_changed: impl Fn(&ExtentGroup) -> bool) -> usize {
        let mut groups = self.groups.borrow_mut();
        groups.retain(|_, group| Rc::strong_count(group) > 1 || is_changed(group));
        groups.len()
    }

    /// Takes all groups out of memory. Nothing of them may have changed since the last commit.
    pub(super) fn release_all(&self) {
        self.groups.borrow_mut().clear();
    }

    /// The groups from `first` to `last` that are in memory; true: some stripe of it has an extent.
    pub(super) fn between(&self, first: u64, last: u64) -> Vec<(u64, bool)> {
        let groups = self.groups.borrow();
        groups.range(first..=last).map(|(at, group)| (*at, group.is_placed())).collect()
    }

    /// The groups of the file, when all are in memory and there are not more than `few`: then they take `blocks` blocks,
    /// all that the file says to have.
    pub fn all_groups(&self, few: usize, blocks: u64) -> Option<BTreeSet<u64>> {
        let groups = self.groups.borrow();
        if groups.len() > few {
            return None;
        }
        let placed = groups.values().flat_map(|group| group.placed());
        let found: u64 = placed.map(|(_, extent)| u64::from(extent.blocks)).sum();
        (found == blocks).then(|| groups.keys().copied().collect())
    }
}

impl ExtentGroup {
    /// The file and the group.
    pub fn key(&self) -> (Ino, u64) {
        (self.ino, self.group)
    }

    /// The extent of stripe `stripe`, which is in this group.
    pub fn get(&self, stripe: u64) -> Extent {
        self.list.borrow()[(stripe % PER_GROUP) as usize]
    }

    pub(super) fn set(&self, stripe: u64, extent: Extent) {
        let old =
            std::mem::replace(&mut self.list.borrow_mut()[(stripe % PER_GROUP) as usize], extent);
        if !is_same(&old, &extent) {
            self.shared.set(self.shared.get() & !(1 << (stripe % PER_GROUP)));
        }
    }

    /// Replaces an extent by a copy of it, which has the same owners.
    pub(super) fn set_moved(&self, stripe: u64, extent: Extent) {
        self.list.borrow_mut()[(stripe % PER_GROUP) as usize] = extent;
    }

    /// A snapshot has the extent of a stripe, too, from now on.
    pub(super) fn share(&self, stripe: u64) {
        self.shared.set(self.shared.get() | 1 << (stripe % PER_GROUP));
    }

    /// No snapshot has the extent of a stripe any more.
    pub fn unshare(&self, stripe: u64) {
        self.shared.set(self.shared.get() & !(1 << (stripe % PER_GROUP)));
    }

    /// A snapshot has the extent of a stripe, too.
    pub fn is_kept(&self, stripe: u64) -> bool {
        self.shared.get() >> (stripe % PER_GROUP) & 1 == 1
    }

    /// A snapshot has the extent of a stripe, too, or other stripes may have it.
    pub fn is_shared(&self, stripe: u64) -> bool {
        self.is_kept(stripe) || self.get(stripe).common
    }

    /// Other stripes may have the extent of a stripe from now on.
    pub(super) fn set_common(&self, stripe: u64) {
        self.list.borrow_mut()[(stripe % PER_GROUP) as usize].common = true;
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

    fn is_placed(&self) -> bool {
        self.list.borrow().iter().any(|extent| !extent.is_hole())
    }

    /// Its record in the transaction that is being closed.
    pub(super) fn close(&self) -> Change {
        if let Some(file) = self.file.upgrade() {
            file.unstored.set(false);
        }
        (keys::extents(self.ino, self.group), encode(&self.list()))
    }
}

/// Two extents begin at the same block: one may be a part of the other.
pub fn is_same(one: &Extent, other: &Extent) -> bool {
    !one.is_hole() && !other.is_hole() && (one.brick, one.start) == (other.brick, other.start)
}
