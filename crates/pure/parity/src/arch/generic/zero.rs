//! The test for zero blocks.

use super::vector::{Vector, load};

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
pub(crate) unsafe fn is_zero<V: Vector, const UNROLL: usize>(block: &[u8]) -> bool {
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
