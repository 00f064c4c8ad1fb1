//! Copying the data of a full stripe while P, or P and Q, are computed.
//!
//! The copy goes tile by tile and, within a tile, block by block. The sums are in a buffer that stays in
//! the first-level cache, so the memory sees one stream at a time. Writing all blocks in parallel
//! with streaming stores took more than twice as long.

use super::vector::{
    Body, Vector, add, horner, horner_begin, horner_end, load, put, run, store, streamable,
};
use crate::arch::stores::Stores;

/// The largest tile, in bytes of one block.
const TILE: usize = 4096;

/// Bytes of one block that are copied before the next block. Streaming stores are faster with small tiles, which finish a row of all blocks while
/// the memory has it open; ordinary stores are faster with larger tiles, because there are fewer of them.
const fn turn(stream: bool) -> usize {
    if stream { TILE / 4 } else { TILE }
}

/// The sums of one tile.
#[repr(align(64))]
struct Tile([u8; TILE]);

/// `dst = src`, and `sum ^ src` into `sum`, or into `p` if this is the `LAST` block.
#[derive(Clone, Copy)]
struct CopyNext<const LAST: bool, const STREAM: bool> {
    src: *const u8,
    dst: *mut u8,
    sum: *mut u8,
    p: *mut u8,
}

impl<const LAST: bool, const STREAM: bool> Body for CopyNext<LAST, STREAM> {
    #[inline(always)]
    unsafe fn step<V: Vector, const UNROLL: usize>(self, at: usize) {
        // SAFETY: all blocks and the sum hold the step's bytes; if STREAM the outputs are aligned.
        unsafe {
            let mut values = load::<V, UNROLL>(self.src, at);
            put::<V, UNROLL, STREAM>(values, self.dst, at);
            add(&mut values, load(self.sum, at));
            if LAST {
                put::<V, UNROLL, STREAM>(values, self.p, at);
            } else {
                store(values, self.sum, at);
            }
        }
    }
}

/// Starts the sum with two blocks. With one block the loop would be a plain copy to the sum, which
/// the compiler replaces by a call of memcpy, and that is four times slower for a tile.
#[derive(Clone, Copy)]
struct CopyFirst<const LAST: bool, const STREAM: bool> {
    srcs: [*const u8; 2],
    dsts: [*mut u8; 2],
    sum: *mut u8,
    p: *mut u8,
}

impl<const LAST: bool, const STREAM: bool> Body for CopyFirst<LAST, STREAM> {
    #[inline(always)]
    unsafe fn step<V: Vector, const UNROLL: usize>(self, at: usize) {
        // SAFETY: all blocks and the sum hold the step's bytes; if STREAM the outputs are aligned.
        unsafe {
            let mut values = load::<V, UNROLL>(self.srcs[0], at);
            let second = load::<V, UNROLL>(self.srcs[1], at);
            put::<V, UNROLL, STREAM>(values, self.dsts[0], at);
            put::<V, UNROLL, STREAM>(second, self.dsts[1], at);
            add(&mut values, second);
            if LAST {
                put::<V, UNROLL, STREAM>(values, self.p, at);
            } else {
                store(values, self.sum, at);
            }
        }
    }
}

#[inline(always)]
unsafe fn copy_xor_tiles<V: Vector, const UNROLL: usize, const STREAM: bool>(
    dsts: &mut [&mut [u8]],
    srcs: &[&[u8]],
    p: &mut [u8],
) {
    if let ([src], [dst]) = (srcs, &mut *dsts) {
        // P of one block is another copy of it.
        dst.copy_from_slice(src);
        p.copy_from_slice(src);
        return;
    }
    let ([first, second, rest @ ..], [first_dst, second_dst, rest_dsts @ ..]) = (srcs, dsts) else {
        return; // The caller's promise: at least one block.
    };
    let mut tile = Tile([0; TILE]);
    let sum = tile.0.as_mut_ptr();
    for at in (0..p.len()).step_by(turn(STREAM)) {
        let len = turn(STREAM).min(p.len() - at);
        let p = p[at..].as_mut_ptr();
        let srcs = [first[at..].as_ptr(), second[at..].as_ptr()];
        let dsts = [first_dst[at..].as_mut_ptr(), second_dst[at..].as_mut_ptr()];
        // SAFETY: the caller's promise: one length; `len` is at most a tile.
        unsafe {
            if rest.is_empty() {
                run::<V, UNROLL>(CopyFirst::<true, STREAM> { srcs, dsts, sum, p }, len);
            } else {
                run::<V, UNROLL>(CopyFirst::<false, STREAM> { srcs, dsts, sum, p }, len);
            }
            for (i, (src, dst)) in rest.iter().zip(rest_dsts.iter_mut()).enumerate() {
                let (src, dst) = (src[at..].as_ptr(), dst[at..].as_mut_ptr());
                if i + 1 == rest.len() {
                    run::<V, UNROLL>(CopyNext::<true, STREAM> { src, dst, sum, p }, len);
                } else {
                    run::<V, UNROLL>(CopyNext::<false, STREAM> { src, dst, sum, p }, len);
                }
            }
        }
    }
}

/// `dsts[i] = srcs[i]`, `p` = XOR of `srcs`; as many `dsts` as `srcs`, at least one.
#[inline(always)]
pub(crate) unsafe fn copy_xor<V: Vector, const UNROLL: usize>(
    dsts: &mut [&mut [u8]],
    srcs: &[&[u8]],
    p: &mut [u8],
    stores: Stores,
) {
    let stream =
        stores == Stores::Streaming && streamable(p) && dsts.iter().all(|dst| streamable(dst));
    // SAFETY: the caller's promise: one length; streaming only if all outputs are aligned.
    unsafe {
        if stream {
            copy_xor_tiles::<V, UNROLL, true>(dsts, srcs, p);
            V::fence();
        } else {
            copy_xor_tiles::<V, UNROLL, false>(dsts, srcs, p);
        }
    }
}

/// One Horner step of a tile: `dst = src` if `COPY`, `p ^= src`, `q = 2q ^ src`.
#[derive(Clone, Copy)]
struct CopyHorner<const COPY: bool, const STREAM: bool> {
    src: *const u8,
    dst: *mut u8,
    p: *mut u8,
    q: *mut u8,
}

impl<const COPY: bool, const STREAM: bool> Body for CopyHorner<COPY, STREAM> {
    #[inline(always)]
    unsafe fn step<V: Vector, const UNROLL: usize>(self, at: usize) {
        // SAFETY: all blocks and sums hold the step's bytes; `dst` is used only if COPY; if STREAM it is
        // aligned.
        unsafe {
            let next = load::<V, UNROLL>(self.src, at);
            if COPY {
                put::<V, UNROLL, STREAM>(next, self.dst, at);
            }
            let mut p = load::<V, UNROLL>(self.p, at);
            add(&mut p, next);
            store(p, self.p, at);
            let mut q = load::<V, UNROLL>(self.q, at);
            horner(&mut q, next);
            store(q, self.q, at);
        }
    }
}

/// Starts the sums of a tile with zero.
#[derive(Clone, Copy)]
struct Begin {
    p: *mut u8,
    q: *mut u8,
}

impl Body for Begin {
    #[inline(always)]
    unsafe fn step<V: Vector, const UNROLL: usize>(self, at: usize) {
        // SAFETY: the sums hold the step's bytes.
        unsafe {
            store([V::zero(); UNROLL], self.p, at);
            store(horner_begin([V::zero(); UNROLL]), self.q, at);
        }
    }
}

/// Stores the sums of a tile in the outputs.
#[derive(Clone, Copy)]
struct End<const STREAM: bool> {
    sums: (*const u8, *const u8),
    p: *mut u8,
    q: *mut u8,
}

impl<const STREAM: bool> Body for End<STREAM> {
    #[inline(always)]
    unsafe fn step<V: Vector, const UNROLL: usize>(self, at: usize) {
        // SAFETY: the sums and the outputs hold the step's bytes; if STREAM the outputs are aligned.
        unsafe {
            let p = load::<V, UNROLL>(self.sums.0, at);
            let mut q = load::<V, UNROLL>(self.sums.1, at);
            horner_end(&mut q);
            put::<V, UNROLL, STREAM>(p, self.p, at);
            put::<V, UNROLL, STREAM>(q, self.q, at);
        }
    }
}

#[inline(always)]
unsafe fn copy_pq_tiles<V: Vector, const UNROLL: usize, const STREAM: bool>(
    dsts: &mut [Option<&mut [u8]>],
    data: &[Option<&[u8]>],
    p: &mut [u8],
    q: &mut [u8],
) {
    let (mut tile_p, mut tile_q) = (Tile([0; TILE]), Tile([0; TILE]));
    // The source for gaps.
    let zeros = Tile([0; TILE]);
    let (sum_p, sum_q) = (tile_p.0.as_mut_ptr(), tile_q.0.as_mut_ptr());
    for at in (0..p.len()).step_by(turn(STREAM)) {
        let len = turn(STREAM).min(p.len() - at);
        // SAFETY: the caller's promise: one length; `len` is at most a tile. Every pass splits the same
        // length into the same vectors, so each continues with the value that the previous one left in `sum_q`.
        unsafe {
            run::<V, UNROLL>(Begin { p: sum_p, q: sum_q }, len);
            for (block, dst) in data.iter().zip(dsts.iter_mut()).rev() {
                let src = block.map_or(zeros.0.as_ptr(), |block| block[at..].as_ptr());
                if let Some(dst) = dst {
                    let dst = dst[at..].as_mut_ptr();
                    let body = CopyHorner::<true, STREAM> { src, dst, p: sum_p, q: sum_q };
                    run::<V, UNROLL>(body, len);
                } else {
                    let dst = std::ptr::null_mut();
                    let body = CopyHorner::<false, STREAM> { src, dst, p: sum_p, q: sum_q };
                    run::<V, UNROLL>(body, len);
                }
            }
            let (p, q) = (p[at..].as_mut_ptr(), q[at..].as_mut_ptr());
            run::<V, UNROLL>(End::<STREAM> { sums: (sum_p, sum_q), p, q }, len);
        }
    }
}

/// `dsts[i] = data[i]` where there is a `dsts[i]`, P and Q of `data`; as many `dsts` as `data`, and none
/// for a gap.
#[inline(always)]
pub(crate) unsafe fn copy_pq<V: Vector, const UNROLL: usize>(
    dsts: &mut [Option<&mut [u8]>],
    data: &[Option<&[u8]>],
    p: &mut [u8],
    q: &mut [u8],
    stores: Stores,
) {
    let stream = stores == Stores::Streaming
        && streamable(p)
        && streamable(q)
        && dsts.iter().flatten().all(|dst| streamable(dst));
    // SAFETY: the caller's promise: one length; streaming only if all outputs are aligned.
    unsafe {
        if stream {
            copy_pq_tiles::<V, UNROLL, true>(dsts, data, p, q);
            V::fence();
        } else {
            copy_pq_tiles::<V, UNROLL, false>(dsts, data, p, q);
        }
    }
}
