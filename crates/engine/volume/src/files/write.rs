//! Writing: the extents are resolved, the bytes submitted, the outcome published.
//!
//! A write holds its range, in whole sub-blocks, so that nobody else changes what it completes at the edges. Where a
//! stripe has no extent yet it gets one first, with nothing written; the bits of the sub-blocks are set when the bytes
//! are on the brick. So whatever transaction is committed when, no extent shows what was there before. A stripe whose brick
//! is lost keeps its extent until all that was there is written elsewhere: after a crash it is lost, or written anew.

use super::part::{Files, SIZE_MAX};
use super::payload::Payload;
use super::resolve::{Resolved, Target};
use super::verify::sums_of;
use crate::extents::{Brick, ExtentMap};
use crate::namespace::{Inode, clear_setid_bits};
use crate::stripes::down;
use crate::sums::Prepared;
use braid_device::{Op, Request};
use braid_filesystem::{Errno, Writing};
use braid_format::volume::BLOCK;
use braid_format::volume::extent::Extent;
use braid_format::volume::sums::UNKNOWN;
use braid_shard::Buf;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// The way of the part of a write that lies in one stripe.
enum Sent {
    /// Nothing was sent: a concurrent writer of the stripe has left it without an extent, or with a shorter one.
    Nowhere,
    /// Nothing was sent: the brick does not exist.
    Lost,
    /// It was sent to a brick.
    To {
        brick: Rc<Brick>,
        sub_blocks: u32,
        /// The brick did not take it.
        failed: bool,
    },
}

/// The parts of a write that are on the bricks: target, brick and sub-blocks.
type Landed<'a> = SmallVec<[(&'a Target, Rc<Brick>, u32); 1]>;

/// The outcome of the part of a write that lies in one stripe.
enum Outcome {
    /// It is there, at the stripe's extent or the one that is to be it.
    Landed,
    /// The brick is gone, and nothing of the stripe was there: the stripe has no extent any more, or another.
    Again,
    /// The brick failed, and what the stripe has is there.
    Lost,
}

/// The stripe still has its extent there.
fn is_at(brick: &Brick, extent: Extent) -> bool {
    !extent.is_hole() && extent.brick == brick.id
}

/// True if all of a range has extents already.
async fn has_extents(map: &ExtentMap, inode: &Inode, range: Range<u64>) -> Result<bool, Errno> {
    let geometry = map.geometry();
    for piece in geometry.pieces(range) {
        let (_, extent) = map.get(&inode.extents, piece.stripe).await?;
        if u64::from(extent.blocks) < geometry.blocks_to(piece.to) {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Files {
    /// See [`braid_filesystem::FileSystem::write`].
    pub async fn write_file(
        &self,
        inode: &Rc<Inode>,
        offset: u64,
        data: Buf,
        how: Writing,
    ) -> Result<(), Errno> {
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|end| *end <= SIZE_MAX)
            .ok_or(Errno::TooBig)?;
        let is_full = self.transactions.has_room_for(0).is_err();
        if is_full && has_extents(&self.extents, inode, offset..end).await? {
            // Bytes over others change records and add none, which goes on when the metadata store is full.
            self.transactions.room().await;
            self.transactions.writable()?;
        } else {
            self.transactions.may_grow().await?;
        }
        if data.is_empty() {
            return Ok(());
        }
        // A brick that fails under a write of stripes that were nowhere else yet is left out next time. Of two writes of
        // such a stripe one may have to try again for the other's sake, too.
        let mut failures_left = 2 * self.bricks.count() + 1;
        let mut wanted = self.range_of(&(offset..end));
        loop {
            self.settle_end(inode, offset).await?;
            let Some(resolved) = self.resolve(inode, &(offset..end), &mut wanted).await? else {
                continue;
            };
            // The file may have been cut until the range was held.
            if !self.may_reach(inode, offset, end) {
                continue;
            }
            if self.write_resolved(inode, offset, &data, how, resolved).await? {
                return Ok(());
            }
            failures_left = failures_left.checked_sub(1).ok_or(Errno::Io)?;
        }
    }

    /// Writes `data` where it was `resolved` to go. False: a brick failed, and stripes that were to be on it have no extent
    /// again, or another one.
    async fn write_resolved(
        &self,
        inode: &Rc<Inode>,
        offset: u64,
        data: &Buf,
        how: Writing,
        resolved: Resolved,
    ) -> Result<bool, Errno> {
        let end = offset + data.len() as u64;
        let targets = &resolved.targets;
        let (Some(first), Some(last)) = (targets.first(), targets.last()) else { return Ok(true) };
        let completed = self.complete(inode, offset, data, (first, last)).await?;
        let Some(payload) = completed else { return Ok(false) };
        let blocks = payload.start / BLOCK..payload.end() / BLOCK;
        let prepared = self.sums.prepare(sums_of(inode), blocks).await?;
        let (sent, sums) = self.submit(targets, &payload, how.behind).await;
        let (mut lost, mut again) = (false, false);
        let mut landed = Landed::new();
        for (target, sent) in targets.iter().zip(sent) {
            match sent {
                Sent::Nowhere => again = true,
                Sent::Lost => lost = true,
                Sent::To { brick, sub_blocks, failed } => {
                    match self.outcome(inode, target, &brick, failed).await? {
                        Outcome::Landed => landed.push((target, brick, sub_blocks)),
                        Outcome::Again => again = true,
                        Outcome::Lost => lost = true,
                    }
                }
            }
        }
        // Bricks may have failed while that was found out.
        again |= landed.iter().any(|(target, brick, _)| match &target.reservation {
            Some(reservation) => !reservation.brick().is_there(),
            None => !is_at(brick, target.extent()),
        });
        if lost || again {
            self.note_part(inode, &landed);
            self.note_sums_in_part(&prepared, &payload, &landed, &sums);
            return if lost { Err(Errno::Io) } else { Ok(false) };
        }
        for (target, _, sub_blocks) in landed {
            self.publish(inode, target, sub_blocks);
        }
        self.sums.set(&prepared, payload.start / BLOCK, sums);
        self.note_write(inode, end, how.clear_setid);
        if self.bricks.flush_failures() != resolved.flush_failures {
            self.inodes.note_loss(inode);
        }
        Ok(true)
    }

    /// Sends the payload to the bricks, to all at the same time, and waits for them; `behind`: not for what they keep in
    /// memory. Gives the checksums, too.
    async fn submit(
        &self,
        targets: &[Target],
        payload: &Payload,
        behind: bool,
    ) -> (SmallVec<[Sent; 1]>, Vec<u32>) {
        let mut writes = self.bricks.start();
        let mut all: SmallVec<[Sent; 1]> = SmallVec::new();
        let pieces = self.geometry.pieces(payload.start..payload.end());
        for ((tag, target), piece) in (0u32..).zip(targets).zip(pieces) {
            let extent = target.extent();
            if u64::from(extent.blocks) < self.geometry.blocks_to(piece.to) {
                all.push(Sent::Nowhere);
                continue;
            }
            let Some(brick) = self.bricks.get(extent.brick) else {
                all.push(Sent::Lost);
                continue;
            };
            let at = piece.stripe * self.geometry.stripe;
            let offset = brick.byte_of(extent.start) + piece.from;
            let bufs = payload.slice(at + piece.from..at + piece.to);
            let request = Request { offset, op: Op::Write { bufs, fua: false } };
            let sub_blocks = self.geometry.touched(piece.from, piece.to);
            let device = brick.device();
            let mut failed = device.is_none();
            if let Some(device) = &device {
                brick.note(&request);
                match behind && brick.keep(&request) {
                    true => failed = self.bricks.has_written(&brick, Ok(())).is_err(),
                    false => writes.submit(tag, &**device, request),
                }
            }
            all.push(Sent::To { brick, sub_blocks, failed });
        }
        // Meanwhile the bricks are at work.
        let sums = if self.sums.is_on() { payload.sums() } else { Vec::new() };
        for (tag, outcome) in writes.finish().await {
            if let Some(Sent::To { brick, failed, .. }) = all.get_mut(tag as usize) {
                *failed |= self.bricks.has_written(brick, outcome.result).is_err();
            }
        }
        (all, sums)
    }

    /// Finds out what became of a write to one stripe. The caller holds the sub-blocks, so the extent is where it was as long
    /// as its brick is there.
    async fn outcome(
        &self,
        inode: &Rc<Inode>,
        target: &Target,
        brick: &Brick,
        failed: bool,
    ) -> Result<Outcome, Errno> {
        let extent = target.group.get(target.stripe);
        if target.reservation.is_some() {
            // The lost extent stays recorded until all of the write is there.
            self.extents.prepare_free(extent).await?;
            return Ok(if failed { Outcome::Again } else { Outcome::Landed });
        }
        // A concurrent writer of this stripe has seen the brick fail first, and may be writing elsewhere now.
        if !is_at(brick, extent) {
            return Ok(Outcome::Again);
        }
        if !failed && brick.is_there() {
            return Ok(Outcome::Landed);
        }
        if extent.written != 0 || brick.is_there() {
            return Ok(Outcome::Lost);
        }
        self.extents.prepare_free(extent).await?;
        if target.group.get(target.stripe) == extent {
            let replaced = self.extents.clear(&target.group, target.stripe);
            self.inodes.extent_replaced(inode, replaced);
        }
        Ok(Outcome::Again)
    }

    /// Records what is there of a write that failed elsewhere: as far as the file goes. What is beyond its end must not
    /// show when it grows.
    fn note_part(&self, inode: &Rc<Inode>, landed: &Landed<'_>) {
        inode.set_ragged(true);
        for (target, brick, sub_blocks) in landed {
            if is_at(brick, target.group.get(target.stripe)) {
                let left = inode.size().saturating_sub(target.stripe * self.geometry.stripe);
                let inside = self.geometry.touched(0, left.min(self.geometry.stripe));
                self.add_written(inode, target, sub_blocks & inside);
            }
        }
    }

    /// Checksums of a write that failed elsewhere: of what was not seen to land it is not known what the brick has.
    fn note_sums_in_part(
        &self,
        prepared: &Prepared,
        payload: &Payload,
        landed: &Landed<'_>,
        sums: &[u32],
    ) {
        let has_landed = |stripe| landed.iter().any(|(target, ..)| target.stripe == stripe);
        let first = payload.start / BLOCK;
        let known = (first..).zip(sums).map(|(block, sum)| {
            let stripe = block * BLOCK / self.geometry.stripe;
            if has_landed(stripe) { *sum } else { UNKNOWN }
        });
        self.sums.set(prepared, first, known);
    }

    /// Records that sub-blocks of a stripe are written.
    fn publish(&self, inode: &Rc<Inode>, target: &Target, sub_blocks: u32) {
        match &target.reservation {
            Some(reserved) => {
                let (group, stripe) = (&target.group, target.stripe);
                let replaced = self.extents.publish(group, stripe, reserved, sub_blocks);
                self.inodes.extent_replaced(inode, replaced);
            }
            None => self.add_written(inode, target, sub_blocks),
        }
    }

    fn add_written(&self, inode: &Rc<Inode>, target: &Target, sub_blocks: u32) {
        let extent = target.group.get(target.stripe);
        let written = extent.written | sub_blocks;
        if written != extent.written {
            let replaced = self.extents.set_written(&target.group, target.stripe, written);
            self.inodes.extent_replaced(inode, replaced);
        }
    }

    /// Size and times after a write that ended at `end`; the range is still held, so that a cut comes before or after
    /// all of it.
    fn note_write(&self, inode: &Rc<Inode>, end: u64, clear_setid: bool) {
        let now = self.inodes.now();
        let grows = end > inode.size();
        // The last block was completed with zeroes, which says nothing of those after it in a sub-block that was there.
        let sub_block = self.geometry.sub_block;
        if grows && (sub_block == BLOCK || down(end, sub_block) != down(inode.size(), sub_block)) {
            inode.set_ragged(false);
        }
        self.inodes.edit(inode, grows, |record| {
            record.size = record.size.max(end);
            record.mtime = now;
            record.ctime = now;
            if clear_setid {
                clear_setid_bits(&mut record.perm);
            }
        });
    }
}
