//! Memory that several shards read and write: what a RAM device is made of.

use super::{ALIGN, block_layout};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::handle_alloc_error;
use std::ptr::NonNull;

/// A fixed range of zeroed memory, copied from and to by any shard.
///
/// As with a disk, two accesses to the same bytes at the same time leave or give either content;
/// the engine above never does that to bytes that it relies on (each stripe has one owner).
pub struct SharedMemory {
    pub(super) memory: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is only reached through `read`, `write` and `zero`, which copy bytes without
// making a reference to it, and through `in_place`, whose references live for one call that makes
// no other and calls nobody who could. Accesses to the same bytes by two threads at once are the
// device's contract (see the type) and touch plain bytes only.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// `len` zero bytes. Ends the process when there is not that much memory, as any allocation.
    pub fn new(len: usize) -> SharedMemory {
        let layout = block_layout(len.max(ALIGN));
        SharedMemory::try_new(len).unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// `len` zero bytes, or `None` when there is not that much memory. Pages come when they are
    /// first touched, huge ones where the system has them: random access over gigabytes is bound
    /// by address translation otherwise.
    pub fn try_new(len: usize) -> Option<SharedMemory> {
        let capacity = len.max(ALIGN);
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice disturbs nothing.
        let memory = unsafe { mmap_anonymous(std::ptr::null_mut(), capacity, access, flags) };
        let memory = NonNull::new(memory.ok()?.cast::<u8>())?;
        // SAFETY: the range is the mapping just made; the advice changes no content. Where it is
        // refused, small pages do as well.
        let _ = unsafe { madvise(memory.as_ptr().cast(), capacity, Advice::LinuxHugepage) };
        Some(SharedMemory { memory, len })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn holds(&self, at: usize, len: usize) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Copies from offset `at` into `into`. False, and nothing done, when out of range.
    pub fn read(&self, at: usize, into: &mut [u8]) -> bool {
        if !self.holds(at, into.len()) {
            return false;
        }
        // SAFETY: the range was checked; `into` is a Rust reference and so cannot be this memory.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.memory.as_ptr().add(at),
                into.as_mut_ptr(),
                into.len(),
            );
        }
        true
    }

    /// Copies `from` to offset `at`. False, and nothing done, when out of range.
    pub fn write(&self, at: usize, from: &[u8]) -> bool {
        if !self.holds(at, from.len()) {
            return false;
        }
        // SAFETY: as in `read`.
        unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr(), self.memory.as_ptr().add(at), from.len());
        }
        true
    }

    /// Zeroes `len` bytes at offset `at`. False, and nothing done, when out of range.
    pub fn zero(&self, at: usize, len: usize) -> bool {
        if !self.holds(at, len) {
            return false;
        }
        // SAFETY: the range was checked.
        unsafe { std::ptr::write_bytes(self.memory.as_ptr().add(at), 0, len) };
        true
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `try_new` with this length; nobody holds a handle any more. A refusal
        // would leave the memory mapped, which harms nobody.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.len.max(ALIGN)) };
    }
}
