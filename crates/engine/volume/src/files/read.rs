//! Reading.

use super::part::Files;
use super::verify::{Source, sums_of};
use crate::namespace::Inode;
use crate::stripes::{down, up};
use braid_device::{Op, Request};
use braid_filesystem::{Errno, Ino};
use braid_format::volume::BLOCK;
use braid_shard::{Buf, BufMut};
use std::rc::Rc;

impl Files {
    /// See [`braid_filesystem::FileSystem::read_into`]; without `room` the memory is the shard's.
    pub async fn read_file(
        &self,
        ino: Ino,
        offset: u64,
        len: usize,
        room: Option<BufMut>,
    ) -> Result<Buf, Errno> {
        let inode = self.inodes.file(ino).await?;
        let end = offset.saturating_add(len as u64);
        let _held = inode.locks.shared(offset..end).await;
        let end = end.min(inode.size());
        if offset >= end {
            return Ok(self.shard.pool().get(0).freeze());
        }
        let first = down(offset, BLOCK);
        let last = up(end, BLOCK);
        let memory = room.filter(|room| room.len() as u64 >= last - first);
        let memory = memory.unwrap_or_else(|| self.shard.pool().get((last - first) as usize));
        let buf = self.read_blocks(&inode, first, last, memory).await?;
        let skip = (offset - first) as usize;
        Ok(buf.freeze().slice(skip..skip + (end - offset) as usize))
    }

    /// The bytes from `first` to `end`, multiples of a block, at the front of `memory`, which is at least as long; all
    /// bricks at the same time. The caller holds the range.
    pub async fn read_blocks(
        &self,
        inode: &Rc<Inode>,
        first: u64,
        end: u64,
        memory: BufMut,
    ) -> Result<BufMut, Errno> {
        let mut rest = memory;
        rest.truncate((end - first) as usize);
        // The parts in the order of the file; those on their way are not there.
        let mut parts: Vec<Option<BufMut>> = Vec::new();
        let mut sources: Vec<Option<Source>> = Vec::new();
        let mut reads = self.bricks.start();
        for piece in self.geometry.pieces(first..end) {
            let extent = match self.extents.get(&inode.extents, piece.stripe).await {
                Ok((_, extent)) => extent,
                Err(error) => {
                    let _ = reads.finish().await;
                    return Err(error);
                }
            };
            for (run, is_written) in self.geometry.runs(extent, piece.from, piece.to) {
                let mut part = rest;
                rest = part.split_off((run.end - run.start) as usize);
                if !is_written {
                    part.fill(0);
                    parts.push(Some(part));
                    sources.push(None);
                    continue;
                }
                let brick = self.bricks.get(extent.brick);
                let Some((brick, device)) = brick.and_then(|brick| {
                    let device = brick.device()?;
                    Some((brick, device))
                }) else {
                    let _ = reads.finish().await;
                    return Err(Errno::Io);
                };
                let source = Source::new(self.geometry, brick, extent.start, piece.stripe, &run);
                let request = Request::read(source.offset, part);
                source.brick.note(&request);
                reads.submit(parts.len() as u32, &*device, request);
                parts.push(None);
                sources.push(Some(source));
            }
        }
        // Meanwhile the bricks are at work.
        let windows = self.sums.load(sums_of(inode), first / BLOCK..end / BLOCK).await;
        let mut failed = false;
        for (tag, outcome) in reads.finish().await {
            if let Some(source) = &sources[tag as usize] {
                failed |= self.bricks.has_read(&source.brick, outcome.result).is_err();
            }
            if let Op::Read(mut bufs) = outcome.op {
                parts[tag as usize] = bufs.pop();
            }
        }
        let windows = windows?;
        if failed {
            return Err(Errno::Io);
        }
        for (part, source) in parts.iter_mut().zip(&sources) {
            if let (Some(part), Some(source)) = (part, source) {
                self.verify(inode, &windows, source, part).await?;
            }
        }
        // The parts were cut from one buffer in this order. A device that was given up keeps what it was to fill, and other
        // memory was filled instead.
        let whole = self.shard.pool().joined(parts.into_iter().flatten());
        Ok(whole.unwrap_or(rest))
    }
}
