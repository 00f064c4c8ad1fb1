//! The bytes of a stripe, held against their checksums.
//!
//! Invariant: bytes that agree with a checksum that is known are what was written, whatever brick they come from; of all others it
//! is said why they may not be.

use super::read::{LostRange, Salvage, Source, add};
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
        extent: Extent,
        size: u64,
        take: &mut impl FnMut(u64, &[u8]) -> bool,
        lost: &mut Vec<LostRange>,
    ) -> bool {
        let held = self.geometry.stripe.min(u64::from(extent.blocks) * BLOCK);
        for (run, written) in self.geometry.runs(extent, 0, held) {
            let end = (at + run.end).min(size);
            if !written || at + run.start >= end {
                continue;
            }
            let blocks = (at + run.start) / BLOCK..(at + run.end) / BLOCK;
            let known = self.known_of(ino, blocks).await;
            let mut pieces = vec![run];
            while let Some(piece) = pieces.pop() {
                let bytes = at + piece.start..(at + piece.end).min(size);
                if bytes.is_empty() {
                    continue;
                }
                match self.read_blocks(extent, piece.clone()).await {
                    Ok(mut found) => {
                        let (first, start) = (bytes.start / BLOCK, piece.start);
                        let judged = self.judge(extent, start, first, &known, &mut found).await;
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

    /// Holds what was read from `start` of an extent, blocks of the file from `first` on, against its checksums. A block that
    /// differs is read once more, since the fault may have been on the way. Gives what is not as it was written, or may not be.
    async fn judge(
        &self,
        extent: Extent,
        start: u64,
        first: u64,
        known: &Known,
        found: &mut BufMut,
    ) -> Vec<LostRange> {
        let brick = self.bricks.get(&extent.brick);
        let is_old = brick.and_then(|brick| brick.doubt.clone());
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
                if let Ok(again) = self.read_blocks(extent, within..within + BLOCK).await
                    && sum_of(&again) == sum
                {
                    block.copy_from_slice(&again);
                    agrees = true;
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
