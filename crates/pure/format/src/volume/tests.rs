//! Every record is read as it was written, and damaged ones give errors.

use super::project::{Moving, ProjectRecord};
use super::*;
use brick_record::{BrickRecord, BrickState};
use entry::{ByCookie, ByName};
use extent::Extent;
use inode::{InodeRecord, Stamp};
use job::{JobKind, JobRecord};
use proptest::prelude::*;
use uuid::Uuid;
use volume_record::VolumeRecord;

fn an_inode(size: u64, nanos: u32, target: Vec<u8>) -> InodeRecord {
    let stamp = |seconds| Stamp { seconds, nanos };
    InodeRecord {
        kind: 8,
        perm: 0o4755,
        uid: 1000,
        gid: 100,
        nlink: 3,
        rdev: 0,
        flags: inode::FLAG_PINNED,
        size,
        blocks: size / BLOCK,
        generation: 7,
        atime: stamp(-5),
        mtime: stamp(1),
        ctime: stamp(2),
        crtime: stamp(3),
        parent: 1,
        next_cookie: 9,
        entries: 2,
        brick: NO_BRICK,
        project: 7,
        copies: 3,
        held: 4,
        subvolume: 513,
        target,
    }
}

proptest! {
    #[test]
    fn an_inode_is_read_as_written(size: u64, nanos in 0u32..1_000_000_000, target: Vec<u8>) {
        let record = an_inode(size, nanos, target);
        prop_assert_eq!(InodeRecord::parse(5, &record.encode()), Ok(record));
    }

    #[test]
    fn extents_are_read_as_written(
        extents in prop::collection::vec((any::<u64>(), any::<u32>(), 0u16..=32, any::<u16>(), any::<bool>()), 64)
    ) {
        let extents: Vec<Extent> = extents
            .into_iter()
            .map(|(start, written, blocks, brick, common)| match blocks {
                0 => Extent::HOLE,
                blocks => Extent { start, written, blocks, brick, common },
            })
            .collect();
        let read = extent::encode(&extents).map_or(Ok([Extent::HOLE; 64]), |bytes| extent::parse(1, 0, 128 << 10, &bytes));
        prop_assert_eq!(read.map(|read| read.to_vec()), Ok(extents));
    }

    #[test]
    fn no_bytes_make_a_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..1200)) {
        let _ = InodeRecord::parse(1, &bytes);
        let _ = extent::parse(1, 0, 16 << 10, &bytes);
        let _ = sums::parse(1, 0, &bytes);
        let _ = space::parse_blocks(1, 0, &bytes);
        let _ = space::parse_usage(1, 0, &bytes);
        let _ = BrickRecord::parse(1, &bytes);
        let _ = VolumeRecord::parse(&bytes);
        let _ = JobRecord::parse(&bytes);
        let _ = ByName::parse(&bytes);
        let _ = ByCookie::parse(&bytes);
        let _ = (keys::ino_of(&bytes), keys::second_of(&bytes), keys::name_of(&bytes));
        let _ = (keys::brick_and_group(&bytes), keys::brick_of(&bytes), keys::after(&bytes));
        let _ = (keys::owner_of(&bytes), keys::left_of(&bytes));
    }
}

#[test]
fn small_records_are_read_as_written() {
    let brick = BrickRecord {
        uuid: Uuid::from_u128(5),
        state: BrickState::Proxy,
        weight: 3,
        blocks: 8,
        domain: "öst".into(),
    };
    assert_eq!(BrickRecord::parse(1, &brick.encode()), Ok(brick));
    let volume = VolumeRecord {
        uuid: Uuid::from_u128(6),
        stripe: 128 << 10,
        next_ino: 100,
        next_brick: 4,
        proxy: Some(3),
        unbalanced: true,
        counted: false,
        checksums: false,
        copies: false,
        incomplete: true,
        snapshots: false,
        common: false,
        last_snapshot: 5,
        last_subvolume: 6,
        snapshot_blocks: 7,
    };
    assert_eq!(volume.encode()[16], 1);
    assert_eq!(VolumeRecord::parse(&volume.encode()), Ok(volume.clone()));
    let counted = VolumeRecord { counted: true, ..volume.clone() };
    assert_eq!(counted.encode()[16], 2);
    assert_eq!(VolumeRecord::parse(&counted.encode()), Ok(counted.clone()));
    for counted in [false, true] {
        let with = VolumeRecord {
            checksums: true,
            copies: !counted,
            snapshots: !counted,
            common: !counted,
            counted,
            ..volume.clone()
        };
        assert_eq!(with.encode()[16], 3);
        assert_eq!(VolumeRecord::parse(&with.encode()), Ok(with.clone()));
        let mut later = with.encode();
        later[41] |= 32;
        assert!(VolumeRecord::parse(&later).is_err(), "a feature that is not known");
    }
    let moving = Some(Moving { from: 0, to: 7 });
    let project = ProjectRecord {
        blocks_max: 5,
        blocks: 6,
        files: 1,
        folder: 9,
        moving,
        ..ProjectRecord::default()
    };
    assert_eq!(ProjectRecord::parse(7, &project.encode()), Ok(project));
    assert!(ProjectRecord::default().is_empty() && !project.is_empty());
    let job = JobRecord {
        kind: JobKind::Remove,
        brick: Some(2),
        ino: 0,
        cursor: (5, 6),
        done: 7,
        total: 8,
        paused: false,
    };
    assert_eq!(JobRecord::parse(&job.encode()), Ok(job));
    let by_name = ByName { ino: 5, cookie: 6, kind: 8 };
    assert_eq!(ByName::parse(&by_name.encode()), Ok(by_name));
    let by_cookie = ByCookie { ino: 5, kind: 4, name: b"a".to_vec() };
    assert_eq!(ByCookie::parse(&by_cookie.encode()), Ok(by_cookie));
    let used = vec![0, 5, 32768];
    let bytes = space::encode_usage(&used).expect("not all are zero");
    assert_eq!(space::parse_usage(1, 0, &bytes), Ok(used));
}

#[test]
fn the_extents_of_each_copy_of_a_file_follow_those_of_the_one_before() {
    let last = (1 << 49) - 1;
    for copy in 0..extent::COPIES_MAX {
        let number = extent::of_copy(last, copy);
        assert_eq!((extent::stripe_of(number), extent::copy_of(number)), (last, copy));
        assert_eq!(extent::groups_of_copy(copy), extent::of_copy(0, copy) / extent::PER_GROUP);
        let group = number / extent::PER_GROUP;
        assert!(extent::parse(1, group, 16 << 10, &[]).is_ok());
        assert!(group < extent::groups_of_copy(copy + 1));
    }
    let beyond = extent::groups_of_copy(extent::COPIES_MAX);
    assert!(extent::parse(1, beyond, 16 << 10, &[]).is_err());
}

#[test]
fn keys_are_in_the_order_of_their_numbers() {
    assert!(keys::extents(1, 255) < keys::extents(1, 256));
    assert!(keys::extents(1, u64::MAX) < keys::extents(2, 0));
    assert!(keys::name(1, &[255; 255]) < keys::after(&keys::name(1, b"")));
    assert_eq!(keys::after(&[1, 255]), vec![2]);
    assert_eq!(keys::ino_of(&keys::extents(77, 3)), Some(77));
    assert_eq!(keys::second_of(&keys::extents(77, 3)), Some(3));
    assert_eq!(keys::project_of(&keys::project(77)), Some(77));
    assert_eq!(keys::ino_of(&keys::sums(77, 3)), Some(77));
    assert_eq!(keys::second_of(&keys::intent(77, 3)), Some(3));
    assert_eq!(keys::name_of(&keys::name(77, b"x")), Some(&b"x"[..]));
}

#[test]
fn keys_of_saved_values_are_in_the_order_of_what_they_are_about() {
    let of = [
        keys::name(5, b"a"),
        keys::name(5, b"a\x01"),
        keys::name(5, b"ab"),
        keys::name(6, b""),
        keys::extents(5, 0),
        keys::extents(5, 255),
        keys::extents(5, 256),
    ];
    let mut saved = Vec::new();
    for key in &of {
        for id in [1, 0x100, u32::MAX] {
            let bytes = keys::saved(key, id);
            assert_eq!(keys::saved_of(&bytes), Some((&key[..], id)));
            saved.push(bytes);
        }
    }
    assert!(saved.is_sorted());
    assert_eq!(keys::saved_of(b"Z"), None);
    assert_eq!(keys::ino_of(&keys::with_ino(&keys::name(5, b"n"), 9)), Some(9));
}
