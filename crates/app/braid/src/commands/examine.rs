//! `braid examine`: what the superblocks of members say, in the words and order of mdadm.

use crate::cli::Examine;
use crate::discover::{self, Examined};
use crate::exit::{FAILED, UNREADABLE};
use crate::output::{self, size, time};
use anyhow::Result;
use braid_format::superblock::{Role, Superblock, time_seconds};
use braid_format::{SECTOR, uuid_text};
use braid_layout::{Layout, Level, Spec, layout_name};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

const SECTOR_BYTES: u64 = SECTOR as u64;

pub fn run(options: &Examine) -> Result<ExitCode> {
    let mut code = 0;
    let mut reports = Vec::new();
    for path in &options.members {
        let report = match discover::examine(path) {
            Ok(Examined { superblock: Ok(Some(superblock)) }) => {
                if !options.json {
                    output::line(text(path, &superblock))?;
                }
                Report::of(path, &superblock)
            }
            Ok(Examined { superblock: Ok(None) }) => {
                code = code.max(FAILED);
                let why = "no md superblock: it is no member of an array".to_string();
                complain(path, &why, options.json);
                Report::failed(path, why)
            }
            Ok(Examined { superblock: Err(error) }) => {
                code = code.max(FAILED);
                complain(path, &error.to_string(), options.json);
                Report::failed(path, error.to_string())
            }
            Err(error) => {
                code = UNREADABLE;
                let why = format!("{error:#}");
                complain(path, &why, options.json);
                Report::failed(path, why)
            }
        };
        reports.push(report);
    }
    if options.json {
        output::json(&reports)?;
    }
    Ok(ExitCode::from(code))
}

fn complain(path: &Path, why: &str, json: bool) {
    if !json {
        output::note(format!("braid: {}: {why}", path.display()));
    }
}

fn level_of(superblock: &Superblock) -> Option<Level> {
    Level::from_md(superblock.level)
}

fn level_name(superblock: &Superblock) -> String {
    level_of(superblock)
        .map_or_else(|| format!("level {}", superblock.level), |level| level.to_string())
}

/// The array's size as far as one superblock can tell: not for levels that use each member's size.
fn array_size(superblock: &Superblock) -> Option<u64> {
    let level = level_of(superblock).filter(|level| !level.uses_member_sizes())?;
    let spec = Spec {
        level,
        layout: superblock.layout,
        chunk_size: u64::from(superblock.chunk_sectors) * SECTOR_BYTES,
        raid_disks: usize::try_from(superblock.raid_disks).ok()?,
        component_size: superblock.size.checked_mul(SECTOR_BYTES)?,
        member_sizes: Vec::new(),
    };
    Layout::new(&spec).ok().map(|layout| layout.array_size())
}

fn state(superblock: &Superblock) -> &'static str {
    if superblock.is_clean() { "clean" } else { "active" }
}

fn role_text(superblock: &Superblock) -> String {
    match superblock.own_role() {
        Role::Slot(slot) => format!("Active device {slot}"),
        Role::Spare => "spare".to_string(),
        Role::Faulty => "faulty".to_string(),
        Role::Journal => "Journal".to_string(),
    }
}

/// A letter for each slot: A active, . missing, R replacing.
fn array_state(superblock: &Superblock) -> String {
    let slots = u16::try_from(superblock.slots()).unwrap_or(u16::MAX);
    let known =
        |slot: u16| superblock.roles.iter().filter(|role| **role == Role::Slot(slot)).count();
    (0..slots.min(1920))
        .map(|slot| match known(slot) {
            0 => '.',
            1 => 'A',
            _ => 'R',
        })
        .collect()
}

fn text(path: &Path, superblock: &Superblock) -> String {
    let bytes = |sectors: u64| sectors.saturating_mul(SECTOR_BYTES);
    let mut lines = vec![format!("{}:", path.display())];
    let mut field = |name: &str, value: String| lines.push(format!("{name:>16} : {value}"));
    field("Magic", "a92b4efc".to_string());
    field("Version", superblock.version.to_string());
    field("Feature Map", format!("{:#x}", superblock.features().bits()));
    field("Array UUID", uuid_text::format(&superblock.set_uuid));
    field("Name", superblock.set_name.escaped());
    field("Creation Time", time::local(time_seconds(superblock.ctime)));
    field("Raid Level", level_name(superblock));
    field("Raid Devices", superblock.raid_disks.to_string());
    field("Avail Dev Size", size::mdadm_sectors(bytes(superblock.data_size)));
    if let Some(size) = array_size(superblock) {
        field("Array Size", size::mdadm_kib(size));
    }
    if superblock.size > 0 && superblock.size != superblock.data_size {
        field("Used Dev Size", size::mdadm_sectors(bytes(superblock.size)));
    }
    if superblock.version.data_follows() {
        field("Data Offset", format!("{} sectors", superblock.data_offset));
    }
    field("Super Offset", format!("{} sectors", superblock.super_offset));
    if let Some(valid) = superblock.recovery_offset {
        field("Recovery Offset", format!("{valid} sectors"));
    }
    if !superblock.is_clean() && superblock.resync_offset > 0 {
        field("Resync Offset", format!("{} sectors", superblock.resync_offset));
    }
    field("State", state(superblock).to_string());
    field("Device UUID", uuid_text::format(&superblock.device_uuid));
    if let Some(reshape) = superblock.reshape {
        field("Reshape pos'n", size::mdadm(bytes(reshape.position)));
    }
    let flags: Vec<&str> =
        [(superblock.write_mostly(), "write-mostly"), (superblock.failfast(), "failfast")]
            .into_iter()
            .filter_map(|(set, name)| set.then_some(name))
            .collect();
    if !flags.is_empty() {
        field("Flags", flags.join(" "));
    }
    field("Update Time", time::local(time_seconds(superblock.utime)));
    if let Some(log) = superblock.bblog_sector() {
        let distance = log.abs_diff(superblock.super_offset);
        field(
            "Bad Block Log",
            format!(
                "{} entries available at offset {distance} sectors",
                u64::from(superblock.bblog_size) * SECTOR_BYTES / 8
            ),
        );
    }
    field("Events", superblock.events.to_string());
    if let Some(layout) =
        level_of(superblock).and_then(|level| layout_name(level, superblock.layout))
    {
        field("Layout", layout);
    }
    if superblock.chunk_sectors > 0 {
        field("Chunk Size", size::chunk(u64::from(superblock.chunk_sectors) * SECTOR_BYTES));
    }
    field("Device Role", role_text(superblock));
    field(
        "Array State",
        format!("{} ('A' == active, '.' == missing, 'R' == replacing)", array_state(superblock)),
    );
    lines.join("\n")
}

#[derive(Serialize)]
struct Report {
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
    recovery_offset: Option<u64>,
    resync_offset: Option<u64>,
    state: &'static str,
    device_uuid: String,
    updated: u64,
    events: u64,
    device_number: u32,
    slot: Option<u16>,
    role: String,
    array_state: String,
}

impl Report {
    fn failed(path: &Path, error: String) -> Report {
        Report { member: path.display().to_string(), error: Some(error), superblock: None }
    }

    fn of(path: &Path, superblock: &Superblock) -> Report {
        let bytes = |sectors: u64| sectors.saturating_mul(SECTOR_BYTES);
        let fields = Fields {
            version: superblock.version.to_string(),
            feature_map: superblock.features().bits(),
            array_uuid: uuid_text::format(&superblock.set_uuid),
            name: superblock.set_name.escaped(),
            created: time_seconds(superblock.ctime),
            level: level_name(superblock),
            layout: level_of(superblock).and_then(|level| layout_name(level, superblock.layout)),
            chunk_size: bytes(u64::from(superblock.chunk_sectors)),
            raid_devices: superblock.raid_disks,
            array_size: array_size(superblock),
            component_size: bytes(superblock.size),
            data_offset: bytes(superblock.data_offset),
            data_size: bytes(superblock.data_size),
            super_offset: bytes(superblock.super_offset),
            recovery_offset: superblock.recovery_offset.map(bytes),
            resync_offset: (!superblock.is_clean()).then(|| bytes(superblock.resync_offset)),
            state: state(superblock),
            device_uuid: uuid_text::format(&superblock.device_uuid),
            updated: time_seconds(superblock.utime),
            events: superblock.events,
            device_number: superblock.dev_number,
            slot: superblock.own_role().slot(),
            role: role_text(superblock),
            array_state: array_state(superblock),
        };
        Report { member: path.display().to_string(), error: None, superblock: Some(fields) }
    }
}
