//! Two members of an array with two parities are filled in one pass over the others.

use crate::array::Array;
use crate::control::Control;
use crate::control::tests::hanging::named;
use crate::control::tests::world::{TestMember, World, pattern};
use crate::status::MemberState;
use braid_device::{Opener, Target};
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
const COMPONENT: u64 = 22 * MIB;

/// An array of five that has lost members 1 and 3.
fn without_two(world: &World) -> (Vec<Arc<TestMember>>, Arc<Array>, Rc<Control>) {
    let (members, array, control) = world.full_array((Level::Raid6, 5), 24 * MIB, true);
    for name in ["m1", "m3"] {
        let control = Rc::clone(&control);
        world.run(async move {
            control.membership().fail(&named(name)).await.unwrap();
            control.membership().remove(&named(name)).await.unwrap();
        });
    }
    for member in &members {
        member.read.store(0, Ordering::Relaxed);
    }
    (members, array, control)
}

fn add(world: &World, control: &Rc<Control>, member: &Arc<TestMember>) {
    let (control, opener) = (Rc::clone(control), Arc::clone(member) as Arc<dyn Opener>);
    world.run(async move { control.membership().add(opener, true).await }).unwrap();
}

fn slowly(control: &Control) {
    control.jobs().set_sync_speed(0, 2 << 10).unwrap();
}

fn fast(control: &Control) {
    control.jobs().set_sync_speed(0, u64::MAX).unwrap();
}

fn state(world: &World, control: &Rc<Control>, name: &str) -> MemberState {
    let status = world.status(control);
    status.members.into_iter().find(|member| member.name == name).unwrap().state
}

/// All is there and fits together.
fn assert_whole(world: &World, array: &Array, control: &Rc<Control>) {
    world.wait_idle(control);
    assert_eq!(world.status(control).degraded, 0);
    assert_eq!(world.check(control), 0);
    let size = array.info().device.size as usize;
    assert!(world.read(array, 0, 0, size).unwrap() == pattern(0, size));
}

/// The most times that one of the other members was read as a whole.
fn passes(members: &[Arc<TestMember>]) -> f64 {
    let most = [0, 2, 4].into_iter().map(|nr| members[nr].read.load(Ordering::Relaxed)).max();
    most.unwrap() as f64 / COMPONENT as f64
}

#[test]
fn two_that_are_added_one_after_the_other_are_filled_in_one_pass() {
    for shards in [1, 2] {
        let world = World::new(shards);
        let (members, array, control) = without_two(&world);
        slowly(&control);
        add(&world, &control, &members[1]);
        world.sleep(SECOND / 10);
        add(&world, &control, &members[3]);
        fast(&control);
        world.wait_idle(&control);
        assert!(passes(&members) < 1.2, "{}", passes(&members));
        assert_whole(&world, &array, &control);
        world.stop(&control);
    }
}

#[test]
fn one_that_is_further_is_filled_first() {
    let world = World::new(1);
    let (members, array, control) = without_two(&world);
    slowly(&control);
    add(&world, &control, &members[1]);
    world.sleep(4 * SECOND);
    add(&world, &control, &members[3]);
    world.sleep(2 * SECOND);
    let MemberState::Rebuilding { recovered } = state(&world, &control, "m1") else { panic!() };
    assert!(recovered > 8 * MIB, "{recovered}");
    assert_eq!(state(&world, &control, "m3"), MemberState::Spare);
    fast(&control);
    assert_whole(&world, &array, &control);
    world.stop(&control);
}

#[test]
fn when_one_of_two_fails_the_other_is_filled_all_the_same() {
    for dies in [1, 3] {
        let world = World::new(1);
        let (members, array, control) = without_two(&world);
        slowly(&control);
        add(&world, &control, &members[1]);
        add(&world, &control, &members[3]);
        world.sleep(4 * SECOND);
        members[dies].dead.store(true, Ordering::Relaxed);
        fast(&control);
        world.wait_idle(&control);
        assert_eq!(world.status(&control).degraded, 1);
        let (other, name) = if dies == 1 { (3, "m3") } else { (1, "m1") };
        assert_eq!(state(&world, &control, name), MemberState::InSync, "{other}");
        // The one that is left keeps what was filled of it; windows that were under way are gone through again.
        assert!(passes(&members) < 1.5, "{}", passes(&members));
        assert_eq!(world.check(&control), 0);
        let size = array.info().device.size as usize;
        assert!(world.read(&array, 0, 0, size).unwrap() == pattern(0, size));
        world.stop(&control);
    }
}

#[test]
fn two_that_are_half_filled_go_on_together_after_a_stop_or_a_crash() {
    for crash in [false, true] {
        let world = World::new(2);
        let (members, _, control) = without_two(&world);
        slowly(&control);
        add(&world, &control, &members[1]);
        add(&world, &control, &members[3]);
        world.sleep(6 * SECOND);
        if !crash {
            world.stop(&control);
        }
        let place = |nr: usize| world.superblock(&members[nr]).recovery_offset.unwrap() * 512;
        assert!(place(1) == place(3) && place(1) > 4 * MIB, "{} {}", place(1), place(3));
        let world = world.crash();
        members.iter().for_each(|member| member.read.store(0, Ordering::Relaxed));
        let (array, control) = world.assemble(&members);
        world.wait_idle(&control);
        // A crash is followed by a resync.
        assert!(crash || passes(&members) < 0.9, "{}", passes(&members));
        assert_whole(&world, &array, &control);
        world.stop(&control);
    }
}
