//! A small generator of reproducible numbers, for models and faults: SplitMix64
//! (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
//!
//! Its state is a counter, so shards can share one generator without waiting for each other.

use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct Random(AtomicU64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(AtomicU64::new(seed))
    }

    pub(crate) fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, or 0 if that is 0.
    pub(crate) fn below(&self, limit: u64) -> u64 {
        self.next().checked_rem(limit).unwrap_or(0)
    }

    /// True for this share of the calls, from 0 to 1.
    pub(crate) fn chance(&self, share: f64) -> bool {
        // A double holds 53 bits exactly.
        let drawn = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        drawn < share
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn the_first_numbers_of_seed_0_are_the_published_ones() {
        let random = Random::new(0);
        let first = [(); 3].map(|()| random.next());
        assert_eq!(first, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }

    #[test]
    fn chances_and_limits_are_kept_at_their_ends() {
        let random = Random::new(1);
        assert!((0..1000).all(|_| random.chance(1.0) && !random.chance(0.0)));
        assert!((0..1000).all(|_| random.below(3) < 3 && random.below(0) == 0));
    }
}
