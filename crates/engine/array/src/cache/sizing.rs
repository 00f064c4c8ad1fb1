//! The target size of the cache, and which stripes are worth keeping.
//!
//! A cache whose size is `auto` starts small. It doubles while lines that were evicted are wanted again
//! often enough: one of the size that it is bound to would have had them. It keeps only a sample of stripes while nothing is
//! found at all, so that writes that never come back cost no copies; the sample shows when they do.

/// Lines that an `auto` cache starts with: md's `stripe_cache_size`.
const START: u32 = 256;
/// Blocks wanted before the next decision.
const WINDOW: u64 = 512;
/// Grows when more than one in so many blocks was wanted too late.
const GROW_SHARE: u64 = 32;
/// Samples when less than one in so many blocks was found.
const SAMPLE_SHARE: u64 = 64;
/// One stripe in so many is kept while sampling.
const SAMPLE: u64 = 8;

/// See the module's documentation.
pub(super) struct Sizing {
    fixed: bool,
    capacity: u32,
    bound: u32,
    sampling: bool,
    hits: u64,
    wanted: u64,
    early: u64,
}

impl Sizing {
    pub(super) fn new(fixed: Option<u32>, bound: u32) -> Sizing {
        Sizing {
            fixed: fixed.is_some(),
            capacity: fixed.unwrap_or(START.min(bound)),
            bound,
            sampling: false,
            hits: 0,
            wanted: 0,
            early: 0,
        }
    }

    /// The size was set, and stays.
    #[inline]
    pub(super) fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// Lines that may be held now.
    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Counts what was wanted; `early`: of a stripe that was evicted before. The new capacity, when it
    /// is another one.
    pub(super) fn wanted(&mut self, hits: u64, misses: u64, early: bool) -> Option<u32> {
        self.hits += hits;
        self.wanted += hits + misses;
        self.early += if early { misses } else { 0 };
        if self.wanted < WINDOW {
            return None;
        }
        self.sampling = !self.fixed && (self.hits + self.early) * SAMPLE_SHARE < self.wanted;
        let grow = !self.fixed && self.early * GROW_SHARE > self.wanted;
        (self.hits, self.wanted, self.early) = (0, 0, 0);
        let larger = self.capacity.saturating_mul(2).clamp(START.min(self.bound), self.bound);
        if !grow || larger == self.capacity {
            return None;
        }
        self.capacity = larger;
        Some(larger)
    }

    /// True if blocks of this stripe should be cached.
    pub(super) fn admits(&self, stripe: u64) -> bool {
        // Fibonacci hashing: neighbouring stripes fall apart, and the same ones are always chosen.
        !self.sampling || (stripe.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32).is_multiple_of(SAMPLE)
    }

    /// Half as large, unless it is fixed or small already.
    pub(super) fn shrink(&mut self) -> Option<u32> {
        if !self.can_shrink() {
            return None;
        }
        self.capacity = (self.capacity / 2).max(START.min(self.bound));
        Some(self.capacity)
    }

    /// [`Sizing::shrink`] would give something back.
    pub(super) fn can_shrink(&self) -> bool {
        !self.fixed && self.capacity > START.min(self.bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_while_lines_are_evicted_too_early_and_not_beyond_its_bound() {
        let mut sizing = Sizing::new(None, 1000);
        for _ in 0..100 {
            sizing.wanted(0, WINDOW, true);
        }
        assert_eq!(sizing.capacity(), 1000);
        assert!(sizing.admits(1));
        while sizing.shrink().is_some() {}
        assert_eq!(sizing.capacity(), START);
    }

    #[test]
    fn writes_that_never_come_back_are_sampled_and_those_that_do_are_kept() {
        let mut sizing = Sizing::new(None, 1000);
        sizing.wanted(0, WINDOW, false);
        let kept = (0..8000).filter(|stripe| sizing.admits(*stripe)).count();
        assert!((800..1200).contains(&kept), "{kept} of 8000");
        assert_eq!(sizing.capacity(), START);
        sizing.wanted(WINDOW / 8, WINDOW, false);
        assert!((0..8000).all(|stripe| sizing.admits(stripe)));
    }

    #[test]
    fn a_fixed_size_stays() {
        let mut sizing = Sizing::new(Some(17), 1000);
        assert_eq!(sizing.wanted(0, WINDOW, true), None);
        assert_eq!(sizing.shrink(), None);
        assert_eq!(sizing.capacity(), 17);
    }
}
