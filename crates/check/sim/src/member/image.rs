//! The bytes of a member, of which only those cost time and memory that are looked at.
//!
//! A member may start with random bytes. They follow from their place, so that a piece of them is made when it is first
//! touched: large members of which little is used are as quick as small ones. Does not know what is durable.

use crate::rng::Rng;
use std::ops::Range;

/// Bytes that are made together.
const PIECE: u64 = 64 << 10;
const WORD: u64 = 8;

/// See the module's documentation.
pub(super) struct Image {
    bytes: Vec<u8>,
    /// Random bytes to start with, in place of zeroes, and which pieces have theirs.
    garbage: Option<(Rng, Vec<bool>)>,
}

impl Image {
    /// `size` bytes: the numbers that `garbage` gives, else zeroes.
    pub fn new(size: usize, garbage: Option<&Rng>) -> Image {
        // Zeroed memory costs nothing until it is touched.
        let mut image = Image { bytes: vec![0; size], garbage: None };
        if let Some(rng) = garbage {
            image.renew(rng);
        }
        image
    }

    /// All of it is what the next numbers of `rng` are, which stays where it is.
    pub fn renew(&mut self, rng: &Rng) {
        let pieces = self.len().div_ceil(PIECE) as usize;
        self.garbage = Some((rng.clone(), vec![false; pieces]));
    }

    /// In bytes.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The bytes of `range`, which lies within.
    pub fn get(&mut self, range: Range<u64>) -> &[u8] {
        self.get_mut(range)
    }

    /// The bytes of `range`, which lies within, to be changed.
    pub fn get_mut(&mut self, range: Range<u64>) -> &mut [u8] {
        if let Some((rng, made)) = &mut self.garbage {
            for piece in range.start / PIECE..range.end.div_ceil(PIECE) {
                if !std::mem::replace(&mut made[piece as usize], true) {
                    fill(&mut self.bytes, piece, rng);
                }
            }
        }
        &mut self.bytes[range.start as usize..range.end as usize]
    }
}

fn fill(bytes: &mut [u8], piece: u64, rng: &Rng) {
    let start = piece * PIECE;
    let end = (start + PIECE).min(bytes.len() as u64);
    let (words, _) = bytes[start as usize..end as usize].as_chunks_mut();
    for (nr, word) in (start / WORD..).zip(words) {
        *word = rng.after(nr).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_is_the_same_in_whatever_order_it_is_touched() {
        let rng = Rng::new(5, 1);
        let all: Vec<u8> =
            (0..3 * PIECE / WORD).flat_map(|nr| rng.after(nr).to_le_bytes()).collect();
        let size = all.len() - 4096;
        let whole = 0..size;
        let piecemeal = [PIECE as usize..size, 7..9, whole.clone()];
        for ranges in [&piecemeal[2..], &piecemeal] {
            let mut image = Image::new(size, Some(&rng));
            for range in ranges {
                let bytes = image.get(range.start as u64..range.end as u64);
                assert_eq!(bytes, &all[range.clone()]);
            }
        }
    }

    #[test]
    fn what_was_written_stays_until_the_image_is_renewed() {
        let (rng, size) = (Rng::new(5, 1), 2 * PIECE);
        let mut image = Image::new(size as usize, Some(&rng));
        image.get_mut(100..104).copy_from_slice(b"kept");
        assert_eq!(image.get(0..size)[100..104], *b"kept");
        image.renew(&rng);
        assert_eq!(image.get(0..8), rng.after(0).to_le_bytes());
        assert_ne!(image.get(100..104), b"kept");
    }
}
