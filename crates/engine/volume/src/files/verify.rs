//! Bytes that come from a brick are held against their checksums.

use super::part::Files;
use crate::extents::Brick;
use crate::namespace::Inode;
use crate::stripes::Geometry;
use crate::sums::{Of, Windows};
use braid_filesystem::Errno;
use braid_format::volume::BLOCK;
use braid_format::volume::sums::{UNKNOWN, sum_of};
use braid_shard::BufMut;
use braid_shard::plant::planted;
use std::ops::Range;
use std::rc::Rc;

/// Where bytes of a file came from.
pub(super) struct Source {
    pub(super) brick: Rc<Brick>,
    /// The first byte, on its device.
    pub(super) offset: u64,
    /// The blocks, counted from the start of the file.
    pub(super) blocks: Range<u64>,
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
        Source { offset: brick.byte_of(start) + run.start, brick, blocks }
    }

    /// Where one of its blocks lies on the device, in bytes.
    fn byte_of(&self, block: u64) -> u64 {
        self.offset + (block - self.blocks.start) * BLOCK
    }
}

/// The file, for its checksums.
pub(super) fn sums_of(inode: &Inode) -> Of {
    Of { ino: inode.ino(), is_new: inode.extents.is_unstored(), size: inode.size() }
}

/// A block is as this checksum says, or nothing is known of it.
fn agrees(sum: u32, block: &[u8]) -> bool {
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
            if agrees(sum, &bytes[range.clone()]) || self.sums.is_doubtful(inode.ino(), block) {
                continue;
            }
            let again = self.read_again(source, block).await?;
            if !agrees(sum, &again) {
                self.tell_mismatch(inode, source, block);
                return Err(Errno::Io);
            }
            bytes[range].copy_from_slice(&again);
        }
        Ok(())
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
