//! The shape of one array as its shards see it: the layout, and which shard owns what.
//!
//! A **unit** is what one shard owns as a whole and locks ranges of: a stripe (levels 4, 5, 6), a
//! chunk (level 10), a region of [`REGION`] bytes (level 1). Levels without redundancy have
//! nothing to keep consistent and own nothing.

use crate::state::extent::Extent;
use braid_layout::{Layout, Level, Parity, Slot};
use braid_shard::ShardId;
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};

/// Bytes of a unit of a level 1 array.
pub const REGION: u64 = 1 << 20;
/// Bytes (of one member) of neighbouring units that go to the same shard, so that sequential work
/// merges there.
const RUN_BYTES: u64 = 1 << 20;

/// Constant, but for the number of shards that own units. Which part of an array has it is said by
/// [`Geometries`](crate::state::geometries::Geometries).
#[derive(Debug)]
pub struct Geometry {
    /// The level.
    pub level: Level,
    /// md's layout number.
    pub layout_number: u32,
    /// Where each byte lives.
    pub layout: Layout,
    /// Every request is a multiple of this, in bytes: the largest of the members' blocks.
    pub logical_block: u32,
    /// Bytes of each component that are in use (0 for levels without redundancy).
    pub component_size: u64,
    /// Shards that own units: the first so many. Changed only while no request and no job is under way
    /// on any shard, so that any order of memory is good enough.
    owners: AtomicU16,
    /// The number of the first unit.
    first_unit: u64,
    /// Neighbouring units that one shard owns together.
    run: u64,
    /// Bytes of a unit as the bitmap and jobs count them: component bytes at parity levels, else array
    /// bytes.
    sync_unit: u64,
}

impl Geometry {
    /// `component_size` in bytes, as the superblock's `size` field says.
    pub fn new(
        level: Level,
        layout_number: u32,
        layout: Layout,
        logical_block: u32,
        component_size: u64,
        shards: u16,
    ) -> Geometry {
        let unit_on_member = match &layout {
            Layout::Mirror(_) => REGION,
            other => other.chunk_size().max(4096),
        };
        let first_unit = match &layout {
            Layout::Parity(parity) => parity.first_stripe(),
            Layout::Raid10(raid10) => raid10.first_chunk(),
            _ => 0,
        };
        Geometry {
            level,
            layout_number,
            layout,
            logical_block,
            component_size,
            owners: AtomicU16::new(shards.max(1)),
            first_unit,
            run: 1,
            sync_unit: unit_on_member,
        }
    }

    /// Gives neighbouring units to the same shard: for members whose requests are merged. Elsewhere
    /// every shard has a part of each large request.
    pub(crate) fn in_runs(self) -> Geometry {
        let unit_on_member = match &self.layout {
            Layout::Mirror(_) => REGION,
            other => other.chunk_size().max(4096),
        };
        Geometry { run: (RUN_BYTES / unit_on_member).max(1), ..self }
    }

    /// The same over another layout.
    pub(crate) fn over(&self, layout: Layout) -> Geometry {
        self.with(layout, self.component_size)
    }

    /// The same with another level and layout.
    pub(crate) fn shaped(&self, level: Level, layout_number: u32, layout: Layout) -> Geometry {
        let (block, owners) = (self.logical_block, self.owners());
        let other = Geometry::new(level, layout_number, layout, block, self.component_size, owners);
        if self.run > 1 { other.in_runs() } else { other }
    }

    /// The same over another layout, with `component_size` bytes of each component in use.
    pub(crate) fn with(&self, layout: Layout, component_size: u64) -> Geometry {
        let shape = (self.level, self.layout_number);
        let (block, owners) = (self.logical_block, self.owners());
        let other = Geometry::new(shape.0, shape.1, layout, block, component_size, owners);
        if self.run > 1 { other.in_runs() } else { other }
    }

    /// Bytes of the array in whole logical blocks, which is all that users can be shown.
    pub(crate) fn whole_blocks(&self) -> u64 {
        let block = u64::from(self.logical_block.max(1));
        self.array_size() / block * block
    }

    /// Where chunks and parity lie, at the levels that have parity.
    #[inline]
    pub(crate) fn parity(&self) -> Option<&Parity> {
        match &self.layout {
            Layout::Parity(parity) => Some(parity),
            _ => None,
        }
    }

    /// The shard that owns `unit`.
    #[inline]
    pub fn owner(&self, unit: u64) -> ShardId {
        let owners = self.owners();
        if owners == 1 {
            return 0;
        }
        ((unit / self.run) % u64::from(owners)) as ShardId
    }

    /// Number of shards that own units.
    #[inline]
    pub fn owners(&self) -> u16 {
        self.owners.load(Ordering::Relaxed)
    }

    /// Gives the units to the first `owners` shards. Nothing of the array is under way.
    pub(crate) fn set_owners(&self, owners: u16) {
        self.owners.store(owners.max(1), Ordering::Relaxed);
    }

    /// Bytes of array data in a unit (the last one of a level 1 array may be shorter).
    #[inline]
    pub fn unit_size(&self) -> u64 {
        match &self.layout {
            Layout::Parity(parity) => parity.stripe_size(),
            Layout::Mirror(_) => REGION,
            other => other.chunk_size().max(4096),
        }
    }

    /// The unit of an array byte, and the byte within it.
    #[inline(always)]
    pub fn locate_unit(&self, array_byte: u64) -> (u64, u64) {
        if let Layout::Parity(parity) = &self.layout {
            let (stripe, k, within) = parity.locate(array_byte);
            return (stripe, k as u64 * parity.chunk_size() + within);
        }
        let size = self.unit_size();
        (self.first_unit + array_byte / size, array_byte % size)
    }

    /// Bytes that the bitmap covers: those of a component that are in use at parity levels, else the
    /// array's.
    pub(crate) fn sync_size(&self) -> u64 {
        match &self.layout {
            Layout::Parity(parity) => parity.used_component_size(),
            other => other.array_size(),
        }
    }

    /// The bytes that a write of part of a unit touches, as the bitmap counts them.
    #[inline]
    pub(crate) fn intent_range(&self, unit: u64, extent: Extent) -> Range<u64> {
        let base = (unit - self.first_unit) * self.sync_unit;
        let within = match &self.layout {
            Layout::Parity(_) => extent.rows(self.sync_unit),
            _ => extent.start..extent.end,
        };
        base + within.start..base + within.end
    }

    /// The level keeps parity, so that there are stripes to be cached and planned.
    pub fn has_parity(&self) -> bool {
        matches!(self.layout, Layout::Parity(_))
    }

    /// Number of units.
    pub fn units(&self) -> u64 {
        self.layout.array_size().div_ceil(self.unit_size())
    }

    /// Size of the array in bytes.
    pub fn array_size(&self) -> u64 {
        self.layout.array_size()
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.layout.slots()
    }

    /// True when the array can go on with exactly the slots for which `working` is true.
    pub fn survives(&self, working: impl Fn(Slot) -> bool) -> bool {
        self.layout.survives(working)
    }
}
