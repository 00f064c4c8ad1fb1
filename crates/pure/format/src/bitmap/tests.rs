use super::*;
use proptest::prelude::*;

fn sample() -> BitmapSuperblock {
    BitmapSuperblock { events: 7, ..BitmapSuperblock::new([9; 16], 14336, 1 << 16) }
}

#[test]
fn bits_cover_the_last_partial_chunk() {
    assert_eq!(bits_for(14336, 1 << 16), 112);
    assert_eq!(bits_for(14337, 1 << 16), 113);
    assert_eq!(bits_for(0, 1 << 16), 0);
}

#[test]
fn a_range_of_sectors_has_the_bits_it_touches() {
    let bitmap = sample();
    assert_eq!(bitmap.bits_of(127..129), 0..2);
    assert_eq!(bitmap.bits_of(128..256), 1..2);
    assert_eq!(bitmap.bits_of(5..5), 0..0);
    assert_eq!(bitmap.bits_of(14335..u64::MAX), 111..112);
    assert_eq!(bitmap.sectors_of(111), 14208..14336);
}

#[test]
fn newer_and_clustered_bitmaps_are_named_and_refused() {
    for (version, name) in [(5, "clustered"), (6, "lockless")] {
        let error = BitmapSuperblock::parse(&BitmapSuperblock { version, ..sample() }.to_bytes())
            .unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn impossible_fields_are_refused() {
    let cases = [
        BitmapSuperblock { chunk_bytes: 3000, ..sample() },
        BitmapSuperblock { chunk_bytes: 256, ..sample() },
        BitmapSuperblock { daemon_sleep: 0, ..sample() },
        BitmapSuperblock { write_behind: 16384, ..sample() },
    ];
    for case in cases {
        assert!(
            matches!(BitmapSuperblock::parse(&case.to_bytes()), Err(BitmapError::Field { .. })),
            "{case:?}"
        );
    }
}

#[test]
fn stale_old_or_failed_bitmaps_are_not_trusted() {
    assert!(!sample().must_resync_all(7));
    assert!(sample().must_resync_all(8));
    assert!(BitmapSuperblock { state: STALE, ..sample() }.must_resync_all(0));
    assert!(BitmapSuperblock { state: WRITE_ERROR, ..sample() }.must_resync_all(0));
}

#[test]
fn a_new_bitmap_fills_whole_pages_with_ones() {
    let bits = Bits::all_set(112).unwrap();
    assert_eq!(bits.bytes().len() + HEADER, 4096);
    assert_eq!(bits.iter_set().count(), 112);
    assert!(bits.bytes().iter().all(|&b| b == 0xff));
    assert_eq!(Bits::all_set(u64::MAX), Err(BitmapError::TooManyBits { bits: u64::MAX }));
}

#[test]
fn more_bits_than_any_bitmap_has_are_refused_before_room_is_made_for_them() {
    let most = BitmapSuperblock::new([1; 16], MAX_BITS, 512);
    assert_eq!(BitmapSuperblock::parse(&most.to_bytes()), Ok(most.clone()));
    let more = BitmapSuperblock { sync_size: MAX_BITS + 1, ..most };
    let error = BitmapSuperblock::parse(&more.to_bytes()).unwrap_err();
    assert_eq!(error, BitmapError::TooManyBits { bits: MAX_BITS + 1 });
}

#[test]
fn a_bit_that_is_not_there_counts_as_set() {
    let bits = Bits::from_area(&[0; HEADER + 1], 100);
    assert_eq!(bits.len(), 8);
    assert!(!bits.get(7));
    assert!(bits.get(8));
}

proptest! {
    #[test]
    fn any_valid_superblock_comes_back(
        ids: ([u8; 16], u64, u64, u64),
        version in 3u32..=4,
        state: u32,
        shift in 9u32..32,
        daemon_sleep in 1u32..,
        write_behind in 0u32..=16383,
        sectors_reserved: u32,
    ) {
        let (uuid, events, events_cleared, sync_size) = ids;
        let sync_size = sync_size % (MAX_BITS * (1 << (shift - 9)) + 1);
        let bitmap = BitmapSuperblock {
            version, uuid, events, events_cleared, sync_size, state,
            chunk_bytes: 1 << shift, daemon_sleep, write_behind, sectors_reserved,
        };
        prop_assert_eq!(BitmapSuperblock::parse(&bitmap.to_bytes()).unwrap(), bitmap);
    }

    #[test]
    fn no_bytes_make_it_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..300),
        real: bool,
        sectors: Range<u64>,
        bit: u64,
    ) {
        if let (true, Some(head)) = (real, bytes.first_chunk_mut::<5>()) {
            *head = [b'b', b'i', b't', b'm', 4];
        }
        if let Ok(bitmap) = BitmapSuperblock::parse(&bytes) {
            bitmap.bits_of(sectors);
            bitmap.sectors_of(bit);
            Bits::from_area(&bytes, bitmap.bits()).iter_set().count();
        }
    }

    #[test]
    fn set_and_clear_change_their_bit_only(len in 1u64..200, ops in prop::collection::vec((any::<bool>(), 0u64..220), 0..60)) {
        let mut bits = Bits::from_area(&[0; HEADER + 32], len);
        let mut model = std::collections::BTreeSet::new();
        for (set, bit) in ops {
            if set {
                let changed = bits.set(bit);
                prop_assert_eq!(changed, bit < len && model.insert(bit));
            } else {
                prop_assert_eq!(bits.clear(bit), model.remove(&bit));
            }
        }
        prop_assert_eq!(bits.iter_set().collect::<Vec<_>>(), model.into_iter().collect::<Vec<_>>());
    }
}
