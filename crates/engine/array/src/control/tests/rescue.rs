//! Arrays that cannot start without members that they went on without.

use crate::assemble::outlook::outlook;
use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::error::AssembleError;
use crate::options::{AssembleOptions, CreateOptions, MemberSelector};
use crate::status::MemberState;
use braid_device::{Opener, Target};
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;
const NEAR_2: u32 = 0x102;

fn forced() -> AssembleOptions {
    AssembleOptions { force: true, take_stale: true, ..AssembleOptions::default() }
}

/// An array that was written, stopped and started again without some members, round after round: `rounds` has the members
/// that are there. What is there in the end cannot start by itself.
fn stale(world: &World, level: Level, disks: usize, rounds: &[&[usize]]) -> Vec<Arc<TestMember>> {
    let members = members("m", disks, 3 * MIB);
    let options = CreateOptions {
        chunk_size: (level != Level::Raid1).then_some(64 * KIB),
        layout: (level == Level::Raid10).then_some(NEAR_2),
        assume_clean: true,
        ..CreateOptions::new("data", level, disks)
    };
    world.create(&members, options);
    for (round, there) in (0u64..).zip(rounds) {
        let those: Vec<_> = there.iter().map(|nr| Arc::clone(&members[*nr])).collect();
        let (array, control) = world.assemble(&those);
        world.wait_idle(&control);
        if round == 0 {
            let size = array.info().device.size as usize;
            world.write(&array, 0, 0, &pattern(0, size)).unwrap();
        }
        world.write(&array, 0, round * 8192, &pattern(round + 1, 4096)).unwrap();
        world.stop(&control);
    }
    members
}

fn some(members: &[Arc<TestMember>], which: &[usize]) -> Vec<Arc<TestMember>> {
    which.iter().map(|nr| Arc::clone(&members[*nr])).collect()
}

/// The names of the members that hold a slot, and what is said of those taken by force.
fn holders(world: &World, control: &Rc<Control>) -> (Vec<String>, Vec<String>) {
    let status = world.status(control);
    let held = status.members.iter().filter(|m| m.state == MemberState::InSync);
    (held.map(|m| m.name.clone()).collect(), status.taken_by_force)
}

#[test]
fn the_newest_stale_member_is_taken_when_it_is_needed_and_no_older_one() {
    let world = World::new(1);
    let members = stale(&world, Level::Raid5, 4, &[&[0, 1, 2, 3], &[0, 1, 2], &[0, 1, 2]]);
    // 0 is lost: 1 and 2 are fresh, 3 is stale.
    let left = some(&members, &[1, 2, 3]);
    let error = world.try_assemble(&left, AssembleOptions::default()).err().unwrap();
    let AssembleError::NotEnough { by_force, .. } = &error else { panic!("{error}") };
    assert_eq!(by_force.len(), 1, "{error}");
    let said = error.to_string();
    for says in
        ["--force takes\n  m3: slot 3, ", " updates older than the freshest", "--read-only --force"]
    {
        assert!(said.contains(says), "{says}: {said}");
    }
    let before = world.contents(&members[3]);
    let read_only = AssembleOptions { read_only: true, ..forced() };
    let array = world.try_assemble(&left, read_only).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    let (held, taken) = holders(&world, &control);
    assert_eq!((held.len(), taken.len()), (3, 1));
    // What was written while it was away is on the others, or is lost with it.
    assert!(world.read(&array, 0, 256 * KIB, 4096).unwrap() == pattern(256 * KIB, 4096));
    world.stop(&control);
    assert!(world.contents(&members[3]) == before, "a read-only look has written");
    let array = world.try_assemble(&left, forced()).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    world.wait_idle(&control);
    world.write(&array, 0, 0, &pattern(9, 4096)).unwrap();
    world.stop(&control);
    // From then on it is a member like the others.
    let (array, control) = world.assemble(&left);
    assert!(world.read(&array, 0, 0, 4096).unwrap() == pattern(9, 4096));
    assert!(holders(&world, &control).1.is_empty());
}

#[test]
fn of_several_vintages_the_newest_come_first_and_whole_as_for_mdadm() {
    let world = World::new(1);
    // 4 leaves first, then 3 and 2 together; 0 is lost in the end.
    let rounds: &[&[usize]] =
        &[&[0, 1, 2, 3, 4], &[0, 1, 2, 3], &[0, 1, 2, 3], &[0, 1, 2], &[0, 1, 2]];
    let members = stale(&world, Level::Raid6, 5, rounds);
    let left = some(&members, &[1, 2, 3, 4]);
    let array = world.try_assemble(&left, forced()).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    let (held, taken) = holders(&world, &control);
    assert_eq!(held, ["m1", "m2", "m3"]);
    assert!(taken.len() == 1 && taken[0].starts_with("m3: slot 3"), "{taken:?}");
    world.stop(&control);
    // Two of the same update are taken together.
    let members = stale(&world, Level::Raid6, 5, &[&[0, 1, 2, 3, 4], &[0, 1, 2], &[0, 1, 2]]);
    let array = world.try_assemble(&some(&members, &[0, 1, 3, 4]), forced()).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    assert_eq!(holders(&world, &control).0, ["m0", "m1", "m3", "m4"]);
    // Redundancy is made to match what is read.
    world.wait_idle(&control);
    assert_eq!(world.check(&control), 0);
}

#[test]
fn a_stale_copy_that_brings_nothing_stays_out() {
    let world = World::new(1);
    // Pairs are 0 and 1, 2 and 3. 1 leaves last, so it is the newest stale one, and 0 has all that it has.
    let rounds: &[&[usize]] = &[&[0, 1, 2, 3], &[0, 1, 2], &[0, 1, 2], &[0, 2], &[0, 2]];
    let members = stale(&world, Level::Raid10, 4, rounds);
    let left = some(&members, &[0, 1, 3]);
    let array = world.try_assemble(&left, forced()).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    assert_eq!(holders(&world, &control).0, ["m0", "m3"]);
}

#[test]
fn a_member_that_failed_last_is_taken_and_what_starts_anyway_takes_nobody() {
    let world = World::new(1);
    let (members, array, control) = world.full_array((Level::Raid5, 3), 3 * MIB, false);
    let name = MemberSelector::Name("m2".to_string());
    let failing = Rc::clone(&control);
    world.run(async move { failing.membership().fail(&name).await }).unwrap();
    world.write(&array, 0, 0, &pattern(5, 4096)).unwrap();
    world.stop(&control);
    let left = some(&members, &[0, 2]);
    assert!(world.try_assemble(&left, AssembleOptions::default()).is_err());
    let array = world.try_assemble(&left, forced()).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    assert_eq!(holders(&world, &control).0, ["m0", "m2"]);
    world.stop(&control);

    let members = stale(&world, Level::Raid5, 3, &[&[0, 1, 2], &[0, 1], &[0, 1]]);
    let array = world.try_assemble(&members, forced()).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    assert_eq!(holders(&world, &control), (vec!["m0".into(), "m1".into()], Vec::new()));
}

#[test]
fn the_outlook_says_who_is_stale_and_by_how_much_and_writes_nothing() {
    let world = World::new(1);
    let members = stale(&world, Level::Raid5, 3, &[&[0, 1, 2], &[0, 1], &[0, 1]]);
    let look = |which: &[usize]| {
        let openers = some(&members, which).into_iter().map(|member| member as Arc<dyn Opener>);
        let (ctx, openers) = (world.ctx.clone(), openers.collect());
        world.run(async move { outlook(&ctx, openers, true).await }).unwrap()
    };
    let before: Vec<_> = members.iter().map(|member| world.contents(member)).collect();
    let whole = look(&[0, 1, 2]);
    assert_eq!((whole.problem, whole.by_force, whole.missing), (None, false, vec![2]));
    assert!(whole.members[2].part.contains("updates older"), "{:?}", whole.members);
    let lost = look(&[1, 2]);
    assert!(lost.by_force && lost.problem.unwrap().contains("1 of 3 members are usable"));
    assert_eq!(lost.missing, [0]);
    let stale = &lost.members[1];
    assert!(stale.by_force && stale.part == "taken by force" && stale.behind > 1, "{stale:?}");
    let too_few = look(&[1]);
    assert!(!too_few.by_force && too_few.problem.is_some());
    let after: Vec<_> = members.iter().map(|member| world.contents(member)).collect();
    assert!(before == after);
}
