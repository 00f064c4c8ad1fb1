//! Where the next request goes: one after the other, or anywhere, within one generator's region.
//!
//! Owns the random numbers of a load. Does not know devices. Invariant: every offset is a multiple
//! of the block from the region's start, and the block that begins there lies within the region.

use std::ops::Range;

/// Random numbers that cost a few instructions (xorshift64* by Vigna). Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence that `seed` stands for.
    pub fn new(seed: u64) -> Random {
        // The state must not be zero; neighbouring seeds shall not give neighbouring states.
        Random((seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1)
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound` (0 when `bound` is 0).
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Part of a device that one generator works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    start: u64,
    block: u64,
    blocks: u64,
    next: u64,
}

impl Region {
    /// The share of shard `shard` of `shards` in the bytes `place` of a device, in whole blocks of
    /// `block` bytes; `None` when not even one block fits.
    pub fn share(place: Range<u64>, block: u64, shard: u64, shards: u64) -> Option<Region> {
        let size = place.end.saturating_sub(place.start);
        let blocks = (size / block).checked_div(shards)?;
        let start = place.start + shard * blocks * block;
        (blocks > 0).then_some(Region { start, block, blocks, next: 0 })
    }

    /// The block after the one before, round and round.
    pub fn sequential(&mut self) -> u64 {
        let at = self.next;
        self.next = if at + 1 == self.blocks { 0 } else { at + 1 };
        self.start + at * self.block
    }

    /// Any block.
    pub fn random(&mut self, random: &mut Random) -> u64 {
        self.start + random.below(self.blocks) * self.block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_shards_are_disjoint_and_within_the_device() {
        let (size, block, shards) = ((1 << 20) + 4095, 12288, 3);
        let mut last_end = 8192;
        for shard in 0..shards {
            let region = Region::share(8192..size, block, shard, shards).unwrap();
            assert!(region.start >= last_end);
            last_end = region.start + region.blocks * block;
        }
        assert!(last_end <= size);
        assert_eq!(Region::share(4096..8192, 8192, 0, 1), None);
    }

    #[test]
    fn sequential_offsets_cover_the_region_and_start_again() {
        let mut region = Region::share(0..40960, 4096, 1, 2).unwrap();
        let seen: Vec<u64> = (0..6).map(|_| region.sequential()).collect();
        assert_eq!(seen, [20480, 24576, 28672, 32768, 36864, 20480]);
    }

    #[test]
    fn random_offsets_reach_every_block_and_no_other() {
        let mut region = Region::share(0..32 * 4096, 4096, 1, 2).unwrap();
        let mut random = Random::new(7);
        let mut hits = [0u32; 32];
        for _ in 0..2000 {
            let at = region.random(&mut random);
            assert!(at.is_multiple_of(4096));
            hits[(at / 4096) as usize] += 1;
        }
        assert!(hits[..16].iter().all(|&n| n == 0) && hits[16..].iter().all(|&n| n > 60));
    }
}
