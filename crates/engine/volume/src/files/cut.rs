//! The end of a file: truncating, growing, and taking away what is beyond it.
//!
//! A cut within a sub-block leaves the rest of the sub-block as it is, so that a crash before the commit loses nothing; it is
//! zeroed when the file grows over it ([`Files::settle_end`]).
//!
//! Invariant: a file that was cut keeps its size until the extents beyond it are taken away. Whatever makes it grow takes
//! them away first, be it after a crash, or after that failed.

use super::part::{Files, SIZE_MAX};
use super::verify::sums_of;
use crate::namespace::Inode;
use crate::stripes::{down, up};
use crate::sums::Over;
use braid_filesystem::Errno;
use braid_format::volume::BLOCK;
use braid_format::volume::extent::{PER_GROUP, groups_of_copy, of_copy, stripe_of};
use braid_format::volume::inode::FLAG_RESERVED;
use braid_format::volume::sums::{PER_WINDOW, UNKNOWN, sum_of};
use braid_shard::plant::planted;
use std::ops::Range;
use std::rc::Rc;

/// Groups of a file that are known to be all of it, at most.
const FEW: usize = 4;

impl Files {
    /// Sets the size: cuts, or extends with a hole.
    pub async fn set_size(&self, inode: &Rc<Inode>, size: u64) -> Result<(), Errno> {
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
            self.orphans.note_cut(inode.ino());
            inode.set_ragged(true);
        }
        self.inodes.edit(inode, true, |record| {
            record.size = size;
            if size == 0 {
                record.flags &= !FLAG_RESERVED;
            }
        });
        self.inodes.touch(inode, true);
        if size < old { self.trim_cut(inode).await } else { Ok(()) }
    }

    /// Makes the file at least so long; what it has beyond its end was reserved for that.
    pub(super) async fn extend(&self, inode: &Rc<Inode>, size: u64) -> Result<(), Errno> {
        while inode.size() < size {
            self.settle_end(inode, size).await?;
            let _held = inode.locks.exclusive(down(size, self.geometry.stripe)..u64::MAX).await;
            if self.may_reach(inode, size, size) {
                self.inodes.edit(inode, true, |record| record.size = record.size.max(size));
            }
        }
        Ok(())
    }

    /// Takes the extents beyond the end of a file away that was cut. The caller holds all that is there.
    pub async fn trim_cut(&self, inode: &Rc<Inode>) -> Result<(), Errno> {
        if !planted("cut-keeps-bytes") {
            self.trim(inode, inode.size()).await?;
        }
        self.orphans.is_trimmed(inode.ino(), inode.with(|record| record.nlink > 0));
        Ok(())
    }

    /// Nothing that was cut off would show if a change that begins at `from` made the file reach `end`. Stays so for who
    /// holds a range that ends there.
    pub(super) fn may_reach(&self, inode: &Inode, from: u64, end: u64) -> bool {
        let is_cut = || self.orphans.is_cut(inode.ino());
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
        inode.is_ragged() && !planted("tail-not-zeroed") && size != start && !writes_over
    }

    /// Before a change that begins at `from` and may make the file grow: takes away what was cut off and is still there, and
    /// makes the bytes after the end of the file in its last sub-block zero, where they may be something else.
    pub async fn settle_end(&self, inode: &Rc<Inode>, from: u64) -> Result<(), Errno> {
        let (sub_block, stripe) = (self.geometry.sub_block, self.geometry.stripe);
        while self.orphans.is_cut(inode.ino()) {
            let size = inode.size();
            let _held = inode.locks.exclusive(down(size, stripe)..u64::MAX).await;
            let is_cut = self.orphans.is_cut(inode.ino());
            if is_cut && inode.size() == size {
                self.trim_cut(inode).await?;
            }
        }
        while self.shows_end(inode, from) {
            let size = inode.size();
            let start = down(size, sub_block);
            let _held = inode.locks.exclusive(start..start + sub_block).await;
            if inode.size() != size || !inode.is_ragged() {
                continue;
            }
            self.zero_written(inode, size, start + sub_block).await?;
            inode.set_ragged(false);
        }
        Ok(())
    }

    /// Writes zeroes over `from..to` of a file, which lies within one sub-block, if that was written. The caller holds it.
    pub async fn zero_written(&self, inode: &Rc<Inode>, from: u64, to: u64) -> Result<(), Errno> {
        let start = down(from, BLOCK);
        let stripe = self.stripe(inode, start / self.geometry.stripe).await?;
        let within = start % self.geometry.stripe;
        if from >= to || !self.geometry.is_written(stripe.together(), within) {
            return Ok(());
        }
        self.unshare(inode, &stripe).await?;
        let end = up(to, BLOCK);
        let memory = self.shard.pool().get((end - start) as usize);
        let mut blocks = self.read_blocks(inode, start, end, memory).await?;
        blocks[(from - start) as usize..(to - start) as usize].fill(0);
        // As a write leaves it: what was cut before goes with what is changed here, not later.
        let inside = inode.size().saturating_sub(start).min(end - start) as usize;
        blocks[inside..].fill(0);
        let (first, all) = (start / BLOCK, start / BLOCK..end / BLOCK);
        let over = if stripe.rows() == 1 { Over::Sums } else { Over::Copies };
        let prepared = self.sums.prepare(sums_of(inode), all.clone(), over).await?;
        let blocks = blocks.freeze();
        let sums: Vec<u32> = blocks.chunks_exact(BLOCK as usize).map(sum_of).collect();
        let written = self.write_over(inode, &stripe, within, blocks).await;
        match written {
            Ok(()) => self.sums.set(&prepared, first, sums),
            // It is not known what the brick has.
            Err(_) => self.sums.set(&prepared, first, all.map(|_| UNKNOWN)),
        }
        written
    }

    /// Takes away the extents beyond `size`. The caller holds all that is there.
    pub async fn trim(&self, inode: &Rc<Inode>, size: u64) -> Result<(), Errno> {
        let stripe = self.geometry.stripe;
        let whole_from = size.div_ceil(stripe);
        if !size.is_multiple_of(stripe) {
            self.shorten(inode, size / stripe, size % stripe).await?;
        }
        self.forget_sums_to_window(inode, size).await?;
        let (blocks, rows) = inode.with(|record| (record.blocks, record.held));
        if let Some(groups) = inode.extents.all_groups(FEW, blocks) {
            // Copy 0 of a stripe is there as long as another is.
            return self.trim_groups(inode, groups.into_iter().rev(), (size, whole_from)).await;
        }
        for copy in (0..rows).rev() {
            let mut next = Some(of_copy(whole_from, copy) / PER_GROUP);
            while let Some(group) = next {
                let groups;
                (groups, next) = self.extents.groups_from(&inode.extents, group).await?;
                let end = groups_of_copy(copy + 1);
                next = next.filter(|next| *next < end);
                let groups = groups.into_iter().filter(|group| *group < end);
                self.trim_groups(inode, groups, (size, whole_from)).await?;
            }
        }
        Ok(())
    }

    /// Takes away the extents of stripes from `whole_from` on in these groups, which are beyond `size`.
    async fn trim_groups(
        &self,
        inode: &Rc<Inode>,
        groups: impl Iterator<Item = u64>,
        (size, whole_from): (u64, u64),
    ) -> Result<(), Errno> {
        for group in groups {
            let group = self.extents.group(&inode.extents, group).await?;
            let placed = group.placed();
            for (_, extent) in &placed {
                self.extents.prepare_free(*extent).await?;
            }
            // From here to the end of the group in one step.
            let mut windows = size.div_ceil(PER_WINDOW * BLOCK)..0;
            for (stripe, extent) in
                placed.into_iter().filter(|(stripe, _)| stripe_of(*stripe) >= whole_from)
            {
                if group.get(stripe) == extent {
                    let replaced = self.extents.clear(&group, stripe);
                    self.inodes.extent_replaced(inode, replaced);
                }
                windows = self.windows_of(stripe_of(stripe), windows.end.max(windows.start));
                self.sums.cut(sums_of(inode), windows.clone());
            }
            self.transactions.room().await;
        }
        Ok(())
    }

    /// The checksums behind `size` in its window are of blocks that go.
    async fn forget_sums_to_window(&self, inode: &Rc<Inode>, size: u64) -> Result<(), Errno> {
        let from = up(size, self.geometry.sub_block) / BLOCK;
        let blocks = from..from.next_multiple_of(PER_WINDOW);
        let windows = self.sums.load(sums_of(inode), blocks.clone()).await?;
        self.sums.put(&windows, from, blocks.map(|_| UNKNOWN));
        Ok(())
    }

    /// The windows of checksums that a stripe has a part of, from window `from` on.
    fn windows_of(&self, stripe: u64, from: u64) -> Range<u64> {
        let window = PER_WINDOW * BLOCK;
        let start = stripe * self.geometry.stripe;
        (start / window).max(from)..(start + self.geometry.stripe).div_ceil(window)
    }

    /// Cuts the extent of a stripe to its first `bytes` bytes.
    async fn shorten(&self, inode: &Rc<Inode>, stripe: u64, bytes: u64) -> Result<(), Errno> {
        let all = self.stripe(inode, stripe).await?;
        let blocks = self.geometry.blocks_to(bytes);
        let beyond =
            self.geometry.covered(up(bytes, self.geometry.sub_block), self.geometry.stripe);
        for (copy, extent) in all.extents() {
            if u64::from(extent.blocks) <= blocks {
                continue;
            }
            self.extents.prepare_free(extent).await?;
            let written = extent.written & !beyond;
            let (group, number) = all.place(copy);
            let replaced = self.extents.shorten(group, number, blocks, written);
            self.inodes.extent_replaced(inode, replaced);
        }
        Ok(())
    }
}
