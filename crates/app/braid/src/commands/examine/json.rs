//! `examine --json`: a list with an object for each device that was given, in their order. Sizes and places are
//! in bytes, times in seconds since 1970.

use super::read::{Read, Unfit};
use super::shape::array_bytes;
use super::v1;
use crate::output::words;
use braid_format::superblock::{Reshape, Superblock, time_seconds};
use braid_format::{SECTOR, uuid_text};
use braid_layout::{Level, layout_name};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Report {
    member: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    superblock: Option<Fields>,
}

#[derive(Serialize)]
struct Fields {
    version: String,
    feature_map: u32,
    array_uuid: String,
    name: String,
    created: u64,
    level: String,
    layout: Option<String>,
    chunk_size: u64,
    raid_devices: u32,
    array_size: Option<u64>,
    component_size: u64,
    data_offset: u64,
    data_size: u64,
    super_offset: u64,
    unused_before: u64,
    unused_after: Option<u64>,
    recovery_offset: Option<u64>,
    resync_offset: Option<u64>,
    bitmap_offset: Option<i64>,
    ppl: Option<Log>,
    bad_block_log: Option<Log>,
    bad_blocks: bool,
    journal: bool,
    reshape: Option<ReshapeFields>,
    state: &'static str,
    device_uuid: String,
    updated: u64,
    events: u64,
    device_number: u32,
    slot: Option<u16>,
    replacement: bool,
    write_mostly: bool,
    failfast: bool,
    role: String,
    array_state: String,
}

/// A log of the member, with its place relative to the superblock.
#[derive(Serialize)]
struct Log {
    offset: i64,
    size: u64,
}

#[derive(Serialize)]
struct ReshapeFields {
    position: u64,
    position_is_doubtful: bool,
    backwards: bool,
    delta_disks: i32,
    new_level: String,
    new_layout: Option<String>,
    new_chunk_size: u64,
    new_data_offset: Option<u64>,
}

fn bytes(sectors: u64) -> u64 {
    sectors.saturating_mul(SECTOR as u64)
}

fn layout(level: i32, number: u32) -> Option<String> {
    Level::from_md(level).and_then(|level| layout_name(level, number))
}

impl Report {
    pub(super) fn of(found: &Result<Read, Unfit>) -> Report {
        match found {
            Ok(read) => Report {
                member: read.path.display().to_string(),
                error: None,
                superblock: Some(Fields::of(read)),
            },
            Err(unfit) => Report {
                member: unfit.path.display().to_string(),
                error: Some(unfit.why.clone()),
                superblock: None,
            },
        }
    }
}

impl Fields {
    fn of(read: &Read) -> Fields {
        let superblock = &read.superblock;
        let (unused_before, unused_after) = v1::unused(read);
        let log = |offset: i64, size: u64| {
            (offset != 0).then(|| Log { offset: 512 * offset, size: bytes(size) })
        };
        Fields {
            version: superblock.version.to_string(),
            feature_map: superblock.features().bits(),
            array_uuid: uuid_text::format(&superblock.set_uuid),
            name: superblock.set_name.escaped(),
            created: time_seconds(superblock.ctime),
            level: words::level(superblock.level),
            layout: layout(superblock.level, superblock.layout),
            chunk_size: bytes(u64::from(superblock.chunk_sectors)),
            raid_devices: superblock.raid_disks,
            array_size: array_bytes(superblock),
            component_size: bytes(superblock.size),
            data_offset: bytes(superblock.data_offset),
            data_size: bytes(superblock.data_size),
            super_offset: bytes(superblock.super_offset),
            unused_before: bytes(unused_before),
            unused_after: unused_after.ok().map(bytes),
            recovery_offset: superblock.recovery_offset.map(bytes),
            resync_offset: (!superblock.is_clean()).then(|| bytes(superblock.resync_offset)),
            bitmap_offset: (superblock.bitmap_offset != 0)
                .then(|| 512 * i64::from(superblock.bitmap_offset)),
            ppl: superblock.ppl.and_then(|ppl| log(ppl.offset.into(), ppl.size.into())),
            bad_block_log: log(superblock.bblog_offset.into(), superblock.bblog_size.into()),
            bad_blocks: superblock.bad_blocks,
            journal: superblock.journal,
            reshape: superblock
                .reshape
                .as_ref()
                .map(|reshape| ReshapeFields::of(superblock, reshape)),
            state: if superblock.is_clean() { "clean" } else { "active" },
            device_uuid: uuid_text::format(&superblock.device_uuid),
            updated: time_seconds(superblock.utime),
            events: superblock.events,
            device_number: superblock.dev_number,
            slot: superblock.own_role().slot(),
            replacement: superblock.replacement,
            write_mostly: superblock.write_mostly(),
            failfast: superblock.failfast(),
            role: v1::role(superblock),
            array_state: v1::array_state(superblock),
        }
    }
}

impl ReshapeFields {
    fn of(superblock: &Superblock, reshape: &Reshape) -> ReshapeFields {
        ReshapeFields {
            position: bytes(reshape.position),
            position_is_doubtful: superblock.reshape_position_is_doubtful(),
            backwards: reshape.backwards,
            delta_disks: reshape.delta_disks,
            new_level: words::level(reshape.new_level),
            new_layout: layout(reshape.new_level, reshape.new_layout),
            new_chunk_size: bytes(u64::from(reshape.new_chunk_sectors)),
            new_data_offset: superblock.new_data_offset().map(bytes),
        }
    }
}
