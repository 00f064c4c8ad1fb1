//! Members that are replaced while they serve: copied, taken over from, cut short, and failing on either side.

use crate::array::Array;
use crate::control::Control;
use crate::control::levels::WantedLevel;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::error::ControlError;
use crate::options::{AssembleOptions, CreateBitmap, CreateOptions, MemberSelector};
use crate::status::{JobKind, MemberState, MemberStatus};
use braid_device::{Opener, Target};
use braid_format::superblock::{Role, Version};
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
const SHAPES: [(Level, usize); 5] = [
    (Level::Raid1, 2),
    (Level::Raid4, 3),
    (Level::Raid5, 4),
    (Level::Raid6, 5),
    (Level::Raid10, 4),
];

/// Asks for `m1` to be replaced by a new member.
fn replace(world: &World, control: &Rc<Control>, name: &str, size: u64) -> Arc<TestMember> {
    let new = members(name, 1, size).remove(0);
    let (asked, opener) = (Rc::clone(control), Arc::clone(&new) as Arc<dyn Opener>);
    let with = MemberSelector::Name(new.name().to_string());
    world.run(async move {
        asked.membership().add(opener, false).await.unwrap();
        let old = MemberSelector::Name("m1".to_string());
        asked.membership().replace(&old, Some(&with)).await.unwrap();
    });
    new
}

fn named(world: &World, control: &Rc<Control>, name: &str) -> MemberStatus {
    let members = world.status(control).members;
    members.into_iter().find(|member| member.name == name).unwrap()
}

fn recovered(world: &World, control: &Rc<Control>, name: &str) -> u64 {
    match named(world, control, name).state {
        MemberState::Replacing { recovered } | MemberState::Rebuilding { recovered } => recovered,
        other => panic!("{other}"),
    }
}

/// A replacement with its half done, and writes on both sides of where it is.
fn half_replaced(
    world: &World,
    shape: (Level, usize),
    log: bool,
) -> (Vec<Arc<TestMember>>, Arc<Array>, Rc<Control>, Arc<TestMember>) {
    let (members, array, control) = world.full_array(shape, 24 * MIB, log);
    control.jobs().set_sync_speed(0, 2 << 10).unwrap();
    let new = replace(world, &control, "new", 24 * MIB);
    world.sleep(6 * SECOND);
    let size = array.info().device.size;
    for at in [0, size / 2, size - 4096] {
        let at = at / 4096 * 4096;
        world.write(&array, 0, at, &pattern(at + 7, 4096)).unwrap();
        world.write(&array, 0, at, &pattern(at, 4096)).unwrap();
    }
    assert_eq!(world.status(&control).degraded, 0);
    (members, array, control, new)
}

#[track_caller]
fn holds_the_pattern(world: &World, array: &Arc<Array>) {
    let size = array.info().device.size;
    for at in (0..size).step_by(MIB as usize) {
        let len = MIB.min(size - at) as usize;
        assert!(world.read(array, 0, at, len).unwrap() == pattern(at, len), "byte {at}");
    }
}

#[test]
fn a_member_is_replaced_while_it_serves() {
    for shape in SHAPES {
        let world = World::new(2);
        let (members, array, control, new) = half_replaced(&world, shape, true);
        let superblock = world.superblock(&new);
        assert!(superblock.replacement && superblock.recovery_offset.is_some(), "{shape:?}");
        assert_eq!(superblock.own_role(), Role::Slot(1));
        assert_eq!(named(&world, &control, "m1").state, MemberState::InSync);
        let reads: Vec<u64> = members.iter().map(|m| m.read.load(Ordering::Relaxed)).collect();
        control.jobs().set_sync_speed(0, u64::MAX).unwrap();
        world.wait_idle(&control);
        // Nobody else was read for it.
        for (nr, (member, before)) in members.iter().zip(reads).enumerate() {
            let more = member.read.load(Ordering::Relaxed) - before;
            assert_eq!(more > MIB, nr == 1, "{shape:?}: {more} bytes of m{nr}");
        }
        let old = named(&world, &control, "m1");
        assert_eq!((old.state, old.slot), (MemberState::Faulty, None));
        assert!(old.fault.unwrap().contains("new0 has replaced it"));
        let status = named(&world, &control, "new0");
        assert_eq!((status.state, status.slot), (MemberState::InSync, Some(1)), "{shape:?}");
        let superblock = world.superblock(&new);
        assert!(!superblock.replacement && superblock.recovery_offset.is_none());
        assert_eq!(superblock.role_of(1), Role::Faulty);
        assert_eq!(world.status(&control).degraded, 0);
        assert_eq!(world.check(&control), 0, "{shape:?}");
        holds_the_pattern(&world, &array);
        world.stop(&control);
        // The new member has all of it: the array goes on without another.
        let mut there: Vec<_> = members.iter().skip(2).cloned().collect();
        there.push(new);
        let (array, _) = world.assemble(&there);
        holds_the_pattern(&world, &array);
    }
}

#[test]
fn the_level_does_not_change_while_a_member_is_replaced() {
    let world = World::new(1);
    let (_members, _array, control, _new) = half_replaced(&world, (Level::Raid5, 4), false);
    let wanted =
        WantedLevel { level: Level::Raid6, chunk_size: None, layout: None, raid_disks: None };
    let asked = Rc::clone(&control);
    let refused = world.run(async move { asked.change_level(wanted, true).await }).unwrap_err();
    assert!(refused.to_string().contains("the replacement of m1 is not done yet"), "{refused}");
    world.stop(&control);
}

#[test]
fn a_replacement_goes_on_from_where_a_crash_left_it() {
    for shape in SHAPES {
        let world = World::new(2);
        let (members, _, _, new) = half_replaced(&world, shape, true);
        let superblock = world.superblock(&new);
        let (data, at) = (superblock.data_offset * 512, superblock.recovery_offset.unwrap() * 512);
        assert_eq!(at > 4 * MIB, shape.0 != Level::Raid10, "{shape:?}: {at}");
        let world = world.crash();
        let mut all = members.clone();
        all.push(Arc::clone(&new));
        // A write that was under way had reached one of them: the resync makes them the same.
        world.scribble(&new, data + MIB, &[0xee; 4096]);
        let (array, control) = world.assemble(&all);
        let written = new.written.load(Ordering::Relaxed);
        world.wait_idle(&control);
        assert_eq!(named(&world, &control, "new0").state, MemberState::InSync, "{shape:?}");
        assert!(new.written.load(Ordering::Relaxed) > written);
        assert_eq!(world.check(&control), 0, "{shape:?}");
        holds_the_pattern(&world, &array);
    }
}

#[test]
fn after_a_clean_stop_only_the_rest_is_copied() {
    for shape in SHAPES.into_iter().filter(|(level, _)| *level != Level::Raid10) {
        let world = World::new(2);
        let (mut all, _, control, new) = half_replaced(&world, shape, true);
        world.stop(&control);
        all.push(Arc::clone(&new));
        let at = world.superblock(&new).recovery_offset.unwrap() * 512;
        let written = new.written.load(Ordering::Relaxed);
        let (array, control) = world.assemble(&all);
        world.wait_idle(&control);
        let more = new.written.load(Ordering::Relaxed) - written;
        let rest = world.status(&control).component_size - at;
        assert!(more < rest + MIB, "{shape:?}: {more} bytes of {rest}");
        assert_eq!(named(&world, &control, "new0").state, MemberState::InSync, "{shape:?}");
        assert_eq!(world.check(&control), 0, "{shape:?}");
        holds_the_pattern(&world, &array);
    }
}

#[test]
fn what_the_old_member_cannot_read_is_had_from_the_others() {
    for shape in SHAPES {
        let world = World::new(2);
        let (members, array, control) = world.full_array(shape, 24 * MIB, true);
        let data = world.superblock(&members[1]).data_offset * 512;
        for at in [0, 3 * MIB + 4096, 9 * MIB] {
            members[1].unreadable.lock().unwrap().push(data + at..data + at + 4096);
        }
        let new = replace(&world, &control, "new", 24 * MIB);
        world.wait_idle(&control);
        assert_eq!(named(&world, &control, "new0").state, MemberState::InSync, "{shape:?}");
        assert!(!world.superblock(&new).bad_blocks);
        assert_eq!(world.check(&control), 0, "{shape:?}");
        holds_the_pattern(&world, &array);
    }
}

#[test]
fn what_nobody_can_give_is_recorded_as_bad_on_the_new_member() {
    for (shape, log) in
        [((Level::Raid5, 3), true), ((Level::Raid1, 2), true), ((Level::Raid5, 3), false)]
    {
        let world = World::new(2);
        let (members, array, control) = world.full_array(shape, 24 * MIB, log);
        for member in &members {
            let data = world.superblock(member).data_offset * 512;
            member.unreadable.lock().unwrap().push(data + MIB..data + MIB + 4096);
        }
        let new = replace(&world, &control, "new", 24 * MIB);
        world.wait_idle(&control);
        let state = named(&world, &control, "new0").state;
        if !log {
            // It must not count as whole; the old member still serves.
            assert!(matches!(state, MemberState::Replacing { .. }), "{state}");
            assert_eq!(named(&world, &control, "m1").state, MemberState::InSync);
            continue;
        }
        assert_eq!(state, MemberState::InSync, "{shape:?}");
        assert!(world.superblock(&new).bad_blocks);
        let size = array.info().device.size;
        let lost = (0..size).step_by(4096).filter(|at| world.read(&array, 0, *at, 4096).is_err());
        assert_eq!(lost.count(), if shape.0 == Level::Raid1 { 1 } else { 2 }, "{shape:?}");
    }
}

#[test]
fn when_the_old_member_fails_the_new_one_is_rebuilt_from_where_it_is() {
    for shape in SHAPES {
        for on_write in [false, true] {
            let world = World::new(2);
            let (members, array, control, new) = half_replaced(&world, shape, true);
            let before = recovered(&world, &control, "new0");
            members[1].dead.store(true, Ordering::Relaxed);
            if on_write {
                let size = array.info().device.size as usize;
                world.write(&array, 1, 0, &pattern(0, size / 4096 * 4096)).unwrap();
            } else {
                // The next window fails it.
                world.sleep(2 * SECOND);
            }
            assert_eq!(named(&world, &control, "m1").state, MemberState::Faulty, "{shape:?}");
            let after = named(&world, &control, "new0");
            assert!(matches!(after.state, MemberState::Rebuilding { .. }), "{shape:?}");
            assert!(recovered(&world, &control, "new0") >= before);
            let superblock = world.superblock(&new);
            assert!(!superblock.replacement);
            assert!(superblock.recovery_offset.is_some());
            control.jobs().set_sync_speed(0, u64::MAX).unwrap();
            world.wait_idle(&control);
            let status = world.status(&control);
            assert_eq!(status.degraded, 0, "{shape:?}: {:?}", status.last_job);
            assert_eq!(world.check(&control), 0, "{shape:?}");
            holds_the_pattern(&world, &array);
        }
    }
}

#[test]
fn when_the_new_member_fails_the_old_one_goes_on_and_the_next_spare_is_tried() {
    for shape in SHAPES {
        let world = World::new(2);
        let (_, array, control, new) = half_replaced(&world, shape, true);
        // A defect costs the new member too: it has nothing that others rely on.
        let data = world.superblock(&new).data_offset * 512;
        new.defects.lock().unwrap().push(data..data + 16 * MIB);
        let size = array.info().device.size as usize;
        world.write(&array, 0, 0, &pattern(0, size / 4096 * 4096)).unwrap();
        assert_eq!(named(&world, &control, "new0").state, MemberState::Faulty, "{shape:?}");
        assert_eq!(named(&world, &control, "m1").state, MemberState::InSync);
        assert!(named(&world, &control, "m1").want_replacement);
        assert_eq!(world.status(&control).degraded, 0);
        control.jobs().set_sync_speed(0, u64::MAX).unwrap();
        let next = members("next", 1, 24 * MIB).remove(0);
        let (adding, opener) = (Rc::clone(&control), Arc::clone(&next) as Arc<dyn Opener>);
        world.run(async move { adding.membership().add(opener, false).await.unwrap() });
        world.wait_idle(&control);
        assert_eq!(named(&world, &control, "next0").state, MemberState::InSync, "{shape:?}");
        assert_eq!(world.check(&control), 0, "{shape:?}");
        holds_the_pattern(&world, &array);
    }
}

#[test]
fn a_member_that_does_not_take_writes_is_replaced_when_there_is_a_spare() {
    for shape in SHAPES {
        let world = World::new(2);
        let (members, array, control) = world.full_array(shape, 24 * MIB, true);
        let spare = crate::control::tests::world::members("spare", 1, 24 * MIB).remove(0);
        let (adding, opener) = (Rc::clone(&control), Arc::clone(&spare) as Arc<dyn Opener>);
        world.run(async move { adding.membership().add(opener, false).await.unwrap() });
        let data = world.superblock(&members[1]).data_offset * 512;
        members[1].defects.lock().unwrap().push(data..data + 8192);
        let size = array.info().device.size as usize;
        world.write(&array, 0, 0, &pattern(0, size.min(8 << 20))).unwrap();
        world.wait_idle(&control);
        assert_eq!(named(&world, &control, "spare0").state, MemberState::InSync, "{shape:?}");
        assert_eq!(named(&world, &control, "m1").state, MemberState::Faulty, "{shape:?}");
        assert_eq!(world.check(&control), 0, "{shape:?}");
        holds_the_pattern(&world, &array);
    }
}

#[test]
fn a_slot_without_a_member_comes_before_a_replacement() {
    let world = World::new(1);
    let (_, array, control, _) = half_replaced(&world, (Level::Raid6, 5), true);
    let spare = members("spare", 1, 24 * MIB).remove(0);
    let (asked, opener) = (Rc::clone(&control), Arc::clone(&spare) as Arc<dyn Opener>);
    world.run(async move {
        asked.membership().add(opener, false).await.unwrap();
        let other = MemberSelector::Name("m3".to_string());
        asked.membership().fail(&other).await.unwrap();
    });
    world.sleep(SECOND);
    let job = world.status(&control).job.unwrap();
    assert_eq!(
        (job.kind, job.member),
        (JobKind::Recover, Some(named(&world, &control, "spare0").nr))
    );
    control.jobs().set_sync_speed(0, u64::MAX).unwrap();
    world.wait_idle(&control);
    for name in ["spare0", "new0"] {
        assert_eq!(named(&world, &control, name).state, MemberState::InSync, "{name}");
    }
    assert_eq!(world.check(&control), 0);
    holds_the_pattern(&world, &array);
}

#[test]
fn what_cannot_be_replaced_is_refused() {
    let world = World::new(1);
    let (_, _, control, _) = half_replaced(&world, (Level::Raid5, 4), true);
    let refused = |old: &str, with: Option<&str>| {
        let name = |name: &str| MemberSelector::Name(name.to_string());
        let error = control.membership().check_replace(&name(old), with.map(name).as_ref());
        error.unwrap_err().to_string()
    };
    assert!(refused("m1", None).contains("new0 is about to replace it"));
    assert!(refused("new0", None).contains("not in sync"));
    assert!(refused("m2", Some("m3")).contains("m3 is no spare"));
    assert!(refused("nobody", None).contains("nobody"));
    // It is in use like any other.
    let (removing, new) = (Rc::clone(&control), MemberSelector::Name("new0".to_string()));
    let removed = world.run(async move { removing.membership().remove(&new).await });
    assert!(matches!(removed, Err(ControlError::NotRemovable { .. })));

    let old = members("old", 3, 6 * MIB);
    let options =
        CreateOptions { version: Version::V0_90, ..CreateOptions::new("old", Level::Raid5, 3) };
    world.create(&old, options);
    let (_, control) = world.assemble(&old);
    let member = MemberSelector::Name("old0".to_string());
    let error = control.membership().check_replace(&member, None).unwrap_err();
    assert!(error.to_string().contains("0.90"), "{error}");
}

#[test]
fn who_was_replaced_or_removed_says_so_in_its_superblock_and_is_no_array_of_its_own() {
    let world = World::new(1);
    let (members, _, control) = world.full_array((Level::Raid1, 3), 24 * MIB, true);
    let new = replace(&world, &control, "new", 24 * MIB);
    world.wait_idle(&control);
    let (removing, name) = (Rc::clone(&control), MemberSelector::Name("m2".to_string()));
    world.run(async move {
        removing.membership().fail(&name).await.unwrap();
        removing.membership().remove(&name).await.unwrap();
    });
    assert_eq!(world.superblock(&members[1]).own_role(), Role::Faulty);
    let removed = world.superblock(&members[2]);
    assert_eq!((removed.own_role(), removed.recovery_offset), (Role::Slot(2), Some(0)));
    world.stop(&control);
    let options =
        || AssembleOptions { start_degraded: true, force: true, ..AssembleOptions::default() };
    for alone in [&members[1], &members[2]] {
        let refused = world.try_assemble(&[Arc::clone(alone)], options());
        assert!(refused.is_err(), "{} was started alone", alone.name());
    }
    let (_, control) = world.assemble(&[Arc::clone(&members[0]), new]);
    // One that is to be kept as it is is.
    let (removing, name) = (Rc::clone(&control), MemberSelector::Name("new0".to_string()));
    world.run(async move {
        removing.membership().fail(&name).await.unwrap();
        assert_eq!(removing.membership().remove_as(&name, true).await.unwrap(), None);
    });
}

#[test]
fn a_member_that_was_removed_is_taken_back_by_the_bitmap() {
    let world = World::new(1);
    let members = members("m", 3, 24 * MIB);
    let options = CreateOptions {
        assume_clean: true,
        chunk_size: Some(64 << 10),
        bitmap: CreateBitmap::Internal { chunk: Some(1 << 20) },
        ..CreateOptions::new("data", Level::Raid5, 3)
    };
    world.create(&members, options);
    let (array, control) = world.assemble(&members);
    let size = array.info().device.size as usize;
    world.write(&array, 0, 0, &pattern(0, size)).unwrap();
    // The bits of that are cleared by then.
    world.sleep(60 * SECOND);
    let (steering, opener) = (Rc::clone(&control), Arc::clone(&members[1]) as Arc<dyn Opener>);
    let name = MemberSelector::Name("m1".to_string());
    world.run(async move {
        steering.membership().fail(&name).await.unwrap();
        steering.membership().remove(&name).await.unwrap();
    });
    assert!(world.superblock(&members[1]).recovery_by_bitmap);
    world.write(&array, 0, 0, &pattern(4096, 4096)).unwrap();
    world.write(&array, 0, 0, &pattern(0, 4096)).unwrap();
    let written = members[1].written.load(Ordering::Relaxed);
    let steering = Rc::clone(&control);
    world.run(async move { steering.membership().re_add(opener).await.unwrap() });
    world.wait_idle(&control);
    assert!(members[1].written.load(Ordering::Relaxed) - written < 8 * MIB);
    assert_eq!(world.status(&control).degraded, 0);
    assert_eq!(world.check(&control), 0);
    holds_the_pattern(&world, &array);
}

/// The moment between "the new member has the slot" here and in all superblocks.
#[test]
fn a_replacement_that_refuses_a_write_while_it_is_given_its_slot_does_not_get_it() {
    for shape in SHAPES {
        let world = World::new(2);
        let (members, array, control, new) = half_replaced(&world, shape, false);
        control.jobs().set_sync_speed(0, u64::MAX).unwrap();
        // Superblocks are some time under way.
        members[0].slow_write.store(SECOND / 100, Ordering::Relaxed);
        while control.record.roster.borrow().handing_over.is_none() {
            // Else a write would wait for the superblocks to say "active".
            if !control.record.roster.borrow().dirty {
                world.write(&array, 0, 0, &pattern(0, 4096)).unwrap();
            }
            world.step();
        }
        assert!(control.record.roster.borrow().dirty, "{shape:?}");
        // The refusal is known before the superblocks are written.
        members[0].slow_write.store(0, Ordering::Relaxed);
        let data = world.superblock(&new).data_offset * 512;
        new.defects.lock().unwrap().push(data..data + 4096);
        let len = MIB.min(array.info().device.size) as usize;
        let written = world.begin_write(&array, 0, &pattern(0, len));
        assert!(control.record.roster.borrow().handing_over.is_some(), "{shape:?}");
        world.end(written).unwrap();
        world.wait_idle(&control);
        assert_eq!(world.status(&control).degraded, 0, "{shape:?}");
        let old = named(&world, &control, "m1");
        assert_eq!((old.state, old.slot), (MemberState::InSync, Some(1)), "{shape:?}");
        assert_eq!(named(&world, &control, "new0").state, MemberState::Faulty, "{shape:?}");
        assert_eq!(world.superblock(&members[1]).own_role(), Role::Slot(1));
        assert_eq!(world.check(&control), 0, "{shape:?}");
        holds_the_pattern(&world, &array);
    }
}
