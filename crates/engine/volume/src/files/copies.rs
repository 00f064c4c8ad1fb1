//! Copies are made, filled and freed, so that a stripe has as many as its file is to have.
//!
//! A copy that misses something is filled with what a reader would get: from the others, as their checksums say.

use super::moving::Moved;
use super::part::Files;
use super::resolve::wants;
use super::verify::sums_of;
use crate::extents::{Avoid, Brick, Stripe};
use crate::namespace::Inode;
use crate::sums::Prepared;
use braid_device::Request;
use braid_filesystem::Errno;
use braid_format::volume::BLOCK;
use braid_format::volume::brick_record::BrickState;
use braid_format::volume::extent::{Extent, copy_of, stripe_of};
use braid_shard::Buf;
use smallvec::SmallVec;
use std::rc::Rc;

impl Files {
    /// Marks the region of a stripe that may have copies, for as long as blocks of them are written: should a brick lose
    /// them the next mount knows. `None`: it has none, or nothing yet; so a file that was removed before a job came to it gets none.
    pub(super) fn mark(&self, inode: &Inode, stripe: &Stripe) -> Option<Prepared> {
        let start = stripe.number() * self.geometry.stripe / BLOCK;
        let blocks = start..start + self.geometry.blocks();
        let has_some = stripe.rows() > 1 && stripe.extents().next().is_some();
        has_some.then(|| self.sums.mark(sums_of(inode), blocks))
    }

    /// The sub-blocks of a copy that may be copied on: where its brick has lost something, only those that no other copy has.
    pub(super) fn trusted(&self, inode: &Inode, stripe: &Stripe, copy: u8) -> u32 {
        let extent = stripe.get(copy);
        let block = stripe.number() * self.geometry.stripe / BLOCK;
        let stale = self.sums.stale_at(inode.ino(), block);
        if !stale.contains(&extent.brick) {
            return extent.written;
        }
        let others = stripe.extents().filter(|(other, extent)| {
            *other != copy && !stale.contains(&extent.brick) && self.bricks.is_there(extent.brick)
        });
        extent.written & !others.fold(0, |all, (_, extent)| all | extent.written)
    }

    /// Brick `brick` has lost something of copies in the region of a stripe.
    pub(super) fn is_stale(&self, inode: &Inode, stripe: u64, brick: u16) -> bool {
        let block = stripe * self.geometry.stripe / BLOCK;
        self.sums.stale_at(inode.ino(), block).contains(&brick)
    }

    /// The same is so of `brick` from now on.
    pub(super) fn note_stale(&self, inode: &Inode, stripe: u64, brick: u16) {
        let block = stripe * self.geometry.stripe / BLOCK;
        self.sums.note_stale_at(inode.ino(), block, brick);
    }

    /// Writes sub-blocks `bits` of a stripe, as they are read, to the blocks from `start` on of a brick. The caller holds the
    /// stripe, and its mark. Gives the bytes.
    ///
    /// # Errors
    /// [`Errno::Io`] when they cannot be read, or not be written.
    pub(super) async fn fill(
        &self,
        inode: &Rc<Inode>,
        stripe: &Stripe,
        bits: u32,
        (to, start): (&Rc<Brick>, u64),
    ) -> Result<u64, Errno> {
        let together = stripe.together();
        let wanted = Extent { written: bits, ..together };
        let base = stripe.number() * self.geometry.stripe;
        let end = u64::from(together.blocks) * BLOCK;
        let mut filled = 0;
        for (run, is_wanted) in self.geometry.runs(wanted, 0, end) {
            if !is_wanted {
                continue;
            }
            let len = run.end - run.start;
            let memory = self.shard.pool().get(len as usize);
            let bytes = self.read_blocks(inode, base + run.start, base + run.end, memory).await?;
            let request = Request::write(to.byte_of(start) + run.start, bytes.freeze(), false);
            self.bricks.write_copy(to, request).await?;
            filled += len;
        }
        Ok(filled)
    }

    /// Writes whole blocks of one sub-block of a stripe over what is there, at byte `within` of it, in all copies that have
    /// it. The caller holds them, and has what [`prepare`](crate::sums::Sums::prepare) gives.
    ///
    /// # Errors
    /// [`Errno::Io`] when no copy has taken them.
    pub(super) async fn write_over(
        &self,
        inode: &Rc<Inode>,
        stripe: &Stripe,
        within: u64,
        blocks: Buf,
    ) -> Result<(), Errno> {
        let touched = self.geometry.touched(within, within + blocks.len() as u64);
        let (mut landed, mut missed) = (SmallVec::<[_; 4]>::new(), SmallVec::<[u8; 4]>::new());
        for (copy, extent) in stripe.extents() {
            if !self.geometry.is_written(extent, within) {
                continue;
            }
            let Some(brick) = self.bricks.get(extent.brick) else {
                missed.push(copy);
                continue;
            };
            let offset = brick.byte_of(extent.start) + within;
            let request = Request::write(offset, blocks.clone(), false);
            match self.bricks.write_copy(&brick, request).await {
                Ok(()) => landed.push((copy, brick)),
                Err(_) => missed.push(copy),
            }
        }
        landed.retain(|(copy, brick)| {
            let is_there = brick.is_there();
            if !is_there {
                missed.push(*copy);
            }
            is_there
        });
        if let [(_, only)] = &landed[..] {
            self.bricks.note_sole(only);
        }
        if landed.is_empty() {
            self.rely_on_one(inode, stripe, touched);
            return Err(Errno::Io);
        }
        for copy in missed {
            self.note_missed(inode, stripe, copy, touched);
        }
        Ok(())
    }

    /// Gives a stripe as many copies as its file is to have, each with all that is written, and frees those that are too
    /// many.
    ///
    /// # Errors
    /// [`Errno::NoSpace`] when there is no brick for a copy, or no room; [`Errno::Io`] when a brick failed, or no copy can be
    /// read. [`Errno::Busy`] when a copy is on a brick that is away and may come back.
    pub async fn make_copies(&self, inode: &Rc<Inode>, number: u64) -> Result<Moved, Errno> {
        let start = number * self.geometry.stripe;
        let _held = inode.locks.exclusive(start..start + self.geometry.stripe).await;
        let stripe = self.stripe(inode, number).await?;
        let copies = inode.with(|record| record.copies);
        if stripe.extents().next().is_none() {
            return Ok(Moved::NotThere);
        }
        let _marked = self.mark(inode, &stripe);
        let (mut bytes, mut failed) = (0, None);
        for copy in 0..copies.min(stripe.rows()) {
            match self.make_copy(inode, &stripe, copy, copies).await {
                Ok(made) => bytes += made,
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if stripe.extra(copies).next().is_some() {
            self.may_do_without_others(inode, &stripe, copies).await?;
            self.free_copies_from(inode, &stripe, copies).await?;
        }
        Ok(if bytes > 0 { Moved::Yes(bytes) } else { Moved::NotThere })
    }

    /// Success if the first `copies` copies of a stripe are there with all that is written, and as it was written: what has rotten in
    /// them is mended from the others first. The caller holds the stripe.
    async fn may_do_without_others(
        &self,
        inode: &Rc<Inode>,
        stripe: &Stripe,
        copies: u8,
    ) -> Result<(), Errno> {
        let start = stripe.number() * self.geometry.stripe;
        self.scrub_held(inode, start..start + self.geometry.stripe).await?;
        let written = stripe.together().written;
        let is_good = |copy| {
            let extent = stripe.get(copy);
            let misses = written & !extent.written != 0;
            !misses && self.has_all(inode, stripe, copy)
        };
        if (0..copies.min(stripe.rows())).all(is_good) { Ok(()) } else { Err(Errno::Busy) }
    }

    /// What a copy of a stripe has of it is there, and its brick has lost nothing.
    fn has_all(&self, inode: &Inode, stripe: &Stripe, copy: u8) -> bool {
        let brick = stripe.get(copy).brick;
        self.bricks.is_there(brick) && !self.is_stale(inode, stripe.number(), brick)
    }

    /// Makes one copy whole, or makes it. Gives the bytes written. Only the first `copies` stay: one of them that has not all of it
    /// is made anew as long as there are others, also where its brick may come back.
    async fn make_copy(
        &self,
        inode: &Rc<Inode>,
        stripe: &Stripe,
        copy: u8,
        copies: u8,
    ) -> Result<u64, Errno> {
        let (extent, together) = (stripe.get(copy), stripe.together());
        let others_go = stripe.extra(copies).next().is_some();
        let brick = self.bricks.get(extent.brick).filter(|_| !extent.is_hole());
        let is_gone = |brick: &Rc<Brick>| {
            let leaves = matches!(brick.state(), BrickState::Removing | BrickState::Lost);
            !brick.is_there() && leaves || others_go && !self.has_all(inode, stripe, copy)
        };
        if let Some(brick) = brick.filter(|brick| !is_gone(brick)) {
            let missed = together.written & !extent.written;
            if missed == 0 {
                return Ok(0);
            }
            if !brick.is_there() {
                return Err(Errno::Busy);
            }
            // An extent that others have, too, stays as it is.
            if extent.blocks >= together.blocks && !stripe.is_shared(copy) {
                let filled = self.fill(inode, stripe, missed, (&brick, extent.start)).await?;
                let (group, number) = stripe.place(copy);
                let written = group.get(number).written | missed;
                let replaced = self.extents.set_written(group, number, written);
                self.inodes.extent_replaced(inode, replaced);
                return Ok(filled);
            }
        }
        let mut wants = wants(inode, stripe, copy);
        if others_go {
            // It may come to where one of those is.
            let stay = stripe.extents().filter(|(other, _)| *other < copies && *other != copy);
            wants.avoid = stay.map(|(_, extent)| extent.brick).collect();
        }
        let reserved = self.extents.reserve(wants, together.blocks.into()).await?;
        let to = (reserved.brick(), reserved.start());
        let filled = self.fill(inode, stripe, together.written, to).await?;
        self.extents.prepare_free(extent).await?;
        // Two copies on one brick would be one: the other, which goes anyway, goes in the same step.
        let is_beside = |(_, other): &(u8, Extent)| other.brick == reserved.brick().id;
        let beside: SmallVec<[_; 2]> = stripe.extra(copies).filter(is_beside).collect();
        for (_, other) in &beside {
            self.extents.prepare_free(*other).await?;
        }
        if !reserved.brick().is_there() {
            return Err(Errno::Io);
        }
        let (group, number) = stripe.place(copy);
        let replaced = self.extents.publish(group, number, &reserved, together.written);
        self.inodes.extent_replaced(inode, replaced);
        for (other, _) in beside {
            let (group, number) = stripe.place(other);
            let replaced = self.extents.clear(group, number);
            self.inodes.extent_replaced(inode, replaced);
        }
        Ok(filled)
    }

    async fn free_copies_from(
        &self,
        inode: &Rc<Inode>,
        stripe: &Stripe,
        first: u8,
    ) -> Result<(), Errno> {
        for copy in first..stripe.rows() {
            let extent = stripe.get(copy);
            if extent.is_hole() {
                continue;
            }
            self.extents.prepare_free(extent).await?;
            let (group, number) = stripe.place(copy);
            if group.get(number) == extent {
                let replaced = self.extents.clear(group, number);
                self.inodes.extent_replaced(inode, replaced);
            }
        }
        Ok(())
    }

    /// The bricks of the other copies of a stripe, whose number says which copy is meant.
    ///
    /// # Errors
    /// When the extents cannot be read.
    pub async fn others_of(&self, inode: &Rc<Inode>, number: u64) -> Result<Avoid, Errno> {
        let stripe = self.stripe(inode, stripe_of(number)).await?;
        let extent = stripe.get(copy_of(number));
        let mut others = stripe.others_than(copy_of(number));
        let common = match extent.is_hole() {
            true => None,
            false => self.extents.common_at(extent.place()).await?,
        };
        // All who have the extent move with it.
        for owner in common.into_iter().flat_map(|common| common.owners) {
            if let Some(inode) = self.owner_inode(extent, owner).await? {
                let stripe = self.stripe(&inode, stripe_of(owner.1)).await?;
                others.extend(stripe.others_than(copy_of(owner.1)));
            }
        }
        Ok(others)
    }

    /// The bytes that [`make_copies`](Files::make_copies) would write for a stripe.
    ///
    /// # Errors
    /// When the extents cannot be read.
    pub async fn missing_copies(&self, inode: &Rc<Inode>, number: u64) -> Result<u64, Errno> {
        let stripe = self.stripe(inode, number).await?;
        let copies = inode.with(|record| record.copies);
        let together = stripe.together();
        let per = self.geometry.sub_block;
        let missing = (0..copies.min(stripe.rows())).map(|copy| {
            let missed = together.written & !stripe.get(copy).written;
            u64::from(missed.count_ones()) * per
        });
        Ok(missing.sum())
    }

    /// The stripe has copies that its file is not to have.
    pub async fn has_too_many(&self, inode: &Rc<Inode>, number: u64) -> Result<bool, Errno> {
        let stripe = self.stripe(inode, number).await?;
        let copies = inode.with(|record| record.copies);
        Ok(stripe.extra(copies).next().is_some())
    }
}
