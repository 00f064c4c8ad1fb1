//! The stripes, sub-blocks and blocks of a range of a file.

use braid_format::volume::BLOCK;
use braid_format::volume::extent::{Extent, sub_block};
use std::ops::Range;

/// The sizes that a volume was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a stripe, a power of two.
    pub stripe: u64,
    /// Bytes of a sub-block: what is written or not written as a whole.
    pub sub_block: u64,
}

/// The part of a range that lies in one stripe. Offsets are bytes from the start of the stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of the stripe.
    pub stripe: u64,
    /// First byte.
    pub from: u64,
    /// After the last byte.
    pub to: u64,
}

/// Rounds down to a multiple of `unit`, a power of two.
pub fn down(value: u64, unit: u64) -> u64 {
    value & !(unit - 1)
}

/// Rounds up; values near the end of the range of numbers stay there.
pub fn up(value: u64, unit: u64) -> u64 {
    down(value.saturating_add(unit - 1), unit)
}

impl Geometry {
    /// Of stripes of `stripe` bytes.
    pub fn new(stripe: u64) -> Geometry {
        Geometry { stripe, sub_block: sub_block(stripe) }
    }

    /// Blocks of a whole stripe.
    pub fn blocks(&self) -> u64 {
        self.stripe / BLOCK
    }

    /// Blocks of an extent that holds the first `bytes` bytes of a stripe: whole sub-blocks, so that an extent that grows has
    /// no sub-block of which a part was never written.
    pub fn blocks_to(&self, bytes: u64) -> u64 {
        up(bytes, self.sub_block) / BLOCK
    }

    /// The pieces of `range`, in order.
    pub fn pieces(self, range: Range<u64>) -> impl Iterator<Item = Piece> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let stripe = at / self.stripe;
            let from = at % self.stripe;
            let to = self.stripe.min(from + (range.end - at));
            at += to - from;
            Some(Piece { stripe, from, to })
        })
    }

    /// Widens a range to all of a stripe; true: it has it all already.
    pub fn widen(&self, range: &mut Range<u64>, stripe: u64) -> bool {
        let start = stripe * self.stripe;
        let end = start + self.stripe;
        let had_all = range.start <= start && range.end >= end;
        range.start = range.start.min(start);
        range.end = range.end.max(end);
        had_all
    }

    /// Bits of the sub-blocks that overlap `from..to` of a stripe.
    pub fn touched(&self, from: u64, to: u64) -> u32 {
        if from >= to {
            return 0;
        }
        bits(from / self.sub_block, to.div_ceil(self.sub_block))
    }

    /// Bits of the sub-blocks that lie wholly in `from..to` of a stripe.
    pub fn covered(&self, from: u64, to: u64) -> u32 {
        bits(from.div_ceil(self.sub_block), to / self.sub_block)
    }

    /// Cuts `from..to` of a stripe, multiples of a block, into the longest parts that are all on the brick or all
    /// zero; true: on the brick.
    pub fn runs(
        self,
        extent: Extent,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = (Range<u64>, bool)> {
        let mut at = from;
        std::iter::from_fn(move || {
            if at >= to {
                return None;
            }
            let start = at;
            let kind = self.is_written(extent, at);
            while at < to && self.is_written(extent, at) == kind {
                at = (down(at, self.sub_block) + self.sub_block)
                    .min(to)
                    .min(self.next_edge(extent, at));
            }
            Some((start..at, kind))
        })
    }

    /// Bytes of the extent that are written.
    pub fn written_bytes(&self, extent: Extent) -> u64 {
        let end = u64::from(extent.blocks) * BLOCK;
        let whole = (extent.written & self.covered(0, end)).count_ones();
        let tail = match self.is_written(extent, down(end, self.sub_block)) {
            true => end % self.sub_block,
            false => 0,
        };
        u64::from(whole) * self.sub_block + tail
    }

    /// The end of the extent, when it lies after `at`.
    fn next_edge(&self, extent: Extent, at: u64) -> u64 {
        let end = u64::from(extent.blocks) * BLOCK;
        if end > at { end } else { u64::MAX }
    }

    /// True when the byte at `at` of the stripe is to be read from the brick.
    pub fn is_written(&self, extent: Extent, at: u64) -> bool {
        at < u64::from(extent.blocks) * BLOCK && extent.written >> (at / self.sub_block) & 1 == 1
    }
}

fn bits(from: u64, to: u64) -> u32 {
    if from >= to {
        return 0;
    }
    let below = |count: u64| if count >= 32 { u32::MAX } else { (1 << count) - 1 };
    below(to) & !below(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_stripes() {
        let geometry = Geometry::new(128 << 10);
        let pieces: Vec<Piece> = geometry.pieces(100_000..400_000).collect();
        let total: u64 = pieces.iter().map(|piece| piece.to - piece.from).sum();
        assert_eq!((pieces.len(), total), (4, 300_000));
        assert_eq!(pieces[0], Piece { stripe: 0, from: 100_000, to: 131_072 });
        assert_eq!(pieces[3].to, 400_000 - 3 * 131_072);
    }

    #[test]
    fn runs_follow_the_written_granules_and_end_with_the_place() {
        let geometry = Geometry::new(128 << 10);
        let extent = Extent { written: 0b1101, blocks: 3, ..Extent::HOLE };
        let runs: Vec<(Range<u64>, bool)> = geometry.runs(extent, 0, 20480).collect();
        assert_eq!(
            runs,
            vec![(0..4096, true), (4096..8192, false), (8192..12288, true), (12288..20480, false)]
        );
        assert_eq!(geometry.written_bytes(extent), 8192);
        assert_eq!(geometry.touched(4095, 4097), 0b11);
        assert_eq!(geometry.covered(1, 12288), 0b110);
        assert_eq!(geometry.touched(0, 128 << 10), u32::MAX);
    }

    #[test]
    fn written_bytes_are_those_of_the_written_runs() {
        let geometry = Geometry::new(512 << 10);
        let lists = [0, 1, 0b101, 0x8000_0000, 0xf0f0_0f0f, u32::MAX];
        for (written, blocks) in lists.into_iter().flat_map(|one| (0..=128).map(move |n| (one, n)))
        {
            let extent = Extent { written, blocks, ..Extent::HOLE };
            let runs = geometry.runs(extent, 0, u64::from(blocks) * BLOCK);
            let written = runs.filter(|(_, is_written)| *is_written);
            let bytes: u64 = written.map(|(run, _)| run.end - run.start).sum();
            assert_eq!(geometry.written_bytes(extent), bytes, "{extent:?}");
        }
    }
}
