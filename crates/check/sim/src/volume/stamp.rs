//! What is written into files, and how bytes that are read tell where they are from.
//!
//! Every aligned word of eight bytes names the write that it is from and its place in the file, scrambled by a
//! function that can be turned back. So any word found anywhere says whose it is. Does not know which is right.

use crate::rng::mix;

/// Names one write: the bytes follow from it and their offset. 0 is zeroes.
pub type Version = u32;

/// No write: bytes read as zero.
pub const ZEROES: Version = 0;
/// Bits of a word's number in its file.
const PLACE_BITS: u32 = 42;
/// Versions are less than this.
pub const VERSIONS: Version = 1 << (64 - PLACE_BITS);

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
    each_word(seed, version, offset, bytes.len(), |range, word| {
        bytes[range].copy_from_slice(word);
    });
}

/// The first byte of `bytes`, read at `offset`, that is not of `version`.
pub fn first_difference(seed: u64, version: Version, offset: u64, bytes: &[u8]) -> Option<usize> {
    let mut found = None;
    each_word(seed, version, offset, bytes.len(), |range, word| {
        if found.is_none() && bytes[range.clone()] != *word {
            let wrong = bytes[range.clone()].iter().zip(word).position(|(a, b)| a != b);
            found = Some(range.start + wrong.unwrap_or(0));
        }
    });
    found
}

/// Calls `each` with the words, or parts of words, of a range of `len` bytes.
fn each_word(
    seed: u64,
    version: Version,
    offset: u64,
    len: usize,
    mut each: impl FnMut(std::ops::Range<usize>, &[u8]),
) {
    let mut at = 0;
    while at < len {
        let place = offset + at as u64;
        let skip = (place % 8) as usize;
        let take = (8 - skip).min(len - at);
        let whole = word(seed, version, place / 8).to_le_bytes();
        each(at..at + take, &whole[skip..skip + take]);
        at += take;
    }
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
