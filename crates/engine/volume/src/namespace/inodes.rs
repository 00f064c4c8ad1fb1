//! The files in memory, who uses them from outside, and the changes of their attributes.

use super::inode::{Inode, stamp};
use crate::extents::{ExtentMap, Replaced};
use crate::projects::Projects;
use crate::snapshots::Snapshots;
use crate::transactions::{Part, Transactions};
use crate::watch::Share;
use braid_filesystem::{Errno, Ino, Kind, Time};
use braid_format::volume::inode::{InodeRecord, Stamp};
use braid_format::volume::keys;
use braid_format::volume::snapshot::{LISTING, snapshot_of};
use braid_kv::Change;
use braid_shard::Shard;
use braid_shard::plant::planted;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Files kept in memory although nothing uses them.
const KEPT_MAX: usize = 64 << 10;
/// Bytes of the record of a file, about.
const INODE_BYTES: u64 = 160;

/// Tells the time of day.
pub type Clock = Rc<dyn Fn() -> Time>;

/// The users of a file outside the volume.
#[derive(Clone, Copy, Default)]
struct Uses {
    lookups: u64,
    opens: u64,
}

/// The files in memory.
pub struct Inodes {
    shard: Shard,
    pub(super) transactions: Rc<Transactions>,
    extents: Rc<ExtentMap>,
    projects: Rc<Projects>,
    pub(super) snapshots: Rc<Snapshots>,
    clock: Clock,
    known: RefCell<BTreeMap<Ino, Rc<Inode>>>,
    uses: RefCell<BTreeMap<Ino, Uses>>,
    /// Those that have changed in the open transaction.
    changed: RefCell<BTreeMap<Ino, Rc<Inode>>>,
    /// Losses of acknowledged writes so far, each of one file.
    losses: Cell<u64>,
}

impl Inodes {
    /// None in memory.
    pub fn new(
        shard: &Shard,
        transactions: Rc<Transactions>,
        extents: Rc<ExtentMap>,
        projects: Rc<Projects>,
        snapshots: Rc<Snapshots>,
        clock: Clock,
    ) -> Inodes {
        Inodes {
            shard: shard.clone(),
            transactions,
            extents,
            projects,
            snapshots,
            clock,
            known: RefCell::default(),
            uses: RefCell::default(),
            changed: RefCell::default(),
            losses: Cell::new(0),
        }
    }

    /// Now, as recorded.
    pub fn now(&self) -> Stamp {
        stamp((self.clock)())
    }

    /// One that is in memory.
    pub fn known(&self, ino: Ino) -> Option<Rc<Inode>> {
        self.known.borrow().get(&ino).cloned()
    }

    /// The file, from memory or the store.
    ///
    /// # Errors
    /// [`Errno::Stale`] when there is no such file; when its record cannot be read.
    pub async fn get(&self, ino: Ino) -> Result<Rc<Inode>, Errno> {
        if snapshot_of(ino) == LISTING {
            return self.listing(ino);
        }
        self.check_there(ino)?;
        if let Some(known) = self.known(ino) {
            return Ok(known);
        }
        let bytes = self.transactions.stored(&keys::inode(ino)).await?.ok_or(Errno::Stale)?;
        self.keep_stored(ino, &bytes)
    }

    /// The file, which must be a directory.
    ///
    /// # Errors
    /// As [`get`](Inodes::get), and [`Errno::NotDirectory`].
    pub async fn directory(&self, ino: Ino) -> Result<Rc<Inode>, Errno> {
        let inode = self.get(ino).await?;
        if inode.kind() != Kind::Directory {
            return Err(Errno::NotDirectory);
        }
        Ok(inode)
    }

    /// The file, which must be a regular one.
    ///
    /// # Errors
    /// As [`get`](Inodes::get), and when it is something else.
    pub async fn file(&self, ino: Ino) -> Result<Rc<Inode>, Errno> {
        let inode = self.get(ino).await?;
        match inode.kind() {
            Kind::File => Ok(inode),
            Kind::Directory => Err(Errno::IsDirectory),
            _ => Err(Errno::Invalid),
        }
    }

    /// The file whose record was read just now, unless another task has brought it to memory meanwhile.
    ///
    /// # Errors
    /// When the record is damaged.
    pub fn keep_stored(&self, ino: Ino, bytes: &[u8]) -> Result<Rc<Inode>, Errno> {
        if let Some(known) = self.known(ino) {
            return Ok(known);
        }
        let record = InodeRecord::parse(ino, bytes);
        let mut record = record.map_err(|error| self.transactions.damaged(&error))?;
        if snapshot_of(ino) != 0 {
            self.see_from_inside(ino, &mut record);
        }
        Ok(self.keep(ino, record, false))
    }

    /// The record of a file as it is now, of which `stored` was read just now. `None`: it is damaged.
    pub fn record_of(&self, ino: Ino, stored: &[u8]) -> Option<InodeRecord> {
        match self.known(ino) {
            Some(known) => Some(known.with(Clone::clone)),
            None => InodeRecord::parse(ino, stored).ok(),
        }
    }

    /// A new file.
    pub fn add(&self, ino: Ino, record: InodeRecord) -> Rc<Inode> {
        let inode = self.keep(ino, record, true);
        self.edit(&inode, true, |_| ());
        self.projects.changed(ino, None, Some(inode.with(Share::of)));
        inode
    }

    pub(super) fn keep(&self, ino: Ino, record: InodeRecord, is_new: bool) -> Rc<Inode> {
        let extents = self.extents.file(ino, is_new, record.subvolume);
        let inode = Inode::new(&self.shard, ino, record, extents);
        let durable = self.transactions.durable();
        let mut known = self.known.borrow_mut();
        if known.len() >= KEPT_MAX {
            known.retain(|_, inode| {
                // Somebody is still to be told of a loss.
                let is_lost = inode.lost() > inode.lost_told();
                let is_needed = inode.needed(false) > durable || !inode.locks.is_free() || is_lost;
                Rc::strong_count(inode) > 1 || is_needed
            });
        }
        Rc::clone(known.entry(ino).or_insert(inode))
    }

    /// Changes attributes of `inode` in the open transaction; `data`: one that reading its data needs.
    pub fn edit<T>(
        &self,
        inode: &Rc<Inode>,
        data: bool,
        change: impl FnOnce(&mut InodeRecord) -> T,
    ) -> T {
        // A job may hold a file that is removed meanwhile: its record must not be written again.
        if !inode.removed.get() {
            inode.note_change(self.transactions.number(), data);
            let mut is_new = false;
            self.changed.borrow_mut().entry(inode.ino()).or_insert_with(|| {
                is_new = true;
                Rc::clone(inode)
            });
            if is_new {
                self.transactions.object_changed(INODE_BYTES);
            }
        }
        let before = inode.with(Share::of);
        let result = inode.edit(change);
        if !inode.removed.get() {
            let after = inode.with(Share::of);
            self.projects.changed(inode.ino(), Some(before), Some(after));
        }
        result
    }

    /// What projects take, and may.
    pub fn projects(&self) -> &Projects {
        &self.projects
    }

    /// Blocks that the file may take beside those that it has: more than there are where its project has no limit.
    pub fn room_for(&self, inode: &Inode) -> u64 {
        match planted("limit-ignored") {
            true => u64::MAX,
            false => self.projects.room(inode.with(|record| record.project)),
        }
    }

    /// The content or the names of `inode` have changed now.
    pub fn touch(&self, inode: &Rc<Inode>, content: bool) {
        let now = self.now();
        self.edit(inode, false, |record| {
            record.ctime = now;
            if content {
                record.mtime = now;
            }
        });
    }

    /// An extent of `inode` was replaced by another.
    pub fn extent_replaced(&self, inode: &Rc<Inode>, replaced: Replaced) {
        let Replaced { before, after } = replaced;
        if before != after {
            self.edit(inode, true, |record| {
                record.blocks = record.blocks.saturating_add(after).saturating_sub(before);
            });
        } else {
            self.note_change(inode);
        }
    }

    /// Something that reading the data of `inode` needs has changed, and has a record of its own.
    pub fn note_change(&self, inode: &Inode) {
        inode.note_change(self.transactions.number(), true);
    }

    /// Acknowledged writes to a file may be lost.
    pub fn note_loss(&self, inode: &Inode) {
        self.losses.set(self.losses.get() + 1);
        inode.lose(self.losses.get());
    }

    /// Acknowledged writes may be lost of each file that was written to since the last commit, which had all flushed.
    pub fn lose_uncommitted(&self) {
        let durable = self.transactions.durable();
        for inode in self.known.borrow().values() {
            if inode.needed(false) > durable {
                self.note_loss(inode);
            }
        }
    }

    /// Files of snapshot `id` are forgotten; whoever still has one open gets an error.
    pub fn forget_snapshot(&self, id: u32) {
        self.known.borrow_mut().retain(|ino, _| snapshot_of(*ino) != id);
    }

    /// The folder that lists snapshots is made anew when it is looked at.
    pub(super) fn forget_listing(&self, ino: Ino) {
        self.known.borrow_mut().remove(&ino);
    }

    /// A file is no more: its record is removed in the open transaction.
    pub fn remove(&self, inode: &Inode) {
        let ino = inode.ino();
        if !inode.removed.replace(true) {
            self.projects.changed(ino, Some(inode.with(Share::of)), None);
        }
        if self.changed.borrow_mut().remove(&ino).is_some() {
            self.transactions.object_dropped(INODE_BYTES);
        }
        self.transactions.set(keys::inode(ino), None);
        self.known.borrow_mut().remove(&ino);
        self.uses.borrow_mut().remove(&ino);
    }

    /// One look-up more.
    pub fn add_lookup(&self, ino: Ino) {
        self.uses.borrow_mut().entry(ino).or_default().lookups += 1;
    }

    /// One open more.
    pub fn add_open(&self, ino: Ino) {
        self.uses.borrow_mut().entry(ino).or_default().opens += 1;
    }

    /// Look-ups and opens fewer. True when nobody uses it from outside any more.
    pub fn give_back(&self, ino: Ino, lookups: u64, opens: u64) -> bool {
        let mut uses = self.uses.borrow_mut();
        let Some(found) = uses.get_mut(&ino) else { return true };
        found.lookups = found.lookups.saturating_sub(lookups);
        found.opens = found.opens.saturating_sub(opens);
        let unused = found.lookups == 0 && found.opens == 0;
        if unused {
            uses.remove(&ino);
        }
        unused
    }

    /// True when somebody outside uses it.
    pub fn is_used(&self, ino: Ino) -> bool {
        self.uses.borrow().contains_key(&ino)
    }
}

impl Part for Inodes {
    fn is_dirty(&self) -> bool {
        !self.changed.borrow().is_empty()
    }

    fn close(&self) -> Vec<Change> {
        let changed = self.changed.take();
        let records = changed.iter();
        records
            .map(|(ino, inode)| (keys::inode(*ino), Some(inode.with(|record| record.encode()))))
            .collect()
    }
}
