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
use crate::extents::{Brick, ExtentMap, Stripe};
use crate::namespace::{Inode, clear_setid_bits};
use crate::stripes::down;
use crate::sums::{Over, Prepared};
use braid_device::{IoError, Op, Request};
use braid_filesystem::{Errno, Writing};
use braid_format::volume::BLOCK;
use braid_format::volume::extent::{COPIES_MAX, Extent};
use braid_format::volume::sums::UNKNOWN;
use braid_shard::Buf;
use braid_shard::plant::planted;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// The way of the part of a write that lies in one stripe, to each of its copies.
#[derive(Default)]
struct Sent {
    ways: SmallVec<[Way; 1]>,
    /// Sub-blocks that have something of it, and those of which it is all.
    touched: u32,
    covered: u32,
    /// A brick does not exist.
    is_lost: bool,
}

/// The way to one copy.
struct Way {
    copy: u8,
    brick: Rc<Brick>,
    /// The brick did not take it.
    failed: bool,
}

/// The parts of a write that are on the bricks.
type Landed<'a> = SmallVec<[(&'a Target, Sent); 1]>;

/// The outcome of the part of a write that lies in one stripe.
enum Outcome {
    /// It is there, at the stripe's extent or the one that is to be it: in one copy at least.
    Landed,
    /// The brick is gone, and nothing of the stripe was there: the stripe has no extent any more, or another.
    Again,
    /// The brick failed, and what the stripe has is there.
    Lost,
}

/// True if all of a range has extents already.
async fn has_extents(map: &ExtentMap, inode: &Inode, range: Range<u64>) -> Result<bool, Errno> {
    let geometry = map.geometry();
    let rows = inode.with(|record| record.held);
    for piece in geometry.pieces(range) {
        let stripe = map.stripe(&inode.extents, piece.stripe, rows).await?;
        let has_own = (0..stripe.rows()).all(|copy| !stripe.is_shared(copy));
        if !has_own || u64::from(stripe.together().blocks) < geometry.blocks_to(piece.to) {
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
        let over = self.over(targets, payload.start..payload.end());
        let prepared = self.sums.prepare(sums_of(inode), blocks, over).await?;
        let (sent, sums) = self.submit(targets, &payload, how.behind).await;
        let (mut lost, mut again) = (false, false);
        let mut landed = Landed::new();
        for (target, mut sent) in targets.iter().zip(sent) {
            match self.outcome(inode, target, &mut sent).await? {
                Outcome::Landed => landed.push((target, sent)),
                Outcome::Again => again = true,
                Outcome::Lost => {
                    lost = true;
                    self.rely_on_one(inode, &target.stripe, sent.touched);
                }
            }
        }
        // Bricks may have failed while that was found out.
        for (target, sent) in &mut landed {
            self.keep_landed(target, sent);
            again |= sent.ways.is_empty();
        }
        if lost || again {
            self.note_part(inode, &landed);
            self.note_sums_in_part(&prepared, &payload, (targets, &landed), &sums);
            return if lost { Err(Errno::Io) } else { Ok(false) };
        }
        for (target, sent) in &landed {
            self.publish(inode, target, sent);
        }
        self.sums.set(&prepared, payload.start / BLOCK, sums);
        self.note_write(inode, end, how);
        if self.bricks.flush_failures() != resolved.flush_failures {
            self.inodes.note_loss(inode);
        }
        Ok(true)
    }

    /// Says which content a write of `range`, whole blocks, is over.
    fn over(&self, targets: &[Target], range: Range<u64>) -> Over {
        if targets.iter().all(|target| target.stripe.rows() == 1) {
            return Over::Sums;
        }
        let mut pieces = targets.iter().zip(self.geometry.pieces(range));
        let is_over = pieces.any(|(target, piece)| {
            target.extent().written & self.geometry.touched(piece.from, piece.to) != 0
        });
        if is_over { Over::Copies } else { Over::Nothing }
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
        for ((nr, target), piece) in (0u32..).zip(targets).zip(pieces) {
            let at = piece.stripe * self.geometry.stripe;
            let mut sent = Sent {
                touched: self.geometry.touched(piece.from, piece.to),
                covered: self.geometry.covered(piece.from, piece.to),
                ..Sent::default()
            };
            for (copy, extent) in target.places() {
                if u64::from(extent.blocks) < self.geometry.blocks_to(piece.to) {
                    continue;
                }
                let Some(brick) = self.bricks.get(extent.brick) else {
                    sent.is_lost = true;
                    continue;
                };
                let offset = brick.byte_of(extent.start) + piece.from;
                let bufs = payload.slice(at + piece.from..at + piece.to);
                let request = Request { offset, op: Op::Write { bufs, fua: false } };
                let device = brick.device().filter(|_| copy == 0 || !planted("copy-not-written"));
                let mut failed = device.is_none() && !(copy > 0 && planted("copy-not-written"));
                if let Some(device) = &device {
                    brick.note(&request);
                    match behind && brick.keep(&request) {
                        true => failed = self.has_written(target, &brick, Ok(())).is_err(),
                        false => {
                            let tag = nr * u32::from(COPIES_MAX) + u32::from(copy);
                            writes.submit(tag, &**device, request);
                        }
                    }
                }
                sent.ways.push(Way { copy, brick, failed });
            }
            all.push(sent);
        }
        // Meanwhile the bricks are at work.
        let sums = if self.sums.is_on() { payload.sums() } else { Vec::new() };
        for (tag, outcome) in writes.finish().await {
            let (nr, copy) = (tag / u32::from(COPIES_MAX), tag % u32::from(COPIES_MAX));
            let (Some(target), Some(sent)) = (targets.get(nr as usize), all.get_mut(nr as usize))
            else {
                continue;
            };
            if let Some(way) = sent.ways.iter_mut().find(|way| u32::from(way.copy) == copy) {
                way.failed |= self.has_written(target, &way.brick, outcome.result).is_err();
            }
        }
        for sent in &all {
            let mut well = sent.ways.iter().filter(|way| !way.failed);
            if let (Some(only), None) = (well.next(), well.next()) {
                self.bricks.note_sole(&only.brick);
            }
        }
        (all, sums)
    }

    /// A part of a write has come back from a brick.
    fn has_written(
        &self,
        target: &Target,
        brick: &Brick,
        result: Result<(), IoError>,
    ) -> Result<(), Errno> {
        match target.stripe.rows() {
            1 => self.bricks.has_written(brick, result),
            _ => self.bricks.has_written_copy(brick, result),
        }
    }

    /// Leaves of the ways those to copies that have it.
    fn keep_landed(&self, target: &Target, sent: &mut Sent) {
        sent.ways.retain(|way| {
            let is_there = target.is_replaced()
                || target.stripe.get(way.copy).brick == way.brick.id
                    && !target.stripe.get(way.copy).is_hole();
            !way.failed && is_there && way.brick.is_there()
        });
        if let [only] = &sent.ways[..]
            && target.stripe.rows() > 1
        {
            self.bricks.note_sole(&only.brick);
        }
    }

    /// Finds out what became of a write to one stripe. The caller holds the sub-blocks, so extents are where they were as long
    /// as their bricks are there.
    async fn outcome(
        &self,
        inode: &Rc<Inode>,
        target: &Target,
        sent: &mut Sent,
    ) -> Result<Outcome, Errno> {
        let stripe = &target.stripe;
        let was_sent = !sent.ways.is_empty();
        let has_moved = |way: &Way| {
            stripe.get(way.copy).is_hole() || stripe.get(way.copy).brick != way.brick.id
        };
        let is_elsewhere = sent.ways.iter().any(has_moved);
        self.keep_landed(target, sent);
        if target.is_replaced() {
            // The extents of before stay recorded until all of the write is there.
            for (_, extent) in stripe.extents() {
                self.extents.prepare_free(extent).await?;
            }
            if sent.ways.is_empty() {
                return Ok(Outcome::Again);
            }
            let next = target.next.extents.iter();
            let landed = next.filter(|next| sent.ways.iter().any(|way| way.copy == next.copy));
            let kept = landed.fold(0, |all, next| all | next.kept);
            let torn = sent.touched & !sent.covered & !kept & stripe.together().written;
            let is_torn = torn != 0 && !target.next.is_lost;
            return Ok(if is_torn { Outcome::Lost } else { Outcome::Landed });
        }
        if !sent.ways.is_empty() {
            // The rest of a sub-block that only lost copies have is lost with them.
            let had = sent.ways.iter().fold(0, |all, way| all | stripe.get(way.copy).written);
            let torn = sent.touched & !sent.covered & !had & stripe.together().written;
            return Ok(if torn == 0 { Outcome::Landed } else { Outcome::Lost });
        }
        if !was_sent {
            // A concurrent writer of the stripe has left it without an extent, or with a shorter one.
            return Ok(if sent.is_lost { Outcome::Lost } else { Outcome::Again });
        }
        // A concurrent writer has seen a brick fail first, and may be writing elsewhere now.
        if is_elsewhere {
            return Ok(Outcome::Again);
        }
        self.clear_unwritten(inode, stripe).await
    }

    /// No copy has taken a write: extents that hold nothing, on bricks that are gone, are given up.
    async fn clear_unwritten(&self, inode: &Rc<Inode>, stripe: &Stripe) -> Result<Outcome, Errno> {
        let extents: SmallVec<[(u8, Extent); 1]> = stripe.extents().collect();
        let is_there = extents.iter().any(|(_, extent)| self.bricks.is_there(extent.brick));
        if stripe.together().written != 0 || is_there {
            return Ok(Outcome::Lost);
        }
        for (copy, extent) in extents {
            self.extents.prepare_free(extent).await?;
            if stripe.get(copy) == extent {
                let (group, number) = stripe.place(copy);
                let replaced = self.extents.clear(group, number);
                self.inodes.extent_replaced(inode, replaced);
            }
        }
        Ok(Outcome::Again)
    }

    /// Records what is there of a write that failed elsewhere: as far as the file goes. What is beyond its end must not
    /// show when it grows.
    fn note_part(&self, inode: &Rc<Inode>, landed: &Landed<'_>) {
        inode.set_ragged(true);
        for (target, sent) in landed.iter().filter(|(target, _)| !target.is_replaced()) {
            let start = target.stripe.number() * self.geometry.stripe;
            let left = inode.size().saturating_sub(start);
            let inside = self.geometry.touched(0, left.min(self.geometry.stripe));
            self.note_written(inode, target, sent, inside);
        }
    }

    /// Checksums of a write that failed elsewhere: of what was not seen to land it is not known what the brick has. Stripes that were
    /// to get other extents keep those that they have, as they are.
    fn note_sums_in_part(
        &self,
        prepared: &Prepared,
        payload: &Payload,
        (targets, landed): (&[Target], &Landed<'_>),
        sums: &[u32],
    ) {
        let (first, of_stripe) = (payload.start / BLOCK, self.geometry.blocks());
        for target in targets.iter().filter(|target| !target.is_replaced()) {
            let number = target.stripe.number();
            let has_landed = landed.iter().any(|(other, _)| other.stripe.number() == number);
            let start = first.max(number * of_stripe);
            let in_stripe = sums.iter().skip((start - first) as usize);
            let count = ((number + 1) * of_stripe).saturating_sub(start) as usize;
            let known = in_stripe.take(count).map(|sum| if has_landed { *sum } else { UNKNOWN });
            self.sums.set(prepared, start, known);
        }
    }

    /// Records that sub-blocks of a stripe are written.
    fn publish(&self, inode: &Rc<Inode>, target: &Target, sent: &Sent) {
        if !target.is_replaced() {
            self.note_written(inode, target, sent, u32::MAX);
            return;
        }
        let (next, before) = (&target.next, target.stripe.together().written);
        let mut has_it = SmallVec::<[u8; 4]>::new();
        for one in &next.extents {
            if sent.ways.iter().any(|way| way.copy == one.copy) {
                has_it.push(one.copy);
                // A sub-block of which the write is a part is there as a whole if the rest was copied, or is nothing.
                let whole = sent.covered | one.kept | if next.is_lost { u32::MAX } else { !before };
                let written = one.kept | (sent.touched & whole);
                let (group, number) = target.stripe.place(one.copy);
                let replaced = self.extents.publish(group, number, &one.reservation, written);
                self.inodes.extent_replaced(inode, replaced);
            }
        }
        for copy in (0..target.stripe.rows()).filter(|copy| !has_it.contains(copy)) {
            if next.is_lost || !target.stripe.get(copy).is_hole() {
                let missed = if next.is_lost { u32::MAX } else { sent.touched };
                self.note_missed(inode, &target.stripe, copy, missed);
            }
        }
    }

    /// Records which copies have the sub-blocks of `inside`, and which have missed them.
    fn note_written(&self, inode: &Rc<Inode>, target: &Target, sent: &Sent, inside: u32) {
        let stripe = &target.stripe;
        for (copy, extent) in stripe.extents() {
            let has_landed = sent.ways.iter().any(|way| way.copy == copy);
            if !has_landed && !sent.ways.is_empty() {
                self.note_missed(inode, stripe, copy, sent.touched);
                continue;
            }
            let whole =
                if stripe.rows() == 1 { u32::MAX } else { self.whole_in(stripe, copy, sent) };
            let written = extent.written | (sent.touched & inside & whole);
            if has_landed && written != extent.written {
                let (group, number) = stripe.place(copy);
                let replaced = self.extents.set_written(group, number, written);
                self.inodes.extent_replaced(inode, replaced);
            }
        }
    }

    /// The sub-blocks that a copy has all of after a write: it had the rest, or there is no rest.
    fn whole_in(&self, stripe: &Stripe, copy: u8, sent: &Sent) -> u32 {
        let others = stripe.extents().filter(|(other, _)| *other != copy);
        let elsewhere = others.fold(0, |all, (_, extent)| all | extent.written);
        sent.covered | stripe.get(copy).written | !elsewhere
    }

    /// A write of these sub-blocks has failed in all copies: it is not known what each has, so one is read from now on.
    pub(super) fn rely_on_one(&self, inode: &Rc<Inode>, stripe: &Stripe, sub_blocks: u32) {
        if stripe.rows() == 1 {
            return;
        }
        let has_it = |extent: &Extent| extent.written & sub_blocks != 0;
        let all = || stripe.extents().filter(|(_, extent)| has_it(extent));
        let one = all().find(|(_, extent)| self.bricks.is_there(extent.brick)).or(all().next());
        let others: SmallVec<[u8; 4]> = all()
            .map(|(copy, _)| copy)
            .filter(|copy| Some(*copy) != one.map(|one| one.0))
            .collect();
        for copy in others {
            self.note_missed(inode, stripe, copy, sub_blocks);
        }
    }

    /// A copy has missed a write of these sub-blocks: what it has of them is not read any more.
    pub(super) fn note_missed(
        &self,
        inode: &Rc<Inode>,
        stripe: &Stripe,
        copy: u8,
        sub_blocks: u32,
    ) {
        self.record.note_incomplete();
        let extent = stripe.get(copy);
        let left = extent.written & !sub_blocks;
        if left != extent.written && !planted("missed-write-not-noted") {
            let (group, number) = stripe.place(copy);
            let replaced = self.extents.set_written(group, number, left);
            self.inodes.extent_replaced(inode, replaced);
        }
    }

    /// Size and times after a write that ended at `end`; the range is still held, so that a cut comes before or after
    /// all of it.
    pub(super) fn note_write(&self, inode: &Rc<Inode>, end: u64, how: Writing) {
        let now = self.inodes.now();
        let grows = end > inode.size();
        // The last block was completed with zeroes, which says nothing of those after it in a sub-block that was there.
        let sub_block = self.geometry.sub_block;
        if grows && (sub_block == BLOCK || down(end, sub_block) != down(inode.size(), sub_block)) {
            inode.set_ragged(false);
        }
        self.inodes.edit(inode, grows, |record| {
            record.size = record.size.max(end);
            if !how.times_told {
                record.mtime = now;
            }
            if !how.times_told || how.clear_setid {
                record.ctime = now;
            }
            if how.clear_setid {
                clear_setid_bits(&mut record.perm);
            }
        });
    }
}
