//! Arrays are placed as mdadm places them. The table in `data/placements.tsv` was made by the real mdadm.

// Helpers of tests too: unwrapping says that the test has failed.
#![allow(clippy::unwrap_used)]

use braid_format::placement::{Consistency, Placement, PlacementError, Request, place};
use braid_format::superblock::{Ppl, Version};
use proptest::prelude::*;

const TABLE: &str = include_str!("data/placements.tsv");

/// A row: what was asked for, and the columns of the result.
struct Row {
    line: &'static str,
    request: Request,
    members: &'static str,
    rest: [&'static str; 5],
}

fn optional(text: &str) -> Option<u64> {
    (text != "-").then(|| text.parse().unwrap())
}

/// `a*2,b` is `a,a,b`.
fn runs<'a>(text: &'a str) -> Vec<&'a str> {
    let one = |run: &'a str| match run.split_once('*') {
        Some((value, count)) => vec![value; count.parse().unwrap()],
        None => vec![run],
    };
    text.split(',').flat_map(one).collect()
}

fn rows() -> Vec<Row> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            let [
                level,
                layout,
                version,
                chunk,
                slots,
                devs,
                consistency,
                size,
                offset,
                members,
                rest @ ..,
            ] = columns.as_slice()
            else {
                panic!("too few columns: {line}");
            };
            let consistency = match consistency.split_once(':') {
                Some((_, bytes)) => {
                    Consistency::Bitmap { chunk_bytes: Some(bytes.parse().unwrap()) }
                }
                None if *consistency == "bitmap" => Consistency::Bitmap { chunk_bytes: None },
                None if *consistency == "ppl" => Consistency::Ppl,
                None => Consistency::Resync,
            };
            let request = Request {
                level: level.parse().unwrap(),
                layout: layout.parse().unwrap(),
                version: version.parse().unwrap(),
                chunk_sectors: chunk.parse().unwrap(),
                raid_disks: slots.parse().unwrap(),
                members: runs(devs).iter().map(|dev| dev.parse().unwrap()).collect(),
                consistency,
                size: optional(size),
                data_offset: optional(offset),
            };
            Row { line, request, members, rest: rest.try_into().unwrap() }
        })
        .collect()
}

/// The result in the table's words.
fn in_words(placement: &Placement) -> (Vec<String>, [String; 5]) {
    let members = placement.members.iter();
    let members = members.map(|m| format!("{}:{}:{}", m.data_offset, m.data_size, m.super_offset));
    let bitmap =
        placement.bitmap.map(|b| format!("{}:{}:{}", b.offset, b.chunk_bytes, b.sync_size));
    let ppl = placement.ppl.map(|ppl| format!("{}:{}", ppl.offset, ppl.size));
    let dash = || "-".to_owned();
    let rest = [
        placement.size.to_string(),
        format!("{}:{}", placement.bblog_offset, placement.bblog_size),
        bitmap.unwrap_or_else(dash),
        ppl.unwrap_or_else(dash),
        (if placement.raid0_layout { "yes" } else { "no" }).to_owned(),
    ];
    (members.collect(), rest)
}

/// Made by mdadm and refused by place(): arrays of size 0, and a bad-block log on top of the bitmap.
const MDADM_ONLY: [&str; 3] = [
    "1\t0\t1.2\t0\t2\t2100*2\tnone\t-\t-\t",
    "1\t0\t1.0\t0\t2\t136*2\tnone\t-\t-\t",
    "5\t0\t1.2\t128\t3\t131072*3\tbitmap\t-\t24\t",
];

#[test]
fn every_array_is_placed_as_mdadm_places_it() {
    let mut wrong = Vec::new();
    for row in rows() {
        let refused =
            row.members == "refused" || MDADM_ONLY.iter().any(|start| row.line.starts_with(start));
        match place(&row.request) {
            Ok(_) if refused => wrong.push(format!("taken: {}", row.line)),
            Err(_) if refused => {}
            Ok(placement) => {
                let (members, rest) = in_words(&placement);
                if members != runs(row.members) || rest != row.rest {
                    wrong.push(format!("{}\n    got {members:?} {rest:?}", row.line));
                }
            }
            Err(error) => wrong.push(format!("{}\n    got {error}", row.line)),
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rows().len(), wrong.join("\n"));
}

fn request() -> Request {
    Request {
        level: 5,
        layout: 2,
        version: Version::V1_2,
        chunk_sectors: 1024,
        raid_disks: 3,
        members: vec![1 << 30; 3],
        consistency: Consistency::Resync,
        size: None,
        data_offset: None,
    }
}

#[test]
fn refusals_say_which_member_and_what_would_do() {
    use PlacementError as E;
    let refused = |request: Request| place(&request).unwrap_err();
    assert_eq!(refused(Request { members: vec![], ..request() }), E::NoMember);
    let small = Request { members: vec![1 << 30, 1 << 30, 2048], ..request() };
    assert!(matches!(refused(small), E::MemberTooSmall { member: 2, have: 2048, .. }));
    let large = Request { members: vec![u64::MAX], ..request() };
    assert!(matches!(refused(large), E::MemberTooLarge { member: 0, .. }));
    let size = Request { size: Some(1 << 40), ..request() };
    assert!(matches!(refused(size), E::SizeTooLarge { member: 0, .. }));
    let size = Request { size: Some(1023), ..request() };
    assert_eq!(refused(size), E::SizeTooSmall { want: 1023, chunk: 1024 });
    let offset = Request { data_offset: Some(15), ..request() };
    assert!(matches!(refused(offset), E::DataOffset { want: 15, least: 16, .. }));
    let bitmap = |chunk_bytes| Consistency::Bitmap { chunk_bytes };
    let level0 = Request { level: 0, consistency: bitmap(None), ..request() };
    assert_eq!(refused(level0), E::Consistency { level: 0, what: "bitmap" });
    let ppl = Request { level: 6, consistency: Consistency::Ppl, ..request() };
    assert_eq!(refused(ppl), E::Consistency { level: 6, what: "PPL" });
    for want in [0, 4095, 4096, 3 << 20] {
        let odd = Request { consistency: bitmap(Some(want)), ..request() };
        assert!(matches!(refused(odd), E::BitmapChunk { .. }), "{want}");
    }
    let tiny = Request {
        consistency: bitmap(None),
        level: 1,
        chunk_sectors: 0,
        size: Some(126),
        ..request()
    };
    assert_eq!(refused(tiny), E::NoBitmapRoom);
    let v0 = || Request { version: Version::V0_90, ..request() };
    let many = Request { members: vec![1 << 20; 28], ..v0() };
    assert!(matches!(refused(many), E::TooManyMembers { have: 28, most: 27, .. }));
    let large = Request { members: vec![1 << 34; 3], ..v0() };
    assert!(matches!(refused(large), E::V0Size { most: 8_589_934_590, .. }));
    let ppl = Request { consistency: Consistency::Ppl, ..v0() };
    assert!(matches!(refused(ppl), E::Version { version: Version::V0_90, .. }));
    let unequal = Request { level: 0, members: vec![1 << 20, 1 << 21], ..v0() };
    assert!(matches!(refused(unequal), E::Version { version: Version::V0_90, .. }));
    let offset = Request { data_offset: Some(2048), ..v0() };
    assert!(matches!(refused(offset), E::DataOffset { least: 0, .. }));
}

prop_compose! {
    fn any_request()(
        level in prop::sample::select(&[-1, 0, 1, 4, 5, 5, 5, 6, 10, 77][..]),
        layout: u32,
        version in prop::sample::select(&Version::ALL),
        chunk_sectors in prop_oneof![
            2 => Just(0),
            9 => (0u32..12).prop_map(|s| 8 << s),
            1 => any::<u32>(),
        ],
        raid_disks in prop_oneof![9 => 1u32..20, 1 => any::<u32>()],
        members in prop_oneof![
            9 => prop::collection::vec(prop_oneof![2000u64..9000, (14u32..55).prop_map(|s| 1 << s)], 1..4),
            1 => prop::collection::vec(prop_oneof![0u64..300, any::<u64>()], 0..4),
        ],
        consistency in prop_oneof![
            2 => Just(Consistency::Resync),
            1 => Just(Consistency::Ppl),
            3 => Just(Consistency::Bitmap { chunk_bytes: None }),
            1 => any::<u32>().prop_map(|bytes| Consistency::Bitmap { chunk_bytes: Some(bytes) }),
            2 => (12u32..32).prop_map(|s| Consistency::Bitmap { chunk_bytes: Some(1 << s) }),
        ],
        size in prop::option::weighted(0.2, prop_oneof![0u64..9000, any::<u64>()]),
        data_offset in prop::option::weighted(0.2, prop_oneof![5 => 0u64..5000, 1 => any::<u64>()]),
    ) -> Request {
        Request { level, layout, version, chunk_sectors, raid_disks, members, consistency, size, data_offset }
    }
}

/// Parts of a member as (name, first sector, sector after the last).
fn parts(placement: &Placement, member: usize, size: u64) -> Vec<(&'static str, i128, i128)> {
    let place = &placement.members[member];
    let super_offset = i128::from(place.super_offset);
    let data = i128::from(place.data_offset);
    let mut parts = vec![
        ("superblock", super_offset, super_offset + 8),
        ("data", data, data + i128::from(place.data_size.max(size))),
    ];
    if placement.bblog_size != 0 {
        let at = super_offset + i128::from(placement.bblog_offset);
        parts.push(("bad-block log", at, at + i128::from(placement.bblog_size)));
    }
    if let Some(bitmap) = placement.bitmap {
        let at = super_offset + i128::from(bitmap.offset);
        parts.push(("bitmap", at, at + i128::from(bitmap.sectors)));
    }
    if let Some(Ppl { offset, size, .. }) = placement.ppl {
        let at = super_offset + i128::from(offset);
        parts.push(("ppl", at, at + i128::from(size)));
    }
    parts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn parts_lie_inside_the_member_and_do_not_overlap(request in any_request()) {
        let Ok(placement) = place(&request) else { return Ok(()) };
        for (index, &dev) in request.members.iter().enumerate() {
            let mut parts = parts(&placement, index, placement.size);
            parts.sort_by_key(|part| part.1);
            prop_assert!(parts[0].1 >= 0, "{:?}", parts);
            prop_assert!(parts.last().unwrap().2 <= i128::from(dev), "{:?} on {}", parts, dev);
            for pair in parts.windows(2) {
                prop_assert!(pair[0].2 <= pair[1].1, "{:?}", parts);
            }
        }
    }
}
