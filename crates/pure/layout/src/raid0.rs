//! Level 0: striping over members that may differ in size.
//!
//! Owns the zones (one for each distinct member size) and the mapping in both zone layouts
//! (`raid0.c`). Does not know redundancy: there is none. Invariant: the zones cover the used part of
//! every member exactly once, and start at multiples of the chunk size in both spaces.

use crate::divide::{Divisor, wrapped};
use crate::spec::{SECTOR, within_limit};
use crate::{LayoutError, Level, Place, Slot, Spec};

const LEVEL: Level = Level::Raid0;
const NOT_RECORDED: u32 = 0;
const ORIGINAL: u32 = 1;
const ALTERNATE: u32 = 2;

/// The geometry of a striped array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raid0 {
    slots: usize,
    chunk_size: u64,
    array_size: u64,
    zones: Vec<Zone>,
    by_chunk: Divisor,
}

/// A run of chunk rows that are striped over the same slots. Offsets and sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    array_start: u64,
    array_end: u64,
    component_start: u64,
    component_end: u64,
    slots: Vec<Slot>,
    /// Which of `slots` holds the zone's first chunk: not 0 in later zones of the original layout.
    phase: usize,
    by_slots: Divisor,
}

impl Zone {
    /// Array offset of the zone's first byte.
    pub fn array_start(&self) -> u64 {
        self.array_start
    }

    /// Array offset past the zone's last byte.
    pub fn array_end(&self) -> u64 {
        self.array_end
    }

    /// Component offset at which the zone starts, on each of its slots.
    pub fn component_start(&self) -> u64 {
        self.component_start
    }

    /// Component offset past the zone's last byte, on each of its slots.
    pub fn component_end(&self) -> u64 {
        self.component_end
    }

    /// The slots that the zone is striped over, ascending.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }
}

impl Raid0 {
    pub(crate) fn new(spec: &Spec) -> Result<Self, LayoutError> {
        spec.check_sector_chunk()?;
        spec.check_member_sizes()?;
        let chunk_size = spec.chunk_size;
        let (layout, level) = (spec.layout, LEVEL);
        if !matches!(layout, NOT_RECORDED | ORIGINAL | ALTERNATE) {
            return Err(LayoutError::UnknownLayout { level, layout });
        }
        let mut used = Vec::with_capacity(spec.raid_disks);
        let mut sum = 0u64;
        let mut array_size = 0u64;
        for (slot, &size) in spec.member_sizes.iter().enumerate() {
            let rounded = size - size % chunk_size;
            if rounded == 0 {
                return Err(LayoutError::MemberTooSmall { level, slot, size, min: chunk_size });
            }
            sum = within_limit(level, sum.checked_add(rounded))?;
            // The kernel's sum: with a chunk that is no power of two it comes out smaller than what
            // the zones hold, and the array must have the kernel's size.
            array_size += ((rounded / SECTOR) & !(chunk_size / SECTOR - 1)) * SECTOR;
            used.push(rounded);
        }
        let zones = zones(&used, chunk_size, layout);
        if zones.len() > 1 && layout == NOT_RECORDED {
            return Err(LayoutError::Raid0NoLayout { zones: zones.len() });
        }
        Ok(Raid0 {
            slots: spec.raid_disks,
            chunk_size,
            array_size,
            zones,
            by_chunk: Divisor::new(chunk_size, sum),
        })
    }

    /// Size of the array in bytes.
    pub fn array_size(&self) -> u64 {
        self.array_size
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Chunk size in bytes, a multiple of 512 and not always a power of two.
    pub fn chunk_size(&self) -> u64 {
        self.chunk_size
    }

    /// The zones in array order; at least one.
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// Bytes used on the member of this slot; 0 for a slot that does not exist.
    pub fn used_size(&self, slot: Slot) -> u64 {
        let last = self.zones.iter().rfind(|zone| zone.slots.binary_search(&slot).is_ok());
        last.map_or(0, |zone| zone.component_end)
    }

    /// Where array offset `offset` is, and how many bytes from there on lie in one run on that
    /// member (to the end of the chunk or of the array). At or past the end of the array the run is
    /// 0 bytes and the place means nothing.
    #[inline]
    pub fn map(&self, offset: u64) -> (Place, u64) {
        if offset >= self.array_size {
            return (Place { slot: 0, offset: 0 }, 0);
        }
        let index = match self.zones.first() {
            Some(first) if offset < first.array_end => 0,
            _ => self.zones.partition_point(|zone| zone.array_end <= offset),
        };
        // The zones hold at least `array_size` bytes, so one of them ends past `offset`.
        let zone = &self.zones[index];
        let (chunk, within) = self.by_chunk.div_rem(offset - zone.array_start);
        let (row, place) = zone.by_slots.div_rem(chunk);
        let place = wrapped(place as usize + zone.phase, zone.slots.len());
        let component_offset = zone.component_start + row * self.chunk_size + within;
        let run = (self.chunk_size - within).min(self.array_size - offset);
        (Place { slot: zone.slots[place], offset: component_offset }, run)
    }

    /// The array offset that a member's byte holds; `None` past the used part of the member, or of
    /// the array where its size is below what the zones hold.
    pub fn logical(&self, slot: Slot, component_offset: u64) -> Option<u64> {
        let index = self.zones.partition_point(|zone| zone.component_end <= component_offset);
        let zone = self.zones.get(index)?;
        let place = zone.slots.binary_search(&slot).ok()?;
        let width = zone.slots.len();
        let (row, within) = self.by_chunk.div_rem(component_offset - zone.component_start);
        let chunk = row * width as u64 + wrapped(place + width - zone.phase, width) as u64;
        let offset = zone.array_start + chunk * self.chunk_size + within;
        (offset < self.array_size).then_some(offset)
    }
}

/// The zones of members with these used sizes, whose sum is known not to overflow.
fn zones(used: &[u64], chunk_size: u64, layout: u32) -> Vec<Zone> {
    let mut zones = Vec::new();
    let (mut array_start, mut component_start) = (0u64, 0u64);
    loop {
        let slots: Vec<Slot> = (0..used.len()).filter(|&s| used[s] > component_start).collect();
        let Some(component_end) = slots.iter().map(|&s| used[s]).min() else {
            return zones;
        };
        let width = slots.len() as u64;
        let length = (component_end - component_start) * width;
        let first_chunk = array_start / chunk_size;
        let phase = if layout == ALTERNATE { 0 } else { (first_chunk % width) as usize };
        zones.push(Zone {
            array_start,
            array_end: array_start + length,
            component_start,
            component_end,
            slots,
            phase,
            by_slots: Divisor::new(width, length / chunk_size),
        });
        array_start += length;
        component_start = component_end;
    }
}

#[cfg(test)]
#[path = "raid0_tests.rs"]
mod tests;
