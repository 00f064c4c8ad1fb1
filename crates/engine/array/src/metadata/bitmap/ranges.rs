//! Set bits as the byte ranges that a job goes through.

use crate::metadata::bitmap::Shape;
use braid_format::bitmap::Bits;
use std::ops::Range;

/// Bytes of a bitmap, ascending, apart from each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<Range<u64>>);

/// The next piece of work of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Its first unit.
    pub(crate) first: u64,
    /// Number of units; 1 when not all slices are wanted.
    pub(crate) count: u64,
    /// Which of the 64 slices of the unit are wanted; all ones: the units as a whole.
    pub(crate) slices: u64,
}

/// Bytes of one of the slices of a unit: a sixty-fourth, but no less than a block.
pub(crate) fn slice_bytes(unit: u64, block: u64) -> u64 {
    (unit / 64).max(block).max(1)
}

impl Ranges {
    /// The bytes under the set bits, from byte `from` on.
    pub(crate) fn of(bits: &Bits, shape: Shape, from: u64) -> Ranges {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for bit in bits.iter_set() {
            // Bits are fewer than `BITS_MAX`.
            let bytes = shape.bytes(bit as u32);
            let bytes = bytes.start.max(from)..bytes.end;
            match ranges.last_mut() {
                _ if bytes.is_empty() => {}
                Some(last) if last.end == bytes.start => last.end = bytes.end,
                _ => ranges.push(bytes),
            }
        }
        Ranges(ranges)
    }

    /// The ranges, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.0.iter()
    }

    /// Where the first range begins.
    pub(crate) fn start(&self) -> Option<u64> {
        self.0.first().map(|range| range.start)
    }

    /// The first work at or after unit `next`, of units of `unit` bytes; `None` when there is none.
    pub(crate) fn next(&self, next: u64, unit: u64, block: u64) -> Option<Piece> {
        let at = self.0.partition_point(|range| range.end <= next.saturating_mul(unit));
        let range = self.0.get(at)?;
        let first = (range.start / unit).max(next);
        if range.start <= first * unit && range.end >= (first + 1) * unit {
            return Some(Piece { first, count: range.end / unit - first, slices: u64::MAX });
        }
        let slice = slice_bytes(unit, block);
        let (base, end) = (first * unit, (first + 1) * unit);
        let mut slices = 0u64;
        for range in self.0.get(at..).unwrap_or_default() {
            if range.start >= end {
                break;
            }
            let start = (range.start.max(base) - base) / slice;
            let stop = (range.end.min(end) - base).div_ceil(slice);
            for nr in start..stop.min(64) {
                slices |= 1 << nr;
            }
        }
        Some(Piece { first, count: 1, slices })
    }
}

/// The byte runs of a unit of `unit` bytes, `len` of which are in use, that `slices` wants.
pub(crate) fn runs(slices: u64, unit: u64, len: u64, block: u64) -> Vec<Range<u64>> {
    if slices == u64::MAX {
        return std::iter::once(0..len).collect();
    }
    let slice = slice_bytes(unit, block);
    let mut runs: Vec<Range<u64>> = Vec::new();
    for nr in (0..64).filter(|nr| slices >> nr & 1 != 0) {
        let bytes = (nr * slice).min(len)..((nr + 1) * slice).min(len);
        match runs.last_mut() {
            _ if bytes.is_empty() => {}
            Some(last) if last.end == bytes.start => last.end = bytes.end,
            _ => runs.push(bytes),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::bitmap::keeper::clear_bits;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_cover_every_set_byte_and_little_else(
            set in proptest::collection::btree_set(0u64..64, 0..20),
            bit_shift in 12u32..17, unit_shift in 12u32..21, from in 0u64..1 << 18,
        ) {
            let mut bits = clear_bits(64);
            for bit in &set {
                bits.set(*bit);
            }
            let shape = Shape::new(1 << bit_shift, 64);
            let ranges = Ranges::of(&bits, shape, from);
            let (unit, block) = (1u64 << unit_shift, 512);
            let mut covered = std::collections::BTreeSet::new();
            let mut next = 0;
            while let Some(piece) = ranges.next(next, unit, block) {
                prop_assert!(piece.first >= next && piece.count > 0);
                next = piece.first + piece.count;
                for first in piece.first..next {
                    for run in runs(piece.slices, unit, unit, block) {
                        let at = first * unit + run.start..first * unit + run.end;
                        covered.extend((at.start / 512)..(at.end / 512));
                    }
                }
            }
            let slice = slice_bytes(unit, block) / 512;
            for bit in 0..64 {
                let bytes = shape.bytes(bit);
                for sector in bytes.start.max(from).div_ceil(512)..bytes.end / 512 {
                    let wanted = set.contains(&u64::from(bit));
                    let near = (sector / slice * slice..(sector / slice + 1) * slice)
                        .any(|s| set.contains(&((s * 512) >> bit_shift)));
                    prop_assert!(!wanted || covered.contains(&sector));
                    prop_assert!(near || !covered.contains(&sector));
                }
            }
        }
    }

    #[test]
    fn a_unit_with_holes_is_one_piece_and_a_run_of_whole_units_another() {
        let mut bits = clear_bits(64);
        for bit in [0, 2, 8, 9, 10, 11, 12, 13, 14, 15] {
            bits.set(bit);
        }
        let ranges = Ranges::of(&bits, Shape::new(4096, 64), 0);
        let piece = ranges.next(0, 16384, 4096).unwrap();
        assert_eq!(piece, Piece { first: 0, count: 1, slices: 0b101 });
        assert_eq!(runs(piece.slices, 16384, 16384, 4096), [0..4096, 8192..12288]);
        let piece = ranges.next(1, 16384, 4096).unwrap();
        assert_eq!(piece, Piece { first: 2, count: 2, slices: u64::MAX });
        assert_eq!(ranges.next(4, 16384, 4096), None);
    }
}
