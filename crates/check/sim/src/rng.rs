//! Random numbers of one run: all from the seed, in streams that do not disturb each other.
//!
//! SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
//! Invariant: the same seed and stream give the same numbers on every machine.

use std::cell::Cell;
use std::ops::Range;

/// By how much the state of SplitMix64 grows with each number.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// One stream of numbers.
#[derive(Clone, Debug)]
pub struct Rng(Cell<u64>);

/// Choices that only some runs make, drawn from a stream of their own, so that the others stay as they were.
#[derive(Debug)]
pub struct Extra {
    /// The run has it.
    pub on: bool,
    /// Its stream.
    pub rng: Rng,
}

impl Extra {
    /// Stream `stream` of `seed`, for `percent` of 100 runs; a plain run has none of it.
    pub fn of(seed: u64, stream: u64, percent: u64, plain: bool) -> Extra {
        let rng = Rng::new(seed, stream);
        Extra { on: rng.percent(percent) && !plain, rng }
    }

    /// True in `percent` of 100 cases, where the run has it. For a `percent` of 0 no number is drawn.
    pub fn chance(&self, percent: u64) -> bool {
        self.on && percent > 0 && self.rng.percent(percent)
    }
}

/// Scrambles a number: the output function of SplitMix64.
#[inline]
pub fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Rng {
    /// Stream `stream` of `seed`.
    pub fn new(seed: u64, stream: u64) -> Rng {
        Rng(Cell::new(mix(seed ^ mix(stream.wrapping_mul(STEP)))))
    }

    /// The next 64 bits.
    #[inline]
    pub fn next(&self) -> u64 {
        let state = self.0.get().wrapping_add(STEP);
        self.0.set(state);
        mix(state)
    }

    /// The number that [`Rng::next`] gives after `count` others.
    #[inline]
    pub fn after(&self, count: u64) -> u64 {
        mix(self.0.get().wrapping_add(STEP.wrapping_mul(count + 1)))
    }

    /// Leaves out so many numbers.
    pub fn skip(&self, count: u64) {
        self.0.set(self.0.get().wrapping_add(STEP.wrapping_mul(count)));
    }

    /// A number of `range`; its start when it is empty.
    #[inline]
    pub fn range(&self, range: Range<u64>) -> u64 {
        let span = range.end.saturating_sub(range.start);
        if span == 0 { range.start } else { range.start + self.next() % span }
    }

    /// An index below `count`; 0 when that is 0.
    pub fn below(&self, count: usize) -> usize {
        self.range(0..count as u64) as usize
    }

    /// True in `percent` of 100 cases.
    #[inline]
    pub fn percent(&self, percent: u64) -> bool {
        self.range(0..100) < percent
    }

    /// One of `items`, which must not be empty.
    pub fn pick<'a, T>(&self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// A number up to `max`, small ones as likely as large ones by order of magnitude.
    pub fn log_range(&self, range: Range<u64>) -> u64 {
        let (low, high) = (range.start.max(1), range.end.max(2));
        let (bits_low, bits_high) = (low.ilog2(), (high - 1).max(1).ilog2());
        let bits = self.range(u64::from(bits_low)..u64::from(bits_high) + 1);
        let value = (1u64 << bits) + self.range(0..1 << bits);
        value.clamp(range.start, range.end.saturating_sub(1).max(range.start))
    }

    /// Puts `items` in random order.
    pub fn shuffle<T>(&self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_repeats_and_streams_differ() {
        let numbers = |seed, stream| {
            let rng = Rng::new(seed, stream);
            [(); 4].map(|()| rng.next())
        };
        assert_eq!(numbers(7, 1), numbers(7, 1));
        assert_ne!(numbers(7, 1), numbers(7, 2));
        assert_ne!(numbers(7, 1), numbers(8, 1));
    }

    #[test]
    fn numbers_are_looked_up_and_left_out_without_making_those_before() {
        let (rng, ahead) = (Rng::new(7, 1), Rng::new(7, 1));
        let numbers = [(); 8].map(|()| rng.next());
        assert_eq!([0, 1, 6].map(|count| ahead.after(count)), [0, 1, 6].map(|nr| numbers[nr]));
        ahead.skip(5);
        assert_eq!([(); 3].map(|()| ahead.next()), numbers[5..]);
    }

    #[test]
    fn ranges_stay_inside() {
        let rng = Rng::new(3, 0);
        for _ in 0..10_000 {
            assert!((5..9).contains(&rng.range(5..9)));
            assert!((1..100).contains(&rng.log_range(1..100)));
        }
        assert_eq!(rng.range(4..4), 4);
    }
}
