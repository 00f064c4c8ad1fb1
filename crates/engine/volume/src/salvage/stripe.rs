//! The bytes of a stripe, held against their checksums.
//!
//! Invariant: bytes that agree with a checksum that is known are what was written, whatever brick they come from; of all others it
//! is said why they may not be.

use super::read::{Copies, LostRange, Salvage, Source, add};
use super::sums::Known;
use braid_device::{IoErrorKind, IoSets, Op, Request};
use braid_format::volume::BLOCK;
use braid_format::volume::extent::Extent;
use braid_format::volume::sums::{UNKNOWN, sum_of};
use braid_shard::BufMut;
use std::ops::Range;

/// The reason that is told for bytes that differ from their checksum.
const ROTTEN: &str = "not what was written, as their checksum says";

impl Salvage {
    /// The bytes of the stripe at `at` of file `ino`. False when nothing further is wanted.
    pub(super) async fn read_stripe(
        &self,
        (ino, at): (u64, u64),
        copies: &Copies,
        size: u64,
        take: &mut impl FnMut(u64, &[u8]) -> bool,
        lost: &mut Vec<LostRange>,
    ) -> bool {
        let mut together = Extent::HOLE;
        for copy in copies {
            together.written |= copy.written;
            together.blocks = together.blocks.max(copy.blocks);
        }
        let held = self.geometry.stripe.min(u64::from(together.blocks) * BLOCK);
        for (run, written) in self.geometry.runs(together, 0, held) {
            let end = (at + run.end).min(size);
            if !written || at + run.start >= end {
                continue;
            }
            let blocks = (at + run.start) / BLOCK..(at + run.end) / BLOCK;
            let known = self.known_of(ino, blocks).await;
            let mut pieces = self.pieces_of(copies, run);
            while let Some(piece) = pieces.pop() {
                let bytes = at + piece.start..(at + piece.end).min(size);
                if bytes.is_empty() {
                    continue;
                }
                let holders = self.holders(copies, piece.start, &known);
                match self.read_any(&holders, &piece).await {
                    Ok((extent, mut found)) => {
                        let from = (extent, piece.start, bytes.start / BLOCK);
                        let judged = self.judge(from, &holders, &known, &mut found).await;
                        let count = (bytes.end - bytes.start) as usize;
                        if !take(bytes.start, found.get(..count).unwrap_or(&found)) {
                            return false;
                        }
                        for mut range in judged {
                            range.bytes.end = range.bytes.end.min(size);
                            if !range.bytes.is_empty() {
                                add(lost, range);
                            }
                        }
                    }
                    // Some of it may be readable yet: halves, the first of them next.
                    Err((_, true)) if piece.end - piece.start > BLOCK => {
                        let half = (piece.end - piece.start) / BLOCK / 2 * BLOCK;
                        let middle = piece.start + half;
                        pieces.extend([middle..piece.end, piece.start..middle]);
                    }
                    Err((why, _)) => add(lost, LostRange { bytes, why, is_rotten: false }),
                }
            }
        }
        true
    }

    /// Cuts a run of a stripe into parts that the same copies have, the last first.
    fn pieces_of(&self, copies: &Copies, run: Range<u64>) -> Vec<Range<u64>> {
        let have = |at: u64| -> u32 {
            let has_it = |copy: &Extent| u32::from(self.geometry.is_written(*copy, at));
            copies.iter().fold(0, |all, copy| all << 1 | has_it(copy))
        };
        let mut pieces: Vec<Range<u64>> = Vec::new();
        let mut at = run.start;
        while at < run.end {
            let next = (at - at % self.geometry.sub_block + self.geometry.sub_block).min(run.end);
            match pieces.last_mut().filter(|last| have(last.start) == have(at)) {
                Some(last) => last.end = next,
                None => pieces.push(at..next),
            }
            at = next;
        }
        pieces.reverse();
        pieces
    }

    /// The copies that have the byte at `at` of a stripe, the best to read first: those on bricks that missed nothing.
    fn holders(&self, copies: &Copies, at: u64, known: &Known) -> Copies {
        let has_it = |copy: &&Extent| self.geometry.is_written(**copy, at);
        let mut holders: Copies = copies.iter().filter(has_it).copied().collect();
        holders.sort_by_key(|copy| {
            let brick = self.bricks.get(&copy.brick);
            let is_old = brick.is_some_and(|brick| brick.doubt.is_some());
            (brick.is_none(), known.stale.contains(&copy.brick), is_old)
        });
        holders
    }

    /// What the first copy has that can be read, and which it is; else why the last cannot, and true if a shorter read may
    /// succeed.
    async fn read_any(
        &self,
        holders: &Copies,
        piece: &Range<u64>,
    ) -> Result<(Extent, BufMut), (String, bool)> {
        let mut failed: Option<(String, bool)> = None;
        for copy in holders {
            match self.read_blocks(*copy, piece.clone()).await {
                Ok(found) => return Ok((*copy, found)),
                Err((why, shorter)) => {
                    let (all, before) = failed.take().unwrap_or_default();
                    let all = if all.is_empty() { why } else { format!("{all}; {why}") };
                    failed = Some((all, before || shorter));
                }
            }
        }
        Err(failed.unwrap_or_else(|| ("no copy has these bytes".to_string(), false)))
    }

    /// Holds what was read from `start` of an extent, blocks of the file from `first` on, against its checksums. A block that
    /// differs is read once more, since the fault may have been on the way, and then from the other copies. Gives what is not as
    /// it was written, or may not be.
    async fn judge(
        &self,
        (extent, start, first): (Extent, u64, u64),
        holders: &Copies,
        known: &Known,
        found: &mut BufMut,
    ) -> Vec<LostRange> {
        let brick = self.bricks.get(&extent.brick);
        let is_stale = known.stale.contains(&extent.brick);
        let is_old = brick.and_then(|brick| brick.doubt.clone()).or_else(|| {
            let id = extent.brick;
            is_stale.then(|| {
                format!("read from brick {id}, which has lost something here: it may be old")
            })
        });
        let unknown = known.damaged.as_ref().map(|why| {
            format!("their checksums are lost, so that they may not be what was written: {why}")
        });
        let old = self.doubt.clone().or(is_old);
        let rotten = match &old {
            None => ROTTEN.to_string(),
            Some(old) => format!("{ROTTEN}; {old}"),
        };
        let doubt = old.or(unknown);
        let mut judged = Vec::new();
        for (number, block) in (0u64..).zip(found.chunks_exact_mut(BLOCK as usize)) {
            let at = (first + number) * BLOCK;
            let bytes = at..at + BLOCK;
            let sum = known.get(first + number);
            let mut agrees = sum == sum_of(block);
            if !agrees && sum != UNKNOWN {
                let within = start + number * BLOCK;
                let again =
                    std::iter::once(&extent).chain(holders.iter().filter(|one| **one != extent));
                for copy in again {
                    if let Ok(other) = self.read_blocks(*copy, within..within + BLOCK).await
                        && sum_of(&other) == sum
                    {
                        block.copy_from_slice(&other);
                        agrees = true;
                        break;
                    }
                }
            }
            match (&doubt, sum) {
                (_, 1..) if !agrees => {
                    add(&mut judged, LostRange { bytes, why: rotten.clone(), is_rotten: true });
                }
                // What the metadata names may be another file's, and then its checksum is, too.
                (Some(why), _) if !agrees || self.doubt.is_some() => {
                    add(&mut judged, LostRange { bytes, why: why.clone(), is_rotten: false });
                }
                _ => {}
            }
        }
        judged
    }

    /// Bytes `range` of an extent, whole blocks; else why not, and true if a shorter read may succeed.
    async fn read_blocks(
        &self,
        extent: Extent,
        range: Range<u64>,
    ) -> Result<BufMut, (String, bool)> {
        let Source { device, superblock, .. } =
            self.bricks.get(&extent.brick).ok_or_else(|| {
                (format!("brick {} is not there, or cannot be used", extent.brick), false)
            })?;
        let name = &device.info().name;
        let end = extent.start.checked_add(extent.blocks.into());
        if end.is_none_or(|end| end > superblock.data.len / BLOCK) {
            let why = format!("the metadata names blocks that brick {} has not", extent.brick);
            return Err((why, false));
        }
        let offset = superblock.data.offset + extent.start * BLOCK + range.start;
        let room = self.shard.pool().get((range.end - range.start) as usize);
        let outcome = IoSets::new(&self.shard).one(&**device, Request::read(offset, room)).await;
        let failed = |error: braid_device::IoError| {
            (format!("reading {name} failed: {error}"), !error.means_gone())
        };
        outcome.result.map_err(failed)?;
        match outcome.op {
            Op::Read(mut bufs) => {
                bufs.pop().ok_or_else(|| failed(braid_device::IoError::new(IoErrorKind::Invalid)))
            }
            _ => Err(failed(braid_device::IoError::new(IoErrorKind::Invalid))),
        }
    }
}
