//! Power cuts, damage and lost legs: what a database holds afterwards.

use crate::database::Database;
use crate::store::{Change, StoreError};
use crate::testing::{Dice, Opened, cut, region};
use braid_device::volatile::{Fuse, VolatileDisk as Disk};
use braid_mirror::Open;
use std::collections::BTreeMap;

const SIZE: usize = 5 << 20;
pub(crate) const CACHE: usize = 1 << 20;

pub(crate) type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn create(disks: &[Disk]) -> Opened {
    Opened::new(disks, Open::Create, CACHE).unwrap()
}

pub(crate) fn open(disks: &[Disk], compare: bool) -> Result<Opened, StoreError> {
    let how = if compare { Open::AfterCrash } else { Open::AfterStop };
    Opened::new(disks, how, CACHE)
}

pub(crate) fn all(database: &mut Database) -> Result<Pairs, StoreError> {
    Ok(database.scan(b"", &[0xff; 8], usize::MAX)?.into_iter().collect())
}

pub(crate) fn apply(pairs: &Pairs, changes: &[Change]) -> Pairs {
    let mut pairs = pairs.clone();
    for (key, value) in changes {
        match value {
            Some(value) => pairs.insert(key.clone(), value.clone()),
            None => pairs.remove(key),
        };
    }
    pairs
}

/// The same disks, the one or the other first.
pub(crate) fn in_some_order(disks: &[Disk], dice: &mut Dice) -> Vec<Disk> {
    let mut disks = disks.to_vec();
    if dice.throw(2) == 0 {
        disks.reverse();
    }
    disks
}

/// A commit of a few changes, or of many.
pub(crate) fn changes(dice: &mut Dice) -> Vec<Change> {
    let count = if dice.throw(4) == 0 { 1 + dice.throw(300) } else { 1 + dice.throw(8) };
    let mut changes = BTreeMap::new();
    for _ in 0..count {
        let key = dice.throw(400).to_be_bytes().to_vec();
        let len = if dice.throw(20) == 0 { dice.throw(20_000) } else { dice.throw(200) };
        let value = vec![dice.throw(256) as u8; len as usize];
        changes.insert(key, (dice.throw(4) > 0).then_some(value));
    }
    changes.into_iter().collect()
}

/// Commits until the power goes. Gives what was acknowledged, and what was under way.
pub(crate) fn work(
    database: &mut Database,
    dice: &mut Dice,
    fuse: &Fuse,
    held: Pairs,
) -> (Pairs, Pairs) {
    work_and_rest(database, dice, fuse, held, 0)
}

/// The same; after each commit the database is settled with a chance of one in `rests`; 0: never.
fn work_and_rest(
    database: &mut Database,
    dice: &mut Dice,
    fuse: &Fuse,
    held: Pairs,
    rests: u64,
) -> (Pairs, Pairs) {
    let mut acknowledged = held;
    loop {
        if rests > 0 && dice.throw(rests) == 0 {
            let settled = database.settle();
            if fuse.is_blown() {
                return (acknowledged.clone(), acknowledged);
            }
            assert_eq!(settled, Ok(()));
        }
        let changes = changes(dice);
        let after = apply(&acknowledged, &changes);
        let result = database.commit(&changes);
        // A leg that was detached would have to be noted first, and then there is no power.
        if fuse.is_blown() {
            return (acknowledged, after);
        }
        assert_eq!(result, Ok(()));
        acknowledged = after;
    }
}

/// The power goes; or only the process dies, and the disks' caches live on.
pub(crate) fn stop(disks: &[Disk], dice: &mut Dice) {
    if dice.throw(3) > 0 {
        disks.iter().for_each(|disk| cut(disk, dice));
    }
}

/// A leg that was detached because it was being made equal to the other becomes one again.
fn join_again(database: &Opened, disks: &[Disk]) {
    for detached in database.mirror.take_detached() {
        assert!(detached.why.contains("being made equal"), "{}", detached.why);
        let disk = disks.iter().find(|disk| disk.name() == detached.name).unwrap();
        database.join(disk).unwrap();
    }
}

/// The power may go again, before all is repaired; and any leg may be the first. In the end it stays.
pub(crate) fn crash_at_openings(disks: &[Disk], dice: &mut Dice, fuse: &Fuse) {
    while dice.throw(3) == 0 {
        fuse.set(1 + dice.throw(60));
        drop(open(&in_some_order(disks, dice), true));
        stop(disks, dice);
    }
    fuse.mend();
}

fn survives(seed: u64, most: usize) {
    survives_with_rests(seed, most, 0);
}

/// Gives how often a start after a crash read everything, and how often not.
fn survives_with_rests(seed: u64, most: usize, rests: u64) -> (u32, u32) {
    let (mut repaired, mut not) = (0, 0);
    let mut dice = Dice::new(seed);
    let fuse = Fuse::default();
    let mut disks = vec![Disk::new("a", SIZE, &fuse)];
    for name in ["b", "c"].iter().take(most - 1) {
        if dice.throw(2) == 0 || most == 3 {
            disks.push(Disk::new(name, SIZE, &fuse));
        }
    }
    let mut database = create(&disks);
    let mut held = Pairs::new();
    for _ in 0..1 + dice.throw(4) {
        // Often before anything is committed: then what the last start has shown must be shown again.
        let most = [10, 400][dice.throw(2) as usize];
        fuse.set(1 + dice.throw(most));
        let (acknowledged, under_way) = work_and_rest(&mut database, &mut dice, &fuse, held, rests);
        drop(database);
        stop(&disks, &mut dice);
        crash_at_openings(&disks, &mut dice, &fuse);
        let mut again = open(&in_some_order(&disks, &mut dice), true)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        match again.with_storage(|storage| storage.was_repaired).unwrap() {
            true => repaired += 1,
            false => not += 1,
        }
        join_again(&again, &disks);
        held = all(&mut again).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(
            held == acknowledged || held == under_way,
            "seed {seed}: neither what was acknowledged nor what was under way"
        );
        database = again;
    }
    database.close().unwrap();
    for disk in &disks {
        let mut alone = open(std::slice::from_ref(disk), false).unwrap();
        assert_eq!(all(&mut alone).unwrap(), held, "seed {seed}");
    }
    (repaired, not)
}

#[test]
fn a_power_cut_beside_a_rest_leaves_the_last_commit_or_the_one_under_way() {
    let (mut repaired, mut not) = (0, 0);
    for seed in 0..90 {
        // At each commit, or at some.
        let (some, others) = survives_with_rests(seed, 1 + (seed % 3) as usize, 1 + seed % 2 * 2);
        (repaired, not) = (repaired + some, not + others);
    }
    assert!(repaired > 20 && not > 20, "{repaired} {not}");
}

#[test]
fn a_power_cut_leaves_the_last_commit_or_the_one_under_way() {
    // The last ones found that a repair's own commit, which one leg could not take part in, gave up the older root.
    for seed in (0..30).chain([225, 382]) {
        survives(seed, 2);
    }
    for seed in 0..30 {
        survives(seed, 3);
    }
}

#[test]
fn a_repair_relies_on_nothing_that_is_in_a_cache_only() {
    let mut dice = Dice::new(1);
    let fuse = Fuse::default();
    let disks = [Disk::new("a", SIZE, &fuse)];
    let before = filled(&disks, &mut dice);
    let changes = changes(&mut dice);
    let after = apply(&before, &changes);
    let mut database = open(&disks, false).unwrap();
    // The process dies in the commit's flush: all of it is in the cache. The database flushes before it repairs.
    disks[0].refuse_flushes(true);
    assert!(database.commit(&changes).is_err());
    drop(database);
    disks[0].refuse_flushes(false);
    for round in 0..60 {
        // The power goes when the next process has begun to repair.
        let disk = [disks[0].fork()];
        fuse.set(1 + round % 4);
        drop(open(&disk, true));
        cut(&disk[0], &mut dice);
        fuse.mend();
        let mut again = open(&disk, true).unwrap_or_else(|error| panic!("cut {round}: {error}"));
        let held = all(&mut again).unwrap();
        assert!(held == before || held == after, "cut {round}");
    }
}

/// Seeds of [`many_power_cuts`]: as many as the variable `SEEDS` says.
fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("SEEDS").ok().and_then(|text| text.parse::<u64>().ok());
    30..30 + count.unwrap_or(500)
}

/// Minutes: after a change of this crate, as CONTRIBUTING.md says.
#[test]
#[ignore = "takes minutes"]
fn many_power_cuts() {
    for seed in seeds() {
        survives(seed, 2 + (seed % 2) as usize);
        survives_with_rests(seed, 1 + (seed % 3) as usize, 1 + seed % 5);
        survives_a_join(seed);
        survives_a_creation(seed);
    }
}

/// A closed database of some hundred pairs, and what it holds.
fn filled(disks: &[Disk], dice: &mut Dice) -> Pairs {
    let mut database = create(disks);
    let mut held = Pairs::new();
    for _ in 0..12 {
        let changes = changes(dice);
        database.commit(&changes).unwrap();
        held = apply(&held, &changes);
    }
    database.close().unwrap();
    held
}

/// Flips bits in some of the blocks that hold anything.
fn damage(disk: &Disk, dice: &mut Dice) {
    let mut bytes = disk.bytes();
    for _ in 0..1 + dice.throw(4) {
        let block = (0..1000).map(|_| dice.throw((SIZE / 4096) as u64) as usize * 4096);
        let used = block.into_iter().find(|at| bytes[*at..at + 4096].iter().any(|b| *b != 0));
        let at = used.unwrap_or(0) + dice.throw(4096) as usize;
        let len = 1 + dice.throw(64) as usize;
        let end = (at + len).min(SIZE);
        bytes[at..end].iter_mut().for_each(|byte| *byte ^= 1 << dice.throw(8));
    }
    disk.set_bytes(bytes);
}

#[test]
fn damage_is_an_error_and_never_another_content() {
    let (mut sound, mut refused) = (0, 0);
    for seed in 0..60 {
        let mut dice = Dice::new(seed);
        let disk = Disk::new("a", SIZE, &Fuse::default());
        let held = filled(std::slice::from_ref(&disk), &mut dice);
        damage(&disk, &mut dice);
        let read = open(std::slice::from_ref(&disk), seed % 2 == 0);
        match read.and_then(|mut database| all(&mut database)) {
            Ok(pairs) => {
                assert_eq!(pairs, held, "seed {seed}");
                sound += 1;
            }
            Err(StoreError::Damaged(_)) => refused += 1,
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(sound > 2 && refused > 2, "{sound} {refused}");
}

#[test]
fn what_one_leg_has_lost_is_mended_from_the_other() {
    let mut mended = 0;
    for seed in 0..20 {
        let mut dice = Dice::new(seed);
        let fuse = Fuse::default();
        let disks = [Disk::new("a", SIZE, &fuse), Disk::new("b", SIZE, &fuse)];
        let held = filled(&disks, &mut dice);
        let hurt = dice.throw(2) as usize;
        damage(&disks[hurt], &mut dice);
        let mut database = open(&disks, seed % 3 == 0).unwrap();
        assert_eq!(all(&mut database).unwrap(), held, "seed {seed}");
        mended += database.mirror.mended();
        database.close().unwrap();
    }
    assert!(mended > 5, "{mended}");
}

#[test]
fn a_leg_whose_header_is_damaged_is_detached_and_the_other_is_used() {
    for hurt in 0..2 {
        for compare in [false, true] {
            let fuse = Fuse::default();
            let disks = [Disk::new("a", SIZE, &fuse), Disk::new("b", SIZE, &fuse)];
            let held = filled(&disks, &mut Dice::new(5));
            let mut bytes = disks[hurt].bytes();
            bytes[..4096].fill(0);
            disks[hurt].set_bytes(bytes);
            let mut database = open(&disks, compare).unwrap();
            assert_eq!(all(&mut database).unwrap(), held);
            let dropped = database.mirror.take_detached();
            assert_eq!(dropped.iter().map(|dropped| dropped.leg).collect::<Vec<_>>(), [hurt]);
            assert!(dropped[0].why.contains("holds no store"), "{}", dropped[0].why);
        }
    }
}

#[test]
fn a_leg_that_fails_is_detached_and_the_other_has_everything() {
    for failing in 0..2 {
        let fuse = Fuse::default();
        let disks = [Disk::new("a", SIZE, &fuse), Disk::new("b", SIZE, &fuse)];
        let mut dice = Dice::new(7);
        let mut database = create(&disks);
        let first = changes(&mut dice);
        database.commit(&first).unwrap();
        disks[failing].fail();
        let second = changes(&mut dice);
        database.commit(&second).unwrap();
        let dropped = database.mirror.take_detached();
        assert_eq!(dropped.len(), 1);
        assert_eq!(dropped[0].leg, failing);
        assert!(dropped[0].why.contains("medium error"), "{}", dropped[0].why);
        database.close().unwrap();
        let other = std::slice::from_ref(&disks[1 - failing]);
        let held = apply(&apply(&Pairs::new(), &first), &second);
        assert_eq!(all(&mut open(other, false).unwrap()).unwrap(), held);
    }
}

#[test]
fn a_block_that_the_first_leg_cannot_read_is_had_from_the_second() {
    let fuse = Fuse::default();
    let disks = [Disk::new("a", SIZE, &fuse), Disk::new("b", SIZE, &fuse)];
    let held = filled(&disks, &mut Dice::new(3));
    (4..60).for_each(|block| disks[0].make_unreadable(block * 4096));
    for compare in [false, true] {
        let mut database = open(&disks, compare).unwrap();
        assert_eq!(all(&mut database).unwrap(), held);
    }
    let alone = open(&disks[..1], false).and_then(|mut database| all(&mut database));
    assert!(matches!(alone, Err(StoreError::Failed(_))), "{alone:?}");
}

#[test]
fn a_leg_that_was_being_made_equal_to_the_other_is_not_taken_for_a_store() {
    let fuse = Fuse::default();
    let unequal = [Disk::new("a", SIZE, &fuse), Disk::new("b", SIZE, &fuse)];
    let mut dice = Dice::new(9);
    let mut held = filled(&unequal, &mut dice);
    // Commits, and what the database does after them, come to the first only.
    let mut database = open(&unequal[..1], false).unwrap();
    for _ in 0..3 {
        let changes = changes(&mut dice);
        database.commit(&changes).unwrap();
        held = apply(&held, &changes);
    }
    drop(database);
    let (mut interrupted, mut alone) = (0, 0);
    for cut in (1..20).chain((20..).step_by(11)) {
        let disks = [unequal[0].fork(), unequal[1].fork()];
        fuse.set(cut);
        drop(open(&disks, true));
        let whole = !fuse.is_blown();
        fuse.mend();
        // Without the other it is as good as the database finds it.
        if let Ok(mut database) = open(&[disks[1].fork()], true) {
            alone += 1;
            all(&mut database).unwrap();
        }
        let reversed = [disks[1].clone(), disks[0].clone()];
        let mut database =
            open(&reversed, true).unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        let dropped = database.mirror.take_detached();
        interrupted += dropped.len();
        if dropped.is_empty() && !whole {
            continue;
        }
        assert_eq!(all(&mut database).unwrap(), held, "cut {cut}");
        if whole {
            break;
        }
    }
    assert!(interrupted > 5 && alone > 1, "{interrupted} {alone}");
}

/// The content of a disk before a store is made on it, or copied to it: zeroes, garbage, or another store.
fn left_over(disk: &Disk, dice: &mut Dice) -> Pairs {
    match dice.throw(3) {
        0 => Pairs::new(),
        1 => {
            disk.set_bytes(vec![0x5a; SIZE]);
            Pairs::new()
        }
        _ => filled(std::slice::from_ref(disk), dice),
    }
}

/// The power is cut while the second leg is made. As long as nobody was told that it is whole, only the first counts.
fn survives_a_join(seed: u64) {
    let mut dice = Dice::new(seed);
    let fuse = Fuse::default();
    let disks = [Disk::new("a", SIZE, &fuse), Disk::new("b", SIZE, &fuse)];
    left_over(&disks[1], &mut dice);
    let held = filled(&disks[..1], &mut dice);
    let mut database = open(&disks[..1], false).unwrap();
    fuse.set(1 + dice.throw(60));
    let mut next = Some(database.mirror.join(region(disks[1].device())).unwrap());
    let (mut acknowledged, mut under_way) = (held.clone(), held);
    let mut joined = false;
    while !fuse.is_blown() {
        if dice.throw(2) == 0 {
            let changes = changes(&mut dice);
            under_way = apply(&acknowledged, &changes);
            let done = database.commit(&changes);
            if !fuse.is_blown() {
                done.unwrap();
                acknowledged.clone_from(&under_way);
            }
        } else if let Some(joining) = next.take() {
            let copied = database.step(joining);
            if !fuse.is_blown() {
                next = copied.unwrap();
                joined = next.is_none();
            }
        }
    }
    drop(next);
    drop(database);
    disks.iter().for_each(|disk| cut(disk, &mut dice));
    fuse.mend();
    let current = if joined { in_some_order(&disks, &mut dice) } else { disks[..1].to_vec() };
    let mut database = open(&current, true).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let held = all(&mut database).unwrap();
    assert!(held == acknowledged || held == under_way, "seed {seed}");
    if !joined {
        database.join(&disks[1]).unwrap();
    }
    database.close().unwrap();
    for disk in &disks {
        let mut alone = open(std::slice::from_ref(disk), false).unwrap();
        assert_eq!(all(&mut alone).unwrap(), held, "seed {seed}");
    }
}

#[test]
fn a_power_cut_while_a_leg_joins_costs_nothing() {
    for seed in 0..40 {
        survives_a_join(seed);
    }
}

/// The power is cut while a store is made: what is there then is no store, or an empty one, or what was there before.
fn survives_a_creation(seed: u64) {
    let mut dice = Dice::new(seed);
    let fuse = Fuse::default();
    let mut disks = vec![Disk::new("a", SIZE, &fuse)];
    let before = left_over(&disks[0], &mut dice);
    if dice.throw(2) == 0 {
        disks.push(Disk::new("b", SIZE, &fuse));
        left_over(&disks[1], &mut dice);
    }
    fuse.set(1 + dice.throw(30));
    let made = Opened::new(&disks, Open::Create, CACHE);
    let whole = made.is_ok() && !fuse.is_blown();
    drop(made);
    disks.iter().for_each(|disk| cut(disk, &mut dice));
    fuse.mend();
    let found = open(&disks[..1], true).and_then(|mut database| all(&mut database));
    match found {
        Ok(pairs) => assert!(pairs.is_empty() || pairs == before, "seed {seed}"),
        Err(error) => assert!(!whole, "seed {seed}: {error}"),
    }
    let mut database = create(&disks);
    assert_eq!(all(&mut database).unwrap(), Pairs::new(), "seed {seed}");
}

#[test]
fn a_power_cut_while_a_store_is_made_leaves_none_or_an_empty_one() {
    for seed in 0..40 {
        survives_a_creation(seed);
    }
}

#[test]
fn a_leg_that_joins_has_everything_also_what_was_committed_meanwhile() {
    let fuse = Fuse::default();
    let disks = [Disk::new("a", SIZE, &fuse), Disk::new("b", SIZE, &fuse)];
    let mut dice = Dice::new(11);
    let mut held = filled(&disks[..1], &mut dice);
    let mut database = open(&disks[..1], false).unwrap();
    disks[1].set_bytes(vec![0x5a; SIZE]);
    let joins = |database: &Opened, disk: &Disk| database.mirror.join(region(disk.device()));
    let mut next = Some(joins(&database, &disks[1]).unwrap());
    assert!(joins(&database, &disks[1]).is_err());
    while let Some(joining) = next {
        let changes = changes(&mut dice);
        database.commit(&changes).unwrap();
        held = apply(&held, &changes);
        next = database.step(joining).unwrap();
    }
    let last = changes(&mut dice);
    database.commit(&last).unwrap();
    held = apply(&held, &last);
    database.close().unwrap();
    assert_eq!(all(&mut open(&disks[1..], false).unwrap()).unwrap(), held);
    // One that is too small, and one that fails.
    let database = open(&disks[..1], false).unwrap();
    assert!(joins(&database, &Disk::new("small", SIZE / 2, &fuse)).is_err());
    let joining = joins(&database, &disks[1]).unwrap();
    disks[1].fail();
    assert!(database.step(joining).is_err());
}
