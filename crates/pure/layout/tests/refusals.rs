//! Impossible geometries are refused with the reason, whatever numbers a superblock holds.

use braid_layout::{Layout, LayoutError, Level, Spec};
use proptest::prelude::*;

fn spec(level: Level, layout: u32, chunk_size: u64, raid_disks: usize, size: u64) -> Spec {
    Spec {
        level,
        layout,
        chunk_size,
        raid_disks,
        component_size: size,
        member_sizes: vec![size; raid_disks.min(4000)],
    }
}

fn refusal(spec: &Spec) -> LayoutError {
    match Layout::new(spec) {
        Err(error) => error,
        Ok(layout) => panic!("{spec:?} was taken: {layout:?}"),
    }
}

const MIB: u64 = 1 << 20;

#[test]
fn too_few_slots() {
    for (level, min) in [
        (Level::Linear, 1),
        (Level::Raid0, 1),
        (Level::Raid1, 1),
        (Level::Raid4, 2),
        (Level::Raid5, 2),
        (Level::Raid6, 4),
        (Level::Raid10, 2),
    ] {
        let layout = braid_layout::default_layout(level);
        let error = refusal(&spec(level, layout, 65536, min - 1, MIB));
        assert_eq!(error, LayoutError::TooFewSlots { level, slots: min - 1, min });
        assert!(Layout::new(&spec(level, layout, 65536, min, MIB)).is_ok(), "{level} of {min}");
    }
}

#[test]
fn too_many_slots() {
    for level in Level::ALL {
        for slots in [1921, usize::MAX] {
            let error = refusal(&spec(level, 2, 65536, slots, MIB));
            assert_eq!(error, LayoutError::TooManySlots { level, slots, max: 1920 });
        }
    }
}

#[test]
fn more_members_than_q_has_coefficients() {
    for (layout, max) in [(2, 257), (18, 257), (8, 255), (10, 255)] {
        let level = Level::Raid6;
        assert!(Layout::new(&spec(level, layout, 65536, max, MIB)).is_ok());
        let error = refusal(&spec(level, layout, 65536, max + 1, MIB));
        assert_eq!(error, LayoutError::TooManySlots { level, slots: max + 1, max });
    }
}

#[test]
fn chunk_sizes_that_the_level_cannot_have() {
    for level in [Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10] {
        let layout = braid_layout::default_layout(level);
        for chunk in [0, 512, 2048, 6144, 12288, 65535, 1 << 31, u64::MAX] {
            let error = refusal(&spec(level, layout, chunk, 5, 1 << 40));
            assert!(matches!(error, LayoutError::ChunkSize { .. }), "{level} {chunk}: {error}");
        }
        for chunk in [4096, 1 << 30] {
            assert!(Layout::new(&spec(level, layout, chunk, 5, 1 << 40)).is_ok());
        }
    }
    for chunk in [0, 1, 511, 513, (1 << 30) + 512, u64::MAX] {
        let error = refusal(&spec(Level::Raid0, 1, chunk, 5, 1 << 40));
        assert!(matches!(error, LayoutError::ChunkSize { .. }), "raid0 {chunk}: {error}");
    }
    assert!(Layout::new(&spec(Level::Linear, 0, 0, 5, 1 << 40)).is_ok());
    assert!(Layout::new(&spec(Level::Linear, 0, 100, 5, 1 << 40)).is_err());
}

#[test]
fn layout_numbers_that_do_not_exist() {
    let cases = [
        (Level::Raid0, vec![3, 4, u32::MAX]),
        (Level::Raid5, vec![6, 7, 8, 10, 16, 20, u32::MAX]),
        (Level::Raid6, vec![6, 7, 11, 15, 21, 32, u32::MAX]),
        (Level::Raid10, vec![0, 1, 2, 0x100, 0x6_0201, 0x8_0102, u32::MAX]),
    ];
    for (level, layouts) in cases {
        for layout in layouts {
            let error = refusal(&spec(level, layout, 65536, 6, MIB));
            assert_eq!(error, LayoutError::UnknownLayout { level, layout });
        }
    }
}

#[test]
fn raid10_shapes_whose_copies_would_collide() {
    let on = |layout, slots| refusal(&spec(Level::Raid10, layout, 65536, slots, MIB));
    assert_eq!(on(0x202, 6), LayoutError::Raid10NearAndFar { near: 2, far: 2 });
    assert_eq!(on(0x1_0202, 6), LayoutError::Raid10NearAndFar { near: 2, far: 2 });
    assert_eq!(on(0x101, 6), LayoutError::Raid10Copies { copies: 1, slots: 6 });
    assert_eq!(on(0x103, 2), LayoutError::Raid10Copies { copies: 3, slots: 2 });
    assert_eq!(on(0x1_0501, 4), LayoutError::Raid10Copies { copies: 5, slots: 4 });
    // Sets of n/F slots: n must be a multiple of F, and a set must hold F copies.
    assert_eq!(on(0x2_0201, 5), LayoutError::Raid10Sets { layout: 0x2_0201, slots: 5, far: 2 });
    assert_eq!(on(0x2_0301, 6), LayoutError::Raid10Sets { layout: 0x2_0301, slots: 6, far: 3 });
    assert!(Layout::new(&spec(Level::Raid10, 0x2_0201, 65536, 4, MIB)).is_ok());
}

#[test]
fn components_without_room_for_a_chunk() {
    for level in [Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10] {
        let layout = braid_layout::default_layout(level);
        let error = refusal(&spec(level, layout, 65536, 5, 65535));
        let want = LayoutError::ComponentTooSmall { level, component_size: 65535, min: 65536 };
        assert_eq!(error, want);
    }
    // Far copies each need a row of their own.
    let error = refusal(&spec(Level::Raid10, 0x301, 65536, 5, 2 * 65536));
    assert!(matches!(error, LayoutError::ComponentTooSmall { min: 196608, .. }), "{error}");
    let error = refusal(&spec(Level::Raid1, 0, 0, 2, 511));
    assert!(matches!(error, LayoutError::ComponentTooSmall { .. }), "{error}");
    for level in [Level::Raid0, Level::Linear] {
        let mut spec = spec(level, 1, 65536, 3, MIB);
        spec.member_sizes[1] = 65535;
        let want = LayoutError::MemberTooSmall { level, slot: 1, size: 65535, min: 65536 };
        assert_eq!(refusal(&spec), want);
    }
}

#[test]
fn a_member_size_missing_where_every_member_counts() {
    for level in [Level::Raid0, Level::Linear] {
        let mut spec = spec(level, 1, 65536, 3, MIB);
        spec.member_sizes.pop();
        assert_eq!(refusal(&spec), LayoutError::MemberSizes { level, slots: 3, found: 2 });
    }
}

#[test]
fn sizes_beyond_what_an_offset_can_address() {
    for level in Level::ALL {
        let layout = braid_layout::default_layout(level);
        for size in [1 << 63, u64::MAX, u64::MAX - 511] {
            let error = refusal(&spec(level, layout, 65536, 5, size));
            assert_eq!(error, LayoutError::TooLarge { level }, "{size}");
        }
        if level != Level::Raid1 {
            let error = refusal(&spec(level, layout, 65536, 5, i64::MAX as u64));
            assert_eq!(error, LayoutError::TooLarge { level });
        }
    }
}

#[test]
fn every_refusal_says_what_to_do() {
    let message = refusal(&spec(Level::Raid6, 2, 65536, 3, MIB)).to_string();
    assert!(message.contains("raid6") && message.contains("at least 4"), "{message}");
    let message = refusal(&spec(Level::Raid5, 2, 12288, 3, MIB)).to_string();
    assert!(message.contains("12288") && message.contains("power of two"), "{message}");
}

#[test]
fn losing_members_is_survived_up_to_the_tolerance() {
    for (level, slots, tolerance) in [
        (Level::Linear, 4, 0),
        (Level::Raid0, 4, 0),
        (Level::Raid1, 4, 3),
        (Level::Raid4, 4, 1),
        (Level::Raid5, 4, 1),
        (Level::Raid6, 4, 2),
    ] {
        let layout = braid_layout::default_layout(level);
        let layout = Layout::new(&spec(level, layout, 65536, slots, MIB)).expect("a sound array");
        assert_eq!(layout.tolerance(), tolerance, "{level}");
        assert_eq!((layout.used_size(0), layout.used_size(slots)), (MIB, 0), "{level}");
        for lost in 0u32..1 << slots {
            let survives = layout.survives(|slot| lost & 1 << slot == 0);
            assert_eq!(survives, lost.count_ones() as usize <= tolerance, "{level} {lost:#b}");
        }
    }
}

#[test]
fn linear_members_follow_one_another_rounded_to_the_chunk() {
    let spec = Spec {
        level: Level::Linear,
        layout: 0,
        chunk_size: 65536,
        raid_disks: 3,
        component_size: 0,
        member_sizes: vec![2 * 65536 + 700, 65536, 3 * 65536 + 65535],
    };
    let Ok(Layout::Linear(linear)) = Layout::new(&spec) else { panic!("a sound array") };
    assert_eq!(linear.array_size(), 6 * 65536);
    let mut offset = 0;
    for (slot, used) in [(0, 2 * 65536), (1, 65536), (2, 3 * 65536)] {
        assert_eq!(linear.used_size(slot), used);
        for at in [0, 1, used / 2, used - 1] {
            let (place, run) = linear.map(offset + at);
            assert_eq!((place.slot, place.offset, run), (slot, at, used - at));
            assert_eq!(linear.logical(slot, at), Some(offset + at));
        }
        assert_eq!(linear.logical(slot, used), None);
        offset += used;
    }
    assert_eq!(linear.map(offset).1, 0);
    assert_eq!(linear.map(u64::MAX).1, 0);
    assert_eq!(linear.logical(3, 0), None);
    assert_eq!(linear.logical(2, u64::MAX), None);
}

fn wild() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (0u32..64).prop_map(|shift| 1 << shift),
        (0u32..64, 0u64..4096).prop_map(|(shift, more)| (1u64 << shift).wrapping_sub(more)),
        0u64..1 << 24,
    ]
}

proptest! {
    #[test]
    fn no_superblock_makes_it_panic(
        level in proptest::sample::select(&Level::ALL[..]),
        layout in prop_oneof![any::<u32>(), 0u32..24, (0u32..0x8_0000)],
        chunk_size in prop_oneof![wild(), (9u32..31).prop_map(|shift| 1 << shift)],
        raid_disks in prop_oneof![any::<usize>(), 0usize..2000, 0usize..20],
        component_size in wild(),
        member_sizes in proptest::collection::vec(wild(), 0..20),
        as_many in any::<bool>(),
        at in any::<u64>(),
    ) {
        let raid_disks = if as_many { member_sizes.len() } else { raid_disks };
        let spec = Spec { level, layout, chunk_size, raid_disks, component_size, member_sizes };
        let Ok(layout) = Layout::new(&spec) else { return Ok(()) };
        prop_assert!(layout.array_size() > 0 && layout.array_size() <= i64::MAX as u64);
        let offset = at % layout.array_size();
        let back = match &layout {
            Layout::Striped(l) => { let (p, _) = l.map(offset); l.logical(p.slot, p.offset) }
            Layout::Linear(l) => { let (p, _) = l.map(offset); l.logical(p.slot, p.offset) }
            Layout::Mirror(_) => Some(offset),
            Layout::Parity(l) => {
                let (stripe, k, within) = l.locate(offset);
                l.logical(l.data_slot(stripe, k), l.member_offset(stripe) + within)
            }
            Layout::Raid10(l) => {
                let (chunk_nr, within) = l.locate(offset);
                let place = l.copy(chunk_nr, l.copy_count() - 1);
                l.logical(place.slot, place.offset + within)
            }
        };
        prop_assert_eq!(back, Some(offset));
    }
}
