//! Ranges of bytes of a brick, and where its two superblocks leave room for them.
//!
//! This module does not know their content.

/// Offsets and sizes of areas are multiples of this, in bytes; it is also the unit of a stripe's recorded extent.
pub const BLOCK: u64 = 4096;

/// The most areas that can be added to a metadata region.
pub const MAX_GROWN: usize = 15;

/// A range of bytes of a brick; both numbers are multiples of [`BLOCK`]. Without bytes, both are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Area {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

/// A pair of areas that overlap, if there is one. The caller has checked that no end overflows 64 bits.
pub(super) fn that_overlap(mut areas: Vec<Area>) -> Option<(Area, Area)> {
    areas.retain(|area| area.len > 0);
    areas.sort_by_key(|area| area.offset);
    let pair = areas.windows(2).find(|pair| pair[0].offset + pair[0].len > pair[1].offset)?;
    Some((pair[0], pair[1]))
}

/// The size of a brick on a device of `device_bytes`: whole [`BLOCK`]s only.
pub fn usable_size(device_bytes: u64) -> u64 {
    device_bytes - device_bytes % BLOCK
}

/// The offset of the second copy on a brick of this size; `None` when there is no room for two.
pub fn second_copy_at(brick_size: u64) -> Option<u64> {
    usable_size(brick_size).checked_sub(BLOCK).filter(|&at| at >= BLOCK)
}
