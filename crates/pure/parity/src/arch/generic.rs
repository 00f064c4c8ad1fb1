//! The body of every kernel, written once over an abstract vector register.
//!
//! Owns the loops: how far to unroll, which sources to read in which order, how the ends are handled.
//! Does not know any instruction: each architecture's file supplies a [`Vector`] and wraps these
//! functions in ones compiled for its instructions, into which they are inlined. Invariant: a byte at
//! offset `i` of an output depends only on bytes at offset `i` of the inputs, and is stored once.

use super::Stores;

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
    #[inline(always)]
    unsafe fn xor3(self, second: Self, third: Self) -> Self {
        // SAFETY: the caller's promise is the same for all functions of this trait.
        unsafe { self.xor(second).xor(third) }
    }
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
trait Body {
    /// Does the work for the `UNROLL * V::BYTES` bytes at offset `at`.
    ///
    /// # Safety
    /// As for [`Vector`], and those bytes lie within all blocks.
    unsafe fn step<V: Vector, const UNROLL: usize>(&mut self, at: usize);
}

/// Runs `body` over `len` bytes: in steps of `UNROLL` vectors, then of one, then of words, then of bytes.
#[inline(always)]
unsafe fn run<V: Vector, const UNROLL: usize>(body: &mut impl Body, len: usize) {
    let mut at = 0;
    // SAFETY: each step is within `len`, which is the length of all blocks; V is the caller's promise,
    // u64 and u8 need no instructions beyond the baseline.
    unsafe {
        while len - at >= UNROLL * V::BYTES {
            body.step::<V, UNROLL>(at);
            at += UNROLL * V::BYTES;
        }
        while len - at >= V::BYTES {
            body.step::<V, 1>(at);
            at += V::BYTES;
        }
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

/// The syndromes of some data at one offset: P (meaningless unless `WITH_P`) and Q.
#[inline(always)]
unsafe fn syndromes<V: Vector, const UNROLL: usize, const WITH_P: bool>(
    data: &[Option<&[u8]>],
    at: usize,
) -> ([V; UNROLL], [V; UNROLL]) {
    // SAFETY: the caller's promise covers all blocks of `data`.
    unsafe {
        let mut blocks = data.iter().rev();
        let mut p = match blocks.next() {
            Some(Some(highest)) => load::<V, UNROLL>(highest.as_ptr(), at),
            _ => [V::zero(); UNROLL],
        };
        let mut q = horner_begin(p);
        for block in blocks {
            match block {
                Some(block) => {
                    let next = load::<V, UNROLL>(block.as_ptr(), at);
                    horner(&mut q, next);
                    if WITH_P {
                        add(&mut p, next);
                    }
                }
                None => horner(&mut q, [V::zero(); UNROLL]),
            }
        }
        horner_end(&mut q);
        (p, q)
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

/// Blocks above the last one present add nothing to a Horner evaluation that starts at zero.
fn without_high_gaps<'a, 'b>(data: &'a [Option<&'b [u8]>]) -> &'a [Option<&'b [u8]>] {
    let present = data.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    &data[..present]
}

// ------------------------------------------------------------------------------------------- XOR

struct XorFixed<const N: usize, const INTO: bool> {
    dst: *mut u8,
    srcs: [*const u8; N],
}

impl<const N: usize, const INTO: bool> Body for XorFixed<N, INTO> {
    #[inline(always)]
    unsafe fn step<V: Vector, const UNROLL: usize>(&mut self, at: usize) {
        // SAFETY: all blocks hold the step's bytes.
        unsafe {
            let mut sum = load::<V, UNROLL>(self.srcs[0], at);
            let mut next = 1;
            if INTO {
                add(&mut sum, load(self.dst, at));
            }
            while next + 1 < N {
                let first = load::<V, UNROLL>(self.srcs[next], at);
                let second = load::<V, UNROLL>(self.srcs[next + 1], at);
                for i in 0..UNROLL {
                    sum[i] = sum[i].xor3(first[i], second[i]);
                }
                next += 2;
            }
            if next < N {
                add(&mut sum, load(self.srcs[next], at));
            }
            store(sum, self.dst, at);
        }
    }
}

struct XorMany<'a, const INTO: bool> {
    dst: *mut u8,
    srcs: &'a [&'a [u8]],
}

impl<const INTO: bool> Body for XorMany<'_, INTO> {
    #[inline(always)]
    unsafe fn step<V: Vector, const UNROLL: usize>(&mut self, at: usize) {
        // SAFETY: all blocks hold the step's bytes.
        unsafe {
            let mut sum = if INTO { load(self.dst, at) } else { [V::zero(); UNROLL] };
            let mut pairs = self.srcs.chunks_exact(2);
            for pair in &mut pairs {
                let first = load::<V, UNROLL>(pair[0].as_ptr(), at);
                let second = load::<V, UNROLL>(pair[1].as_ptr(), at);
                for i in 0..UNROLL {
                    sum[i] = sum[i].xor3(first[i], second[i]);
                }
            }
            for src in pairs.remainder() {
                add(&mut sum, load(src.as_ptr(), at));
            }
            store(sum, self.dst, at);
        }
    }
}

/// `dst` = XOR of `srcs`, and of `dst` itself if `INTO`.
#[inline(always)]
pub(super) unsafe fn xor<V: Vector, const UNROLL: usize, const INTO: bool>(
    dst: &mut [u8],
    srcs: &[&[u8]],
) {
    #[inline(always)]
    unsafe fn fixed<V: Vector, const UNROLL: usize, const INTO: bool, const N: usize>(
        dst: &mut [u8],
        srcs: &[&[u8]],
    ) {
        let mut pointers = [std::ptr::null(); N];
        for (pointer, src) in pointers.iter_mut().zip(srcs) {
            *pointer = src.as_ptr();
        }
        let mut body = XorFixed::<N, INTO> { dst: dst.as_mut_ptr(), srcs: pointers };
        // SAFETY: N is the number of sources, and all have the length of `dst`.
        unsafe { run::<V, UNROLL>(&mut body, dst.len()) }
    }
    // SAFETY: the caller's promise; each arm's N is the number of sources.
    unsafe {
        match srcs.len() {
            1 => fixed::<V, UNROLL, INTO, 1>(dst, srcs),
            2 => fixed::<V, UNROLL, INTO, 2>(dst, srcs),
            3 => fixed::<V, UNROLL, INTO, 3>(dst, srcs),
            4 => fixed::<V, UNROLL, INTO, 4>(dst, srcs),
            5 => fixed::<V, UNROLL, INTO, 5>(dst, srcs),
            6 => fixed::<V, UNROLL, INTO, 6>(dst, srcs),
            7 => fixed::<V, UNROLL, INTO, 7>(dst, srcs),
            8 => fixed::<V, UNROLL, INTO, 8>(dst, srcs),
            _ => {
                let mut body = XorMany::<INTO> { dst: dst.as_mut_ptr(), srcs };
                run::<V, UNROLL>(&mut body, dst.len());
            }
        }
    }
}

// ----------------------------------------------------------------------------------------- P and Q

/// P and Q of `N` blocks without gaps.
struct PqFixed<const N: usize> {
    data: [*const u8; N],
    p: *mut u8,
    q: *mut u8,
}

impl<const N: usize> Body for PqFixed<N> {
    #[inline(always)]
    unsafe fn step<V: Vector, const UNROLL: usize>(&mut self, at: usize) {
        // SAFETY: all blocks hold the step's bytes.
        unsafe {
            let mut p = load::<V, UNROLL>(self.data[N - 1], at);
            let mut q = horner_begin(p);
            for &block in self.data[..N - 1].iter().rev() {
                let next = load::<V, UNROLL>(block, at);
                horner(&mut q, next);
                add(&mut p, next);
            }
            horner_end(&mut q);
            store(p, self.p, at);
            store(q, self.q, at);
        }
    }
}

struct Pq<'a, const WITH_P: bool> {
    data: &'a [Option<&'a [u8]>],
    p: *mut u8,
    q: *mut u8,
}

impl<const WITH_P: bool> Body for Pq<'_, WITH_P> {
    #[inline(always)]
    unsafe fn step<V: Vector, const UNROLL: usize>(&mut self, at: usize) {
        // SAFETY: all blocks hold the step's bytes; `p` is used only if there is one.
        unsafe {
            let (p, q) = syndromes::<V, UNROLL, WITH_P>(self.data, at);
            if WITH_P {
                store(p, self.p, at);
            }
            store(q, self.q, at);
        }
    }
}

#[inline(always)]
pub(super) unsafe fn pq<V: Vector, const UNROLL: usize>(
    data: &[Option<&[u8]>],
    p: &mut [u8],
    q: &mut [u8],
) {
    /// False if there is a gap.
    #[inline(always)]
    unsafe fn fixed<V: Vector, const UNROLL: usize, const N: usize>(
        data: &[Option<&[u8]>],
        p: &mut [u8],
        q: &mut [u8],
    ) -> bool {
        let mut pointers = [std::ptr::null(); N];
        for (pointer, block) in pointers.iter_mut().zip(data) {
            match block {
                Some(block) => *pointer = block.as_ptr(),
                None => return false,
            }
        }
        let mut body = PqFixed::<N> { data: pointers, p: p.as_mut_ptr(), q: q.as_mut_ptr() };
        // SAFETY: N is the number of blocks, and all have the length of `p`.
        unsafe { run::<V, UNROLL>(&mut body, p.len()) };
        true
    }
    let data = without_high_gaps(data);
    // SAFETY: the caller's promise: one length; each arm's N is the number of blocks.
    unsafe {
        let done = match data.len() {
            2 => fixed::<V, UNROLL, 2>(data, p, q),
            3 => fixed::<V, UNROLL, 3>(data, p, q),
            4 => fixed::<V, UNROLL, 4>(data, p, q),
            5 => fixed::<V, UNROLL, 5>(data, p, q),
            6 => fixed::<V, UNROLL, 6>(data, p, q),
            7 => fixed::<V, UNROLL, 7>(data, p, q),
            8 => fixed::<V, UNROLL, 8>(data, p, q),
            _ => false,
        };
        if !done {
            let mut body = Pq::<true> { data, p: p.as_mut_ptr(), q: q.as_mut_ptr() };
            run::<V, UNROLL>(&mut body, p.len());
        }
    }
}

#[inline(always)]
pub(super) unsafe fn q<V: Vector, const UNROLL: usize>(data: &[Option<&[u8]>], q: &mut [u8]) {
    let data = without_high_gaps(data);
    let mut body = Pq::<false> { data, p: std::ptr::null_mut(), q: q.as_mut_ptr() };
    // SAFETY: the caller's promise: one length.
    unsafe { run::<V, UNROLL>(&mut body, q.len()) }
}

// ------------------------------------------------------------------------------------ small writes

/// `q ^= constant * (old ^ new)`, and with `WITH_P` also `p ^= old ^ new`, with `IN_PLACE` also
/// `old = new`; without `WITH_Q` only P.
struct Delta<const WITH_P: bool, const WITH_Q: bool, const IN_PLACE: bool> {
    constant: u8,
    old: *mut u8,
    new: *const u8,
    p: *mut u8,
    q: *mut u8,
}

impl<const WITH_P: bool, const WITH_Q: bool, const IN_PLACE: bool> Body
    for Delta<WITH_P, WITH_Q, IN_PLACE>
{
    #[inline(always)]
    unsafe fn step<V: Vector, const UNROLL: usize>(&mut self, at: usize) {
        // SAFETY: all blocks in use hold the step's bytes; `old` is written only if IN_PLACE, and then it
        // came from a mutable block; `p` and `q` are touched only if there is one.
        unsafe {
            let mut delta = load::<V, UNROLL>(self.old, at);
            let new = load::<V, UNROLL>(self.new, at);
            add(&mut delta, new);
            if IN_PLACE {
                store(new, self.old, at);
            }
            if WITH_P {
                let mut p = load::<V, UNROLL>(self.p, at);
                add(&mut p, delta);
                store(p, self.p, at);
            }
            if WITH_Q {
                let factor = V::factor(self.constant);
                let mut q = load::<V, UNROLL>(self.q, at);
                for i in 0..UNROLL {
                    q[i] = q[i].xor(delta[i].times(factor));
                }
                store(q, self.q, at);
            }
        }
    }
}

#[inline(always)]
pub(super) unsafe fn delta_q<V: Vector, const UNROLL: usize>(
    constant: u8,
    old: &[u8],
    new: &[u8],
    q: &mut [u8],
) {
    let mut body = Delta::<false, true, false> {
        constant,
        old: old.as_ptr().cast_mut(),
        new: new.as_ptr(),
        p: std::ptr::null_mut(),
        q: q.as_mut_ptr(),
    };
    // SAFETY: the caller's promise: one length; `old` is not written without IN_PLACE.
    unsafe { run::<V, UNROLL>(&mut body, q.len()) }
}

#[inline(always)]
pub(super) unsafe fn delta_pq<V: Vector, const UNROLL: usize>(
    constant: u8,
    old: &[u8],
    new: &[u8],
    p: &mut [u8],
    q: &mut [u8],
) {
    let mut body = Delta::<true, true, false> {
        constant,
        old: old.as_ptr().cast_mut(),
        new: new.as_ptr(),
        p: p.as_mut_ptr(),
        q: q.as_mut_ptr(),
    };
    // SAFETY: the caller's promise: one length; `old` is not written without IN_PLACE.
    unsafe { run::<V, UNROLL>(&mut body, q.len()) }
}

#[inline(always)]
pub(super) unsafe fn update_p<V: Vector, const UNROLL: usize>(
    data: &mut [u8],
    new: &[u8],
    p: &mut [u8],
) {
    let mut body = Delta::<true, false, true> {
        constant: 0,
        old: data.as_mut_ptr(),
        new: new.as_ptr(),
        p: p.as_mut_ptr(),
        q: std::ptr::null_mut(),
    };
    // SAFETY: the caller's promise: one length.
    unsafe { run::<V, UNROLL>(&mut body, p.len()) }
}

#[inline(always)]
pub(super) unsafe fn update_pq<V: Vector, const UNROLL: usize>(
    constant: u8,
    data: &mut [u8],
    new: &[u8],
    p: &mut [u8],
    q: &mut [u8],
) {
    let mut body = Delta::<true, true, true> {
        constant,
        old: data.as_mut_ptr(),
        new: new.as_ptr(),
        p: p.as_mut_ptr(),
        q: q.as_mut_ptr(),
    };
    // SAFETY: the caller's promise: one length.
    unsafe { run::<V, UNROLL>(&mut body, q.len()) }
}

// ----------------------------------------------------------------------- full stripes with the copy

struct CopyXor<'a, 'b, const STREAM: bool> {
    dsts: &'a mut [&'b mut [u8]],
    srcs: &'a [&'a [u8]],
    p: *mut u8,
}

impl<const STREAM: bool> Body for CopyXor<'_, '_, STREAM> {
    #[inline(always)]
    unsafe fn step<V: Vector, const UNROLL: usize>(&mut self, at: usize) {
        // SAFETY: all blocks hold the step's bytes; if STREAM they are aligned.
        unsafe {
            let mut p = [V::zero(); UNROLL];
            for (dst, src) in self.dsts.iter_mut().zip(self.srcs) {
                let values = load::<V, UNROLL>(src.as_ptr(), at);
                put::<V, UNROLL, STREAM>(values, dst.as_mut_ptr(), at);
                add(&mut p, values);
            }
            put::<V, UNROLL, STREAM>(p, self.p, at);
        }
    }
}

struct CopyPq<'a, 'b, const STREAM: bool> {
    dsts: &'a mut [Option<&'b mut [u8]>],
    data: &'a [Option<&'a [u8]>],
    p: *mut u8,
    q: *mut u8,
}

impl<const STREAM: bool> Body for CopyPq<'_, '_, STREAM> {
    #[inline(always)]
    unsafe fn step<V: Vector, const UNROLL: usize>(&mut self, at: usize) {
        // SAFETY: all blocks hold the step's bytes; if STREAM the outputs are aligned.
        unsafe {
            let mut p = [V::zero(); UNROLL];
            let mut q = horner_begin([V::zero(); UNROLL]);
            for (dst, block) in self.dsts.iter_mut().zip(self.data).rev() {
                let mut next = [V::zero(); UNROLL];
                if let Some(block) = block {
                    next = load(block.as_ptr(), at);
                    if let Some(dst) = dst {
                        put::<V, UNROLL, STREAM>(next, dst.as_mut_ptr(), at);
                    }
                }
                horner(&mut q, next);
                add(&mut p, next);
            }
            horner_end(&mut q);
            put::<V, UNROLL, STREAM>(p, self.p, at);
            put::<V, UNROLL, STREAM>(q, self.q, at);
        }
    }
}

/// Whether streaming stores may go to `block`; 64 covers the widest vector.
fn streamable(block: &[u8]) -> bool {
    block.as_ptr().addr().is_multiple_of(64)
}

#[inline(always)]
pub(super) unsafe fn copy_xor<V: Vector, const UNROLL: usize>(
    dsts: &mut [&mut [u8]],
    srcs: &[&[u8]],
    p: &mut [u8],
    stores: Stores,
) {
    let len = p.len();
    let stream =
        stores == Stores::Streaming && streamable(p) && dsts.iter().all(|dst| streamable(dst));
    let p = p.as_mut_ptr();
    // SAFETY: the caller's promise: one length; streaming only if all outputs are aligned.
    unsafe {
        if stream {
            run::<V, UNROLL>(&mut CopyXor::<true> { dsts, srcs, p }, len);
            V::fence();
        } else {
            run::<V, UNROLL>(&mut CopyXor::<false> { dsts, srcs, p }, len);
        }
    }
}

#[inline(always)]
pub(super) unsafe fn copy_pq<V: Vector, const UNROLL: usize>(
    dsts: &mut [Option<&mut [u8]>],
    data: &[Option<&[u8]>],
    p: &mut [u8],
    q: &mut [u8],
    stores: Stores,
) {
    let len = p.len();
    let stream = stores == Stores::Streaming
        && streamable(p)
        && streamable(q)
        && dsts.iter().flatten().all(|dst| streamable(dst));
    let data = without_high_gaps(data);
    let dsts = &mut dsts[..data.len()];
    let (p, q) = (p.as_mut_ptr(), q.as_mut_ptr());
    // SAFETY: the caller's promise: one length; streaming only if all outputs are aligned.
    unsafe {
        if stream {
            run::<V, UNROLL>(&mut CopyPq::<true> { dsts, data, p, q }, len);
            V::fence();
        } else {
            run::<V, UNROLL>(&mut CopyPq::<false> { dsts, data, p, q }, len);
        }
    }
}

// ---------------------------------------------------------------------------------------- recovery

struct RecoverFromQ<'a> {
    data: &'a [Option<&'a [u8]>],
    constant: u8,
    q: *const u8,
    out: *mut u8,
}

impl Body for RecoverFromQ<'_> {
    #[inline(always)]
    unsafe fn step<V: Vector, const UNROLL: usize>(&mut self, at: usize) {
        // SAFETY: all blocks hold the step's bytes.
        unsafe {
            let (_, mut q) = syndromes::<V, UNROLL, false>(self.data, at);
            add(&mut q, load(self.q, at));
            let factor = V::factor(self.constant);
            for q in &mut q {
                *q = q.times(factor);
            }
            store(q, self.out, at);
        }
    }
}

/// `out = constant * (q ^ Q of data)`.
#[inline(always)]
pub(super) unsafe fn recover_from_q<V: Vector, const UNROLL: usize>(
    data: &[Option<&[u8]>],
    constant: u8,
    q: &[u8],
    out: &mut [u8],
) {
    let data = without_high_gaps(data);
    let mut body = RecoverFromQ { data, constant, q: q.as_ptr(), out: out.as_mut_ptr() };
    // SAFETY: the caller's promise: one length.
    unsafe { run::<V, UNROLL>(&mut body, out.len()) }
}

struct RecoverTwo<'a> {
    data: &'a [Option<&'a [u8]>],
    constants: (u8, u8),
    p: *const u8,
    q: *const u8,
    outs: (*mut u8, *mut u8),
}

impl Body for RecoverTwo<'_> {
    #[inline(always)]
    unsafe fn step<V: Vector, const UNROLL: usize>(&mut self, at: usize) {
        // SAFETY: all blocks hold the step's bytes.
        unsafe {
            let (mut p, mut q) = syndromes::<V, UNROLL, true>(self.data, at);
            add(&mut p, load(self.p, at));
            add(&mut q, load(self.q, at));
            let (for_p, for_q) = (V::factor(self.constants.0), V::factor(self.constants.1));
            for i in 0..UNROLL {
                q[i] = p[i].times(for_p).xor(q[i].times(for_q));
                p[i] = p[i].xor(q[i]);
            }
            store(q, self.outs.0, at);
            store(p, self.outs.1, at);
        }
    }
}

/// With the sums `s = p ^ P of data` and `t = q ^ Q of data`: `outs.0 = constants.0 * s ^
/// constants.1 * t`, and `outs.1 = s ^ outs.0`.
#[inline(always)]
pub(super) unsafe fn recover_two<V: Vector, const UNROLL: usize>(
    data: &[Option<&[u8]>],
    constants: (u8, u8),
    p: &[u8],
    q: &[u8],
    outs: (&mut [u8], &mut [u8]),
) {
    let len = p.len();
    let data = without_high_gaps(data);
    let outs = (outs.0.as_mut_ptr(), outs.1.as_mut_ptr());
    let mut body = RecoverTwo { data, constants, p: p.as_ptr(), q: q.as_ptr(), outs };
    // SAFETY: the caller's promise: one length.
    unsafe { run::<V, UNROLL>(&mut body, len) }
}

// ------------------------------------------------------------------------------------------- zeros

#[inline(always)]
unsafe fn all_zero<V: Vector, const UNROLL: usize>(block: *const u8, at: usize) -> bool {
    // SAFETY: the caller's promise covers `UNROLL` vectors from `at`.
    unsafe {
        let values = load::<V, UNROLL>(block, at);
        let mut any = values[0];
        for value in &values[1..] {
            any = any.or(*value);
        }
        any.is_zero()
    }
}

#[inline(always)]
pub(super) unsafe fn is_zero<V: Vector, const UNROLL: usize>(block: &[u8]) -> bool {
    let (start, len) = (block.as_ptr(), block.len());
    let mut at = 0;
    // SAFETY: each read is within `len`; V is the caller's promise.
    unsafe {
        while len - at >= UNROLL * V::BYTES {
            if !all_zero::<V, UNROLL>(start, at) {
                return false;
            }
            at += UNROLL * V::BYTES;
        }
        while len - at >= u64::BYTES {
            if !all_zero::<u64, 1>(start, at) {
                return false;
            }
            at += u64::BYTES;
        }
    }
    block[at..].iter().all(|&byte| byte == 0)
}
