//! A range of a file is read and held against its checksums; where there is none yet it gets one.

use super::part::Files;
use super::verify::{Source, sums_of};
use crate::extents::Stripe;
use crate::namespace::Inode;
use crate::stripes::Piece;
use crate::sums::Windows;
use braid_device::{Op, Request};
use braid_filesystem::Errno;
use braid_format::volume::BLOCK;
use braid_format::volume::extent::Extent;
use braid_format::volume::snapshot::snapshot_of;
use braid_format::volume::sums::{UNKNOWN, sum_of};
use braid_shard::BufMut;
use std::ops::Range;
use std::rc::Rc;

/// The findings of a scrub of a range. Ranges are in bytes from the start of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Bytes that were read.
    pub bytes: u64,
    /// Of them those that had no checksum.
    pub sealed: u64,
    /// Not what was written.
    pub rotten: Vec<Range<u64>>,
    /// Not what was written in one copy, or not to be read there: written again as another copy has it.
    pub mended: Vec<Range<u64>>,
    /// Cannot be read.
    pub lost: Vec<Range<u64>>,
}

/// Where bytes lie, and those that came from there; `None`: it cannot be read.
type Read = (Source, Option<BufMut>);

impl Files {
    /// Reads what is written of a range, multiples of a block, and holds it against its checksums.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn scrub(&self, inode: &Rc<Inode>, range: Range<u64>) -> Result<Scrubbed, Errno> {
        let _held = inode.locks.shared(range.clone()).await;
        self.scrub_held(inode, range).await
    }

    /// The same; the caller holds the range.
    ///
    /// # Errors
    /// As [`scrub`](Files::scrub).
    pub(super) async fn scrub_held(
        &self,
        inode: &Rc<Inode>,
        range: Range<u64>,
    ) -> Result<Scrubbed, Errno> {
        let _inside = match self.go_inside(inode.ino()).await {
            Err(Errno::Stale) => return Ok(Scrubbed::default()),
            other => other?,
        };
        let blocks = range.start / BLOCK..range.end / BLOCK;
        let windows = self.sums.load(sums_of(inode), blocks).await?;
        let mut found = Scrubbed::default();
        for piece in self.geometry.pieces(range) {
            let stripe = self.stripe(inode, piece.stripe).await?;
            let start = piece.stripe * self.geometry.stripe;
            self.find_lost(&stripe, &piece, start, &mut found);
            let all = self.read_each_copy(&stripe, &piece).await;
            for (at, (source, read)) in all.iter().enumerate() {
                let bytes = source.blocks.start * BLOCK..source.blocks.end * BLOCK;
                match read {
                    Some(read) => {
                        self.judge(inode, &windows, (&all, at), read, &mut found).await;
                    }
                    // Another copy has them, and they are written again as it has them.
                    None if self.read_elsewhere(inode, &windows, source).await.is_ok() => {
                        found.bytes += bytes.end - bytes.start;
                        found.mended.push(bytes);
                    }
                    None => found.lost.push(bytes),
                }
            }
        }
        // Each copy was looked at by itself.
        [&mut found.rotten, &mut found.mended, &mut found.lost].into_iter().for_each(join);
        Ok(found)
    }

    /// Reads what is written of a piece of a stripe in every copy, all at the same time.
    async fn read_each_copy(&self, stripe: &Stripe, piece: &Piece) -> Vec<Read> {
        let mut all = Vec::new();
        let mut reads = self.bricks.start();
        for (_, extent) in stripe.extents() {
            for (run, is_written) in self.geometry.runs(extent, piece.from, piece.to) {
                if !is_written || (stripe.rows() > 1 && !self.bricks.is_there(extent.brick)) {
                    continue;
                }
                let Ok(source) = self.source(stripe, extent, &run) else { continue };
                if let Some(device) = source.brick.device() {
                    let memory = self.shard.pool().get((run.end - run.start) as usize);
                    let request = Request::read(source.offset, memory);
                    source.brick.note(&request);
                    reads.submit(all.len() as u32, &*device, request);
                }
                all.push((source, None));
            }
        }
        for (tag, outcome) in reads.finish().await {
            let (source, read) = &mut all[tag as usize];
            if self.bricks.has_read(&source.brick, outcome.result).is_ok()
                && let Op::Read(mut bufs) = outcome.op
            {
                *read = bufs.pop();
            }
        }
        all
    }

    /// Finds what is written of a stripe and in no copy on a brick that exists.
    fn find_lost(&self, stripe: &Stripe, piece: &Piece, start: u64, found: &mut Scrubbed) {
        let is_known = |extent: &Extent| match stripe.rows() {
            1 => self.bricks.get(extent.brick).is_some(),
            _ => self.bricks.is_there(extent.brick),
        };
        let there = stripe.extents().filter(|(_, extent)| is_known(extent));
        let there = there.fold(0, |all, (_, extent)| all | extent.written);
        let together = stripe.together();
        let lost = Extent { written: together.written & !there, ..together };
        for (run, is_lost) in self.geometry.runs(lost, piece.from, piece.to) {
            if is_lost {
                found.lost.push(start + run.start..start + run.end);
            }
        }
    }

    /// Holds `bytes`, which came from source `at` of `all`, against the checksums.
    async fn judge(
        &self,
        inode: &Inode,
        windows: &Windows,
        (all, at): (&[Read], usize),
        bytes: &[u8],
        found: &mut Scrubbed,
    ) {
        let source = &all[at].0;
        found.bytes += bytes.len() as u64;
        for (block, bytes) in source.blocks.clone().zip(bytes.chunks_exact(BLOCK as usize)) {
            let (known, now) = (windows.get(block), sum_of(bytes));
            if known == now || self.sums.is_doubtful(inode.ino(), block) {
                continue;
            }
            if known == UNKNOWN && snapshot_of(inode.ino()) != 0 {
                continue;
            }
            if known == UNKNOWN {
                found.sealed += BLOCK;
                if self.transactions.writable().is_ok() {
                    self.sums.put(windows, block, [now]);
                }
                continue;
            }
            let again = self.read_again(source, block).await;
            if !again.is_ok_and(|again| sum_of(&again) == known) {
                let range = block * BLOCK..(block + 1) * BLOCK;
                let at_hand = other_of(all, source, block, known);
                let list = match self.mend_block(inode, source, block, windows, at_hand).await {
                    Ok(()) => &mut found.mended,
                    Err(_) => {
                        self.tell_mismatch(inode, source, block);
                        &mut found.rotten
                    }
                };
                match list.last_mut().filter(|last| last.end == range.start) {
                    Some(last) => last.end = range.end,
                    None => list.push(range),
                }
            }
        }
    }
}

/// A block as it was read on another brick than that of `source`, if it is as its checksum says there.
fn other_of<'a>(all: &'a [Read], source: &Source, block: u64, known: u32) -> Option<&'a [u8]> {
    let others = all
        .iter()
        .filter(|(other, _)| other.brick.id != source.brick.id && other.blocks.contains(&block));
    let blocks = others.filter_map(|(other, read)| {
        let at = ((block - other.blocks.start) * BLOCK) as usize;
        read.as_ref()?.get(at..at + BLOCK as usize)
    });
    blocks.into_iter().find(|bytes| sum_of(bytes) == known)
}

/// Puts ranges in order, and those together that touch.
fn join(ranges: &mut Vec<Range<u64>>) {
    ranges.sort_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let touches = next.start <= last.end;
        if touches {
            last.end = last.end.max(next.end);
        }
        touches
    });
}
