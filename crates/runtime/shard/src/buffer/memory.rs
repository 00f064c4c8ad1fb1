//! The memory of blocks: size classes, alignment, allocation.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ptr::NonNull;

/// Alignment of every block, in bytes: enough for O_DIRECT with 4Kn disks.
pub const ALIGN: usize = 4096;
/// Every buffer is shorter than this, in bytes: positions in a block have 32 bits.
pub const LEN_MAX: usize = 1 << 31;
/// The smallest block has two to the power of this many bytes.
pub(super) const CLASS_MIN_SHIFT: u32 = 12;
/// The largest block that is kept for reuse has two to the power of this many bytes. Larger ones go back to the system.
pub(super) const CLASS_MAX_SHIFT: u32 = 25;
pub(super) const CLASSES: usize = (CLASS_MAX_SHIFT - CLASS_MIN_SHIFT + 1) as usize;
/// Free memory that a pool keeps per class, in bytes. More than that goes back to the system.
pub(super) const KEEP_PER_CLASS: usize = 64 << 20;

#[inline]
pub(super) fn class_of(len: usize) -> Option<usize> {
    if len <= 1 << CLASS_MIN_SHIFT {
        return Some(0);
    }
    let shift = len.next_power_of_two().trailing_zeros();
    (shift <= CLASS_MAX_SHIFT).then(|| (shift - CLASS_MIN_SHIFT) as usize)
}

pub(super) fn round_up(len: usize) -> usize {
    len.div_ceil(ALIGN) * ALIGN
}

pub(super) fn block_layout(capacity: usize) -> Layout {
    match Layout::from_size_align(capacity, ALIGN) {
        Ok(layout) => layout,
        // Only for sizes beyond isize::MAX, which no caller's u32 length reaches.
        Err(_) => handle_alloc_error(Layout::new::<u8>()),
    }
}

pub(super) fn allocate(capacity: usize) -> NonNull<u8> {
    let layout = block_layout(capacity);
    // SAFETY: `capacity` is at least ALIGN, so the layout is not empty. Zeroed, so that no read
    // of a fresh buffer is a read of uninitialised memory.
    let memory = unsafe { alloc_zeroed(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}
