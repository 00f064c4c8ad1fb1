//! The body of every kernel, written once over an abstract vector register.
//!
//! Owns the loops: how far to unroll, which sources to read in which order, how the ends are handled.
//! Does not know any instruction: each architecture's file supplies a [`Vector`] and wraps these
//! functions in ones compiled for its instructions, into which they are inlined. Invariant: a byte at
//! offset `i` of an output depends only on bytes at offset `i` of the inputs.
//!
//! The measurements that shaped the loops are in docs/benchmarks/parity.md.

mod copy;
mod syndrome;
mod update;
mod xor;
mod zero;

use super::Stores;

pub(super) use copy::{copy_pq, copy_xor};
pub(super) use syndrome::{pq, q, recover_from_q, recover_two};
pub(super) use update::{delta_pq, delta_q, update_p, update_pq};
pub(super) use xor::{xor, xor_into};
pub(super) use zero::is_zero;

/// A register's worth of field elements, and what the kernels do with it.
///
/// # Safety
/// Every function here is to be called only on a CPU that has the instructions of the implementing
/// type, and pointers must be good for `BYTES` bytes of reading or writing; no alignment is needed
/// except for [`Vector::stream`].
pub(super) trait Vector: Copy {
    /// Bytes in the register.
    const BYTES: usize;
    /// A constant in the form that [`Vector::times`] wants.
    type Factor: Copy;

    unsafe fn zero() -> Self;
    unsafe fn load(from: *const u8) -> Self;
    unsafe fn store(self, to: *mut u8);
    /// Stores past the caches where the CPU can; `to` is aligned to `BYTES`.
    unsafe fn stream(self, to: *mut u8);
    /// Orders streamed stores before everything after.
    unsafe fn fence();
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn or(self, other: Self) -> Self;
    unsafe fn is_zero(self) -> bool;
    /// The first value of a Horner evaluation: stands for `highest`, perhaps with an offset.
    unsafe fn horner_begin(highest: Self) -> Self;
    /// Stands for `2 * self + next`.
    unsafe fn horner(self, next: Self) -> Self;
    /// The value that `self` stands for.
    unsafe fn horner_end(self) -> Self;
    unsafe fn factor(constant: u8) -> Self::Factor;
    unsafe fn times(self, factor: Self::Factor) -> Self;
}

/// One kernel: what to do at one offset.
trait Body: Copy {
    /// Does the work for the `UNROLL * V::BYTES` bytes at offset `at`.
    ///
    /// # Safety
    /// As for [`Vector`], and those bytes lie within all blocks.
    unsafe fn step<V: Vector, const UNROLL: usize>(self, at: usize);
}

/// Runs `body` over `len` bytes: in steps of `UNROLL` vectors, then of one, then of words and bytes.
#[inline(always)]
unsafe fn run<V: Vector, const UNROLL: usize>(body: impl Body, len: usize) {
    let mut at = 0;
    // SAFETY: each step is within `len`, which is the length of all blocks; V is the caller's promise.
    unsafe {
        while len - at >= UNROLL * V::BYTES {
            body.step::<V, UNROLL>(at);
            at += UNROLL * V::BYTES;
        }
        while len - at >= V::BYTES {
            body.step::<V, 1>(at);
            at += V::BYTES;
        }
        if at < len {
            run_tail(body, at, len);
        }
    }
}

/// The end of [`run`] that is shorter than a vector. On its own because it is the same for all vector
/// types, and because the compiler, unaware that it is short, would vectorize it at great length.
#[cold]
#[inline(never)]
unsafe fn run_tail<B: Body>(body: B, mut at: usize, len: usize) {
    // SAFETY: each step is within `len`; u64 and u8 need no instructions beyond the baseline.
    unsafe {
        while len - at >= u64::BYTES {
            body.step::<u64, 1>(at);
            at += u64::BYTES;
        }
        while at < len {
            body.step::<u8, 1>(at);
            at += 1;
        }
    }
}

#[inline(always)]
unsafe fn load<V: Vector, const UNROLL: usize>(from: *const u8, at: usize) -> [V; UNROLL] {
    // SAFETY: the caller's promise covers `UNROLL` vectors from `at`.
    unsafe {
        let mut values = [V::zero(); UNROLL];
        for (i, value) in values.iter_mut().enumerate() {
            *value = V::load(from.add(at + i * V::BYTES));
        }
        values
    }
}

#[inline(always)]
unsafe fn store<V: Vector, const UNROLL: usize>(values: [V; UNROLL], to: *mut u8, at: usize) {
    // SAFETY: the caller's promise covers `UNROLL` vectors from `at`.
    unsafe {
        for (i, value) in values.into_iter().enumerate() {
            value.store(to.add(at + i * V::BYTES));
        }
    }
}

/// [`store`], past the caches when `STREAM` (then `to + at` is aligned to the vector).
#[inline(always)]
unsafe fn put<V: Vector, const UNROLL: usize, const STREAM: bool>(
    values: [V; UNROLL],
    to: *mut u8,
    at: usize,
) {
    // SAFETY: the caller's promise covers `UNROLL` vectors from `at`, aligned if STREAM.
    unsafe {
        for (i, value) in values.into_iter().enumerate() {
            let to = to.add(at + i * V::BYTES);
            if STREAM { value.stream(to) } else { value.store(to) }
        }
    }
}

#[inline(always)]
unsafe fn add<V: Vector, const UNROLL: usize>(sum: &mut [V; UNROLL], values: [V; UNROLL]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        // SAFETY: registers only; the instructions are the caller's promise.
        *sum = unsafe { sum.xor(value) };
    }
}

#[inline(always)]
unsafe fn horner_begin<V: Vector, const UNROLL: usize>(highest: [V; UNROLL]) -> [V; UNROLL] {
    let mut q = highest;
    for q in &mut q {
        // SAFETY: registers only; the instructions are the caller's promise.
        *q = unsafe { V::horner_begin(*q) };
    }
    q
}

#[inline(always)]
unsafe fn horner<V: Vector, const UNROLL: usize>(q: &mut [V; UNROLL], next: [V; UNROLL]) {
    for (q, next) in q.iter_mut().zip(next) {
        // SAFETY: registers only; the instructions are the caller's promise.
        *q = unsafe { q.horner(next) };
    }
}

#[inline(always)]
unsafe fn horner_end<V: Vector, const UNROLL: usize>(q: &mut [V; UNROLL]) {
    for q in q {
        // SAFETY: registers only; the instructions are the caller's promise.
        *q = unsafe { q.horner_end() };
    }
}

/// True if streaming stores may go to `block`; 64 covers the widest vector and a whole cache line.
fn streamable(block: &[u8]) -> bool {
    block.as_ptr().addr().is_multiple_of(64)
}
