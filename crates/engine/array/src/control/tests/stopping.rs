//! The report of a stop about the members that it leaves.

use crate::control::Control;
use crate::control::tests::world::{World, members, pattern};
use crate::options::CreateOptions;
use crate::status::{Ended, Left};
use braid_layout::Level;
use std::rc::Rc;
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;

fn stop(world: &World, control: &Rc<Control>) -> Left {
    let control = Rc::clone(control);
    world.run(async move { control.stop().await })
}

fn options(level: Level, disks: usize) -> CreateOptions {
    CreateOptions { assume_clean: true, ..CreateOptions::new("data", level, disks) }
}

#[test]
fn an_array_is_called_clean_when_its_members_say_so() {
    for level in [Level::Raid0, Level::Raid1, Level::Raid5, Level::Raid10, Level::Linear] {
        let (world, members) = (World::new(2), members("m", 3, 4 * MIB));
        world.create(&members, options(level, 3));
        let (array, control) = world.assemble(&members);
        world.write(&array, 0, 0, &pattern(0, 8192)).unwrap();
        let left = stop(&world, &control);
        assert_eq!((left.ended, left.written), (Ended::Clean, 3), "{level}: {left:?}");
        assert!(left.is_well(), "{level}: {left:?}");
    }
}

#[test]
fn members_that_take_no_superblock_are_named_and_the_array_is_not_called_clean() {
    let (world, members) = (World::new(1), members("m", 3, 4 * MIB));
    world.create(&members, options(Level::Raid5, 3));
    let (array, control) = world.assemble(&members);
    world.write(&array, 0, 0, &pattern(0, 8192)).unwrap();
    // No room under any of them: as before the first write the superblocks say "active".
    for member in &members {
        member.defects.lock().unwrap().push(0..MIB);
    }
    let left = stop(&world, &control);
    assert_eq!(left.ended, Ended::Active, "{left:?}");
    assert!(!left.is_well() && left.problems.iter().any(|line| line.contains("m0")), "{left:?}");
    assert_eq!(world.superblock(&members[2]).resync_offset, 0);
}

#[test]
fn a_member_that_is_lost_at_the_end_is_named_and_the_others_are_clean() {
    let (world, members) = (World::new(1), members("m", 3, 4 * MIB));
    world.create(&members, options(Level::Raid5, 3));
    let (array, control) = world.assemble(&members);
    world.write(&array, 0, 0, &pattern(0, 8192)).unwrap();
    members[1].dead.store(true, Ordering::Relaxed);
    let left = stop(&world, &control);
    assert_eq!((left.ended, left.written), (Ended::Clean, 2), "{left:?}");
    assert!(!left.is_well() && left.problems[0].contains("m1"), "{left:?}");
}

#[test]
fn an_array_without_redundancy_says_that_a_flush_failed() {
    let (world, members) = (World::new(1), members("m", 2, 4 * MIB));
    world.create(&members, options(Level::Raid0, 2));
    let (array, control) = world.assemble(&members);
    world.write(&array, 0, 0, &pattern(0, 8192)).unwrap();
    let at = world.superblock(&members[1]).data_offset * 512;
    *members[1].trap.lock().unwrap() = Some((at, vec![0; 4096]));
    let left = stop(&world, &control);
    assert!(!left.is_well() && left.not_durable.is_some(), "{left:?}");
}
