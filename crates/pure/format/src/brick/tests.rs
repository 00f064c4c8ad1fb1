#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;
/// Not a multiple of 4096: the second copy ends at [`SIZE`].
const DEVICE: u64 = SIZE + 512;
const END: u64 = SIZE - 4096;

fn sample() -> BrickSuperblock {
    BrickSuperblock {
        volume_uuid: std::array::from_fn(|i| 0x10 + i as u8),
        brick_uuid: std::array::from_fn(|i| 0xa0 + i as u8),
        volume_name: VolumeName::new("data").unwrap(),
        brick_id: 3,
        brick_count: 5,
        state: BrickState::Data,
        weight: 0x0102_0304_0506_0708,
        generation: 77,
        brick_size: SIZE,
        stripe_size: 128 << 10,
        metadata_state: MetadataState::InSync,
        metadata_generation: 76,
        metadata: Area { offset: MIB, len: 8 * MIB },
        metadata_grown: Vec::new(),
        data: Area { offset: 16 * MIB, len: 40 * MIB },
        created: 0x1718_1920_2122_2324,
        updated: 0x1819_2021_2223_2425,
        volume_state: VolumeState::Mounted,
        brick_ids: BrickIds::new([9, 3, 1, 0, 2]),
        away: vec![Away { brick_id: 1, generation: 70 }],
        metadata_holders: Vec::new(),
    }
}

fn parse(bytes: &[u8]) -> Result<BrickSuperblock, BrickError> {
    BrickSuperblock::parse(bytes, 0, DEVICE)
}

/// Bytes with this change and a right checksum.
fn changed(at: usize, value: &[u8]) -> Vec<u8> {
    let mut bytes = sample().to_bytes().to_vec();
    bytes[at..at + value.len()].copy_from_slice(value);
    seal(&mut bytes);
    bytes
}

fn seal(bytes: &mut [u8]) {
    bytes[20..24].fill(0);
    let checksum = crate::crc::checksum(bytes);
    bytes[20..24].copy_from_slice(&checksum.to_le_bytes());
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[test]
fn every_byte_is_where_the_document_says() {
    let want = hex("62726169 64206272 69636b0d 0a1a0a00 01000000 4f730da9 \
         00000000 00000000 00000000 00000000 \
         10111213 14151617 18191a1b 1c1d1e1f a0a1a2a3 a4a5a6a7 a8a9aaab acadaeaf \
         64617461 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
         00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
         0300 0500 0100 0100 08070605 04030201 4d000000 00000000 00000004 00000000 \
         00000200 01000000 00001000 00000000 00008000 00000000 4c000000 00000000 \
         00000001 00000000 00008002 00000000 24232221 20191817 25242322 21201918");
    let bytes = sample().to_bytes();
    assert_eq!(bytes[..232], want[..]);
    assert_eq!(bytes[232..248], hex("02000100 00000000 00000400 09000100")[..]);
    assert_eq!(bytes[496..512], hex("46000000 00000000 01000000 00000000")[..]);
    for zeros in [248..496, 512..4096] {
        assert!(bytes[zeros].iter().all(|&byte| byte == 0));
    }
    assert_eq!(parse(&bytes).unwrap(), sample());
}

#[test]
fn what_is_no_brick_or_damaged_is_told_apart() {
    let bytes = sample().to_bytes();
    assert_eq!(parse(&[0; 4096]), Err(BrickError::NotABrick { at: 0 }));
    assert_eq!(parse(&bytes[..4095]), Err(BrickError::TooShort { at: 0, have: 4095 }));
    for at in 16..4096 {
        let mut bad = bytes;
        bad[at] ^= 0x10;
        assert!(matches!(parse(&bad), Err(BrickError::Checksum { .. })), "byte {at}");
    }
    for at in 0..16 {
        let mut bad = bytes;
        bad[at] ^= 0x10;
        assert_eq!(parse(&bad), Err(BrickError::NotABrick { at: 0 }));
    }
}

#[test]
fn newer_formats_are_refused_and_compatible_features_are_not() {
    assert_eq!(parse(&changed(16, &[2])), Err(BrickError::Version { at: 0, found: 2 }));
    assert_eq!(parse(&changed(24, &[4])), Err(BrickError::Features { at: 0, bits: 4 }));
    let mut newer = changed(32, &[2]);
    newer[3500] = 9;
    seal(&mut newer);
    let read = parse(&newer).unwrap();
    assert_eq!(read, sample());
    assert_eq!(read.to_bytes(), sample().to_bytes());
}

#[test]
fn three_bricks_with_the_metadata_are_told() {
    let told = BrickSuperblock { metadata_holders: vec![0, 3, 9], ..sample() };
    let bytes = told.to_bytes();
    assert_eq!(bytes[24..40], hex("00000000 00000000 01000000 00000000")[..]);
    assert_eq!(bytes[2784..2792], hex("0300 0000 0300 0900")[..]);
    assert_eq!(parse(&bytes), Ok(told.clone()));
    // A feature more that is not known: the bytes behind are its own.
    let mut newer = bytes.to_vec();
    (newer[32], newer[3500]) = (3, 9);
    seal(&mut newer);
    assert_eq!(parse(&newer), Ok(told));
    for (at, value) in [(2784, 2), (2784, 0), (2786, 3), (2788, 9), (2790, 8), (32, 0)] {
        let mut bad = bytes.to_vec();
        bad[at] = value;
        seal(&mut bad);
        let error = parse(&bad).unwrap_err().to_string();
        assert!(error.contains("metadata holder") || error.contains("reserved byte"), "{error}");
    }
    assert!(parse(&changed(32, &[1])).unwrap_err().to_string().contains("metadata holders is 0"));
}

#[test]
fn values_that_cannot_be_are_refused_by_name() {
    let cases: [(usize, &[u8], &str); 40] = [
        (40, &[0; 16], "the volume's uuid is 0"),
        (56, &[0; 16], "the brick's uuid is 0"),
        (72, &[0; 4], "the name of a volume is empty"),
        (75, b"/", "contains '/'"),
        (74, b"\x1b", "contains '\\u{1b}'"),
        (80, b"x", "is not text"),
        (72, b"\xff", "is not text"),
        (138, &[0; 2], "the number of bricks is 0"),
        (140, &[5], "the state is 5"),
        (142, &[3], "the metadata's state is 3"),
        (144, &[0; 8], "the weight is 0"),
        (152, &[0; 8], "the generation is 0"),
        (152, &[0xff; 8], "the generation is 18446744073709551615"),
        (160, &[1], "the brick's size is 67108865"),
        (168, &[0, 0, 3], "the stripe size is 196608"),
        (168, &[0, 0, 0, 8], "the stripe size is 134217728"),
        (168, &[0, 0x20, 0], "the stripe size is 8192"),
        (172, &[3], "the volume's state is 3"),
        (232, &[1], "runs of ids is 1"),
        (232, &[65], "runs of ids is 65"),
        (236, &[1], "areas added to the metadata is 1"),
        (24, &[1], "areas added to the metadata is 0"),
        (238, &[1], "reserved word"),
        (2544, &[1], "areas added to the metadata is 0"),
        (138, &[6], "the number of ids is 5"),
        (136, &[8], "the brick's id is 8"),
        (242, &[0], "runs of ids is 2"),
        (244, &[4], "runs of ids is 2"),
        (246, &[0xff, 0xff], "runs of ids is 2"),
        (234, &[0], "missing bricks is 0"),
        (234, &[200], "missing bricks is 200"),
        (504, &[3], "the id of a missing brick is 3"),
        (504, &[7], "the id of a missing brick is 7"),
        (496, &[78], "the generation of a missing brick is 78"),
        (142, &[0], "the metadata's generation is 76"),
        (184, &[0; 8], "the metadata area has 0 bytes from 1048576"),
        (200, &[1], "the data area has 41943040 bytes from 16777217"),
        (208, &[0xff; 8], "the data area has 18446744073709551615 bytes"),
        (3000, &[1], "reserved byte that is not zero is 3000"),
        (2784, &[3], "the number of metadata holders is 3"),
    ];
    for (at, value, text) in cases {
        let error = parse(&changed(at, value)).unwrap_err().to_string();
        assert!(error.contains(text), "byte {at}: {error}");
    }
}

#[test]
fn areas_are_inside_the_brick_and_apart() {
    let good = sample();
    let with = |metadata: (u64, u64), data: (u64, u64)| {
        let area = |(offset, len)| Area { offset, len };
        BrickSuperblock { metadata: area(metadata), data: area(data), ..good.clone() }
            .check(0, DEVICE)
    };
    assert_eq!(with((4096, 8 * MIB - 4096), (8 * MIB, SIZE - 8 * MIB - 4096)), Ok(()));
    assert_eq!(with((56 * MIB, MIB), (4096, MIB)), Ok(()));
    let outside = |result| matches!(result, Err(BrickError::Outside { .. }));
    assert!(outside(with((0, MIB), (8 * MIB, MIB))));
    assert!(outside(with((MIB, MIB), (8 * MIB, SIZE - 8 * MIB))));
    assert!(outside(with((MIB, MIB), (u64::MAX - 4095, 4096))));
    assert!(outside(with((MIB, MIB + 512), (8 * MIB, MIB))));
    let overlap = |result| matches!(result, Err(BrickError::Overlap { .. }));
    assert!(overlap(with((MIB, 8 * MIB), (8 * MIB, MIB))));
    assert!(overlap(with((8 * MIB, MIB), (MIB, 8 * MIB))));
    assert!(overlap(with((8 * MIB, MIB), (8 * MIB, MIB))));
    assert!(with((MIB, MIB), (8 * MIB, 64 << 10)).is_err(), "less than a stripe");
}

#[test]
fn a_region_that_has_grown_is_read_back_and_its_areas_are_apart() {
    let area = |offset, len| Area { offset, len };
    let with = |metadata_grown| BrickSuperblock { metadata_grown, ..sample() };
    let grown = with(vec![area(59 * MIB, 2 * MIB), area(57 * MIB, 2 * MIB)]);
    let bytes = grown.to_bytes();
    assert_eq!((&bytes[24..32], &bytes[236..238]), (&[1, 0, 0, 0, 0, 0, 0, 0][..], &[2, 0][..]));
    assert_eq!(bytes[2544..2552], (59 * MIB).to_le_bytes());
    assert_eq!(bytes[2568..2576], (2 * MIB).to_le_bytes());
    assert_eq!(parse(&bytes), Ok(grown.clone()));
    assert_eq!(grown.metadata_size(), 12 * MIB);
    let most = with((0..15).map(|at| area(59 * MIB + at * BLOCK, BLOCK)).collect());
    assert_eq!(parse(&most.to_bytes()), Ok(most));
    for bad in [
        vec![area(55 * MIB, 2 * MIB)],
        vec![area(8 * MIB, 2 * MIB)],
        vec![area(59 * MIB, 2 * MIB), area(60 * MIB, MIB)],
        vec![area(62 * MIB, 2 * MIB)],
        vec![area(0, 0)],
    ] {
        assert!(parse(&with(bad.clone()).to_bytes()).is_err(), "{bad:?}");
    }
}

#[test]
fn regions_and_data_may_be_missing_where_they_are_not_needed() {
    let good = sample();
    let none = BrickSuperblock {
        metadata: Area::default(),
        metadata_state: MetadataState::Unused,
        metadata_generation: 0,
        ..good.clone()
    };
    assert_eq!(parse(&none.to_bytes()), Ok(none.clone()));
    let used = BrickSuperblock { metadata_state: MetadataState::OutOfSync, ..none.clone() };
    assert!(used.check(0, DEVICE).is_err());
    let no_data = BrickSuperblock { data: Area::default(), ..good };
    assert!(no_data.check(0, DEVICE).is_err());
    for state in [BrickState::Removing, BrickState::Proxy] {
        let weightless = BrickSuperblock { state, weight: 0, ..none.clone() };
        assert_eq!(parse(&weightless.to_bytes()), Ok(weightless));
    }
    let only = BrickSuperblock { state: BrickState::MetadataOnly, weight: 0, ..no_data };
    assert_eq!(parse(&only.to_bytes()), Ok(only));
}

#[test]
fn a_device_that_was_cut_short_is_refused_and_one_that_grew_is_not() {
    let bytes = sample().to_bytes();
    let error = BrickSuperblock::parse(&bytes, 0, SIZE - 1).unwrap_err();
    assert_eq!(error, BrickError::CutShort { at: 0, need: SIZE, have: SIZE - 1 });
    assert!(BrickSuperblock::parse(&bytes, 0, u64::MAX).is_ok());
}

#[test]
fn the_second_copy_is_the_last_whole_block() {
    assert_eq!(second_copy_at(DEVICE), Some(END));
    assert_eq!((usable_size(DEVICE), usable_size(SIZE)), (SIZE, SIZE));
    for (size, at) in [(0, None), (4096, None), (8191, None), (8192, Some(4096))] {
        assert_eq!(second_copy_at(size), at, "{size}");
    }
}

fn pick(first: Option<&[u8]>, second: Option<&[u8]>) -> Result<Chosen, BrickError> {
    choose(first, second.map(|bytes| (END, bytes)), DEVICE)
}

#[test]
fn the_newer_copy_counts_and_the_other_is_to_be_written() {
    let old = sample();
    let new = BrickSuperblock { generation: 78, weight: 9, updated: 1, ..old.clone() };
    let later = BrickSuperblock { updated: old.updated + 1, ..old.clone() };
    let cases = [
        (&old, &old, Copy::First, false),
        (&old, &new, Copy::Second, true),
        (&new, &old, Copy::First, true),
        (&old, &later, Copy::Second, true),
        (&later, &old, Copy::First, true),
    ];
    for (one, two, from, stale) in cases {
        let chosen = pick(Some(&one.to_bytes()), Some(&two.to_bytes())).unwrap();
        assert_eq!((chosen.from, chosen.other_is_stale, chosen.other), (from, stale, None));
        assert_eq!(&chosen.superblock, if from == Copy::First { one } else { two });
    }
}

#[test]
fn one_copy_is_enough() {
    let good = sample().to_bytes();
    let mut torn = good;
    torn[300] = 1;
    for bad in [None, Some(&torn[..]), Some(&[0; 4096][..]), Some(&[][..])] {
        let chosen = pick(Some(&good), bad).unwrap();
        assert_eq!((chosen.from, chosen.other_is_stale), (Copy::First, true));
        assert!(chosen.other.is_some());
        let chosen = pick(bad, Some(&good)).unwrap();
        assert_eq!((chosen.from, chosen.other_is_stale), (Copy::Second, true));
        assert_eq!(chosen.superblock, sample());
    }
    let foreign = pick(Some(&good), Some(&[7; 4096])).unwrap();
    assert_eq!(foreign.other, Some(BrickError::NotABrick { at: END }));
}

#[test]
fn copies_that_must_not_be_trusted_are_refused() {
    let good = sample().to_bytes();
    let overwritten = pick(Some(&[7; 4096]), Some(&good)).unwrap_err();
    assert!(matches!(overwritten, BrickError::Overwritten { brick_id: 3, .. }), "{overwritten}");
    let other = BrickSuperblock { brick_uuid: [9; 16], generation: 99, ..sample() }.to_bytes();
    let two = pick(Some(&good), Some(&other)).unwrap_err();
    assert!(matches!(two, BrickError::TwoBricks { second_at: END, .. }), "{two}");
    for newer in [changed(16, &[2]), changed(24, &[2])] {
        for (one, two) in [(&good[..], &newer[..]), (&newer[..], &good[..])] {
            assert!(pick(Some(one), Some(two)).unwrap_err().to_string().contains("newer braid"));
        }
    }
    let torn = changed(72, &[0; 4]);
    assert_eq!(pick(Some(&[0; 4096]), Some(&[0; 4096])), Err(BrickError::NotABrick { at: 0 }));
    assert!(pick(Some(&[0; 4096]), Some(&torn)).unwrap_err().to_string().contains("empty"));
    assert_eq!(pick(None, None), Err(BrickError::Unreadable));
}

#[test]
fn names_are_held_to_their_limits() {
    assert!(VolumeName::new(&"n".repeat(64)).is_ok());
    assert!(VolumeName::new(&"ü".repeat(32)).is_ok());
    assert!(matches!(VolumeName::new(&"ü".repeat(33)), Err(VolumeNameError::TooLong { .. })));
    for bad in ["", "a/b", "a\nb", "a\0b", "\u{7f}"] {
        assert!(VolumeName::new(bad).is_err(), "{bad:?}");
    }
    let longest =
        BrickSuperblock { volume_name: VolumeName::new(&"n".repeat(64)).unwrap(), ..sample() };
    assert_eq!(parse(&longest.to_bytes()), Ok(longest));
}

prop_compose! {
    fn superblocks()(
        uuids in any::<([u8; 16], [u8; 16])>(),
        name in "[a-zA-Z0-9 äßé._-]{1,21}",
        ids in any::<(u16, u16, u64, u64, u64, u64)>(),
        state in 1u16..5,
        metadata_state in 0u16..3,
        shift in 14u32..27,
        volume_state in 0u32..3,
        others in proptest::collection::btree_set(any::<u16>(), 0..200),
        away in proptest::collection::btree_set(any::<u16>(), 0..5),
        blocks in (1u64..1000, 1u64..1000, 1u64..1000, 1u64..1000),
        turned in any::<bool>(),
        growths in proptest::collection::vec(1u64..1000, 0..=MAX_GROWN),
    ) -> BrickSuperblock {
        let stripe = u64::from(1u32 << shift);
        let len = (blocks.1 * BLOCK, blocks.3 * BLOCK + stripe);
        let (metadata, data, end) = if turned {
            let data = blocks.0 * BLOCK;
            let metadata = data + len.1 + (blocks.2 - 1) * BLOCK;
            (metadata, data, metadata + len.0)
        } else {
            let metadata = blocks.0 * BLOCK;
            let data = metadata + len.0 + (blocks.2 - 1) * BLOCK;
            (metadata, data, data + len.1)
        };
        let mut end = end;
        let mut metadata_grown = Vec::new();
        for blocks in growths {
            metadata_grown.push(Area { offset: end, len: blocks * BLOCK });
            end += blocks * BLOCK;
        }
        let metadata_state = MetadataState::of_number(metadata_state).unwrap();
        let id = ids.0.min(u16::MAX - 1);
        let away: std::collections::BTreeSet<u16> = away.into_iter().filter(|away| *away != id).collect();
        let mut members = others;
        members.extend(away.iter().copied().chain([id]));
        members.remove(&u16::MAX);
        let brick_count = members.len() as u16;
        let away: Vec<u16> = away.into_iter().filter(|away| *away != u16::MAX).collect();
        let told = members.len() >= 3 && turned;
        let metadata_holders = members.iter().copied().take(if told { 3 } else { 0 }).collect();
        BrickSuperblock {
            volume_uuid: uuids.0.map(|byte| byte | 1),
            brick_uuid: uuids.1.map(|byte| byte | 2),
            volume_name: VolumeName::new(&name).unwrap(),
            brick_id: id,
            brick_count,
            state: BrickState::of_number(state).unwrap(),
            weight: ids.2.max(1),
            generation: ids.3.clamp(1, MAX_GENERATION),
            brick_size: end + BLOCK,
            stripe_size: 1 << shift,
            metadata_state,
            metadata_generation: if metadata_state == MetadataState::Unused { 0 } else { ids.5 },
            metadata: Area { offset: metadata, len: len.0 },
            metadata_grown,
            data: Area { offset: data, len: len.1 },
            created: ids.4,
            updated: ids.5,
            volume_state: VolumeState::of_number(volume_state).unwrap(),
            brick_ids: BrickIds::new(members),
            away: away.into_iter().map(|brick_id| Away { brick_id, generation: 1 }).collect(),
            metadata_holders,
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(superblock in superblocks(), more in 0u64..10_000) {
        let device = superblock.brick_size + more;
        let bytes = superblock.to_bytes();
        prop_assert_eq!(BrickSuperblock::parse(&bytes, 0, device), Ok(superblock.clone()));
        prop_assert!(BrickSuperblock::parse(&bytes, 0, superblock.brick_size - 1).is_err());
    }

    #[test]
    fn what_is_accepted_is_sound(
        superblock in superblocks(),
        at in prop_oneof![16usize..250, 490usize..560],
        value in any::<[u8; 8]>(),
        device in prop_oneof![Just(u64::MAX), Just(SIZE), any::<u64>()],
    ) {
        let mut bytes = superblock.to_bytes().to_vec();
        bytes[at..at + 8].copy_from_slice(&value);
        seal(&mut bytes);
        if let Ok(read) = BrickSuperblock::parse(&bytes, 0, device) {
            prop_assert!(read.brick_size <= device);
            for area in [read.metadata, read.data] {
                prop_assert!(area.len == 0 || area.offset >= BLOCK);
                prop_assert!(area.offset + area.len <= read.brick_size - BLOCK);
            }
            prop_assert_eq!(BrickSuperblock::parse(&read.to_bytes(), 0, device), Ok(read));
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..5000), size in any::<u64>()) {
        prop_assert!(BrickSuperblock::parse(&bytes, 0, size).is_err());
        let _ = choose(Some(&bytes), None, size);
    }
}

#[test]
fn ids_are_told_while_they_are_few_runs() {
    let ids = BrickIds::new([7, 5, 6, 0, 65534, 5]);
    assert_eq!(ids.iter().collect::<Vec<u16>>(), [0, 5, 6, 7, 65534]);
    assert!(ids.contains(6) && !ids.contains(4) && ids.are_told());
    let even = |count: u16| BrickIds::new((0..count).map(|id| id * 2));
    assert!(even(64).are_told() && !even(65).are_told());
    let many = BrickSuperblock {
        brick_count: 65,
        brick_ids: even(65),
        away: (0..128).map(|id| Away { brick_id: id + 10, generation: 2 }).collect(),
        ..sample()
    };
    assert_eq!(parse(&many.to_bytes()), Ok(many));
}
