//! The raw numbers that describe an array's geometry, and the checks that all levels share.
//!
//! The formulas of the levels are elsewhere. The numbers may come from an
//! untrusted superblock, so all arithmetic with them is checked, here and in the levels.

use crate::{LayoutError, Level};

/// md's sector, in bytes.
pub const SECTOR: u64 = 512;

/// The most slots an array can have: the role table of a v1.x superblock holds 1920 entries.
pub const MAX_SLOTS: usize = 1920;

/// The largest chunk that is accepted, in bytes: 1 GiB, far above any in use.
pub const MAX_CHUNK_SIZE: u64 = 1 << 30;

/// The smallest chunk of levels 4, 5, 6 and 10, in bytes: one page, as the kernel demands.
const MIN_PAGED_CHUNK: u64 = 4096;

/// The numbers from which a [`Layout`](crate::Layout) is built. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The level.
    pub level: Level,
    /// md's layout number; 0 and ignored for levels linear, 1 and 4. At level 0: 0 not recorded,
    /// 1 original, 2 alternate.
    pub layout: u32,
    /// Chunk size; ignored by level 1; may be 0 for linear.
    pub chunk_size: u64,
    /// Number of slots.
    pub raid_disks: usize,
    /// Used size of every member, at levels 1, 4, 5, 6 and 10 (the superblock's `size` in bytes).
    pub component_size: u64,
    /// Usable size of each member by slot, at levels 0 and linear (the superblocks' `data_size` in
    /// bytes); ignored by the others.
    pub member_sizes: Vec<u64>,
}

impl Spec {
    pub(crate) fn check_slots(&self) -> Result<(), LayoutError> {
        let (level, slots) = (self.level, self.raid_disks);
        let min = level.min_slots();
        if slots < min {
            return Err(LayoutError::TooFewSlots { level, slots, min });
        }
        if slots > MAX_SLOTS {
            return Err(LayoutError::TooManySlots { level, slots, max: MAX_SLOTS });
        }
        Ok(())
    }

    /// The base-2 logarithm of a chunk size that must be a power of two and at least a page.
    pub(crate) fn paged_chunk_shift(&self) -> Result<u32, LayoutError> {
        let chunk = self.chunk_size;
        if !chunk.is_power_of_two() || !(MIN_PAGED_CHUNK..=MAX_CHUNK_SIZE).contains(&chunk) {
            return Err(self.bad_chunk("a power of two from 4096 to 1073741824 (1 GiB)"));
        }
        Ok(chunk.trailing_zeros())
    }

    /// Checks a chunk size that need only be whole sectors.
    pub(crate) fn check_sector_chunk(&self) -> Result<(), LayoutError> {
        let chunk = self.chunk_size;
        if !chunk.is_multiple_of(SECTOR) || !(SECTOR..=MAX_CHUNK_SIZE).contains(&chunk) {
            return Err(self.bad_chunk("a multiple of 512 from 512 to 1073741824 (1 GiB)"));
        }
        Ok(())
    }

    pub(crate) fn check_member_sizes(&self) -> Result<(), LayoutError> {
        if self.member_sizes.len() != self.raid_disks {
            return Err(LayoutError::MemberSizes {
                level: self.level,
                slots: self.raid_disks,
                found: self.member_sizes.len(),
            });
        }
        Ok(())
    }

    /// Whole chunks of `1 << shift` bytes per component, at least `min`.
    pub(crate) fn component_chunks(&self, shift: u32, min: u64) -> Result<u64, LayoutError> {
        self.check_component_limit()?;
        let chunks = self.component_size >> shift;
        if chunks < min {
            return Err(LayoutError::ComponentTooSmall {
                level: self.level,
                component_size: self.component_size,
                min: min << shift,
            });
        }
        Ok(chunks)
    }

    pub(crate) fn check_component_limit(&self) -> Result<(), LayoutError> {
        within_limit(self.level, Some(self.component_size)).map(drop)
    }

    fn bad_chunk(&self, rule: &'static str) -> LayoutError {
        LayoutError::ChunkSize { level: self.level, chunk_size: self.chunk_size, rule }
    }
}

/// The size, unless it overflowed or is above what a signed 64-bit offset can address.
pub(crate) fn within_limit(level: Level, size: Option<u64>) -> Result<u64, LayoutError> {
    size.filter(|&size| i64::try_from(size).is_ok()).ok_or(LayoutError::TooLarge { level })
}
