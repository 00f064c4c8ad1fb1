//! Filesystems that begin with a boot sector: FAT, NTFS, exFAT, ReFS, and BitLocker volumes.

use super::areas::{Areas, Device};
use super::found::{Signature, Text};

pub(super) fn probe(device: &Device<'_>, found: &mut Vec<Signature>) {
    found.extend(named(device.areas).or_else(|| fat(device.areas)));
}

/// True if the first sector belongs to a filesystem; the bytes where an MBR has its partition entries are boot code then.
pub(super) fn is_filesystem(areas: &Areas) -> bool {
    named(areas).is_some() || fat(areas).is_some()
}

/// Filesystems that have their name at byte 3.
fn named(areas: &Areas) -> Option<Signature> {
    let text = match &areas.array::<8>(3)? {
        b"NTFS    " => {
            return Some(
                Text::new("ntfs filesystem")
                    .add(format!("serial {:016X}", areas.u64(72)?))
                    .at("ntfs", 3, 8),
            );
        }
        b"EXFAT   " => {
            let text =
                Text::new("exfat filesystem").add(format!("serial {}", serial(areas.u32(100)?)));
            return Some(text.at("exfat", 3, 8));
        }
        b"-FVE-FS-" => {
            return Some(Text::new("BitLocker encrypted volume").at("BitLocker", 3, 8));
        }
        b"ReFS\0\0\0\0" => Text::new("refs filesystem"),
        _ => return None,
    };
    Some(text.at("ReFS", 3, 8))
}

/// FAT12, FAT16 or FAT32: a plausible BIOS parameter block, since their own name in it is not mandatory.
fn fat(areas: &Areas) -> Option<Signature> {
    let sector = areas.get(0, 512)?;
    let jump = matches!(sector.first(), Some(0xeb | 0xe9));
    let bytes_per_sector = areas.u16(11)?;
    let per_cluster = areas.byte(13)?;
    let plausible = jump
        && areas.has(510, &[0x55, 0xaa])
        && bytes_per_sector.is_power_of_two()
        && (512..=4096).contains(&bytes_per_sector)
        && per_cluster.is_power_of_two()
        && areas.u16(14)? != 0
        && (1..=4).contains(&areas.byte(16)?)
        && areas.byte(21)? >= 0xf0;
    if !plausible {
        return None;
    }
    let (short, long) = (areas.u16(22)?, areas.u32(36)?);
    // FAT32 uses the 32-bit field for the length of its table, which shifts the fields behind it.
    let (name, serial_at, label_at) = match (short, long) {
        (0, 0) => return None,
        (0, _) => ("FAT32 filesystem", 67, 71),
        _ => ("FAT filesystem", 39, 43),
    };
    let label = areas.get(label_at, 11)?;
    let label = if label == b"NO NAME    " { &[] } else { label };
    let text =
        Text::new(name).label(label).add(format!("serial {}", serial(areas.u32(serial_at)?)));
    Some(text.at("vfat", 510, 2))
}

/// The form in which DOS shows a serial number.
fn serial(number: u32) -> String {
    format!("{:04X}-{:04X}", number >> 16, number & 0xffff)
}
