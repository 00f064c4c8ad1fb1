//! Bitmaps that running arrays are given, and that are taken away.

use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::engine::Engine;
use crate::error::ControlError;
use crate::options::{AssembleOptions, CreateBitmap, CreateOptions, MemberSelector, SyncSpeed};
use crate::state::extent::Extent;
use crate::status::BitmapStatus;
use braid_device::{IoSets, Opener, Request, Target};
use braid_format::superblock::Version;
use braid_layout::Level;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
const CHUNK: u64 = 64 * KIB;
const LEVELS: [(Level, usize); 4] =
    [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10, 4)];
const VERSIONS: [Version; 4] = [Version::V0_90, Version::V1_0, Version::V1_1, Version::V1_2];

fn options(level: Level, raid_disks: usize) -> CreateOptions {
    CreateOptions {
        chunk_size: (level != Level::Raid1).then_some(CHUNK),
        assume_clean: true,
        ..CreateOptions::new("data", level, raid_disks)
    }
}

fn add(
    world: &World,
    control: &Rc<Control>,
    chunk: Option<u64>,
) -> Result<BitmapStatus, ControlError> {
    let control = Rc::clone(control);
    world.run(async move { control.bitmap().add(chunk).await })
}

fn remove(world: &World, control: &Rc<Control>) -> Result<(), ControlError> {
    let control = Rc::clone(control);
    world.run(async move { control.bitmap().remove().await })
}

fn dirty(world: &World, control: &Rc<Control>) -> u64 {
    world.status(control).bitmap.unwrap().dirty
}

fn read_by_members(members: &[Arc<TestMember>]) -> u64 {
    members.iter().map(|member| member.read.load(Ordering::Relaxed)).sum()
}

#[test]
fn a_bitmap_that_was_added_saves_a_resync_and_one_that_was_removed_does_not() {
    for (level, disks) in LEVELS {
        for version in VERSIONS {
            let world = World::new(2);
            let members = members("m", disks, 16 * MIB);
            world.create(&members, CreateOptions { version, ..options(level, disks) });
            let (array, control) = world.assemble(&members);
            world.write(&array, 1, CHUNK, &pattern(1, 3 << 16)).unwrap();
            assert_eq!(world.status(&control).bitmap, None);
            let added = add(&world, &control, Some(CHUNK)).unwrap();
            // Which bits are dirty at that moment depends on the load.
            assert_eq!((added.chunk, added.dirty), (CHUNK, added.bits));
            world.sleep(20 * SECOND);
            assert_eq!(dirty(&world, &control), 0, "{level} {version}");
            world.write(&array, 1, 40 * CHUNK, &pattern(2, 8192)).unwrap();
            assert!(dirty(&world, &control) > 0);
            drop((array, control));
            let world = world.crash();
            assert_ne!(world.superblock(&members[0]).bitmap_offset, 0);
            let (array, control) = world.assemble(&members);
            let before = read_by_members(&members);
            world.wait_idle(&control);
            let read = read_by_members(&members) - before;
            assert!(read < disks as u64 * 2 * CHUNK, "{level} {version}: {read}");
            remove(&world, &control).unwrap();
            assert_eq!(world.status(&control).bitmap, None);
            world.write(&array, 0, 44 * CHUNK, &pattern(3, 8192)).unwrap();
            drop((array, control));
            let world = world.crash();
            for member in &members {
                assert_eq!(world.superblock(member).bitmap_offset, 0);
            }
            let (array, control) = world.assemble(&members);
            let before = read_by_members(&members);
            world.wait_idle(&control);
            assert!(read_by_members(&members) - before > 8 * MIB);
            assert!(world.read(&array, 0, CHUNK, 3 << 16).unwrap() == pattern(1, 3 << 16));
            assert!(world.read(&array, 0, 44 * CHUNK, 8192).unwrap() == pattern(3, 8192));
            assert_eq!(world.check(&control), 0);
        }
    }
}

/// An array that is being written is given a bitmap, or loses the one that it has; after `writes` writes to
/// members the power goes. What the write left on the members does not match. Gives the mismatches that
/// are left when the array has been assembled and resynced, and whether the change had come to its end.
fn cut_short(level: Level, disks: usize, adds: bool, writes: u64) -> (u64, bool) {
    let world = World::new(1);
    let members = members("m", disks, 4 * MIB);
    let bitmap = CreateBitmap::Internal { chunk: Some(CHUNK) };
    let bitmap = if adds { CreateBitmap::None } else { bitmap };
    world.create(&members, CreateOptions { bitmap, ..options(level, disks) });
    let (array, control) = world.assemble(&members);
    world.sleep(20 * SECOND);
    let power = &members[0].power;
    world.write(&array, 0, 20 * CHUNK, &pattern(9, 4096)).unwrap();
    power.store(writes, Ordering::Relaxed);
    if adds {
        add(&world, &control, Some(CHUNK)).unwrap();
    } else {
        remove(&world, &control).unwrap();
    }
    world.write(&array, 0, 30 * CHUNK, &pattern(8, 4096)).unwrap();
    let ended = power.load(Ordering::Relaxed) > 0;
    drop((array, control));
    let world = world.crash();
    power.store(u64::MAX, Ordering::Relaxed);
    for bytes in [pattern(9, 4096), pattern(8, 4096)] {
        for member in &members {
            let contents = world.contents(member);
            let data = world.superblock(member).data_offset * 512;
            let mut blocks = contents[data as usize..].chunks(4096);
            if let Some(block) = blocks.position(|block| block == bytes) {
                world.scribble(member, data + block as u64 * 4096, &[0x5a; 4096]);
                break;
            }
        }
    }
    let (_array, control) = world.assemble(&members);
    (world.check(&control), ended)
}

#[test]
fn a_power_cut_at_any_moment_of_a_change_leaves_nothing_out_of_the_resync() {
    for (level, disks) in [(Level::Raid1, 2), (Level::Raid5, 3)] {
        for adds in [true, false] {
            let mut writes = 0;
            loop {
                let (found, ended) = cut_short(level, disks, adds, writes);
                assert_eq!(found, 0, "{level}, adds {adds}, after {writes} writes");
                if ended {
                    break;
                }
                writes += 1;
            }
            assert!(writes > 2 * disks as u64, "{writes}");
        }
    }
}

#[test]
fn bits_stay_set_until_writes_from_before_the_bitmap_have_ended() {
    let world = World::new(1);
    let members = members("m", 2, 8 * MIB);
    world.create(&members, options(Level::Raid1, 2));
    let (array, control) = world.assemble(&members);
    let engine = Engine::find(&world.shards[0], array.id()).unwrap();
    let extent = Extent { start: 0, end: 4096 };
    let write = engine
        .try_enter(&engine.view(), 0, extent)
        .expect("without a bitmap nothing is waited for");
    let bits = add(&world, &control, Some(CHUNK)).unwrap().bits;
    world.sleep(30 * SECOND);
    assert_eq!(dirty(&world, &control), bits);
    drop(write);
    world.sleep(20 * SECOND);
    assert_eq!(dirty(&world, &control), 0);
    // And the other way round: a write that holds bits of a bitmap which goes, and of the next.
    world.write(&array, 0, 0, &pattern(1, 4096)).unwrap();
    let write = engine.try_enter(&engine.view(), 0, extent).expect("its bit is set");
    remove(&world, &control).unwrap();
    add(&world, &control, Some(CHUNK)).unwrap();
    world.sleep(30 * SECOND);
    assert_eq!(dirty(&world, &control), bits);
    drop(write);
    world.sleep(20 * SECOND);
    assert_eq!(dirty(&world, &control), 0);
    world.write(&array, 0, 0, &pattern(1, 4096)).unwrap();
    assert_eq!(dirty(&world, &control), 1);
    world.stop(&control);
}

#[test]
fn writers_notice_nothing_of_bitmaps_that_come_and_go() {
    let world = World::new(2);
    let members = members("m", 3, 8 * MIB);
    world.create(&members, options(Level::Raid5, 3));
    let (array, control) = world.assemble(&members);
    let wrote = Rc::new(Cell::new(0));
    let over = Rc::new(Cell::new(false));
    for shard in &world.shards {
        let device = array.open(shard).unwrap();
        let (own, wrote, over) = (shard.clone(), Rc::clone(&wrote), Rc::clone(&over));
        let half = u64::from(shard.id()) * 2 * MIB;
        shard.spawn(async move {
            let sets = IoSets::new(&own);
            let mut nr = 0u64;
            while !over.get() {
                let at = half + nr * 37 * 4096 % (2 * MIB);
                let buf = own.pool().copy_of(&pattern(at, 4096)).freeze();
                let write = Request::write(at, buf, false);
                sets.one(&*device, write).await.result.expect("no write fails");
                nr += 1;
                wrote.set(wrote.get() + 1);
                own.sleep(1_000_000).await;
            }
        });
    }
    for _ in 0..8 {
        add(&world, &control, Some(CHUNK)).unwrap();
        world.sleep(SECOND);
        remove(&world, &control).unwrap();
        world.sleep(20_000_000);
    }
    over.set(true);
    world.sleep(SECOND);
    assert!(wrote.get() > 8_000, "{}", wrote.get());
    assert_eq!(world.check(&control), 0);
    world.stop(&control);
}

#[test]
fn what_cannot_be_is_refused_and_changes_no_superblock() {
    let world = World::new(1);
    let disks = members("m", 3, 8 * MIB);
    world.create(&disks, options(Level::Raid5, 3));
    let (_, control) = world.assemble(&disks);
    let refused = |result: Result<(), ControlError>, what: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    };
    refused(remove(&world, &control), "it has none");
    refused(add(&world, &control, Some(3 * KIB)).map(drop), "3072");
    refused(add(&world, &control, Some(1 << 40)).map(drop), "too large");
    let events = world.superblock(&disks[0]).events;
    control.jobs().pause_jobs(true);
    let selector = MemberSelector::Name("m1".to_string());
    let failing = Rc::clone(&control);
    world.run(async move {
        failing.membership().fail(&selector).await.unwrap();
        failing.membership().remove(&selector).await.unwrap();
    });
    let (adding, opener) = (Rc::clone(&control), Arc::clone(&disks[1]) as Arc<dyn Opener>);
    world.run(async move { adding.membership().add(opener, true).await }).unwrap();
    control.jobs().pause_jobs(false);
    world.wait_idle(&control);
    add(&world, &control, None).unwrap();
    refused(add(&world, &control, None).map(drop), "it has one");
    assert!(world.superblock(&disks[0]).events > events);
    world.stop(&control);

    let read_only = AssembleOptions { read_only: true, ..AssembleOptions::default() };
    let array = world.try_assemble(&disks, read_only).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    refused(remove(&world, &control), "read-only");
    let stripe = members("s", 2, 8 * MIB);
    world.create(&stripe, CreateOptions::new("stripe", Level::Raid0, 2));
    let (_, control) = world.assemble(&stripe);
    refused(add(&world, &control, None).map(drop), "redundancy");
    // As mdadm a resync is waited for.
    let dirty = members("d", 2, 8 * MIB);
    let options = CreateOptions { assume_clean: false, ..options(Level::Raid1, 2) };
    world.create(&dirty, CreateOptions { name: "dirty".to_string(), ..options });
    let sync_speed = SyncSpeed { min_kib: 1, max_kib: 64 };
    let slowly = AssembleOptions { sync_speed, ..AssembleOptions::default() };
    let array = world.try_assemble(&dirty, slowly).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    refused(add(&world, &control, None).map(drop), "a resync is not done yet");
}

#[test]
fn a_member_that_was_away_when_a_bitmap_was_added_is_filled_as_a_whole() {
    let world = World::new(1);
    let members = members("m", 2, 8 * MIB);
    world.create(&members, options(Level::Raid1, 2));
    let (array, control) = world.assemble(&members);
    let selector = MemberSelector::Name("m1".to_string());
    let failing = Rc::clone(&control);
    world.run(async move {
        failing.membership().fail(&selector).await.unwrap();
        failing.membership().remove(&selector).await.unwrap();
    });
    world.write(&array, 0, 0, &pattern(1, 4096)).unwrap();
    add(&world, &control, Some(CHUNK)).unwrap();
    let opener = Arc::clone(&members[1]) as Arc<dyn Opener>;
    let (adding, again) = (Rc::clone(&control), Arc::clone(&opener));
    let refused = world.run(async move { adding.membership().re_add(again).await });
    assert!(matches!(refused, Err(ControlError::CannotReAdd { .. })), "{refused:?}");
    let adding = Rc::clone(&control);
    let added = world.run(async move { adding.membership().add(opener, false).await }).unwrap();
    assert!(!added.re_added);
    world.wait_idle(&control);
    world.sleep(20 * SECOND);
    assert_eq!((world.status(&control).degraded, dirty(&world, &control)), (0, 0));
    assert_eq!(world.check(&control), 0);
    world.stop(&control);
}
