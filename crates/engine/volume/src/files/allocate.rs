//! Reserved space, holes, zeroes (fallocate).

use super::part::{Files, SIZE_MAX};
use super::verify::sums_of;
use crate::namespace::Inode;
use crate::stripes::{Piece, down};
use braid_filesystem::{Allocate, Errno, Ino};
use braid_format::volume::BLOCK;
use braid_format::volume::extent::{Extent, PER_GROUP};
use braid_format::volume::inode::FLAG_RESERVED;
use braid_format::volume::sums::UNKNOWN;
use std::ops::Range;
use std::rc::Rc;

impl Files {
    /// See [`braid_filesystem::FileSystem::allocate`].
    pub async fn allocate_file(
        &self,
        ino: Ino,
        how: Allocate,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        let inode = self.inodes.file(ino).await?;
        let end = offset.checked_add(len).filter(|end| *end <= SIZE_MAX).ok_or(Errno::TooBig)?;
        if len == 0 {
            return Err(Errno::Invalid);
        }
        match how {
            Allocate::PunchHole => {
                self.transactions.writable()?;
                self.punch(&inode, offset, end).await?;
            }
            Allocate::ZeroRange { keep_size } => {
                self.transactions.may_grow().await?;
                self.check_room(&inode, offset..end).await?;
                self.settle_end(&inode, if keep_size { 0 } else { end }).await?;
                self.punch(&inode, offset, end).await?;
                self.reserve_range(&inode, offset, end, keep_size).await?;
            }
            Allocate::Reserve { keep_size } => {
                self.transactions.may_grow().await?;
                self.check_room(&inode, offset..end).await?;
                self.settle_end(&inode, if keep_size { 0 } else { end }).await?;
                self.reserve_range(&inode, offset, end, keep_size).await?;
            }
        }
        let grows = !matches!(
            how,
            Allocate::PunchHole
                | Allocate::ZeroRange { keep_size: true }
                | Allocate::Reserve { keep_size: true }
        );
        if grows {
            self.extend(&inode, end).await?;
        }
        self.inodes.touch(&inode, true);
        Ok(())
    }

    /// Refuses at once what cannot fit, before a part of it is reserved.
    async fn check_room(&self, inode: &Rc<Inode>, range: Range<u64>) -> Result<(), Errno> {
        let (used, all) = self.bricks.usage();
        let copies = inode.with(|record| u64::from(record.copies));
        let wanted = ((range.end - range.start) / BLOCK).saturating_mul(copies);
        let (free, left) = (all - used, self.inodes.room_for(inode));
        let mut room = free.min(left);
        // Stripes that the range holds already are not requested again.
        let mut next = Some(range.start / self.geometry.stripe / PER_GROUP);
        while let Some(group) = next.filter(|_| room < wanted) {
            let placed;
            (placed, next) = self.some_placed(inode, group, &range).await?;
            room += placed.iter().map(|(_, extent)| u64::from(extent.blocks) * copies).sum::<u64>();
        }
        match room < wanted {
            true if left < free => Err(Errno::Quota),
            true => Err(Errno::NoSpace),
            false => Ok(()),
        }
    }

    /// The stripes of a range that have an extent, those of some groups from `group` on, and the group where to go on.
    /// Holes are not looked at: one of 16 TiB is passed in no time.
    async fn some_placed(
        &self,
        inode: &Rc<Inode>,
        group: u64,
        range: &Range<u64>,
    ) -> Result<(Vec<(u64, Extent)>, Option<u64>), Errno> {
        let stripe = self.geometry.stripe;
        let mut found = Vec::new();
        let (groups, next) = self.extents.groups_from(&inode.extents, group).await?;
        for group in groups {
            // A group beyond the largest file is damage, and beyond any end.
            let first = group.checked_mul(PER_GROUP * stripe);
            if first.is_none_or(|first| first >= range.end) {
                return Ok((found, None));
            }
            let placed = self.extents.group(&inode.extents, group).await?.placed().into_iter();
            found.extend(placed.filter(|(number, _)| {
                let at = number * stripe;
                at < range.end && at + stripe > range.start
            }));
        }
        Ok((found, next))
    }

    async fn reserve_range(
        &self,
        inode: &Rc<Inode>,
        offset: u64,
        end: u64,
        keep_size: bool,
    ) -> Result<(), Errno> {
        let stripe = self.geometry.stripe;
        if inode.with(|record| record.flags & FLAG_RESERVED == 0) {
            self.inodes.edit(inode, false, |record| record.flags |= FLAG_RESERVED);
        }
        for piece in self.geometry.pieces(offset..end) {
            let start = piece.stripe * stripe;
            let _held = inode.locks.exclusive(start..start + stripe).await;
            let needed = self.geometry.blocks_to(piece.to);
            let file_end = if keep_size { inode.size() } else { end };
            let file_end = file_end.max(start + piece.to);
            let all = self.stripe(inode, piece.stripe).await?;
            self.ensure_extents(inode, &all, needed, file_end, true).await?;
            self.transactions.room().await;
        }
        Ok(())
    }

    /// The range reads as zero from now on, and stripes of which nothing is left take no space.
    async fn punch(&self, inode: &Rc<Inode>, offset: u64, end: u64) -> Result<(), Errno> {
        let stripe = self.geometry.stripe;
        let mut next = Some(offset / stripe / PER_GROUP);
        while let Some(group) = next {
            let placed;
            (placed, next) = self.some_placed(inode, group, &(offset..end)).await?;
            for (number, _) in placed {
                let at = number * stripe;
                let from = offset.saturating_sub(at);
                let piece = Piece { stripe: number, from, to: (end - at).min(stripe) };
                self.punch_stripe(inode, piece).await?;
                self.transactions.room().await;
            }
        }
        Ok(())
    }

    async fn punch_stripe(&self, inode: &Rc<Inode>, piece: Piece) -> Result<(), Errno> {
        let start = piece.stripe * self.geometry.stripe;
        let _held = inode.locks.exclusive(start..start + self.geometry.stripe).await;
        let all = self.stripe(inode, piece.stripe).await?;
        let extent = all.together();
        if extent.is_hole() {
            return Ok(());
        }
        // A reservation stays where it is not punched: only whole extents are freed.
        let extent_end = u64::from(extent.blocks) * BLOCK;
        let keeps = inode.with(|record| record.flags & FLAG_RESERVED != 0)
            && (piece.from > 0 || piece.to < extent_end);
        // After the end of the file nothing is read, so the last sub-block may go as a whole.
        let to = if start + piece.to >= inode.size() { self.geometry.stripe } else { piece.to };
        let gone = self.geometry.covered(piece.from, to);
        let left = extent.written & !gone;
        self.zero_edges(inode, piece, to, left).await?;
        for (_, extent) in all.extents() {
            self.extents.prepare_free(extent).await?;
        }
        let blocks = start / BLOCK..(start + self.geometry.stripe) / BLOCK;
        let windows = self.sums.load(sums_of(inode), blocks.clone()).await?;
        for (copy, extent) in all.extents() {
            let (group, number) = all.place(copy);
            let left_here = extent.written & left;
            if left == 0 && !keeps {
                let replaced = self.extents.clear(group, number);
                self.inodes.extent_replaced(inode, replaced);
            } else if left_here != extent.written {
                let replaced = self.extents.set_written(group, number, left_here);
                self.inodes.extent_replaced(inode, replaced);
            }
        }
        let is_left = |block: u64| left >> ((block * BLOCK - start) / self.geometry.sub_block) & 1;
        let sums = blocks.clone().map(|block| match is_left(block) {
            1 => windows.get(block),
            _ => UNKNOWN,
        });
        self.sums.put(&windows, blocks.start, sums);
        Ok(())
    }

    /// Zeroes the parts of a punched range that share a sub-block with something else.
    async fn zero_edges(
        &self,
        inode: &Rc<Inode>,
        piece: Piece,
        to: u64,
        left: u32,
    ) -> Result<(), Errno> {
        let (geometry, base) = (self.geometry, piece.stripe * self.geometry.stripe);
        let mut at = piece.from;
        while at < to {
            let next = (down(at, geometry.sub_block) + geometry.sub_block).min(to);
            if left >> (at / geometry.sub_block) & 1 == 1 {
                self.zero_written(inode, base + at, base + next).await?;
            }
            at = next;
        }
        Ok(())
    }
}
