use super::*;
use crate::crc;

const UUID: [u8; 16] = *b"0123456789abcdef";
/// Chunk of 64 KiB, 4 slots, 100 stripes.
const SHAPE: Shape = Shape { chunk_sectors: 128, raid_disks: 4, size: 12_800 };

fn entry(data_sector: u64, pp_size: u32, data_size: u32, partial: &[u8]) -> Entry {
    let checksum = crc::checksum(partial);
    Entry { data_sector, pp_size, data_size, parity_disk: 2, checksum }
}

/// Units one after the other, in an area of 1 MiB.
fn area(units: &[(Header, Vec<u8>)]) -> Vec<u8> {
    let mut area: Vec<u8> = Vec::new();
    for (header, partial) in units {
        area.extend(header.to_bytes(&UUID));
        area.extend(partial);
    }
    area.resize(1 << 20, 0);
    area
}

fn unit(generation: u64, entries: Vec<Entry>, partial: Vec<u8>) -> (Header, Vec<u8>) {
    (Header { generation, entries }, partial)
}

fn read(area: &[u8]) -> Recovered<'_> {
    recover(area, &UUID, &SHAPE, 2, |_| 2)
}

#[test]
fn a_header_is_read_back() {
    let entries: Vec<Entry> = (0..148).map(|i| entry(i, 512, 4096, b"")).collect();
    let header = Header { generation: 7, entries };
    assert_eq!(Header::parse(&header.to_bytes(&UUID), &UUID), Ok(header.clone()));
    assert_eq!(header.unit_sectors(), 8 + 148);
    let empty = empty_header(&UUID);
    assert_eq!(Header::parse(&empty, &UUID), Ok(Header::default()));
    assert!(empty[..512].iter().all(|byte| *byte == 0xff));
}

#[test]
fn what_is_no_header_of_the_array_is_told() {
    let bytes = empty_header(&UUID);
    let parse = |bytes: &[u8]| Header::parse(bytes, &UUID).unwrap_err();
    assert_eq!(parse(&bytes[..4095]), PplError::TooShort { have: 4095 });
    assert!(matches!(parse(&[0; 4096]), PplError::Checksum { stored: 0, .. }));
    let other = Header::default().to_bytes(&[9; 16]);
    assert!(matches!(parse(&other), PplError::Signature { .. }));
    let mut many = bytes;
    many[528..532].copy_from_slice(&149u32.to_le_bytes());
    many[532..536].fill(0);
    let checksum = crc::checksum(&many);
    many[532..536].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(parse(&many), PplError::EntriesCount { found: 149 });
}

#[test]
fn the_newest_unit_is_the_last_with_a_growing_generation() {
    let one = |generation| unit(generation, vec![entry(0, 4096, 4096, &[1; 4096])], vec![1; 4096]);
    let units = area(&[one(3), one(5), one(9), one(8), one(10)]);
    let newest = newest(&units, &UUID).unwrap();
    assert_eq!((newest.sector, newest.header.generation), (32, 9));
    assert_eq!(newest.partial_parity, [1; 4096]);
    assert_eq!(super::newest(&[0; 65536], &UUID), None);
}

#[test]
fn rows_chunks_and_partial_parity_of_an_entry() {
    // Stripe 1, data chunks 1 and 2, 8 sectors from row 16 on.
    let partial = vec![7; 4096];
    let some = entry(384 + 128 + 16, 4096, 8192, &partial);
    // Stripe 2, all of it.
    let all = entry(768, 0, 3 * 65536, b"");
    let area = area(&[unit(1, vec![some, all], partial.clone())]);
    let recovered = read(&area);
    assert_eq!(recovered.mismatches, []);
    let want = [
        Replay {
            stripe: 1,
            rows: 144..152,
            data: 1..3,
            parity_slot: 2,
            partial_parity: Some(&partial[..]),
        },
        Replay { stripe: 2, rows: 256..384, data: 0..3, parity_slot: 2, partial_parity: None },
    ];
    assert_eq!(recovered.replays, want);
    assert!(clean_after([&recovered]));
}

#[test]
fn impossible_entries_are_mismatches_and_nothing_of_them_is_replayed() {
    use Mismatch as M;
    let one = |bad: Entry, partial: &[u8]| {
        let area = area(&[unit(1, vec![bad], partial.to_vec())]);
        let mut recovered = read(&area);
        assert_eq!(recovered.replays, []);
        assert!(!clean_after([&recovered]));
        recovered.mismatches.pop().unwrap()
    };
    let page = [7; 4096];
    let good = entry(528, 4096, 8192, &page);
    let slot = one(Entry { parity_disk: 1, ..good }, &page);
    assert!(matches!(slot, M::ParitySlot { stripe: 1, found: 1, right: 2, .. }), "{slot}");
    let damaged = one(Entry { checksum: 0, ..good }, &page);
    assert!(matches!(damaged, M::Checksum { entry: 0, .. }), "{damaged}");
    for (pp_size, data_size) in
        [(4096, 0), (4096, 4097), (0, 0), (0, 4096), (4096, 16384), (100, 100)]
    {
        let sizes = one(Entry { pp_size, data_size, ..good }, &page);
        assert!(matches!(sizes, M::Sizes { .. }), "{sizes}");
    }
    for (data_sector, pp_size, data_size) in [
        // Stripe 100, chunk 3 of 3, rows beyond the chunk, whole rows that begin at chunk 1, overflow.
        (38_400, 4096, 4096),
        (384 + 256, 4096, 8192),
        (384 + 121, 4096, 4096),
        (384 + 128, 0, 3 * 4096),
        (u64::MAX, 4096, 4096),
    ] {
        let place = one(Entry { data_sector, pp_size, data_size, ..good }, &page);
        assert!(matches!(place, M::Place { .. }), "{place}");
    }
    // Partial parity that would reach beyond the area.
    let long = one(Entry { data_sector: 384, pp_size: 65536, data_size: 65536, ..good }, &[]);
    assert!(matches!(long, M::Checksum { .. }), "{long}");
}

#[test]
fn an_empty_log_that_was_in_use_leaves_the_array_clean() {
    let empty = area(&[unit(1, vec![], vec![])]);
    let recovered = read(&empty);
    assert!(recovered.replays.is_empty() && clean_after([&recovered, &Recovered::default()]));
}

#[test]
fn rows_of_a_damaged_entry_are_in_doubt_and_those_of_the_others_are_replayed() {
    let page = [7; 4096];
    let (good, other) = (entry(528, 4096, 8192, &page), entry(384, 4096, 4096, &[1; 4096]));
    let area = area(&[unit(4, vec![good, other], [page, [2; 4096]].concat())]);
    let recovered = read(&area);
    assert_eq!(recovered.replays.len(), 1);
    let doubt = &recovered.in_doubt[0];
    assert_eq!((doubt.rows.clone(), doubt.data.clone()), (128..136, 0..3));
    assert!(matches!(recovered.mismatches[..], [Mismatch::Checksum { entry: 1, .. }]));
}

#[test]
fn a_log_that_says_nothing_leaves_the_array_dirty() {
    let empty = area(&[unit(0, vec![], vec![])]);
    let recovered = read(&empty);
    assert_eq!((&recovered.replays[..], &recovered.mismatches[..]), (&[][..], &[][..]));
    assert!(!clean_after([&recovered]));
    let nothing = vec![0; 1 << 20];
    assert_eq!(read(&nothing).mismatches, [Mismatch::NoHeader { slot: 2 }]);
}
