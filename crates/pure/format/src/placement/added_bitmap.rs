//! The placement of a bitmap that is added to an existing array, as `mdadm --grow --bitmap=internal` of mdadm 4.2 does it:
//! in the free space between superblock, bad-block log and data.

use super::bitmap_place::{BitmapPlace, V0_BITMAP_ROOM, bitmap_chunk};
use super::error::PlacementError;
use crate::bitmap::{HEADER, area_len};
use crate::superblock::{Superblock, V0_BITMAP_OFFSET, Version};

/// Sectors reserved for the superblock of 1.1 and 1.2.
const SUPERBLOCK: u64 = 8;
/// Sectors reserved for the bad-block log, also on members without one.
const BBLOG: u64 = 8;
/// Without a chunk that was asked for, the bitmap gets no more sectors than these: 128 KiB.
const ROOM_MAX: u64 = 256;
/// In 1.0, where nothing is free before the superblock: 3 KiB from 1 KiB behind its start on, where a role
/// table of at most so many entries does not reach.
const BEHIND: i32 = 2;
const BEHIND_ROOM: u64 = 6;
const BEHIND_ROLES: usize = 384;
/// The most bits that mdadm gives a bitmap.
const BITS_MAX: u64 = 1 << 22;

/// Places a bitmap over `sync_size` sectors (of the component, or of the array at levels 1 and 10) beside what
/// `members` hold: the same offset on all. `chunk_bytes`: see [`Consistency::Bitmap`](super::Consistency).
///
/// # Errors
/// No room on some member, or a chunk too small for the room.
pub fn place_added_bitmap(
    members: &[&Superblock],
    sync_size: u64,
    chunk_bytes: Option<u32>,
) -> Result<BitmapPlace, PlacementError> {
    let version = members.first().map_or(Version::V1_2, |member| member.version);
    let behind = version == Version::V1_0
        && members.iter().any(|member| gap(member) < BEHIND_ROOM)
        && members.iter().all(|member| member.roles.len() <= BEHIND_ROLES);
    let room = if behind {
        BEHIND_ROOM
    } else {
        members.iter().map(|member| room(member)).min().unwrap_or(0)
    };
    let room = if chunk_bytes.is_none() { room.min(ROOM_MAX) } else { room };
    // mdadm does not use a gap of one sector.
    if room <= 1 {
        return Err(PlacementError::NoBitmapRoom);
    }
    let bytes = sync_size.saturating_mul(crate::SECTOR as u64);
    // mdadm counts one bit more than is needed when the size is a multiple of the chunk; the layout must agree with it.
    let bits = |chunk: u64| bytes / chunk + 1;
    let fits = |chunk: u64| {
        let len = HEADER as u64 + bits(chunk).div_ceil(8);
        bits(chunk) <= BITS_MAX && len <= room * crate::SECTOR as u64
    };
    let chunk_bytes = bitmap_chunk(chunk_bytes, fits)?;
    let chunk = u64::from(chunk_bytes);
    let sectors = area_len(bits(chunk)) / crate::SECTOR as u64;
    let log = members.iter().map(|member| log_before(member)).max().unwrap_or(BBLOG);
    let offset = match version {
        Version::V0_90 => V0_BITMAP_OFFSET,
        Version::V1_0 if behind => BEHIND,
        // A bitmap of `BITS_MAX` has some thousand sectors, a log at most 2^31.
        Version::V1_0 => i32::try_from(sectors + log).map_or(0, |before| -before),
        Version::V1_1 | Version::V1_2 => SUPERBLOCK as i32,
    };
    if offset == 0 || (version == Version::V1_0 && !behind && sectors > room) {
        return Err(PlacementError::NoBitmapRoom);
    }
    Ok(BitmapPlace { offset, sectors, chunk_bytes, sync_size })
}

/// Sectors between the data of 1.0 and its superblock.
fn gap(member: &Superblock) -> u64 {
    let data = member.data_offset.saturating_add(member.data_size);
    member.super_offset.saturating_sub(data)
}

/// Sectors before the superblock of 1.0 that the bad-block log has, or may get.
fn log_before(member: &Superblock) -> u64 {
    let reach = u64::from(member.bblog_offset.min(0).unsigned_abs());
    reach.max(member.bblog_size.into()).max(BBLOG)
}

/// Sectors that a bitmap may take.
fn room(member: &Superblock) -> u64 {
    match member.version {
        Version::V0_90 => V0_BITMAP_ROOM,
        Version::V1_0 => gap(member).saturating_sub(log_before(member)),
        Version::V1_1 | Version::V1_2 => {
            let end = match member.bblog_size {
                0 => member.data_offset.saturating_sub(member.super_offset.saturating_add(BBLOG)),
                _ => u64::try_from(member.bblog_offset).unwrap_or(0),
            };
            end.saturating_sub(SUPERBLOCK)
        }
    }
}
