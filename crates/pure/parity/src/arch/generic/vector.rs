//! The vector register as the kernels see it, and the loop that runs a kernel over a block.

/// A register of field elements, with the operations that the kernels need.
///
/// # Safety
/// Every function must be called only on a CPU that has the instructions of the implementing
/// type. Pointers must be valid for reading or writing `BYTES` bytes; only [`Vector::stream`] needs them to be
/// aligned.
pub(crate) trait Vector: Copy {
    /// Bytes in the register.
    const BYTES: usize;
    /// A constant, prepared for [`Vector::times`].
    type Factor: Copy;

    unsafe fn zero() -> Self;
    unsafe fn load(from: *const u8) -> Self;
    unsafe fn store(self, to: *mut u8);
    /// Stores past the caches if the CPU can; `to` is aligned to `BYTES`.
    unsafe fn stream(self, to: *mut u8);
    /// Orders streamed stores before everything after.
    unsafe fn fence();
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn or(self, other: Self) -> Self;
    unsafe fn is_zero(self) -> bool;
    /// The first value of a Horner evaluation. It represents `highest`, in some types with a constant offset.
    unsafe fn horner_begin(highest: Self) -> Self;
    /// A step of the evaluation: the result represents `2 * self + next`.
    unsafe fn horner(self, next: Self) -> Self;
    /// The value that `self` represents.
    unsafe fn horner_end(self) -> Self;
    unsafe fn factor(constant: u8) -> Self::Factor;
    unsafe fn times(self, factor: Self::Factor) -> Self;
}

/// One kernel: the work at one offset.
pub(super) trait Body: Copy {
    /// Does the work for the `UNROLL * V::BYTES` bytes at offset `at`.
    ///
    /// # Safety
    /// As for [`Vector`], and those bytes lie within all blocks.
    unsafe fn step<V: Vector, const UNROLL: usize>(self, at: usize);
}

/// Runs `body` over `len` bytes: in steps of `UNROLL` vectors, then of one, then of words and bytes.
#[inline(always)]
pub(super) unsafe fn run<V: Vector, const UNROLL: usize>(body: impl Body, len: usize) {
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

/// The end of [`run`] that is shorter than a vector. It is a function of its own because it is the same for all vector
/// types, and because the compiler does not know that the end is short and would generate large vectorized loops for it.
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
pub(super) unsafe fn load<V: Vector, const UNROLL: usize>(
    from: *const u8,
    at: usize,
) -> [V; UNROLL] {
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
pub(super) unsafe fn store<V: Vector, const UNROLL: usize>(
    values: [V; UNROLL],
    to: *mut u8,
    at: usize,
) {
    // SAFETY: the caller's promise covers `UNROLL` vectors from `at`.
    unsafe {
        for (i, value) in values.into_iter().enumerate() {
            value.store(to.add(at + i * V::BYTES));
        }
    }
}

/// Like [`store`], but past the caches if `STREAM`; then `to + at` must be aligned to the vector.
#[inline(always)]
pub(super) unsafe fn put<V: Vector, const UNROLL: usize, const STREAM: bool>(
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
pub(super) unsafe fn add<V: Vector, const UNROLL: usize>(
    sum: &mut [V; UNROLL],
    values: [V; UNROLL],
) {
    for (sum, value) in sum.iter_mut().zip(values) {
        // SAFETY: registers only; the instructions are the caller's promise.
        *sum = unsafe { sum.xor(value) };
    }
}

#[inline(always)]
pub(super) unsafe fn horner_begin<V: Vector, const UNROLL: usize>(
    highest: [V; UNROLL],
) -> [V; UNROLL] {
    let mut q = highest;
    for q in &mut q {
        // SAFETY: registers only; the instructions are the caller's promise.
        *q = unsafe { V::horner_begin(*q) };
    }
    q
}

#[inline(always)]
pub(super) unsafe fn horner<V: Vector, const UNROLL: usize>(
    q: &mut [V; UNROLL],
    next: [V; UNROLL],
) {
    for (q, next) in q.iter_mut().zip(next) {
        // SAFETY: registers only; the instructions are the caller's promise.
        *q = unsafe { q.horner(next) };
    }
}

#[inline(always)]
pub(super) unsafe fn horner_end<V: Vector, const UNROLL: usize>(q: &mut [V; UNROLL]) {
    for q in q {
        // SAFETY: registers only; the instructions are the caller's promise.
        *q = unsafe { q.horner_end() };
    }
}

/// True if `block` is aligned for streaming stores: 64 bytes are the widest vector and a whole cache line.
pub(super) fn streamable(block: &[u8]) -> bool {
    block.as_ptr().addr().is_multiple_of(64)
}
