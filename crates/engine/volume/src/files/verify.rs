//! Bytes that come from a brick are held against their checksums.

use super::part::Files;
use crate::extents::{Brick, Stripe};
use crate::namespace::Inode;
use crate::stripes::Geometry;
use crate::sums::{Of, Windows};
use braid_device::{Request, Sought};
use braid_filesystem::Errno;
use braid_format::volume::BLOCK;
use braid_format::volume::sums::{UNKNOWN, sum_of};
use braid_shard::BufMut;
use braid_shard::plant::planted;
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// Where bytes of a file came from.
pub(super) struct Source {
    pub(super) brick: Rc<Brick>,
    /// The first byte, on its device.
    pub(super) offset: u64,
    /// The blocks, counted from the start of the file.
    pub(super) blocks: Range<u64>,
    /// The stripe, where it may have other copies.
    pub(super) stripe: Option<Stripe>,
    reading: Cell<bool>,
}

impl Drop for Source {
    fn drop(&mut self) {
        self.end_read(None);
    }
}

impl Source {
    /// `run`, bytes of stripe `stripe`, whose extent begins at block `start` of `brick`.
    pub(super) fn new(
        geometry: Geometry,
        brick: Rc<Brick>,
        start: u64,
        stripe: u64,
        run: &Range<u64>,
    ) -> Source {
        let at = stripe * geometry.stripe;
        let blocks = (at + run.start) / BLOCK..(at + run.end) / BLOCK;
        let offset = brick.byte_of(start) + run.start;
        Source { offset, brick, blocks, stripe: None, reading: Cell::new(false) }
    }

    /// `request` is about to read it.
    pub(super) fn begin_read(&self, request: &Request) {
        self.brick.note(request);
        if self.stripe.is_some() && !self.reading.replace(true) {
            self.brick.begin_read();
        }
    }

    /// That has ended, and took so many nanoseconds; `None`: it failed.
    pub(super) fn end_read(&self, nanos: Option<u64>) {
        if self.reading.replace(false) {
            self.brick.end_read(nanos);
        }
    }

    /// Where one of its blocks lies on the device, in bytes.
    pub(super) fn byte_of(&self, block: u64) -> u64 {
        self.offset + (block - self.blocks.start) * BLOCK
    }
}

/// The file, for its checksums.
pub(super) fn sums_of(inode: &Inode) -> Of {
    Of { ino: inode.ino(), is_new: inode.extents.is_unstored(), size: inode.size() }
}

/// A block is as this checksum says, or nothing is known of it.
pub(super) fn agrees(sum: u32, block: &[u8]) -> bool {
    sum == UNKNOWN || sum == sum_of(block)
}

impl Files {
    /// Holds what came from a brick against the checksums. A block that does not agree is read once more: the fault may have been
    /// on the way. The caller holds the blocks.
    ///
    /// # Errors
    /// [`Errno::Io`] when a block is not what was written; it is logged.
    pub(super) async fn verify(
        &self,
        inode: &Inode,
        windows: &Windows,
        source: &Source,
        bytes: &mut BufMut,
    ) -> Result<(), Errno> {
        if !self.sums.is_on() || planted("sums-not-read") {
            return Ok(());
        }
        for (block, at) in source.blocks.clone().zip((0..).step_by(BLOCK as usize)) {
            let sum = windows.get(block);
            let range = at..at + BLOCK as usize;
            if agrees(sum, &bytes[range.clone()]) {
                continue;
            }
            let in_doubt = self.sums.is_doubtful(inode.ino(), block);
            if in_doubt && source.stripe.is_none() {
                continue;
            }
            let again = self.read_again(source, block).await;
            if let Ok(again) = &again
                && agrees(sum, again)
            {
                bytes[range].copy_from_slice(again);
                continue;
            }
            if !in_doubt && let Some(good) = self.recover_below(inode, source, block, sum).await {
                bytes[range].copy_from_slice(&good);
                continue;
            }
            match self.another_copy(inode, source, block..block + 1, Some(windows)).await {
                Ok(good) => {
                    self.mend(inode, source, block, &good).await;
                    bytes[range].copy_from_slice(&good);
                }
                // None agrees: what is here is taken as it is, or is rotten.
                Err(_) if in_doubt => {}
                Err(_) => {
                    self.tell_mismatch(inode, source, block);
                    return Err(Errno::Io);
                }
            }
        }
        Ok(())
    }

    /// The bytes of `source`, whose brick did not give them, from other copies. The caller holds the blocks.
    ///
    /// # Errors
    /// [`Errno::Io`] when there is none, or none that can be read and is what was written.
    pub(super) async fn read_elsewhere(
        &self,
        inode: &Inode,
        windows: &Windows,
        source: &Source,
    ) -> Result<BufMut, Errno> {
        let per = self.geometry.sub_block / BLOCK;
        let (mut at, end) = (source.blocks.start, source.blocks.end);
        let mut all = self.shard.pool().get(((end - at) * BLOCK) as usize);
        while at < end {
            let to = (at - at % per + per).min(end);
            let good = match self.another_copy(inode, source, at..to, Some(windows)).await {
                Ok(good) => good,
                // In doubt, or some of its blocks are rotten: each may be well somewhere.
                Err(_) => self.by_blocks(inode, source, at..to, windows).await?,
            };
            let from = ((at - source.blocks.start) * BLOCK) as usize;
            all[from..from + good.len()].copy_from_slice(&good);
            // The disk may give another sector for one that it cannot read.
            for (block, bytes) in (at..to).zip(good.chunks_exact(BLOCK as usize)) {
                self.mend(inode, source, block, bytes).await;
            }
            at = to;
        }
        Ok(all)
    }

    async fn by_blocks(
        &self,
        inode: &Inode,
        source: &Source,
        blocks: Range<u64>,
        windows: &Windows,
    ) -> Result<BufMut, Errno> {
        let len = (blocks.end - blocks.start) * BLOCK;
        let mut all = self.shard.pool().get(len as usize);
        for (block, at) in blocks.zip((0..).step_by(BLOCK as usize)) {
            let one = block..block + 1;
            let good = match self.another_copy(inode, source, one.clone(), Some(windows)).await {
                Err(_) if self.sums.is_doubtful(inode.ino(), block) => {
                    self.another_copy(inode, source, one, None).await?
                }
                other => other?,
            };
            all[at..at + BLOCK as usize].copy_from_slice(&good);
        }
        Ok(all)
    }

    /// Blocks within one sub-block as another copy than `source` has them, one in which all are as `windows` say; `None`: as the
    /// best has them.
    async fn another_copy(
        &self,
        inode: &Inode,
        source: &Source,
        blocks: Range<u64>,
        windows: Option<&Windows>,
    ) -> Result<BufMut, Errno> {
        let stripe = source.stripe.as_ref().ok_or(Errno::Io)?;
        let first = stripe.number() * self.geometry.stripe / BLOCK;
        let run = (blocks.start - first) * BLOCK..(blocks.end - first) * BLOCK;
        // In doubt a checksum may be of before the write that a stale copy has lost: that it agrees says nothing.
        let in_doubt = self.sums.is_doubtful(inode.ino(), blocks.start);
        let stale = self.sums.stale_at(inode.ino(), blocks.start);
        for (_, extent) in self.copies_of(inode, stripe, run.start) {
            let is_old = windows.is_some() && in_doubt && stale.contains(&extent.brick);
            if extent.brick == source.brick.id || is_old {
                continue;
            }
            let other = self.source(stripe, extent, &run)?;
            let Ok(bytes) = self.read_raw(&other).await else { continue };
            let mut pairs = blocks.clone().zip(bytes.chunks_exact(BLOCK as usize));
            let all_agree =
                |windows: &Windows| pairs.all(|(block, bytes)| agrees(windows.get(block), bytes));
            if windows.is_none_or(all_agree) {
                return Ok(bytes);
            }
        }
        Err(Errno::Io)
    }

    /// Writes a block again, which is not as its checksum says, as another copy has it that agrees with that: `at_hand`, or
    /// one that is read. The caller holds it.
    ///
    /// # Errors
    /// [`Errno::Io`] when there is none, or the brick does not take it.
    pub(super) async fn mend_block(
        &self,
        inode: &Inode,
        source: &Source,
        block: u64,
        windows: &Windows,
        at_hand: Option<&[u8]>,
    ) -> Result<(), Errno> {
        self.transactions.writable()?;
        if self.recover_below(inode, source, block, windows.get(block)).await.is_some() {
            return Ok(());
        }
        if let Some(good) = at_hand {
            self.mend(inode, source, block, good).await;
            return Ok(());
        }
        let good = self.another_copy(inode, source, block..block + 1, Some(windows)).await?;
        self.mend(inode, source, block, &good).await;
        Ok(())
    }

    /// Writes a block again where it was rotten, or could not be read. `good` is what another copy has. The caller holds the block,
    /// so it is not written by others.
    async fn mend(&self, inode: &Inode, source: &Source, block: u64, good: &[u8]) {
        let is_known = !self.sums.is_doubtful(inode.ino(), block);
        if !is_known || self.transactions.writable().is_err() || planted("mend-not-written") {
            return;
        }
        let mut bytes = self.shard.pool().get(BLOCK as usize);
        bytes.copy_from_slice(good);
        let offset = source.byte_of(block);
        let request = Request::write(offset, bytes.freeze(), false);
        if self.bricks.write_copy(&source.brick, request).await.is_ok() {
            self.sums.note_mended();
            tracing::warn!(
                brick = %source.brick.name(),
                "file {}: bytes {} to {} were not what was written; they were mended from another copy, at byte {offset} of the \
                 brick. A disk that does this often is to be replaced",
                inode.ino(),
                block * BLOCK,
                (block + 1) * BLOCK - 1
            );
        }
    }

    /// One block of `source` as its checksum says, out of the redundancy of its brick, if that is an array: it writes it over what is not
    /// right itself. The caller holds the block.
    async fn recover_below(
        &self,
        inode: &Inode,
        source: &Source,
        block: u64,
        sum: u32,
    ) -> Option<BufMut> {
        let device = source.brick.device()?;
        if sum == UNKNOWN || self.transactions.writable().is_err() {
            return None;
        }
        let offset = source.byte_of(block);
        let sought = Sought { offset, len: BLOCK as usize, sum, sum_of };
        let good = device.find_agreeing(sought).await?;
        self.sums.note_mended();
        tracing::warn!(
            brick = %source.brick.name(),
            "file {}: bytes {} to {} were not what was written; they were recovered from the redundancy of the array, at byte {offset} of \
             it. A disk that does this often is to be replaced: a scrub of the array may say which",
            inode.ino(),
            block * BLOCK,
            (block + 1) * BLOCK - 1
        );
        Some(good)
    }

    /// One block of `source` as its brick has it.
    pub(super) async fn read_again(&self, source: &Source, block: u64) -> Result<BufMut, Errno> {
        let memory = self.shard.pool().get(BLOCK as usize);
        self.bricks.read(&source.brick, source.byte_of(block), memory).await
    }

    /// All of `source` as its brick has it.
    pub(super) async fn read_raw(&self, source: &Source) -> Result<BufMut, Errno> {
        let len = (source.blocks.end - source.blocks.start) * BLOCK;
        self.bricks.read(&source.brick, source.offset, self.shard.pool().get(len as usize)).await
    }

    pub(super) fn tell_mismatch(&self, inode: &Inode, source: &Source, block: u64) {
        self.sums.note_mismatch();
        let (ino, from) = (inode.ino(), block * BLOCK);
        let offset = source.byte_of(block);
        tracing::error!(
            brick = %source.brick.name(),
            "file {ino}: bytes {from} to {} are not what was written, as their checksum says; they lie at byte {offset} of the \
             brick. Put the file back from a copy; a disk that does this is to be replaced",
            from + BLOCK - 1
        );
    }
}
