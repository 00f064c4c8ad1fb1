//! NEON: 16 bytes at a time; multiplication by table look-up of half bytes.
//!
//! Owns the NEON form of [`Vector`]. Invariant: used only through a set that `available` returns
//! after it has detected NEON.

use super::generic::Vector;
use crate::field::{HALVES, POLYNOMIAL};
use std::arch::aarch64::*;

// SAFETY of the whole implementation: the trait's contract is that the CPU has NEON and pointers are good
// for 16 bytes; these loads and stores need no alignment.
impl Vector for uint8x16_t {
    const BYTES: usize = 16;
    /// The products of low and of high half bytes.
    type Factor = (uint8x16_t, uint8x16_t);

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: NEON, by the trait's contract.
        unsafe { vdupq_n_u8(0) }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: NEON and 16 readable bytes, by the trait's contract.
        unsafe { vld1q_u8(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: NEON and 16 writable bytes, by the trait's contract.
        unsafe { vst1q_u8(to, self) }
    }
    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: as for `store`: there is no streaming store among the intrinsics.
        unsafe { self.store(to) }
    }
    #[inline(always)]
    unsafe fn fence() {}
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: NEON, by the trait's contract.
        unsafe { veorq_u8(self, other) }
    }
    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: NEON, by the trait's contract.
        unsafe { vorrq_u8(self, other) }
    }
    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        // SAFETY: NEON, by the trait's contract.
        unsafe { vmaxvq_u8(self) == 0 }
    }
    #[inline(always)]
    unsafe fn horner_begin(highest: Self) -> Self {
        highest
    }
    #[inline(always)]
    unsafe fn horner(self, next: Self) -> Self {
        // SAFETY: NEON, by the trait's contract.
        unsafe {
            let carries = vreinterpretq_u8_s8(vshrq_n_s8::<7>(vreinterpretq_s8_u8(self)));
            let reduction = vandq_u8(carries, vdupq_n_u8(POLYNOMIAL));
            veorq_u8(veorq_u8(reduction, next), vshlq_n_u8::<1>(self))
        }
    }
    #[inline(always)]
    unsafe fn horner_end(self) -> Self {
        self
    }
    #[inline(always)]
    unsafe fn factor(constant: u8) -> Self::Factor {
        let halves = &HALVES[usize::from(constant)];
        // SAFETY: NEON, by the trait's contract; each table is 16 bytes.
        unsafe { (vld1q_u8(halves.low.as_ptr()), vld1q_u8(halves.high.as_ptr())) }
    }
    #[inline(always)]
    unsafe fn times(self, (low, high): Self::Factor) -> Self {
        // SAFETY: NEON, by the trait's contract.
        unsafe {
            let low = vqtbl1q_u8(low, vandq_u8(self, vdupq_n_u8(0x0f)));
            veorq_u8(low, vqtbl1q_u8(high, vshrq_n_u8::<4>(self)))
        }
    }
}

super::set::kernels! { uint8x16_t, 4, 4, "neon" }

super::set::kernel_set! { "neon" }
