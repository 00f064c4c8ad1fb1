//! The bytes that a job asks of each member at a time while clients want the members too.
//!
//! A request of a client waits for one window of the job at most. A window takes as long as any request to these members, and
//! as long as its bytes take. So windows are made as large as they can be while the second part is less than half of the
//! first: then the latency of a client grows by less than that, and the job still gets most of what is left. What both parts
//! are is seen from windows of several sizes, and forgotten after a while: the load changes.
//!
//! Invariant: what is asked at once are whole pieces of 4096 bytes, aligned, as mismatches are counted.

use crate::metadata::bitmap::ranges::slice_bytes;
use braid_shard::Nanos;

/// Bytes of a window of the smallest size; each size is twice the one before.
const SMALLEST: u64 = 4096;
const SIZES: usize = 9;
/// The times of windows count for so long, in nanoseconds.
const FORGET_AFTER: Nanos = 2_000_000_000;
/// A window that takes less is in nobody's way, in nanoseconds.
const SHORT: Nanos = 10_000;

/// See the module's documentation.
pub(super) struct Gentle {
    /// Bytes of a unit on each member.
    unit: u64,
    size: usize,
    /// The least time of a window, by size.
    best: [Option<Nanos>; SIZES],
    since: Nanos,
}

impl Gentle {
    pub(super) fn new(unit: u64) -> Gentle {
        Gentle { unit: unit.max(1), size: 0, best: [None; SIZES], since: 0 }
    }

    fn bytes(&self) -> u64 {
        SMALLEST << self.size
    }

    /// Units of a window; 0: it is a part of one.
    pub(super) fn units(&self) -> u64 {
        self.bytes() / self.unit
    }

    /// Those of the slices `wanted` of a unit that are to be gone through at once.
    pub(super) fn slices(&self, wanted: u64, block: u32) -> u64 {
        let slice = slice_bytes(self.unit, block.into());
        let there = self.unit.div_ceil(slice).min(64) as u32;
        let real = wanted & u64::MAX.checked_shr(64 - there).unwrap_or(0);
        let at_once = (self.bytes() / slice).clamp(1, 64) as u32;
        let first = real.trailing_zeros() / at_once * at_once;
        let group = u64::MAX.checked_shr(64 - at_once).unwrap_or(0).checked_shl(first);
        let taken = real & group.unwrap_or(0);
        if taken == real { wanted } else { taken }
    }

    /// Bytes of a window of each member.
    pub(super) fn bytes_of(&self, units: u64, slices: u64, block: u32) -> u64 {
        if slices == u64::MAX {
            return units.saturating_mul(self.unit);
        }
        slice_bytes(self.unit, block.into()) * u64::from(slices.count_ones())
    }

    /// A window of so many bytes has taken so long.
    pub(super) fn took(&mut self, now: Nanos, bytes: u64, nanos: Nanos) {
        if now.saturating_sub(self.since) > FORGET_AFTER {
            *self = Gentle { since: now, ..Gentle::new(self.unit) };
        }
        let size = (bytes / SMALLEST).max(1).ilog2() as usize;
        let Some(best) = self.best.get_mut(size) else { return };
        *best = Some(best.map_or(nanos, |known| known.min(nanos)));
        self.choose();
    }

    fn choose(&mut self) {
        // A unit may be larger than the smallest window.
        let Some(smallest) = self.best.iter().flatten().next() else { return };
        let limit = (smallest + smallest / 2).max(SHORT);
        let fits = |size: usize| self.best.get(size).copied().flatten().map(|took| took <= limit);
        let larger = self.size + 1;
        if fits(self.size) == Some(false) {
            self.size = self.size.saturating_sub(1);
        } else if fits(self.size) == Some(true) && larger < SIZES && fits(larger) != Some(false) {
            self.size = larger;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a window after many, where any request takes `fixed` and each byte `per_kib` / 1024.
    fn settled(unit: u64, fixed: Nanos, per_kib: Nanos) -> u64 {
        let mut gentle = Gentle::new(unit);
        for nr in 0..100 {
            let bytes = match gentle.units() {
                0 => gentle.bytes_of(1, gentle.slices(u64::MAX, 512), 512),
                units => units * unit,
            };
            gentle.took(nr, bytes, fixed + bytes / 1024 * per_kib);
        }
        gentle.bytes()
    }

    #[test]
    fn windows_are_as_large_as_they_can_be_without_taking_half_as_long_again() {
        // A SATA SSD: 80 us, 500 MB/s.
        let ssd = settled(64 << 10, 80_000, 2_000);
        assert!((8 << 10..=32 << 10).contains(&ssd), "{ssd}");
        // A disk with heads: 12 ms, 150 MB/s.
        let disk = settled(64 << 10, 12_000_000, 6_800);
        assert!((512 << 10..=1 << 20).contains(&disk), "{disk}");
        // Memory is in nobody's way.
        assert!(settled(64 << 10, 100, 50) >= 64 << 10);
    }

    #[test]
    fn the_slices_of_a_unit_are_gone_through_once_each_in_aligned_groups() {
        for (unit, block) in [(64 << 10, 512), (4096, 512), (4096, 4096), (512 << 10, 4096)] {
            for size in 0..SIZES {
                let gentle = Gentle { size, ..Gentle::new(unit) };
                let (mut left, mut turns, mut seen) = (u64::MAX, 0, 0);
                while left != 0 {
                    let taken = gentle.slices(left, block);
                    assert!(taken != 0 && taken & !left == 0);
                    (left, turns, seen) = (left & !taken, turns + 1, seen | taken);
                }
                assert_eq!(seen, u64::MAX);
                assert_eq!(turns, unit.div_ceil(SMALLEST << size).min(64), "{unit} {block} {size}");
            }
        }
    }
}
