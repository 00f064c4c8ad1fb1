//! Recovery of any one or two lost blocks of a stripe with P and Q.
//!
//! This module chooses the method and its constants. Invariant: the lost blocks are never read.
//!
//! | lost | call |
//! |---|---|
//! | one data block, or P | [`crate::xor`] of everything else but Q ([`recover_data_with_p`]) |
//! | Q | [`crate::q`] |
//! | P and Q | [`crate::pq`] |
//! | one data block and P | [`recover_data_with_q`], then [`crate::xor`] for P |
//! | one data block and Q | [`recover_data_with_p`], then [`crate::q`] |
//! | two data blocks | [`recover_two_data`] |
//!
//! The formulas are those of H. P. Anvin, "The mathematics of RAID-6". Nothing here allocates.

use crate::{arch, field};

/// Recovers one data block (or P itself) as the XOR of `known`: all other data blocks and P.
///
/// # Panics
/// If `known` is empty or the blocks differ in length.
pub fn recover_data_with_p(known: &[&[u8]], out: &mut [u8]) {
    arch::selected().xor(out, known, arch::Stores::Cached);
}

/// Recovers data block `x` from the other data and Q, for when P is lost as well (recompute P
/// afterwards). The index in `data` is the exponent of the generator; `None` is a zero block.
///
/// # Panics
/// If `data[x]` is out of range or not `None`, there are more than 255 data blocks, or the blocks differ
/// in length.
pub fn recover_data_with_q(data: &[Option<&[u8]>], x: usize, q: &[u8], out: &mut [u8]) {
    with_q(arch::selected(), data, x, q, out);
}

/// Recovers data blocks `x` and `y` from the other data, P and Q. The index in `data` is the exponent of
/// the generator; `None` is a zero block.
///
/// # Panics
/// If `x == y`, `data[x]` or `data[y]` is out of range or not `None`, there are more than 255 data
/// blocks, or the blocks differ in length.
pub fn recover_two_data(
    data: &[Option<&[u8]>],
    x: usize,
    y: usize,
    p: &[u8],
    q: &[u8],
    out_x: &mut [u8],
    out_y: &mut [u8],
) {
    two(arch::selected(), data, (x, y), p, q, (out_x, out_y));
}

/// Checks that `data[index]` is a lost block and returns its exponent.
fn lost(data: &[Option<&[u8]>], index: usize) -> u8 {
    assert!(data.len() <= 255, "the field has 255 powers of its generator");
    assert!(data[index].is_none(), "data block {index} is to be recovered, yet given");
    index as u8 // below 255 by the first assertion
}

pub(crate) fn with_q(
    set: &arch::KernelSet,
    data: &[Option<&[u8]>],
    x: usize,
    q: &[u8],
    out: &mut [u8],
) {
    // Q ^ Q' = g^x D_x, where Q' is Q with D_x taken as zero.
    let constant = field::inverse(field::power(lost(data, x)));
    set.recover_from_q(data, constant, q, out);
}

pub(crate) fn two(
    set: &arch::KernelSet,
    data: &[Option<&[u8]>],
    (x, y): (usize, usize),
    p: &[u8],
    q: &[u8],
    outs: (&mut [u8], &mut [u8]),
) {
    assert_ne!(x, y, "two different data blocks are recovered together");
    let (gx, gy) = (field::power(lost(data, x)), field::power(lost(data, y)));
    // With s = D_x ^ D_y and t = g^x D_x ^ g^y D_y: D_x = (g^y s ^ t) / (g^x ^ g^y).
    let divisor = field::inverse(gx ^ gy);
    set.recover_two(data, (field::multiply(gy, divisor), divisor), p, q, outs);
}
