//! Copies from and to memory that other threads may be writing to.
//!
//! In Rust a plain copy of bytes that another thread is writing is undefined behaviour, even if the caller would
//! accept any mixture of old and new bytes, as users of a disk must. So these copies are not plain: on x86-64 Linux
//! memcpy and memset of the C library are called from assembly, about which the compiler assumes only that it may
//! touch memory; elsewhere the copies consist of relaxed atomic accesses.
//!
//! Only the shared side needs this. It is reached by pointer; no reference to it is made here.

/// Copies `len` bytes of shared memory to memory that belongs to the caller.
///
/// # Safety
/// `shared` may be read and `own` written for `len` bytes, they do not overlap, and nobody else uses `own`.
pub(super) unsafe fn load(shared: *const u8, own: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { machine::load(shared, own, len) }
}

/// Copies `len` bytes that belong to the caller to shared memory.
///
/// # Safety
/// `own` may be read and `shared` written for `len` bytes, they do not overlap, and nobody else writes to `own`.
pub(super) unsafe fn store(own: *const u8, shared: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { machine::store(own, shared, len) }
}

/// Zeroes `len` bytes of shared memory.
///
/// # Safety
/// `shared` may be written for `len` bytes.
pub(super) unsafe fn zero(shared: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { machine::zero(shared, len) }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod machine {
    use std::arch::asm;

    unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        let memcpy: unsafe extern "C" fn(*mut _, *const _, usize) -> *mut _ = libc::memcpy;
        // SAFETY: the call follows the C ABI, and the arguments are valid for memcpy: the caller promises that both
        // ranges may be used and do not overlap.
        unsafe {
            asm!(
                "call {memcpy}",
                memcpy = in(reg) memcpy,
                in("rdi") to,
                in("rsi") from,
                in("rdx") len,
                clobber_abi("C")
            );
        }
    }

    pub unsafe fn load(shared: *const u8, own: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { copy(shared, own, len) }
    }

    pub unsafe fn store(own: *const u8, shared: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { copy(own, shared, len) }
    }

    pub unsafe fn zero(shared: *mut u8, len: usize) {
        let memset: unsafe extern "C" fn(*mut _, i32, usize) -> *mut _ = libc::memset;
        // SAFETY: as in `copy`.
        unsafe {
            asm!(
                "call {memset}",
                memset = in(reg) memset,
                in("rdi") shared,
                in("esi") 0,
                in("rdx") len,
                clobber_abi("C")
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
mod machine {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

    /// True when the range can be copied in words, as the blocks of a device always can; else it is copied in bytes.
    fn in_words(shared: *const u8, len: usize) -> bool {
        (shared as usize).is_multiple_of(8) && len.is_multiple_of(8)
    }

    pub unsafe fn load(shared: *const u8, own: *mut u8, len: usize) {
        // SAFETY: each access lies within the ranges that the caller promises, and is aligned where it must be.
        unsafe {
            if in_words(shared, len) {
                for at in (0..len).step_by(8) {
                    let word = &*shared.add(at).cast::<AtomicU64>();
                    own.add(at).cast::<u64>().write_unaligned(word.load(Ordering::Relaxed));
                }
            } else {
                for at in 0..len {
                    let byte = &*shared.add(at).cast::<AtomicU8>();
                    own.add(at).write(byte.load(Ordering::Relaxed));
                }
            }
        }
    }

    pub unsafe fn store(own: *const u8, shared: *mut u8, len: usize) {
        // SAFETY: as in `load`.
        unsafe {
            if in_words(shared, len) {
                for at in (0..len).step_by(8) {
                    let word = &*shared.add(at).cast::<AtomicU64>();
                    word.store(own.add(at).cast::<u64>().read_unaligned(), Ordering::Relaxed);
                }
            } else {
                for at in 0..len {
                    let byte = &*shared.add(at).cast::<AtomicU8>();
                    byte.store(own.add(at).read(), Ordering::Relaxed);
                }
            }
        }
    }

    pub unsafe fn zero(shared: *mut u8, len: usize) {
        const ZEROES: [u8; 512] = [0; 512];
        for at in (0..len).step_by(ZEROES.len()) {
            // SAFETY: within the range that the caller promises.
            unsafe { store(ZEROES.as_ptr(), shared.add(at), ZEROES.len().min(len - at)) };
        }
    }
}
