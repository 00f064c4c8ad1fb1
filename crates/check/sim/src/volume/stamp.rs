//! What is written into files, and how bytes that are read tell where they are from.
//!
//! Every aligned word of eight bytes names the write that it is from and its place in the file, scrambled by a
//! function that can be turned back. So any word found anywhere says whose it is. Does not know which is right.

use crate::rng::mix;
use std::ops::Range;

/// Names one write: the bytes follow from it and their offset. 0 is zeroes.
pub type Version = u32;

/// No write: bytes read as zero.
pub const ZEROES: Version = 0;
/// Bits of a word's number in its file.
const PLACE_BITS: u32 = 42;
/// Versions are less than this.
pub const VERSIONS: Version = 1 << (64 - PLACE_BITS);

/// Stands for content that is not known: all bytes agree with it.
pub const UNKNOWN: Version = VERSIONS;

fn word(seed: u64, version: Version, place: u64) -> u64 {
    if version == ZEROES {
        return 0;
    }
    mix(u64::from(version) << PLACE_BITS | place) ^ mix(seed | 1)
}

/// Turns [`mix`] back.
fn unmix(mut value: u64) -> u64 {
    value ^= value >> 31 ^ value >> 62;
    value = value.wrapping_mul(0x3196_42b2_d24d_8ec3);
    value ^= value >> 27 ^ value >> 54;
    value = value.wrapping_mul(0x96de_1b17_3f11_9089);
    value ^ value >> 30 ^ value >> 60
}

/// Fills `bytes` with what `version` holds from `offset` of its file on.
pub fn fill(seed: u64, version: Version, offset: u64, bytes: &mut [u8]) {
    let place = offset.div_ceil(8);
    let (edges, whole) = cut(offset, bytes.len());
    for (place, bytes) in (place..).zip(bytes[whole].chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word(seed, version, place).to_le_bytes());
    }
    for at in edges.into_iter().flatten() {
        bytes[at] = byte(seed, version, offset + at as u64);
    }
}

/// The first byte of `bytes`, read at `offset`, that is not of `version`.
pub fn first_difference(seed: u64, version: Version, offset: u64, bytes: &[u8]) -> Option<usize> {
    if version == UNKNOWN {
        return None;
    }
    let place = offset.div_ceil(8);
    let ([mut before, mut after], whole) = cut(offset, bytes.len());
    let wrong = |at: &usize| bytes[*at] != byte(seed, version, offset + *at as u64);
    let same = (place..).zip(bytes[whole.clone()].chunks_exact(8)).position(|(place, bytes)| {
        // Loaded as one number: this loop reads every byte of every file over and over.
        bytes.try_into().map(u64::from_le_bytes).ok() != Some(word(seed, version, place))
    });
    let in_word = |nr: usize| whole.start + nr * 8..whole.start + nr * 8 + 8;
    let inside = || same.and_then(|nr| in_word(nr).find(wrong));
    before.find(wrong).or_else(inside).or_else(|| after.find(wrong))
}

/// The bytes of `len` at `offset` that whole words cover, and those before and after them.
fn cut(offset: u64, len: usize) -> ([Range<usize>; 2], Range<usize>) {
    let head = ((8 - offset % 8) % 8).min(len as u64) as usize;
    let tail = len - (len - head) % 8;
    ([0..head, tail..len], head..tail)
}

/// One byte of what `version` holds.
fn byte(seed: u64, version: Version, offset: u64) -> u8 {
    word(seed, version, offset / 8).to_le_bytes()[(offset % 8) as usize]
}

/// What the aligned word around byte `at` of `bytes` (read at `offset`) says of itself: which write, and which
/// byte of its file. `None` when it is cut off, or not of this run.
pub fn recognise(seed: u64, offset: u64, bytes: &[u8], at: usize) -> Option<(Version, u64)> {
    let skip = ((offset + at as u64) % 8) as usize;
    let start = at.checked_sub(skip)?;
    let raw = bytes.get(start..start + 8)?;
    let mut whole = [0; 8];
    whole.copy_from_slice(raw);
    let name = unmix(u64::from_le_bytes(whole) ^ mix(seed | 1));
    Some(((name >> PLACE_BITS) as Version, (name & ((1 << PLACE_BITS) - 1)) * 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_name_their_write_and_place_whatever_the_alignment() {
        let (mut one, mut two) = (vec![0; 100], vec![0; 40]);
        fill(5, 77, 1003, &mut one);
        fill(5, 77, 1020, &mut two);
        assert_eq!(one[17..57], two[..]);
        assert_eq!(recognise(5, 1003, &one, 30), Some((77, 1032)));
        assert_eq!(first_difference(5, 77, 1003, &one), None);
        one[50] ^= 1;
        assert_eq!(first_difference(5, 77, 1003, &one), Some(50));
        assert_ne!(first_difference(5, 78, 1020, &two), None);
    }

    #[test]
    fn nothing_written_is_zeroes() {
        let mut bytes = [1; 9];
        fill(5, ZEROES, 3, &mut bytes);
        assert_eq!(bytes, [0; 9]);
    }
}
