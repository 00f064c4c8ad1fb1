//! After a crash, or when a brick is back that had lost something: regions that are not known to be right are made so.
//!
//! In a region that was being written over, checksums may be of before and copies may differ. Of each block the bytes are taken that
//! agree with the checksum, else those of the first copy; all copies get them, and the block its checksum again. A
//! copy on a brick that has lost something gets what the others have; one that only a snapshot has, too.

use super::part::Files;
use super::verify::{Source, agrees, sums_of};
use crate::extents::{Brick, Stripe};
use crate::namespace::Inode;
use crate::sums::{Stale, Unsettled, Windows};
use braid_device::Request;
use braid_filesystem::{Errno, Kind};
use braid_format::volume::BLOCK;
use braid_format::volume::extent::PER_GROUP;
use braid_format::volume::sums::{PER_REGION, PER_WINDOW, UNKNOWN, sum_of};
use braid_shard::BufMut;
use braid_shard::plant::planted;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// A copy of a run of blocks: where it lies, and what was read of it.
struct Read {
    source: Source,
    bytes: BufMut,
    /// Its brick has lost something of the region.
    is_stale: bool,
}

impl Files {
    /// Starts to put right what is in doubt.
    pub fn start_settling(self: &Rc<Self>) {
        let own = Rc::clone(self);
        self.settling.begin();
        self.shard.spawn(async move {
            own.settle().await;
            own.settling.end();
        });
    }

    /// Waits until what is in doubt was put right, as far as it can be.
    pub async fn wait_settled(&self) {
        self.settling.wait().await;
    }

    async fn settle(&self) {
        for unsettled in self.sums.unsettled() {
            let (ino, _) = unsettled.region;
            match self.settle_region(&unsettled).await {
                Ok(true) => {}
                // The next mount goes on.
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(
                        ino,
                        "what was written of a file when the volume was stopped, or a brick was lost, cannot be put right: {error}; the next mount tries again"
                    );
                }
            }
        }
    }

    /// Puts a region right. False: the volume is being unmounted.
    async fn settle_region(&self, unsettled: &Unsettled) -> Result<bool, Errno> {
        let (ino, _) = unsettled.region;
        // Copies on bricks that are away are made equal when they are back.
        let is_known = |id: &u16| self.bricks.get(*id).is_some();
        let (known, gone): (Stale, Stale) = unsettled.stale.iter().copied().partition(is_known);
        self.sums.filled(unsettled.region, &gone);
        let known = known.iter().filter_map(|id| self.bricks.get(*id));
        let back: Vec<Rc<Brick>> = known.filter(|brick| brick.is_there()).collect();
        if !unsettled.doubtful && back.is_empty() {
            return Ok(true);
        }
        if !self.transactions.is_kept(ino).await? {
            return Ok(self.has_settled(unsettled, &unsettled.stale));
        }
        let now = self.if_there(ino).await?;
        if let Some(inode) = now.as_ref().filter(|inode| inode.kind() == Kind::File)
            && !self.settle_file(inode, unsettled).await?
        {
            return Ok(false);
        }
        if !back.is_empty() && !self.settle_seen(now.as_ref(), unsettled, &back).await? {
            return Ok(false);
        }
        // One that has failed meanwhile may have lost what it was given, also where it is there again.
        let filled: Vec<u16> =
            back.iter().filter(|brick| brick.is_there()).map(|brick| brick.id).collect();
        Ok(self.has_settled(unsettled, &filled))
    }

    /// The same of the file as it is now.
    async fn settle_file(&self, inode: &Rc<Inode>, unsettled: &Unsettled) -> Result<bool, Errno> {
        let (ino, region) = unsettled.region;
        let bytes = PER_WINDOW * BLOCK;
        // Of those behind the end the crash may have left checksums, too.
        let mut windows = self.sums.recorded(ino, region).await?;
        if inode.with(|record| record.held) > 1 {
            // Blocks of which no checksum is known have copies, too.
            let first = region.saturating_mul(PER_REGION);
            let end = inode.size().div_ceil(bytes).min(first.saturating_add(PER_REGION));
            windows.retain(|window| *window >= end);
            windows.extend(first..end);
        }
        for window in windows {
            // One beyond the largest file is damage, and of nothing.
            let Some(end) = (window + 1).checked_mul(bytes) else { continue };
            if !self.settle_range(inode, unsettled, end - bytes..end).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The same of what snapshots have of it on bricks that had lost something and are back.
    async fn settle_seen(
        &self,
        now: Option<&Rc<Inode>>,
        unsettled: &Unsettled,
        back: &[Rc<Brick>],
    ) -> Result<bool, Errno> {
        let (ino, region) = unsettled.region;
        // Nobody writes to that: its checksums are as they were.
        let stale =
            Unsettled { region: unsettled.region, doubtful: false, stale: unsettled.stale.clone() };
        let bytes = PER_REGION * PER_WINDOW * BLOCK;
        let (Some(from), Some(to)) = (region.checked_mul(bytes), (region + 1).checked_mul(bytes))
        else {
            return Ok(true);
        };
        let (first, end) = (from / self.geometry.stripe, to.div_ceil(self.geometry.stripe));
        for group in first / PER_GROUP..end.div_ceil(PER_GROUP) {
            if !self.snapshots.any() {
                return Ok(true);
            }
            let views = self.views(ino, now, group).await?;
            let numbers = (group * PER_GROUP).max(first)..((group + 1) * PER_GROUP).min(end);
            for inode in views.iter().filter_map(|(_, inode)| inode.as_ref()) {
                let last = inode.size().div_ceil(self.geometry.stripe);
                for number in numbers.start..numbers.end.min(last) {
                    if !self.is_seen_on(back, inode, now, number).await? {
                        continue;
                    }
                    let start = number * self.geometry.stripe;
                    let range = start..start + self.geometry.stripe;
                    match self.settle_range(inode, &stale, range).await {
                        Ok(true) => {}
                        Ok(false) => return Ok(false),
                        // The snapshot was removed meanwhile.
                        Err(Errno::Stale) => break,
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(true)
    }

    /// A stripe has an extent on one of these bricks, as a snapshot sees it, that the file has not, `now`.
    async fn is_seen_on(
        &self,
        back: &[Rc<Brick>],
        inode: &Rc<Inode>,
        now: Option<&Rc<Inode>>,
        number: u64,
    ) -> Result<bool, Errno> {
        let seen = self.stripe(inode, number).await?;
        let mut places: SmallVec<[_; 4]> = seen.extents().map(|(_, one)| one.place()).collect();
        if let Some(now) = now {
            let now = self.stripe(now, number).await?;
            places.retain(|place| now.extents().all(|(_, one)| one.place() != *place));
        }
        Ok(places.iter().any(|(id, _)| back.iter().any(|brick| brick.id == *id)))
    }

    /// Puts a range of a file right. False: the volume is being unmounted.
    async fn settle_range(
        &self,
        inode: &Rc<Inode>,
        unsettled: &Unsettled,
        range: Range<u64>,
    ) -> Result<bool, Errno> {
        if self.sums.is_closing() || self.transactions.is_ended() {
            return Ok(false);
        }
        self.shard.next_turn().await;
        self.shard.sleep(self.pace.rest(self.shard.now(), || self.bricks.has_heads())).await;
        let _gate = self.gate.enter().await;
        self.transactions.room().await;
        self.settle_window(inode, unsettled, range).await?;
        Ok(true)
    }

    fn has_settled(&self, unsettled: &Unsettled, filled: &[u16]) -> bool {
        self.sums.settled(unsettled.region);
        self.sums.filled(unsettled.region, filled);
        true
    }

    async fn settle_window(
        &self,
        inode: &Rc<Inode>,
        unsettled: &Unsettled,
        range: Range<u64>,
    ) -> Result<(), Errno> {
        // Nobody writes to it meanwhile.
        let _held = inode.locks.exclusive(range.clone()).await;
        let _inside = self.go_inside(inode.ino()).await?;
        let first = range.start / BLOCK;
        let blocks = first..range.end / BLOCK;
        let windows = self.sums.load(sums_of(inode), blocks.clone()).await?;
        // Blocks that were cut off or punched just before the crash have none.
        let mut sums = vec![UNKNOWN; (blocks.end - first) as usize];
        for piece in self.geometry.pieces(range) {
            let stripe = self.stripe(inode, piece.stripe).await?;
            let _marked = self.mark(inode, &stripe);
            for (run, is_written) in self.geometry.runs(stripe.together(), piece.from, piece.to) {
                if !is_written {
                    continue;
                }
                let (at, chosen) = match stripe.rows() {
                    1 => self.read_only_copy(&stripe, &run).await?,
                    _ => self.make_equal(inode, unsettled, &stripe, &run, &windows).await?,
                };
                for (block, bytes) in (at..).zip(chosen.chunks_exact(BLOCK as usize)) {
                    if windows.get(block) != UNKNOWN {
                        sums[(block - first) as usize] = sum_of(bytes);
                    }
                }
            }
        }
        if unsettled.doubtful {
            self.sums.put(&windows, first, sums);
        }
        Ok(())
    }

    /// A run of a stripe without copies; with the block that it begins with.
    async fn read_only_copy(
        &self,
        stripe: &Stripe,
        run: &Range<u64>,
    ) -> Result<(u64, BufMut), Errno> {
        let source = self.source(stripe, stripe.get(0), run)?;
        Ok((source.blocks.start, self.read_raw(&source).await?))
    }

    /// Makes all copies of a run of a stripe equal, as far as their bricks are there, and gives what they have then, with the
    /// block that it begins with.
    async fn make_equal(
        &self,
        inode: &Inode,
        unsettled: &Unsettled,
        stripe: &Stripe,
        run: &Range<u64>,
        windows: &Windows,
    ) -> Result<(u64, BufMut), Errno> {
        let per = self.geometry.sub_block;
        let first = (stripe.number() * self.geometry.stripe + run.start) / BLOCK;
        let mut all = self.shard.pool().get((run.end - run.start) as usize);
        let mut at = run.start;
        while at < run.end {
            let end = (at - at % per + per).min(run.end);
            let reads = self.read_copies(inode, unsettled, stripe, &(at..end)).await?;
            let len = BLOCK as usize;
            for place in (0..(end - at) as usize).step_by(len) {
                let here = place..place + len;
                let block = first + (at - run.start) / BLOCK + (place / len) as u64;
                let sum = windows.get(block);
                let of = |is_stale| reads.iter().filter(move |read| read.is_stale == is_stale);
                let right = |read: &&Read| agrees(sum, &read.bytes[here.clone()]);
                let best = of(false).find(right).or_else(|| of(false).next());
                let best = best.or_else(|| of(true).find(right)).or_else(|| of(true).next());
                let Some(best) = best.map(|best| best.bytes[here.clone()].to_vec()) else {
                    return Err(Errno::Io);
                };
                let is_wrong = |read: &&Read| {
                    let may_go = read.is_stale && read.source.brick.gives_what_may_go();
                    may_go || read.bytes[here.clone()] != best[..]
                };
                for read in reads.iter().filter(is_wrong) {
                    if planted("copies-not-made-equal") {
                        continue;
                    }
                    let mut bytes = self.shard.pool().get(len);
                    bytes.copy_from_slice(&best);
                    let offset = read.source.byte_of(block);
                    let request = Request::write(offset, bytes.freeze(), false);
                    self.bricks.write_copy(&read.source.brick, request).await?;
                }
                let to = (at - run.start) as usize + place;
                all[to..to + len].copy_from_slice(&best);
            }
            at = end;
        }
        Ok((first, all))
    }

    /// Reads all copies of a range within a sub-block. One whose brick is away, in a region that is in doubt, has to be made equal
    /// when it is back.
    async fn read_copies(
        &self,
        inode: &Inode,
        unsettled: &Unsettled,
        stripe: &Stripe,
        range: &Range<u64>,
    ) -> Result<Vec<Read>, Errno> {
        let mut reads = Vec::new();
        for (_, extent) in stripe.extents() {
            if !self.geometry.is_written(extent, range.start) {
                continue;
            }
            if !self.bricks.is_there(extent.brick) {
                if unsettled.doubtful {
                    self.sums.note_stale((inode.ino(), unsettled.region.1), extent.brick);
                }
                continue;
            }
            let source = self.source(stripe, extent, range)?;
            let bytes = self.read_raw(&source).await?;
            let is_stale = unsettled.stale.contains(&extent.brick);
            reads.push(Read { source, bytes, is_stale });
        }
        Ok(reads)
    }
}
