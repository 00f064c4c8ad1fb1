//! A stop beside members that do not answer and that nobody has failed.

use crate::control::Control;
use crate::control::tests::bad_blocks::{record, spoil};
use crate::control::tests::hanging::{Setting, array, clear, set, start, start_write};
use crate::control::tests::stacked::{self, Stack, state_of};
use crate::control::tests::world::{TestMember, World, pattern};
use crate::status::{Ended, Left, MemberState};
use braid_device::Target;
use braid_format::superblock::Role;
use braid_layout::Level;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SECOND: u64 = 1_000_000_000;

/// Stops the array, which has to take less than `limit` nanoseconds.
fn stop_within(limit: u64, world: &World, control: &Rc<Control>) -> Left {
    let (c, before) = (Rc::clone(control), world.shards[0].now());
    let left = start(world, async move { c.stop().await });
    world.sleep(limit);
    let took = world.shards[0].now() - before;
    let left = left.borrow_mut().take();
    left.unwrap_or_else(|| panic!("no end after {} ms", took / 1_000_000))
}

fn assert_whole_again(world: &World, members: &[Arc<TestMember>]) {
    members.iter().for_each(|member| clear(&member.deaf));
    world.sleep(SECOND);
    let (_, control) = world.assemble(members);
    let status = world.status(&control);
    assert!(status.members.iter().all(|member| member.state == MemberState::InSync), "{status:?}");
    world.wait_idle(&control);
    assert_eq!(world.check(&control), 0);
    world.stop(&control);
}

#[test]
fn a_member_that_does_not_answer_is_failed_by_the_stop() {
    for (level, idle, shards) in [
        (Level::Raid1, true, 1),
        (Level::Raid5, true, 2),
        (Level::Raid1, false, 2),
        (Level::Raid5, false, 1),
        (Level::Raid10, false, 2),
    ] {
        let what = format!("{level}, idle: {idle}");
        let (world, members, array, control): Setting = array(shards, level, 3);
        set(&members[1].deaf);
        // Superblocks or data wait for the member, or nothing does yet.
        let write = (!idle).then(|| start_write(&world, &array, 64 << 10));
        let left = stop_within(2 * SECOND, &world, &control);
        assert_eq!((left.ended, left.written), (Ended::Clean, 2), "{what}: {left:?}");
        assert!(left.problems.iter().any(|line| line.contains("m1")), "{what}: {left:?}");
        assert!(write.is_none_or(|write| write.borrow().is_some()), "{what}");
        for nr in [0, 2] {
            let superblock = world.superblock(&members[nr]);
            assert_eq!(superblock.roles[1], Role::Faulty, "{what}");
            assert_eq!(superblock.resync_offset, u64::MAX, "{what}");
        }
        // It has missed the end, and is not taken for one that has not.
        clear(&members[1].deaf);
        world.sleep(SECOND);
        let (_, control) = world.assemble(&members);
        let status = world.status(&control);
        assert!(status.members.iter().all(|member| member.name != "m1"), "{what}: {status:?}");
        world.stop(&control);
    }
}

#[test]
fn where_too_many_do_not_answer_the_stop_ends_and_none_is_recorded_as_failed() {
    for idle in [true, false] {
        for (level, deaf) in [(Level::Raid1, 3), (Level::Raid5, 2), (Level::Raid10, 3)] {
            let what = format!("{level}, idle: {idle}");
            let (world, members, array, control) = array(2, level, 3);
            if !idle {
                // The superblocks say "active" before anything hangs.
                world.write(&array, 0, 0, &pattern(0, 4096)).unwrap();
            }
            members.iter().take(deaf).for_each(|member| set(&member.deaf));
            let write = (!idle).then(|| start_write(&world, &array, 64 << 10));
            let left = stop_within(2 * SECOND, &world, &control);
            let ended = if idle { Ended::Untouched } else { Ended::Active };
            assert_eq!((left.ended, left.is_well()), (ended, false), "{what}: {left:?}");
            for name in ["m0", "m1"] {
                let said = |line: &String| line.contains(name) && line.contains("not waited for");
                assert!(left.problems.iter().any(said), "{what}: {left:?}");
            }
            assert!(write.is_none_or(|write| *write.borrow() == Some(false)), "{what}");
            assert_whole_again(&world, &members);
        }
    }
}

#[test]
fn without_redundancy_the_stop_ends_and_says_which_member_it_has_not_waited_for() {
    let (world, members, array, control) = array(2, Level::Raid0, 3);
    set(&members[1].deaf);
    let write = start_write(&world, &array, 64 << 10);
    let left = stop_within(2 * SECOND, &world, &control);
    assert_eq!(*write.borrow(), Some(false));
    assert!(left.not_durable.is_some(), "{left:?}");
    let said = |line: &String| line.contains("m1") && line.contains("not waited for");
    assert!(left.problems.iter().any(said), "{left:?}");
    clear(&members[1].deaf);
    world.sleep(SECOND);
    let (_, control) = world.assemble(&members);
    world.stop(&control);
}

#[test]
fn a_member_that_takes_long_to_flush_is_waited_for() {
    let (world, members, array, control) = array(2, Level::Raid5, 3);
    members[1].slow_flush.store(10 * SECOND, Ordering::Relaxed);
    world.write(&array, 0, 0, &pattern(7, 4096)).unwrap();
    let left = stop_within(60 * SECOND, &world, &control);
    assert!(left.is_well() && left.ended == Ended::Clean, "{left:?}");
    assert_eq!(left.written, 3, "{left:?}");
}

#[test]
fn a_member_that_reads_and_does_not_write_has_the_time_that_is_set() {
    let (world, members, _array, control) = array(2, Level::Raid5, 3);
    set(&members[1].hangs);
    let c = Rc::clone(&control);
    let left = start(&world, async move { c.stop().await });
    world.sleep(20 * SECOND);
    assert_eq!(*left.borrow(), None);
    world.sleep(20 * SECOND);
    let left = left.borrow_mut().take().expect("the member has had its time");
    assert_eq!((left.ended, left.written), (Ended::Clean, 2), "{left:?}");
}

/// Stripes over mirrors, of which one leaf does not answer when what is above is stopped.
fn a_leaf_hangs_below_a_stop(layers: u64) {
    let world = World::new(2);
    let mirrors = [(Level::Raid1, 2), (Level::Raid1, 2)];
    let Stack { leaves, lower, mut top } = Stack::new(&world, Level::Raid0, &mirrors);
    let mut above = Vec::new();
    for _ in 1..layers {
        world.create_of(vec![top.member()], stacked::options("over", Level::Linear, 1));
        let over = stacked::start(&world, vec![top.member()]);
        above.push(std::mem::replace(&mut top, over));
    }
    world.write(&top.array, 0, 0, &pattern(0, 256 << 10)).unwrap();
    world.sleep(SECOND);
    set(&leaves[0][1].deaf);
    let write = start_write(&world, &top.array, 0);
    let left = stop_within((1 + layers) * SECOND, &world, &top.control);
    assert!(left.is_well() && left.not_durable.is_none(), "{layers}: {left:?}");
    assert_eq!(*write.borrow(), Some(true), "{layers}");
    for array in above.iter().rev() {
        let left = stop_within(SECOND, &world, &array.control);
        assert!(left.is_well() && left.not_durable.is_none(), "{layers}: {left:?}");
    }
    assert_eq!(state_of(&world, &lower[0], "m0.1"), MemberState::Faulty);
    for (array, written) in lower.iter().zip([1, 2]) {
        let left = stop_within(SECOND, &world, &array.control);
        assert_eq!((left.ended, left.written), (Ended::Clean, written), "{layers}: {left:?}");
    }
}

#[test]
fn below_an_array_that_is_stopped_a_leaf_that_hangs_is_failed_by_its_own_array() {
    a_leaf_hangs_below_a_stop(1);
}

#[test]
fn the_lowest_array_of_three_layers_fails_its_leaf_before_those_above_lose_patience() {
    a_leaf_hangs_below_a_stop(2);
}

#[test]
fn below_an_array_that_is_stopped_no_leaf_is_given_up_that_cannot_be_spared() {
    let world = World::new(2);
    let mirrors = [(Level::Raid1, 2), (Level::Raid1, 2)];
    let stack = Stack::new(&world, Level::Raid0, &mirrors);
    stack.leaves[0].iter().for_each(|leaf| set(&leaf.deaf));
    let left = stop_within(3 * SECOND, &world, &stack.top.control);
    assert!(!left.is_well(), "{left:?}");
    stack.leaves[0].iter().for_each(|leaf| clear(&leaf.deaf));
    world.sleep(SECOND);
    for array in &stack.lower {
        let status = world.status(&array.control);
        assert!(status.members.iter().all(|m| m.state == MemberState::InSync), "{status:?}");
        let left = stop_within(SECOND, &world, &array.control);
        assert!(left.is_well(), "{left:?}");
    }
}

#[test]
fn a_copy_whose_leaf_hangs_and_cannot_be_spared_there_is_failed_by_the_mirror_above() {
    let world = World::new(2);
    let stripes = [(Level::Raid0, 2), (Level::Raid0, 2)];
    let Stack { leaves, lower, top } = Stack::new(&world, Level::Raid1, &stripes);
    world.write(&top.array, 0, 0, &pattern(0, 256 << 10)).unwrap();
    world.sleep(SECOND);
    // The superblock of the mirror lies on the other leaf.
    set(&leaves[0][1].deaf);
    let writes: Vec<_> =
        (0..4).map(|nr| start_write(&world, &top.array, nr * (64 << 10))).collect();
    world.sleep(1_000_000);
    let left = stop_within(3 * SECOND, &world, &top.control);
    assert_eq!((left.ended, left.written), (Ended::Clean, 1), "{left:?}");
    assert!(writes.iter().all(|write| *write.borrow() == Some(true)));
    for array in &lower {
        stop_within(2 * SECOND, &world, &array.control);
    }
}

// --- Blocks that only one member has -----------------------------------------------------------------

const BAD: Range<u64> = 8192..12288;

/// An array on some of whose members component bytes are recorded as bad, with writes not long ago.
fn with_bad_blocks(level: Level, disks: usize, on: &[usize]) -> Setting {
    let (world, members, array, control) = array(2, level, disks);
    world.stop(&control);
    drop((array, control));
    for nr in on {
        record(&world, &members[*nr], &[BAD]);
        spoil(&world, &members[*nr], BAD);
    }
    let (array, control) = world.assemble(&members);
    world.write(&array, 0, 512 << 10, &pattern(0, 1 << 20)[512 << 10..516 << 10]).unwrap();
    (world, members, array, control)
}

fn assert_nothing_is_lost(world: &World, members: &[Arc<TestMember>], what: &str) {
    let (array, control) = world.assemble(members);
    let states: Vec<_> = world.status(&control).members.iter().map(|m| m.state).collect();
    assert!(states.iter().all(|state| *state == MemberState::InSync), "{what}: {states:?}");
    world.wait_idle(&control);
    let size = array.info().device.size as usize;
    let read = world.read(&array, 0, 0, size);
    assert!(read.as_ref().is_ok_and(|read| *read == pattern(0, size)), "{what}");
    world.stop(&control);
}

#[test]
fn a_silent_member_that_alone_has_some_block_is_not_failed_by_the_stop() {
    for (level, disks, on) in [
        (Level::Raid1, 2, &[0][..]),
        (Level::Raid1, 3, &[0, 2]),
        (Level::Raid5, 3, &[0]),
        (Level::Raid6, 5, &[0, 3]),
        (Level::Raid10, 4, &[0]),
    ] {
        let what = format!("{level}, bad on {on:?}");
        let (world, members, _array, control) = with_bad_blocks(level, disks, on);
        set(&members[1].deaf);
        let left = stop_within(2 * SECOND, &world, &control);
        assert!(left.ended == Ended::Active && !left.is_well(), "{what}: {left:?}");
        let said = |line: &String| line.contains("m1") && line.contains("not waited for");
        assert!(left.problems.iter().any(said), "{what}: {left:?}");
        assert_ne!(world.superblock(&members[0]).roles[1], Role::Faulty, "{what}");
        clear(&members[1].deaf);
        world.sleep(SECOND);
        assert_nothing_is_lost(&world, &members, &what);
    }
}

#[test]
fn a_member_whose_bad_blocks_others_have_too_is_failed_by_the_stop_as_any_other() {
    for (level, disks, on) in [
        (Level::Raid1, 3, &[0][..]),
        (Level::Raid1, 2, &[1]),
        (Level::Raid6, 5, &[0]),
        (Level::Raid10, 4, &[2]),
    ] {
        let what = format!("{level}, bad on {on:?}");
        let (world, members, _array, control) = with_bad_blocks(level, disks, on);
        set(&members[1].deaf);
        let left = stop_within(2 * SECOND, &world, &control);
        assert_eq!((left.ended, left.written), (Ended::Clean, disks - 1), "{what}: {left:?}");
        assert_eq!(world.superblock(&members[0]).roles[1], Role::Faulty, "{what}");
    }
}

#[test]
fn a_member_that_alone_has_some_block_is_not_failed_for_the_flush_of_a_stop() {
    let (world, members, _array, control) = with_bad_blocks(Level::Raid1, 2, &[0]);
    let lost = world.superblock(&members[1]).data_offset * 512 + (1 << 20);
    *members[1].trap.lock().unwrap() = Some((lost, vec![0x11; 4096]));
    let left = stop_within(2 * SECOND, &world, &control);
    assert!(left.ended == Ended::Active && left.not_durable.is_some(), "{left:?}");
    assert_nothing_is_lost(&world, &members, "raid1");
}
