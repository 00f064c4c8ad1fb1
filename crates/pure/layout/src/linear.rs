//! Level linear: members one after another.
//!
//! Owns the mapping of concatenated members (`md-linear.c`). Invariant: every byte of the array has
//! exactly one place, and the places of one member are one run.

use crate::spec::{SECTOR, within_limit};
use crate::{LayoutError, Level, Place, Slot, Spec};

/// The geometry of a linear array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linear {
    /// Array offset at which each member ends, by slot.
    ends: Vec<u64>,
    chunk_size: u64,
}

impl Linear {
    pub(crate) fn new(spec: &Spec) -> Result<Self, LayoutError> {
        spec.check_member_sizes()?;
        if spec.chunk_size != 0 {
            spec.check_sector_chunk()?;
        }
        let unit = spec.chunk_size.max(SECTOR);
        let mut end = 0u64;
        let mut ends = Vec::with_capacity(spec.raid_disks);
        for (slot, &size) in spec.member_sizes.iter().enumerate() {
            let used = size - size % unit;
            if used == 0 {
                let level = Level::Linear;
                return Err(LayoutError::MemberTooSmall { level, slot, size, min: unit });
            }
            end = within_limit(Level::Linear, end.checked_add(used))?;
            ends.push(end);
        }
        Ok(Linear { ends, chunk_size: spec.chunk_size })
    }

    /// Size of the array in bytes.
    pub fn array_size(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.ends.len()
    }

    /// The unit in bytes to which members are rounded down; 0 for none. Nothing is striped by it.
    pub fn chunk_size(&self) -> u64 {
        self.chunk_size
    }

    /// Where array offset `offset` is, and how many bytes from there on lie in one run on that
    /// member. An offset at or past the end of the array has a run of 0 bytes.
    pub fn map(&self, offset: u64) -> (Place, u64) {
        let slot = self.ends.partition_point(|&end| end <= offset);
        let start = self.start(slot);
        let run = self.ends.get(slot).map_or(0, |end| end - offset);
        (Place { slot, offset: offset - start }, run)
    }

    /// The array offset that a member's byte belongs to; `None` past the used part of the member.
    pub fn logical(&self, slot: Slot, component_offset: u64) -> Option<u64> {
        let end = *self.ends.get(slot)?;
        let offset = self.start(slot).checked_add(component_offset)?;
        (offset < end).then_some(offset)
    }

    /// Bytes used on the member of this slot; 0 for a slot that does not exist.
    pub fn used_size(&self, slot: Slot) -> u64 {
        self.ends.get(slot).map_or(0, |end| end - self.start(slot))
    }

    fn start(&self, slot: Slot) -> u64 {
        slot.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0)
    }
}
