//! Memory that several shards read and write. RAM devices are made of it.

use super::memory::{ALIGN, block_layout};
use super::racy;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::handle_alloc_error;
use std::ptr::NonNull;

/// A fixed range of zeroed memory, copied from and to by any shard.
///
/// As with a disk, two accesses to the same bytes at the same time may leave or return any mixture of the two
/// contents. The engine above never lets that happen to bytes that it relies on (each stripe has one owner).
pub struct SharedMemory {
    pub(super) memory: NonNull<u8>,
    len: usize,
}

// SAFETY: all accesses go through `racy`, whose copies may run on any number of threads at the same time,
// from and to the same bytes. No reference to the memory is ever made.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// `len` zero bytes. Aborts the process when there is not that much memory, as any allocation does.
    pub fn new(len: usize) -> SharedMemory {
        let layout = block_layout(len.max(ALIGN));
        SharedMemory::try_new(len).unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// `len` zero bytes, or `None` when there is not that much memory. Pages are allocated when they are
    /// first touched. They are huge pages where the system has them: without those, random access over gigabytes
    /// is limited by TLB misses.
    pub fn try_new(len: usize) -> Option<SharedMemory> {
        let capacity = len.max(ALIGN);
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice disturbs nothing.
        let memory = unsafe { mmap_anonymous(std::ptr::null_mut(), capacity, access, flags) };
        let memory = NonNull::new(memory.ok()?.cast::<u8>())?;
        // SAFETY: the range is the mapping just made; the advice changes no content. If it is
        // refused the memory has small pages, which work as well.
        let _ = unsafe { madvise(memory.as_ptr().cast(), capacity, Advice::LinuxHugepage) };
        Some(SharedMemory { memory, len })
    }

    /// Length in bytes.
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

    /// Copies from offset `at` into `into`. False when the range is out of bounds; nothing is copied then.
    pub fn read(&self, at: usize, into: &mut [u8]) -> bool {
        if !self.holds(at, into.len()) {
            return false;
        }
        // SAFETY: the range was checked; `into` is a Rust reference and so cannot be this memory.
        unsafe { racy::load(self.memory.as_ptr().add(at), into.as_mut_ptr(), into.len()) };
        true
    }

    /// Copies `from` to offset `at`. False when the range is out of bounds; nothing is copied then.
    pub fn write(&self, at: usize, from: &[u8]) -> bool {
        if !self.holds(at, from.len()) {
            return false;
        }
        // SAFETY: as in `read`.
        unsafe { racy::store(from.as_ptr(), self.memory.as_ptr().add(at), from.len()) };
        true
    }

    /// Zeroes `len` bytes at offset `at`. False when the range is out of bounds; nothing is zeroed then.
    pub fn zero(&self, at: usize, len: usize) -> bool {
        if !self.holds(at, len) {
            return false;
        }
        // SAFETY: the range was checked.
        unsafe { racy::zero(self.memory.as_ptr().add(at), len) };
        true
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `try_new` with this length, and nothing points into it any more. If munmap
        // fails the memory stays mapped, which does no harm.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.len.max(ALIGN)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_is_copied_and_nothing_beside_it() {
        let memory = SharedMemory::new(16384);
        let mut model = vec![0u8; 16384];
        let mut seed = 1u32;
        let mut next = |below: usize| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) as usize % below
        };
        for round in 0..500 {
            // Lengths on both sides of the limits between the ways of copying.
            let len = match round % 4 {
                0 => next(200),
                1 => 64 * next(40),
                2 => 8 * next(700),
                _ => next(8000),
            };
            let at = if round % 3 == 0 { next(8000) } else { 512 * next(16) };
            if round % 5 == 0 {
                assert!(memory.zero(at, len));
                model[at..at + len].fill(0);
            } else {
                let bytes: Vec<u8> = (0..len).map(|nr| (nr * 7 + round) as u8).collect();
                assert!(memory.write(at, &bytes));
                model[at..at + len].copy_from_slice(&bytes);
            }
            let (from, len) = (next(8000), next(8000));
            let mut read = vec![1; len];
            assert!(memory.read(from, &mut read) && read == model[from..from + len], "{round}");
        }
        assert!(!memory.write(16384, &[1]) && !memory.zero(0, 16385));
        assert!(!memory.read(usize::MAX, &mut [0; 2]));
    }

    #[test]
    fn threads_may_copy_the_same_bytes_at_once() {
        let memory = SharedMemory::new(4096);
        std::thread::scope(|scope| {
            for value in [1, 2] {
                let memory = &memory;
                scope.spawn(move || (0..2000).all(|_| memory.write(0, &[value; 4096])));
            }
            let mut seen = [0; 4096];
            for _ in 0..2000 {
                assert!(memory.read(0, &mut seen));
                assert!(seen.iter().all(|byte| *byte <= 2));
            }
        });
    }
}
