//! What both versions of the superblock say of an array's shape, in mdadm's lines.

use crate::output::{size, words};
use braid_format::SECTOR;
use braid_format::superblock::{Reshape, Superblock};

/// The array's size as mdadm computes it from one superblock: `None` for levels without redundancy.
pub(super) fn array_bytes(superblock: &Superblock) -> Option<u64> {
    let disks = u64::from(superblock.raid_disks);
    let (data, copies) = match superblock.level {
        1 => (1, 1),
        4 | 5 => (disks.saturating_sub(1), 1),
        6 => (disks.saturating_sub(2), 1),
        10 => {
            let (near, far) = (superblock.layout & 0xff, superblock.layout >> 8 & 0xff);
            (disks, u64::from(near * far).max(1))
        }
        _ => return None,
    };
    let bytes = u128::from(superblock.size) * SECTOR as u128 * u128::from(data);
    (data > 0).then(|| u64::try_from(bytes / u128::from(copies)).unwrap_or(u64::MAX))
}

/// Slots before a reshape.
fn old_disks(superblock: &Superblock, reshape: &Reshape) -> i64 {
    i64::from(superblock.raid_disks) - i64::from(reshape.delta_disks)
}

/// The lines of a reshape, which both versions have, but for the chunk's unit.
pub(super) fn reshape_lines(superblock: &Superblock, chunk: impl Fn(u32) -> String) -> Vec<String> {
    let Some(reshape) = &superblock.reshape else { return Vec::new() };
    let mut lines = Vec::new();
    let mut field = |name: &str, value: String| lines.push(format!("{name:>15} : {value}"));
    field("Reshape pos'n", size::mdadm(reshape.position.saturating_mul(SECTOR as u64)));
    if reshape.delta_disks != 0 {
        let (old, new) = (old_disks(superblock, reshape), superblock.raid_disks);
        field("Delta Devices", format!("{} ({old}->{new})", reshape.delta_disks));
    }
    if reshape.new_level != superblock.level {
        field("New Level", words::level(reshape.new_level));
    }
    if reshape.new_layout != superblock.layout
        && let Some(layout) = words::layout(superblock.level, reshape.new_layout)
    {
        field("New Layout", layout);
    }
    if reshape.new_chunk_sectors != superblock.chunk_sectors {
        field("New Chunksize", chunk(reshape.new_chunk_sectors));
    }
    lines.push(String::new());
    lines
}

/// Layout, and chunk or rounding, with the empty line after them.
pub(super) fn shape_lines(superblock: &Superblock) -> Vec<String> {
    let mut lines = Vec::new();
    let recorded = superblock.level != 0 || superblock.raid0_layout;
    if let Some(layout) = words::layout(superblock.level, superblock.layout).filter(|_| recorded) {
        lines.push(format!("{:>15} : {layout}", "Layout"));
    }
    let name = match superblock.level {
        0 | 4 | 5 | 6 | 10 => Some("Chunk Size"),
        -1 => Some("Rounding"),
        _ => None,
    };
    if let Some(name) = name {
        lines.push(format!("{name:>15} : {}K", superblock.chunk_sectors / 2));
    }
    lines.push(String::new());
    lines
}
