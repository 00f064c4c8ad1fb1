//! The reference: words of 64 bits, any CPU. Also what the vector kernels use for the ends of a block.
//!
//! Owns the word and byte forms of [`Vector`]. Invariant: needs no instruction beyond the baseline, so
//! its kernels are sound to run anywhere.

use super::generic::Vector;
use crate::field::{POLYNOMIAL, PRODUCTS};

const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

// SAFETY of both implementations: plain integer arithmetic; loads and stores are unaligned ones of
// exactly BYTES bytes, which the caller of the trait vouches for.
impl Vector for u64 {
    const BYTES: usize = 8;
    type Factor = &'static [u8; 256];

    #[inline(always)]
    unsafe fn zero() -> Self {
        0
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: eight readable bytes, by the trait's contract.
        unsafe { from.cast::<u64>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: eight writable bytes, by the trait's contract.
        unsafe { to.cast::<u64>().write_unaligned(self) }
    }
    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: as for `store`.
        unsafe { self.store(to) }
    }
    #[inline(always)]
    unsafe fn fence() {}
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        self ^ other
    }
    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        self | other
    }
    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        self == 0
    }
    #[inline(always)]
    unsafe fn horner_begin(highest: Self) -> Self {
        highest
    }
    #[inline(always)]
    unsafe fn horner(self, next: Self) -> Self {
        let carries = (self >> 7) & each(1);
        ((self << 1) & each(0xfe)) ^ (carries * u64::from(POLYNOMIAL)) ^ next
    }
    #[inline(always)]
    unsafe fn horner_end(self) -> Self {
        self
    }
    #[inline(always)]
    unsafe fn factor(constant: u8) -> Self::Factor {
        &PRODUCTS[usize::from(constant)]
    }
    #[inline(always)]
    unsafe fn times(self, factor: Self::Factor) -> Self {
        u64::from_ne_bytes(self.to_ne_bytes().map(|byte| factor[usize::from(byte)]))
    }
}

impl Vector for u8 {
    const BYTES: usize = 1;
    type Factor = &'static [u8; 256];

    #[inline(always)]
    unsafe fn zero() -> Self {
        0
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: one readable byte, by the trait's contract.
        unsafe { from.read() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: one writable byte, by the trait's contract.
        unsafe { to.write(self) }
    }
    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: as for `store`.
        unsafe { self.store(to) }
    }
    #[inline(always)]
    unsafe fn fence() {}
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        self ^ other
    }
    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        self | other
    }
    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        self == 0
    }
    #[inline(always)]
    unsafe fn horner_begin(highest: Self) -> Self {
        highest
    }
    #[inline(always)]
    unsafe fn horner(self, next: Self) -> Self {
        (self << 1) ^ ((self >> 7) * POLYNOMIAL) ^ next
    }
    #[inline(always)]
    unsafe fn horner_end(self) -> Self {
        self
    }
    #[inline(always)]
    unsafe fn factor(constant: u8) -> Self::Factor {
        &PRODUCTS[usize::from(constant)]
    }
    #[inline(always)]
    unsafe fn times(self, factor: Self::Factor) -> Self {
        factor[usize::from(self)]
    }
}

super::set::kernels! { u64, 4, 8 }

super::set::kernel_set! { "scalar" }
