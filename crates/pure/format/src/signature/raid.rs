//! Members of other arrays: md 1.x and 0.90, Intel IMSM, SNIA DDF.

use super::{Device, Signature, Text};
use crate::superblock::{READ_LEN, Superblock, SuperblockError, candidates};
use crate::{SECTOR, uuid_text};

pub(super) fn probe(device: &Device<'_>, found: &mut Vec<Signature>) {
    md1(device, found);
    found.extend(md0(device));
    found.extend(imsm(device));
    found.extend(ddf(device));
}

const KIND: &str = "linux_raid_member";

fn md1(device: &Device<'_>, found: &mut Vec<Signature>) {
    let sectors = device.bytes / SECTOR as u64;
    for (version, sector) in candidates(sectors) {
        let at = sector * SECTOR as u64;
        let room = usize::try_from(device.bytes - at).unwrap_or(READ_LEN).min(READ_LEN);
        let Some(bytes) = device.areas.get(at, room) else { continue };
        let text = match Superblock::parse(bytes, version, sector, sectors) {
            Ok(sb) => {
                let text = Text::new(format!("member of an md array (metadata {version})"))
                    .named("name", sb.set_name.as_text().unwrap_or(&sb.set_name.escaped()));
                text.add(level(sb.level, sb.raid_disks))
                    .add(format!("uuid {}", uuid_text::format(&sb.set_uuid)))
            }
            Err(SuperblockError::NoMagic { .. } | SuperblockError::TooShort { .. }) => continue,
            Err(error) => {
                Text::new(format!("unusable md superblock (metadata {version}): {error}"))
            }
        };
        found.push(text.at(KIND, at, 4));
    }
}

fn level(level: i32, raid_disks: u32) -> String {
    match level {
        -1 => format!("linear of {raid_disks}"),
        level => format!("raid{level} of {raid_disks}"),
    }
}

/// md 0.90: 4 KiB of words in the byte order of the machine that wrote them, at the start of the last whole 64 KiB.
fn md0(device: &Device<'_>) -> Option<Signature> {
    const UNIT: u64 = 64 << 10;
    let at = (device.bytes & !(UNIT - 1)).checked_sub(UNIT)?;
    let words = |read: &dyn Fn(u64) -> Option<u32>| {
        (read(0)? == 0xa92b_4efc && read(1)? == 0 && matches!(read(2)?, 90 | 91)).then_some(())?;
        // The uuid is words, shown most significant digit first on either machine.
        let uuid =
            format!("{:08x}:{:08x}:{:08x}:{:08x}", read(5)?, read(13)?, read(14)?, read(15)?);
        Some((level(read(7)?.cast_signed(), read(10)?), uuid))
    };
    let little = words(&|word| device.areas.u32(at + 4 * word)).map(|text| (text, ""));
    let big =
        || words(&|word| device.areas.u32_be(at + 4 * word)).map(|text| (text, ", big-endian"));
    let ((level, uuid), order) = little.or_else(big)?;
    let text = Text::new(format!("member of an md array (metadata 0.90{order})"))
        .add(level)
        .add(format!("uuid {uuid}"));
    Some(text.at(KIND, at, 4))
}

/// Intel's anchor in the last but one logical block.
fn imsm(device: &Device<'_>) -> Option<Signature> {
    const MAGIC: &[u8] = b"Intel Raid ISM Cfg Sig. ";
    [512u64, 4096].iter().find_map(|block| {
        let at = (device.bytes & !(block - 1)).checked_sub(2 * block)?;
        device.areas.has(at, MAGIC).then_some(())?;
        let version = device.areas.get(at + 24, 6)?;
        let version: String =
            version.iter().filter(|b| b.is_ascii_graphic()).map(|&b| char::from(b)).collect();
        let text = Text::new("member of an Intel Matrix Storage array").named("version", &version);
        Some(text.at("isw_raid_member", at, MAGIC.len() as u64))
    })
}

/// The DDF anchor header in the last logical block.
fn ddf(device: &Device<'_>) -> Option<Signature> {
    [512u64, 4096].iter().find_map(|block| {
        let at = (device.bytes & !(block - 1)).checked_sub(*block)?;
        (device.areas.u32_be(at)? == 0xde11_de11).then_some(())?;
        // The GUID begins with the vendor's name.
        let vendor = String::from_utf8_lossy(device.areas.get(at + 8, 8)?);
        let text = Text::new("member of a DDF array").named("vendor", vendor.trim());
        Some(text.at("ddf_raid_member", at, 4))
    })
}
