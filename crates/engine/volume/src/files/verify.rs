//! Bytes that come from a brick are held against their checksums.

use super::part::Files;
use crate::extents::Brick;
use crate::namespace::Inode;
use crate::sums::{Of, Windows};
use braid_device::{Op, Request};
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

    pub(super) async fn read_again(&self, source: &Source, block: u64) -> Result<BufMut, Errno> {
        let device = source.brick.device().ok_or(Errno::Io)?;
        let offset = source.offset + (block - source.blocks.start) * BLOCK;
        let request = Request::read(offset, self.shard.pool().get(BLOCK as usize));
        source.brick.note(&request);
        let mut reads = self.bricks.start();
        reads.submit(0, &*device, request);
        let mut found = None;
        for (_, outcome) in reads.finish().await {
            self.bricks.has_read(&source.brick, outcome.result)?;
            if let Op::Read(mut bufs) = outcome.op {
                found = bufs.pop();
            }
        }
        found.ok_or(Errno::Io)
    }

    pub(super) fn tell_mismatch(&self, inode: &Inode, source: &Source, block: u64) {
        self.sums.note_mismatch();
        let (ino, from) = (inode.ino(), block * BLOCK);
        let offset = source.offset + (block - source.blocks.start) * BLOCK;
        tracing::error!(
            brick = %source.brick.name(),
            "file {ino}: bytes {from} to {} are not what was written, as their checksum says; they lie at byte {offset} of the \
             brick. Put the file back from a copy; a disk that does this is to be replaced",
            from + BLOCK - 1
        );
    }
}
