//! The names of a volume, as a part of it.

use super::inodes::Inodes;
use super::known_names::KnownNames;
use super::orphans::Orphans;
use crate::record::Record;
use crate::stripes::Geometry;
use crate::transactions::Transactions;
use crate::watch::Watches;
use braid_shard::Shard;
use braid_shard::range_locks::RangeLocks;
use std::rc::Rc;

/// Cookies are below this; the newest entry of a directory has the lowest.
pub(super) const COOKIE_TOP: u64 = 1 << 62;

/// The least `next_cookie` of a directory whose lowest entry has `cookie`.
pub fn next_cookie_after(cookie: u64) -> u64 {
    COOKIE_TOP.saturating_sub(cookie).saturating_add(1)
}

/// The tree of names.
pub struct Namespace {
    pub(super) geometry: Geometry,
    pub(super) transactions: Rc<Transactions>,
    pub(super) record: Rc<Record>,
    pub(super) watches: Rc<Watches>,
    pub(super) inodes: Rc<Inodes>,
    pub(super) orphans: Rc<Orphans>,
    pub(super) names: KnownNames,
    /// Held by whoever changes the tree: renames and removals of directories, one at a time.
    pub(super) tree: Rc<RangeLocks>,
}

impl Namespace {
    /// As recorded.
    pub fn new(
        shard: &Shard,
        geometry: Geometry,
        transactions: Rc<Transactions>,
        record: Rc<Record>,
        watches: Rc<Watches>,
        inodes: Rc<Inodes>,
        orphans: Rc<Orphans>,
    ) -> Namespace {
        Namespace {
            geometry,
            transactions,
            record,
            watches,
            inodes,
            orphans,
            names: KnownNames::default(),
            tree: RangeLocks::new(shard),
        }
    }

    /// A repair has changed entries: what is known of them is forgotten.
    pub fn forget_names(&self) {
        self.names.forget();
    }

    /// A file is no more; neither are its names, should it have been a directory.
    pub fn removed(&self, ino: braid_filesystem::Ino) {
        self.names.removed(ino);
    }
}
