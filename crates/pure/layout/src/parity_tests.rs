//! Golden tables of the stripe geometry, and the properties every shape must have.

use proptest::prelude::*;

use super::*;
use crate::{Layout, layout_number};

const RAID5_LAYOUTS: [u32; 6] = [0, 1, 2, 3, 4, 5];
const RAID6_LAYOUTS: [u32; 14] = [0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20];

fn parity(level: Level, layout: u32, slots: usize, chunk_size: u64, stripes: u64) -> Parity {
    let spec = Spec {
        level,
        layout,
        chunk_size,
        raid_disks: slots,
        component_size: stripes * chunk_size,
        member_sizes: Vec::new(),
    };
    match Layout::new(&spec) {
        Ok(Layout::Parity(parity)) => parity,
        other => panic!("{spec:?} gave {other:?}"),
    }
}

/// A stripe as the tables write it: `k` at level 5, `k^e` at level 6.
fn row(geometry: &Parity, stripe: u64) -> String {
    let cell = |slot| match geometry.role(stripe, slot) {
        Role::P => "P".to_owned(),
        Role::Q => "Q".to_owned(),
        Role::Data(k) if geometry.parity_count() == 2 => {
            format!("{k}^{}", geometry.q_exponent(stripe, k))
        }
        Role::Data(k) => k.to_string(),
    };
    (0..geometry.slots()).map(cell).collect::<Vec<_>>().join(" ")
}

fn assert_table(level: Level, slots: usize, table: &[(&str, &[&str])]) {
    for (name, stripes) in table {
        let layout = layout_number(level, name).expect("the tables name existing layouts");
        let geometry = parity(level, layout, slots, 4096, 3 * slots as u64);
        for stripe in 0..geometry.stripes() {
            let want = stripes[(stripe % stripes.len() as u64) as usize];
            assert_eq!(row(&geometry, stripe), want, "{level} {name}, stripe {stripe}");
        }
    }
}

#[test]
fn raid5_of_four_slots_is_laid_out_as_md_does() {
    assert_table(
        Level::Raid5,
        4,
        &[
            ("left-asymmetric", &["0 1 2 P", "0 1 P 2", "0 P 1 2", "P 0 1 2"]),
            ("right-asymmetric", &["P 0 1 2", "0 P 1 2", "0 1 P 2", "0 1 2 P"]),
            ("left-symmetric", &["0 1 2 P", "1 2 P 0", "2 P 0 1", "P 0 1 2"]),
            ("right-symmetric", &["P 0 1 2", "2 P 0 1", "1 2 P 0", "0 1 2 P"]),
            ("parity-first", &["P 0 1 2"]),
            ("parity-last", &["0 1 2 P"]),
        ],
    );
}

#[test]
fn raid6_of_five_slots_is_laid_out_as_md_does() {
    let p0_q1 = "P Q 0^0 1^1 2^2";
    let q0_p4 = "Q 0^0 1^1 2^2 P";
    let p3_q4 = "0^0 1^1 2^2 P Q";
    assert_table(
        Level::Raid6,
        5,
        &[
            ("left-asymmetric", &[q0_p4, p3_q4, "0^1 1^2 P Q 2^0", "0^2 P Q 1^0 2^1", p0_q1]),
            ("right-asymmetric", &[p0_q1, "0^2 P Q 1^0 2^1", "0^1 1^2 P Q 2^0", p3_q4, q0_p4]),
            ("left-symmetric", &[q0_p4, p3_q4, "1^1 2^2 P Q 0^0", "2^2 P Q 0^0 1^1", p0_q1]),
            ("right-symmetric", &[p0_q1, "2^2 P Q 0^0 1^1", "1^1 2^2 P Q 0^0", p3_q4, q0_p4]),
            ("parity-first", &[p0_q1]),
            ("parity-last", &[p3_q4]),
            (
                "ddf-zero-restart",
                &[
                    "P Q 0^2 1^3 2^4",
                    "0^0 P Q 1^3 2^4",
                    "0^0 1^1 P Q 2^4",
                    "0^0 1^1 2^2 P Q",
                    "Q 0^1 1^2 2^3 P",
                ],
            ),
            (
                "ddf-N-restart",
                &[
                    "0^0 1^1 2^2 P Q",
                    "0^0 1^1 P Q 2^4",
                    "0^0 P Q 1^3 2^4",
                    "P Q 0^2 1^3 2^4",
                    "Q 0^1 1^2 2^3 P",
                ],
            ),
            (
                "ddf-N-continue",
                &[
                    "0^0 1^1 2^2 Q P",
                    "1^0 2^1 Q P 0^4",
                    "2^0 Q P 0^3 1^4",
                    "Q P 0^2 1^3 2^4",
                    "P 0^1 1^2 2^3 Q",
                ],
            ),
            (
                "left-asymmetric-6",
                &["0^0 1^1 2^2 P Q", "0^0 1^1 P 2^2 Q", "0^0 P 1^1 2^2 Q", "P 0^0 1^1 2^2 Q"],
            ),
            (
                "right-asymmetric-6",
                &["P 0^0 1^1 2^2 Q", "0^0 P 1^1 2^2 Q", "0^0 1^1 P 2^2 Q", "0^0 1^1 2^2 P Q"],
            ),
            (
                "left-symmetric-6",
                &["0^0 1^1 2^2 P Q", "1^0 2^1 P 0^2 Q", "2^0 P 0^1 1^2 Q", "P 0^0 1^1 2^2 Q"],
            ),
            (
                "right-symmetric-6",
                &["P 0^0 1^1 2^2 Q", "2^0 P 0^1 1^2 Q", "1^0 2^1 P 0^2 Q", "0^0 1^1 2^2 P Q"],
            ),
            ("parity-first-6", &["P 0^0 1^1 2^2 Q"]),
        ],
    );
}

#[test]
fn raid4_keeps_p_on_the_last_slot_whatever_the_layout_field_says() {
    for layout in [0, 3, 77] {
        let geometry = parity(Level::Raid4, layout, 4, 4096, 9);
        assert!((0..9).all(|stripe| row(&geometry, stripe) == "0 1 2 P"), "layout {layout}");
    }
}

#[test]
fn a_component_that_is_no_multiple_of_the_chunk_is_rounded_down() {
    let spec = Spec {
        level: Level::Raid5,
        layout: 2,
        chunk_size: 65536,
        raid_disks: 4,
        component_size: 10 * 65536 + 65535,
        member_sizes: Vec::new(),
    };
    let Ok(Layout::Parity(geometry)) = Layout::new(&spec) else { panic!("a sound array") };
    assert_eq!((geometry.stripes(), geometry.array_size()), (10, 3 * 10 * 65536));
    assert_eq!(geometry.used_component_size(), 10 * 65536);
    assert_eq!(geometry.logical(0, 10 * 65536), None);
    assert_eq!(geometry.logical(4, 0), None);
}

fn shapes() -> impl Strategy<Value = Parity> {
    let kind = prop_oneof![
        Just((Level::Raid4, 0)),
        proptest::sample::select(&RAID5_LAYOUTS[..]).prop_map(|l| (Level::Raid5, l)),
        proptest::sample::select(&RAID6_LAYOUTS[..]).prop_map(|l| (Level::Raid6, l)),
    ];
    let slots = prop_oneof![4 => 0usize..12, 1 => 0usize..251];
    (kind, slots, 12u32..22, 1u64..40).prop_map(|((level, layout), more, shift, stripes)| {
        parity(level, layout, level.min_slots() + more, 1 << shift, stripes)
    })
}

proptest! {
    #[test]
    fn data_p_and_q_are_distinct_and_cover_all_slots(geometry in shapes()) {
        for stripe in 0..geometry.stripes() {
            let map = geometry.map_stripe(stripe);
            let mut roles = vec![None; geometry.slots()];
            let mut places: Vec<(Slot, Role)> =
                map.data_slots().enumerate().map(|(k, slot)| (slot, Role::Data(k))).collect();
            places.push((map.p_slot(), Role::P));
            places.extend(map.q_slot().map(|slot| (slot, Role::Q)));
            for (k, slot) in map.data_slots().enumerate() {
                let of = geometry.slots_of(stripe, k);
                prop_assert_eq!(of, (slot, map.p_slot(), map.q_slot()));
                prop_assert_eq!(geometry.data_slot(stripe, k), slot);
            }
            prop_assert_eq!(places.len(), geometry.slots());
            for (slot, role) in places {
                prop_assert_eq!(roles[slot].replace(role), None);
                prop_assert_eq!(map.role(slot), role);
            }
        }
    }

    #[test]
    fn exponents_are_distinct_and_below_the_width(geometry in shapes()) {
        for stripe in 0..geometry.stripes() {
            let mut seen = vec![false; geometry.q_width()];
            for k in 0..geometry.data_chunks() {
                let exponent = geometry.q_exponent(stripe, k);
                prop_assert!(exponent < 255 && !std::mem::replace(&mut seen[exponent], true));
            }
        }
    }

    #[test]
    fn the_array_maps_one_to_one_onto_the_data_of_the_components(geometry in shapes()) {
        let chunk = geometry.chunk_size();
        let mut data_chunks = 0;
        for row in 0..geometry.stripes() {
            for slot in 0..geometry.slots() {
                let Some(offset) = geometry.logical(slot, row * chunk) else { continue };
                data_chunks += 1;
                let (stripe, k, within) = geometry.locate(offset);
                prop_assert_eq!(
                    (geometry.data_slot(stripe, k), geometry.member_offset(stripe), within),
                    (slot, row * chunk, 0)
                );
            }
        }
        // As many as the array has, each different (its inverse found it again): all of them.
        prop_assert_eq!(data_chunks * chunk, geometry.array_size());
    }

    #[test]
    fn going_to_the_member_and_back_gives_the_same_byte(geometry in shapes(), at in any::<u64>()) {
        let offset = at % geometry.array_size();
        let (stripe, k, within) = geometry.locate(offset);
        prop_assert!(stripe < geometry.stripes() && k < geometry.data_chunks());
        prop_assert_eq!(geometry.array_offset(stripe, k, within), offset);
        let component_offset = geometry.member_offset(stripe) + within;
        prop_assert!(component_offset < geometry.used_component_size());
        prop_assert_eq!(
            geometry.logical(geometry.data_slot(stripe, k), component_offset),
            Some(offset)
        );
    }
}

#[test]
fn the_last_byte_of_the_largest_arrays_is_mapped() {
    for (level, layout, slots) in
        [(Level::Raid5, 2, 1920), (Level::Raid6, 2, 257), (Level::Raid6, 10, 255)]
    {
        let component = (i64::MAX as u64 / slots as u64) & !4095;
        let geometry = parity(level, layout, slots, 4096, component / 4096);
        let last = geometry.array_size() - 1;
        let (stripe, k, within) = geometry.locate(last);
        assert_eq!(stripe, geometry.stripes() - 1);
        assert_eq!((k, within), (geometry.data_chunks() - 1, 4095));
        let slot = geometry.data_slot(stripe, k);
        assert_eq!(geometry.logical(slot, component - 1), Some(last), "{level} {layout}");
    }
}
