//! AVX2: 32 bytes at a time; multiplication by table look-up of half bytes.
//!
//! Owns the AVX2 form of [`Vector`]. Invariant: used only through a set that `available` returns
//! after it has detected AVX2.

use super::generic::Vector;
use crate::field::{HALVES, HORNER_OFFSET, POLYNOMIAL};
use std::arch::x86_64::*;

// SAFETY of the whole implementation: the trait's contract is that the CPU has AVX2 and pointers are good
// for 32 bytes; loads and stores are the unaligned kind, `stream` is given an aligned pointer.
impl Vector for __m256i {
    const BYTES: usize = 32;
    /// The products of low and of high half bytes.
    type Factor = (__m256i, __m256i);

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: AVX2, by the trait's contract.
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: AVX2 and 32 readable bytes, by the trait's contract.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: AVX2 and 32 writable bytes, by the trait's contract.
        unsafe { _mm256_storeu_si256(to.cast(), self) }
    }
    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: AVX2 and 32 writable aligned bytes, by the trait's contract; `fence` follows.
        unsafe { _mm256_stream_si256(to.cast(), self) }
    }
    #[inline(always)]
    unsafe fn fence() {
        // SAFETY: part of every x86-64 CPU.
        unsafe { _mm_sfence() }
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: AVX2, by the trait's contract.
        unsafe { _mm256_xor_si256(self, other) }
    }
    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: AVX2, by the trait's contract.
        unsafe { _mm256_or_si256(self, other) }
    }
    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        // SAFETY: AVX2, by the trait's contract.
        unsafe { _mm256_testz_si256(self, self) != 0 }
    }
    #[inline(always)]
    unsafe fn horner_begin(highest: Self) -> Self {
        // SAFETY: AVX2, by the trait's contract.
        unsafe { _mm256_xor_si256(highest, _mm256_set1_epi8(HORNER_OFFSET as i8)) }
    }
    /// A byte shuffle yields zero where the index's top bit is set and the table's byte elsewhere, so one
    /// instruction gives the polynomial exactly where there was *no* carry. Adding it there instead adds
    /// the polynomial once too often to every byte; HORNER_OFFSET is the error that this preserves.
    #[inline(always)]
    unsafe fn horner(self, next: Self) -> Self {
        // SAFETY: AVX2, by the trait's contract.
        unsafe {
            let no_carry = _mm256_shuffle_epi8(_mm256_set1_epi8(POLYNOMIAL as i8), self);
            let doubled = _mm256_add_epi8(self, self);
            _mm256_xor_si256(_mm256_xor_si256(no_carry, next), doubled)
        }
    }
    #[inline(always)]
    unsafe fn horner_end(self) -> Self {
        // SAFETY: AVX2, by the trait's contract.
        unsafe { _mm256_xor_si256(self, _mm256_set1_epi8(HORNER_OFFSET as i8)) }
    }
    #[inline(always)]
    unsafe fn factor(constant: u8) -> Self::Factor {
        let halves = &HALVES[usize::from(constant)];
        // SAFETY: AVX2, by the trait's contract; each table is 16 bytes.
        unsafe {
            (
                _mm256_broadcastsi128_si256(_mm_loadu_si128(halves.low.as_ptr().cast())),
                _mm256_broadcastsi128_si256(_mm_loadu_si128(halves.high.as_ptr().cast())),
            )
        }
    }
    #[inline(always)]
    unsafe fn times(self, (low, high): Self::Factor) -> Self {
        // SAFETY: AVX2, by the trait's contract.
        unsafe {
            let mask = _mm256_set1_epi8(0x0f);
            let low = _mm256_shuffle_epi8(low, _mm256_and_si256(self, mask));
            let upper = _mm256_and_si256(_mm256_srli_epi64::<4>(self), mask);
            _mm256_xor_si256(low, _mm256_shuffle_epi8(high, upper))
        }
    }
}

super::set::kernels! { __m256i, 4, 2, "avx2" }

super::set::kernel_set! { "avx2" }
