//! Signatures beside filesystems and tables: swap, LVM, LUKS, ZFS members, Ceph, DRBD, bricks of braid's volumes.

use super::areas::{Areas, Device};
use super::found::{Signature, Text};
use crate::brick;

pub(super) fn probe(device: &Device<'_>, found: &mut Vec<Signature>) {
    found.extend(swap(device.areas));
    found.extend(lvm(device.areas));
    luks(device.areas, found);
    zfs(device, found);
    found.extend(bluestore(device.areas));
    found.extend(drbd(device));
    bricks(device, found);
}

/// The name ends the first page, whose size is the machine's.
fn swap(areas: &Areas) -> Option<Signature> {
    for page in [4096u64, 8192, 16384, 32768, 65536] {
        let at = page - 10;
        let name = areas.get(at, 10)?;
        let kind = match name {
            b"SWAPSPACE2" => "swap space",
            b"SWAP-SPACE" => "swap space, version 0",
            b"S1SUSPEND\0" | b"S2SUSPEND\0" | b"ULSUSPEND\0" | b"LINHIB0001" => {
                "swap space with a hibernated system"
            }
            _ => continue,
        };
        let mut text = Text::new(kind);
        if name != b"SWAP-SPACE" {
            text = text.label(areas.get(1052, 16)?).uuid(areas.array(1036));
        }
        return Some(text.at("swap", at, 10));
    }
    None
}

/// A label in one of the first four sectors (lvm2 `lib/label/label.h`, `lib/format_text/layout.h`).
fn lvm(areas: &Areas) -> Option<Signature> {
    (0..4u64).map(|i| i * 512).find_map(|at| {
        if !areas.has(at, b"LABELONE") || !areas.has(at + 24, b"LVM2 001") {
            return None;
        }
        let header = at + u64::from(areas.u32(at + 20)?);
        let mut text = Text::new("LVM2 physical volume");
        if let Some(id) =
            areas.get(header, 32).filter(|id| id.iter().all(u8::is_ascii_alphanumeric))
        {
            text = text.add(format!("uuid {}", lvm_uuid(id)));
        }
        Some(text.at("LVM2_member", at, 8))
    })
}

/// LVM shows the 32 characters in groups of 6, 4, 4, 4, 4, 4 and 6.
fn lvm_uuid(id: &[u8]) -> String {
    let mut text = String::with_capacity(38);
    for (i, &c) in id.iter().enumerate() {
        if matches!(i, 6 | 10 | 14 | 18 | 22 | 26) {
            text.push('-');
        }
        text.push(c.into());
    }
    text
}

/// LUKS1 and LUKS2, and the second header that LUKS2 keeps.
fn luks(areas: &Areas, found: &mut Vec<Signature>) {
    let describe = |at: u64, magic: &[u8; 6], what: &str| {
        areas.has(at, magic).then_some(())?;
        let version = areas.u16_be(at + 6)?;
        let mut text = Text::new(format!("{what}, version {version}"));
        if version == 2 {
            text = text.label(areas.get(at + 24, 48)?);
        }
        let uuid = areas.get(at + 168, 40)?;
        let uuid: String = uuid.iter().take_while(|&&b| b != 0).map(|&b| char::from(b)).collect();
        if uuid.chars().all(|c| c.is_ascii_hexdigit() || c == '-') && !uuid.is_empty() {
            text = text.add(format!("uuid {uuid}"));
        }
        Some(text.at("crypto_LUKS", at, 6))
    };
    found.extend(describe(0, b"LUKS\xba\xbe", "LUKS encrypted volume"));
    // The second header stands where the first one's area ends: a power of two from 16 KiB.
    let second = (14..=22).find_map(|shift| {
        describe(1 << shift, b"SKUL\xba\xbe", "LUKS encrypted volume (second header)")
    });
    found.extend(second);
}

/// ZFS: four labels of 256 KiB, two at the start and two at the end; in each from 128 KiB a ring of blocks that begin
/// with a magic number in the writer's byte order.
fn zfs(device: &Device<'_>, found: &mut Vec<Signature>) {
    const LABEL: u64 = 256 << 10;
    const RING: u64 = 128 << 10;
    const MAGIC: u64 = 0x00ba_b10c;
    let end = device.bytes & !(LABEL - 1);
    let mut labels = vec![0, LABEL];
    labels.extend(
        [2, 1].iter().filter_map(|i| end.checked_sub(i * LABEL)).filter(|at| *at >= 2 * LABEL),
    );
    for (number, label) in labels.into_iter().enumerate() {
        let blocks = device.areas;
        let used = (label + RING..label + LABEL)
            .step_by(1024)
            .any(|at| blocks.u64(at) == Some(MAGIC) || blocks.u64_be(at) == Some(MAGIC));
        if used {
            let mut text = Text::new(format!("zfs pool member (label {number})"));
            if let Some(pool) = zfs_pool(device.areas, label) {
                text = text.named("pool", &pool);
            }
            found.push(text.at("zfs_member", label + RING, LABEL - RING));
        }
    }
}

/// The pool's name: the string "name" in the XDR-encoded list at 16 KiB of a label.
fn zfs_pool(areas: &Areas, label: u64) -> Option<String> {
    /// Length and text of the name, type string, one element.
    const PAIR: &[u8] = b"\0\0\0\x04name\0\0\0\x09\0\0\0\x01";
    let list = areas.get(label + (16 << 10), 112 << 10)?;
    let at = list.windows(PAIR.len()).position(|window| window == PAIR)? + PAIR.len();
    let (len, text) = list.get(at..)?.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
    Some(String::from_utf8_lossy(text.get(..len.min(256))?).into_owned())
}

fn bluestore(areas: &Areas) -> Option<Signature> {
    const MAGIC: &[u8] = b"bluestore block device";
    areas
        .has(0, MAGIC)
        .then(|| Text::new("Ceph BlueStore device").at("ceph_bluestore", 0, MAGIC.len() as u64))
}

/// Internal metadata in the last 4 KiB of the whole 4 KiB units (drbd `drbd_int.h`, struct meta_data_on_disk).
fn drbd(device: &Device<'_>) -> Option<Signature> {
    let block = (device.bytes & !4095).checked_sub(4096)?;
    let version = match device.areas.u32_be(block + 60)? {
        0x8374_026b => "8.0",
        0x8374_026c => "8.4",
        0x8374_026d => "9",
        _ => return None,
    };
    Some(Text::new(format!("DRBD metadata, version {version}")).at("drbd", block + 60, 4))
}

/// Both superblocks of a brick: the second one where it is on a device that has kept its size.
fn bricks(device: &Device<'_>, found: &mut Vec<Signature>) {
    for at in [Some(0), brick::second_copy_at(device.bytes)].into_iter().flatten() {
        let Some(bytes) = device.areas.get(at, brick::SUPERBLOCK_LEN) else { continue };
        let text = match brick::BrickSuperblock::parse(bytes, at, device.bytes) {
            Ok(superblock) => {
                let id = superblock.brick_id;
                let uuid = superblock.volume_uuid;
                Text::new(format!("brick {id} of {} of a braid volume", superblock.brick_count))
                    .named("name", superblock.volume_name.as_str())
                    .uuid(Some(uuid))
            }
            Err(brick::BrickError::NotABrick { .. } | brick::BrickError::TooShort { .. }) => {
                continue;
            }
            Err(error) => Text::new(format!("unusable superblock of a braid volume: {error}")),
        };
        let text = if at == 0 { text } else { text.add("second superblock") };
        found.push(text.at("braid_brick", at, brick::MAGIC.len() as u64));
    }
}
