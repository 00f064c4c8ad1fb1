//! Partition tables: GPT (both copies) and MBR.

use super::areas::{Areas, Device};
use super::boot_sectors;
use super::found::{Signature, Text};
use crate::SECTOR;
use std::ops::Range;

const GPT_MAGIC: &[u8] = b"EFI PART";
const PROTECTIVE: u8 = 0xee;
/// Byte offset of the first of the four entries.
const MBR_ENTRIES: u64 = 446;

pub(super) fn probe(device: &Device<'_>, found: &mut Vec<Signature>) {
    let before = found.len();
    gpt(device, found);
    let has_gpt = found.len() > before;
    found.extend(mbr(device.areas, has_gpt));
}

/// The header stands in logical block 1 and its copy in the last one; the block size follows from where it
/// is found (UEFI specification, section 5.3).
fn gpt(device: &Device<'_>, found: &mut Vec<Signature>) {
    for block in [512u64, 4096] {
        if device.areas.has(block, GPT_MAGIC) {
            found.extend(gpt_header(device.areas, block, block, "GPT partition table"));
        }
        if let Some(at) = (device.bytes & !(block - 1)).checked_sub(block)
            && at > block
            && device.areas.has(at, GPT_MAGIC)
        {
            found.extend(gpt_header(device.areas, at, block, "GPT partition table (backup copy)"));
        }
    }
}

fn gpt_header(areas: &Areas, at: u64, block: u64, what: &str) -> Option<Signature> {
    let mut text = Text::new(what);
    if let Some(count) = gpt_partitions(areas, at, block) {
        text = text.add(counted(count));
    }
    if let Some(guid) = areas.array(at + 56) {
        // The first three fields of a GUID are little-endian.
        text = text.add(format!("uuid {}", uuid::Uuid::from_bytes_le(guid)));
    }
    Some(text.at("gpt", at, GPT_MAGIC.len() as u64))
}

/// The partitions of a device as ranges of sectors, from the GPT at its start or else from the MBR. Only primary partitions
/// of an MBR are listed: a logical one, inside an extended partition, never reaches the end of a device. `areas` must have
/// what [`super::ranges`] asks for; empty when there is no table, or none that was read whole.
pub fn partitions(areas: &Areas) -> Vec<Range<u64>> {
    for block in [512u64, 4096] {
        if areas.has(block, GPT_MAGIC)
            && let Some(entries) = gpt_entries(areas, block, block)
        {
            let unit = block / SECTOR as u64;
            // The last block in the entry is still part of the partition.
            let sectors = |entry: &u64| {
                let first = areas.u64(entry + 32)?.checked_mul(unit)?;
                let end = areas.u64(entry + 40)?.checked_add(1)?.checked_mul(unit)?;
                (first < end).then_some(first..end)
            };
            return entries.iter().filter_map(sectors).collect();
        }
    }
    if !areas.has(510, &[0x55, 0xaa]) || boot_sectors::is_filesystem(areas) {
        return Vec::new();
    }
    let sectors = |at: u64| {
        let (kind, first) = (areas.byte(at + 4)?, u64::from(areas.u32(at + 8)?));
        let count = u64::from(areas.u32(at + 12)?);
        (kind != 0 && kind != PROTECTIVE && count != 0).then(|| first..first + count)
    };
    (0..4).filter_map(|i| sectors(MBR_ENTRIES + 16 * i)).collect()
}

fn gpt_partitions(areas: &Areas, header: u64, block: u64) -> Option<usize> {
    gpt_entries(areas, header, block).map(|entries| entries.len())
}

/// Byte offsets of the entries in use: those whose type is not zero. `None` when the table was not read or is
/// nonsense.
fn gpt_entries(areas: &Areas, header: u64, block: u64) -> Option<Vec<u64>> {
    let entries = areas.u64(header + 72)?.checked_mul(block)?;
    let (count, size) = (areas.u32(header + 80)?, areas.u32(header + 84)?);
    if count > 1024 || !(128..=4096).contains(&size) {
        return None;
    }
    let mut used = Vec::new();
    for entry in 0..u64::from(count) {
        let at = entries.checked_add(entry * u64::from(size))?;
        let kind: [u8; 16] = areas.array(at)?;
        if kind != [0; 16] {
            used.push(at);
        }
    }
    Some(used)
}

fn counted(count: usize) -> String {
    match count {
        0 => "no partitions".to_owned(),
        1 => "1 partition".to_owned(),
        n => format!("{n} partitions"),
    }
}

/// Four entries at the end of the first sector, each with a valid boot flag. The protective table of a GPT is
/// shown only when the GPT itself is gone.
fn mbr(areas: &Areas, has_gpt: bool) -> Option<Signature> {
    areas.has(510, &[0x55, 0xaa]).then_some(())?;
    if boot_sectors::is_filesystem(areas) {
        return None;
    }
    let mut used = 0;
    let mut protective = false;
    for entry in (0..4).map(|i| MBR_ENTRIES + 16 * i) {
        if !matches!(areas.byte(entry)?, 0 | 0x80) {
            return None;
        }
        let kind = areas.byte(entry + 4)?;
        let sectors = areas.u32(entry + 12)?;
        used += usize::from(kind != 0 && sectors != 0);
        protective |= kind == PROTECTIVE;
    }
    let text = match (protective, has_gpt) {
        (true, true) => return None,
        (true, false) => Text::new("MBR of a GPT partition table whose header is gone"),
        (false, _) => Text::new("MBR partition table").add(counted(used)),
    };
    Some(text.at("dos", 510, 2))
}
