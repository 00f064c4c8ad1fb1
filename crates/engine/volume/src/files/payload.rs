//! The bytes of a write, completed to whole blocks or sub-blocks.

use super::part::Files;
use super::resolve::Target;
use crate::namespace::Inode;
use crate::stripes::{down, up};
use braid_device::Bufs;
use braid_filesystem::Errno;
use braid_format::volume::BLOCK;
use braid_format::volume::extent::Extent;
use braid_format::volume::sums::sum_of;
use braid_shard::Buf;
use std::ops::Range;
use std::rc::Rc;

/// Memory of a payload is aligned so for devices.
const ALIGN: usize = 4096;

/// The data for the bricks: the payload, completed to whole blocks or sub-blocks.
pub(super) struct Payload {
    /// Offset in the file, a multiple of a block.
    pub(super) start: u64,
    main: Buf,
    /// The bytes after `main`, when the end had to be completed.
    tail: Option<Buf>,
}

impl Payload {
    /// Where it ends in the file.
    pub(super) fn end(&self) -> u64 {
        self.start + self.main.len() as u64 + self.tail.as_ref().map_or(0, |tail| tail.len() as u64)
    }

    /// The bytes of a range of the file.
    pub(super) fn slice(&self, range: Range<u64>) -> Bufs {
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

impl Payload {
    /// The checksums of its blocks.
    pub(super) fn sums(&self) -> Vec<u32> {
        let all = self.slice(self.start..self.end());
        all.iter().flat_map(|buf| buf.chunks_exact(BLOCK as usize)).map(sum_of).collect()
    }
}

impl Files {
    /// Completes the payload to whole blocks, with what is there, and over sub-blocks that were never written, with
    /// zeroes. `None`: meanwhile the brick failed, and the extent at the end is not there any more, or too short.
    pub(super) async fn complete(
        &self,
        inode: &Rc<Inode>,
        offset: u64,
        data: &Buf,
        (first, last): (&Target, &Target),
    ) -> Result<Option<Payload>, Errno> {
        let end = offset + data.len() as u64;
        let (start, old_head) = self.head(inode, offset, first.extent()).await?;
        let (stop, old_tail) = self.tail(inode, end, last.extent()).await?;
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
