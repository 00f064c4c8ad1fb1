//! Filesystems that are recognised by a magic number in their superblock.

use super::areas::{Areas, Device};
use super::found::{Signature, Text};

pub(super) fn probe(device: &Device<'_>, found: &mut Vec<Signature>) {
    let areas = device.areas;
    let probes =
        [ext, xfs, btrfs, f2fs, bcachefs, iso9660, udf, squashfs, erofs, jfs, reiserfs, gfs2];
    found.extend(probes.iter().filter_map(|probe| probe(areas)));
}

/// ext2, ext3, ext4 or an ext journal device (Linux `fs/ext4/ext4.h`, struct ext4_super_block).
fn ext(areas: &Areas) -> Option<Signature> {
    const SB: u64 = 1024;
    const INCOMPAT_JOURNAL_DEV: u32 = 0x8;
    const COMPAT_HAS_JOURNAL: u32 = 0x4;
    /// The incompatible features of ext3: filetype, recover, meta_bg.
    const INCOMPAT_EXT3: u32 = 0x2 | 0x4 | 0x10;
    /// The read-only compatible features of ext3: sparse_super, large_file, btree_dir.
    const RO_COMPAT_EXT3: u32 = 0x1 | 0x2 | 0x4;
    if areas.u16(SB + 56)? != 0xef53 || areas.u32(SB + 24)? > 6 {
        return None;
    }
    let (compat, incompat, ro_compat) =
        (areas.u32(SB + 92)?, areas.u32(SB + 96)?, areas.u32(SB + 100)?);
    let (kind, name) = if incompat & INCOMPAT_JOURNAL_DEV != 0 {
        ("jbd", "ext journal device")
    } else if incompat & !INCOMPAT_EXT3 != 0 || ro_compat & !RO_COMPAT_EXT3 != 0 {
        ("ext4", "ext4 filesystem")
    } else if compat & COMPAT_HAS_JOURNAL != 0 {
        ("ext3", "ext3 filesystem")
    } else {
        ("ext2", "ext2 filesystem")
    };
    let text = Text::new(name).label(areas.get(SB + 120, 16)?).uuid(areas.array(SB + 104));
    Some(text.at(kind, SB + 56, 2))
}

/// Linux `fs/xfs/libxfs/xfs_format.h`, struct xfs_dsb.
fn xfs(areas: &Areas) -> Option<Signature> {
    areas.has(0, b"XFSB").then_some(())?;
    let text = Text::new("xfs filesystem").label(areas.get(108, 12)?).uuid(areas.array(32));
    Some(text.at("xfs", 0, 4))
}

/// Linux `include/uapi/linux/btrfs_tree.h`, struct btrfs_super_block.
fn btrfs(areas: &Areas) -> Option<Signature> {
    const SB: u64 = 64 << 10;
    areas.has(SB + 64, b"_BHRfS_M").then_some(())?;
    let mut text =
        Text::new("btrfs filesystem").label(areas.get(SB + 299, 256)?).uuid(areas.array(SB + 32));
    let devices = areas.u64(SB + 136)?;
    if devices > 1 {
        text = text.add(format!("one of {devices} devices"));
    }
    Some(text.at("btrfs", SB + 64, 8))
}

/// Linux `include/linux/f2fs_fs.h`, struct f2fs_super_block.
fn f2fs(areas: &Areas) -> Option<Signature> {
    const SB: u64 = 1024;
    (areas.u32(SB)? == 0xf2f5_2010).then_some(())?;
    let label = areas.get(SB + 124, 1024)?;
    let units = label.chunks_exact(2).map(|pair| match pair {
        &[low, high] => u16::from_le_bytes([low, high]),
        _ => 0,
    });
    let label: String = char::decode_utf16(units.take_while(|&u| u != 0))
        .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect();
    let text = Text::new("f2fs filesystem").named("label", &label).uuid(areas.array(SB + 108));
    Some(text.at("f2fs", SB, 4))
}

/// bcachefs and bcache have their superblock and magic uuid in the same place.
fn bcachefs(areas: &Areas) -> Option<Signature> {
    const SB: u64 = 4096;
    const BCACHE: [u8; 16] = *b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
    const BCACHEFS: [u8; 16] = *b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
    let text = match areas.array(SB + 24)? {
        // The field that users see as the uuid is the second of two.
        BCACHEFS => {
            return Some(
                Text::new("bcachefs filesystem")
                    .label(areas.get(SB + 72, 32)?)
                    .uuid(areas.array(SB + 56))
                    .at("bcachefs", SB + 24, 16),
            );
        }
        BCACHE => Text::new("bcache device").uuid(areas.array(SB + 40)),
        _ => return None,
    };
    Some(text.at("bcache", SB + 24, 16))
}

/// ECMA-119, the primary volume descriptor.
fn iso9660(areas: &Areas) -> Option<Signature> {
    const DESCRIPTOR: u64 = 32 << 10;
    areas.has(DESCRIPTOR + 1, b"CD001").then_some(())?;
    let text = Text::new("iso9660 filesystem").label(areas.get(DESCRIPTOR + 40, 32)?);
    Some(text.at("iso9660", DESCRIPTOR + 1, 5))
}

/// ECMA-167: an NSR descriptor among those that begin at 32 KiB.
fn udf(areas: &Areas) -> Option<Signature> {
    const DESCRIPTORS: u64 = 32 << 10;
    (0..16).map(|i| DESCRIPTORS + i * 2048 + 1).find_map(|at| {
        let known = areas.has(at, b"NSR02") || areas.has(at, b"NSR03");
        known.then(|| Text::new("udf filesystem").at("udf", at, 5))
    })
}

fn squashfs(areas: &Areas) -> Option<Signature> {
    let (major, minor) = match &areas.array(0)? {
        b"hsqs" => (areas.u16(28)?, areas.u16(30)?),
        b"sqsh" => (areas.u16_be(28)?, areas.u16_be(30)?),
        _ => return None,
    };
    Some(
        Text::new("squashfs filesystem")
            .add(format!("version {major}.{minor}"))
            .at("squashfs", 0, 4),
    )
}

/// Linux `fs/erofs/erofs_fs.h`.
fn erofs(areas: &Areas) -> Option<Signature> {
    const SB: u64 = 1024;
    (areas.u32(SB)? == 0xe0f5_e1e2).then_some(())?;
    let text =
        Text::new("erofs filesystem").label(areas.get(SB + 64, 16)?).uuid(areas.array(SB + 48));
    Some(text.at("erofs", SB, 4))
}

fn jfs(areas: &Areas) -> Option<Signature> {
    const SB: u64 = 32 << 10;
    areas.has(SB, b"JFS1").then_some(())?;
    let text =
        Text::new("jfs filesystem").label(areas.get(SB + 152, 16)?).uuid(areas.array(SB + 136));
    Some(text.at("jfs", SB, 4))
}

fn reiserfs(areas: &Areas) -> Option<Signature> {
    for sb in [64 << 10, 8 << 10] {
        for magic in [b"ReIsErFs".as_slice(), b"ReIsEr2Fs", b"ReIsEr3Fs"] {
            if areas.has(sb + 52, magic) {
                let text = Text::new("reiserfs filesystem")
                    .label(areas.get(sb + 100, 16)?)
                    .uuid(areas.array(sb + 84));
                return Some(text.at("reiserfs", sb + 52, magic.len() as u64));
            }
        }
    }
    areas
        .has(64 << 10, b"ReIsEr4")
        .then(|| Text::new("reiser4 filesystem").at("reiser4", 64 << 10, 7))
}

/// Linux `include/uapi/linux/gfs2_ondisk.h`: magic, then the type of a superblock.
fn gfs2(areas: &Areas) -> Option<Signature> {
    const SB: u64 = 64 << 10;
    (areas.u32_be(SB)? == 0x0116_1970 && areas.u32_be(SB + 4)? == 1).then_some(())?;
    Some(Text::new("gfs2 filesystem").at("gfs2", SB, 4))
}
