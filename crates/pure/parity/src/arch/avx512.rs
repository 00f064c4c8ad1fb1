//! AVX-512 (F and BW): 64 bytes at a time; multiplication by table look-up of half bytes.
//!
//! Owns the AVX-512 form of [`Vector`]. Invariant: used only through a set that `available` returns
//! after it has detected AVX512F and AVX512BW.

use super::generic::Vector;
use crate::field::{HALVES, HORNER_OFFSET, POLYNOMIAL};
use std::arch::x86_64::*;

/// The truth table of `a ^ b ^ c` for the three-operand logic instruction.
pub(super) const XOR3: i32 = 0x96;

// SAFETY of the whole implementation: the trait's contract is that the CPU has AVX512F and AVX512BW and
// pointers are good for 64 bytes; loads and stores are the unaligned kind, `stream` is given an aligned
// pointer.
impl Vector for __m512i {
    const BYTES: usize = 64;
    /// The products of low and of high half bytes.
    type Factor = (__m512i, __m512i);

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: AVX-512, by the trait's contract.
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: AVX-512 and 64 readable bytes, by the trait's contract.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: AVX-512 and 64 writable bytes, by the trait's contract.
        unsafe { _mm512_storeu_si512(to.cast(), self) }
    }
    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: AVX-512 and 64 writable aligned bytes, by the trait's contract; `fence` follows.
        unsafe { _mm512_stream_si512(to.cast(), self) }
    }
    #[inline(always)]
    unsafe fn fence() {
        // SAFETY: part of every x86-64 CPU.
        unsafe { _mm_sfence() }
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: AVX-512, by the trait's contract.
        unsafe { _mm512_xor_si512(self, other) }
    }
    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: AVX-512, by the trait's contract.
        unsafe { _mm512_or_si512(self, other) }
    }
    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        // SAFETY: AVX-512, by the trait's contract.
        unsafe { _mm512_test_epi64_mask(self, self) == 0 }
    }
    #[inline(always)]
    unsafe fn horner_begin(highest: Self) -> Self {
        // SAFETY: AVX-512, by the trait's contract.
        unsafe { _mm512_xor_si512(highest, _mm512_set1_epi8(HORNER_OFFSET as i8)) }
    }
    /// As for AVX2: the shuffle gives the polynomial where there was no carry.
    #[inline(always)]
    unsafe fn horner(self, next: Self) -> Self {
        // SAFETY: AVX-512, by the trait's contract.
        unsafe {
            let no_carry = _mm512_shuffle_epi8(_mm512_set1_epi8(POLYNOMIAL as i8), self);
            let doubled = _mm512_add_epi8(self, self);
            _mm512_ternarylogic_epi64::<XOR3>(no_carry, next, doubled)
        }
    }
    #[inline(always)]
    unsafe fn horner_end(self) -> Self {
        // SAFETY: AVX-512, by the trait's contract.
        unsafe { _mm512_xor_si512(self, _mm512_set1_epi8(HORNER_OFFSET as i8)) }
    }
    #[inline(always)]
    unsafe fn factor(constant: u8) -> Self::Factor {
        let halves = &HALVES[usize::from(constant)];
        // SAFETY: AVX-512, by the trait's contract; each table is 16 bytes.
        unsafe {
            (
                _mm512_broadcast_i32x4(_mm_loadu_si128(halves.low.as_ptr().cast())),
                _mm512_broadcast_i32x4(_mm_loadu_si128(halves.high.as_ptr().cast())),
            )
        }
    }
    #[inline(always)]
    unsafe fn times(self, (low, high): Self::Factor) -> Self {
        // SAFETY: AVX-512, by the trait's contract.
        unsafe {
            let mask = _mm512_set1_epi8(0x0f);
            let low = _mm512_shuffle_epi8(low, _mm512_and_si512(self, mask));
            let upper = _mm512_and_si512(_mm512_srli_epi64::<4>(self), mask);
            _mm512_xor_si512(low, _mm512_shuffle_epi8(high, upper))
        }
    }
}

super::set::kernels! { __m512i, 2, 1, "avx512f,avx512bw" }

super::set::kernel_set! { "avx512" }
