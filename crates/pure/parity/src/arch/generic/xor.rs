//! XOR of any number of sources.

use super::vector::{Body, Vector, add, load, put, run, streamable};
use crate::arch::stores::Stores;

/// The most sources that are read in parallel: common first-level caches have this many ways.
const MOST: usize = 8;
/// Bytes that are summed over one group of sources before the next group, so that the sum stays in the first-level cache.
const TILE: usize = 4096;

#[derive(Clone, Copy)]
struct Sum<const N: usize, const INTO: bool, const STREAM: bool> {
    dst: *mut u8,
    srcs: [*const u8; N],
}

impl<const N: usize, const INTO: bool, const STREAM: bool> Body for Sum<N, INTO, STREAM> {
    #[inline(always)]
    unsafe fn step<V: Vector, const UNROLL: usize>(self, at: usize) {
        // SAFETY: all blocks hold the step's bytes; if STREAM the output is aligned.
        unsafe {
            let mut sum = load::<V, UNROLL>(self.srcs[0], at);
            for &src in &self.srcs[1..] {
                add(&mut sum, load(src, at));
            }
            if INTO {
                add(&mut sum, load(self.dst, at));
            }
            put::<V, UNROLL, STREAM>(sum, self.dst, at);
        }
    }
}

/// Sums 1 to [`MOST`] sources over the `len` bytes from `at`.
#[inline(always)]
unsafe fn sum<V: Vector, const UNROLL: usize, const INTO: bool, const STREAM: bool>(
    dst: &mut [u8],
    srcs: &[&[u8]],
    at: usize,
    len: usize,
) {
    #[inline(always)]
    unsafe fn of<
        V: Vector,
        const UNROLL: usize,
        const INTO: bool,
        const STREAM: bool,
        const N: usize,
    >(
        dst: &mut [u8],
        srcs: &[&[u8]],
        at: usize,
        len: usize,
    ) {
        let mut pointers = [std::ptr::null(); N];
        for (pointer, src) in pointers.iter_mut().zip(srcs) {
            *pointer = src[at..].as_ptr();
        }
        let dst = dst[at..].as_mut_ptr();
        // SAFETY: N is the number of sources, and all blocks hold `len` bytes from `at`.
        unsafe { run::<V, UNROLL>(Sum::<N, INTO, STREAM> { dst, srcs: pointers }, len) }
    }
    // SAFETY: the caller's promise; each arm's N is the number of sources.
    unsafe {
        match srcs.len() {
            1 => of::<V, UNROLL, INTO, STREAM, 1>(dst, srcs, at, len),
            2 => of::<V, UNROLL, INTO, STREAM, 2>(dst, srcs, at, len),
            3 => of::<V, UNROLL, INTO, STREAM, 3>(dst, srcs, at, len),
            4 => of::<V, UNROLL, INTO, STREAM, 4>(dst, srcs, at, len),
            5 => of::<V, UNROLL, INTO, STREAM, 5>(dst, srcs, at, len),
            6 => of::<V, UNROLL, INTO, STREAM, 6>(dst, srcs, at, len),
            7 => of::<V, UNROLL, INTO, STREAM, 7>(dst, srcs, at, len),
            8 => of::<V, UNROLL, INTO, STREAM, 8>(dst, srcs, at, len),
            _ => {}
        }
    }
}

/// `dst` = XOR of `srcs`, of which there is at least one. Streaming is used for up to [`MOST`] sources only: more
/// are summed in groups, and each group reads the sum again.
#[inline(always)]
pub(crate) unsafe fn xor<V: Vector, const UNROLL: usize>(
    dst: &mut [u8],
    srcs: &[&[u8]],
    stores: Stores,
) {
    let len = dst.len();
    // SAFETY: the caller's promise: one length; streaming only if the output is aligned.
    unsafe {
        if srcs.len() > MOST {
            let (first, rest) = srcs.split_at(MOST);
            for at in (0..len).step_by(TILE) {
                let tile = TILE.min(len - at);
                sum::<V, UNROLL, false, false>(dst, first, at, tile);
                for group in rest.chunks(MOST) {
                    sum::<V, UNROLL, true, false>(dst, group, at, tile);
                }
            }
        } else if stores == Stores::Streaming && streamable(dst) {
            sum::<V, UNROLL, false, true>(dst, srcs, 0, len);
            V::fence();
        } else {
            sum::<V, UNROLL, false, false>(dst, srcs, 0, len);
        }
    }
}

/// `dst ^=` XOR of `srcs`.
#[inline(always)]
pub(crate) unsafe fn xor_into<V: Vector, const UNROLL: usize>(dst: &mut [u8], srcs: &[&[u8]]) {
    let len = dst.len();
    if srcs.len() <= MOST {
        // SAFETY: the caller's promise: one length.
        return unsafe { sum::<V, UNROLL, true, false>(dst, srcs, 0, len) };
    }
    for at in (0..len).step_by(TILE) {
        for group in srcs.chunks(MOST) {
            // SAFETY: the caller's promise: one length.
            unsafe { sum::<V, UNROLL, true, false>(dst, group, at, TILE.min(len - at)) }
        }
    }
}
