//! Whether settings suit an array, from what its superblocks or its plan say of its shape.

use braid_array::create::Created;
use braid_array::state::geometry::Geometry;
use braid_array::status::ArrayStatus;
use braid_format::SECTOR;
use braid_format::superblock::Superblock;
use braid_layout::{Layout, Level, Spec};

const SECTOR_BYTES: u64 = SECTOR as u64;

/// The shape of an array that is about to be assembled; `None` where its superblocks make no sense
/// together, which assembling it says better.
pub fn assembled(superblocks: &[Superblock], logical_block: u32) -> Option<Geometry> {
    let shared = superblocks.iter().max_by_key(|superblock| superblock.events)?;
    let size_of = |slot: usize| {
        let role = |superblock: &&Superblock| superblock.role_of(superblock.dev_number).slot();
        let holder = superblocks.iter().find(|sb| role(sb).map(usize::from) == Some(slot))?;
        Some(holder.data_size.saturating_mul(SECTOR_BYTES))
    };
    let slots = shared.raid_disks as usize;
    let spec = Spec {
        level: Level::from_md(shared.level)?,
        layout: shared.layout,
        chunk_size: u64::from(shared.chunk_sectors) * SECTOR_BYTES,
        raid_disks: slots,
        component_size: shared.size.saturating_mul(SECTOR_BYTES),
        member_sizes: (0..slots).map_while(size_of).collect(),
    };
    geometry(&spec, logical_block)
}

/// The shape of an array that is planned; `None` where members are missing that it depends on.
pub fn planned(plan: &Created, logical_block: u32) -> Option<Geometry> {
    let mut slots: Vec<_> = plan.members.iter().filter(|member| member.slot.is_some()).collect();
    slots.sort_by_key(|member| member.slot);
    let spec = Spec {
        level: plan.level,
        layout: plan.layout,
        chunk_size: plan.chunk_size,
        raid_disks: plan.raid_disks,
        component_size: plan.component_size,
        member_sizes: slots.iter().map(|member| member.data_size).collect(),
    };
    geometry(&spec, logical_block)
}

/// The shape of an array that runs.
pub fn running(status: &ArrayStatus, logical_block: u32) -> Option<Geometry> {
    let size_of = |slot: usize| {
        let holder = status.members.iter().find(|member| member.slot == Some(slot))?;
        Some(holder.data_size)
    };
    let spec = Spec {
        level: status.level,
        layout: status.layout,
        chunk_size: status.chunk_size,
        raid_disks: status.raid_disks,
        component_size: status.component_size,
        member_sizes: (0..status.raid_disks).map_while(size_of).collect(),
    };
    geometry(&spec, logical_block)
}

fn geometry(spec: &Spec, logical_block: u32) -> Option<Geometry> {
    let layout = Layout::new(spec).ok()?;
    let block = logical_block.max(SECTOR as u32);
    // How many shards there are matters to those who own units, which a shape alone has not.
    Some(Geometry::new(spec.level, spec.layout, layout, block, spec.component_size, 1))
}
