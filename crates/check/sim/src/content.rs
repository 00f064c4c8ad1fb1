//! What is written into logical blocks, and how a block that is read tells where it is from.
//!
//! The content of a block encodes the seed, the block's number in the array and the version that was
//! written, so a block in the wrong place, from another run, or mixed of two versions is recognised.
//! Does not know which version is right.

use crate::rng::mix;
use std::fmt;

/// Names one write: the content of a block follows from it and the block's number.
pub type Version = u32;

/// Set in versions whose content is zeroes.
pub const ZERO: Version = 1 << 31;
/// Nothing is known of the content.
pub const ANY: Version = u32::MAX;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// What some bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Zeroes throughout.
    Zeroes,
    /// What version `version` of block `block` holds.
    Block {
        /// Number of the block in the array.
        block: u64,
        /// Which write it is from.
        version: Version,
    },
    /// The first `intact` bytes are of that block, the rest is not.
    Torn {
        /// Number of the block in the array.
        block: u64,
        /// Which write the beginning is from.
        version: Version,
        /// Bytes that fit.
        intact: usize,
    },
    /// Nothing that this run has written as data.
    Garbage,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Zeroes => write!(f, "zeroes"),
            Found::Block { block, version } => write!(f, "version {version} of block {block}"),
            Found::Torn { block, version, intact } => {
                write!(f, "{intact} bytes of version {version} of block {block}, then other bytes")
            }
            Found::Garbage => write!(f, "bytes that were never written as data (parity? garbage?)"),
        }
    }
}

fn head(seed: u64, block: u64, version: Version) -> (u64, u64) {
    let name = block << 32 | u64::from(version);
    (name ^ mix(seed), mix(name ^ seed.wrapping_mul(STEP)))
}

/// Fills `bytes` (a multiple of 16) with version `version` of block `block`.
pub fn fill(seed: u64, block: u64, version: Version, bytes: &mut [u8]) {
    if version & ZERO != 0 {
        return bytes.fill(0);
    }
    let (first, mut word) = head(seed, block, version);
    let (words, _) = bytes.as_chunks_mut();
    let Some((place, rest)) = words.split_first_mut() else { return };
    *place = first.to_le_bytes();
    for place in rest {
        *place = word.to_le_bytes();
        word = word.wrapping_add(STEP);
    }
}

/// Says what the bytes of one block are.
pub fn recognise(seed: u64, bytes: &[u8]) -> Found {
    let (words, _) = bytes.as_chunks();
    let [first, second, words @ ..] = words else { return Found::Garbage };
    let (first, second) = (u64::from_le_bytes(*first), u64::from_le_bytes(*second));
    // Without a branch for each word, here and below: most blocks are whole.
    if first == 0
        && second == 0
        && words.iter().fold(0, |any, word| any | u64::from_le_bytes(*word)) == 0
    {
        return Found::Zeroes;
    }
    let name = first ^ mix(seed);
    let (block, version) = (name >> 32, name as u32);
    if head(seed, block, version) != (first, second) {
        return Found::Garbage;
    }
    let (mut expected, mut differ) = (second, 0);
    for word in words {
        expected = expected.wrapping_add(STEP);
        differ |= u64::from_le_bytes(*word) ^ expected;
    }
    if differ == 0 {
        return Found::Block { block, version };
    }
    let word_at = |at: usize| second.wrapping_add(STEP.wrapping_mul(at as u64 + 1));
    let fits = |(at, word): &(usize, &[u8; 8])| u64::from_le_bytes(**word) == word_at(*at);
    let intact = 16 + 8 * words.iter().enumerate().take_while(fits).count();
    Found::Torn { block, version, intact }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_names_its_block_and_version_and_mixtures_are_seen() {
        let (mut one, mut two) = ([0; 512], [0; 512]);
        fill(9, 70_000, 3, &mut one);
        fill(9, 70_000, 4, &mut two);
        assert_eq!(recognise(9, &one), Found::Block { block: 70_000, version: 3 });
        one[256..].copy_from_slice(&two[256..]);
        assert_eq!(recognise(9, &one), Found::Torn { block: 70_000, version: 3, intact: 256 });
        assert_eq!(recognise(8, &two), Found::Garbage);
        fill(9, 1, ZERO | 5, &mut two);
        assert_eq!(recognise(9, &two), Found::Zeroes);
    }
}
