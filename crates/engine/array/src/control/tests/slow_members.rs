//! Members that are slow for long: failed where that is asked for, and nothing depends on them.

use crate::array::Array;
use crate::control::Control;
use crate::control::tests::hanging::{array, named, state};
use crate::control::tests::world::{TestMember, World};
use crate::settings::Settings;
use crate::status::MemberState;
use braid_device::Target;
use braid_layout::Level;
use std::rc::Rc;
use std::sync::atomic::Ordering;

const MILLI: u64 = 1_000_000;

fn limit(world: &World, control: &Rc<Control>, millis: Option<u32>) {
    let settings = Settings { max_member_latency: millis, ..Settings::default() };
    let control = Rc::clone(control);
    world.run(async move { control.set(settings).await }).unwrap();
}

fn take(member: &TestMember, millis: u64) {
    member.slow.store(millis * MILLI, Ordering::Relaxed);
}

/// Reads here and there for so many seconds.
fn read_for(world: &World, array: &Array, seconds: u64) {
    let blocks = array.info().device.size / 4096;
    let (mut at, until) = (0, world.shards[0].now() + seconds * 1000 * MILLI);
    while world.shards[0].now() < until {
        at = (at + 4001) % blocks;
        world.read(array, 0, at * 4096, 4096).unwrap();
    }
}

#[test]
fn a_member_that_is_slow_for_a_minute_fails_when_it_is_asked_for() {
    let (world, members, array, control) = array(2, Level::Raid5, 4);
    members.iter().for_each(|member| take(member, 2));
    take(&members[2], 60);
    read_for(&world, &array, 90);
    assert_eq!(state(&world, &control, "m2"), MemberState::InSync);
    limit(&world, &control, Some(30));
    read_for(&world, &array, 45);
    assert_eq!(state(&world, &control, "m2"), MemberState::InSync);
    read_for(&world, &array, 30);
    assert_eq!(state(&world, &control, "m2"), MemberState::Faulty);
    let why = world.status(&control).members[2].fault.clone().unwrap();
    assert!(why.contains("60.0 ms on average") && why.contains("max_member_latency=30"), "{why}");
    world.stop(&control);
}

#[test]
fn a_slow_member_that_the_data_depends_on_stays() {
    let (world, members, array, control) = array(1, Level::Raid5, 4);
    limit(&world, &control, Some(30));
    members.iter().for_each(|member| take(member, 2));
    take(&members[2], 60);
    let failing = Rc::clone(&control);
    world.run(async move { failing.membership().fail(&named("m0")).await }).unwrap();
    read_for(&world, &array, 150);
    assert_eq!(state(&world, &control, "m2"), MemberState::InSync);
    world.stop(&control);
}

#[test]
fn members_that_are_all_slow_stay_and_so_does_one_that_is_slow_no_longer() {
    let (world, members, array, control) = array(1, Level::Raid1, 3);
    limit(&world, &control, Some(30));
    members.iter().for_each(|member| take(member, 60));
    read_for(&world, &array, 120);
    take(&members[0], 2);
    take(&members[1], 2);
    read_for(&world, &array, 30);
    take(&members[2], 2);
    read_for(&world, &array, 60);
    assert_eq!(world.status(&control).degraded, 0);
    limit(&world, &control, None);
    take(&members[2], 60);
    read_for(&world, &array, 120);
    assert_eq!(world.status(&control).degraded, 0);
    world.stop(&control);
}
