//! GFNI: multiplication in one instruction, an 8x8 bit matrix applied to every byte.
//!
//! Owns the GFNI forms of [`Vector`], on 32 bytes (with AVX2) and, in [`wide`], on 64 (with AVX-512). The
//! instruction's own field has another polynomial (0x11b), so braid uses the affine one with a matrix
//! that multiplies in 0x11d. Invariant: used only through a set that `available` returns after
//! it has detected GFNI.

use super::generic::Vector;
use crate::field::MATRICES;
use std::arch::x86_64::*;

/// 32 bytes, with GFNI in its VEX encoding.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Affine256(__m256i);

/// 64 bytes, with GFNI in its EVEX encoding.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Affine512(__m512i);

/// Everything but multiplication is as the plain vector type does it.
macro_rules! affine {
    ($type:ident, $plain:ty, $affine:ident, $set1:ident) => {
        // SAFETY of the whole implementation: the trait's contract is that the CPU has GFNI and the
        // instructions of the plain type; pointers are passed on under the same contract.
        impl Vector for $type {
            const BYTES: usize = <$plain>::BYTES;
            type Factor = $plain;

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the same contract.
                Self(unsafe { <$plain>::zero() })
            }
            #[inline(always)]
            unsafe fn load(from: *const u8) -> Self {
                // SAFETY: the same contract.
                Self(unsafe { <$plain>::load(from) })
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut u8) {
                // SAFETY: the same contract.
                unsafe { self.0.store(to) }
            }
            #[inline(always)]
            unsafe fn stream(self, to: *mut u8) {
                // SAFETY: the same contract.
                unsafe { self.0.stream(to) }
            }
            #[inline(always)]
            unsafe fn fence() {
                // SAFETY: the same contract.
                unsafe { <$plain>::fence() }
            }
            #[inline(always)]
            unsafe fn xor(self, other: Self) -> Self {
                // SAFETY: the same contract.
                Self(unsafe { self.0.xor(other.0) })
            }
            #[inline(always)]
            unsafe fn or(self, other: Self) -> Self {
                // SAFETY: the same contract.
                Self(unsafe { self.0.or(other.0) })
            }
            #[inline(always)]
            unsafe fn is_zero(self) -> bool {
                // SAFETY: the same contract.
                unsafe { self.0.is_zero() }
            }
            #[inline(always)]
            unsafe fn horner_begin(highest: Self) -> Self {
                highest
            }
            #[inline(always)]
            unsafe fn horner(self, next: Self) -> Self {
                // SAFETY: the same contract.
                unsafe { self.times(Self::factor(2)).xor(next) }
            }
            #[inline(always)]
            unsafe fn horner_end(self) -> Self {
                self
            }
            #[inline(always)]
            unsafe fn factor(constant: u8) -> Self::Factor {
                // SAFETY: the same contract.
                unsafe { $set1(MATRICES[usize::from(constant)].cast_signed()) }
            }
            #[inline(always)]
            unsafe fn times(self, factor: Self::Factor) -> Self {
                // SAFETY: GFNI, by the trait's contract.
                Self(unsafe { $affine::<0>(self.0, factor) })
            }
        }
    };
}

affine! { Affine256, __m256i, _mm256_gf2p8affine_epi64_epi8, _mm256_set1_epi64x }
affine! { Affine512, __m512i, _mm512_gf2p8affine_epi64_epi8, _mm512_set1_epi64 }

super::set::kernels! { Affine256, 4, 2, "gfni,avx2" }

super::set::kernel_set! { "gfni" }

/// The same with AVX-512.
pub(super) mod wide {
    use crate::arch::gfni::Affine512;

    crate::arch::set::kernels! { Affine512, 2, 1, "gfni,avx512f,avx512bw" }

    crate::arch::set::kernel_set! { "avx512-gfni" }
}
