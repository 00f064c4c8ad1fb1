//! Members that do not answer: failed by command or after a while, or waited for.

use crate::array::Array;
use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::error::ControlError;
use crate::options::{CreateBitmap, CreateOptions, MemberSelector};
use crate::settings::{MemberTimeout, Settings};
use crate::status::MemberState;
use braid_device::{Opener, Target};
use braid_layout::Level;
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

pub(super) fn named(name: &str) -> MemberSelector {
    MemberSelector::Name(name.to_string())
}

pub(super) fn set(what: &AtomicBool) {
    what.store(true, Ordering::Relaxed);
}

pub(super) fn clear(what: &AtomicBool) {
    what.store(false, Ordering::Relaxed);
}

fn options(level: Level, disks: usize) -> CreateOptions {
    CreateOptions {
        assume_clean: true,
        chunk_size: (level != Level::Raid1).then_some(64 << 10),
        ..CreateOptions::new("data", level, disks)
    }
}

pub(super) type Setting = (World, Vec<Arc<TestMember>>, Arc<Array>, Rc<Control>);

/// An array whose content is a pattern, clean.
pub(super) fn array(shards: u16, level: Level, disks: usize) -> Setting {
    let members = members("m", disks, 8 * MIB);
    let world = World::new(shards);
    world.create(&members, options(level, disks));
    let (array, control) = world.assemble(&members);
    world.write(&array, 0, 0, &pattern(0, array.info().device.size as usize)).unwrap();
    world.sleep(SECOND);
    (world, members, array, control)
}

/// Starts `future`; its value is there when it has ended.
pub(super) fn start<T: 'static>(
    world: &World,
    future: impl Future<Output = T> + 'static,
) -> Rc<RefCell<Option<T>>> {
    let value = Rc::new(RefCell::new(None));
    let slot = Rc::clone(&value);
    world.shards[0].spawn(async move {
        let value = future.await;
        *slot.borrow_mut() = Some(value);
    });
    value
}

/// Starts a write; true when it has ended well.
pub(super) fn start_write(world: &World, array: &Array, offset: u64) -> Rc<RefCell<Option<bool>>> {
    let shard = world.shards[0].clone();
    let device = array.open(&shard).unwrap();
    let buf = shard.pool().copy_of(&pattern(7, 4096)).freeze();
    let sets = braid_device::IoSets::new(&shard);
    start(world, async move {
        let request = braid_device::Request::write(offset, buf, false);
        sets.one(&*device, request).await.result.is_ok()
    })
}

pub(super) fn state(world: &World, control: &Rc<Control>, name: &str) -> MemberState {
    let status = world.status(control);
    status.members.into_iter().find(|member| member.name == name).unwrap().state
}

#[test]
fn a_hanging_member_is_failed_and_removed_at_once() {
    for level in [Level::Raid1, Level::Raid5] {
        let (world, members, array, control) = array(2, level, 3);
        set(&members[1].deaf);
        let write = start_write(&world, &array, 0);
        // The superblocks are to say "active" and wait for the member, under the turn.
        world.sleep(SECOND);
        assert_eq!(*write.borrow(), None);
        let before = world.shards[0].now();
        let c = Rc::clone(&control);
        world.run(async move {
            c.membership().fail(&named("m1")).await.unwrap();
            c.membership().remove(&named("m1")).await.unwrap();
        });
        assert!(world.shards[0].now() - before < SECOND / 10, "{level}");
        world.sleep(SECOND / 10);
        assert_eq!(*write.borrow(), Some(true), "{level}");
        assert_eq!(world.superblock(&members[0]).roles[1], braid_format::superblock::Role::Spare);
        world.stop(&control);
    }
}

#[test]
fn a_member_that_hangs_for_half_a_minute_is_failed() {
    let (world, members, array, control) = array(2, Level::Raid5, 3);
    set(&members[1].hangs);
    let write = start_write(&world, &array, 0);
    world.sleep(28 * SECOND);
    assert_eq!((*write.borrow(), state(&world, &control, "m1")), (None, MemberState::InSync));
    world.sleep(4 * SECOND);
    assert_eq!((*write.borrow(), state(&world, &control, "m1")), (Some(true), MemberState::Faulty));
    let status = world.status(&control);
    assert!(status.members[1].fault.as_ref().unwrap().contains("member_timeout"));
    assert_eq!(world.read(&array, 0, 0, 4096).unwrap(), pattern(7, 4096));
}

#[test]
fn member_timeout_says_how_long_and_off_means_for_ever() {
    let (world, members, array, control) = array(1, Level::Raid1, 2);
    let setting = |member_timeout| {
        let (c, settings) =
            (Rc::clone(&control), Settings { member_timeout, ..Settings::default() });
        world.run(async move { c.set(settings).await }).unwrap();
    };
    setting(MemberTimeout::Off);
    set(&members[1].hangs);
    let write = start_write(&world, &array, 0);
    world.sleep(600 * SECOND);
    assert_eq!((*write.borrow(), state(&world, &control, "m1")), (None, MemberState::InSync));
    setting(MemberTimeout::Seconds(5));
    world.sleep(3 * SECOND);
    assert_eq!((*write.borrow(), state(&world, &control, "m1")), (Some(true), MemberState::Faulty));
}

#[test]
fn reads_of_a_member_that_was_given_up_come_from_others() {
    for (shards, level) in
        [(1, Level::Raid10), (1, Level::Raid5), (2, Level::Raid10), (2, Level::Raid5)]
    {
        let (world, members, array, control) = array(shards, level, 3);
        set(&members[1].deaf);
        // One buffer over several members: what the hung device keeps is in its middle.
        let len = 600 << 10;
        let read = world.read(&array, usize::from(shards) - 1, 4096, len).unwrap();
        assert!(read == pattern(4096, len), "{level} on {shards}");
        world.sleep(SECOND / 10);
        assert_eq!(state(&world, &control, "m1"), MemberState::Faulty, "{level} on {shards}");
        clear(&members[1].deaf);
        world.sleep(SECOND);
        world.stop(&control);
    }
}

#[test]
fn the_last_copy_is_waited_for() {
    let (world, members, array, control) = array(1, Level::Raid1, 2);
    let c = Rc::clone(&control);
    world.run(async move { c.membership().fail(&named("m0")).await }).unwrap();
    set(&members[1].hangs);
    let write = start_write(&world, &array, 0);
    world.sleep(300 * SECOND);
    assert_eq!((*write.borrow(), state(&world, &control, "m1")), (None, MemberState::InSync));
    clear(&members[1].hangs);
    world.sleep(SECOND);
    assert_eq!(*write.borrow(), Some(true));
    world.stop(&control);
}

#[test]
fn members_that_fall_silent_together_are_waited_for() {
    let (world, members, array, control) = array(1, Level::Raid5, 3);
    set(&members[0].hangs);
    set(&members[2].hangs);
    let write = start_write(&world, &array, 0);
    world.sleep(300 * SECOND);
    let states = [state(&world, &control, "m0"), state(&world, &control, "m2")];
    assert_eq!((*write.borrow(), states), (None, [MemberState::InSync; 2]));
    // One of them comes back: the other can be spared.
    clear(&members[0].hangs);
    world.sleep(5 * SECOND);
    let states = [state(&world, &control, "m0"), state(&world, &control, "m2")];
    assert_eq!((*write.borrow(), states), (Some(true), [MemberState::InSync, MemberState::Faulty]));
    world.stop(&control);
}

#[test]
fn a_command_does_not_wait_for_another_member_that_hangs() {
    let (world, members, array, control) = array(2, Level::Raid6, 5);
    set(&members[1].deaf);
    set(&members[2].deaf);
    let write = start_write(&world, &array, 0);
    world.sleep(SECOND);
    let fail = |name: &'static str| {
        let (c, before) = (Rc::clone(&control), world.shards[0].now());
        let failed = world.run(async move { c.membership().fail(&named(name)).await });
        (failed, world.shards[0].now() - before)
    };
    let (failed, took) = fail("m1");
    let said = failed.unwrap_err();
    assert!(matches!(&said, ControlError::NotRecorded { waits, .. } if *waits == ["m2"]), "{said}");
    assert!(took < 2 * SECOND, "{} ms", took / 1_000_000);
    assert!(said.to_string().contains("m2 has not answered"), "{said}");
    assert_eq!(*write.borrow(), None, "the superblocks do not say yet that m1 has failed");
    let (failed, took) = fail("m2");
    assert!(failed.is_ok() && took < SECOND / 10, "{failed:?}, {} ms", took / 1_000_000);
    world.sleep(SECOND / 10);
    let states = [state(&world, &control, "m1"), state(&world, &control, "m2")];
    assert_eq!((*write.borrow(), states), (Some(true), [MemberState::Faulty; 2]));
    for nr in [0, 3, 4] {
        let roles = world.superblock(&members[nr]).roles;
        assert_eq!(roles[1..3], [braid_format::superblock::Role::Faulty; 2]);
    }
    world.stop(&control);
}

#[test]
fn a_member_with_requests_under_way_is_not_added_again() {
    let members = members("m", 3, 8 * MIB);
    let world = World::new(2);
    let bitmap = CreateBitmap::Internal { chunk: Some(64 << 10) };
    world.create(&members, CreateOptions { bitmap, ..options(Level::Raid5, 3) });
    let (array, control) = world.assemble(&members);
    world.write(&array, 0, 0, &pattern(0, MIB as usize)).unwrap();
    let write = start_write(&world, &array, 0);
    set(&members[1].hangs);
    world.sleep(SECOND);
    let c = Rc::clone(&control);
    world.run(async move {
        c.membership().fail(&named("m1")).await.unwrap();
        c.membership().remove(&named("m1")).await.unwrap();
    });
    world.sleep(SECOND);
    assert_eq!(*write.borrow(), Some(true));
    let add = |again: bool| {
        let (c, opener) = (Rc::clone(&control), Arc::clone(&members[1]) as Arc<dyn Opener>);
        world.run(async move {
            match again {
                true => c.membership().re_add(opener).await.map(|_| ()),
                false => c.membership().add(opener, true).await.map(|_| ()),
            }
        })
    };
    for again in [true, false] {
        let error = add(again).unwrap_err();
        assert!(matches!(error, ControlError::UnderWay { requests: 1.., .. }), "{error}");
    }
    clear(&members[1].hangs);
    add(true).unwrap();
    assert_eq!(world.check(&control), 0);
}

#[test]
fn a_device_that_hangs_while_it_is_added_is_closed() {
    let (world, all, array, control) = array(1, Level::Raid1, 2);
    let spare = members("s", 1, 8 * MIB);
    set(&spare[0].hangs);
    let (c, opener) = (Rc::clone(&control), Arc::clone(&spare[0]) as Arc<dyn Opener>);
    let added = start(&world, async move { c.membership().add(opener, true).await.is_ok() });
    world.sleep(60 * SECOND);
    assert_eq!(*added.borrow(), Some(false));
    assert_eq!(world.status(&control).members.len(), all.len());
    world.write(&array, 0, 0, &pattern(7, 4096)).unwrap();
}

#[test]
fn a_stop_ends_although_a_member_hangs() {
    for (level, lost) in
        [(Level::Raid0, 0), (Level::Raid1, 0), (Level::Raid1, 2), (Level::Raid5, 2)]
    {
        let (world, members, array, control) = array(2, level, 3);
        members.iter().take(1 + lost).for_each(|member| set(&member.deaf));
        let write = start_write(&world, &array, 0);
        world.sleep(SECOND);
        let c = Rc::clone(&control);
        let stopped = start(&world, async move { c.stop().await });
        world.sleep(300 * SECOND);
        assert!(stopped.borrow().is_some(), "{level} without {lost}");
        assert!(write.borrow().is_some(), "{level} without {lost}");
    }
}
