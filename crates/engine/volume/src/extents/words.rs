//! The bitmaps of a group of blocks: bits are set, cleared, and runs of them found.

use braid_format::volume::space::{GROUP_BLOCKS, WORDS};

/// A bitmap: a bit for each block of a group.
pub(super) type Words = Box<[u64; WORDS]>;

/// A run of blocks: the first, and how many.
pub type Run = (u64, u64);

/// True when the bit is set.
pub(super) fn get(words: &[u64; WORDS], at: u64) -> bool {
    words[(at / 64) as usize] >> (at % 64) & 1 == 1
}

/// Calls `change` with each word that the run touches and the bits of it.
fn each_word(words: &mut [u64; WORDS], at: u64, len: u64, change: impl Fn(&mut u64, u64)) {
    let (mut at, end) = (at, at + len);
    while at < end {
        let bits = (end - at).min(64 - at % 64);
        let mask = if bits == 64 { u64::MAX } else { ((1 << bits) - 1) << (at % 64) };
        change(&mut words[(at / 64) as usize], mask);
        at += bits;
    }
}

/// Sets a run of bits.
pub(super) fn set(words: &mut [u64; WORDS], at: u64, len: u64) {
    each_word(words, at, len, |word, mask| *word |= mask);
}

/// Clears a run of bits.
pub(super) fn clear(words: &mut [u64; WORDS], at: u64, len: u64) {
    each_word(words, at, len, |word, mask| *word &= !mask);
}

/// The first bit from `from` on that is `wanted`; [`GROUP_BLOCKS`] when there is none.
pub(super) fn next_bit(words: &[u64; WORDS], from: u64, wanted: bool) -> u64 {
    let mut at = from;
    while at < GROUP_BLOCKS {
        let word = words[(at / 64) as usize];
        let word = (if wanted { word } else { !word }) >> (at % 64);
        if word != 0 {
            return at + u64::from(word.trailing_zeros());
        }
        at = (at / 64 + 1) * 64;
    }
    GROUP_BLOCKS
}

/// The runs of set bits before `end`, which stand for blocks from `first` on.
pub(super) fn runs(words: &[u64; WORDS], end: u64, first: u64) -> Vec<Run> {
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        at = next_bit(words, at, true);
        if at >= end {
            return found;
        }
        let behind = next_bit(words, at, false).min(end);
        found.push((first + at, behind - at));
        at = behind;
    }
}

/// The first run of `len` clear bits from `from` on that begins at a multiple of `align`.
pub(super) fn find_run(words: &[u64; WORDS], from: u64, len: u64, align: u64) -> Option<u64> {
    let mut at = from;
    loop {
        at = next_bit(words, at, false).next_multiple_of(align);
        if at + len > GROUP_BLOCKS {
            return None;
        }
        match next_bit(words, at, true) {
            end if end >= at + len => return Some(at),
            end => at = end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_found_between_bits_that_are_set() {
        let mut words = Box::new([0; WORDS]);
        set(&mut words, 0, 100);
        set(&mut words, 130, 1);
        assert_eq!(find_run(&words, 0, 30, 1), Some(100));
        assert_eq!(find_run(&words, 0, 31, 1), Some(131));
        assert_eq!(find_run(&words, 0, 32, 32), Some(160));
        assert_eq!(find_run(&words, GROUP_BLOCKS - 4, 5, 1), None);
        clear(&mut words, 64, 8);
        assert_eq!(find_run(&words, 0, 8, 8), Some(64));
        assert!(get(&words, 72) && !get(&words, 71));
    }
}
