//! Memory of small blocks, cut from larger pieces.
//!
//! A block that is asked of the system by itself, aligned as it has to be, costs about twice its size: the system's own note
//! lies in front of it, so the next block begins a page later. A region has no notes between its blocks. The pages of a block
//! that is given back go back to the system at once, and the region when none of its blocks is in use.

use super::memory::block_layout;
use std::alloc::handle_alloc_error;
use std::ptr::{NonNull, null_mut};

/// Bytes of a region.
const REGION: usize = 1 << 20;
/// Larger blocks, in bytes, are asked of the system one by one.
pub(super) const BLOCK_MAX: usize = 64 << 10;

struct Region {
    memory: NonNull<u8>,
    /// Blocks that nobody uses.
    unused: Vec<NonNull<u8>>,
}

/// The regions of blocks of one size.
#[derive(Default)]
pub(super) struct Regions {
    /// `None` where a region was that has gone back.
    all: Vec<Option<Region>>,
    /// Numbers of regions with unused blocks.
    partly: Vec<u32>,
}

impl Regions {
    /// Memory of `size` bytes (a power of two up to [`BLOCK_MAX`], the same in every call), and the number of its region.
    pub(super) fn take(&mut self, size: usize) -> (NonNull<u8>, u32) {
        let number = match self.partly.last() {
            Some(number) => *number,
            None => self.add(size),
        };
        let region = self.all.get_mut(number as usize).and_then(Option::as_mut);
        let Some((memory, rest)) =
            region.and_then(|region| Some((region.unused.pop()?, region.unused.len())))
        else {
            unreachable!("a region in the list has unused blocks");
        };
        if rest == 0 {
            self.partly.pop();
        }
        (memory, number)
    }

    fn add(&mut self, size: usize) -> u32 {
        let memory = map();
        // SAFETY: the blocks lie one after the other within the region.
        let block = |nr: usize| unsafe { memory.add(nr * size) };
        let region = Region { memory, unused: (0..REGION / size).rev().map(block).collect() };
        let number = match self.all.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.all.push(None);
                self.all.len() - 1
            }
        };
        self.all[number] = Some(region);
        self.partly.push(number as u32);
        number as u32
    }

    /// Takes blocks back: each its memory and the number of its region.
    ///
    /// # Safety
    /// [`take`](Regions::take) gave all of them, of this size and from these regions, and nobody uses them any more.
    pub(super) unsafe fn give_back(&mut self, blocks: &[(NonNull<u8>, u32)], size: usize) {
        for (memory, number) in blocks {
            let Some(Some(region)) = self.all.get_mut(*number as usize) else { continue };
            region.unused.push(*memory);
            if region.unused.len() == 1 {
                self.partly.push(*number);
            }
        }
        for (memory, number) in blocks {
            let Some(place) = self.all.get_mut(*number as usize) else { continue };
            // Gone back with a block before this one.
            let Some(region) = place else { continue };
            if region.unused.len() == REGION / size {
                // SAFETY: `add` mapped it, and all of its blocks are unused.
                unsafe { libc::munmap(region.memory.as_ptr().cast(), REGION) };
                *place = None;
                self.partly.retain(|other| other != number);
                continue;
            }
            // Where the pages must stay, as locked ones do, they are of use to the next block.
            // SAFETY: blocks are whole pages, and the system makes zeroes of those that are touched again.
            unsafe { libc::madvise(memory.as_ptr().cast(), size, libc::MADV_DONTNEED) };
        }
    }
}

/// The memory of a region: zeroes, of which the system makes pages when they are touched.
fn map() -> NonNull<u8> {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, at a place that the system chooses.
    let memory = unsafe { libc::mmap(null_mut(), REGION, access, kind, -1, 0) };
    match NonNull::new(memory) {
        Some(place) if memory != libc::MAP_FAILED => place.cast(),
        _ => handle_alloc_error(block_layout(REGION)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_apart_and_a_region_without_users_goes_back() {
        let mut regions = Regions::default();
        let size = 16 << 10;
        let mut taken: Vec<(NonNull<u8>, u32)> = (0..160).map(|_| regions.take(size)).collect();
        assert_eq!(regions.all.len(), 3);
        let mut places: Vec<usize> = taken.iter().map(|(at, _)| at.as_ptr() as usize).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= size));
        let second = taken.split_off(64);
        // SAFETY: taken above, and used by nobody.
        unsafe { regions.give_back(&taken, size) };
        assert!(regions.all[0].is_none() && regions.all[1].is_some());
        assert_eq!(regions.take(size).1, 2, "what is begun is used up first");
        // SAFETY: as above.
        unsafe { regions.give_back(&second, size) };
        assert_eq!(regions.all.iter().flatten().count(), 1);
    }
}
