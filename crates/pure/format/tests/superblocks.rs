//! Superblocks made here: what is written is read back, what cannot be right is refused by name, and no
//! bytes make the reader panic.

// Helpers of tests too: unwrapping says that the test has failed.
#![allow(clippy::unwrap_used)]

use braid_format::superblock::{
    CLEAN, Features, Leftover, MAX_ROLES, Name, Ppl, READ_LEN, Reshape, Role, Superblock,
    SuperblockError, Version, candidates, choose, location, pack_time, role_table_len, time_micros,
    time_seconds, v0_shared_with,
};
use proptest::prelude::*;
use std::ops::Range;

/// The versions with the same superblock in other places.
const V1: [Version; 3] = [Version::V1_0, Version::V1_1, Version::V1_2];
/// Sectors of the member that the samples are on.
const DEV: u64 = 1 << 30;

fn sample(version: Version) -> Superblock {
    let super_offset = location(version, DEV).unwrap();
    let data_offset = if version == Version::V1_0 { 0 } else { 264_192 };
    Superblock {
        set_uuid: *b"0123456789abcdef",
        set_name: Name::new("host:data").unwrap(),
        ctime: pack_time(1_700_000_000, 123_456),
        level: 5,
        layout: 2,
        size: 1 << 29,
        chunk_sectors: 1024,
        raid_disks: 3,
        data_offset,
        data_size: DEV - 264_192,
        super_offset,
        device_uuid: [7; 16],
        bblog_size: 8,
        bblog_offset: if version == Version::V1_0 { -8 } else { 136 },
        events: 17,
        roles: vec![Role::Slot(0), Role::Slot(1), Role::Slot(2), Role::Faulty],
        ..Superblock::empty(version)
    }
}

fn parse(sb: &Superblock) -> Result<Superblock, SuperblockError> {
    Superblock::parse(&sb.to_bytes(), sb.version, sb.super_offset, DEV)
}

/// The error after changing bytes of a good 1.2 superblock and making the checksum right again.
fn error_after(change: impl FnOnce(&mut [u8])) -> SuperblockError {
    let mut bytes = sample(Version::V1_2).to_bytes();
    change(&mut bytes);
    reseal(&mut bytes);
    Superblock::parse(&bytes, Version::V1_2, 8, DEV).unwrap_err()
}

/// The checksum once more, by the rule in words: sum of all words without its own, folded once.
fn reseal(bytes: &mut [u8]) {
    let max_dev = u32::from_le_bytes(bytes[220..224].try_into().unwrap()) as usize;
    bytes[216..220].fill(0);
    let len = (256usize.saturating_add(max_dev.saturating_mul(2))).min(bytes.len());
    let mut sum = 0u64;
    for word in bytes[..len].chunks(4) {
        let mut whole = [0; 4];
        whole[..word.len()].copy_from_slice(word);
        sum += u64::from(u32::from_le_bytes(whole));
    }
    let folded = (sum & 0xffff_ffff) + (sum >> 32);
    bytes[216..220].copy_from_slice(&(folded as u32).to_le_bytes());
}

#[test]
fn places_of_the_versions() {
    use Version::{V0_90, V1_0, V1_1, V1_2};
    assert_eq!(candidates(16385), [(V0_90, 16256), (V1_0, 16368), (V1_1, 0), (V1_2, 8)]);
    assert_eq!(candidates(256), [(V0_90, 128), (V1_0, 240), (V1_1, 0), (V1_2, 8)]);
    assert_eq!(candidates(255), [(V1_0, 232), (V1_1, 0), (V1_2, 8)]);
    assert_eq!(candidates(24), [(V1_0, 8), (V1_1, 0), (V1_2, 8)]);
    assert_eq!(candidates(23), []);
    assert_eq!(candidates(u64::MAX).len(), 4);
}

#[test]
// Lists of one range are meant here.
#[allow(clippy::single_range_in_vec_init)]
fn a_partition_that_ends_with_its_disk_shares_the_place_of_0_90() {
    let disk = 1 << 20;
    let place = |parts: &[Range<u64>]| v0_shared_with(disk, parts);
    assert_eq!(place(&[2048..500_000, 500_096..disk]), Some(500_096..disk));
    // The end need not be the same, only the last whole 64 KiB.
    assert_eq!(v0_shared_with(disk + 100, &[2048..disk + 33]).map(|part| part.start), Some(2048));
    // 1 sector off, or cut before the last 64 KiB.
    assert_eq!(place(&[500_097..disk, 2048..disk - 1]), None);
    assert_eq!(place(&[disk..0, 0..10]), None);
    assert_eq!(v0_shared_with(100, &[0..100]), None);
}

#[test]
fn versions_as_text() {
    for version in Version::ALL {
        assert_eq!(version.to_string().parse(), Ok(version));
    }
    assert_eq!("default".parse(), Ok(Version::V1_2));
    assert_eq!("0.90".parse(), Ok(Version::V0_90));
    assert!("1.3".parse::<Version>().is_err());
}

#[test]
fn times_are_seconds_and_microseconds() {
    let raw = pack_time(1_700_000_000, 999_999);
    assert_eq!((time_seconds(raw), time_micros(raw)), (1_700_000_000, 999_999));
    assert_eq!(raw, 1_700_000_000 | 999_999 << 40);
}

#[test]
fn role_tables_fill_their_last_sector() {
    for (members, len) in
        [(0, 128), (1, 128), (128, 128), (129, 384), (384, 384), (385, 640), (1920, 1920)]
    {
        assert_eq!(role_table_len(members), len, "{members}");
    }
    let sb = Superblock { roles: vec![Role::Spare; 384], ..sample(Version::V1_2) };
    assert_eq!(sb.to_bytes().len(), 1024);
}

#[test]
fn features_follow_from_the_fields() {
    let base = sample(Version::V1_2);
    assert_eq!(base.features(), Features::empty());
    let reshape = Reshape {
        new_level: 6,
        position: 0,
        delta_disks: 0,
        new_layout: 2,
        new_chunk_sectors: 128,
        backwards: true,
    };
    let ppl = Ppl { offset: 8, size: 2048, multiple: false };
    let cases = [
        (Superblock { bitmap_offset: -16, ..base.clone() }, Features::BITMAP_OFFSET),
        (Superblock { recovery_offset: Some(0), ..base.clone() }, Features::RECOVERY_OFFSET),
        (
            Superblock { recovery_offset: Some(0), recovery_by_bitmap: true, ..base.clone() },
            Features::RECOVERY_OFFSET | Features::RECOVERY_BITMAP,
        ),
        (Superblock { recovery_by_bitmap: true, ..base.clone() }, Features::empty()),
        (
            Superblock { reshape: Some(reshape), ..base.clone() },
            Features::RESHAPE_ACTIVE | Features::RESHAPE_BACKWARDS,
        ),
        (
            Superblock {
                reshape: Some(Reshape { delta_disks: -1, ..reshape }),
                new_offset: 8,
                ..base.clone()
            },
            Features::RESHAPE_ACTIVE | Features::NEW_OFFSET,
        ),
        (Superblock { new_offset: 8, ..base.clone() }, Features::empty()),
        (Superblock { bad_blocks: true, ..base.clone() }, Features::BAD_BLOCKS),
        (Superblock { replacement: true, ..base.clone() }, Features::REPLACEMENT),
        (Superblock { clustered: true, ..base.clone() }, Features::CLUSTERED),
        (Superblock { journal: true, ..base.clone() }, Features::JOURNAL),
        (Superblock { ppl: Some(ppl), ..base.clone() }, Features::PPL),
        (
            Superblock { ppl: Some(Ppl { multiple: true, ..ppl }), ..base.clone() },
            Features::MULTIPLE_PPLS,
        ),
        (Superblock { raid0_layout: true, level: 0, ..base.clone() }, Features::RAID0_LAYOUT),
        (Superblock { raid0_layout: true, ..base }, Features::empty()),
    ];
    for (sb, want) in cases {
        assert_eq!(sb.features(), want);
        assert_eq!(parse(&sb).unwrap().features(), want);
        let stored = u32::from_le_bytes(sb.to_bytes()[8..12].try_into().unwrap());
        assert_eq!(stored, want.bits());
    }
}

#[test]
fn features_have_names() {
    let features = Features::from_bits_retain(0x2045);
    assert_eq!(features.to_string(), "BITMAP_OFFSET, RESHAPE_ACTIVE, NEW_OFFSET, 0x2000");
    assert_eq!(Features::empty().to_string(), "none");
}

#[test]
fn a_number_of_slots_that_no_table_can_name_is_refused() {
    let slots = |raid_disks| Superblock { raid_disks, ..sample(Version::V1_2) };
    for raid_disks in [0, 1921, 0x4000_0000, u32::MAX] {
        let found = parse(&slots(raid_disks));
        assert!(
            matches!(&found, Err(SuperblockError::Field { field: "raid_disks", .. })),
            "{found:?}"
        );
    }
    assert_eq!(parse(&slots(1920)).unwrap().slots(), 1920);
    // During a reshape the number before it counts as well, whatever the version.
    for (version, most) in [(Version::V1_2, 1920), (Version::V0_90, 27)] {
        let reshape = |delta_disks| Superblock {
            reshape: Some(Reshape {
                new_level: 5,
                position: 0,
                delta_disks,
                new_layout: 2,
                new_chunk_sectors: 128,
                backwards: delta_disks < 0,
            }),
            size: 1 << 20,
            ..sample(version)
        };
        for delta_disks in [3, 4, i32::MAX, 2 - most, i32::MIN] {
            assert!(parse(&reshape(delta_disks)).is_err(), "{version}: {delta_disks}");
        }
        for delta_disks in [2, 3 - most] {
            let parsed = parse(&reshape(delta_disks)).unwrap();
            assert!(parsed.slots() <= most as u32, "{version}: {delta_disks}");
        }
    }
}

#[test]
fn what_cannot_be_right_is_refused_by_name() {
    use SuperblockError as E;
    let set = |at: usize, bytes: &[u8]| {
        error_after(|block| block[at..at + bytes.len()].copy_from_slice(bytes))
    };
    assert!(matches!(set(0, &[0]), E::NoMagic { at: 8, .. }));
    assert!(matches!(set(4, &[0]), E::Major { found: 0, .. }));
    assert!(matches!(set(9, &[0x20]), E::UnknownFeature { bits: 0x2000, .. }));
    assert!(matches!(set(8, &[0x01, 0x04]), E::FeatureConflict { .. }));
    assert!(matches!(set(8, &[0x00, 0x06]), E::FeatureConflict { .. }));
    assert!(matches!(set(8, &[0x00, 0x0c]), E::FeatureConflict { .. }));
    assert!(matches!(set(8, &[0x00, 0x10]), E::Raid0Layout { level: 5, .. }));
    assert!(matches!(set(12, &[1]), E::Reserved { field: 12, .. }));
    assert!(matches!(set(255, &[1]), E::Reserved { field: 228, .. }));
    assert!(matches!(set(224, &[1]), E::Field { field: "logical_block_size", found: 1, .. }));
    assert!(matches!(set(226, &[2]), E::Field { field: "logical_block_size", .. }));
    assert!(matches!(set(136, &9u64.to_le_bytes()), E::DataSize { found: 9, .. }));
    assert!(matches!(set(144, &[9]), E::WrongPlace { stored: 9, .. }));
    assert!(matches!(set(186, &[9]), E::BadBlockLogSize { found: 9, .. }));
    assert!(matches!(set(220, &1921u32.to_le_bytes()), E::MaxDev { found: 1921, .. }));
    assert!(matches!(set(128, &[8, 0, 0, 0]), E::DataOverSuperblock { data: 8, end: 9, .. }));
    assert!(matches!(set(128, &[0xff; 8]), E::DataBeyondMember { .. }));
    let mut bytes = sample(Version::V1_2).to_bytes();
    bytes[16] ^= 1;
    assert!(matches!(Superblock::parse(&bytes, Version::V1_2, 8, DEV), Err(E::Checksum { .. })));
}

#[test]
fn a_member_that_was_cut_short_is_refused() {
    for (version, have) in [(Version::V1_2, DEV - 1), (Version::V1_1, DEV - 1)] {
        let sb = sample(version);
        let error =
            Superblock::parse(&sb.to_bytes(), version, sb.super_offset, DEV - 1).unwrap_err();
        assert!(
            matches!(error, SuperblockError::DataBeyondMember { have: h, .. } if h == have),
            "{error}"
        );
    }
    let sb = Superblock { data_size: DEV - 15, ..sample(Version::V1_0) };
    assert!(matches!(parse(&sb), Err(SuperblockError::DataBeyondMember { .. })));
    assert!(parse(&Superblock { data_size: DEV - 16, ..sb }).is_ok());
}

#[test]
fn a_new_offset_before_the_superblocks_end_is_refused() {
    let reshape = Reshape {
        new_level: 5,
        position: 0,
        delta_disks: 1,
        new_layout: 2,
        new_chunk_sectors: 128,
        backwards: false,
    };
    let sb = Superblock { reshape: Some(reshape), new_offset: -264_184, ..sample(Version::V1_2) };
    let error = parse(&sb).unwrap_err();
    assert!(
        matches!(error, SuperblockError::DataOverSuperblock { field: "new_offset", data: 8, .. }),
        "{error}"
    );
}

#[test]
fn errors_name_place_value_and_remedy() {
    let text = error_after(|block| block[9] = 0x20).to_string();
    assert!(
        text.contains("sector 8")
            && text.contains("bit 0x2000")
            && text.contains("use the program"),
        "{text}"
    );
    let text = error_after(|block| block[9] = 0x60).to_string();
    assert!(text.contains("bits 0x2000, 0x4000"), "{text}");
}

#[test]
fn too_few_bytes_are_an_error() {
    let bytes = sample(Version::V1_2).to_bytes();
    for len in [0, 3, 255, 256, 263] {
        let error = Superblock::parse(&bytes[..len], Version::V1_2, 8, DEV).unwrap_err();
        assert!(matches!(error, SuperblockError::TooShort { .. }), "{len}: {error}");
    }
    assert!(Superblock::parse(&bytes[..264], Version::V1_2, 8, DEV).is_ok());
}

#[test]
fn of_several_superblocks_the_newest_counts() {
    // Microseconds stand in the high bits, and 0.90 has none.
    let old = Superblock { ctime: pack_time(5, 999_999), ..sample(Version::V1_2) };
    let new = Superblock { ctime: 6, ..sample(Version::V1_0) };
    let none = || Err(SuperblockError::NoMagic { at: 0, found: 0 });
    let damaged = || Err(SuperblockError::MaxDev { at: 0, found: 9999 });
    let chosen = choose([Ok(old.clone()), none(), Ok(new.clone())]).unwrap();
    assert_eq!(chosen, Some(new.clone()));
    assert_eq!(choose([Ok(new.clone()), Ok(old.clone())]).unwrap(), Some(new));
    assert_eq!(choose([damaged(), Ok(old.clone())]).unwrap(), Some(old));
    assert_eq!(choose([none(), none()]).unwrap(), None);
    assert_eq!(choose([none(), damaged()]), damaged().map(Some));
}

#[test]
fn a_slot_beyond_the_number_of_slots_is_a_spare() {
    let sb = Superblock { raid_disks: 2, ..sample(Version::V1_2) };
    assert_eq!(sb.role_of(1), Role::Slot(1));
    assert_eq!(sb.role_of(2), Role::Spare);
    assert_eq!(sb.role_of(3), Role::Faulty);
}

#[test]
fn leftovers_stay_where_they_were() {
    let leftover =
        Leftover { bitmap: [1; 4], reshape: [2; 24], new_offset: [3; 4], recovery: [4; 8] };
    let sb = Superblock { leftover, ..sample(Version::V1_1) };
    let bytes = sb.to_bytes();
    assert_eq!((bytes[96], bytes[100], bytes[124], bytes[152]), (1, 2, 3, 4));
    assert_eq!(parse(&sb).unwrap(), sb);
}

fn any_role() -> impl Strategy<Value = Role> {
    prop_oneof![
        8 => (0u16..0xfffd).prop_map(Role::Slot),
        1 => Just(Role::Spare),
        1 => Just(Role::Faulty),
        1 => Just(Role::Journal),
    ]
}

fn any_reshape() -> impl Strategy<Value = Reshape> {
    (any::<(i32, u64, i32, u32, u32)>(), any::<bool>(), any::<bool>()).prop_map(
        |(numbers, same, down)| {
            let (new_level, position, delta, new_layout, new_chunk_sectors) = numbers;
            let delta_disks = if same { 0 } else { delta };
            let backwards = delta_disks < 0 || (delta_disks == 0 && down);
            Reshape { new_level, position, delta_disks, new_layout, new_chunk_sectors, backwards }
        },
    )
}

/// The reshape with a number of slots before it that an array can have had.
fn slots_that_fit(reshape: Reshape, raid_disks: u32) -> Reshape {
    if reshape.delta_disks == 0 {
        return reshape;
    }
    let before = reshape.delta_disks.unsigned_abs() % MAX_ROLES as u32 + 1;
    let delta_disks = raid_disks as i32 - before as i32;
    Reshape {
        delta_disks,
        backwards: delta_disks < 0 || (delta_disks == 0 && reshape.backwards),
        ..reshape
    }
}

prop_compose! {
    /// A superblock that a reader takes, every field arbitrary within that.
    fn any_superblock()(
        version in prop::sample::select(&V1),
        ids in any::<([u8; 16], [u8; 32], [u8; 16])>(),
        array in any::<(u64, i32, u32, u64, u32, u32)>(),
        times in any::<(u64, u64, u64)>(),
        place in (1000u64..2000, 10u64..DEV / 2),
        guard in 0u8..4,
        offsets in (1i32.., any::<(i16, u16, bool)>()),
        reshape in prop::option::of(any_reshape()),
        new_offset in -400i32..400,
        recovery in (prop::option::of(any::<u64>()), any::<bool>(), any::<u64>()),
        flags in any::<[bool; 4]>(),
        device in any::<(u32, u8, u8, i32)>(),
        bblog_size in 0u16..=8,
        logical_block_size in prop::sample::select(&[0u32, 512, 4096, 65536]),
        roles in prop_oneof![
            20 => prop::collection::vec(any_role(), 0..20),
            1 => any_role().prop_map(|role| vec![role; MAX_ROLES]),
        ],
        own in any::<prop::sample::Index>(),
        leftover in any::<([u8; 4], [u8; 24], [u8; 4], [u8; 8])>(),
    ) -> Superblock {
        let dev_number = if roles.is_empty() { own.index(99) } else { own.index(roles.len() + 1) } as u32;
        let raid_disks = array.5 % MAX_ROLES as u32 + 1;
        let reshape = reshape.map(|change| slots_that_fit(change, raid_disks));
        let journal_device = roles.get(dev_number as usize) == Some(&Role::Journal);
        let mut sb = Superblock {
            set_uuid: ids.0, set_name: Name(ids.1), device_uuid: ids.2,
            ctime: array.0, level: array.1, layout: array.2, size: array.3,
            chunk_sectors: array.4, raid_disks,
            utime: times.0, events: times.1, resync_offset: times.2,
            super_offset: location(version, DEV).unwrap(),
            data_offset: place.0, data_size: place.1,
            bitmap_offset: if guard == 1 { offsets.0 } else { 0 },
            ppl: (guard == 2).then_some(Ppl { offset: offsets.1.0, size: offsets.1.1, multiple: offsets.1.2 }),
            journal: guard == 3,
            reshape,
            new_offset: if reshape.is_some() { new_offset } else { 0 },
            recovery_offset: recovery.0.filter(|_| !journal_device),
            recovery_by_bitmap: recovery.1 && recovery.0.is_some() && !journal_device,
            journal_tail: if journal_device { recovery.2 } else { 0 },
            raid0_layout: flags[0] && array.1 == 0,
            clustered: flags[1], replacement: flags[2], bad_blocks: flags[3],
            cnt_corrected_read: device.0, devflags: device.1, bblog_shift: device.2,
            bblog_offset: device.3, bblog_size, logical_block_size, dev_number, roles,
            ..Superblock::empty(version)
        };
        if guard == 0 || guard == 3 { sb.leftover.bitmap = leftover.0; }
        if reshape.is_none() { sb.leftover.reshape = leftover.1; }
        if sb.new_offset == 0 { sb.leftover.new_offset = leftover.2; }
        if sb.recovery_offset.is_none() && !journal_device { sb.leftover.recovery = leftover.3; }
        sb
    }
}

proptest! {
    #[test]
    fn every_valid_superblock_is_read_back(sb in any_superblock()) {
        let bytes = sb.to_bytes();
        prop_assert!(bytes.len().is_multiple_of(512) && bytes.len() <= READ_LEN);
        prop_assert_eq!(parse(&sb).unwrap(), sb);
    }

    #[test]
    fn the_checksum_is_the_folded_sum_of_words(sb in any_superblock()) {
        let bytes = sb.to_bytes();
        let mut again = bytes.clone();
        reseal(&mut again);
        prop_assert_eq!(bytes, again);
    }

    #[test]
    fn what_is_accepted_keeps_its_bytes(
        sb in any_superblock(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut bytes = sb.to_bytes();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        reseal(&mut bytes);
        if let Ok(read) = Superblock::parse(&bytes, sb.version, sb.super_offset, DEV) {
            let written = read.to_bytes();
            prop_assert_eq!(parse(&read).unwrap(), read.clone());
            let map = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
            if read.features().bits() == map {
                let len = 256 + 2 * read.roles.len();
                prop_assert_eq!(&written[..len], &bytes[..len]);
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..700),
        like_one in any::<bool>(),
        features in 0u32..0x2000,
        max_dev in prop_oneof![0u32..250, 0u32..1930],
        version in prop::sample::select(&V1),
        at in prop_oneof![Just(8u64), any::<u64>()],
        dev: u64,
    ) {
        if like_one && bytes.len() >= 256 {
            bytes[..16].fill(0);
            bytes[..4].copy_from_slice(&0xa92b_4efcu32.to_le_bytes());
            bytes[4] = 1;
            bytes[8..12].copy_from_slice(&features.to_le_bytes());
            bytes[144..152].copy_from_slice(&at.to_le_bytes());
            bytes[186..188].fill(0);
            bytes[220..224].copy_from_slice(&max_dev.to_le_bytes());
            bytes[224..256].fill(0);
            reseal(&mut bytes);
        }
        if let Ok(sb) = Superblock::parse(&bytes, version, at, dev) {
            let _ = (sb.own_role(), sb.slots(), sb.bitmap_sector(), sb.bblog_sector());
            sb.to_bytes();
        }
    }
}

#[test]
fn an_empty_one_is_clean_and_without_features() {
    let sb = Superblock::empty(Version::V1_2);
    assert_eq!((sb.resync_offset, sb.features()), (CLEAN, Features::empty()));
}
