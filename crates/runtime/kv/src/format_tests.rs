//! The bytes of a region, as they are on the disks of users: of our own image, and of redb's file in it. A version of either
//! that cannot go on with what an earlier one has written must not get past these tests.

use crate::store::Change;
use crate::testing::Opened;
use braid_device::volatile::{Fuse, VolatileDisk};
use braid_mirror::{BLOCK, Open};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::Command;

const CACHE: usize = 1 << 20;
const SIZE: usize = 6 << 20;

/// Of the first program whose regions later ones have to read: closed as it should be, and left in the middle.
const FIXTURES: [(&str, &[u8]); 2] = [
    ("region-closed.xz", include_bytes!("../tests/fixtures/region-closed.xz")),
    ("region-left.xz", include_bytes!("../tests/fixtures/region-left.xz")),
];

fn disk(bytes: Vec<u8>) -> VolatileDisk {
    let disk = VolatileDisk::new("shown", bytes.len(), &Fuse::default());
    disk.set_bytes(bytes);
    disk
}

fn open(disk: &VolatileDisk, how: Open) -> Opened {
    Opened::new(std::slice::from_ref(disk), how, CACHE).unwrap()
}

fn key(n: u32) -> Vec<u8> {
    let mut key = n.to_be_bytes().to_vec();
    key.resize(4 + n as usize % 60, b'k');
    key
}

/// From nothing to more than a page.
fn value(n: u32, round: u32) -> Vec<u8> {
    let len = (n * 37 % 400) + if n % 50 == 7 { 9000 } else { 0 };
    (0..len).map(|at| (at * 7 + n + round) as u8).collect()
}

/// The rounds of changes, each a commit: new pairs, others, fewer.
fn rounds() -> Vec<Vec<Change>> {
    let put = |n: u32, round: u32| (key(n), Some(value(n, round)));
    (0..6)
        .map(|round| match round % 3 {
            0 => (0..300).map(|n| put(n + round * 100, round)).collect(),
            1 => (0..600).step_by(7).map(|n| put(n, round)).collect(),
            _ => (0..600).step_by(5).map(|n| (key(n + round), None)).collect(),
        })
        .collect()
}

/// The pairs after all rounds.
fn expected() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pairs = BTreeMap::new();
    for (key, value) in rounds().into_iter().flatten() {
        match value {
            Some(value) => pairs.insert(key, value),
            None => pairs.remove(&key),
        };
    }
    pairs.into_iter().collect()
}

/// A region after all rounds.
fn written(close: bool) -> Vec<u8> {
    let region = disk(vec![0; SIZE / BLOCK * BLOCK]);
    let mut database = open(&region, Open::Create);
    rounds().iter().for_each(|changes| database.commit(changes).unwrap());
    let left = region.bytes();
    database.close().unwrap();
    if close { region.bytes() } else { left }
}

#[test]
fn regions_of_the_first_version_are_read_and_written_on() {
    for (name, packed) in FIXTURES {
        let mut bytes = Vec::new();
        lzma_rust2::XzReader::new(packed, false).read_to_end(&mut bytes).unwrap();
        let region = disk(bytes);
        let open = || open(&region, Open::AfterCrash);
        let mut database = open();
        assert!(database.scan(b"", &[0xff; 9], usize::MAX).unwrap() == expected(), "{name}");
        database.commit(&[(b"more".to_vec(), Some(vec![1; 5000]))]).unwrap();
        database.close().unwrap();
        let mut database = open();
        let found = database.scan(b"", &[0xff; 9], usize::MAX).unwrap();
        assert_eq!(found.len(), expected().len() + 1, "{name}");
        assert_eq!(database.get(b"more").unwrap(), Some(vec![1; 5000]), "{name}");
        database.close().unwrap();
    }
}

#[test]
#[ignore = "writes the fixtures anew, which later versions of this program have to read"]
fn write_fixtures() {
    for (name, _) in FIXTURES {
        let unpacked = name.trim_end_matches(".xz");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(unpacked);
        std::fs::write(&path, written(name.contains("closed"))).unwrap();
        let packed = Command::new("xz").arg("--force").arg(&path).status().unwrap();
        assert!(packed.success(), "xz: {packed}");
    }
}
