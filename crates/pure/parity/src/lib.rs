//! XOR, P, P+Q, delta updates and recovery, with the best instructions that the CPU has.
//!
//! This crate is the arithmetic of redundancy on blocks of bytes. It does not know levels, layouts, members
//! or I/O: the caller assigns the exponents to the blocks. Invariant: every implementation gives the same
//! bytes, for any length and any alignment.
//!
//! P is the XOR of the data blocks. Q is the sum of g^i D_i in GF(2^8) with the polynomial 0x11d and the
//! generator g = 2, as in Linux's RAID6. The exponent i of a block is its index in the slice that is passed;
//! an index without a block (`None`) counts as a block of zeroes: a gap of the layout, or a lost block.
//!
//! The implementation is chosen once, on first use: the environment variable `BRAID_SIMD` may request
//! `scalar`, `avx2`, `gfni`, `avx512`, `avx512-gfni` or `neon`; see [`implementation`] and
//! [`override_warning`].

#![deny(unsafe_code)]

mod arch;
mod field;
mod locate;
mod recover;
#[cfg(test)]
mod tests;

pub use arch::{KernelSet, Stores, available, override_warning};
pub use locate::{Wrong, locate};
pub use recover::{recover_data_with_p, recover_data_with_q, recover_two_data};

/// The name of the implementation in use, as a value for `BRAID_SIMD`.
pub fn implementation() -> &'static str {
    arch::selected().name()
}

/// `dst` = XOR of `srcs`.
///
/// # Panics
/// If `srcs` is empty or the blocks differ in length.
pub fn xor(dst: &mut [u8], srcs: &[&[u8]]) {
    xor_with(dst, srcs, Stores::for_size(srcs.len() + 1, dst.len()));
}

/// Like [`xor`], with the caller's choice of stores. More than 8 sources are always stored as
/// [`Stores::Cached`].
///
/// # Panics
/// If `srcs` is empty or the blocks differ in length.
pub fn xor_with(dst: &mut [u8], srcs: &[&[u8]], stores: Stores) {
    arch::selected().xor(dst, srcs, stores);
}

/// `dst ^=` XOR of `srcs`.
///
/// # Panics
/// If the blocks differ in length.
pub fn xor_into(dst: &mut [u8], srcs: &[&[u8]]) {
    arch::selected().xor_into(dst, srcs);
}

/// P and Q of `data`. The index in `data` is the exponent of the generator; `None` is a zero block.
///
/// # Panics
/// If there are more than 255 data blocks or the blocks differ in length.
pub fn pq(data: &[Option<&[u8]>], p: &mut [u8], q: &mut [u8]) {
    let stores = Stores::for_size(data.len() + 2, p.len());
    pq_with(data, p, q, stores);
}

/// Like [`pq`], with the caller's choice of stores. More than 8 data blocks, or such with gaps, are always
/// stored as [`Stores::Cached`].
///
/// # Panics
/// If there are more than 255 data blocks or the blocks differ in length.
pub fn pq_with(data: &[Option<&[u8]>], p: &mut [u8], q: &mut [u8], stores: Stores) {
    arch::selected().pq(data, p, q, stores);
}

/// Q of `data`, as by [`pq`].
///
/// # Panics
/// If there are more than 255 data blocks or the blocks differ in length.
pub fn q(data: &[Option<&[u8]>], q: &mut [u8]) {
    arch::selected().q(data, q);
}

/// Updates P for a data block that changes from `old` to `new`: `p ^= old ^ new`.
///
/// # Panics
/// If the blocks differ in length.
#[inline]
pub fn delta_p(old: &[u8], new: &[u8], p: &mut [u8]) {
    arch::selected().xor_into(p, &[old, new]);
}

/// Updates Q for the data block with exponent `exp` that changes from `old` to `new`:
/// `q ^= g^exp * (old ^ new)`.
///
/// # Panics
/// If the blocks differ in length.
pub fn delta_q(exp: u8, old: &[u8], new: &[u8], q: &mut [u8]) {
    arch::selected().delta_q(field::power(exp), old, new, q);
}

/// [`delta_p`] and [`delta_q`] in one pass.
///
/// # Panics
/// If the blocks differ in length.
pub fn delta_pq(exp: u8, old: &[u8], new: &[u8], p: &mut [u8], q: &mut [u8]) {
    arch::selected().delta_pq(field::power(exp), old, new, p, q);
}

/// A small write in place: `p ^= data ^ new`, then `data = new`, in one pass.
///
/// # Panics
/// If the blocks differ in length.
pub fn update_p(data: &mut [u8], new: &[u8], p: &mut [u8]) {
    arch::selected().update_p(data, new, p);
}

/// A small write in place to the data block with exponent `exp`: `p ^= data ^ new`,
/// `q ^= g^exp * (data ^ new)`, then `data = new`, in one pass.
///
/// # Panics
/// If the blocks differ in length.
pub fn update_pq(exp: u8, data: &mut [u8], new: &[u8], p: &mut [u8], q: &mut [u8]) {
    arch::selected().update_pq(field::power(exp), data, new, p, q);
}

/// A full stripe with its copy, in one pass: `dsts[i] = srcs[i]`, `p` = XOR of `srcs`.
///
/// # Panics
/// If there are no sources, not as many destinations as sources, or the blocks differ in length.
pub fn copy_xor(dsts: &mut [&mut [u8]], srcs: &[&[u8]], p: &mut [u8], stores: Stores) {
    arch::selected().copy_xor(dsts, srcs, p, stores);
}

/// A full stripe with its copy, in one pass: `dsts[i] = data[i]`, P and Q of `data` as by [`pq`]. A
/// destination that is `None` is not stored (its member is missing) but counts in P and Q.
///
/// # Panics
/// If there are not as many destinations as data blocks, a destination has no data block, there are more
/// than 255 of them, or the blocks differ in length.
pub fn copy_pq(
    dsts: &mut [Option<&mut [u8]>],
    data: &[Option<&[u8]>],
    p: &mut [u8],
    q: &mut [u8],
    stores: Stores,
) {
    arch::selected().copy_pq(dsts, data, p, q, stores);
}

/// True if all bytes of `block` are zero, as those of an empty block.
pub fn is_zero(block: &[u8]) -> bool {
    arch::selected().is_zero(block)
}
