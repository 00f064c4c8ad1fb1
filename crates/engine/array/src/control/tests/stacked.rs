//! Arrays of arrays: what fails at one level, and what the other makes of it.

use crate::array::Array;
use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::options::{AssembleOptions, CreateOptions, MemberSelector};
use crate::stacking::ArrayMember;
use crate::status::{ArrayState, Ended, Left, MemberState};
use braid_device::Opener;
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

pub(super) fn options(name: &str, level: Level, disks: usize) -> CreateOptions {
    CreateOptions {
        chunk_size: (level != Level::Raid1).then_some(64 * KIB),
        ..CreateOptions::new(name, level, disks)
    }
}

/// An array that runs.
pub(super) struct Running {
    pub(super) array: Arc<Array>,
    pub(super) control: Rc<Control>,
}

impl Running {
    pub(super) fn member(&self) -> Arc<dyn Opener> {
        Arc::new(ArrayMember::new(self.array.clone()))
    }
}

/// One array over others, and theirs over leaves.
pub(super) struct Stack {
    pub(super) leaves: Vec<Vec<Arc<TestMember>>>,
    pub(super) lower: Vec<Running>,
    pub(super) top: Running,
}

pub(super) fn start(world: &World, members: Vec<Arc<dyn Opener>>) -> Running {
    let array = world.try_assemble_of(members, AssembleOptions::default()).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    Running { array, control }
}

fn of_leaves(leaves: &[Arc<TestMember>]) -> Vec<Arc<dyn Opener>> {
    leaves.iter().map(|leaf| Arc::clone(leaf) as Arc<dyn Opener>).collect()
}

impl Stack {
    /// Array `top` over `m0`, `m1`, …; the leaves of `m0` are `m0.0`, `m0.1`, ….
    pub(super) fn new(world: &World, top: Level, lower: &[(Level, usize)]) -> Stack {
        let leaves: Vec<_> =
            (0..lower.len()).map(|nr| members(&format!("m{nr}."), lower[nr].1, 6 * MIB)).collect();
        for (nr, ((level, disks), leaves)) in lower.iter().zip(&leaves).enumerate() {
            world.create(leaves, options(&format!("m{nr}"), *level, *disks));
        }
        let running: Vec<_> = leaves.iter().map(|leaves| start(world, of_leaves(leaves))).collect();
        let members = running.iter().map(Running::member).collect();
        world.create_of(members, options("top", top, lower.len()));
        let top = start(world, running.iter().map(Running::member).collect());
        let stack = Stack { leaves, lower: running, top };
        stack.wait_idle(world);
        stack
    }

    /// From the bottom up, of the leaves of an earlier stack.
    fn again(world: &World, leaves: Vec<Vec<Arc<TestMember>>>) -> Stack {
        let lower: Vec<_> = leaves.iter().map(|leaves| start(world, of_leaves(leaves))).collect();
        let top = start(world, lower.iter().map(Running::member).collect());
        Stack { leaves, lower, top }
    }

    fn wait_idle(&self, world: &World) {
        self.lower.iter().chain([&self.top]).for_each(|array| world.wait_idle(&array.control));
    }

    /// From the top down.
    fn stop(self, world: &World) -> Vec<Vec<Arc<TestMember>>> {
        world.stop(&self.top.control);
        self.lower.iter().for_each(|array| world.stop(&array.control));
        self.leaves
    }

    /// The time that the stop of the upper array takes, in nanoseconds.
    fn stop_top(&self, world: &World) -> (Left, u64) {
        let (control, before) = (Rc::clone(&self.top.control), world.shards[0].now());
        let left = world.run(async move { control.stop().await });
        (left, world.shards[0].now() - before)
    }

    fn degraded(&self, world: &World) -> (usize, Vec<usize>) {
        let of = |array: &Running| world.status(&array.control).degraded;
        (of(&self.top), self.lower.iter().map(of).collect())
    }

    /// The mismatch counts of a `check`: of the upper array, and of each below it.
    fn check(&self, world: &World) -> (u64, Vec<u64>) {
        let redundant = |array: &Running| world.status(&array.control).level.has_redundancy();
        let of = |array: &Running| {
            if redundant(array) { world.check(&array.control) } else { 0 }
        };
        (of(&self.top), self.lower.iter().map(of).collect())
    }

    fn kill(&self, array: usize, leaf: usize) {
        self.leaves[array][leaf].dead.store(true, Ordering::Relaxed);
    }

    /// Device bytes of a leaf at component byte `at`.
    fn on_leaf(&self, world: &World, array: usize, leaf: usize, at: u64) -> u64 {
        world.superblock(&self.leaves[array][leaf]).data_offset * 512 + at
    }

    fn write(&self, world: &World, seed: u64, at: u64, len: usize) -> Vec<u8> {
        let bytes = pattern(seed, len);
        let on = world.shards.len() - 1;
        world.write(&self.top.array, on, at, &bytes).unwrap();
        bytes
    }

    fn reads(&self, world: &World, at: u64, bytes: &[u8]) {
        for on in 0..world.shards.len() {
            let read = world.read(&self.top.array, on, at, bytes.len()).unwrap();
            let differs = read.iter().zip(bytes).position(|(a, b)| a != b);
            assert_eq!(differs, None, "shard {on}");
        }
    }
}

pub(super) fn state_of(world: &World, array: &Running, name: &str) -> MemberState {
    let status = world.status(&array.control);
    status.members.iter().find(|member| member.name == name).unwrap().state
}

fn add(world: &World, array: &Running, member: Arc<dyn Opener>) {
    let control = Rc::clone(&array.control);
    world.run(async move { control.membership().add(member, false).await }).unwrap();
}

fn fail(world: &World, array: &Running, name: &str) {
    let (control, name) = (Rc::clone(&array.control), MemberSelector::Name(name.to_string()));
    world.run(async move { control.membership().fail(&name).await }).unwrap();
}

fn remove(world: &World, array: &Running, name: &str) {
    let (control, name) = (Rc::clone(&array.control), MemberSelector::Name(name.to_string()));
    world.run(async move { control.membership().remove(&name).await }).unwrap();
}

/// Stacks of which each leaf may fail alone.
const STACKS: &[(Level, &[(Level, usize)])] = &[
    (Level::Raid0, &[(Level::Raid1, 2), (Level::Raid1, 2)]),
    (Level::Raid0, &[(Level::Raid5, 3), (Level::Raid5, 3)]),
    (Level::Raid0, &[(Level::Raid6, 4), (Level::Raid10, 4)]),
    (Level::Raid1, &[(Level::Raid0, 2), (Level::Raid0, 2)]),
    (Level::Raid1, &[(Level::Raid5, 3), (Level::Raid0, 2)]),
    (Level::Raid5, &[(Level::Raid1, 2), (Level::Raid1, 2), (Level::Raid1, 2)]),
    (Level::Raid6, &[(Level::Raid5, 3), (Level::Raid5, 3), (Level::Raid5, 3), (Level::Raid1, 2)]),
    (Level::Raid10, &[(Level::Raid0, 2), (Level::Raid0, 2), (Level::Raid0, 2)]),
    (Level::Linear, &[(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid10, 3)]),
];

#[test]
fn every_stack_is_written_read_checked_and_assembled_again() {
    for (nr, (top, lower)) in STACKS.iter().enumerate() {
        println!("{top} over {lower:?}");
        let world = World::new(1 + nr as u16 % 3);
        let stack = Stack::new(&world, *top, lower);
        let bytes = stack.write(&world, 1, 12 * KIB, 3 << 20);
        stack.reads(&world, 12 * KIB, &bytes);
        assert_eq!(stack.check(&world), (0, vec![0; lower.len()]));
        let leaves = stack.stop(&world);
        let stack = Stack::again(&world, leaves);
        let status = world.status(&stack.top.control);
        assert_eq!(status.state, [ArrayState::Clean]);
        assert_eq!(status.job, None);
        stack.reads(&world, 12 * KIB, &bytes);
        stack.stop(&world);
    }
}

#[test]
fn after_a_crash_a_stack_is_assembled_from_the_bottom_up() {
    for (nr, (top, lower)) in STACKS.iter().enumerate() {
        println!("{top} over {lower:?}");
        let world = World::new(1 + nr as u16 % 3);
        let stack = Stack::new(&world, *top, lower);
        let bytes = stack.write(&world, 2, 0, 2 << 20);
        let Stack { leaves, .. } = stack;
        let world = world.crash();
        let stack = Stack::again(&world, leaves);
        stack.reads(&world, 0, &bytes);
        stack.wait_idle(&world);
        stack.reads(&world, 0, &bytes);
        assert_eq!(stack.check(&world), (0, vec![0; lower.len()]));
        stack.stop(&world);
    }
}

#[test]
fn a_leaf_that_fails_costs_no_byte_in_any_stack() {
    for (nr, (top, lower)) in STACKS.iter().enumerate() {
        println!("{top} over {lower:?}");
        let world = World::new(1 + nr as u16 % 3);
        let stack = Stack::new(&world, *top, lower);
        let old = stack.write(&world, 3, 0, 3 << 20);
        stack.kill(0, 1);
        stack.reads(&world, 0, &old);
        let new = stack.write(&world, 4, 0, 2 << 20);
        stack.reads(&world, 0, &new);
        stack.reads(&world, 2 << 20, &old[2 << 20..]);
        let (degraded, below) = stack.degraded(&world);
        if lower[0].0.has_redundancy() {
            assert_eq!((degraded, below[0]), (0, 1));
        } else {
            assert_eq!((degraded, below[0]), (1, 0));
            assert_eq!(state_of(&world, &stack.top, "array:m0"), MemberState::Faulty);
        }
        stack.stop(&world);
    }
}

#[test]
fn a_stripe_over_mirrors_goes_on_with_one_leaf_of_each_and_is_rebuilt_below() {
    let world = World::new(2);
    let stack = Stack::new(&world, Level::Raid0, STACKS[0].1);
    let bytes = stack.write(&world, 5, 0, 4 << 20);
    stack.kill(0, 0);
    stack.kill(1, 1);
    let bytes = [stack.write(&world, 6, 0, 1 << 20), bytes[1 << 20..].to_vec()].concat();
    assert_eq!(stack.degraded(&world), (0, vec![1, 1]));
    let spares = members("spare", 2, 6 * MIB);
    for (nr, spare) in spares.iter().enumerate() {
        add(&world, &stack.lower[nr], Arc::clone(spare) as Arc<dyn Opener>);
    }
    stack.wait_idle(&world);
    assert_eq!(stack.degraded(&world), (0, vec![0, 0]));
    // Now the data on the spares is needed.
    stack.kill(0, 1);
    stack.kill(1, 0);
    stack.reads(&world, 0, &bytes);
    stack.stop(&world);
}

#[test]
fn a_stripe_with_a_lost_mirror_gives_errors_there_and_right_bytes_elsewhere() {
    let world = World::new(2);
    let stack = Stack::new(&world, Level::Raid0, STACKS[0].1);
    let bytes = stack.write(&world, 7, 0, 1 << 20);
    stack.kill(0, 0);
    stack.kill(0, 1);
    let chunk = 64 << 10;
    for nr in 0..16 {
        let at = nr * chunk;
        let read = world.read(&stack.top.array, nr % 2, at as u64, chunk);
        let write = world.write(&stack.top.array, nr % 2, at as u64, &bytes[at..at + chunk]);
        if nr % 2 == 0 {
            assert!(read.is_err() && write.is_err());
        } else {
            assert_eq!(read.unwrap(), bytes[at..at + chunk]);
            write.unwrap();
        }
    }
    assert!(world.status(&stack.lower[0].control).state.contains(&ArrayState::Failed));
    stack.stop(&world);
}

#[test]
fn a_mirror_of_stripes_fails_the_stripe_that_lost_a_leaf_and_rebuilds_another() {
    let world = World::new(2);
    let stack = Stack::new(&world, Level::Raid1, &[(Level::Raid0, 2), (Level::Raid0, 3)]);
    let bytes = stack.write(&world, 8, 0, 4 << 20);
    stack.kill(0, 1);
    stack.reads(&world, 0, &bytes);
    let bytes = [stack.write(&world, 9, 0, 1 << 20), bytes[1 << 20..].to_vec()].concat();
    assert_eq!(state_of(&world, &stack.top, "array:m0"), MemberState::Faulty);
    remove(&world, &stack.top, "array:m0");
    world.stop(&stack.lower[0].control);
    let leaves = members("n", 2, 7 * MIB);
    world.create(&leaves, options("m2", Level::Raid0, 2));
    let third = start(&world, of_leaves(&leaves));
    add(&world, &stack.top, third.member());
    world.wait_idle(&stack.top.control);
    assert_eq!(world.status(&stack.top.control).degraded, 0);
    stack.kill(1, 2);
    stack.reads(&world, 0, &bytes);
    world.stop(&stack.top.control);
}

/// A read alone is enough to find out.
#[test]
fn an_array_that_has_lost_too_much_is_failed_by_the_array_above_it() {
    for (top, lower) in [
        (Level::Raid1, [(Level::Raid5, 3); 3]),
        (Level::Raid5, [(Level::Raid5, 3); 3]),
        (Level::Raid5, [(Level::Raid1, 2); 3]),
        (Level::Raid10, [(Level::Raid4, 3); 3]),
    ] {
        println!("{top} over {lower:?}");
        let world = World::new(2);
        let stack = Stack::new(&world, top, &lower);
        let bytes = stack.write(&world, 10, 0, 4 << 20);
        stack.kill(0, 0);
        stack.kill(0, 1);
        for _ in 0..3 {
            stack.reads(&world, 0, &bytes);
        }
        assert_eq!(state_of(&world, &stack.top, "array:m0"), MemberState::Faulty);
        let bytes = stack.write(&world, 11, 0, 4 << 20);
        stack.reads(&world, 0, &bytes);
        stack.stop(&world);
    }
}

/// Two leaves cannot read the same rows: below nothing can be done, above it is one unreadable block.
#[test]
fn an_array_that_has_lost_some_blocks_is_mended_from_above_and_stays() {
    for (top, lower) in [
        (Level::Raid1, [(Level::Raid5, 3); 3]),
        (Level::Raid5, [(Level::Raid5, 3); 3]),
        (Level::Raid10, [(Level::Raid4, 3); 3]),
        (Level::Raid5, [(Level::Raid10, 2); 3]),
    ] {
        println!("{top} over {lower:?}");
        let world = World::new(2);
        let stack = Stack::new(&world, top, &lower);
        let bytes = stack.write(&world, 12, 0, 4 << 20);
        for leaf in 0..2 {
            let at = stack.on_leaf(&world, 0, leaf, 2 * MIB);
            let bad = at..at + 8 * KIB;
            stack.leaves[0][leaf].unreadable.lock().unwrap().push(bad);
        }
        stack.reads(&world, 0, &bytes);
        assert_eq!(state_of(&world, &stack.top, "array:m0"), MemberState::InSync);
        assert_eq!(world.status(&stack.lower[0].control).degraded, 0);
        stack.stop(&world);
    }
}

#[test]
fn a_recovered_read_crosses_shards_at_both_levels() {
    for (top, lower) in
        [(Level::Raid1, [(Level::Raid5, 3); 2]), (Level::Raid10, [(Level::Raid6, 4); 2])]
    {
        let world = World::new(3);
        let stack = Stack::new(&world, top, &lower);
        let bytes = stack.write(&world, 13, 0, 3 << 20);
        // Both members are degraded, and one of them gives errors above that.
        stack.kill(1, 2);
        stack.kill(0, 0);
        stack.kill(0, 1);
        stack.reads(&world, 0, &bytes);
        assert_eq!(state_of(&world, &stack.top, "array:m1"), MemberState::InSync);
        stack.stop(&world);
    }
}

#[test]
fn each_level_counts_and_mends_its_own_mismatches() {
    let world = World::new(1);
    let lower = [(Level::Raid1, 2), (Level::Raid1, 2), (Level::Raid5, 3)];
    let stack = Stack::new(&world, Level::Raid5, &lower);
    let bytes = stack.write(&world, 14, 0, 2 << 20);
    assert_eq!(stack.check(&world), (0, vec![0; 3]));
    // A copy below that nobody reads first, and then a whole member of the upper array.
    let at = stack.on_leaf(&world, 0, 1, 3 * MIB);
    world.scribble(&stack.leaves[0][1], at, &[0xee; 512]);
    let counted = stack.check(&world);
    assert_eq!(counted.1, [8, 0, 0]);
    stack.lower[0].control.jobs().start_repair().unwrap();
    assert_eq!(stack.check(&world), (0, vec![0; 3]));
    let offset = world.status(&stack.top.control).members[2].data_offset;
    world.write(&stack.lower[2].array, 0, offset + 64 * KIB, &[0xee; 4096]).unwrap();
    assert_eq!(stack.check(&world), (8, vec![0; 3]));
    stack.top.control.jobs().start_repair().unwrap();
    stack.wait_idle(&world);
    assert_eq!(stack.check(&world), (0, vec![0; 3]));
    drop(bytes);
    stack.stop(&world);
}

#[test]
fn an_array_stopped_below_another_is_a_member_that_is_gone() {
    for (top, lower) in [
        (Level::Raid1, [(Level::Raid5, 3); 3]),
        (Level::Raid5, [(Level::Raid1, 2); 3]),
        (Level::Raid10, [(Level::Raid0, 2); 3]),
    ] {
        for writes in [false, true] {
            println!("{top} over {lower:?}, writes {writes}");
            let world = World::new(2);
            let stack = Stack::new(&world, top, &lower);
            let mut bytes = stack.write(&world, 15, 0, 4 << 20);
            world.stop(&stack.lower[0].control);
            if writes {
                bytes = stack.write(&world, 16, 0, 4 << 20);
            }
            stack.reads(&world, 0, &bytes);
            assert_eq!(state_of(&world, &stack.top, "array:m0"), MemberState::Faulty);
            world.stop(&stack.top.control);
            stack.lower[1..].iter().for_each(|array| world.stop(&array.control));
            // It is stale, and is not taken for whole when everything starts again.
            let stack = Stack::again(&world, stack.leaves);
            assert_eq!(world.status(&stack.top.control).degraded, 1);
            stack.reads(&world, 0, &bytes);
            stack.stop(&world);
        }
    }
}

#[test]
fn a_stripe_whose_member_was_stopped_gives_errors_there_and_is_whole_when_it_is_back() {
    let world = World::new(2);
    let stack = Stack::new(&world, Level::Raid0, STACKS[0].1);
    let bytes = stack.write(&world, 17, 0, 1 << 20);
    world.stop(&stack.lower[1].control);
    assert!(world.read(&stack.top.array, 0, 64 << 10, 4096).is_err());
    assert!(world.write(&stack.top.array, 1, 64 << 10, &bytes[..4096]).is_err());
    assert_eq!(world.read(&stack.top.array, 0, 0, 4096).unwrap(), bytes[..4096]);
    world.stop(&stack.top.control);
    world.stop(&stack.lower[0].control);
    let stack = Stack::again(&world, stack.leaves);
    stack.reads(&world, 0, &bytes);
    stack.stop(&world);
}

#[test]
fn a_member_that_is_an_array_is_failed_removed_and_added_again_by_command() {
    let world = World::new(2);
    let stack = Stack::new(&world, Level::Raid5, STACKS[5].1);
    let bytes = stack.write(&world, 18, 0, 4 << 20);
    fail(&world, &stack.top, "array:m1");
    stack.reads(&world, 0, &bytes);
    remove(&world, &stack.top, "array:m1");
    add(&world, &stack.top, stack.lower[1].member());
    stack.wait_idle(&world);
    assert_eq!(stack.degraded(&world), (0, vec![0; 3]));
    assert_eq!(stack.check(&world), (0, vec![0; 3]));
    stack.reads(&world, 0, &bytes);
    stack.stop(&world);
}

#[test]
fn a_stop_has_the_lowest_array_do_without_the_leaf_that_does_not_answer() {
    for (top, lower) in [(Level::Raid0, Level::Raid1), (Level::Raid1, Level::Raid1)] {
        let world = World::new(2);
        let stack = Stack::new(&world, top, &[(lower, 2), (lower, 2)]);
        let bytes = stack.write(&world, 3, 0, 256 << 10);
        stack.leaves[0][1].deaf.store(true, Ordering::Relaxed);
        let (left, took) = stack.stop_top(&world);
        assert!(left.is_well() && left.ended == Ended::Clean, "{top}: {left:?}");
        assert!(took < 2_000_000_000, "{top}: {} ms", took / 1_000_000);
        assert_eq!(world.status(&stack.lower[0].control).degraded, 1, "{top}");
        assert_eq!(world.status(&stack.lower[1].control).degraded, 0, "{top}");
        let leaves = stack.stop(&world);
        leaves[0][1].deaf.store(false, Ordering::Relaxed);
        world.sleep(1_000_000_000);
        let stack = Stack::again(&world, leaves);
        stack.reads(&world, 0, &bytes);
        assert_eq!(stack.degraded(&world).0, 0, "{top}");
        stack.stop(&world);
    }
}
