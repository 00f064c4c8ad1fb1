//! Reading.

use super::choose::From;
use super::part::Files;
use super::verify::{Source, sums_of};
use crate::namespace::Inode;
use crate::stripes::{down, up};
use braid_device::{Op, Request};
use braid_filesystem::{Errno, Ino};
use braid_format::volume::BLOCK;
use braid_shard::{Buf, BufMut};
use smallvec::SmallVec;
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
        let _inside = self.go_inside(ino).await?;
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
        let began = self.shard.now();
        for piece in self.geometry.pieces(first..end) {
            let stripe = match self.stripe(inode, piece.stripe).await {
                Ok(stripe) => stripe,
                Err(error) => {
                    let _ = reads.finish().await;
                    return Err(error);
                }
            };
            for (run, from) in self.runs_of(inode, &stripe, piece.from, piece.to) {
                let mut part = rest;
                rest = part.split_off((run.end - run.start) as usize);
                let source = match from {
                    From::Zero => {
                        part.fill(0);
                        parts.push(Some(part));
                        sources.push(None);
                        continue;
                    }
                    From::Lost => Err(Errno::Io),
                    From::Extent(extent) => self.source(&stripe, extent, &run),
                };
                let Some((source, device)) = source.ok().and_then(|source| {
                    let device = source.brick.device()?;
                    Some((source, device))
                }) else {
                    let _ = reads.finish().await;
                    return Err(Errno::Io);
                };
                let request = Request::read(source.offset, part);
                source.begin_read(&request);
                reads.submit(parts.len() as u32, &*device, request);
                parts.push(None);
                sources.push(Some(source));
            }
        }
        // Meanwhile the bricks are at work.
        let windows = self.sums.load(sums_of(inode), first / BLOCK..end / BLOCK).await;
        let mut failed: SmallVec<[usize; 4]> = SmallVec::new();
        for (tag, outcome) in reads.finish().await {
            let at = tag as usize;
            if let Some(source) = &sources[at] {
                let has_read = self.bricks.has_read(&source.brick, outcome.result);
                source.end_read(has_read.is_ok().then(|| self.shard.now() - began));
                if has_read.is_err() {
                    failed.push(at);
                }
            }
            if let Op::Read(mut bufs) = outcome.op {
                parts[at] = bufs.pop();
            }
        }
        let windows = windows?;
        for (at, (part, source)) in parts.iter_mut().zip(&sources).enumerate() {
            let Some(source) = source else { continue };
            match part {
                _ if failed.contains(&at) => {
                    *part = Some(self.read_elsewhere(inode, &windows, source).await?);
                }
                Some(part) => self.verify(inode, &windows, source, part).await?,
                None => return Err(Errno::Io),
            }
        }
        // The parts were cut from one buffer in this order. A device that was given up keeps what it was to fill, and other
        // memory was filled instead.
        let whole = self.shard.pool().joined(parts.into_iter().flatten());
        Ok(whole.unwrap_or(rest))
    }
}
