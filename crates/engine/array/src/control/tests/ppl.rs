//! The partial parity log: what is in it when members are written, what it saves after a crash with a member missing, and
//! when it is not in use.

use crate::array::Array;
use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::error::{AssembleError, ControlError, CreateError};
use crate::metadata::ppl::area::Area;
use crate::options::{AssembleOptions, CreateBitmap, CreateOptions, MemberSelector};
use braid_device::{Opener, Target};
use braid_format::ppl::{self, Unit};
use braid_format::superblock::Version;
use braid_layout::Level;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const KIB: usize = 1 << 10;
const CHUNK: usize = 16 * KIB;
const DISKS: usize = 4;
/// Bytes of a stripe's data.
const STRIPE: usize = CHUNK * (DISKS - 1);
/// Bytes of each component that are used: four stripes.
const SIZE: u64 = 4 * CHUNK as u64;

fn options() -> CreateOptions {
    CreateOptions {
        chunk_size: Some(CHUNK as u64),
        assume_clean: true,
        bitmap: CreateBitmap::None,
        ppl: true,
        size: Some(SIZE),
        bad_block_log: false,
        ..CreateOptions::new("data", Level::Raid5, DISKS)
    }
}

/// An array full of a pattern, with a log.
fn full(world: &World, options: CreateOptions) -> (Vec<Arc<TestMember>>, Arc<Array>, Rc<Control>) {
    let members = members("m", DISKS, 4 << 20);
    world.create(&members, options);
    let (array, control) = world.assemble(&members);
    world.wait_idle(&control);
    let size = array.info().device.size as usize;
    world.write(&array, 0, 0, &pattern(0, size)).unwrap();
    (members, array, control)
}

/// A change of policy that is under way.
type Change = Pin<Box<dyn Future<Output = Result<(), ControlError>>>>;

fn all_but(members: &[Arc<TestMember>], slot: usize) -> Vec<Arc<TestMember>> {
    let others = members.iter().enumerate().filter(|(nr, _)| *nr != slot);
    others.map(|(_, member)| Arc::clone(member)).collect()
}

/// The log on a member.
fn area(world: &World, member: &Arc<TestMember>) -> (Area, Vec<u8>) {
    let area = Area::of(&world.superblock(member)).unwrap();
    let at = area.at as usize;
    (area, world.contents(member)[at..at + area.len() as usize].to_vec())
}

fn newest<'a>(world: &World, member: &Arc<TestMember>, area: &'a [u8]) -> Option<Unit<'a>> {
    ppl::newest(area, &world.superblock(member).set_uuid)
}

#[test]
fn what_a_write_leaves_alone_is_in_the_log_of_the_member_that_has_the_parity() {
    let world = World::new(2);
    let (members, array, _control) = full(&world, options());
    // The second chunk of the first stripe; left-symmetric, so slot 3 has its parity, and slot 1 the chunk.
    let new = pattern(9, 4096);
    world.write(&array, 1, (CHUNK + 8192) as u64, &new).unwrap();
    let (_, bytes) = area(&world, &members[3]);
    let unit = newest(&world, &members[3], &bytes).unwrap();
    let entry = unit.header.entries[0];
    assert_eq!((entry.data_sector, entry.data_size, entry.parity_disk), (48, 4096, 3));
    let old = pattern(0, STRIPE);
    let others = |at: usize| old[8192 + at] ^ old[2 * CHUNK + 8192 + at];
    assert_eq!(unit.partial_parity, (0..4096).map(others).collect::<Vec<u8>>());
    for member in &members[..3] {
        let (_, bytes) = area(&world, member);
        assert!(newest(&world, member, &bytes).unwrap().header.generation > 0);
    }
    // A whole stripe has an entry, so that its parity is made to match, and needs no partial parity.
    world.write(&array, 0, 0, &pattern(3, STRIPE)).unwrap();
    let (_, bytes) = area(&world, &members[3]);
    let entry = newest(&world, &members[3], &bytes).unwrap().header.entries[0];
    assert_eq!((entry.pp_size, entry.data_size), (0, STRIPE as u32));
}

/// Writes that the rounds of [`power_fails_at_every_write`] consist of: offset and length.
const WRITES: [(usize, usize); 4] =
    [(CHUNK + 512, 1024), (STRIPE + 4096, 2 * CHUNK), (100, 0), (3 * STRIPE - 8192, 16384)];

/// Has power fail at the `at`-th write, in a healthy array or in one without the member of `missing`, then starts it without
/// that member and compares. False when power was there to the end.
fn cut(at: u64, missing: usize, degraded: bool) -> bool {
    let world = World::new(1);
    let (members, array, control) = full(&world, options());
    if degraded {
        let selector = MemberSelector::Name(format!("m{missing}"));
        let own = Rc::clone(&control);
        world.run(async move { own.membership().fail(&selector).await }).unwrap();
    }
    world.sleep(1_000_000_000);
    members[0].power.store(at, Ordering::Relaxed);
    let writes = WRITES.iter().enumerate().filter(|(_, (_, len))| *len > 0);
    let begun: Vec<_> = writes
        .map(|(nr, (offset, len))| {
            world.begin_write(&array, *offset as u64, &pattern(1000 + nr as u64, *len))
        })
        .collect();
    for under_way in begun {
        let _ = world.end(under_way);
    }
    let there = members[0].power.load(Ordering::Relaxed) > 0;
    drop((array, control));
    let world = world.crash();
    members[0].power.store(u64::MAX, Ordering::Relaxed);
    let (array, control) = world.assemble(&all_but(&members, missing));
    let status = world.status(&control);
    assert_eq!((status.resynced, status.degraded), (None, 1));
    let size = array.info().device.size as usize;
    let (old, found) = (pattern(0, size), world.read(&array, 0, 0, size).unwrap());
    for at in (0..size).step_by(512) {
        let written = |(offset, len): &&(usize, usize)| (*offset..offset + len).contains(&at);
        if !WRITES.iter().any(|write| written(&write)) {
            assert_eq!(found[at..at + 512], old[at..at + 512], "byte {at}, without slot {missing}");
        }
    }
    !there
}

#[test]
fn nothing_that_was_not_being_written_is_lost_wherever_power_fails_and_whoever_is_missing_then() {
    for degraded in [false, true] {
        for missing in 0..DISKS {
            let mut at = 0;
            while cut(at, missing, degraded) {
                at += 1;
            }
            assert!(at > 8, "{at} writes");
        }
    }
}

#[test]
fn an_unclean_stop_costs_no_resync_and_a_check_finds_parity_that_matches() {
    let world = World::new(2);
    let (members, array, control) = full(&world, options());
    world.write(&array, 0, 512, &pattern(7, 1024)).unwrap();
    drop((array, control));
    let world = world.crash();
    // As if the data of that write had not come to the member of slot 0.
    let data = world.superblock(&members[0]).data_offset as usize * 512;
    world.scribble(&members[0], data as u64 + 512, &pattern(0, 2048)[512..1536]);
    let (array, control) = world.assemble(&members);
    assert_eq!(world.status(&control).resynced, None);
    assert_eq!(world.check(&control), 0);
    assert_eq!(world.read(&array, 0, 512, 1024).unwrap(), pattern(0, 2048)[512..1536]);
    world.stop(&control);
}

#[test]
fn a_block_that_does_not_take_its_parity_from_the_log_costs_no_other_and_is_nobodys_source() {
    for logs_bad_blocks in [true, false] {
        let world = World::new(1);
        let options = CreateOptions { bad_block_log: logs_bad_blocks, ..options() };
        let (members, array, control) = full(&world, options);
        world.write(&array, 0, 0, &pattern(7, 8192)).unwrap();
        drop((array, control));
        let world = world.crash();
        // As if the data had not come to the member of slot 0; slot 3 has the parity.
        let data = world.superblock(&members[0]).data_offset * 512;
        world.scribble(&members[0], data, &pattern(0, 8192));
        let parity = world.superblock(&members[3]).data_offset * 512;
        members[3].defects.lock().unwrap().push(parity..parity + 512);
        let (array, control) = world.assemble(&members);
        assert_eq!(world.status(&control).degraded, usize::from(!logs_bad_blocks));
        assert_eq!(world.read(&array, 0, 0, 8192).unwrap(), pattern(0, 8192));
        if logs_bad_blocks {
            let selector = MemberSelector::Name("m0".to_string());
            let own = Rc::clone(&control);
            world.run(async move { own.membership().fail(&selector).await }).unwrap();
            assert_eq!(world.read(&array, 0, 512, 8192 - 512).unwrap(), pattern(0, 8192)[512..]);
            assert!(world.read(&array, 0, 0, 512).is_err());
        }
        world.stop(&control);
    }
}

#[test]
fn a_new_array_is_resynced_before_its_log_is_in_use_and_after_every_crash_until_then() {
    let world = World::new(1);
    let members = members("m", DISKS, 4 << 20);
    world.create(&members, CreateOptions { assume_clean: false, ..options() });
    // So that the resync does not end before the crash.
    members[1].slow.store(10_000_000_000, Ordering::Relaxed);
    let (array, control) = world.assemble(&members);
    let (_, bytes) = area(&world, &members[3]);
    assert_eq!(newest(&world, &members[3], &bytes).unwrap().header.generation, 0);
    drop((array, control));
    let world = world.crash();
    let (_array, control) = world.assemble(&members);
    assert!(world.status(&control).resynced.is_some());
    world.wait_idle(&control);
    let (_, bytes) = area(&world, &members[3]);
    assert!(newest(&world, &members[3], &bytes).unwrap().header.generation > 0);
    assert_eq!(world.check(&control), 0);
}

#[test]
fn a_log_that_is_damaged_means_a_resync_and_force_where_a_member_is_missing() {
    let world = World::new(1);
    let (members, array, control) = full(&world, options());
    world.write(&array, 0, 0, &pattern(1, 4096)).unwrap();
    drop((array, control));
    let world = world.crash();
    let (at, _) = area(&world, &members[1]);
    world.scribble(&members[1], at.at + 600, &[1; 512]);
    let some = all_but(&members, 0);
    let refused = world.try_assemble(&some, AssembleOptions::default());
    assert!(matches!(refused, Err(AssembleError::DirtyDegraded { .. })));
    let (_array, control) = world.assemble(&members);
    world.wait_idle(&control);
    assert_eq!(world.check(&control), 0);
}

#[test]
fn a_log_that_the_power_cut_short_leaves_the_rest_of_it_of_use() {
    let world = World::new(1);
    let (members, array, control) = full(&world, options());
    world.write(&array, 0, 0, &pattern(1, 4096)).unwrap();
    drop((array, control));
    let world = world.crash();
    let (at, bytes) = area(&world, &members[3]);
    let unit = newest(&world, &members[3], &bytes).unwrap();
    // The partial parity behind the header.
    world.scribble(&members[3], at.at + unit.sector * 512 + 4096, &[0x77; 512]);
    let (array, control) = world.assemble(&all_but(&members, 1));
    assert_eq!(world.status(&control).degraded, 1);
    assert_eq!(world.read(&array, 0, CHUNK as u64, CHUNK).unwrap(), pattern(CHUNK as u64, CHUNK));
}

#[test]
fn a_running_array_is_given_a_log_and_loses_it() {
    // Room for one unit, and for a ring of them.
    for (data_offset, ring) in [(1 << 20, false), (2 << 20, true)] {
        let world = World::new(2);
        let without = CreateOptions { ppl: false, data_offset: Some(data_offset), ..options() };
        let (members, array, control) = full(&world, without);
        let change = |how: fn(Rc<Control>) -> Change| world.run(how(Rc::clone(&control)));
        change(|control| Box::pin(async move { control.ppl().add().await })).unwrap();
        for nr in 0..3 {
            world.write(&array, 1, nr * 4096, &pattern(5, 4096)).unwrap();
        }
        assert_eq!(world.superblock(&members[2]).ppl.unwrap().multiple, ring);
        let (_, bytes) = area(&world, &members[3]);
        let unit = newest(&world, &members[3], &bytes).unwrap();
        assert_eq!((unit.header.entries.len(), unit.sector > 0), (1, ring));
        let twice = change(|control| Box::pin(async move { control.ppl().add().await }));
        assert!(matches!(twice, Err(ControlError::ConsistencyPolicy { .. })));
        let both =
            change(|control| Box::pin(async move { control.bitmap().add(None).await.map(|_| ()) }));
        assert!(matches!(both, Err(ControlError::Bitmap { .. })));
        change(|control| Box::pin(async move { control.ppl().remove().await })).unwrap();
        assert_eq!(world.superblock(&members[2]).ppl, None);
        world.write(&array, 1, 0, &pattern(6, 4096)).unwrap();
        change(|control| Box::pin(async move { control.bitmap().add(None).await.map(|_| ()) }))
            .unwrap();
        let beside = change(|control| Box::pin(async move { control.ppl().add().await }));
        assert!(matches!(beside, Err(ControlError::ConsistencyPolicy { .. })));
        world.stop(&control);
    }
}

#[test]
fn a_member_that_is_added_gets_an_empty_log_whatever_it_held() {
    let world = World::new(1);
    let (members, array, control) = full(&world, options());
    let spare = crate::control::tests::world::members("s", 1, 4 << 20);
    // What an earlier array of the same identity might have left there.
    let (at, _) = area(&world, &members[3]);
    let set_uuid = world.superblock(&members[3]).set_uuid;
    let old = ppl::Header { generation: 1 << 40, entries: Vec::new() }.to_bytes(&set_uuid);
    world.scribble(&spare[0], at.at, &old);
    world.scribble(&spare[0], at.at + 4096, &old);
    let own = Rc::clone(&control);
    let opener = Arc::clone(&spare[0]) as Arc<dyn Opener>;
    world.run(async move {
        own.membership().fail(&MemberSelector::Name("m3".to_string())).await.unwrap();
        own.membership().add(opener, false).await.unwrap()
    });
    world.wait_idle(&control);
    world.write(&array, 0, 0, &pattern(1, 4096)).unwrap();
    let (_, bytes) = area(&world, &spare[0]);
    let unit = newest(&world, &spare[0], &bytes).unwrap();
    assert!(unit.header.generation < 1 << 40 && unit.header.entries.len() == 1);
    world.stop(&control);
}

#[test]
fn an_array_that_cannot_have_a_log_is_not_created() {
    let world = World::new(1);
    let try_create = |options: CreateOptions| {
        let members = members("m", options.raid_disks, 4 << 20);
        let openers =
            members.iter().map(|member| Some(Arc::clone(member) as Arc<dyn Opener>)).collect();
        let ctx = world.ctx.clone();
        let refused = world.run(async move { crate::create::create(&ctx, openers, options).await });
        let written = |member: &Arc<TestMember>| member.written.load(Ordering::Relaxed);
        assert_eq!(members.iter().map(written).sum::<u64>(), 0);
        refused.unwrap_err()
    };
    let raid6 = CreateOptions { level: Level::Raid6, layout: None, ..options() };
    assert!(matches!(try_create(raid6), CreateError::UselessPpl { .. }));
    let bitmap = CreateBitmap::Internal { chunk: None };
    let both = CreateOptions { bitmap, ..options() };
    assert!(matches!(try_create(both), CreateError::PplAndBitmap));
    let old = CreateOptions { version: Version::V0_90, ..options() };
    assert!(matches!(try_create(old), CreateError::Placement { .. }));
}

#[test]
fn what_was_being_written_when_too_many_had_failed_stays_in_the_log() {
    let world = World::new(1);
    // All parity is on slot 3.
    let (members, array, control) = full(&world, CreateOptions { layout: Some(5), ..options() });
    let own = Rc::clone(&control);
    world.run(async move {
        own.membership().fail(&MemberSelector::Name("m1".to_string())).await.unwrap();
    });
    let data = world.superblock(&members[0]).data_offset * 512;
    members[0].defects.lock().unwrap().push(data..data + 4096);
    // The first write has its unit, and the second waits for the next one.
    members[2].hangs.store(true, Ordering::Relaxed);
    let first = world.begin_write(&array, 0, &pattern(1, STRIPE));
    world.sleep(1_000_000_000);
    let second = world.begin_write(&array, STRIPE as u64, &pattern(2, 4096));
    world.sleep(1_000_000_000);
    members[2].hangs.store(false, Ordering::Relaxed);
    assert!(world.end(first).is_err());
    assert!(world.end(second).is_err());
    let (_, bytes) = area(&world, &members[3]);
    let unit = newest(&world, &members[3], &bytes).unwrap();
    assert_eq!(unit.header.entries[0].data_sector, 0);
}

#[test]
fn a_spare_that_was_away_when_a_log_was_added_is_left_out_and_added_again() {
    let world = World::new(1);
    let some = members("m", DISKS + 1, 4 << 20);
    world.create(&some, CreateOptions { ppl: false, spares: 1, ..options() });
    let (_array, control) = world.assemble(&some[..DISKS]);
    let adding = Rc::clone(&control);
    world.run(async move { adding.ppl().add().await }).unwrap();
    world.stop(&control);
    let (_array, control) = world.assemble(&some);
    let left_out = world.status(&control).left_out;
    assert!(left_out.len() == 1 && left_out[0].contains("m4: it is a spare"), "{left_out:?}");
    let (adding, spare) = (Rc::clone(&control), Arc::clone(&some[DISKS]));
    world.run(async move { adding.membership().add(spare, false).await }).unwrap();
    world.stop(&control);
    let (_array, control) = world.assemble(&some);
    assert!(world.status(&control).left_out.is_empty());
}

/// No resync comes after a crash, so that what a member was filled from must not be lost with a cache.
#[test]
fn what_a_member_is_filled_from_is_durable_before_it_counts() {
    let world = World::new(1);
    let all = members("m", DISKS + 1, 4 << 20);
    world.create(&all[..DISKS], options());
    // Never marked clean, for which members would be flushed.
    let active = AssembleOptions { safe_mode_delay_ms: 1 << 40, ..AssembleOptions::default() };
    let array = world.try_assemble(&all[..DISKS], active).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    world.wait_idle(&control);
    let size = array.info().device.size as usize;
    world.write(&array, 0, 0, &pattern(0, size)).unwrap();
    let (own, selector) = (Rc::clone(&control), MemberSelector::Name("m1".to_string()));
    world.run(async move { own.membership().fail(&selector).await }).unwrap();
    world.write(&array, 0, 0, &pattern(4, size)).unwrap();
    let flushes = || [0, 2, 3].map(|nr: usize| all[nr].flushes.load(Ordering::Relaxed));
    let before = flushes();
    world.add(&control, &all[DISKS]);
    world.wait_idle(&control);
    assert_eq!(world.status(&control).degraded, 0);
    for (before, after) in before.into_iter().zip(flushes()) {
        assert!(after > before, "it was not flushed");
    }
}

#[test]
fn an_array_starts_wherever_power_fails_while_it_is_given_a_log() {
    let mut half_added = 0;
    for at in 0.. {
        let world = World::new(1);
        let without = CreateOptions { ppl: false, data_offset: Some(1 << 20), ..options() };
        let (members, array, control) = full(&world, without);
        world.sleep(10_000_000_000);
        members[0].power.store(at, Ordering::Relaxed);
        let adding = Rc::clone(&control);
        let _ = world.run(async move { adding.ppl().add().await });
        let there = members[0].power.load(Ordering::Relaxed) > 0;
        drop((array, control));
        let world = world.crash();
        members[0].power.store(u64::MAX, Ordering::Relaxed);
        let with_log = members.iter().filter(|m| world.superblock(m).ppl.is_some()).count();
        half_added += usize::from(with_log > 0 && with_log < DISKS);
        let (array, control) = world.assemble(&members);
        world.wait_idle(&control);
        let size = array.info().device.size as usize;
        assert!(world.read(&array, 0, 0, size).unwrap() == pattern(0, size), "write {at}");
        assert_eq!(world.check(&control), 0, "write {at}");
        if there {
            break;
        }
    }
    assert!(half_added > 0, "power never failed between two superblocks");
}
