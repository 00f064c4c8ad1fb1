//! The text of `examine` for superblocks 0.90: their own words, and the table of disks.
//!
//! What 0.90 counts and lists is shown as it stands in the superblock, also where it contradicts itself, as it
//! does after failures.

use super::read::Read;
use super::shape::{array_bytes, reshape_lines, shape_lines};
use crate::output::{size, time, words};
use braid_format::superblock::time_seconds;
use braid_format::{SECTOR, uuid_text};

/// The words of a superblock (md_p.h, `mdp_super_t`).
struct Words<'a>(&'a [u8]);

const PATCH: usize = 3;
const NR_DISKS: usize = 9;
const MD_MINOR: usize = 11;
const ACTIVE: usize = 34;
const WORKING: usize = 35;
const FAILED: usize = 36;
const SPARE: usize = 37;
const CHECKSUM: usize = 38;
const DISKS: usize = 128;
const THIS_DISK: usize = 992;
/// Words of an entry of the table.
const DISK: usize = 32;
/// Entries of the table.
const DISKS_MAX: u32 = 27;

const WRITE_MOSTLY: u32 = 1 << 9;
const FAILFAST: u32 = 1 << 10;
/// In sync, in the state of a disk.
const IN_SYNC: u32 = 1 << 2;

impl Words<'_> {
    fn at(&self, word: usize) -> u32 {
        let bytes = self.0.get(word * 4..word * 4 + 4).and_then(|bytes| bytes.try_into().ok());
        u32::from_le_bytes(bytes.unwrap_or_default())
    }
}

/// The superblock says that its own member is in sync.
pub(super) fn own_in_sync(raw: &[u8]) -> bool {
    Words(raw).at(THIS_DISK + 4) & IN_SYNC != 0
}

pub(super) fn text(read: &Read, lines: &mut Vec<String>) {
    let superblock = &read.superblock;
    let raw = Words(&read.examined.raw);
    let bytes = superblock.size.saturating_mul(SECTOR as u64);
    let minor = if superblock.reshape.is_some() { 91 } else { 90 };
    let mut field = |name: &str, value: String| lines.push(format!("{name:>15} : {value}"));
    field("Magic", "a92b4efc".to_string());
    field("Version", format!("0.{minor}.{:02}", raw.at(PATCH)));
    field("UUID", words::v0_uuid(&uuid_text::format(&superblock.set_uuid)));
    field("Creation Time", time::local(time_seconds(superblock.ctime)));
    field("Raid Level", words::level(superblock.level));
    if superblock.level > 0 {
        field("Used Dev Size", size::mdadm(bytes));
        if let Some(bytes) = array_bytes(superblock) {
            field("Array Size", size::mdadm(bytes));
        }
    }
    field("Raid Devices", superblock.raid_disks.to_string());
    field("Total Devices", raw.at(NR_DISKS).to_string());
    field("Preferred Minor", raw.at(MD_MINOR).to_string());
    lines.push(String::new());
    lines.extend(reshape_lines(superblock, |sectors| (u64::from(sectors) * 512).to_string()));
    let mut field = |name: &str, value: String| lines.push(format!("{name:>15} : {value}"));
    field("Update Time", time::local(time_seconds(superblock.utime)));
    field("State", if superblock.is_clean() { "clean" } else { "active" }.to_string());
    if superblock.bitmap_offset != 0 {
        field("Internal Bitmap", "present".to_string());
    }
    for (name, word) in [
        ("Active Devices", ACTIVE),
        ("Working Devices", WORKING),
        ("Failed Devices", FAILED),
        ("Spare Devices", SPARE),
    ] {
        field(name, raw.at(word).to_string());
    }
    field("Checksum", format!("{:x} - correct", raw.at(CHECKSUM)));
    field("Events", superblock.events.to_string());
    lines.push(String::new());
    lines.extend(shape_lines(superblock));
    lines.push("      Number   Major   Minor   RaidDevice State".to_string());
    lines.push(disk(&raw, "this", THIS_DISK));
    lines.push(String::new());
    let listed = superblock.slots().saturating_add(raw.at(SPARE)).min(DISKS_MAX);
    for number in 0..listed {
        lines.push(disk(&raw, &number.to_string(), DISKS + DISK * number as usize));
    }
}

fn disk(raw: &Words<'_>, name: &str, at: usize) -> String {
    let [number, major, minor, slot, state] = std::array::from_fn(|word| raw.at(at + word));
    let mut line = format!(
        "{name:>4} {:>5}   {:>5}    {:>5}    {:>5}     ",
        number as i32, major as i32, minor as i32, slot as i32
    );
    for (bit, word) in [
        (1, " faulty"),
        (1 << 1, " active"),
        (IN_SYNC, " sync"),
        (1 << 3, " removed"),
        (WRITE_MOSTLY, " write-mostly"),
        (FAILFAST, " failfast"),
    ] {
        if state & bit != 0 {
            line.push_str(word);
        }
    }
    if state & !(WRITE_MOSTLY | FAILFAST) == 0 {
        line.push_str(" spare");
    }
    if let Some(path) = device(major, minor) {
        line.push_str(&format!("   {path}"));
    }
    line
}

/// The block device that has these numbers here now.
fn device(major: u32, minor: u32) -> Option<String> {
    let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    Some(format!("/dev/{}", link.file_name()?.to_str()?))
}
