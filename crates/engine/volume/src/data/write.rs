//! Writing.
//!
//! A write holds its range, in whole sub-blocks, so that nobody else changes what it completes at the edges. Where a
//! stripe has no extent yet it gets one first, with nothing written; the bits of the sub-blocks are set when the bytes
//! are on the brick. So whatever transaction is committed when, no extent shows what was there before. A stripe whose brick
//! is lost keeps its extent until all that was there is written elsewhere: after a crash it is lost, or written anew.

use super::placing::extent_of;
use crate::brick::Brick;
use crate::group::ExtentGroup;
use crate::inode::Inode;
use crate::locks::Held;
use crate::stripes::{down, up};
use crate::volume::Volume;
use braid_device::{Bufs, Op, Request};
use braid_filesystem::{Errno, Ino};
use braid_format::volume::BLOCK;
use braid_format::volume::extent::Extent;
use braid_shard::Buf;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// Bytes that a file can have.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64 - (1 << 32);
/// Memory of a payload is aligned so for devices.
const ALIGN: usize = 4096;

/// The data for the bricks: the payload, completed to whole blocks or sub-blocks.
struct Payload {
    /// Offset in the file, a multiple of a block.
    start: u64,
    main: Buf,
    /// The bytes after `main`, when the end had to be completed.
    tail: Option<Buf>,
}

impl Payload {
    fn end(&self) -> u64 {
        self.start + self.main.len() as u64 + self.tail.as_ref().map_or(0, |tail| tail.len() as u64)
    }

    /// The bytes of a range of the file.
    fn slice(&self, range: Range<u64>) -> Bufs {
        let mut bufs = Bufs::new();
        let middle = self.start + self.main.len() as u64;
        if range.start < middle {
            let to = range.end.min(middle);
            bufs.push(
                self.main.slice((range.start - self.start) as usize..(to - self.start) as usize),
            );
        }
        if let Some(tail) = self.tail.as_ref().filter(|_| range.end > middle) {
            let from = range.start.max(middle);
            bufs.push(tail.slice((from - middle) as usize..(range.end - middle) as usize));
        }
        bufs
    }
}

/// Blocks that were set aside for a stripe whose brick is lost, as its next extent. Without that they are free again.
struct Aside {
    brick: Rc<Brick>,
    start: u64,
    blocks: u64,
    taken: Cell<bool>,
}

impl Aside {
    fn run(&self) -> (&Brick, u64, u64) {
        (&self.brick, self.start, self.blocks)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.taken.get() {
            self.brick.space.release(self.start, self.blocks);
        }
    }
}

/// The locks of a write: its range, and the next extents of the stripes in it whose bricks are lost.
struct Ready {
    _held: Held,
    asides: BTreeMap<u64, Aside>,
}

/// A part of a write that went to a brick.
struct Sent {
    stripe: u64,
    brick: Rc<Brick>,
    sub_blocks: u32,
    /// The brick did not take it.
    failed: bool,
}

impl Sent {
    /// The stripe still has its extent there.
    fn is_at(&self, extent: Extent) -> bool {
        !extent.is_hole() && extent.brick == self.brick.id
    }
}

/// The outcome of a write to the bricks.
enum Landed {
    /// It is there, at the extent that is one of these, or that is to be one of them.
    Here(Rc<ExtentGroup>),
    /// The brick is gone, and nothing of the stripe was there: the stripe has no extent any more, or another.
    Nowhere,
    /// The brick failed, and what the stripe has is there.
    Lost,
}

impl Volume {
    /// See [`braid_filesystem::FileSystem::write`].
    pub(crate) async fn write_file(
        &self,
        ino: Ino,
        offset: u64,
        data: Buf,
        clear_setid: bool,
    ) -> Result<(), Errno> {
        let inode = self.file(ino).await?;
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|end| *end <= SIZE_MAX)
            .ok_or(Errno::TooBig)?;
        if self.has_room_for(0).is_err() && self.has_extents(&inode, offset..end).await? {
            // Bytes over others change records and add none, which goes on when the metadata store is full.
            self.transactions.room().await;
            self.writable()?;
        } else {
            self.may_grow().await?;
        }
        if data.is_empty() {
            return Ok(());
        }
        // A brick that fails under a write of stripes that were nowhere else yet is left out next time. Of two writes of
        // such a stripe one may have to try again for the other's sake, too.
        let mut tries = 2 * self.bricks.borrow().len() + 1;
        loop {
            match self.write_once(&inode, offset, &data, clear_setid).await? {
                true => return Ok(()),
                false if tries == 0 => return Err(Errno::Io),
                false => tries -= 1,
            }
        }
    }

    /// True if all of a range has extents already.
    async fn has_extents(&self, inode: &Rc<Inode>, range: Range<u64>) -> Result<bool, Errno> {
        for piece in self.geometry.pieces(range) {
            let (_, extent) = self.extent(inode, piece.stripe).await?;
            if u64::from(extent.blocks) < self.geometry.blocks_to(piece.to) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes `data`. False: a brick failed, and stripes that were to be on it have no extent again, or another one.
    async fn write_once(
        &self,
        inode: &Rc<Inode>,
        offset: u64,
        data: &Buf,
        clear_setid: bool,
    ) -> Result<bool, Errno> {
        let end = offset + data.len() as u64;
        let failures = self.flush_failures.get();
        let ready = loop {
            self.settle_end(inode, offset).await?;
            let ready = self.lock_for_write(inode, offset..end).await?;
            // The file may have been cut until the range was held.
            if self.may_reach(inode, offset, end) {
                break ready;
            }
        };
        let asides = &ready.asides;
        let completed = self.complete(inode, offset, data, asides).await?;
        let Some(payload) = completed else { return Ok(false) };
        let mut writes = self.io.start();
        let mut sent: Vec<Sent> = Vec::new();
        let (mut lost, mut again) = (false, false);
        for piece in self.geometry.pieces(payload.start..payload.end()) {
            let extent = match self.extent_to_write(inode, piece.stripe, asides).await {
                Ok(found) => found,
                Err(error) => {
                    let _ = writes.finish().await;
                    return Err(error);
                }
            };
            // A concurrent writer of this stripe may have seen the brick fail since, and left no extent or a shorter one.
            if u64::from(extent.blocks) < self.geometry.blocks_to(piece.to) {
                again = true;
                continue;
            }
            let Some(brick) = self.brick(extent.brick) else {
                lost = true;
                continue;
            };
            let at = piece.stripe * self.geometry.stripe;
            let offset = brick.byte_of(extent.start) + piece.from;
            let bufs = payload.slice(at + piece.from..at + piece.to);
            let request = Request { offset, op: Op::Write { bufs, fua: false } };
            let sub_blocks = self.geometry.touched(piece.from, piece.to);
            let device = brick.device();
            if let Some(device) = &device {
                brick.note(&request);
                writes.submit(sent.len() as u32, &**device, request);
            }
            let failed = device.is_none();
            sent.push(Sent { stripe: piece.stripe, brick, sub_blocks, failed });
        }
        for (tag, outcome) in writes.finish().await {
            let sent = &mut sent[tag as usize];
            match outcome.result {
                Ok(()) => sent.brick.wrote(),
                Err(error) => {
                    self.brick_failed(&sent.brick, error);
                    sent.failed = true;
                }
            }
        }
        let mut here = Vec::with_capacity(sent.len());
        for one in sent {
            match self.landed(inode, &one, asides.get(&one.stripe)).await? {
                Landed::Here(extents) => here.push((extents, one)),
                Landed::Nowhere => again = true,
                Landed::Lost => lost = true,
            }
        }
        again |= here.iter().any(|(extents, sent)| match asides.get(&sent.stripe) {
            Some(aside) => !aside.brick.is_there(),
            None => !sent.is_at(extents.get(sent.stripe)),
        });
        if lost || again {
            self.note_part(inode, &here);
            return if lost { Err(Errno::Io) } else { Ok(false) };
        }
        for (extents, sent) in &here {
            match asides.get(&sent.stripe) {
                Some(aside) => {
                    aside.taken.set(true);
                    self.give_extent(inode, extents, sent.stripe, aside.run(), sent.sub_blocks);
                }
                None => self.set_written(inode, extents, sent.stripe, sent.sub_blocks),
            }
        }
        self.note_write(inode, end, clear_setid);
        if self.flush_failures.get() != failures {
            self.note_loss(inode);
        }
        Ok(true)
    }

    /// Finds out what became of a write to one stripe. The caller holds the sub-blocks, which keeps the extent in memory and
    /// where it is, as long as its brick is there.
    async fn landed(
        &self,
        inode: &Rc<Inode>,
        sent: &Sent,
        aside: Option<&Aside>,
    ) -> Result<Landed, Errno> {
        let (extents, extent) = self.extent(inode, sent.stripe).await?;
        if aside.is_some() {
            // The lost extent stays recorded until all of the write is there.
            self.prepare_free(extent).await?;
            return Ok(if sent.failed { Landed::Nowhere } else { Landed::Here(extents) });
        }
        // A concurrent writer of this stripe has seen the brick fail first, and may be writing elsewhere now.
        if !sent.is_at(extent) {
            return Ok(Landed::Nowhere);
        }
        if !sent.failed && sent.brick.is_there() {
            return Ok(Landed::Here(extents));
        }
        if extent.written != 0 || sent.brick.is_there() {
            return Ok(Landed::Lost);
        }
        self.prepare_free(extent).await?;
        if extents.get(sent.stripe) == extent {
            self.set_extent(inode, &extents, sent.stripe, Extent::HOLE);
            self.free_blocks(extent);
        }
        Ok(Landed::Nowhere)
    }

    /// Records what is there of a write that failed elsewhere: as far as the file goes. What is beyond its end must not
    /// show when it grows.
    fn note_part(&self, inode: &Rc<Inode>, here: &[(Rc<ExtentGroup>, Sent)]) {
        inode.ragged.set(true);
        for (extents, sent) in
            here.iter().filter(|(extents, sent)| sent.is_at(extents.get(sent.stripe)))
        {
            let left = inode.size().saturating_sub(sent.stripe * self.geometry.stripe);
            let inside = self.geometry.touched(0, left.min(self.geometry.stripe));
            self.set_written(inode, extents, sent.stripe, sent.sub_blocks & inside);
        }
    }

    fn set_written(
        &self,
        inode: &Rc<Inode>,
        extents: &Rc<ExtentGroup>,
        stripe: u64,
        sub_blocks: u32,
    ) {
        let extent = extents.get(stripe);
        let written = extent.written | sub_blocks;
        if written != extent.written {
            self.set_extent(inode, extents, stripe, Extent { written, ..extent });
        }
    }

    /// Size and times after a write that ended at `end`; the range is still held, so that a cut comes before or after
    /// all of it.
    fn note_write(&self, inode: &Rc<Inode>, end: u64, clear_setid: bool) {
        let now = self.now();
        let grows = end > inode.size();
        // The last block was completed with zeroes, which says nothing of those after it in a sub-block that was there.
        let sub_block = self.geometry.sub_block;
        if grows && (sub_block == BLOCK || down(end, sub_block) != down(inode.size(), sub_block)) {
            inode.ragged.set(false);
        }
        self.edit(inode, grows, |record| {
            record.size = record.size.max(end);
            record.mtime = now;
            record.ctime = now;
            if clear_setid {
                clear_setid_bits(&mut record.perm);
            }
        });
    }

    /// Locks the range of a write and sees to it that all of its stripes have extents long enough, or blocks set aside for
    /// one.
    async fn lock_for_write(&self, inode: &Rc<Inode>, range: Range<u64>) -> Result<Ready, Errno> {
        let geometry = self.geometry;
        let mut wanted = down(range.start, geometry.sub_block)..up(range.end, geometry.sub_block);
        'locking: loop {
            let held = inode.locks.exclusive(wanted.clone()).await;
            let mut asides = BTreeMap::new();
            for piece in geometry.pieces(range.clone()) {
                let needed = geometry.blocks_to(piece.to);
                let start = piece.stripe * geometry.stripe;
                let (_, extent) = self.extent(inode, piece.stripe).await?;
                let is_lost = !extent.is_hole()
                    && self.brick(extent.brick).is_none_or(|brick| !brick.is_there());
                if extent.is_hole() || (!is_lost && u64::from(extent.blocks) >= needed) {
                    continue;
                }
                // The extent is to be changed: that takes the whole stripe.
                if wanted.start > start || wanted.end < start + geometry.stripe {
                    wanted.start = wanted.start.min(start);
                    wanted.end = wanted.end.max(start + geometry.stripe);
                    drop(held);
                    continue 'locking;
                }
                if is_lost {
                    let to = if range.end >= inode.size() { geometry.stripe } else { piece.to };
                    let from = geometry.touched(0, piece.from);
                    let keeps = geometry.touched(to, geometry.stripe) | from;
                    if extent.written & keeps != 0 {
                        return Err(Errno::Io);
                    }
                    // All that was there is written anew, so it may be anywhere.
                    let blocks = self.blocks_for(inode, piece.stripe, needed, range.end);
                    let aside = self.reserve_about(inode, piece.stripe, blocks, needed).await?;
                    let (brick, start, blocks) = aside;
                    let taken = Cell::new(false);
                    asides.insert(piece.stripe, Aside { brick, start, blocks, taken });
                }
            }
            for piece in geometry.pieces(range.clone()) {
                if asides.contains_key(&piece.stripe) {
                    continue;
                }
                let needed = geometry.blocks_to(piece.to);
                let start = piece.stripe * geometry.stripe;
                let whole = wanted.start <= start && wanted.end >= start + geometry.stripe;
                // A concurrent writer of another part has given the stripe an extent meanwhile, which must be changed.
                if !self.ensure_extent(inode, piece.stripe, needed, range.end, whole).await? {
                    drop(held);
                    continue 'locking;
                }
            }
            return Ok(Ready { _held: held, asides });
        }
    }

    /// Where a stripe is written: the blocks that were set aside for it, or its extent.
    async fn extent_to_write(
        &self,
        inode: &Rc<Inode>,
        stripe: u64,
        asides: &BTreeMap<u64, Aside>,
    ) -> Result<Extent, Errno> {
        match asides.get(&stripe) {
            Some(aside) => Ok(extent_of(aside.run(), 0)),
            None => Ok(self.extent(inode, stripe).await?.1),
        }
    }

    /// Completes the payload to whole blocks, with what is there, and over sub-blocks that were never written, with
    /// zeroes. `None`: meanwhile the brick failed, and the extent at the end is not there any more, or too short.
    async fn complete(
        &self,
        inode: &Rc<Inode>,
        offset: u64,
        data: &Buf,
        asides: &BTreeMap<u64, Aside>,
    ) -> Result<Option<Payload>, Errno> {
        let end = offset + data.len() as u64;
        let first = offset / self.geometry.stripe;
        let first = self.extent_to_write(inode, first, asides).await?;
        let (start, old_head) = self.head(inode, offset, first).await?;
        let last = (end - 1) / self.geometry.stripe;
        let last = self.extent_to_write(inode, last, asides).await?;
        let (stop, old_tail) = self.tail(inode, end, last).await?;
        if stop < end {
            return Ok(None);
        }
        let is_aligned = (data.as_ptr() as usize).is_multiple_of(ALIGN);
        if start == offset && is_aligned {
            let middle = down(end, BLOCK);
            if stop == end {
                return Ok(Some(Payload { start, main: data.slice(0..data.len()), tail: None }));
            }
            let main = data.slice(0..(middle - offset) as usize);
            let mut tail = self.shard.pool().zeroed((stop - middle) as usize);
            if let Some(old) = old_tail {
                tail[..old.len()].copy_from_slice(&old);
            }
            tail[..(end - middle) as usize].copy_from_slice(&data[(middle - offset) as usize..]);
            return Ok(Some(Payload { start, main, tail: Some(tail.freeze()) }));
        }
        let mut all = self.shard.pool().zeroed((stop - start) as usize);
        if let Some(old) = old_head {
            all[..old.len()].copy_from_slice(&old);
        }
        if let Some(old) = old_tail {
            let at = (down(end, BLOCK) - start) as usize;
            all[at..at + old.len()].copy_from_slice(&old);
        }
        let at = (offset - start) as usize;
        all[at..at + data.len()].copy_from_slice(data);
        Ok(Some(Payload { start, main: all.freeze(), tail: None }))
    }

    /// Where the write has to start so that it begins with a whole block or sub-block, and the old content of its first
    /// block, if that is needed.
    async fn head(
        &self,
        inode: &Rc<Inode>,
        offset: u64,
        extent: Extent,
    ) -> Result<(u64, Option<Buf>), Errno> {
        if !self.geometry.is_written(extent, offset % self.geometry.stripe) {
            return Ok((down(offset, self.geometry.sub_block), None));
        }
        let start = down(offset, BLOCK);
        if start == offset {
            return Ok((start, None));
        }
        Ok((start, Some(self.old_block(inode, start).await?)))
    }

    /// Where the write has to end (before `end` where the extent is too short), and the old content of its last block, if
    /// that is needed.
    async fn tail(
        &self,
        inode: &Rc<Inode>,
        end: u64,
        extent: Extent,
    ) -> Result<(u64, Option<Buf>), Errno> {
        let last = end - 1;
        let stripe = last / self.geometry.stripe;
        if !self.geometry.is_written(extent, last % self.geometry.stripe) {
            let extent_end = stripe * self.geometry.stripe + u64::from(extent.blocks) * BLOCK;
            return Ok((up(end, self.geometry.sub_block).min(extent_end), None));
        }
        let start = down(end, BLOCK);
        if start == end {
            return Ok((end, None));
        }
        if end >= inode.size() {
            // Bytes after the end of the file are not part of it.
            return Ok((start + BLOCK, None));
        }
        Ok((start + BLOCK, Some(self.old_block(inode, start).await?)))
    }

    /// One block as it is read: zero after the end of the file.
    async fn old_block(&self, inode: &Rc<Inode>, start: u64) -> Result<Buf, Errno> {
        let memory = self.shard.pool().get(BLOCK as usize);
        let mut block = self.read_blocks(inode, start, start + BLOCK, memory).await?;
        let inside = inode.size().saturating_sub(start).min(BLOCK) as usize;
        block[inside..].fill(0);
        Ok(block.freeze())
    }
}

/// Clears the bits of a mode that a write by an unprivileged user clears: setuid, and setgid where it means a group.
pub(crate) fn clear_setid_bits(perm: &mut u16) {
    *perm &= !0o4000;
    if *perm & 0o010 != 0 {
        *perm &= !0o2000;
    }
}
