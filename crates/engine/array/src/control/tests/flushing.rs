//! Flushes that fail: what a member lost is had from the others, and nobody counts on a flush beside one that failed.

use crate::array::Array;
use crate::control::Control;
use crate::control::tests::hanging::{clear, set, start, state};
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::options::{AssembleOptions, CreateBitmap, CreateOptions, MemberSelector, SyncSpeed};
use crate::status::MemberState;
use braid_device::{Device, IoErrorKind, IoSets, Opener, Request, Target};
use braid_format::superblock::Role;
use braid_layout::Level;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
const OLD: [u8; 4096] = [0x11; 4096];
const NEW: [u8; 4096] = [0x77; 4096];

fn named(name: &str) -> MemberSelector {
    MemberSelector::Name(name.to_string())
}

/// A flush that ends some time: whether it succeeded, and whether `survivor` said then that slot 0 has failed.
type Ended = Rc<RefCell<Option<(bool, bool)>>>;

fn flush(
    world: &World,
    array: &Arc<Array>,
    on: usize,
    survivor: &Arc<TestMember>,
    after: (u64, usize),
) -> Ended {
    let (shard, survivor) = (world.shards[on].clone(), Arc::clone(survivor));
    let device = array.open(&shard).unwrap();
    let ended = Ended::default();
    let (slot, sets) = (Rc::clone(&ended), IoSets::new(&shard));
    world.shards[on].spawn(async move {
        if after.0 > 0 {
            shard.sleep(after.0).await;
        }
        for _ in 0..after.1 {
            shard.next_turn().await;
        }
        let outcome = sets.one(&*device, Request::flush()).await;
        // The member is memory and answers at once.
        let found = crate::metadata::superblock::examine(&shard, &*survivor).await.unwrap();
        let recorded = found.superblock.unwrap().roles[0] == Role::Faulty;
        *slot.borrow_mut() = Some((outcome.result.is_ok(), recorded));
    });
    ended
}

fn data_start(world: &World, member: &Arc<TestMember>) -> u64 {
    world.superblock(member).data_offset * 512
}

fn lose_cache(member: &TestMember, at: u64, old: &[u8]) {
    *member.trap.lock().unwrap() = Some((at, old.to_vec()));
}

/// A mirror whose block 0 was `OLD` and is `NEW`, not flushed; where its data starts.
fn mirror(world: &World, members: &[Arc<TestMember>]) -> (Arc<Array>, u64) {
    let options = CreateOptions {
        assume_clean: true,
        bad_block_log: false,
        ..CreateOptions::new("data", Level::Raid1, 2)
    };
    world.create(members, options);
    let (array, _) = world.assemble(members);
    world.write(&array, 0, 0, &OLD).unwrap();
    world.write(&array, 0, 0, &NEW).unwrap();
    (array, data_start(world, &members[0]))
}

fn after_power_cut(world: World, members: &[Arc<TestMember>]) -> Vec<u8> {
    let world = world.crash();
    let (array, control) = world.assemble(members);
    world.wait_idle(&control);
    let mut reads = (0..4).map(|_| world.read(&array, 0, 0, 4096).unwrap());
    let first = reads.next().unwrap();
    assert!(reads.all(|again| again == first));
    first
}

#[test]
fn a_flush_beside_a_failed_one_waits_until_that_is_recorded() {
    for yields in 0..6 {
        let members = members("m", 2, 8 * MIB);
        let world = World::new(2);
        let (array, data) = mirror(&world, &members);
        lose_cache(&members[0], data, &OLD);
        let first = flush(&world, &array, 0, &members[1], (0, 0));
        let second = flush(&world, &array, 1, &members[1], (0, yields));
        while second.borrow().is_none() {
            world.step();
        }
        assert_eq!(*second.borrow(), Some((true, true)), "{yields}");
        assert!(first.borrow().is_none_or(|first| first == (true, true)), "{yields}");
        drop(array);
        assert!(after_power_cut(world, &members) == NEW, "{yields}");
    }
}

#[test]
fn a_flush_after_a_failed_write_waits_until_that_is_recorded() {
    for yields in 0..6 {
        let members = members("m", 2, 8 * MIB);
        let world = World::new(2);
        let (array, data) = mirror(&world, &members);
        // The other shard's write finds that the member has failed; that its cache is lost no flush will say.
        members[0].defects.lock().unwrap().push(data + MIB..data + MIB + 4096);
        let (shard, sets) = (world.shards[1].clone(), IoSets::new(&world.shards[1]));
        let device = array.open(&shard).unwrap();
        let payload = shard.pool().copy_of(&NEW).freeze();
        world.shards[1].spawn(async move {
            sets.one(&*device, Request::write(MIB, payload, false)).await.result.unwrap();
        });
        for _ in 0..2 {
            world.shards[1].turn();
        }
        let ended = flush(&world, &array, 0, &members[1], (0, yields));
        while ended.borrow().is_none() {
            world.step();
        }
        assert_eq!(*ended.borrow(), Some((true, true)), "{yields}");
    }
}

#[test]
fn no_bit_is_cleared_beside_a_failed_flush() {
    for yields in 0..8 {
        let members = members("m", 2, 8 * MIB);
        let world = World::new(2);
        let bitmap = CreateBitmap::Internal { chunk: Some(64 << 10) };
        let options = CreateOptions {
            assume_clean: true,
            bitmap,
            ..CreateOptions::new("data", Level::Raid1, 2)
        };
        world.create(&members, options);
        let options =
            AssembleOptions { bitmap_daemon_sleep_ms: Some(1000), ..AssembleOptions::default() };
        let array = world.try_assemble(&members, options).unwrap();
        let control = Control::find(&world.shards[0], array.id()).unwrap();
        world.sleep(10 * SECOND);
        let data = data_start(&world, &members[0]);
        world.write(&array, 0, 0, &NEW).unwrap();
        let ended = flush(&world, &array, 1, &members[1], (2 * SECOND, yields));
        // Other writes keep the array active, so that it is flushed for nothing else.
        for at in 0..19 {
            world.sleep(SECOND / 10);
            world.write(&array, 0, MIB + at * 65536, &NEW).unwrap();
        }
        lose_cache(&members[0], data, &OLD);
        world.sleep(3 * SECOND);
        assert_eq!(*ended.borrow(), Some((true, true)), "{yields}");
        let opener = Arc::clone(&members[0]) as Arc<dyn Opener>;
        let back = Rc::clone(&control);
        world
            .run(async move {
                back.membership().remove(&named("m0")).await?;
                back.membership().re_add(opener).await
            })
            .unwrap();
        world.wait_idle(&control);
        for _ in 0..4 {
            assert!(world.read(&array, 0, 0, 4096).unwrap() == NEW, "{yields}");
        }
        assert_eq!(world.check(&control), 0, "{yields}");
    }
}

#[test]
fn a_durable_write_that_is_taken_when_tried_again_has_failed_its_member() {
    let members = members("m", 2, 8 * MIB);
    let world = World::new(1);
    world.create(
        &members,
        CreateOptions { assume_clean: true, ..CreateOptions::new("data", Level::Raid1, 2) },
    );
    let (array, control) = world.assemble(&members);
    world.write(&array, 0, 0, &NEW).unwrap();
    let data = data_start(&world, &members[0]);
    let shard = world.shards[0].clone();
    let device = array.open(&shard).unwrap();
    for (durable, state) in [(false, MemberState::InSync), (true, MemberState::Faulty)] {
        *members[0].refuses_once.lock().unwrap() = Some(data + MIB..data + MIB + 4096);
        let payload = shard.pool().copy_of(&NEW).freeze();
        let (device, sets) = (Rc::clone(&device), IoSets::new(&shard));
        let request = Request::write(MIB, payload, durable);
        world.run(async move { sets.one(&*device, request).await.result }).unwrap();
        assert_eq!(world.status(&control).members[0].state, state);
    }
}

fn flush_now(world: &World, on: usize, device: &Rc<dyn Device>) -> Result<(), IoErrorKind> {
    let (device, sets) = (Rc::clone(device), IoSets::new(&world.shards[on]));
    let ended: Rc<RefCell<Option<_>>> = Rc::default();
    let slot = Rc::clone(&ended);
    world.shards[on].spawn(async move {
        let outcome = sets.one(&*device, Request::flush()).await;
        *slot.borrow_mut() = Some(outcome.result.map_err(|error| error.kind));
    });
    loop {
        if let Some(result) = ended.borrow_mut().take() {
            return result;
        }
        world.step();
    }
}

#[test]
fn without_redundancy_every_connection_is_told_once_of_a_failed_flush() {
    for level in [Level::Raid0, Level::Linear] {
        let members = members("m", 2, 8 * MIB);
        let world = World::new(2);
        let chunk_size = (level == Level::Raid0).then_some(64 << 10);
        world
            .create(&members, CreateOptions { chunk_size, ..CreateOptions::new("data", level, 2) });
        let (array, control) = world.assemble(&members);
        world.write(&array, 1, 0, &NEW).unwrap();
        let open = |on: usize| array.open(&world.shards[on]).unwrap();
        let connections = [(0, open(0)), (0, open(0)), (1, open(1)), (1, open(1))];
        for (on, device) in &connections {
            assert_eq!(flush_now(&world, *on, device), Ok(()));
        }
        lose_cache(&members[0], data_start(&world, &members[0]), &OLD);
        for (on, device) in &connections {
            assert_eq!(flush_now(&world, *on, device), Err(IoErrorKind::Medium), "{level}");
            assert_eq!(flush_now(&world, *on, device), Ok(()), "{level}");
        }
        // Whoever comes afterwards has lost nothing.
        assert_eq!(flush_now(&world, 1, &open(1)), Ok(()));
        world.stop(&control);
    }
}

#[test]
fn what_only_the_failed_member_had_is_told_as_lost() {
    let members = members("m", 2, 8 * MIB);
    let world = World::new(1);
    world.create(
        &members,
        CreateOptions { assume_clean: true, ..CreateOptions::new("data", Level::Raid1, 2) },
    );
    let (array, _control) = world.assemble(&members);
    let data = data_start(&world, &members[0]);
    members[1].defects.lock().unwrap().push(data..data + 4096);
    world.write(&array, 0, 0, &pattern(0, 65536)).unwrap();
    let open = || array.open(&world.shards[0]).unwrap();
    let connections = [open(), open()];
    lose_cache(&members[0], data, &OLD);
    for device in &connections {
        assert_eq!(flush_now(&world, 0, device), Err(IoErrorKind::Medium));
        assert_eq!(flush_now(&world, 0, device), Ok(()));
    }
}

#[test]
fn a_stop_beside_a_round_of_clearing_leaves_no_clear_bit_over_lost_data() {
    let members = members("m", 2, 8 * MIB);
    let world = World::new(1);
    let bitmap = CreateBitmap::Internal { chunk: Some(64 << 10) };
    let options =
        CreateOptions { assume_clean: true, bitmap, ..CreateOptions::new("data", Level::Raid1, 2) };
    world.create(&members, options);
    // It stays active, so that nothing but the rounds flushes.
    let options = AssembleOptions {
        bitmap_daemon_sleep_ms: Some(1000),
        safe_mode_delay_ms: 1 << 40,
        ..AssembleOptions::default()
    };
    let array = world.try_assemble(&members, options).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    world.sleep(10 * SECOND);
    world.write(&array, 0, 0, &OLD).unwrap();
    let before = members[0].flushes.load(Ordering::Relaxed);
    for member in &members {
        member.slow_flush.store(SECOND / 2, Ordering::Relaxed);
    }
    while members[0].flushes.load(Ordering::Relaxed) == before {
        world.step();
    }
    // While the round flushes a write comes that the flush does not cover, then the end, whose flush fails.
    world.write(&array, 0, 0, &NEW).unwrap();
    assert_eq!(members[0].flushes.load(Ordering::Relaxed), before + 1);
    lose_cache(&members[0], data_start(&world, &members[0]), &OLD);
    world.stop(&control);
    drop(array);
    let world = world.crash();
    let (array, control) = world.assemble(&members[1..]);
    let (back, opener) = (Rc::clone(&control), Arc::clone(&members[0]) as Arc<dyn Opener>);
    world.run(async move { back.membership().re_add(opener).await }).unwrap();
    world.wait_idle(&control);
    for _ in 0..4 {
        assert!(world.read(&array, 0, 0, 4096).unwrap() == NEW);
    }
    assert_eq!(world.check(&control), 0);
}

#[test]
fn a_stop_says_what_could_not_be_made_durable() {
    for (level, lost) in [(Level::Raid0, true), (Level::Linear, true), (Level::Raid1, false)] {
        let members = members("m", 2, 8 * MIB);
        let world = World::new(1);
        let chunk_size = (level == Level::Raid0).then_some(64 << 10);
        world
            .create(&members, CreateOptions { chunk_size, ..CreateOptions::new("data", level, 2) });
        let (array, control) = world.assemble(&members);
        world.wait_idle(&control);
        world.write(&array, 0, 0, &NEW).unwrap();
        lose_cache(&members[0], data_start(&world, &members[0]), &OLD);
        let again = Rc::clone(&control);
        let (first, second) = world.run(async move { (control.stop().await, again.stop().await) });
        assert_eq!(first, second);
        assert_eq!(first.not_durable.is_some(), lost, "{level}");
        if let Some(why) = first.not_durable {
            assert!(why.contains("m0") && why.contains("may be lost"), "{why}");
        }
    }
}

#[test]
fn a_member_that_failed_a_flush_is_not_read_before_that_is_recorded() {
    for (level, disks) in [(Level::Raid1, 2), (Level::Raid5, 3)] {
        let members = members("m", disks, 8 * MIB);
        let world = World::new(2);
        let options = CreateOptions {
            assume_clean: true,
            chunk_size: (level == Level::Raid5).then_some(64 << 10),
            ..CreateOptions::new("data", level, disks)
        };
        world.create(&members, options);
        let (array, control) = world.assemble(&members);
        world.write(&array, 0, 0, &NEW).unwrap();
        // Started again, so that no line of the stripe is cached.
        world.stop(&control);
        let (array, control) = world.assemble(&members);
        // The others take their time.
        for member in &members[1..] {
            member.slow_flush.store(SECOND, Ordering::Relaxed);
        }
        lose_cache(&members[0], data_start(&world, &members[0]), &OLD);
        let ended = flush(&world, &array, 1, &members[1], (0, 0));
        world.sleep(SECOND / 10);
        assert_eq!(*ended.borrow(), None);
        assert_eq!(world.status(&control).members[0].state, MemberState::InSync);
        for on in [0, 1] {
            for _ in 0..2 {
                assert!(world.read(&array, on, 0, 4096).unwrap() == NEW, "{level}");
            }
        }
        // Parity updated by what the member gives now would be wrong.
        let newer = pattern(3, 4096);
        world.write(&array, 0, 0, &newer).unwrap();
        while ended.borrow().is_none() {
            world.step();
        }
        assert_eq!(*ended.borrow(), Some((true, true)));
        for on in [0, 1] {
            assert!(world.read(&array, on, 0, 4096).unwrap() == newer, "{level}");
        }
    }
}

/// A level, its members without spares, an array byte, the first member that has it, and its component byte there.
type Place = (Level, usize, u64, usize, u64);

/// With chunks of 64 KiB; m2 has no copy of it, or one of several.
const PLACES: [Place; 4] = [
    (Level::Raid1, 4, 42 * (64 << 10), 0, 42 * (64 << 10)),
    (Level::Raid10, 4, 84 * (64 << 10), 0, 42 * (64 << 10)),
    (Level::Raid5, 3, 85 * (64 << 10), 1, 42 * (64 << 10)),
    (Level::Raid6, 5, 127 * (64 << 10), 0, 42 * (64 << 10)),
];

/// A member has lost `NEW` in a flush while the failure of a spare is being recorded, for which m2 keeps everybody
/// waiting; a job goes on meanwhile. Gives a client's reads of the block until then, and after.
fn lost_beside_another_failure(place: Place, shards: u16, rebuilds: bool) -> Vec<Vec<u8>> {
    let (level, disks, at, holder, component) = place;
    let members = members("m", disks + 2, 66 * MIB);
    let world = World::new(shards);
    let options = CreateOptions {
        spares: 1,
        assume_clean: rebuilds,
        chunk_size: (level != Level::Raid1).then_some(64 << 10),
        ..CreateOptions::new("data", level, disks)
    };
    world.create(&members[..=disks], options);
    let sync_speed = SyncSpeed { min_kib: 0, max_kib: 2 << 10 };
    let options = AssembleOptions { sync_speed, ..AssembleOptions::default() };
    let array = world.try_assemble(&members[..=disks], options).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    world.write(&array, 0, at, &OLD).unwrap();
    world.write(&array, 0, at, &NEW).unwrap();
    let mut spare = members[disks].name().to_string();
    if rebuilds {
        let (c, opener) = (Rc::clone(&control), Arc::clone(&members[disks + 1]) as Arc<dyn Opener>);
        spare = members[disks + 1].name().to_string();
        let last = members[disks - 1].name().to_string();
        world.run(async move {
            c.membership().add(opener, true).await.unwrap();
            c.membership().fail(&named(&last)).await.unwrap();
        });
    }
    set(&members[2].hangs);
    let c = Rc::clone(&control);
    let failed = start(&world, async move { c.membership().fail(&named(&spare)).await });
    world.sleep(SECOND / 100);
    lose_cache(&members[holder], data_start(&world, &members[holder]) + component, &OLD);
    let ended = flush(&world, &array, 0, &members[1 - holder.min(1)], (0, 0));
    world.sleep(SECOND / 10);
    let on = usize::from(shards - 1);
    let mut read: Vec<_> = (0..4).map(|_| world.read(&array, on, at, 4096).unwrap()).collect();
    // The first checkpoint of the job waits for the record, and comes after the block.
    world.sleep(20 * SECOND);
    assert_eq!(*ended.borrow(), None);
    clear(&members[2].hangs);
    while ended.borrow().is_none() || failed.borrow().is_none() {
        world.step();
    }
    control.jobs().set_sync_speed(0, u64::MAX).unwrap();
    world.wait_idle(&control);
    let name = members[holder].name().to_string();
    assert_eq!(state(&world, &control, &name), MemberState::Faulty, "{level}");
    read.extend((0..4).map(|_| world.read(&array, on, at, 4096).unwrap()));
    read
}

#[test]
fn a_member_that_failed_a_flush_is_not_read_while_another_failure_is_being_recorded() {
    for place in PLACES {
        for (shards, rebuilds) in [(1, false), (2, false), (1, true), (2, true)] {
            if rebuilds && place.0 == Level::Raid5 {
                // It cannot do without another.
                continue;
            }
            let read = lost_beside_another_failure(place, shards, rebuilds);
            let wrong: Vec<_> = (0..read.len()).filter(|nr| read[*nr] != NEW).collect();
            assert!(wrong.is_empty(), "{place:?} on {shards}, rebuild: {rebuilds}: {wrong:?}");
        }
    }
}
