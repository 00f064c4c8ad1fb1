//! The part of each component that an array uses, by a superblock of it.

use braid_format::SECTOR;
use braid_format::superblock::Superblock;
use braid_layout::{Layout, Level, Spec};

const SECTOR_BYTES: u64 = SECTOR as u64;

/// Sectors of each component that the array uses.
///
/// That is the superblock's `size`, but for level 10: mdadm rounds it to chunks, layouts with far copies use what their
/// number of copies divides, and md notes that when it first runs the array (`calc_sectors` of drivers/md/raid10.c).
/// A power cut between two of the members leaves both sizes, which mean the same.
pub(crate) fn used_size(superblock: &Superblock) -> u64 {
    let spec = || Spec {
        level: Level::Raid10,
        layout: superblock.layout,
        chunk_size: u64::from(superblock.chunk_sectors) * SECTOR_BYTES,
        raid_disks: superblock.raid_disks as usize,
        component_size: superblock.size.saturating_mul(SECTOR_BYTES),
        member_sizes: Vec::new(),
    };
    if superblock.level != Level::Raid10.md_number() {
        return superblock.size;
    }
    match Layout::new(&spec()) {
        Ok(Layout::Raid10(raid10)) => raid10.used_component_size() / SECTOR_BYTES,
        // Assembly refuses a layout that cannot be, and says why.
        _ => superblock.size,
    }
}
