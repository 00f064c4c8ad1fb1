//! The text of `examine` for superblocks 1.0, 1.1 and 1.2.

use super::read::Read;
use super::shape::{array_bytes, reshape_lines, shape_lines};
use crate::output::{size, time, words};
use braid_format::bitmap::{BitmapSuperblock, area_len};
use braid_format::superblock::{Role, Superblock, time_seconds};
use braid_format::{SECTOR, uuid_text};

const SECTOR_BYTES: u64 = SECTOR as u64;

pub(super) fn text(read: &Read, lines: &mut Vec<String>) {
    let superblock = &read.superblock;
    head(superblock, lines);
    sizes(read, lines);
    lines.push(field("State", state(read)));
    lines.push(field("Device UUID", uuid_text::format(&superblock.device_uuid)));
    lines.push(String::new());
    if superblock.bitmap_offset != 0 {
        let at = superblock.bitmap_offset;
        lines.push(field("Internal Bitmap", format!("{at} sectors from superblock")));
    } else if let Some(ppl) = superblock.ppl {
        let (size, offset) = (ppl.size, ppl.offset);
        lines.push(field(
            "PPL",
            format!("{size} sectors at offset {offset} sectors from superblock"),
        ));
    }
    lines.extend(reshape_lines(superblock, |sectors| format!("{}K", sectors / 2)));
    if superblock.devflags != 0 {
        let flags =
            [(superblock.write_mostly(), " write-mostly"), (superblock.failfast(), " failfast")];
        let set: String = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
        lines.push(format!("{:>15} :{set}", "Flags"));
    }
    lines.push(field("Update Time", time::local(time_seconds(superblock.utime))));
    if superblock.bblog_size != 0 && superblock.bblog_offset != 0 {
        let entries = u64::from(superblock.bblog_size) * SECTOR_BYTES / 8;
        let at = superblock.bblog_offset;
        let present = if superblock.bad_blocks { " - bad blocks present." } else { "" };
        lines.push(field(
            "Bad Block Log",
            format!("{entries} entries available at offset {at} sectors{present}"),
        ));
    }
    // One that is wrong was no superblock.
    lines.push(field("Checksum", format!("{:x} - correct", checksum(&read.examined.raw))));
    lines.push(field("Events", superblock.events.to_string()));
    lines.push(String::new());
    lines.extend(shape_lines(superblock));
    lines.push(format!("{:>14} : {}", "Device Role", role(superblock)));
    lines.push(format!(
        "{:>14} : {} ('A' == active, '.' == missing, 'R' == replacing)",
        "Array State",
        array_state(superblock)
    ));
}

fn field(name: &str, value: impl AsRef<str>) -> String {
    format!("{name:>15} : {}", value.as_ref())
}

fn head(superblock: &Superblock, lines: &mut Vec<String>) {
    lines.push(field("Magic", "a92b4efc"));
    lines.push(field("Version", superblock.version.to_string()));
    lines.push(field("Feature Map", format!("{:#x}", superblock.features().bits())));
    lines.push(field("Array UUID", uuid_text::format(&superblock.set_uuid)));
    lines.push(field("Name", words::name(&superblock.set_name.escaped())));
    lines.push(field("Creation Time", time::local(time_seconds(superblock.ctime))));
    lines.push(field("Raid Level", words::level(superblock.level)));
    lines.push(field("Raid Devices", superblock.raid_disks.to_string()));
    lines.push(String::new());
}

fn sizes(read: &Read, lines: &mut Vec<String>) {
    let superblock = &read.superblock;
    let sectors = |name: &str, count: u64| field(name, format!("{count} sectors"));
    let bytes = |sectors: u64| sectors.saturating_mul(SECTOR_BYTES);
    lines.push(field("Avail Dev Size", size::mdadm_sectors(bytes(superblock.data_size))));
    if let Some(bytes) = array_bytes(superblock) {
        lines.push(field("Array Size", size::mdadm_kib(bytes)));
    }
    // mdadm takes linear's -1 for a large number; its 0 is shown.
    if superblock.level != 0 && superblock.size != superblock.data_size {
        lines.push(field("Used Dev Size", size::mdadm_sectors(bytes(superblock.size))));
    }
    if superblock.data_offset != 0 {
        lines.push(sectors("Data Offset", superblock.data_offset));
    }
    if let Some(new) = superblock.new_data_offset().filter(|_| superblock.new_offset != 0) {
        lines.push(sectors("New Offset", new));
    }
    lines.push(sectors("Super Offset", superblock.super_offset));
    if let Some(valid) = superblock.recovery_offset {
        lines.push(sectors("Recovery Offset", valid));
    }
    if superblock.new_offset == 0 || superblock.reshape.is_none() {
        let (before, after) = unused(read);
        let after = match after {
            Ok(after) => format!("{after} sectors"),
            Err(short) => format!("-{short} sectors DEVICE TOO SMALL"),
        };
        lines.push(field("Unused Space", format!("before={before} sectors, after={after}")));
    }
}

fn state(read: &Read) -> String {
    let word = if read.superblock.is_clean() { "clean" } else { "active" };
    let truncated = if unused(read).1.is_err() { " TRUNCATED DEVICE" } else { "" };
    format!("{word}{truncated}")
}

/// Sectors that nothing uses before and after the data; an error says how many sectors the device is short.
pub(super) fn unused(read: &Read) -> (u64, Result<u64, u64>) {
    let superblock = &read.superblock;
    // Where each member has a size of its own, that is what is used.
    let used = if superblock.size == 0 { superblock.data_size } else { superblock.size };
    let bblog = superblock.bblog_sector();
    let data_end = superblock.data_offset.saturating_add(used);
    if !superblock.version.data_follows() {
        let metadata =
            [bblog, superblock.bitmap_sector(), superblock.ppl_sectors().map(|(at, _)| at)];
        let end = metadata.into_iter().flatten().fold(superblock.super_offset, u64::min);
        return (superblock.data_offset, Ok(end.saturating_sub(data_end)));
    }
    // The kernel leaves so much for a superblock and a small bitmap.
    let mut taken = superblock.super_offset.saturating_add(72);
    let mut ends = |end: u64| taken = taken.max(end);
    if let (Some(at), Some(bitmap)) = (superblock.bitmap_sector(), &read.examined.bitmap) {
        ends(at.saturating_add(bitmap_sectors(bitmap)));
    }
    if let Some((at, len)) = superblock.ppl_sectors() {
        ends(at.saturating_add(len));
    }
    if let Some(at) = bblog {
        ends(at.saturating_add(u64::from(superblock.bblog_size)));
    }
    let after = read.examined.dev_sectors.checked_sub(data_end);
    let after = after.ok_or_else(|| data_end.saturating_sub(read.examined.dev_sectors));
    (superblock.data_offset.saturating_sub(taken), after)
}

fn bitmap_sectors(bitmap: &BitmapSuperblock) -> u64 {
    area_len(bitmap.bits()) / SECTOR_BYTES
}

/// The checksum as it stands in the bytes.
fn checksum(raw: &[u8]) -> u32 {
    let bytes = raw.get(216..220).and_then(|bytes| bytes.try_into().ok());
    u32::from_le_bytes(bytes.unwrap_or_default())
}

pub(super) fn role(superblock: &Superblock) -> String {
    match superblock.own_role() {
        Role::Slot(slot) if superblock.replacement => format!("Replacement device {slot}"),
        Role::Slot(slot) => format!("Active device {slot}"),
        Role::Spare | Role::Faulty => "spare".to_string(),
        Role::Journal => "Journal".to_string(),
    }
}

/// A letter for each slot: A active, . missing, R replacing.
pub(super) fn array_state(superblock: &Superblock) -> String {
    let slots = u16::try_from(superblock.slots()).unwrap_or(u16::MAX);
    let known =
        |slot: u16| superblock.roles.iter().filter(|role| **role == Role::Slot(slot)).count();
    (0..slots.min(1920))
        .map(|slot| match known(slot) {
            0 => '.',
            1 => 'A',
            2 => 'R',
            _ => '?',
        })
        .collect()
}
