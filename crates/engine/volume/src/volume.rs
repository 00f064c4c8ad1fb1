//! A mounted volume: what it owns, and the small things that all of its parts use.

use crate::brick::Brick;
use crate::gate::Gate;
use crate::inode::{Inode, Inodes, stamp};
use crate::known_names::KnownNames;
use crate::locks::RangeLocks;
use crate::orphans::Orphans;
use crate::space::SpaceError;
use crate::stripes::Geometry;
use crate::transaction::Transactions;
use crate::under_way::Jobs;
use crate::watch::Watch;
use braid_device::{IoError, IoSets, Request};
use braid_filesystem::{Errno, Ino, Kind, Time};
use braid_format::volume::brick_record::BrickState;
use braid_format::volume::inode::{InodeRecord, Stamp};
use braid_format::volume::volume_record::VolumeRecord;
use braid_format::volume::{RecordError, keys};
use braid_kv::{Answer, StoreError, StoreSpace};
use braid_layout::buckets::Buckets;
use braid_shard::Shard;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

/// The number of commits that a request waits for when it needs room for metadata, before it is refused.
const ROOM_WAITS: usize = 4;

/// Bytes of metadata that may be taken. What removes may take more.
pub(crate) fn room_of(space: &StoreSpace) -> u64 {
    space.capacity - space.capacity / 16
}

/// Tells the time of day.
pub type Clock = Rc<dyn Fn() -> Time>;

/// Notes, where the next mount looks before it uses its bricks, that the brick of this number is not used any more until
/// then. Answers when that is durable; on an error nothing may be made durable that relies on it.
pub type NoteLost = Rc<dyn Fn(u16) -> Answer<()>>;

/// A volume on one shard, which owns all of it.
pub struct Volume {
    pub(crate) shard: Shard,
    pub(crate) io: IoSets,
    pub(crate) geometry: Geometry,
    pub(crate) transactions: Transactions,
    pub(crate) inodes: Inodes,
    pub(crate) names: KnownNames,
    pub(crate) bricks: RefCell<BTreeMap<u16, Rc<Brick>>>,
    pub(crate) buckets: RefCell<Buckets>,
    pub(crate) record: RefCell<VolumeRecord>,
    /// The record has changed.
    pub(crate) record_changed: Cell<bool>,
    /// The buckets or the bricks' records have changed: rare, and large.
    pub(crate) placement_changed: Cell<bool>,
    /// Groups of extents in memory, of all files, about.
    pub(crate) kept_groups: Cell<usize>,
    pub(crate) orphans: Orphans,
    pub(crate) clock: Clock,
    pub(crate) read_only: Cell<bool>,
    /// Flushes of bricks that failed: what an fsync waited for may not be durable.
    pub(crate) flush_failures: Cell<u64>,
    /// Losses of acknowledged writes so far, each of one file.
    pub(crate) losses: Cell<u64>,
    pub(crate) note_lost: NoteLost,
    /// It was said that the metadata is full, and there has not been much room since.
    pub(crate) told_full: Cell<bool>,
    /// Held by whoever changes the tree: renames and removals of directories, one at a time.
    pub(crate) tree: Rc<RangeLocks>,
    /// Every change goes through it; shut while a check looks at something that is wrong.
    pub(crate) gate: Rc<Gate>,
    pub(crate) jobs: Jobs,
    /// Checks under way.
    pub(crate) watches: RefCell<Vec<Rc<Watch>>>,
    /// Bricks that were let go, whose superblocks are still there.
    pub(crate) gone: RefCell<Vec<uuid::Uuid>>,
    /// Files that are offered as block devices.
    pub(crate) exported: RefCell<BTreeSet<Ino>>,
    pub(crate) own: Weak<Volume>,
}

impl Volume {
    /// Bytes of a stripe.
    pub fn stripe(&self) -> u64 {
        self.geometry.stripe
    }

    /// The bricks by number.
    pub fn bricks(&self) -> Vec<Rc<Brick>> {
        self.bricks.borrow().values().cloned().collect()
    }

    /// One brick.
    pub fn brick(&self, id: u16) -> Option<Rc<Brick>> {
        self.bricks.borrow().get(&id).cloned()
    }

    /// Now, as recorded.
    pub(crate) fn now(&self) -> Stamp {
        stamp((self.clock)())
    }

    /// Changes are refused when a commit failed or the volume is mounted read-only.
    pub(crate) fn writable(&self) -> Result<(), Errno> {
        if self.read_only.get() || self.transactions.failure().is_some() {
            return Err(Errno::ReadOnly);
        }
        Ok(())
    }

    /// Waits until there is room in the open transaction, and refuses what would fill the metadata store up.
    pub(crate) async fn may_grow(&self) -> Result<(), Errno> {
        for _ in 0..ROOM_WAITS {
            self.writable()?;
            self.transactions.room().await;
            if self.has_room_for(0).is_ok() || self.transactions.pending_bytes() == 0 {
                break;
            }
            // It is not known what is under way will take, until it is there.
            let durable = self.transactions.wait_durable(self.transactions.number()).await;
            durable.map_err(|error| self.store_failed(&error))?;
        }
        self.has_room_for(0)
    }

    /// Refuses what would fill the metadata store up with a change of `bytes` bytes, which is made at once.
    pub(crate) fn has_room_for(&self, bytes: u64) -> Result<(), Errno> {
        let space = self.transactions.store().space();
        // A commit may write a good part of the pages that its changes touch anew.
        let pending = self.transactions.pending_bytes().saturating_add(bytes);
        let wanted = space.used.saturating_add(pending.saturating_mul(3));
        let is_full = wanted > room_of(&space);
        // Whoever asks for room gets an errno, which says nothing of metadata.
        if is_full && !self.told_full.replace(true) {
            tracing::error!("{}", StoreError::NoSpace);
        }
        if space.used < space.capacity / 8 * 7 {
            self.told_full.set(false);
        }
        if is_full { Err(Errno::NoSpace) } else { Ok(()) }
    }

    pub(crate) fn store_failed(&self, error: &StoreError) -> Errno {
        tracing::error!(volume = %self.record.borrow().uuid, "{error}");
        match error {
            StoreError::NoSpace => Errno::NoSpace,
            StoreError::Damaged(_) | StoreError::Failed(_) => Errno::Io,
        }
    }

    pub(crate) fn damaged(&self, error: &RecordError) -> Errno {
        tracing::error!(volume = %self.record.borrow().uuid, "{error}");
        Errno::Io
    }

    pub(crate) fn space_failed(&self, error: &SpaceError) -> Errno {
        match error {
            SpaceError::Store(error) => self.store_failed(error),
            SpaceError::Record(error) => self.damaged(error),
        }
    }

    pub(crate) async fn stored(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        self.transactions.get(key).await.map_err(|error| self.store_failed(&error))
    }

    /// The file, from memory or the store.
    pub(crate) async fn inode(&self, ino: Ino) -> Result<Rc<Inode>, Errno> {
        if let Some(known) = self.inodes.get(ino) {
            return Ok(known);
        }
        let bytes = self.stored(&keys::inode(ino)).await?.ok_or(Errno::Stale)?;
        self.keep_stored(ino, &bytes)
    }

    /// The file whose record was read just now, unless another task has brought it to memory meanwhile.
    pub(crate) fn keep_stored(&self, ino: Ino, bytes: &[u8]) -> Result<Rc<Inode>, Errno> {
        if let Some(known) = self.inodes.get(ino) {
            return Ok(known);
        }
        let record = InodeRecord::parse(ino, bytes).map_err(|error| self.damaged(&error))?;
        Ok(self.keep(Inode::new(&self.shard, ino, record)))
    }

    pub(crate) fn keep(&self, inode: Rc<Inode>) -> Rc<Inode> {
        let number = self.transactions.durable();
        self.inodes.keep(inode, |inode| {
            // Somebody is still to be told of a loss.
            let is_lost = inode.lost.get() > inode.lost_told.get();
            inode.needed(false) > number || !inode.locks.is_free() || is_lost
        })
    }

    /// The file, which must be a directory.
    pub(crate) async fn directory(&self, ino: Ino) -> Result<Rc<Inode>, Errno> {
        let inode = self.inode(ino).await?;
        if inode.kind() != Kind::Directory {
            return Err(Errno::NotDirectory);
        }
        Ok(inode)
    }

    /// The file, which must be a regular one.
    pub(crate) async fn file(&self, ino: Ino) -> Result<Rc<Inode>, Errno> {
        let inode = self.inode(ino).await?;
        match inode.kind() {
            Kind::File => Ok(inode),
            Kind::Directory => Err(Errno::IsDirectory),
            _ => Err(Errno::Invalid),
        }
    }

    /// Tells checks under way of a change.
    pub(crate) fn tell_watches(&self, tell: impl Fn(&Watch)) {
        self.watches.borrow().iter().for_each(|watch| tell(watch));
    }

    /// Changes attributes of `inode` in the open transaction; `data`: one that reading its data needs.
    pub(crate) fn edit<T>(
        &self,
        inode: &Rc<Inode>,
        data: bool,
        change: impl FnOnce(&mut InodeRecord) -> T,
    ) -> T {
        // A job may hold a file that is removed meanwhile: its record must not be written again.
        if !inode.removed.get() {
            inode.note_change(self.transactions.number(), data);
            self.transactions.touch_inode(inode);
        }
        inode.edit(change)
    }

    /// The content or the names of `inode` have changed now.
    pub(crate) fn touch(&self, inode: &Rc<Inode>, content: bool) {
        let now = self.now();
        self.edit(inode, false, |record| {
            record.ctime = now;
            if content {
                record.mtime = now;
            }
        });
    }

    /// Changes the volume's own record in the open transaction.
    pub(crate) fn edit_record<T>(&self, change: impl FnOnce(&mut VolumeRecord) -> T) -> T {
        self.record_changed.set(true);
        change(&mut self.record.borrow_mut())
    }

    /// A stripe is elsewhere than placement says.
    pub(crate) fn note_unbalanced(&self) {
        if !self.record.borrow().unbalanced {
            self.edit_record(|record| record.unbalanced = true);
        }
    }

    /// A number for a new file.
    pub(crate) fn new_ino(&self) -> Result<Ino, Errno> {
        self.edit_record(|record| {
            let ino = record.next_ino;
            // Only damage brings it so far.
            record.next_ino = ino.checked_add(1).ok_or(Errno::NoSpace)?;
            Ok(ino)
        })
    }

    /// Submits a write to a brick and waits.
    pub(crate) async fn write_to(&self, brick: &Brick, request: Request) -> Result<(), Errno> {
        let Some(device) = brick.device() else { return Err(Errno::Io) };
        brick.note(&request);
        match self.io.one(&*device, request).await.result {
            Ok(()) => {
                brick.wrote();
                Ok(())
            }
            Err(error) => {
                self.brick_failed(brick, error);
                Err(Errno::Io)
            }
        }
    }

    /// A read of `brick` has come back. What one gives that was let go meanwhile may be what it held before the writes that
    /// it has lost.
    pub(crate) fn has_read(&self, brick: &Brick, result: Result<(), IoError>) -> Result<(), Errno> {
        if let Err(error) = result {
            self.brick_failed(brick, error);
            return Err(Errno::Io);
        }
        if brick.is_there() { Ok(()) } else { Err(Errno::Io) }
    }

    /// Takes note of a failed request.
    pub(crate) fn brick_failed(&self, brick: &Brick, error: IoError) {
        self.note_failure(brick, error, error.means_gone());
    }

    /// Takes note of a failed flush. What a brick that fails one holds, and has told to have written, nobody knows: no
    /// commit may name it, so the brick is let go.
    pub(crate) fn flush_failed(&self, brick: &Brick, error: IoError) {
        self.note_failure(brick, error, true);
    }

    fn note_failure(&self, brick: &Brick, error: IoError, gone: bool) {
        let name = brick.name();
        if gone && brick.is_there() && brick.unflushed().is_some() {
            // The data that it had taken is not durable, and no flush will make it so. It may belong to each file that
            // was written to since the last commit, which had all flushed.
            self.flush_failures.set(self.flush_failures.get() + 1);
            let durable = self.transactions.durable();
            self.inodes.each(|inode| {
                if inode.needed(false) > durable {
                    self.note_loss(inode);
                }
            });
        }
        brick.failed(error, gone);
        if gone {
            tracing::error!(
                brick = %name,
                "{error}: the brick is let go; what lies on it cannot be read until it is back at the next mount"
            );
        } else {
            tracing::warn!(brick = %name, "{error}");
        }
    }

    /// Acknowledged writes to a file may be lost.
    pub(crate) fn note_loss(&self, inode: &Inode) {
        self.losses.set(self.losses.get() + 1);
        inode.lost.set(self.losses.get());
    }

    /// Blocks in use and blocks in all, over the bricks that hold data.
    pub fn usage(&self) -> (u64, u64) {
        let bricks = self.bricks.borrow();
        let counted = bricks.values().filter(|brick| {
            matches!(brick.state(), BrickState::Data | BrickState::Proxy) && brick.is_there()
        });
        counted.fold((0, 0), |(used, all), brick| {
            (used + brick.space.used(), all + brick.space.blocks())
        })
    }
}
