//! The end of a file: truncating, growing, and taking away what is beyond it.
//!
//! A cut within a sub-block leaves the rest of the sub-block as it is, so that a crash before the commit loses nothing; it is
//! zeroed when the file grows over it ([`Volume::settle_end`]).
//!
//! Invariant: a file that was cut keeps its size until the extents beyond it are taken away. Whatever makes it grow takes
//! them away first, be it after a crash, or after that failed.

use super::write::SIZE_MAX;
use crate::inode::Inode;
use crate::stripes::{down, up};
use crate::volume::Volume;
use braid_device::Request;
use braid_filesystem::Errno;
use braid_format::volume::extent::{Extent, PER_GROUP};
use braid_format::volume::inode::FLAG_RESERVED;
use braid_format::volume::{BLOCK, keys};
use braid_shard::plant::planted;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Groups of extents that are looked for at a time.
const GROUPS_AT_ONCE: usize = 256;
/// Groups that are kept in memory when they were found while others were looked for.
const FEW: usize = 4;

impl Volume {
    /// Sets the size: cuts, or extends with a hole.
    pub(crate) async fn set_size(&self, inode: &Rc<Inode>, size: u64) -> Result<(), Errno> {
        if size > SIZE_MAX {
            return Err(Errno::TooBig);
        }
        let _held = loop {
            self.settle_end(inode, size).await?;
            // Whoever grows the file meanwhile holds something beyond its end.
            let held = inode.locks.exclusive(down(size, self.geometry.stripe)..u64::MAX).await;
            if self.may_reach(inode, size, size) {
                break held;
            }
        };
        let old = inode.size();
        if size < old {
            self.note_cut(inode);
            inode.ragged.set(true);
        }
        self.edit(inode, true, |record| {
            record.size = size;
            if size == 0 {
                record.flags &= !FLAG_RESERVED;
            }
        });
        self.touch(inode, true);
        if size < old { self.trim_cut(inode).await } else { Ok(()) }
    }

    /// Makes the file at least so long; what it has beyond its end was set aside for that.
    pub(super) async fn extend(&self, inode: &Rc<Inode>, size: u64) -> Result<(), Errno> {
        while inode.size() < size {
            self.settle_end(inode, size).await?;
            let _held = inode.locks.exclusive(down(size, self.geometry.stripe)..u64::MAX).await;
            if self.may_reach(inode, size, size) {
                self.edit(inode, true, |record| record.size = record.size.max(size));
            }
        }
        Ok(())
    }

    /// Notes that extents beyond the end of the file are still to be taken away.
    fn note_cut(&self, inode: &Rc<Inode>) {
        self.orphans.cut.borrow_mut().insert(inode.ino());
        self.transactions.set(keys::orphan(inode.ino()), Some(Vec::new()));
    }

    /// Takes the extents beyond the end of a file away that was cut. The caller holds all that is there.
    pub(crate) async fn trim_cut(&self, inode: &Rc<Inode>) -> Result<(), Errno> {
        if !planted("cut-keeps-bytes") {
            self.trim(inode, inode.size()).await?;
        }
        self.orphans.cut.borrow_mut().remove(&inode.ino());
        // A file without a name is still to be removed.
        if inode.with(|record| record.nlink > 0) {
            self.transactions.set(keys::orphan(inode.ino()), None);
        }
        Ok(())
    }

    /// Nothing that was cut off would show if a change that begins at `from` made the file reach `end`. Stays so for who
    /// holds a range that ends there.
    pub(super) fn may_reach(&self, inode: &Inode, from: u64, end: u64) -> bool {
        let is_cut = || self.orphans.cut.borrow().contains(&inode.ino());
        end <= inode.size() || (!self.shows_end(inode, from) && !is_cut())
    }

    /// Bytes after the end of the file in its last sub-block may be something, and a change that begins at `from` does not
    /// write over them.
    fn shows_end(&self, inode: &Inode, from: u64) -> bool {
        let sub_block = self.geometry.sub_block;
        let size = inode.size();
        let start = down(size, sub_block);
        // A write that begins in the same block completes it with zeroes itself.
        let writes_over = from <= size && (sub_block == BLOCK || from < start);
        inode.ragged.get() && !planted("tail-not-zeroed") && size != start && !writes_over
    }

    /// Before a change that begins at `from` and may make the file grow: takes away what was cut off and is still there, and
    /// makes the bytes after the end of the file in its last sub-block zero, where they may be something else.
    pub(crate) async fn settle_end(&self, inode: &Rc<Inode>, from: u64) -> Result<(), Errno> {
        let (sub_block, stripe) = (self.geometry.sub_block, self.geometry.stripe);
        while self.orphans.cut.borrow().contains(&inode.ino()) {
            let size = inode.size();
            let _held = inode.locks.exclusive(down(size, stripe)..u64::MAX).await;
            let is_cut = self.orphans.cut.borrow().contains(&inode.ino());
            if is_cut && inode.size() == size {
                self.trim_cut(inode).await?;
            }
        }
        while self.shows_end(inode, from) {
            let size = inode.size();
            let start = down(size, sub_block);
            let _held = inode.locks.exclusive(start..start + sub_block).await;
            if inode.size() != size || !inode.ragged.get() {
                continue;
            }
            self.zero_written(inode, size, start + sub_block).await?;
            inode.ragged.set(false);
        }
        Ok(())
    }

    /// Writes zeroes over `from..to` of a file, which lies within one sub-block, if that was written. The caller holds it.
    pub(crate) async fn zero_written(
        &self,
        inode: &Rc<Inode>,
        from: u64,
        to: u64,
    ) -> Result<(), Errno> {
        let start = down(from, BLOCK);
        let stripe = start / self.geometry.stripe;
        let (_, extent) = self.extent(inode, stripe).await?;
        let within = start % self.geometry.stripe;
        if from >= to || !self.geometry.is_written(extent, within) {
            return Ok(());
        }
        let end = up(to, BLOCK);
        let memory = self.shard.pool().get((end - start) as usize);
        let mut blocks = self.read_blocks(inode, start, end, memory).await?;
        blocks[(from - start) as usize..(to - start) as usize].fill(0);
        // As a write leaves it: what was cut before goes with what is changed here, not later.
        let inside = inode.size().saturating_sub(start).min(end - start) as usize;
        blocks[inside..].fill(0);
        let brick = self.brick(extent.brick).ok_or(Errno::Io)?;
        let request = Request::write(brick.byte_of(extent.start) + within, blocks.freeze(), false);
        self.write_to(&brick, request).await
    }

    /// Takes away the extents beyond `size`. The caller holds all that is there.
    pub(crate) async fn trim(&self, inode: &Rc<Inode>, size: u64) -> Result<(), Errno> {
        let stripe = self.geometry.stripe;
        let whole_from = size.div_ceil(stripe);
        if !size.is_multiple_of(stripe) {
            self.shorten(inode, size / stripe, size % stripe).await?;
        }
        let mut known = known_groups(inode);
        let mut next = Some(whole_from / PER_GROUP);
        while let Some(group) = next {
            let groups;
            (groups, next) = match known.take() {
                Some(groups) => (groups, None),
                None => self.groups_from(inode, group).await?,
            };
            for group in groups {
                let extents = self.extents(inode, group).await?;
                let placed = extents.placed();
                for (_, extent) in &placed {
                    self.prepare_free(*extent).await?;
                }
                // From here to the end of the group in one step.
                for (stripe, extent) in
                    placed.into_iter().filter(|(stripe, _)| *stripe >= whole_from)
                {
                    if extents.get(stripe) == extent {
                        self.set_extent(inode, &extents, stripe, Extent::HOLE);
                        self.free_blocks(extent);
                    }
                }
                self.transactions.room().await;
            }
        }
        Ok(())
    }

    /// Groups of extents of a file from `first` on, about as many as are looked for at a time, and where to go on;
    /// `None`: there are no more. All that were found may have become empty meanwhile.
    pub(crate) async fn groups_from(
        &self,
        inode: &Rc<Inode>,
        first: u64,
    ) -> Result<(BTreeSet<u64>, Option<u64>), Errno> {
        let mut groups = BTreeSet::new();
        let mut bound = u64::MAX;
        if !inode.unstored.get() {
            let from = keys::extents(inode.ino(), first);
            let to = keys::after(&keys::extents(inode.ino(), u64::MAX));
            let scanned = self.transactions.scan(&from, &to, GROUPS_AT_ONCE).await;
            let (pairs, next) = scanned.map_err(|error| self.store_failed(&error))?;
            groups.extend(pairs.iter().filter_map(|(key, _)| keys::second_of(key)));
            if pairs.len() <= FEW {
                for (key, value) in &pairs {
                    // One that is damaged is told of where it is looked at.
                    let _ = keys::second_of(key)
                        .map(|group| self.keep_group(inode, group, Some(value)));
                }
            }
            if let Some(next) = next {
                bound = keys::second_of(&next[..next.len() - 1]).unwrap_or(u64::MAX);
            }
        }
        let loaded = inode.extents.borrow();
        let changed =
            loaded.range(first..=bound).filter(|(_, extents)| !extents.placed().is_empty());
        groups.extend(changed.map(|(group, _)| *group));
        // Those that have become empty in memory are still there in the store.
        groups.retain(|group| loaded.get(group).is_none_or(|extents| !extents.placed().is_empty()));
        Ok((groups, bound.checked_add(1)))
    }

    /// Cuts the extent of a stripe to its first `bytes` bytes.
    async fn shorten(&self, inode: &Rc<Inode>, stripe: u64, bytes: u64) -> Result<(), Errno> {
        let (extents, extent) = self.extent(inode, stripe).await?;
        let blocks = self.geometry.blocks_to(bytes);
        if u64::from(extent.blocks) <= blocks {
            return Ok(());
        }
        self.prepare_free(extent).await?;
        let beyond =
            self.geometry.covered(up(bytes, self.geometry.sub_block), self.geometry.stripe);
        let cut = Extent { blocks: blocks as u16, written: extent.written & !beyond, ..extent };
        self.set_extent(inode, &extents, stripe, cut);
        let rest = Extent {
            start: extent.start + blocks,
            blocks: extent.blocks - blocks as u16,
            ..extent
        };
        self.free_blocks(rest);
        Ok(())
    }
}

/// The groups of a file's extents, when all are in memory: they take all the blocks that the file says to have.
fn known_groups(inode: &Inode) -> Option<BTreeSet<u64>> {
    let loaded = inode.extents.borrow();
    if loaded.len() > FEW {
        return None;
    }
    let placed = loaded.values().flat_map(|extents| extents.placed());
    let blocks: u64 = placed.map(|(_, extent)| u64::from(extent.blocks)).sum();
    (blocks == inode.with(|record| record.blocks)).then(|| loaded.keys().copied().collect())
}
