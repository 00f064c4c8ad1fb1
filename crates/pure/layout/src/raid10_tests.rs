//! The golden table of copies, a second statement of the kernel's walk, and the properties every
//! shape must have.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::{Layout, layout_number};

const CHUNK: u64 = 4096;

fn spec(layout: u32, slots: usize, rows: u64) -> Spec {
    Spec {
        level: Level::Raid10,
        layout,
        chunk_size: CHUNK,
        raid_disks: slots,
        component_size: rows * CHUNK,
        member_sizes: Vec::new(),
    }
}

fn raid10(layout: u32, slots: usize, rows: u64) -> Raid10 {
    match Layout::new(&spec(layout, slots, rows)) {
        Ok(Layout::Raid10(geometry)) => geometry,
        other => panic!("{layout:#x} on {slots} slots gave {other:?}"),
    }
}

/// The copies of a chunk as the table writes them: `slot:row`, rows of far layouts in strides.
fn cell(geometry: &Raid10, chunk_nr: u64, stride: Option<u64>) -> String {
    let row = |row: u64| match stride {
        None => row.to_string(),
        Some(stride) => match (row / stride, row % stride) {
            (0, rest) => rest.to_string(),
            (strides, rest) => {
                let times = if strides == 1 { String::new() } else { strides.to_string() };
                let rest = if rest == 0 { String::new() } else { format!("+{rest}") };
                format!("{times}S{rest}")
            }
        },
    };
    geometry
        .copies(chunk_nr)
        .iter()
        .map(|place| format!("{}:{}", place.slot, row(place.offset / CHUNK)))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn copies_are_placed_as_md_places_them() {
    let table: &[(&str, usize, [&str; 6])] = &[
        ("n2", 4, ["0:0 1:0", "2:0 3:0", "0:1 1:1", "2:1 3:1", "0:2 1:2", "2:2 3:2"]),
        ("n2", 5, ["0:0 1:0", "2:0 3:0", "4:0 0:1", "1:1 2:1", "3:1 4:1", "0:2 1:2"]),
        (
            "n3",
            5,
            [
                "0:0 1:0 2:0",
                "3:0 4:0 0:1",
                "1:1 2:1 3:1",
                "4:1 0:2 1:2",
                "2:2 3:2 4:2",
                "0:3 1:3 2:3",
            ],
        ),
        ("f2", 4, ["0:0 1:S", "1:0 2:S", "2:0 3:S", "3:0 0:S", "0:1 1:S+1", "1:1 2:S+1"]),
        ("f2", 5, ["0:0 1:S", "1:0 2:S", "2:0 3:S", "3:0 4:S", "4:0 0:S", "0:1 1:S+1"]),
        (
            "f3",
            5,
            [
                "0:0 1:S 2:2S",
                "1:0 2:S 3:2S",
                "2:0 3:S 4:2S",
                "3:0 4:S 0:2S",
                "4:0 0:S 1:2S",
                "0:1 1:S+1 2:2S+1",
            ],
        ),
        ("o2", 4, ["0:0 1:1", "1:0 2:1", "2:0 3:1", "3:0 0:1", "0:2 1:3", "1:2 2:3"]),
        ("o2", 5, ["0:0 1:1", "1:0 2:1", "2:0 3:1", "3:0 4:1", "4:0 0:1", "0:2 1:3"]),
    ];
    for (name, slots, cells) in table {
        let layout = layout_number(Level::Raid10, name).expect("the table names existing layouts");
        let geometry = raid10(layout, *slots, 60);
        let stride = match name.as_bytes() {
            [b'f', digit] => Some(60 / u64::from(digit - b'0')),
            _ => None,
        };
        for (chunk_nr, want) in (0..).zip(cells) {
            assert_eq!(cell(&geometry, chunk_nr, stride), *want, "{name} of {slots}: {chunk_nr}");
        }
    }
}

/// The walk over copies written as the driver words it: slot by slot, set by set.
fn walk(layout: u32, slots: usize, rows_used: u64, chunk_nr: u64) -> Vec<(usize, u64)> {
    let (near, far) = ((layout & 255) as usize, (layout >> 8 & 255) as usize);
    let offset = layout & 0x1_0000 != 0;
    let set = match layout >> 17 {
        0 => slots,
        1 => slots / far,
        _ => near * far,
    };
    let stride = if offset { 1 } else { rows_used / far as u64 };
    let last = (slots / set - 1) * set;
    let last_size = set + slots % set;
    let first = chunk_nr * near as u64;
    let (mut row, mut slot) = (first / slots as u64, (first % slots as u64) as usize);
    if offset {
        row *= far as u64;
    }
    let mut out = Vec::new();
    for _ in 0..near {
        let (mut d, mut r) = (slot, row);
        out.push((d, r));
        for _ in 1..far {
            let own = d / set;
            d += near;
            d = if !slots.is_multiple_of(set) && d > last {
                (d - last) % last_size + last
            } else {
                d % set + set * own
            };
            r += stride;
            out.push((d, r));
        }
        slot += 1;
        if slot == slots {
            (slot, row) = (0, row + 1);
        }
    }
    out
}

fn layouts() -> impl Strategy<Value = (u32, usize)> {
    let near = (2u32..7).prop_map(|copies| 0x100 + copies);
    let far = (2u32..7, 0u32..2, 0u32..3)
        .prop_map(|(copies, offset, mode)| 1 + (copies << 8) + (offset << 16) + (mode << 17));
    (prop_oneof![1 => near, 3 => far], prop_oneof![2usize..16, 2usize..60])
}

fn shapes() -> impl Strategy<Value = (u32, Raid10)> {
    (layouts(), 6u64..60).prop_filter_map("a refused shape", |((layout, slots), rows)| {
        match Layout::new(&spec(layout, slots, rows)) {
            Ok(Layout::Raid10(geometry)) => Some((layout, geometry)),
            _ => None,
        }
    })
}

proptest! {
    #[test]
    fn copies_follow_the_walk_of_the_driver((layout, geometry) in shapes()) {
        for chunk_nr in 0..geometry.chunks() {
            let places: Vec<_> = geometry
                .copies(chunk_nr)
                .iter()
                .map(|place| (place.slot, place.offset / CHUNK))
                .collect();
            let want = walk(layout, geometry.slots(), geometry.rows, chunk_nr);
            prop_assert_eq!(places, want, "chunk {}", chunk_nr);
        }
    }

    #[test]
    fn copies_share_neither_a_slot_nor_a_place_and_fill_the_components((_, geometry) in shapes()) {
        let mut places = HashSet::new();
        for chunk_nr in 0..geometry.chunks() {
            let mut slots = HashSet::new();
            for place in geometry.copies(chunk_nr) {
                prop_assert!(place.slot < geometry.slots());
                prop_assert!(place.offset + CHUNK <= geometry.used_component_size());
                prop_assert!(slots.insert(place.slot), "chunk {chunk_nr} twice on one slot");
                prop_assert!(places.insert(place), "{place:?} used twice");
            }
        }
        let capacity = geometry.slots() as u64 * geometry.used_component_size() / CHUNK;
        // Only the end of the last row can stay unused.
        prop_assert!(capacity - (places.len() as u64) < geometry.slots() as u64);
    }

    #[test]
    fn every_place_leads_back_to_its_chunk((_, geometry) in shapes(), within in 0..CHUNK) {
        let rows = geometry.used_component_size() / CHUNK;
        let mut used = 0;
        for row in 0..rows + 2 {
            for slot in 0..geometry.slots() + 1 {
                let Some(offset) = geometry.logical(slot, row * CHUNK + within) else { continue };
                used += 1;
                let (chunk_nr, rest) = geometry.locate(offset);
                prop_assert_eq!(rest, within);
                let place = Place { slot, offset: row * CHUNK };
                prop_assert!(geometry.copies(chunk_nr).contains(&place), "{place:?}");
            }
        }
        prop_assert_eq!(used, geometry.chunks() * geometry.copy_count() as u64);
    }

    #[test]
    fn any_loss_within_the_tolerance_is_survived(
        (_, geometry) in shapes(),
        from in 0usize..60,
        step in 1usize..60,
    ) {
        let layout = Layout::Raid10(geometry);
        let lost: HashSet<_> =
            (0..layout.tolerance()).map(|i| (from + i * step) % layout.slots()).collect();
        prop_assert!(layout.survives(|slot| !lost.contains(&slot)));
    }

    #[test]
    fn losing_all_copies_of_one_chunk_is_not_survived(
        (_, geometry) in shapes(),
        chunk in any::<u64>(),
    ) {
        let lost = geometry.copies(chunk % geometry.chunks());
        prop_assert!(!geometry.survives(|slot| lost.iter().all(|place| place.slot != slot)));
    }
}

#[test]
fn one_loss_in_each_pair_is_survived_two_in_one_are_not() {
    let pairs = raid10(0x102, 4, 10);
    assert!(pairs.survives(|slot| slot % 2 == 0));
    assert!(!pairs.survives(|slot| slot >= 2));
    // Far copies are on the next slot: only neighbours, the last and the first too, share chunks.
    let far = raid10(0x201, 4, 10);
    assert!(far.survives(|slot| slot % 2 == 0));
    assert!(!far.survives(|slot| slot == 1 || slot == 2));
}

#[test]
fn sizes_are_those_of_the_driver() {
    // (layout, slots, chunks per component) -> array chunks, rows in use
    for (layout, slots, rows, chunks, used) in [
        (0x102, 4, 7, 14, 7),
        (0x102, 5, 3, 7, 3),
        (0x103, 5, 7, 11, 7),
        (0x201, 4, 7, 12, 6),
        (0x301, 5, 10, 15, 9),
        (0x1_0201, 5, 7, 15, 6),
    ] {
        let geometry = raid10(layout, slots, rows);
        let sizes = (geometry.chunks(), geometry.used_component_size() / CHUNK);
        assert_eq!(sizes, (chunks, used), "{layout:#x} on {slots} slots of {rows} chunks");
        assert_eq!(geometry.array_size(), chunks * CHUNK);
    }
}

#[test]
fn the_last_byte_of_the_largest_arrays_is_mapped() {
    for layout in [0x102, 0x107, 0x201, 0x301, 0x1_0301] {
        for slots in [7usize, 1920] {
            let rows = (i64::MAX as u64 / slots as u64) / CHUNK;
            let geometry = raid10(layout, slots, rows);
            let last = geometry.array_size() - 1;
            let (chunk_nr, within) = geometry.locate(last);
            for place in geometry.copies(chunk_nr) {
                let back = geometry.logical(place.slot, place.offset + within);
                assert_eq!(back, Some(last), "{layout:#x} on {slots} slots");
            }
        }
    }
}

#[test]
fn more_copies_than_fit_inline_are_all_listed() {
    let geometry = raid10(0x100 + 9, 10, 20);
    let slots: Vec<_> = geometry.copies(1).iter().map(|place| place.slot).collect();
    assert_eq!(slots, [9, 0, 1, 2, 3, 4, 5, 6, 7]);
}
