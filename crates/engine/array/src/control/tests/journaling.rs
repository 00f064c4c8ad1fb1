//! A write journal that is kept: what it saves after a crash, also with members missing, how its space is used again, and
//! what comes when it is lost.

use crate::array::Array;
use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::error::{ControlError, CreateError};
use crate::options::{AssembleOptions, CreateBitmap, CreateOptions, MemberSelector};
use crate::status::{ArrayState, MemberState};
use braid_device::{IoErrorKind, Opener, Target};
use braid_format::journal::BLOCK;
use braid_format::superblock::{Role, Version};
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const KIB: usize = 1 << 10;
const CHUNK: usize = 16 * KIB;
/// Bytes of each component that are used: four stripes.
const SIZE: u64 = 4 * CHUNK as u64;

fn options(level: Level, disks: usize) -> CreateOptions {
    CreateOptions {
        chunk_size: Some(CHUNK as u64),
        assume_clean: true,
        bitmap: CreateBitmap::None,
        write_journal: true,
        size: Some(SIZE),
        bad_block_log: false,
        ..CreateOptions::new("data", level, disks)
    }
}

/// An array full of a pattern; the last of its members is the journal, on a device of `journal` bytes.
fn full(
    world: &World,
    (level, disks): (Level, usize),
    journal: u64,
) -> (Vec<Arc<TestMember>>, Arc<Array>, Rc<Control>) {
    let mut all = members("m", disks, 4 << 20);
    let mut device = members("j", 1, journal).remove(0);
    Arc::get_mut(&mut device).unwrap().power = Arc::clone(&all[0].power);
    all.push(device);
    world.create(&all, options(level, disks));
    let (array, control) = world.assemble(&all);
    world.wait_idle(&control);
    let size = array.info().device.size as usize;
    world.write(&array, 0, 0, &pattern(0, size)).unwrap();
    (all, array, control)
}

fn without(members: &[Arc<TestMember>], slots: &[usize]) -> Vec<Arc<TestMember>> {
    let there = members.iter().enumerate().filter(|(slot, _)| !slots.contains(slot));
    there.map(|(_, member)| Arc::clone(member)).collect()
}

fn fail(world: &World, control: &Rc<Control>, name: &str) -> Result<(), ControlError> {
    let (own, selector) = (Rc::clone(control), MemberSelector::Name(name.to_string()));
    world.run(async move { own.membership().fail(&selector).await })
}

/// Writes that a round of [`cut`] consists of: offset and length.
fn writes(stripe: usize) -> [(usize, usize); 5] {
    [
        (CHUNK + 512, 1024),
        (stripe + 4096, 2 * CHUNK),
        (100 * 512, 512),
        (3 * stripe - 8192, 16384),
        (2 * stripe, stripe),
    ]
}

/// Has power fail at the `at`-th write, in a healthy array or in one without the members of `before`, then starts it without
/// those of `missing` and compares. False when power was there to the end.
fn cut(shape: (Level, usize), at: u64, before: &[usize], missing: &[usize]) -> bool {
    let world = World::new(1);
    // So small that its space is used again and again.
    let (members, array, control) = full(&world, shape, 400 * KIB as u64);
    for slot in before {
        fail(&world, &control, &format!("m{slot}")).unwrap();
    }
    world.sleep(1_000_000_000);
    let stripe = CHUNK * (shape.1 - shape.0.parity_count());
    let writes = writes(stripe);
    members[0].power.store(at, Ordering::Relaxed);
    for salt in [1000, 2000] {
        let begun: Vec<_> = writes
            .iter()
            .map(|(offset, len)| {
                world.begin_write(&array, *offset as u64, &pattern(salt + *offset as u64, *len))
            })
            .collect();
        for under_way in begun {
            let _ = world.end(under_way);
        }
    }
    let there = members[0].power.load(Ordering::Relaxed) > 0;
    drop((array, control));
    let world = world.crash();
    members[0].power.store(u64::MAX, Ordering::Relaxed);
    let missing: Vec<usize> = before.iter().chain(missing).copied().collect();
    let (array, control) = world.assemble(&without(&members, &missing));
    let status = world.status(&control);
    assert_eq!((status.resynced, status.degraded), (None, missing.len()), "{shape:?} {at}");
    let size = array.info().device.size as usize;
    let found = world.read(&array, 0, 0, size).unwrap();
    for block in (0..size).step_by(512) {
        let may_be = |salt: u64, (offset, len): &(usize, usize)| {
            (*offset..offset + len).contains(&block)
                && found[block..block + 512] == pattern(salt + block as u64, 512)
        };
        let written = writes.iter().any(|write| [1000, 2000].iter().any(|s| may_be(*s, write)));
        let kept = found[block..block + 512] == pattern(block as u64, 512);
        assert!(kept || written, "{shape:?} cut at {at}, byte {block}, without {missing:?}");
    }
    assert_eq!(world.check(&control), 0, "{shape:?} cut at {at}, without {missing:?}");
    !there
}

#[test]
fn nothing_is_lost_wherever_power_fails_and_whoever_is_missing_then() {
    for (level, disks) in [(Level::Raid4, 3), (Level::Raid5, 4), (Level::Raid6, 5)] {
        for (before, missing) in [(vec![], vec![0]), (vec![1], vec![]), (vec![disks - 1], vec![])] {
            let mut at = 0;
            while cut((level, disks), at, &before, &missing) {
                at += 1;
            }
            assert!(at > 15, "{at} writes");
        }
    }
    let mut at = 0;
    while cut((Level::Raid6, 5), at, &[2], &[4]) {
        at += 1;
    }
}

#[test]
fn a_stop_lets_go_of_the_journal_s_device_too() {
    let world = World::new(2);
    let (members, array, control) = full(&world, (Level::Raid5, 3), 1 << 20);
    drop(array);
    world.stop(&control);
    for member in &members {
        // An open device shares it.
        assert_eq!(Arc::strong_count(&member.flushes), 1);
    }
}

#[test]
fn a_journal_is_used_round_and_round() {
    let world = World::new(2);
    let (members, array, control) = full(&world, (Level::Raid6, 5), 400 * KIB as u64);
    let size = array.info().device.size as usize;
    for round in 1..20 {
        let bytes = pattern(round * 77, size);
        for (nr, part) in bytes.chunks(5 * KIB).enumerate() {
            world.write(&array, nr % 2, (nr * 5 * KIB) as u64, part).unwrap();
        }
        assert!(world.read(&array, 0, 0, size).unwrap() == bytes, "round {round}");
    }
    assert!(control.journal().groups() > 300, "{}", control.journal().groups());
    assert_eq!(world.check(&control), 0);
    assert_eq!(world.status(&control).resynced, None);
    world.stop(&control);
    // The log is empty, at an empty meta block, and the superblocks say "clean".
    let superblock = world.superblock(&members[5]);
    assert!(superblock.is_clean() && superblock.own_role() == Role::Journal);
    let at = (superblock.data_offset + superblock.journal_tail) as usize * 512;
    let seed = braid_format::journal::Seed::of(&superblock.set_uuid);
    let block = world.contents(&members[5])[at..at + BLOCK].to_vec();
    assert!(braid_format::journal::Meta::parse(&block, seed).unwrap().payloads.is_empty());
    let (array, control) = world.assemble(&members);
    assert!(world.read(&array, 0, 0, size).unwrap() == pattern(19 * 77, size));
    world.stop(&control);
}

#[test]
fn a_spare_is_filled_while_the_journal_has_what_was_written_without_it() {
    for at in (0..60).chain([80, 110, 150]) {
        let world = World::new(1);
        let (members, array, control) = full(&world, (Level::Raid5, 4), 2 << 20);
        fail(&world, &control, "m3").unwrap();
        let size = array.info().device.size as usize;
        world.write(&array, 0, 0, &pattern(500, size)).unwrap();
        let mut spare = crate::control::tests::world::members("s", 1, 4 << 20).remove(0);
        Arc::get_mut(&mut spare).unwrap().power = Arc::clone(&members[0].power);
        let (own, opener) = (Rc::clone(&control), Arc::clone(&spare) as Arc<dyn Opener>);
        world.run(async move { own.membership().add(opener, false).await }).unwrap();
        members[0].power.store(at, Ordering::Relaxed);
        world.wait_idle(&control);
        drop((array, control));
        let world = world.crash();
        members[0].power.store(u64::MAX, Ordering::Relaxed);
        let mut all = without(&members, &[3]);
        all.push(spare);
        let (array, control) = world.assemble(&all);
        assert_eq!(world.check(&control), 0, "cut at {at}");
        assert!(world.read(&array, 0, 0, size).unwrap() == pattern(500, size), "cut at {at}");
        world.stop(&control);
    }
}

#[test]
fn an_array_that_loses_its_journal_is_read_only_until_it_gets_another() {
    let world = World::new(2);
    let (members, array, control) = full(&world, (Level::Raid5, 4), 2 << 20);
    members[4].dead.store(true, Ordering::Relaxed);
    let error = world.write(&array, 1, 4096, &pattern(9, 4096)).unwrap_err();
    assert_eq!(error.kind, IoErrorKind::Refused);
    let status = world.status(&control);
    assert!(status.state.contains(&ArrayState::ReadOnly), "{:?}", status.state);
    assert_eq!(status.members.last().unwrap().state, MemberState::Faulty);
    assert_eq!(world.read(&array, 0, 4096, 4096).unwrap(), pattern(4096, 4096));
    assert!(world.write(&array, 0, 0, &pattern(9, 4096)).is_err());
    // Too small, then large enough.
    let small = crate::control::tests::world::members("small", 1, 128 << 10).remove(0);
    let add = |device: &Arc<TestMember>| {
        let (own, opener) = (Rc::clone(&control), Arc::clone(device) as Arc<dyn Opener>);
        world.run(async move { own.membership().add_journal(opener, false).await })
    };
    let before = world.contents(&small);
    assert!(matches!(add(&small), Err(ControlError::Unfit { .. })));
    assert!(world.contents(&small) == before, "it was written");
    let other = crate::control::tests::world::members("other", 1, 2 << 20).remove(0);
    add(&other).unwrap();
    let status = world.status(&control);
    assert!(!status.state.contains(&ArrayState::ReadOnly), "{:?}", status.state);
    world.write(&array, 1, 4096, &pattern(9, 4096)).unwrap();
    assert!(matches!(add(&small), Err(ControlError::ConsistencyPolicy { .. })), "it has one");
    drop((array, control));
    let world = world.crash();
    let mut all = without(&members, &[1, 4]);
    all.push(other);
    let (array, control) = world.assemble(&all);
    assert_eq!(world.status(&control).resynced, None);
    assert_eq!(world.read(&array, 0, 4096, 4096).unwrap(), pattern(9, 4096));
    world.stop(&control);
}

#[test]
fn a_journal_that_is_failed_by_command_can_be_removed_and_another_added() {
    let world = World::new(1);
    let (_members, array, control) = full(&world, (Level::Raid6, 5), 2 << 20);
    let remove = || {
        let (own, selector) = (Rc::clone(&control), MemberSelector::Name("j0".to_string()));
        world.run(async move { own.membership().remove(&selector).await })
    };
    assert!(matches!(remove(), Err(ControlError::NotRemovable { .. })));
    fail(&world, &control, "j0").unwrap();
    remove().unwrap();
    assert!(world.write(&array, 0, 0, &pattern(9, 4096)).is_err());
    let other = crate::control::tests::world::members("other", 1, 2 << 20).remove(0);
    let (own, opener) = (Rc::clone(&control), Arc::clone(&other) as Arc<dyn Opener>);
    world.run(async move { own.membership().add_journal(opener, false).await }).unwrap();
    world.write(&array, 0, 0, &pattern(9, 4096)).unwrap();
    assert_eq!(world.check(&control), 0);
    world.stop(&control);
}

#[test]
fn an_array_without_a_journal_is_given_one_while_it_is_written() {
    let world = World::new(2);
    let members = members("m", 4, 4 << 20);
    world.create(&members, CreateOptions { write_journal: false, ..options(Level::Raid5, 4) });
    let (array, control) = world.assemble(&members);
    let size = array.info().device.size as usize;
    let under_way: Vec<_> =
        (0..8).map(|nr| world.begin_write(&array, nr * 8192, &pattern(nr * 8192, 8192))).collect();
    let journal = crate::control::tests::world::members("j", 1, 2 << 20).remove(0);
    let (own, opener) = (Rc::clone(&control), Arc::clone(&journal) as Arc<dyn Opener>);
    world.run(async move { own.membership().add_journal(opener, false).await }).unwrap();
    under_way.into_iter().for_each(|write| drop(world.end(write).unwrap()));
    world.write(&array, 1, 0, &pattern(0, size)).unwrap();
    assert!(control.journal().groups() > 1);
    drop((array, control));
    let world = world.crash();
    let mut all = without(&members, &[2]);
    all.push(journal);
    let (array, control) = world.assemble(&all);
    assert_eq!(world.status(&control).resynced, None);
    assert!(world.read(&array, 0, 0, size).unwrap() == pattern(0, size));
    world.stop(&control);
}

#[test]
fn a_journal_that_would_be_of_no_use_or_too_small_is_refused_before_anything_is_written() {
    let world = World::new(1);
    let all = members("m", 5, 4 << 20);
    let mut with_small = all[..4].to_vec();
    with_small.extend(members("small", 1, 200 << 10));
    let raid5 = options(Level::Raid5, 4);
    let cases = [
        (&with_small, raid5.clone(), "one stripe of this array takes"),
        (&all, CreateOptions { version: Version::V0_90, ..raid5.clone() }, "0.90"),
        (&all, CreateOptions { ppl: true, ..raid5.clone() }, "partial parity log"),
        (&all, CreateOptions { bitmap: CreateBitmap::Internal { chunk: None }, ..raid5 }, "bitmap"),
        (&all, options(Level::Raid10, 4), "no parity"),
    ];
    for (members, options, says) in cases {
        let openers = members.iter().map(|member| Some(Arc::clone(member) as Arc<dyn Opener>));
        let (ctx, openers) = (world.ctx.clone(), openers.collect());
        let created = world.run(async move { crate::create::create(&ctx, openers, options).await });
        let error: CreateError = created.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        for member in members {
            assert!(world.contents(member).iter().all(|byte| *byte == 0), "{says}");
        }
    }
}

#[test]
fn another_array_s_journal_is_none_of_this_one() {
    let world = World::new(1);
    let (mine, _, control) = full(&world, (Level::Raid5, 4), 2 << 20);
    world.stop(&control);
    let (others, _, control) = full(&world, (Level::Raid5, 4), 2 << 20);
    world.stop(&control);
    let mut mixed = without(&mine, &[4]);
    mixed.push(Arc::clone(&others[4]));
    let refused = world.try_assemble(&mixed, AssembleOptions::default()).err().unwrap();
    assert!(refused.to_string().contains("j0"), "{refused}");
}
