//! Worked examples of zones, a second statement of the mapping, and the properties of all shapes.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::Layout;

fn spec(layout: u32, chunk_size: u64, sizes: &[u64]) -> Spec {
    Spec {
        level: Level::Raid0,
        layout,
        chunk_size,
        raid_disks: sizes.len(),
        component_size: 0,
        member_sizes: sizes.to_vec(),
    }
}

fn raid0(layout: u32, chunk_size: u64, sizes: &[u64]) -> Raid0 {
    match Layout::new(&spec(layout, chunk_size, sizes)) {
        Ok(Layout::Striped(geometry)) => geometry,
        other => panic!("{sizes:?} gave {other:?}"),
    }
}

/// `slot:row` of each chunk in array order.
fn table(geometry: &Raid0) -> String {
    let chunk = geometry.chunk_size();
    (0..geometry.array_size() / chunk)
        .map(|nr| {
            let (place, run) = geometry.map(nr * chunk);
            assert_eq!(run, chunk);
            format!("{}:{}", place.slot, place.offset / chunk)
        })
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn equal_members_are_one_zone_and_need_no_recorded_layout() {
    let chunk = 65536;
    let sizes = [3 * chunk, 3 * chunk + 4096, 3 * chunk + 512];
    for layout in 0..3 {
        let geometry = raid0(layout, chunk, &sizes);
        assert_eq!(geometry.zones().len(), 1);
        assert_eq!(geometry.array_size(), 9 * chunk);
        assert_eq!(table(&geometry), "0:0 1:0 2:0 0:1 1:1 2:1 0:2 1:2 2:2");
    }
}

#[test]
fn later_zones_start_at_their_first_slot_only_in_the_alternate_layout() {
    let chunk = 4096;
    // Three slots for one row (3 chunks, an odd number), then two slots for two rows.
    let sizes = [3 * chunk, chunk, 3 * chunk];
    let alternate = raid0(2, chunk, &sizes);
    assert_eq!(table(&alternate), "0:0 1:0 2:0 0:1 2:1 0:2 2:2");
    let original = raid0(1, chunk, &sizes);
    assert_eq!(table(&original), "0:0 1:0 2:0 2:1 0:1 2:2 0:2");
    let zone = &original.zones()[1];
    assert_eq!((zone.array_start(), zone.array_end()), (3 * chunk, 7 * chunk));
    assert_eq!((zone.component_start(), zone.component_end()), (chunk, 3 * chunk));
    assert_eq!(zone.slots(), [0, 2]);
    let used = [0, 1, 2, 3].map(|slot| original.used_size(slot));
    assert_eq!(used, [3 * chunk, chunk, 3 * chunk, 0]);
}

#[test]
fn zones_without_a_recorded_layout_are_refused() {
    let refused = Layout::new(&spec(0, 4096, &[8192, 4096])).map(|layout| layout.array_size());
    assert_eq!(refused, Err(LayoutError::Raid0NoLayout { zones: 2 }));
}

#[test]
fn a_chunk_that_is_no_power_of_two_gives_the_size_of_the_driver() {
    // 24 sectors per chunk, 10 chunks of each member used: 240 AND NOT 23 = 224 sectors each.
    let chunk = 24 * SECTOR;
    let geometry = raid0(1, chunk, &[10 * chunk + 5 * SECTOR, 10 * chunk]);
    assert_eq!(geometry.array_size(), 2 * 224 * SECTOR);
    assert_eq!(geometry.zones()[0].array_end(), 20 * chunk);
    let last = geometry.array_size() - SECTOR;
    let (place, run) = geometry.map(last);
    assert_eq!(run, SECTOR);
    assert_eq!(geometry.logical(place.slot, place.offset), Some(last));
    assert_eq!(geometry.logical(place.slot, place.offset + SECTOR), None);
}

#[test]
fn past_the_end_nothing_is_mapped() {
    let geometry = raid0(1, 4096, &[8192, 8192]);
    for offset in [16384, 16385, u64::MAX] {
        assert_eq!(geometry.map(offset).1, 0, "{offset}");
    }
    for (slot, offset) in [(0, 8192), (2, 0), (usize::MAX, 0), (1, u64::MAX)] {
        assert_eq!(geometry.logical(slot, offset), None, "slot {slot}, {offset}");
    }
}

/// The driver's formula, by division, for array sector `sector`.
fn formula(geometry: &Raid0, layout: u32, sector: u64) -> Option<Place> {
    let chunk = geometry.chunk_size() / SECTOR;
    let zone = geometry.zones().iter().find(|zone| sector < zone.array_end() / SECTOR)?;
    let in_zone = sector - zone.array_start() / SECTOR;
    let width = zone.slots().len() as u64;
    let row = in_zone / (chunk * width);
    let which = if layout == 1 { sector } else { in_zone } / chunk % width;
    let component = zone.component_start() / SECTOR + row * chunk + sector % chunk;
    Some(Place { slot: *zone.slots().get(which as usize)?, offset: component * SECTOR })
}

fn shapes() -> impl Strategy<Value = (u32, Raid0)> {
    let chunk = prop_oneof![(0u32..8).prop_map(|shift| 1 << shift), 1u64..200];
    let sizes = proptest::collection::vec((1u64..12, 0u64..1000), 1..10);
    (1u32..3, chunk, sizes).prop_map(|(layout, chunk, sizes)| {
        let sizes: Vec<u64> =
            sizes.iter().map(|(chunks, rest)| (chunks * chunk + rest % chunk) * SECTOR).collect();
        (layout, raid0(layout, chunk * SECTOR, &sizes))
    })
}

proptest! {
    #[test]
    fn the_mapping_is_the_formula_and_its_inverse_inverts_it((layout, geometry) in shapes()) {
        for sector in 0..geometry.array_size() / SECTOR {
            let (place, run) = geometry.map(sector * SECTOR + 7);
            let want = formula(&geometry, layout, sector).expect("inside a zone");
            prop_assert_eq!(place, Place { offset: want.offset + 7, ..want });
            prop_assert!(run > 0);
            prop_assert_eq!(geometry.logical(place.slot, place.offset), Some(sector * SECTOR + 7));
        }
    }

    #[test]
    fn the_zones_use_every_chunk_of_every_member_once((_, geometry) in shapes()) {
        let mut used = HashSet::new();
        let mut chunks = 0;
        for zone in geometry.zones() {
            prop_assert_eq!(zone.array_start(), chunks * geometry.chunk_size());
            let rows = (zone.component_end() - zone.component_start()) / geometry.chunk_size();
            for row in 0..rows {
                for &slot in zone.slots() {
                    let offset = zone.component_start() + row * geometry.chunk_size();
                    prop_assert!(used.insert((slot, offset)));
                }
            }
            chunks += rows * zone.slots().len() as u64;
        }
        prop_assert_eq!(used.len() as u64, chunks);
        let whole = chunks * geometry.chunk_size();
        prop_assert!(geometry.array_size() <= whole);
        if geometry.chunk_size().is_power_of_two() {
            prop_assert_eq!(geometry.array_size(), whole);
        }
    }

    #[test]
    fn a_run_stays_on_one_member((_, geometry) in shapes(), at in any::<u64>()) {
        let offset = at % geometry.array_size();
        let (place, run) = geometry.map(offset);
        let (last, _) = geometry.map(offset + run - 1);
        prop_assert_eq!(last, Place { offset: place.offset + run - 1, ..place });
    }
}
