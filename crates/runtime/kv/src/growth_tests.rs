//! A store that grows while it is used: nothing is lost by a power cut at any write, and a full one goes on.

use crate::crash_tests::{
    Pairs, all, apply, changes, crash_at_openings, create, in_some_order, open, stop, work,
};
use crate::database::Database;
use crate::store::{Change, StoreError};
use crate::testing::{Dice, Opened};
use braid_device::volatile::{Fuse, VolatileDisk as Disk};

const SMALL: usize = 5 << 20;
const LARGE: usize = 8 << 20;
const LARGEST: usize = 9 << 20;

/// Lays out what the first `size` bytes of the disks have more.
fn prepare(database: &Opened, disks: &[Disk], size: usize) -> Result<bool, StoreError> {
    database.prepare_growth(disks.iter().map(|disk| disk.first(size)).enumerate().collect())
}

fn first(disks: &[Disk], size: usize) -> Vec<Disk> {
    disks.iter().map(|disk| disk.first(size)).collect()
}

/// Adds pairs until the store is full, and says how many.
fn fill(database: &mut Database, held: &mut Pairs) -> u64 {
    let from = held.len() as u64;
    for number in from.. {
        let key = [&b"fill"[..], &number.to_be_bytes()].concat();
        let change: Vec<Change> = vec![(key, Some(vec![number as u8; 30_000]))];
        match database.commit(&change) {
            Ok(()) => *held = apply(held, &change),
            Err(StoreError::NoSpace) => return number - from,
            Err(error) => panic!("{error}"),
        }
    }
    0
}

#[test]
fn a_full_store_that_grows_goes_on_and_is_the_same_on_either_leg() {
    let fuse = Fuse::default();
    let disks = [Disk::new("a", LARGEST, &fuse), Disk::new("b", LARGEST, &fuse)];
    let mut database = create(&first(&disks, SMALL));
    let mut held = Pairs::new();
    assert!(fill(&mut database, &mut held) > 20);
    for size in [LARGE, LARGEST] {
        let before = database.space();
        assert_eq!(prepare(&database, &disks, size), Ok(true));
        // The prepared space is not used yet.
        assert_eq!(database.space().capacity, before.capacity);
        database.take_growth().unwrap();
        let space = database.space();
        assert!(space.capacity > before.capacity && space.used < space.capacity, "{space:?}");
        assert!(fill(&mut database, &mut held) > 20);
        assert_eq!(all(&mut database).unwrap(), held);
    }
    assert_eq!(prepare(&database, &disks, LARGEST), Ok(false));
    database.close().unwrap();
    for disk in &disks {
        assert_eq!(all(&mut open(std::slice::from_ref(disk), false).unwrap()).unwrap(), held);
        // A region without what it has grown by is none.
        assert!(open(&[disk.first(LARGE)], false).is_err());
    }
    // A new leg in one piece takes all of it.
    let database = open(&disks[..1], false).unwrap();
    let joins = Disk::new("c", LARGEST, &fuse);
    database.join(&joins).unwrap();
    drop(database);
    assert_eq!(all(&mut open(&[joins], true).unwrap()).unwrap(), held);
}

#[test]
fn a_region_grows_a_number_of_times_and_then_says_so() {
    let fuse = Fuse::default();
    let disks = [Disk::new("a", LARGEST, &fuse)];
    let database = &mut create(&first(&disks, SMALL));
    for times in 1..=15 {
        assert_eq!(prepare(database, &disks, SMALL + times * 8192), Ok(true), "{times}");
        database.take_growth().unwrap();
    }
    let error = prepare(database, &disks, LARGEST).unwrap_err();
    assert!(error.to_string().contains("has grown 15 times"), "{error}");
    database.close().unwrap();
    open(&disks, false).unwrap();
}

/// A store grows between commits, the power is cut before its operation `cut`. False: it never was.
fn survives(seed: u64, cut: u64) -> bool {
    let mut dice = Dice::new(seed);
    let fuse = Fuse::default();
    let mut disks = vec![Disk::new("a", LARGE, &fuse)];
    if dice.throw(3) > 0 {
        disks.push(Disk::new("b", LARGE, &fuse));
    }
    let mut database = create(&first(&disks, SMALL));
    let mut held = Pairs::new();
    for _ in 0..dice.throw(6) {
        let changes = changes(&mut dice);
        database.commit(&changes).unwrap();
        held = apply(&held, &changes);
    }
    fuse.set(cut);
    // As the superblocks do, that know of a leg that was detached before the store is larger.
    let grown = prepare(&database, &disks, LARGE);
    let is_whole = !fuse.is_blown();
    if is_whole {
        assert_eq!(grown, Ok(true));
        let taken = database.take_growth();
        assert!(taken.is_ok() || fuse.is_blown());
    }
    let blown = fuse.is_blown();
    let (mut acknowledged, mut under_way) = (held.clone(), held);
    if !blown {
        fuse.set(1 + dice.throw(40));
        (acknowledged, under_way) = work(&mut database, &mut dice, &fuse, acknowledged);
    }
    drop(database);
    stop(&disks, &mut dice);
    // The superblocks may name what the store has not laid out.
    crash_at_openings(&disks, &mut dice, &fuse);
    let disks = in_some_order(&disks, &mut dice);
    let mut database = open(&disks, true).unwrap_or_else(|error| panic!("{seed} {cut}: {error}"));
    let now = all(&mut database).unwrap_or_else(|error| panic!("{seed} {cut}: {error}"));
    assert!(now == acknowledged || now == under_way, "{seed} {cut}");
    // It grows after all, where it had not, and goes on.
    let legs: Vec<usize> = database.mirror.held().collect();
    let held = legs.iter().map(|leg| (*leg, disks[*leg].clone())).collect();
    database.prepare_growth(held).unwrap();
    database.take_growth().unwrap();
    let more: Vec<Change> =
        (0..120u64).map(|n| (n.to_le_bytes().to_vec(), Some(vec![n as u8; 20_000]))).collect();
    database.commit(&more).unwrap();
    let now = apply(&now, &more);
    assert_eq!(all(&mut database).unwrap(), now, "{seed} {cut}");
    database.close().unwrap();
    for leg in legs {
        let mut alone = open(&disks[leg..=leg], false).unwrap();
        assert_eq!(all(&mut alone).unwrap(), now, "{seed} {cut}");
    }
    blown
}

#[test]
fn a_power_cut_at_any_write_of_a_growth_costs_nothing() {
    for seed in 0..4 {
        let cuts = (1..).take_while(|cut| survives(seed, *cut)).count();
        assert!(cuts > 6, "seed {seed}: {cuts}");
    }
}
