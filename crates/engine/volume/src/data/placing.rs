//! ExtentGroup of stripes: loaded, chosen, grown, freed.

use crate::brick::Brick;
use crate::group::ExtentGroup;
use crate::inode::Inode;
use crate::volume::Volume;
use braid_device::{Op, Request};
use braid_filesystem::Errno;
use braid_format::volume::extent::{Extent, PER_GROUP, parse};
use braid_format::volume::{BLOCK, RecordError, keys};
use braid_shard::plant::planted;
use std::rc::Rc;

/// Groups of extents that stay in memory, about: 64 MiB of them.
const KEPT_GROUPS: usize = 64 << 10;
/// Stripes from this one on are given whole extents from the start: a file of that size grows on.
const WHOLE_FROM: u64 = 8;
/// The number of commits that a reservation waits for, which may give freed blocks back, before it fails.
const SPACE_WAITS: usize = 64;

impl Volume {
    /// Group `group` of the extents of `inode`.
    pub(crate) async fn extents(
        &self,
        inode: &Rc<Inode>,
        group: u64,
    ) -> Result<Rc<ExtentGroup>, Errno> {
        if let Some(known) = inode.extents.borrow().get(&group) {
            return Ok(Rc::clone(known));
        }
        let bytes = match inode.unstored.get() {
            true => None,
            false => self.stored(&keys::extents(inode.ino(), group)).await?,
        };
        self.keep_group(inode, group, bytes.as_deref())
    }

    /// The group whose record was read just now, unless another task has brought it to memory meanwhile.
    pub(super) fn keep_group(
        &self,
        inode: &Rc<Inode>,
        group: u64,
        bytes: Option<&[u8]>,
    ) -> Result<Rc<ExtentGroup>, Errno> {
        if let Some(known) = inode.extents.borrow().get(&group) {
            return Ok(Rc::clone(known));
        }
        let list = match bytes {
            Some(bytes) => parse(inode.ino(), group, self.geometry.stripe, bytes)
                .map_err(|error| self.damaged(&error))?,
            None => [Extent::HOLE; PER_GROUP as usize],
        };
        let outside = |extent: &Extent| {
            let end = extent.start.checked_add(extent.blocks.into());
            let brick = self.brick(extent.brick);
            brick.is_some_and(|brick| end.is_none_or(|end| end > brick.space.blocks()))
        };
        if list.iter().any(|extent| !extent.is_hole() && outside(extent)) {
            return Err(self.damaged(&RecordError::damaged_extent(inode.ino(), group)));
        }
        let extents = Rc::new(ExtentGroup::new(inode.ino(), group, list));
        inode.extents.borrow_mut().insert(group, Rc::clone(&extents));
        self.kept_groups.set(self.kept_groups.get() + 1);
        if self.kept_groups.get() >= KEPT_GROUPS {
            self.release_groups();
        }
        Ok(extents)
    }

    /// Takes extents out of memory that nobody uses.
    fn release_groups(&self) {
        let mut left = 0;
        self.inodes.each(|inode| {
            let mut kept = inode.extents.borrow_mut();
            // Records that are being committed are still visible to the store's readers, so they may go too.
            kept.retain(|_, extents| {
                Rc::strong_count(extents) > 1 || self.transactions.has_extents(extents.key())
            });
            left += kept.len();
        });
        // However much cannot go, the next look at all of them is a good while off.
        self.kept_groups.set(left.min(KEPT_GROUPS / 2));
    }

    /// The extent of one stripe, with its group.
    pub(crate) async fn extent(
        &self,
        inode: &Rc<Inode>,
        stripe: u64,
    ) -> Result<(Rc<ExtentGroup>, Extent), Errno> {
        let extents = self.extents(inode, stripe / PER_GROUP).await?;
        let extent = extents.get(stripe);
        Ok((extents, extent))
    }

    /// Records the extent of a stripe in the open transaction. Blocks are not taken or freed here.
    pub(crate) fn set_extent(
        &self,
        inode: &Rc<Inode>,
        extents: &Rc<ExtentGroup>,
        stripe: u64,
        extent: Extent,
    ) {
        let old = extents.get(stripe);
        extents.set(stripe, extent);
        self.transactions.touch_group(extents);
        self.tell_watches(|watch| watch.extent(inode.ino(), stripe, old, extent));
        let (before, after) = (u64::from(old.blocks), u64::from(extent.blocks));
        if before != after {
            self.edit(inode, true, |record| {
                record.blocks = record.blocks.saturating_add(after).saturating_sub(before);
            });
        } else {
            inode.note_change(self.transactions.number(), true);
        }
    }

    /// Brings the free space of an extent into memory, so that it can be freed in one step.
    pub(crate) async fn prepare_free(&self, extent: Extent) -> Result<(), Errno> {
        if extent.is_hole() {
            return Ok(());
        }
        let Some(brick) = self.brick(extent.brick) else { return Ok(()) };
        let loaded =
            brick.space.load_for(&self.transactions, extent.start, extent.blocks.into()).await;
        loaded.map_err(|error| self.space_failed(&error))
    }

    /// Frees the blocks of an extent, which [`prepare_free`](Volume::prepare_free) has seen.
    pub(crate) fn free_blocks(&self, extent: Extent) {
        // A brick that was let go takes its blocks along.
        if let Some(brick) = self.brick(extent.brick).filter(|_| !extent.is_hole()) {
            self.jobs.gathered.set(false);
            brick.space.free(extent.start, extent.blocks.into());
        }
    }

    /// Blocks for an extent whose first `needed` blocks are wanted now.
    pub(crate) fn blocks_for(&self, inode: &Inode, stripe: u64, needed: u64, end: u64) -> u64 {
        let whole = self.geometry.blocks();
        let is_last = end.max(inode.size()) <= (stripe + 1) * self.geometry.stripe;
        if is_last && stripe < WHOLE_FROM { needed.min(whole) } else { whole }
    }

    /// The bricks that a stripe may go to, the best first.
    fn candidates(&self, inode: &Inode, stripe: u64) -> Vec<Rc<Brick>> {
        let bricks = self.bricks.borrow();
        let mut list: Vec<Rc<Brick>> = Vec::with_capacity(3);
        let mut add = |id: Option<u16>| {
            if let Some(brick) = id.and_then(|id| bricks.get(&id))
                && brick.takes_data()
                && !list.iter().any(|known| known.id == brick.id)
            {
                list.push(Rc::clone(brick));
            }
        };
        add(inode.with(|record| record.wanted_brick()));
        add(self.record.borrow().proxy);
        let buckets = self.buckets.borrow();
        add(Some(buckets.brick_of(inode.ino(), stripe)));
        list
    }

    /// Sets a run of `blocks` blocks aside for a stripe: where the file is to be, else on the proxy, else where
    /// placement says, else where there is room.
    ///
    /// # Errors
    /// [`Errno::NoSpace`] when there is none on any brick, also not after the commits to come.
    pub(crate) async fn reserve(
        &self,
        inode: &Rc<Inode>,
        stripe: u64,
        blocks: u64,
    ) -> Result<(Rc<Brick>, u64), Errno> {
        for _ in 0..SPACE_WAITS {
            if planted("full-too-early") && self.is_an_eighth_full() {
                return Err(Errno::NoSpace);
            }
            for brick in self.candidates(inode, stripe) {
                if let Some(start) = self.reserve_on(&brick, blocks).await? {
                    return Ok((brick, start));
                }
            }
            let mut full: Vec<u16> = Vec::new();
            loop {
                let next = {
                    let bricks = self.bricks.borrow();
                    self.buckets.borrow().next_other(inode.ino(), stripe, |id| {
                        !full.contains(&id)
                            && bricks.get(&id).is_some_and(|brick| {
                                brick.is_placed()
                                    && brick.is_there()
                                    && brick.space.free_now() >= blocks
                            })
                    })
                };
                let Some(brick) = next.and_then(|id| self.brick(id)) else { break };
                if let Some(start) = self.reserve_on(&brick, blocks).await? {
                    self.note_unbalanced();
                    return Ok((brick, start));
                }
                full.push(brick.id);
            }
            let settling = self.bricks.borrow().values().any(|brick| brick.space.settling() > 0);
            if !settling && !self.orphans.is_busy() && !self.gather_room(blocks).await {
                return Err(Errno::NoSpace);
            }
            let number = self.transactions.number();
            let durable = self.transactions.wait_durable(number).await;
            durable.map_err(|error| self.store_failed(&error))?;
        }
        Err(Errno::NoSpace)
    }

    /// The planted bug takes this for a full volume.
    fn is_an_eighth_full(&self) -> bool {
        let bricks = self.bricks.borrow();
        let sum =
            |part: &dyn Fn(&Brick) -> u64| bricks.values().map(|brick| part(brick)).sum::<u64>();
        sum(&|brick| brick.space.free_now()) < sum(&|brick| brick.space.blocks()) / 8 * 7
    }

    /// The same for `wanted` blocks, or only `needed` ones where there are not so many together.
    pub(super) async fn reserve_about(
        &self,
        inode: &Rc<Inode>,
        stripe: u64,
        wanted: u64,
        needed: u64,
    ) -> Result<(Rc<Brick>, u64, u64), Errno> {
        match self.reserve(inode, stripe, wanted).await {
            Err(Errno::NoSpace) if wanted > needed => {
                let (brick, start) = self.reserve(inode, stripe, needed).await?;
                Ok((brick, start, needed))
            }
            other => other.map(|(brick, start)| (brick, start, wanted)),
        }
    }

    /// Sets a run aside on one brick.
    pub(crate) async fn reserve_on(
        &self,
        brick: &Brick,
        blocks: u64,
    ) -> Result<Option<u64>, Errno> {
        let whole = blocks == self.geometry.blocks();
        let reserved = brick.space.reserve(&self.transactions, blocks, whole).await;
        reserved.map_err(|error| self.space_failed(&error))
    }

    /// Makes sure that the stripe has an extent of at least `needed` blocks. The caller holds the part of the stripe that it
    /// is about, or all of it: `whole`. False: it has an extent that is too short, which takes all of it; who writes another
    /// part may have given it one meanwhile. `end`: where the file will end, at least.
    pub(crate) async fn ensure_extent(
        &self,
        inode: &Rc<Inode>,
        stripe: u64,
        needed: u64,
        end: u64,
        whole: bool,
    ) -> Result<bool, Errno> {
        loop {
            let (extents, extent) = self.extent(inode, stripe).await?;
            if !extent.is_hole() {
                let is_short = u64::from(extent.blocks) < needed;
                if is_short && whole {
                    self.grow(inode, &extents, stripe, needed, end).await?;
                }
                return Ok(whole || !is_short);
            }
            let blocks = self.blocks_for(inode, stripe, needed, end);
            let (brick, start, blocks) = self.reserve_about(inode, stripe, blocks, needed).await?;
            if !extents.get(stripe).is_hole() {
                brick.space.release(start, blocks);
                continue;
            }
            // Others have come here meanwhile, too.
            if let Err(full) = self.has_room_for(0) {
                brick.space.release(start, blocks);
                return Err(full);
            }
            self.give_extent(inode, &extents, stripe, (&brick, start, blocks), 0);
            return Ok(true);
        }
    }

    /// Gives a stripe an extent of blocks that were set aside, in which sub-blocks `written` hold something. What it had is
    /// freed, which [`prepare_free`](Volume::prepare_free) has seen; then the caller holds all of the stripe.
    pub(crate) fn give_extent(
        &self,
        inode: &Rc<Inode>,
        extents: &Rc<ExtentGroup>,
        stripe: u64,
        run: (&Brick, u64, u64),
        written: u32,
    ) {
        let old = extents.get(stripe);
        let (brick, start, blocks) = run;
        brick.space.confirm(start, blocks);
        self.set_extent(inode, extents, stripe, extent_of(run, written));
        self.free_blocks(old);
    }

    /// Makes an extent longer: where it is, or elsewhere with what it holds.
    async fn grow(
        &self,
        inode: &Rc<Inode>,
        extents: &Rc<ExtentGroup>,
        stripe: u64,
        needed: u64,
        end: u64,
    ) -> Result<(), Errno> {
        let extent = extents.get(stripe);
        let (old, whole) = (u64::from(extent.blocks), self.geometry.blocks());
        let wanted = match self.blocks_for(inode, stripe, needed, end) {
            blocks if blocks == whole => whole,
            blocks => blocks.next_power_of_two().min(whole),
        };
        if let Some(brick) = self.brick(extent.brick).filter(|brick| brick.is_there()) {
            let loaded = brick
                .space
                .load_for(
                    &self.transactions,
                    extent.start,
                    wanted.min(brick.space.blocks() - extent.start),
                )
                .await;
            loaded.map_err(|error| self.space_failed(&error))?;
            for blocks in [wanted, needed] {
                let end = extent.start + old;
                if brick.space.extend(end, blocks - old) {
                    brick.space.confirm(end, blocks - old);
                    let grown = Extent { blocks: blocks as u16, ..extent };
                    self.set_extent(inode, extents, stripe, grown);
                    return Ok(());
                }
            }
        }
        let (brick, start, blocks) = loop {
            let (brick, start, blocks) = self.reserve_about(inode, stripe, wanted, needed).await?;
            let copied = self.copy_to_stay(extent, &brick, start).await;
            let Err(error) = copied else { break (brick, start, blocks) };
            brick.space.release(start, blocks);
            // A brick that is found to be gone is left out next time.
            let source = self.brick(extent.brick);
            if brick.is_there() || source.is_none_or(|source| !source.is_there()) {
                return Err(error);
            }
        };
        let run = (&*brick, start, blocks);
        self.give_extent(inode, extents, stripe, run, extent.written);
        Ok(())
    }

    /// Copies what is written of an extent to blocks that were set aside on `to`, so that they can be the extent in the next
    /// step, and what there was be freed.
    pub(crate) async fn copy_to_stay(
        &self,
        extent: Extent,
        to: &Brick,
        start: u64,
    ) -> Result<(), Errno> {
        self.copy_extent(extent, to, start).await?;
        self.prepare_free(extent).await?;
        // One that failed a flush meanwhile has taken the copy, perhaps, and nobody will make it durable.
        if to.is_there() { Ok(()) } else { Err(Errno::Io) }
    }

    /// Copies what is written of an extent to blocks that were set aside on `to`.
    async fn copy_extent(&self, extent: Extent, to: &Brick, start: u64) -> Result<(), Errno> {
        // Space that was set aside and not written may be on a brick that is gone: nothing of it is lost.
        if extent.written == 0 {
            return Ok(());
        }
        let from = self.brick(extent.brick).ok_or(Errno::Io)?;
        let source = from.device().ok_or(Errno::Io)?;
        let target = to.device().ok_or(Errno::Io)?;
        let end = u64::from(extent.blocks) * BLOCK;
        let mut reads = self.io.start();
        let mut extents = Vec::new();
        for (run, is_written) in self.geometry.runs(extent, 0, end) {
            if is_written {
                let buf = self.shard.pool().get((run.end - run.start) as usize);
                let request = Request::read(from.byte_of(extent.start) + run.start, buf);
                from.note(&request);
                reads.submit(extents.len() as u32, &*source, request);
                extents.push(run.start);
            }
        }
        let mut writes = self.io.start();
        for (tag, outcome) in reads.finish().await {
            if let Err(errno) = self.has_read(&from, outcome.result) {
                // The writes that are under way end by themselves; nobody names what they write.
                let _ = writes.finish().await;
                return Err(errno);
            }
            if let Op::Read(bufs) = outcome.op {
                let bufs = bufs.into_iter().map(|buf| buf.freeze()).collect();
                let offset = to.byte_of(start) + extents[tag as usize];
                let request = Request { offset, op: Op::Write { bufs, fua: false } };
                to.note(&request);
                writes.submit(tag, &*target, request);
            }
        }
        for (_, outcome) in writes.finish().await {
            if let Err(error) = outcome.result {
                self.brick_failed(to, error);
                return Err(Errno::Io);
            }
            to.wrote();
        }
        Ok(())
    }
}

/// Blocks that were set aside for a stripe as its extent, in which sub-blocks `written` hold something.
pub(super) fn extent_of((brick, start, blocks): (&Brick, u64, u64), written: u32) -> Extent {
    // At most the blocks of a stripe, which fit.
    Extent { start, written, blocks: blocks as u16, brick: brick.id }
}
