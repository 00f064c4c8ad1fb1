//! Small writes: parity from the difference of old and new data.

use super::vector::{Body, Vector, add, load, run, store};

/// `q ^= constant * (old ^ new)`, and with `WITH_P` also `p ^= old ^ new`, with `IN_PLACE` also
/// `old = new`; without `WITH_Q` only P.
#[derive(Clone, Copy)]
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
    unsafe fn step<V: Vector, const UNROLL: usize>(self, at: usize) {
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
pub(crate) unsafe fn delta_q<V: Vector, const UNROLL: usize>(
    constant: u8,
    old: &[u8],
    new: &[u8],
    q: &mut [u8],
) {
    let body = Delta::<false, true, false> {
        constant,
        old: old.as_ptr().cast_mut(),
        new: new.as_ptr(),
        p: std::ptr::null_mut(),
        q: q.as_mut_ptr(),
    };
    // SAFETY: the caller's promise: one length; `old` is not written without IN_PLACE.
    unsafe { run::<V, UNROLL>(body, q.len()) }
}

#[inline(always)]
pub(crate) unsafe fn delta_pq<V: Vector, const UNROLL: usize>(
    constant: u8,
    old: &[u8],
    new: &[u8],
    p: &mut [u8],
    q: &mut [u8],
) {
    let body = Delta::<true, true, false> {
        constant,
        old: old.as_ptr().cast_mut(),
        new: new.as_ptr(),
        p: p.as_mut_ptr(),
        q: q.as_mut_ptr(),
    };
    // SAFETY: the caller's promise: one length; `old` is not written without IN_PLACE.
    unsafe { run::<V, UNROLL>(body, q.len()) }
}

#[inline(always)]
pub(crate) unsafe fn update_p<V: Vector, const UNROLL: usize>(
    data: &mut [u8],
    new: &[u8],
    p: &mut [u8],
) {
    let body = Delta::<true, false, true> {
        constant: 0,
        old: data.as_mut_ptr(),
        new: new.as_ptr(),
        p: p.as_mut_ptr(),
        q: std::ptr::null_mut(),
    };
    // SAFETY: the caller's promise: one length.
    unsafe { run::<V, UNROLL>(body, p.len()) }
}

#[inline(always)]
pub(crate) unsafe fn update_pq<V: Vector, const UNROLL: usize>(
    constant: u8,
    data: &mut [u8],
    new: &[u8],
    p: &mut [u8],
    q: &mut [u8],
) {
    let body = Delta::<true, true, true> {
        constant,
        old: data.as_mut_ptr(),
        new: new.as_ptr(),
        p: p.as_mut_ptr(),
        q: q.as_mut_ptr(),
    };
    // SAFETY: the caller's promise: one length.
    unsafe { run::<V, UNROLL>(body, q.len()) }
}
