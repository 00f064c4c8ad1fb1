//! The map of extents: which blocks of which brick each stripe of each file has, and the blocks that nobody has.

use super::brick::Brick;
use super::bricks::Bricks;
use super::group::{ExtentGroup, FileExtents};
use super::owners::{Owner, Owners};
use super::placement::Placement;
use super::relief::Relief;
use super::reservation::Reservation;
use super::space::SpaceError;
use super::stripe::Stripe;
use crate::record::Record;
use crate::snapshots::Snapshots;
use crate::stripes::Geometry;
use crate::transactions::{Part, Transactions};
use crate::watch::Watches;
use braid_filesystem::{Errno, Ino};
use braid_format::volume::extent::{Extent, PER_GROUP, of_copy, parse};
use braid_format::volume::{RecordError, keys};
use braid_kv::Change;
use braid_layout::buckets::Buckets;
use braid_shard::Shard;
use braid_shard::plant::planted;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::{Rc, Weak};

/// Groups of extents that stay in memory, about: 64 MiB of them.
const KEPT_GROUPS: usize = 64 << 10;
/// Bytes of the record of a group, about.
const GROUP_BYTES: u64 = 1100;
/// Groups of extents that are looked for at a time.
const GROUPS_AT_ONCE: usize = 256;
/// Groups that are kept in memory when they were found while others were looked for.
const FEW: usize = 4;

/// A group of extents: the file and its number.
type Key = (Ino, u64);

/// The extent of a stripe was replaced by another, so its file takes other blocks now: its attributes are to be told.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// Blocks before.
    pub before: u64,
    /// Blocks now.
    pub after: u64,
}

/// The recorded extents of all files, and the free space.
pub struct ExtentMap {
    pub(super) shard: Shard,
    pub(super) geometry: Geometry,
    pub(super) transactions: Rc<Transactions>,
    pub(super) record: Rc<Record>,
    pub(super) watches: Rc<Watches>,
    pub(super) bricks: Rc<Bricks>,
    pub(super) snapshots: Rc<Snapshots>,
    /// The owners of common extents.
    pub(super) owners: Owners,
    pub(super) placement: Placement,
    /// Files of which groups may be in memory.
    pub(super) files: RefCell<BTreeMap<Ino, Weak<FileExtents>>>,
    /// Groups in memory, of all files, about.
    pub(super) kept: Cell<usize>,
    /// Groups that have changed in the open transaction.
    changed: RefCell<BTreeMap<Key, Rc<ExtentGroup>>>,
    pub(super) relief: RefCell<Option<Rc<dyn Relief>>>,
    /// Counts each time that snapshots get other extents: whoever reads a record meanwhile reads it again.
    republished: Cell<u64>,
    /// Free space was put together, and nothing was freed since.
    pub(super) defragmented: Cell<bool>,
    /// Groups that were asked for, for tests.
    #[cfg(test)]
    pub asked: Cell<u32>,
}

/// The parts that the map is made from.
pub struct MapOf {
    /// The shard that it lives on.
    pub shard: Shard,
    /// The sizes of the volume.
    pub geometry: Geometry,
    /// Where changes go.
    pub transactions: Rc<Transactions>,
    /// The volume's record.
    pub record: Rc<Record>,
    /// The checks under way.
    pub watches: Rc<Watches>,
    /// The bricks.
    pub bricks: Rc<Bricks>,
    /// The snapshots.
    pub snapshots: Rc<Snapshots>,
    /// The table of buckets.
    pub buckets: Buckets,
}

impl ExtentMap {
    /// As recorded.
    pub fn new(of: MapOf) -> ExtentMap {
        ExtentMap {
            owners: Owners::new(Rc::clone(&of.transactions), Rc::clone(&of.record)),
            placement: Placement::new(Rc::clone(&of.bricks), of.buckets),
            shard: of.shard,
            geometry: of.geometry,
            transactions: of.transactions,
            record: of.record,
            watches: of.watches,
            bricks: of.bricks,
            snapshots: of.snapshots,
            files: RefCell::default(),
            kept: Cell::new(0),
            changed: RefCell::default(),
            republished: Cell::new(0),
            relief: RefCell::new(None),
            defragmented: Cell::new(false),
            #[cfg(test)]
            asked: Cell::new(0),
        }
    }

    /// From now on `relief` is asked for room where there is none.
    pub fn ask_for_room(&self, relief: Rc<dyn Relief>) {
        *self.relief.borrow_mut() = Some(relief);
    }

    /// The sizes of the volume.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Where new stripes go.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The extents of a file that comes to memory; `is_new`: nothing of it is recorded.
    pub fn file(&self, ino: Ino, is_new: bool, subvolume: u16) -> Rc<FileExtents> {
        Rc::new(FileExtents::new(ino, is_new, subvolume))
    }

    /// Group `group` of the extents of a file.
    ///
    /// # Errors
    /// When the store fails, or the record is damaged.
    pub async fn group(
        &self,
        file: &Rc<FileExtents>,
        group: u64,
    ) -> Result<Rc<ExtentGroup>, Errno> {
        #[cfg(test)]
        self.asked.set(self.asked.get() + 1);
        if let Some(known) = file.known(group) {
            return Ok(known);
        }
        let bytes = loop {
            let republished = self.republished.get();
            let bytes = match file.is_unstored() {
                true => None,
                false => self.transactions.stored(&keys::extents(file.ino(), group)).await?,
            };
            if self.republished.get() == republished {
                break bytes;
            }
        };
        self.keep_group(file, group, bytes.as_deref()).await
    }

    /// Saved extents are others from now on.
    pub(super) fn note_republished(&self) {
        self.republished.set(self.republished.get() + 1);
    }

    /// The group whose record was read just now, unless another task has brought it to memory meanwhile.
    async fn keep_group(
        &self,
        file: &Rc<FileExtents>,
        group: u64,
        bytes: Option<&[u8]>,
    ) -> Result<Rc<ExtentGroup>, Errno> {
        if let Some(known) = file.known(group) {
            return Ok(known);
        }
        let list = match bytes {
            Some(bytes) => self.parsed(file.ino(), group, bytes)?,
            None => [Extent::HOLE; PER_GROUP as usize],
        };
        let shared = match bytes {
            Some(_) => self.shared_of(file, group, &list).await?,
            None => 0,
        };
        if let Some(known) = file.known(group) {
            return Ok(known);
        }
        let kept = file.keep(group, list, shared);
        self.files.borrow_mut().insert(file.ino(), Rc::downgrade(file));
        self.kept.set(self.kept.get() + 1);
        if self.kept.get() >= KEPT_GROUPS {
            self.release_groups();
        }
        Ok(kept)
    }

    /// The extents of a record that was read just now.
    fn parsed(
        &self,
        ino: Ino,
        group: u64,
        bytes: &[u8],
    ) -> Result<[Extent; PER_GROUP as usize], Errno> {
        let list = parse(ino, group, self.geometry.stripe, bytes)
            .map_err(|error| self.transactions.damaged(&error))?;
        let is_beyond = |extent: &Extent| {
            !extent.is_hole() && self.bricks.is(extent.brick, |brick| is_behind(extent, brick))
        };
        if list.iter().any(is_beyond) {
            let error = RecordError::damaged_extent(ino, group);
            return Err(self.transactions.damaged(&error));
        }
        Ok(list)
    }

    /// The stripes of a group that have an extent, as a record says that was read just now, without bringing them to memory.
    ///
    /// # Errors
    /// When the record is damaged.
    pub fn recorded(
        &self,
        ino: Ino,
        group: u64,
        bytes: &[u8],
    ) -> Result<impl Iterator<Item = (u64, Extent)> + use<>, Errno> {
        let first = group * PER_GROUP;
        let list = self.parsed(ino, group, bytes)?;
        Ok((first..).zip(list).filter(|(_, extent)| !extent.is_hole()))
    }

    /// Takes groups out of memory that nobody uses.
    fn release_groups(&self) {
        let mut left = 0;
        let changed = self.changed.borrow();
        self.files.borrow_mut().retain(|_, file| {
            let Some(file) = file.upgrade() else { return false };
            // Records that are being committed are still visible to the store's readers, so they may go too.
            left += file.release(|group| changed.contains_key(&group.key()));
            true
        });
        // However much cannot go, the next look at all of them is a good while off.
        self.kept.set(left.min(KEPT_GROUPS / 2));
    }

    /// True when the extent lies beyond the end of its brick, or on one that does not exist.
    pub fn is_outside(&self, extent: &Extent) -> bool {
        !self.bricks.is(extent.brick, |brick| !is_behind(extent, brick))
    }

    /// The extent of one stripe, with its group.
    ///
    /// # Errors
    /// As [`group`](ExtentMap::group).
    pub async fn get(
        &self,
        file: &Rc<FileExtents>,
        stripe: u64,
    ) -> Result<(Rc<ExtentGroup>, Extent), Errno> {
        let group = self.group(file, stripe / PER_GROUP).await?;
        let extent = group.get(stripe);
        Ok((group, extent))
    }

    /// A stripe of a file, of which `rows` copies may have extents.
    ///
    /// # Errors
    /// As [`group`](ExtentMap::group).
    pub async fn stripe(
        &self,
        file: &Rc<FileExtents>,
        stripe: u64,
        rows: u8,
    ) -> Result<Stripe, Errno> {
        let mut found = Stripe::new(stripe);
        for copy in 0..rows.max(1) {
            found.push(self.group(file, of_copy(stripe, copy) / PER_GROUP).await?);
        }
        Ok(found)
    }

    /// Groups of extents of a file from `first` on, about as many as are looked for at a time, and where to go on;
    /// `None`: there are no more. All that were found may have become empty meanwhile.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn groups_from(
        &self,
        file: &Rc<FileExtents>,
        first: u64,
    ) -> Result<(BTreeSet<u64>, Option<u64>), Errno> {
        let mut groups = BTreeSet::new();
        let mut bound = u64::MAX;
        if !file.is_unstored() {
            let from = keys::extents(file.ino(), first);
            let to = keys::after(&keys::extents(file.ino(), u64::MAX));
            let republished = self.republished.get();
            let (pairs, next) = self.transactions.scanned(&from, &to, GROUPS_AT_ONCE).await?;
            groups.extend(pairs.iter().filter_map(|(key, _)| keys::second_of(key)));
            if pairs.len() <= FEW && self.republished.get() == republished {
                for (key, value) in &pairs {
                    // One that is damaged is told of where it is looked at.
                    if let Some(group) = keys::second_of(key) {
                        let _ = self.keep_group(file, group, Some(value)).await;
                    }
                }
            }
            if let Some(next) = next {
                bound = keys::second_of(&next[..next.len() - 1]).unwrap_or(u64::MAX);
            }
        }
        for (group, is_placed) in file.between(first, bound) {
            // Those that have become empty in memory are still there in the store.
            if is_placed {
                groups.insert(group);
            } else {
                groups.remove(&group);
            }
        }
        Ok((groups, bound.checked_add(1)))
    }

    /// The groups of extents, from the first key of `range` on and before its last, that have changed since the last
    /// transaction was closed.
    pub fn changed_groups(&self, range: Range<Key>) -> Vec<Rc<ExtentGroup>> {
        self.changed.borrow().range(range).map(|(_, group)| Rc::clone(group)).collect()
    }

    /// Records the extent of a stripe in the open transaction. Blocks are not taken or freed here.
    fn set(&self, group: &Rc<ExtentGroup>, stripe: u64, extent: Extent) -> Replaced {
        let old = group.get(stripe);
        let stays = group.is_shared(stripe);
        group.set(stripe, extent);
        self.note_changed(group);
        // Whoever looks at blocks sees a common extent with its owners.
        self.watches.tell(|watch| watch.extent(group.key().0, stripe, (old, stays), extent));
        Replaced { before: old.blocks.into(), after: extent.blocks.into() }
    }

    pub(super) fn note_changed(&self, group: &Rc<ExtentGroup>) {
        let mut is_new = false;
        self.changed.borrow_mut().entry(group.key()).or_insert_with(|| {
            is_new = true;
            Rc::clone(group)
        });
        if is_new {
            self.transactions.object_changed(GROUP_BYTES);
        }
    }

    /// Sets which sub-blocks of the stripe's extent are written.
    pub fn set_written(&self, group: &Rc<ExtentGroup>, stripe: u64, written: u32) -> Replaced {
        self.set(group, stripe, Extent { written, ..group.get(stripe) })
    }

    /// Gives a stripe the reserved blocks as its extent, in which sub-blocks `written` hold something. What it had is freed,
    /// which [`prepare_free`](ExtentMap::prepare_free) has seen.
    pub fn publish(
        &self,
        group: &Rc<ExtentGroup>,
        stripe: u64,
        reservation: &Reservation,
        written: u32,
    ) -> Replaced {
        let (old, stays) = (group.get(stripe), group.is_kept(stripe));
        reservation.confirm();
        let replaced = self.set(group, stripe, reservation.extent(written));
        self.let_go((group.key().0, stripe), old, stays);
        replaced
    }

    /// Gives a stripe an extent that another one has, too; what it had is let go.
    pub(super) fn replace(&self, group: &Rc<ExtentGroup>, stripe: u64, extent: Extent) -> Replaced {
        let (old, stays) = (group.get(stripe), group.is_kept(stripe));
        let replaced = self.set(group, stripe, extent);
        if !old.is_hole() {
            self.let_go((group.key().0, stripe), old, stays);
        }
        replaced
    }

    /// Frees the extent of a stripe, which [`prepare_free`](ExtentMap::prepare_free) has seen.
    pub fn clear(&self, group: &Rc<ExtentGroup>, stripe: u64) -> Replaced {
        let (old, stays) = (group.get(stripe), group.is_kept(stripe));
        let replaced = self.set(group, stripe, Extent::HOLE);
        self.let_go((group.key().0, stripe), old, stays);
        replaced
    }

    /// Cuts the extent of a stripe to its first `blocks` blocks, fewer than it has and more than 0, of which sub-blocks
    /// `written` hold something. A common one keeps its blocks, as all owners have all of them. [`prepare_free`](ExtentMap::prepare_free) has seen it.
    pub fn shorten(
        &self,
        group: &Rc<ExtentGroup>,
        stripe: u64,
        blocks: u64,
        written: u32,
    ) -> Replaced {
        let old = group.get(stripe);
        if old.common {
            return self.set(group, stripe, Extent { written, ..old });
        }
        // Fewer than the extent has.
        let kept = blocks as u16;
        let stays = group.is_kept(stripe);
        let replaced = self.set(group, stripe, Extent { blocks: kept, written, ..old });
        let rest = Extent { start: old.start + blocks, blocks: old.blocks - kept, ..old };
        self.let_go((group.key().0, stripe), rest, stays);
        replaced
    }

    /// Makes the extent of a stripe longer where it is: `wanted` blocks, or else `needed`, both more than it has, as far as
    /// it `fits` the file. `None`: what follows it is not free.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn extend(
        &self,
        group: &Rc<ExtentGroup>,
        stripe: u64,
        (wanted, needed): (u64, u64),
        fits: impl Fn(u64) -> bool,
    ) -> Result<Option<Replaced>, Errno> {
        let extent = group.get(stripe);
        let brick = self.bricks.get(extent.brick).filter(|brick| brick.is_there());
        // One that others have, too, is not made longer: theirs would be.
        let Some(brick) = brick.filter(|_| !group.is_shared(stripe)) else {
            return Ok(None);
        };
        let most = wanted.min(brick.space.blocks() - extent.start);
        self.load(&brick, extent.start, most).await?;
        let (end, old) = (extent.start + u64::from(extent.blocks), u64::from(extent.blocks));
        for blocks in [wanted, needed] {
            if fits(blocks) && brick.space.extend(end, blocks - old) {
                brick.space.confirm(end, blocks - old);
                // At most the blocks of a stripe, which fit.
                let grown = Extent { blocks: blocks as u16, ..extent };
                return Ok(Some(self.set(group, stripe, grown)));
            }
        }
        Ok(None)
    }

    /// Brings the free space of blocks of a brick to memory.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn load(&self, brick: &Brick, start: u64, blocks: u64) -> Result<(), Errno> {
        let loaded = brick.space.load_for(&self.transactions, start, blocks).await;
        loaded.map_err(|error| self.failed(&error))
    }

    /// The error that a request gets when free space could not be looked at.
    pub fn failed(&self, error: &SpaceError) -> Errno {
        match error {
            SpaceError::Store(error) => self.transactions.store_failed(error),
            SpaceError::Record(error) => self.transactions.damaged(error),
        }
    }

    /// Brings the free space of an extent into memory, so that it can be freed in one step.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn prepare_free(&self, extent: Extent) -> Result<(), Errno> {
        if extent.is_hole() {
            return Ok(());
        }
        let Some(brick) = self.bricks.get(extent.brick) else { return Ok(()) };
        self.load(&brick, extent.start, extent.blocks.into()).await
    }

    /// A stripe has blocks no more: they are free, unless a snapshot has them, too, or other stripes.
    pub(super) fn let_go(&self, of: Owner, extent: Extent, stays: bool) {
        if stays && !planted("snapshot-freed") {
            self.record.snapshots_hold(extent.blocks.into());
        } else if extent.common && !planted("common-freed") {
            self.owners.leave(extent.place(), of);
        } else {
            self.free(extent);
        }
    }

    pub(super) fn free(&self, extent: Extent) {
        // A brick that was detached takes its blocks along.
        if let Some(brick) = self.bricks.get(extent.brick).filter(|_| !extent.is_hole()) {
            self.defragmented.set(false);
            brick.space.free(extent.start, extent.blocks.into());
        }
    }

    /// The search for runs shorter than a stripe begins anew on all bricks.
    pub fn rewind_short(&self) {
        self.bricks.all().iter().for_each(|brick| brick.space.rewind_short());
    }

    /// A block that an extent names was recorded as free; its group of blocks is in memory.
    pub fn mark_named(&self, brick: &Brick, block: u64) {
        brick.space.mark_named(block);
    }

    /// Frees blocks that no extent names; their group is in memory.
    pub fn free_unnamed(&self, brick: &Brick, start: u64, blocks: u64) {
        brick.space.free(start, blocks);
    }

    /// Gives no block of `brick` from `limit` on out any more; those that are in use stay so until they are freed.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn fence_off(&self, brick: &Brick, limit: u64) -> Result<(), SpaceError> {
        brick.space.fence_off(&self.transactions, limit).await
    }

    /// All blocks of `brick` are given out again. Nobody may have reserved blocks meanwhile.
    pub fn lift_fence(&self, brick: &Brick) {
        brick.space.lift_fence();
    }

    /// The data area of `brick` ends at the fence from now on; nothing is in use behind it.
    pub fn cut_off(&self, brick: &Brick) {
        brick.space.cut_off();
    }
}

/// True when the extent lies beyond the end of `brick`.
fn is_behind(extent: &Extent, brick: &Brick) -> bool {
    let end = extent.start.checked_add(extent.blocks.into());
    end.is_none_or(|end| end > brick.space.blocks())
}

impl Part for ExtentMap {
    fn is_dirty(&self) -> bool {
        self.placement.is_dirty() || self.bricks.any(|brick| brick.space.is_dirty())
    }

    fn close(&self) -> Vec<Change> {
        let changed = self.changed.take();
        let mut records: Vec<Change> = changed.values().map(|group| group.close()).collect();
        for brick in self.bricks.all() {
            records.extend(brick.space.close());
        }
        records.extend(self.placement.close());
        records
    }

    fn committed(&self) {
        self.bricks.all().iter().for_each(|brick| brick.space.committed());
    }
}
