#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;

/// Sectors of the member that the samples are on, and where its superblock stands.
const DEV: u64 = 16384;
const AT: u64 = 16256;

fn sample() -> Superblock {
    let mut roles = vec![Role::Spare; V0_DISKS];
    roles[..3].copy_from_slice(&[Role::Slot(0), Role::Slot(1), Role::Slot(2)]);
    let set_uuid = *b"0123456789abcdef";
    Superblock {
        set_uuid,
        device_uuid: device_uuid(set_uuid, 1),
        ctime: 1_700_000_000,
        utime: 1_700_000_001,
        level: 5,
        layout: 2,
        size: 16_128,
        chunk_sectors: 128,
        raid_disks: 3,
        data_size: AT,
        super_offset: AT,
        dev_number: 1,
        events: 1 << 33 | 5,
        roles,
        v0: V0 { present: 7, devices: vec![V0Device::default(); V0_DISKS], ..V0::default() },
        ..Superblock::empty(Version::V0_90)
    }
}

fn read(sb: &Superblock) -> Superblock {
    parse(&to_bytes(sb), AT).unwrap()
}

fn word(bytes: &[u8], index: usize) -> u32 {
    u32::from_le_bytes(bytes[4 * index..][..4].try_into().unwrap())
}

/// The five words of an entry of the table of disks; 27 is this_disk.
fn entry(sb: &Superblock, number: usize) -> [u32; 5] {
    let bytes = to_bytes(sb);
    std::array::from_fn(|at| word(&bytes, 128 + 32 * number + at))
}

fn error_after(change: impl FnOnce(&mut Raw)) -> SuperblockError {
    let mut raw = Raw::read_from_bytes(&to_bytes(&sample())).unwrap();
    change(&mut raw);
    raw.checksum = checksum(&raw).into();
    parse(raw.as_bytes(), AT).unwrap_err()
}

#[test]
fn a_superblock_is_read_back() {
    assert_eq!(read(&sample()), sample());
    assert_eq!(Superblock::parse(&to_bytes(&sample()), Version::V0_90, AT, DEV), Ok(sample()));
}

#[test]
fn the_clean_bit_and_the_checkpoint_are_the_resync_offset() {
    for (offset, state, checkpoint) in [(CLEAN, 1, u32::MAX), (0, 0, 0), (4096, 0, 4096)] {
        let sb = Superblock { resync_offset: offset, ..sample() };
        let bytes = to_bytes(&sb);
        assert_eq!((word(&bytes, 33), word(&bytes, 43)), (state, checkpoint));
        assert_eq!(read(&sb).resync_offset, offset);
    }
    // A checkpoint beyond what the field holds goes back to its end.
    let sb = Superblock { resync_offset: 1 << 33, ..sample() };
    assert_eq!(read(&sb).resync_offset, u32::MAX.into());
    // A checkpoint of another time is none.
    let mut raw =
        Raw::read_from_bytes(&to_bytes(&Superblock { resync_offset: 9, ..sample() })).unwrap();
    raw.checkpoint_events = 4.into();
    raw.checksum = checksum(&raw).into();
    assert_eq!(parse(raw.as_bytes(), AT).unwrap().resync_offset, 0);
}

#[test]
fn a_recovering_member_is_written_as_a_spare() {
    let mut sb = sample();
    sb.roles[1] = Role::Spare;
    sb.roles[3] = Role::Slot(1);
    (sb.dev_number, sb.recovery_offset) = (3, Some(4096));
    assert_eq!(entry(&sb, 1), [1, 0, 0, 1, 9]);
    assert_eq!(entry(&sb, 3), [3, 0, 0, 3, 0]);
    let back = read(&sb);
    assert_eq!((back.own_role(), back.dev_number, back.recovery_offset), (Role::Spare, 3, None));
}

#[test]
fn a_member_that_got_a_slot_gets_its_number() {
    let mut sb = sample();
    sb.roles[1] = Role::Faulty;
    sb.roles[3] = Role::Slot(1);
    sb.v0.devices[3].major = 7;
    sb.dev_number = 3;
    assert_eq!(entry(&sb, 1), [1, 7, 0, 1, 6]);
    assert_eq!(entry(&sb, 3), [3, 0, 0, 3, 1]);
    assert_eq!(entry(&sb, 27), [1, 7, 0, 1, 6]);
    let back = read(&sb);
    assert_eq!(
        (back.own_role(), back.dev_number, back.role_of(3)),
        (Role::Slot(1), 1, Role::Faulty)
    );
    // Read again, nothing moves any more.
    assert_eq!(to_bytes(&back), to_bytes(&sb));
}

#[test]
fn no_two_members_get_the_same_number() {
    // Slot 0 is held by number 5 and number 0 is a spare, so is 4; slot 2 is empty and number 2 a spare.
    let mut sb = sample();
    sb.roles[0] = Role::Spare;
    sb.roles[2] = Role::Spare;
    sb.roles[5] = Role::Slot(0);
    let numbers: Vec<u32> = [0, 1, 2, 4, 5]
        .into_iter()
        .map(|own| read(&Superblock { dev_number: own, ..sb.clone() }).dev_number)
        .collect();
    assert_eq!(numbers, [5, 1, 2, 4, 0]);
}

#[test]
fn of_two_members_that_claim_a_slot_the_second_is_a_spare() {
    let mut sb = sample();
    sb.roles[4] = Role::Slot(1);
    assert_eq!(read(&sb).role_of(1), Role::Slot(1));
    assert_eq!(read(&sb).role_of(4), Role::Spare);
}

#[test]
fn a_number_beyond_the_table_never_becomes_a_slot() {
    let mut sb = sample();
    sb.roles.resize(64, Role::Slot(2));
    sb.dev_number = 40;
    assert_eq!((read(&sb).own_role(), read(&sb).dev_number), (Role::Spare, 26));
}

#[test]
fn numbers_count_the_members() {
    let mut sb = sample();
    sb.roles[1] = Role::Faulty;
    sb.v0.present |= 1 << 4;
    sb.dev_number = 0;
    let bytes = to_bytes(&sb);
    // Number, active, working, failed (slots that nobody has), spare. A faulty member keeps its number here.
    assert_eq!([9, 34, 35, 36, 37].map(|at| word(&bytes, at)), [4, 2, 3, 0, 1]);
}

#[test]
fn flags_of_a_member_are_its_devflags() {
    let sb = Superblock { devflags: 3, ..sample() };
    assert_eq!(entry(&sb, 27)[4], 6 | 1 << 9 | 1 << 10);
    assert!(read(&sb).write_mostly() && read(&sb).failfast());
}

#[test]
fn during_a_reshape_a_member_may_be_active_and_not_in_sync() {
    let reshape = Reshape {
        new_level: 5,
        position: 1 << 40,
        delta_disks: 1,
        new_layout: 2,
        new_chunk_sectors: 256,
        backwards: false,
    };
    let sb = Superblock { reshape: Some(reshape), recovery_offset: Some(0), ..sample() };
    assert_eq!(word(&to_bytes(&sb), 2), 91);
    assert_eq!(entry(&sb, 1)[4], 2);
    assert_eq!(read(&sb), sb);
}

#[test]
fn what_cannot_be_right_is_refused_by_name() {
    use SuperblockError as E;
    assert!(matches!(error_after(|raw| raw.major = 1.into()), E::Major { found: 1, .. }));
    assert!(matches!(error_after(|raw| raw.minor = 92.into()), E::V0Minor { found: 92, .. }));
    for (change, name) in [
        ((|raw: &mut Raw| raw.raid_disks = 28.into()) as fn(&mut Raw), "raid_disks"),
        (|raw| raw.raid_disks = 0.into(), "raid_disks"),
        (|raw| raw.this_disk.number = 27.into(), "this_disk"),
        (|raw| raw.chunk_bytes = 1000.into(), "chunk_size"),
    ] {
        assert!(matches!(error_after(change), E::Field { field, .. } if field == name), "{name}");
    }
    let larger = error_after(|raw| raw.size_kib = 8129.into());
    assert!(matches!(larger, E::DataBeyondMember { need: 16_258, have: 16_256, .. }), "{larger}");
    let mut bytes = to_bytes(&sample());
    bytes[4000] ^= 1;
    assert!(matches!(parse(&bytes, AT), Err(E::Checksum { .. })));
    assert!(matches!(parse(&bytes[..4095], AT), Err(E::TooShort { need: 4096, .. })));
    assert!(matches!(parse(&[0; 4096], AT), Err(E::NoMagic { .. })));
}

#[test]
fn a_superblock_of_the_other_byte_order_is_told() {
    let bytes = to_bytes(&sample());
    let swapped: Vec<u8> = bytes.chunks_exact(4).flat_map(|w| [w[3], w[2], w[1], w[0]]).collect();
    let error = parse(&swapped, AT).unwrap_err();
    assert_eq!(error, SuperblockError::ByteSwapped { at: AT });
    assert!(error.to_string().contains("big-endian"), "{error}");
}

#[test]
fn checksums_are_compared_folded() {
    // A carry in the low half is worth one in the sum, wherever it is added.
    assert_eq!(folded(0x0001_ffff), folded(0x0000_0001));
    let mut bytes = to_bytes(&sample());
    let stored = word(&bytes, CHECKSUM_WORD);
    bytes[4 * CHECKSUM_WORD..][..4].copy_from_slice(&u32::from(folded(stored)).to_le_bytes());
    assert!(parse(&bytes, AT).is_ok());
}

#[test]
fn the_uuid_is_shown_as_mdadm_shows_it_and_stored_in_words() {
    let sb = sample();
    let bytes = to_bytes(&sb);
    assert_eq!(word(&bytes, 5), 0x3031_3233);
    assert_eq!(word(&bytes, 15), 0x6364_6566);
    assert_eq!(&sb.bitmap_uuid(), b"32107654ba98fedc");
}

#[test]
fn a_successor_in_a_slot_is_no_twin() {
    let old = sample();
    assert!(old.is_twin_of(&sample()));
    assert!(!old.is_twin_of(&Superblock { events: 7, ..sample() }));
    assert!(!old.is_twin_of(&read(&Superblock { dev_number: 2, ..sample() })));
}

fn any_role() -> impl Strategy<Value = Role> {
    prop_oneof![
        4 => (0u16..30).prop_map(Role::Slot),
        2 => Just(Role::Spare),
        1 => Just(Role::Faulty),
        1 => Just(Role::Journal),
    ]
}

proptest! {
    // Each case reads and writes for all 27 members.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn each_member_has_one_number_and_keeps_its_role(
        roles in prop::collection::vec(any_role(), V0_DISKS),
        raid_disks in 1u32..=27,
        present: u32,
    ) {
        let mut numbers = Vec::new();
        for own in 0..V0_DISKS as u32 {
            let mut sb = Superblock { roles: roles.clone(), raid_disks, dev_number: own, ..sample() };
            sb.v0.present = present;
            let back = read(&sb);
            numbers.push(back.dev_number);
            let first = (0..own).all(|other| sb.role_of(other) != sb.role_of(own));
            match sb.own_role() {
                Role::Slot(slot) if first => prop_assert_eq!(back.own_role(), Role::Slot(slot)),
                Role::Faulty => prop_assert_eq!(back.own_role(), Role::Faulty),
                _ => prop_assert_eq!(back.own_role(), Role::Spare),
            }
            prop_assert_eq!(to_bytes(&back), to_bytes(&read(&back)));
            prop_assert_eq!(read(&back), back);
        }
        numbers.sort_unstable();
        prop_assert!(numbers.iter().copied().eq(0..V0_DISKS as u32));
    }

}

proptest! {
    #[test]
    fn no_words_make_it_panic(
        changes in prop::collection::vec((0usize..1024, any::<u32>()), 0..40),
        at in prop_oneof![Just(AT), any::<u64>()],
    ) {
        let mut bytes = to_bytes(&sample());
        for (word, value) in changes {
            bytes[4 * word..][..4].copy_from_slice(&value.to_le_bytes());
        }
        let mut raw = Raw::read_from_bytes(&bytes).unwrap();
        raw.checksum = checksum(&raw).into();
        if let Ok(sb) = parse(raw.as_bytes(), at) {
            let once = parse(&to_bytes(&sb), at);
            prop_assert!(once.is_ok());
            let once = once.unwrap();
            prop_assert_eq!(parse(&to_bytes(&once), at).unwrap(), once);
        }
    }
}
