//! Signatures written by other programs are recognised. The images are described in `fixtures/README.md`.

// Helpers of tests too: unwrapping says that the test has failed.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::Read;

use braid_format::SECTOR;
use braid_format::brick::{
    Area, BrickIds, BrickState, BrickSuperblock, MetadataState, VolumeName, VolumeState,
};
use braid_format::signature::{
    Areas, Container, Signature, detect, partitions, ranges, refuse_container,
};
use braid_format::superblock::{Name, Role, Superblock, Version, location};
use proptest::prelude::*;

const IMAGES: &[u8] = include_bytes!("fixtures/signatures.tar.xz");

/// The devices in the archive by name: size, and the bytes of all ranges one after the other.
fn images() -> BTreeMap<String, (u64, Vec<u8>)> {
    let mut tar = tar::Archive::new(lzma_rust2::XzReader::new(IMAGES, false));
    let entries = tar.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_string_lossy().into_owned();
        let (name, size) = path.split_once('.').unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (name.to_owned(), (size.parse().unwrap(), bytes))
    });
    entries.collect()
}

fn areas(size: u64, bytes: &[u8]) -> Areas {
    let mut areas = Areas::new();
    let mut rest = bytes;
    for (offset, len) in ranges(size) {
        let (area, after) = rest.split_at(len);
        areas.push(offset, area.to_vec());
        rest = after;
    }
    assert!(rest.is_empty());
    areas
}

/// Archive name, kind, byte offset, bytes, description. Checked against what blkid says of the images.
const EXPECTED: [(&str, &str, u64, u64, &str); 31] = [
    ("bcache", "bcache", 4120, 16, "bcache device, uuid f938754c-9e6f-44ce-a35d-be639533a23e"),
    (
        "btrfs",
        "btrfs",
        65600,
        8,
        "btrfs filesystem, label \"data\", uuid 12345678-9abc-4def-8123-456789abcdef",
    ),
    ("ddf", "ddf_raid_member", 41942528, 4, "member of a DDF array, vendor \"Linux-MD\""),
    ("erofs", "erofs", 1024, 4, "erofs filesystem, uuid 12345678-9abc-4def-8123-456789abcdef"),
    ("exfat", "exfat", 3, 8, "exfat filesystem, serial 6F37-F535"),
    (
        "ext2",
        "ext2",
        1080,
        2,
        "ext2 filesystem, label \"data\", uuid 12345678-9abc-4def-8123-456789abcdef",
    ),
    (
        "ext3",
        "ext3",
        1080,
        2,
        "ext3 filesystem, label \"data\", uuid 12345678-9abc-4def-8123-456789abcdef",
    ),
    (
        "ext4",
        "ext4",
        1080,
        2,
        "ext4 filesystem, label \"data\", uuid 12345678-9abc-4def-8123-456789abcdef",
    ),
    (
        "f2fs",
        "f2fs",
        1024,
        4,
        "f2fs filesystem, label \"data\", uuid 12345678-9abc-4def-8123-456789abcdef",
    ),
    ("fat12", "vfat", 510, 2, "FAT filesystem, label \"DATA\", serial 1234-5678"),
    ("fat16", "vfat", 510, 2, "FAT filesystem, label \"DATA\", serial 1234-5678"),
    ("fat32", "vfat", 510, 2, "FAT32 filesystem, label \"DATA\", serial 1234-5678"),
    ("gfs2", "gfs2", 65536, 4, "gfs2 filesystem"),
    (
        "gpt",
        "gpt",
        512,
        8,
        "GPT partition table, 1 partition, uuid ac25434d-5075-412f-8c57-c9e98eb4b638",
    ),
    (
        "gpt",
        "gpt",
        4193792,
        8,
        "GPT partition table (backup copy), 1 partition, uuid ac25434d-5075-412f-8c57-c9e98eb4b638",
    ),
    (
        "imsm",
        "isw_raid_member",
        16776192,
        24,
        "member of an Intel Matrix Storage array, version \"1.0.00\"",
    ),
    ("iso9660", "iso9660", 32769, 5, "iso9660 filesystem, label \"DATA\""),
    (
        "jfs",
        "jfs",
        32768,
        4,
        "jfs filesystem, label \"data\", uuid a6fa11c2-d05a-4059-b868-95860d508777",
    ),
    (
        "luks1",
        "crypto_LUKS",
        0,
        6,
        "LUKS encrypted volume, version 1, uuid 12345678-9abc-4def-8123-456789abcdef",
    ),
    (
        "luks2",
        "crypto_LUKS",
        0,
        6,
        "LUKS encrypted volume, version 2, label \"data\", uuid 12345678-9abc-4def-8123-456789abcdef",
    ),
    (
        "luks2",
        "crypto_LUKS",
        16384,
        6,
        "LUKS encrypted volume (second header), version 2, label \"data\", uuid 12345678-9abc-4def-8123-456789abcdef",
    ),
    (
        "lvm",
        "LVM2_member",
        512,
        8,
        "LVM2 physical volume, uuid f1ldzI-Ms7V-fAGB-Em1H-o6XV-MgmK-XDwcqM",
    ),
    ("mbr", "dos", 510, 2, "MBR partition table, 2 partitions"),
    ("mbr-empty", "dos", 510, 2, "MBR partition table, no partitions"),
    (
        "md090",
        "linux_raid_member",
        4128768,
        4,
        "member of an md array (metadata 0.90), raid1 of 2, uuid 74b99400:bd7aa115:3d186b3c:53958f34",
    ),
    ("ntfs", "ntfs", 3, 8, "ntfs filesystem, serial 1E401BDC33705072"),
    (
        "reiserfs",
        "reiserfs",
        65588,
        9,
        "reiserfs filesystem, label \"data\", uuid 12345678-9abc-4def-8123-456789abcdef",
    ),
    ("squashfs", "squashfs", 0, 4, "squashfs filesystem, version 4.0"),
    (
        "swap",
        "swap",
        4086,
        10,
        "swap space, label \"data\", uuid 12345678-9abc-4def-8123-456789abcdef",
    ),
    ("udf", "udf", 34817, 5, "udf filesystem"),
    (
        "xfs",
        "xfs",
        0,
        4,
        "xfs filesystem, label \"data\", uuid 12345678-9abc-4def-8123-456789abcdef",
    ),
];

#[test]
fn what_other_programs_wrote_is_recognised() {
    let mut expected: BTreeMap<&str, Vec<Signature>> = BTreeMap::new();
    for (name, kind, at, len, what) in EXPECTED {
        expected.entry(name).or_default().push(Signature { kind, what: what.to_owned(), at, len });
    }
    let images = images();
    assert_eq!(images.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, (size, bytes)) in images {
        assert_eq!(detect(size, &areas(size, &bytes)), expected[name.as_str()], "{name}");
    }
}

#[test]
fn a_signature_is_gone_once_its_bytes_are_overwritten() {
    for (name, (size, bytes)) in images() {
        for found in detect(size, &areas(size, &bytes)) {
            let mut bytes = bytes.clone();
            let mut before = 0;
            for (offset, len) in ranges(size) {
                if (offset..offset + len as u64).contains(&found.at) {
                    let at = before + (found.at - offset) as usize;
                    bytes[at..at + found.len as usize].fill(0);
                }
                before += len;
            }
            let left = detect(size, &areas(size, &bytes));
            assert!(
                left.iter().all(|other| (other.kind, other.at) != (found.kind, found.at)),
                "{name}: {left:?}"
            );
        }
    }
}

/// A blank device of 4 MiB with some bytes written.
fn device(writes: &[(usize, &[u8])]) -> (u64, Vec<u8>) {
    let mut bytes = vec![0; 4 << 20];
    for (at, data) in writes {
        bytes[*at..at + data.len()].copy_from_slice(data);
    }
    let read = ranges(4 << 20)
        .into_iter()
        .flat_map(|(offset, len)| bytes[offset as usize..][..len].to_vec());
    (4 << 20, read.collect())
}

fn found(writes: &[(usize, &[u8])]) -> Vec<(&'static str, String)> {
    let (size, bytes) = device(writes);
    detect(size, &areas(size, &bytes)).into_iter().map(|s| (s.kind, s.what)).collect()
}

#[test]
fn a_blank_device_has_no_signature() {
    assert_eq!(found(&[]), []);
    for size in [0, 1, 511, 512, 4096, 65536, 1 << 20] {
        assert_eq!(detect(size, &areas(size, &vec![0; size as usize])), [], "{size}");
    }
}

#[test]
fn ranges_cover_the_ends_and_nothing_twice() {
    for size in [0, 1, 4096, 1 << 20, (1 << 20) + 1, 5 << 20, (5 << 20) - 512, 1 << 40, u64::MAX] {
        let ranges = ranges(size);
        assert_eq!(ranges[0].0, 0);
        let ends: Vec<u64> = ranges.iter().map(|(offset, len)| offset + *len as u64).collect();
        assert_eq!(ends.last(), Some(&size));
        assert!(
            ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 as u64 <= pair[1].0),
            "{ranges:?}"
        );
        assert!(ranges.iter().all(|(offset, len)| offset % 4096 == 0 && *len <= 3 << 19));
    }
}

#[test]
fn members_of_md_arrays_are_named() {
    let sectors = (4 << 20) / SECTOR as u64;
    for version in Version::ALL {
        let super_offset = location(version, sectors).unwrap();
        let sb = Superblock {
            set_name: Name::new("host:data").unwrap(),
            set_uuid: [0xab; 16],
            level: 5,
            raid_disks: 4,
            super_offset,
            data_offset: if version.data_follows() { 2048 } else { 0 },
            data_size: 4096,
            ..Superblock::empty(version)
        };
        let mut bytes = sb.to_bytes();
        let at = super_offset as usize * SECTOR;
        let name = if version == Version::V0_90 { "" } else { ", name \"host:data\"" };
        let want = format!(
            "member of an md array (metadata {version}){name}, raid5 of 4, \
             uuid abababab:abababab:abababab:abababab"
        );
        assert_eq!(found(&[(at, &bytes)]), [("linux_raid_member", want)]);
        bytes[20] ^= 1;
        let [(kind, what)] = &found(&[(at, &bytes)])[..] else { panic!("{version}") };
        assert_eq!(*kind, "linux_raid_member");
        assert!(what.contains("unusable") && what.contains("checksum"), "{what}");
    }
}

#[test]
fn a_member_from_a_machine_of_the_other_byte_order_is_named() {
    let sb = Superblock {
        set_uuid: *b"0123456789abcdef",
        level: 1,
        raid_disks: 2,
        super_offset: 8064,
        roles: vec![Role::Slot(0), Role::Slot(1)],
        ..Superblock::empty(Version::V0_90)
    };
    let bytes: Vec<u8> =
        sb.to_bytes().chunks_exact(4).flat_map(|w| [w[3], w[2], w[1], w[0]]).collect();
    let want = "member of an md array (metadata 0.90, big-endian), raid1 of 2, \
                uuid 30313233:34353637:38396162:63646566";
    assert_eq!(found(&[(8064 * SECTOR, &bytes)]), [("linux_raid_member", want.to_owned())]);
}

#[test]
fn bricks_of_volumes_are_named_by_both_superblocks() {
    let brick = BrickSuperblock {
        volume_uuid: [0xab; 16],
        brick_uuid: [0xcd; 16],
        volume_name: VolumeName::new("data").unwrap(),
        brick_id: 2,
        brick_count: 3,
        state: BrickState::Data,
        weight: 1,
        generation: 1,
        brick_size: 4 << 20,
        stripe_size: 128 << 10,
        metadata_state: MetadataState::Unused,
        metadata_generation: 0,
        metadata: Area::default(),
        metadata_grown: Vec::new(),
        data: Area { offset: 1 << 20, len: 2 << 20 },
        created: 1,
        updated: 1,
        volume_state: VolumeState::Clean,
        brick_ids: BrickIds::new([0, 1, 2]),
        away: Vec::new(),
        metadata_holders: Vec::new(),
    };
    let mut bytes = brick.to_bytes();
    let what =
        "brick 2 of 3 of a braid volume, name \"data\", uuid abababab-abab-abab-abab-abababababab";
    let second = (4 << 20) - 4096;
    assert_eq!(
        found(&[(0, &bytes), (second, &bytes)]),
        [("braid_brick", what.to_owned()), ("braid_brick", format!("{what}, second superblock"))]
    );
    bytes[100] ^= 1;
    let [(kind, what)] = &found(&[(0, &bytes)])[..] else { panic!() };
    assert_eq!(*kind, "braid_brick");
    assert!(what.contains("unusable") && what.contains("checksum"), "{what}");
}

#[test]
fn a_disk_of_a_container_is_refused_by_name() {
    let mut images = images();
    for (image, container, name) in
        [("imsm", Container::Imsm, "imsm"), ("ddf", Container::Ddf, "ddf")]
    {
        let (size, bytes) = images.remove(image).unwrap();
        let signatures = detect(size, &areas(size, &bytes));
        let error = refuse_container(&signatures).unwrap_err();
        assert_eq!(error.container, container);
        assert_eq!(container.to_string(), name);
        let text = error.to_string();
        assert!(text.contains(&error.what) && text.contains("mdadm --assemble --scan"), "{text}");
    }
    let (size, bytes) = images.remove("md090").unwrap();
    assert_eq!(refuse_container(&detect(size, &areas(size, &bytes))), Ok(()));
}

#[test]
// Lists of one range are meant here.
#[allow(clippy::single_range_in_vec_init)]
fn partitions_are_read_from_either_table() {
    let images = images();
    let read = |name: &str| {
        let (size, bytes) = &images[name];
        partitions(&areas(*size, bytes))
    };
    assert_eq!(read("gpt"), [2048..4096]);
    assert_eq!(read("mbr"), [2048..3072, 4096..5120]);
    assert_eq!(read("mbr-empty"), []);
    assert_eq!(read("ext4"), []);
}

#[test]
fn a_gpt_with_one_header_left_is_still_one() {
    let (size, bytes) = images().remove("gpt").unwrap();
    let mut front = bytes.clone();
    front[512..520].fill(0);
    let kinds: Vec<_> = detect(size, &areas(size, &front)).into_iter().map(|s| s.what).collect();
    assert_eq!(kinds.len(), 1);
    assert!(kinds[0].contains("backup"));
    let last = bytes.len() - 512;
    front[last..last + 8].fill(0);
    let kinds: Vec<_> = detect(size, &areas(size, &front)).into_iter().map(|s| s.what).collect();
    assert_eq!(kinds, ["MBR of a GPT partition table whose header is gone"]);
}

#[test]
fn formats_without_a_tool_to_make_them() {
    let zfs_list: &[u8] = b"\0\0\0\x04name\0\0\0\x09\0\0\0\x01\0\0\0\x04tank";
    let uberblock = 0x00ba_b10cu64.to_le_bytes();
    let end = 4 << 20;
    let bcachefs = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
    type Writes<'a> = &'a [(usize, &'a [u8])];
    let cases: [(Writes<'_>, &str, &str); 9] = [
        (&[(4120, bcachefs), (4168, b"data")], "bcachefs", "bcachefs filesystem, label \"data\""),
        (
            &[((16 << 10) + 40, zfs_list), ((128 << 10) + 3072, &uberblock)],
            "zfs_member",
            "zfs pool member (label 0), pool \"tank\"",
        ),
        (&[(end - (128 << 10), &uberblock)], "zfs_member", "zfs pool member (label 3)"),
        (&[(end - 4096 + 60, &[0x83, 0x74, 0x02, 0x6d])], "drbd", "DRBD metadata, version 9"),
        (&[(3, b"-FVE-FS-")], "BitLocker", "BitLocker encrypted volume"),
        (&[(3, b"ReFS\0\0\0\0")], "ReFS", "refs filesystem"),
        (&[(0, b"bluestore block device\n")], "ceph_bluestore", "Ceph BlueStore device"),
        (&[(65526, b"SWAPSPACE2")], "swap", "swap space"),
        (&[(4086, b"S1SUSPEND\0")], "swap", "swap space with a hibernated system"),
    ];
    for (writes, kind, what) in cases {
        assert_eq!(found(writes), [(kind, what.to_owned())]);
    }
}

#[test]
fn labels_cannot_reach_the_terminal() {
    let [(_, what)] = &found(&[(0, b"XFSB"), (108, b"\x1b[2J\"\n-")])[..] else { panic!() };
    assert_eq!(what, "xfs filesystem, label \"\\u{1b}[2J\\\"\\n-\"");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_make_it_panic(
        image in 0usize..29,
        changes in prop::collection::vec((0usize..70_000, any::<u8>()), 0..400),
        cut in prop::option::of(0usize..70_000),
    ) {
        static SAMPLES: std::sync::LazyLock<Vec<(u64, Vec<u8>)>> = std::sync::LazyLock::new(|| {
            // Formats of the start are cut short so that the tests stay fast.
            images().into_values().map(|(size, mut bytes)| { bytes.truncate(70_000); (size, bytes) }).collect()
        });
        let (size, bytes) = &SAMPLES[image];
        let mut bytes = bytes.clone();
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(cut.unwrap_or(usize::MAX));
        let mut areas = Areas::new();
        // The same bytes at the start and at the end, so that both are looked at.
        areas.push(size.saturating_sub(bytes.len() as u64), bytes.clone());
        areas.push(0, bytes);
        detect(*size, &areas);
        detect(u64::MAX, &areas);
    }
}
