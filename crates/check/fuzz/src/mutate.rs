//! Changes to an input: bits, bytes, fields set to values at which code changes its mind, cuts, splices.
//!
//! Invariant: the result is a function of the random numbers and the corpus, and no longer than
//! [`MAX_LEN`].

use fastrand::Rng;

/// No input grows beyond this.
pub const MAX_LEN: usize = 128 << 10;

/// A field of the format: changes aim at it.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Byte offset in the input.
    pub at: usize,
    /// 1, 2, 4 or 8 bytes.
    pub len: usize,
    /// Stored most significant byte first.
    pub big_endian: bool,
}

/// A field of `len` bytes at `at`, least significant byte first.
#[must_use]
pub const fn le(at: usize, len: usize) -> Field {
    Field { at, len, big_endian: false }
}

/// A field of `len` bytes at `at`, most significant byte first.
#[must_use]
pub const fn be(at: usize, len: usize) -> Field {
    Field { at, len, big_endian: true }
}

/// Values at which sizes, counts and offsets of these formats turn over.
const BOUNDARIES: &[u64] = &[
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    10,
    15,
    16,
    26,
    27,
    28,
    31,
    32,
    33,
    63,
    64,
    90,
    91,
    127,
    128,
    129,
    148,
    149,
    255,
    256,
    511,
    512,
    513,
    1023,
    1024,
    1919,
    1920,
    1921,
    2048,
    4095,
    4096,
    4097,
    0x7fff,
    0x8000,
    0xfeff,
    0xff00,
    0xfffc,
    0xfffd,
    0xfffe,
    0xffff,
    0x1_0000,
    1 << 20,
    1 << 24,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
    1 << 32,
    1 << 33,
    1 << 40,
    (1 << 54) - 1,
    1 << 54,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// Changes `input` a few times. `others` are the corpus, to splice from; `fields` are aimed at.
pub fn mutate(input: &mut Vec<u8>, others: &[Vec<u8>], fields: &[Field], rng: &mut Rng) {
    // One change leaves most of an input as it was; seldom many.
    let changes = 1 + rng.u64(..).trailing_ones().min(9);
    for _ in 0..changes {
        change(input, others, fields, rng);
    }
    input.truncate(MAX_LEN);
}

fn change(input: &mut Vec<u8>, others: &[Vec<u8>], fields: &[Field], rng: &mut Rng) {
    let len = input.len();
    match rng.u32(0..16) {
        0..=5 => match rng.choice(fields) {
            Some(field) => set_field(input, *field, rng),
            None => set_anywhere(input, rng),
        },
        6..=8 => set_anywhere(input, rng),
        9 | 10 if len > 0 => {
            let at = rng.usize(0..len);
            input[at] ^= 1 << rng.u32(0..8);
        }
        11 if len > 0 => {
            let at = rng.usize(0..len);
            input[at] = rng.u8(..);
        }
        // The end of a truncated file, and of a stream that was cut.
        12 => {
            let keep =
                if rng.bool() { rng.usize(0..=len) } else { len.saturating_sub(rng.usize(0..9)) };
            input.truncate(keep);
        }
        13 => {
            let more = rng.usize(0..600);
            let byte = if rng.bool() { 0 } else { rng.u8(..) };
            input.resize(len + more, byte);
        }
        14 => splice(input, others, rng),
        _ => copy_within(input, rng),
    }
}

fn set_field(input: &mut [u8], field: Field, rng: &mut Rng) {
    let Some(bytes) = input.get_mut(field.at..field.at + field.len) else { return };
    let mut value = [0; 8];
    if field.big_endian {
        value[8 - field.len..].copy_from_slice(bytes);
    } else {
        value[..field.len].copy_from_slice(bytes);
    }
    let old = if field.big_endian { u64::from_be_bytes(value) } else { u64::from_le_bytes(value) };
    let new = new_value(old, rng);
    if field.big_endian {
        bytes.copy_from_slice(&new.to_be_bytes()[8 - field.len..]);
    } else {
        bytes.copy_from_slice(&new.to_le_bytes()[..field.len]);
    }
}

fn new_value(old: u64, rng: &mut Rng) -> u64 {
    let boundary = rng.choice(BOUNDARIES).copied().unwrap_or(0);
    match rng.u32(0..10) {
        0..=4 => boundary,
        5 => boundary.wrapping_neg(),
        6 => old.wrapping_add(1),
        7 => old.wrapping_sub(1),
        8 => old ^ 1 << rng.u32(0..64),
        _ => rng.u64(..) >> rng.u32(0..64),
    }
}

/// A number of some width at a place that is a multiple of it.
fn set_anywhere(input: &mut [u8], rng: &mut Rng) {
    let len = 1 << rng.u32(0..4);
    let places = input.len() / len;
    if places > 0 {
        let at = rng.usize(0..places) * len;
        set_field(input, Field { at, len, big_endian: rng.bool() }, rng);
    }
}

/// Replaces a range by one of another input, of the same place or of any.
fn splice(input: &mut Vec<u8>, others: &[Vec<u8>], rng: &mut Rng) {
    let Some(other) = rng.choice(others).filter(|other| !other.is_empty()) else { return };
    let from = rng.usize(0..other.len());
    let len = rng.usize(0..=(other.len() - from).min(4096));
    let at = if rng.bool() { from.min(input.len()) } else { rng.usize(0..=input.len()) };
    let end = if rng.bool() { (at + len).min(input.len()) } else { at };
    input.splice(at..end, other[from..from + len].iter().copied());
}

/// A part of the input appears once more.
fn copy_within(input: &mut [u8], rng: &mut Rng) {
    let len = input.len();
    if len < 2 {
        return;
    }
    let count = rng.usize(1..=(len / 2).min(4096));
    let (from, to) = (rng.usize(0..=len - count), rng.usize(0..=len - count));
    input.copy_within(from..from + count, to);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_every_byte_and_another_gives_others() {
        let corpus = [(0..600u32).map(|at| at as u8).collect::<Vec<u8>>(), vec![2; 700]];
        let fields = [le(4, 4), be(100, 8), le(9999, 2)];
        let made = |seed| {
            let mut rng = Rng::with_seed(seed);
            let mut all = Vec::new();
            for _ in 0..200 {
                let mut input = corpus[0].clone();
                mutate(&mut input, &corpus, &fields, &mut rng);
                all.push(input);
            }
            all
        };
        assert_eq!(made(7), made(7));
        assert_ne!(made(7), made(8));
        // A value may be set to what it was.
        assert!(made(7).iter().filter(|input| **input != corpus[0]).count() > 150);
    }

    #[test]
    fn fields_are_set_in_their_byte_order() {
        let mut rng = Rng::with_seed(1);
        let mut seen = [false; 2];
        for _ in 0..1000 {
            for (index, field) in [le(0, 4), be(0, 4)].into_iter().enumerate() {
                let mut bytes = [0; 4];
                set_field(&mut bytes, field, &mut rng);
                seen[index] |= bytes == [[27, 0, 0, 0], [0, 0, 0, 27]][index];
            }
        }
        assert_eq!(seen, [true; 2]);
    }

    #[test]
    fn nothing_is_no_obstacle_and_growth_has_an_end() {
        let mut rng = Rng::with_seed(1);
        let others = [vec![7; 4096], Vec::new()];
        let mut input = Vec::new();
        for _ in 0..20_000 {
            mutate(&mut input, &others, &[], &mut rng);
            assert!(input.len() <= MAX_LEN);
        }
        mutate(&mut Vec::new(), &[], &[], &mut rng);
    }
}
