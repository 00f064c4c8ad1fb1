//! P and Q, and the recovery of data from them.
//!
//! Q is evaluated by Horner's rule from the highest exponent down: one multiplication by 2 per block.

use super::vector::{
    Body, Vector, add, horner, horner_begin, horner_end, load, put, run, store, streamable,
};
use crate::arch::stores::Stores;

/// Up to this many blocks without gaps are read in parallel, with one loop for each number of blocks.
const MOST: usize = 8;
/// With ordinary stores, more blocks than this are processed in groups: P and Q are streams as well, and the
/// first-level cache may have only eight ways.
const MOST_CACHED: usize = 6;
/// Bytes that one group processes before the next group, so that P and Q stay in the first-level cache.
const TILE: usize = 4096;

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

/// Blocks above the last one present add nothing to a Horner evaluation that starts at zero.
fn without_high_gaps<'a, 'b>(data: &'a [Option<&'b [u8]>]) -> &'a [Option<&'b [u8]>] {
    let present = data.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    &data[..present]
}

/// P and Q of `N` blocks without gaps: all blocks, or those of one group. The group with the highest exponents (`BEGIN`)
/// starts the sums, all others continue those in `p` and `q`. All but the lowest group (`END`) leave an
/// intermediate value in `q` for the next.
#[derive(Clone, Copy)]
struct Group<const N: usize, const BEGIN: bool, const END: bool, const STREAM: bool> {
    data: [*const u8; N],
    p: *mut u8,
    q: *mut u8,
}

impl<const N: usize, const BEGIN: bool, const END: bool, const STREAM: bool> Body
    for Group<N, BEGIN, END, STREAM>
{
    #[inline(always)]
    unsafe fn step<V: Vector, const UNROLL: usize>(self, at: usize) {
        // SAFETY: all blocks hold the step's bytes; if STREAM the outputs are aligned. `run` splits
        // equal lengths equally, so each byte of `q` is continued by the vector type that the
        // previous group used for it.
        unsafe {
            let mut p = load::<V, UNROLL>(self.data[N - 1], at);
            let mut q;
            if BEGIN {
                q = horner_begin(p);
            } else {
                q = load::<V, UNROLL>(self.q, at);
                horner(&mut q, p);
                add(&mut p, load(self.p, at));
            }
            for &block in self.data[..N - 1].iter().rev() {
                let next = load::<V, UNROLL>(block, at);
                horner(&mut q, next);
                add(&mut p, next);
            }
            if END {
                horner_end(&mut q);
            }
            put::<V, UNROLL, STREAM>(p, self.p, at);
            put::<V, UNROLL, STREAM>(q, self.q, at);
        }
    }
}

/// Runs one [`Group`] of 1 to [`MOST`] blocks over the `len` bytes from `at`.
#[inline(always)]
unsafe fn group<
    V: Vector,
    const UNROLL: usize,
    const BEGIN: bool,
    const END: bool,
    const STREAM: bool,
>(
    data: &[Option<&[u8]>],
    p: &mut [u8],
    q: &mut [u8],
    at: usize,
    len: usize,
) {
    macro_rules! of {
        ($($n:literal)*) => {
            match data.len() {
                $($n => {
                    let mut pointers = [std::ptr::null(); $n];
                    for (pointer, block) in pointers.iter_mut().zip(data.iter().flatten()) {
                        *pointer = block[at..].as_ptr();
                    }
                    let (p, q) = (p[at..].as_mut_ptr(), q[at..].as_mut_ptr());
                    let body = Group::<$n, BEGIN, END, STREAM> { data: pointers, p, q };
                    // SAFETY: the caller's promise: no gaps, so that there are as many pointers as
                    // blocks, which all hold `len` bytes from `at`.
                    unsafe { run::<V, UNROLL>(body, len) }
                })*
                _ => {}
            }
        };
    }
    of! { 1 2 3 4 5 6 7 8 }
}

#[derive(Clone, Copy)]
struct Pq<'a, const WITH_P: bool> {
    data: &'a [Option<&'a [u8]>],
    p: *mut u8,
    q: *mut u8,
}

impl<const WITH_P: bool> Body for Pq<'_, WITH_P> {
    #[inline(always)]
    unsafe fn step<V: Vector, const UNROLL: usize>(self, at: usize) {
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

/// P and Q of `data`.
#[inline(always)]
pub(crate) unsafe fn pq<V: Vector, const UNROLL: usize, const LINE: usize>(
    data: &[Option<&[u8]>],
    p: &mut [u8],
    q: &mut [u8],
    stores: Stores,
) {
    let data = without_high_gaps(data);
    let (n, len) = (data.len(), p.len());
    let stream = stores == Stores::Streaming && n <= MOST && streamable(p) && streamable(q);
    // SAFETY: the caller's promise: one length; `group` is reached only without gaps; streaming only if
    // the outputs are aligned.
    unsafe {
        if n == 0 || data.iter().any(Option::is_none) {
            let body = Pq::<true> { data, p: p.as_mut_ptr(), q: q.as_mut_ptr() };
            run::<V, UNROLL>(body, len);
        } else if stream {
            group::<V, LINE, true, true, true>(data, p, q, 0, len);
            V::fence();
        } else if n <= MOST_CACHED {
            group::<V, UNROLL, true, true, false>(data, p, q, 0, len);
        } else {
            // Groups of nearly equal size: at most five each.
            let size = n.div_ceil(n.div_ceil(MOST_CACHED - 1));
            let (rest, highest) = data.split_at(n - size);
            for at in (0..len).step_by(TILE) {
                let tile = TILE.min(len - at);
                group::<V, UNROLL, true, false, false>(highest, p, q, at, tile);
                let mut rest = rest;
                while rest.len() > size {
                    let (lower, group_of_rest) = rest.split_at(rest.len() - size);
                    group::<V, UNROLL, false, false, false>(group_of_rest, p, q, at, tile);
                    rest = lower;
                }
                group::<V, UNROLL, false, true, false>(rest, p, q, at, tile);
            }
        }
    }
}

#[inline(always)]
pub(crate) unsafe fn q<V: Vector, const UNROLL: usize>(data: &[Option<&[u8]>], q: &mut [u8]) {
    let data = without_high_gaps(data);
    let body = Pq::<false> { data, p: std::ptr::null_mut(), q: q.as_mut_ptr() };
    // SAFETY: the caller's promise: one length.
    unsafe { run::<V, UNROLL>(body, q.len()) }
}

#[derive(Clone, Copy)]
struct RecoverFromQ<'a> {
    data: &'a [Option<&'a [u8]>],
    constant: u8,
    q: *const u8,
    out: *mut u8,
}

impl Body for RecoverFromQ<'_> {
    #[inline(always)]
    unsafe fn step<V: Vector, const UNROLL: usize>(self, at: usize) {
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
pub(crate) unsafe fn recover_from_q<V: Vector, const UNROLL: usize>(
    data: &[Option<&[u8]>],
    constant: u8,
    q: &[u8],
    out: &mut [u8],
) {
    let data = without_high_gaps(data);
    let body = RecoverFromQ { data, constant, q: q.as_ptr(), out: out.as_mut_ptr() };
    // SAFETY: the caller's promise: one length.
    unsafe { run::<V, UNROLL>(body, out.len()) }
}

#[derive(Clone, Copy)]
struct RecoverTwo<'a> {
    data: &'a [Option<&'a [u8]>],
    constants: (u8, u8),
    p: *const u8,
    q: *const u8,
    outs: (*mut u8, *mut u8),
}

impl Body for RecoverTwo<'_> {
    #[inline(always)]
    unsafe fn step<V: Vector, const UNROLL: usize>(self, at: usize) {
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
pub(crate) unsafe fn recover_two<V: Vector, const UNROLL: usize>(
    data: &[Option<&[u8]>],
    constants: (u8, u8),
    p: &[u8],
    q: &[u8],
    outs: (&mut [u8], &mut [u8]),
) {
    let len = p.len();
    let data = without_high_gaps(data);
    let outs = (outs.0.as_mut_ptr(), outs.1.as_mut_ptr());
    let body = RecoverTwo { data, constants, p: p.as_ptr(), q: q.as_ptr(), outs };
    // SAFETY: the caller's promise: one length.
    unsafe { run::<V, UNROLL>(body, len) }
}
