use super::meta::block_checksum;
use super::*;

const UUID: [u8; 16] = *b"0123456789abcdef";

fn seed() -> Seed {
    Seed::of(&UUID)
}

fn data(location: u64) -> Payload {
    Payload::Data { location, checksum: 1 }
}

fn parity(location: u64) -> Payload {
    Payload::Parity { location, p: 2, q: None }
}

/// A ring of 10 blocks and the meta blocks in it.
fn ring(metas: &[Meta]) -> Vec<u8> {
    let mut ring = vec![0; 10 * BLOCK];
    for meta in metas {
        let at = meta.position as usize * 512;
        ring[at..at + BLOCK].copy_from_slice(&meta.to_bytes(seed()).unwrap());
    }
    ring
}

fn walk(ring: &[u8], tail: u64) -> (Walk, Vec<Found>, End) {
    let mut walk = Walk::new(&UUID, 80 + 7, tail).unwrap();
    let mut all = Vec::new();
    loop {
        match walk.step(&ring[walk.position() as usize * 512..]) {
            Ok(found) => all.push(found),
            Err(end) => return (walk, all, end),
        }
    }
}

#[test]
fn a_meta_block_is_read_back() {
    let payloads = vec![
        data(8),
        Payload::Parity { location: 16, p: 3, q: Some(4) },
        Payload::Flush { rows: vec![1, 2, 3] },
        parity(24),
    ];
    let meta = Meta { seq: 9, position: 64, payloads };
    let bytes = meta.to_bytes(seed()).unwrap();
    assert_eq!(Meta::parse(&bytes, seed()), Ok(meta.clone()));
    assert_eq!(meta.checksums().collect::<Vec<_>>(), [1, 3, 4, 2]);
    assert_eq!(u32::from_le_bytes(bytes[12..16].try_into().unwrap()), 32 + 20 + 24 + 32 + 20);
    let full = Meta { payloads: vec![data(0); 204], ..meta };
    assert_eq!(full.to_bytes(seed()), None);
}

#[test]
fn what_is_no_meta_block_of_the_array_is_told() {
    let error = |change: &dyn Fn(&mut [u8])| {
        let mut block =
            Meta { seq: 1, position: 0, payloads: vec![data(8)] }.to_bytes(seed()).unwrap();
        change(&mut block);
        let checksum = block_checksum(&block, seed());
        block[4..8].copy_from_slice(&checksum.to_le_bytes());
        Meta::parse(&block, seed()).unwrap_err()
    };
    assert!(matches!(error(&|block| block[0] = 0), MetaError::NoMagic { .. }));
    assert!(matches!(error(&|block| block[8] = 2), MetaError::Version { found: 2 }));
    for size in [31u32, 4097, u32::MAX] {
        let wrong = error(&|block| block[12..16].copy_from_slice(&size.to_le_bytes()));
        assert_eq!(wrong, MetaError::MetaSize { found: size });
    }
    // Half a payload, an unknown one, data of another size, a flush of more rows than there are.
    let half = error(&|block| block[12] = 36);
    assert!(matches!(half, MetaError::Payload { at: 32, .. }), "{half}");
    assert!(matches!(error(&|block| block[32] = 3), MetaError::Payload { kind: 3, .. }));
    assert!(matches!(error(&|block| block[36] = 16), MetaError::Payload { kind: 0, size: 16, .. }));
    assert!(matches!(
        error(&|block| block[32..40].copy_from_slice(&[2, 0, 0, 0, 16, 0, 0, 0])),
        MetaError::Payload { .. }
    ));
    let other = Meta::empty(1, 0).to_bytes(Seed::of(&[1; 16])).unwrap();
    assert!(matches!(Meta::parse(&other, seed()), Err(MetaError::Checksum { .. })));
    assert_eq!(Meta::parse(&other[..4095], seed()), Err(MetaError::TooShort { have: 4095 }));
}

#[test]
fn a_walk_follows_the_sequence_round_the_ring() {
    let first = Meta {
        seq: 5,
        position: 56,
        payloads: vec![data(8), parity(8), Payload::Flush { rows: vec![] }],
    };
    let second = Meta { seq: 6, position: 0, payloads: vec![data(16)] };
    let stale = Meta { seq: 4, position: 16, payloads: vec![] };
    let ring = ring(&[first.clone(), second.clone(), stale]);
    let (walk, found, end) = walk(&ring, 56);
    assert_eq!(
        found,
        [Found { meta: first, blocks: vec![64, 72] }, Found { meta: second, blocks: vec![8] }]
    );
    assert_eq!(end, End::Sequence { found: 4, want: 7 });
    assert_eq!((walk.position(), walk.seq()), (16, Some(7)));
}

#[test]
fn a_log_ends_before_a_block_that_belongs_elsewhere_or_would_overlap() {
    let mut ring_of = ring(&[Meta::empty(5, 0)]);
    ring_of.copy_within(0..BLOCK, 8 * 512);
    let (_, found, end) = walk(&ring_of, 8);
    assert_eq!((found.len(), end), (0, End::Position { at: 8, found: 0 }));
    let whole = Meta { seq: 1, position: 0, payloads: vec![data(8); 9] };
    let (_, found, end) = walk(&ring(std::slice::from_ref(&whole)), 0);
    assert_eq!((found.len(), end), (1, End::Sequence { found: 1, want: 2 }));
    let over = Meta { payloads: vec![data(8); 10], ..whole };
    let (walk, found, end) = walk(&ring(&[over]), 0);
    assert_eq!((found.len(), end, walk.seq()), (0, End::Full, None));
}

#[test]
fn a_tail_outside_of_the_ring_is_refused() {
    for tail in [80, 4, u64::MAX] {
        assert_eq!(Walk::new(&UUID, 87, tail).unwrap_err(), WalkError { tail, ring: 80 });
    }
    assert!(Walk::new(&UUID, 7, 0).is_err());
    assert!(Walk::new(&UUID, u64::MAX, u64::MAX - 15).is_ok());
}

/// Rows of two data blocks: array sectors 0 and 8 are row 0, 16 and 24 row 8.
fn gather(metas: Vec<Vec<Payload>>) -> (u64, Vec<StripeWrite>, Vec<StripeWrite>) {
    let mut recovery = Recovery::new(64, |sector: u64| (sector < 128).then_some(sector / 16 * 8));
    let mut place = 0;
    for payloads in metas {
        let meta = Meta { seq: 0, position: 0, payloads };
        let blocks = meta
            .checksums()
            .map(|_| {
                place += 8;
                place
            })
            .collect();
        recovery.take(&Found { meta, blocks });
    }
    let refused = recovery.refused();
    let (complete, cached) = recovery.finish();
    (refused, complete, cached)
}

fn write(row: u64, data: &[(u64, u64)], p: Option<u64>) -> StripeWrite {
    StripeWrite { row, data: data.to_vec(), p, q: None }
}

#[test]
fn rows_with_parity_are_written_and_rows_without_stay_cached() {
    let (refused, complete, cached) =
        gather(vec![vec![data(0), data(16), data(0)], vec![parity(0), parity(56)]]);
    // Of two blocks for one place the later counts; parity alone belongs to nothing.
    assert_eq!(complete, [write(0, &[(0, 24)], Some(32))]);
    assert_eq!(cached, [write(8, &[(16, 16)], None)]);
    assert_eq!(refused, 0);
}

#[test]
fn data_after_parity_begins_a_new_round_of_the_row() {
    let (_, complete, cached) = gather(vec![vec![data(0), parity(0), data(8)]]);
    assert_eq!(complete, [write(0, &[(0, 8)], Some(16))]);
    assert_eq!(cached, [write(0, &[(8, 24)], None)]);
}

#[test]
fn parity_without_data_is_dropped_also_when_data_follows() {
    let (_, complete, cached) = gather(vec![vec![parity(0), data(8)]]);
    assert_eq!((complete, cached), (vec![], vec![write(0, &[(8, 16)], None)]));
}

#[test]
fn flushed_rows_are_forgotten() {
    let (_, complete, cached) = gather(vec![
        vec![data(0), parity(0), data(16)],
        vec![Payload::Flush { rows: vec![0, 8, 99] }],
    ]);
    assert_eq!((complete, cached), (vec![], vec![]));
}

#[test]
fn places_outside_of_the_array_are_refused_and_the_rest_stays_in_step() {
    let (refused, complete, _) =
        gather(vec![vec![data(128), parity(64), parity(4), data(0), parity(0)]]);
    assert_eq!(refused, 3);
    assert_eq!(complete, [write(0, &[(0, 32)], Some(40))]);
}
