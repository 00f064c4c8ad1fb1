//! Members that fail at their first error or at one too many, and errors that are counted.

use crate::array::Array;
use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::options::{AssembleOptions, CreateOptions, MemberSelector};
use crate::settings::{SettingError, Settings};
use crate::state::flags::MemberFlags;
use crate::status::{MemberState, MemberStatus};
use braid_device::{Opener, Target};
use braid_format::superblock::Version;
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;
const HOUR: u64 = 3_600_000_000_000;
const FAILFAST: MemberFlags = MemberFlags { write_mostly: false, failfast: true };
const BOTH: MemberFlags = MemberFlags { write_mostly: true, failfast: true };

/// A mirror of two, or a level 10 of four in layout near, far or offset.
const SHAPES: [(Level, Option<u32>, usize); 4] = [
    (Level::Raid1, None, 2),
    (Level::Raid10, Some(0x102), 4),
    (Level::Raid10, Some(0x201), 4),
    (Level::Raid10, Some(0x1_0201), 4),
];

fn started(
    world: &World,
    (level, layout, disks): (Level, Option<u32>, usize),
    flags: Vec<MemberFlags>,
) -> (Vec<Arc<TestMember>>, Arc<Array>, Rc<Control>) {
    let members = members("m", disks, 6 * MIB);
    let options = CreateOptions {
        layout,
        chunk_size: (level != Level::Raid1).then_some(64 << 10),
        assume_clean: true,
        flags,
        ..CreateOptions::new("data", level, disks)
    };
    world.create(&members, options);
    let (array, control) = world.assemble(&members);
    let size = array.info().device.size as usize;
    world.write(&array, 0, 0, &pattern(0, size)).unwrap();
    (members, array, control)
}

fn data_start(world: &World, member: &Arc<TestMember>) -> u64 {
    world.superblock(member).data_offset * 512
}

fn member(world: &World, control: &Rc<Control>, nr: usize) -> MemberStatus {
    world.status(control).members[nr].clone()
}

fn read_all(world: &World, array: &Arc<Array>) {
    let size = array.info().device.size;
    for at in (0..size).step_by(64 << 10) {
        let len = (64 << 10).min(size - at) as usize;
        assert!(world.read(array, 0, at, len).unwrap() == pattern(at, len), "at {at}");
    }
}

#[test]
fn a_read_error_is_mended_from_another_copy_and_counted_for_its_member() {
    for shape in SHAPES {
        let world = World::new(2);
        let (members, array, control) = started(&world, shape, Vec::new());
        for (nr, member) in members.iter().enumerate() {
            // No chunk, and no region of a mirror, has errors on both its copies, in no layout.
            let at = data_start(&world, member) + (1 + nr as u64) * MIB + 128 * 1024;
            member.decayed.lock().unwrap().push(at..at + 1024);
        }
        control.jobs().start_check().unwrap();
        world.wait_idle(&control);
        read_all(&world, &array);
        for (nr, sick) in members.iter().enumerate() {
            let status = member(&world, &control, nr);
            assert_eq!((status.errors, status.state), (8, MemberState::InSync), "{shape:?}");
            assert!(sick.decayed.lock().unwrap().is_empty());
        }
        assert_eq!(world.status(&control).counters.corrected_reads, members.len() as u64);
        world.stop(&control);
        // As md keeps it.
        assert_eq!(world.superblock(&members[1]).cnt_corrected_read, 8);
        let (_, control) = world.assemble(&members);
        assert_eq!(member(&world, &control, 1).errors, 8);
    }
}

#[test]
fn a_check_mends_copies_that_have_lost_different_blocks_of_the_same_region() {
    for shape in SHAPES {
        let world = World::new(1);
        let (members, array, control) = started(&world, shape, Vec::new());
        for (nr, member) in members.iter().enumerate() {
            let at = data_start(&world, member) + 128 * 1024 + nr as u64 * 8192;
            member.decayed.lock().unwrap().push(at..at + 512);
        }
        control.jobs().start_check().unwrap();
        world.wait_idle(&control);
        for (nr, sick) in members.iter().enumerate() {
            assert!(sick.decayed.lock().unwrap().is_empty(), "{shape:?}: {nr} is not mended");
            assert_eq!(member(&world, &control, nr).errors, 8);
        }
        read_all(&world, &array);
    }
}

#[test]
fn what_differs_beside_a_block_that_cannot_be_read_is_counted_by_a_check_and_gone_after_a_repair() {
    for shape in SHAPES {
        for decayed_on in [0, 1] {
            let world = World::new(1);
            let (members, _array, control) = started(&world, shape, Vec::new());
            let at = data_start(&world, &members[1]) + 128 * 1024;
            let decay = || members[decayed_on].decayed.lock().unwrap().push(at + 8192..at + 8704);
            decay();
            world.scribble(&members[1], at + 16384, &[0xee; 4096]);
            assert_eq!(world.check(&control), 8, "{shape:?} {decayed_on}");
            decay();
            control.jobs().start_repair().unwrap();
            world.wait_idle(&control);
            assert!(members[decayed_on].decayed.lock().unwrap().is_empty());
            assert_eq!(world.check(&control), 0, "{shape:?} {decayed_on}");
        }
    }
}

#[test]
fn the_first_read_error_fails_a_member_that_is_to_fail_fast() {
    for shape in SHAPES {
        let world = World::new(2);
        let (members, array, control) = started(&world, shape, vec![FAILFAST]);
        let at = data_start(&world, &members[0]);
        members[0].decayed.lock().unwrap().push(at..at + 3 * MIB);
        let written = members[0].written.load(Ordering::Relaxed);
        read_all(&world, &array);
        read_all(&world, &array);
        assert_eq!(member(&world, &control, 0).state, MemberState::Faulty, "{shape:?}");
        assert_eq!(members[0].written.load(Ordering::Relaxed), written, "it was written again");
        let status = world.status(&control);
        assert_eq!(status.degraded, 1);
        assert!(!status.members.iter().any(|m| m.nr != 0 && m.state == MemberState::Faulty));
    }
}

#[test]
fn a_write_error_fails_a_member_that_is_to_fail_fast_and_nothing_is_recorded_as_bad() {
    for (flags, state) in [
        (FAILFAST, MemberState::Faulty),
        (MemberFlags::default(), MemberState::InSync),
        // As md: a slow member may be the reason for write-mostly.
        (BOTH, MemberState::InSync),
    ] {
        let world = World::new(1);
        let (members, array, control) = started(&world, SHAPES[0], vec![flags]);
        let at = data_start(&world, &members[0]);
        members[0].defects.lock().unwrap().push(at + 8192..at + 12288);
        world.write(&array, 0, 0, &pattern(0, 65536)).unwrap();
        assert_eq!(member(&world, &control, 0).state, state, "{flags:?}");
        read_all(&world, &array);
    }
}

#[test]
fn the_last_copy_does_not_fail_fast() {
    for shape in SHAPES {
        let world = World::new(1);
        let all = vec![FAILFAST; shape.2];
        let (members, array, control) = started(&world, shape, all);
        // In near and offset the neighbours, in far all, of slot 1: slot 0 is the last with its data.
        let other = MemberSelector::Name(members[1].name().to_string());
        let failing = Rc::clone(&control);
        world.run(async move { failing.membership().fail(&other).await }).unwrap();
        let at = data_start(&world, &members[0]);
        members[0].decayed.lock().unwrap().push(at..at + 4096);
        assert!(world.read(&array, 0, 0, 4096).is_err(), "{shape:?}");
        assert_eq!(member(&world, &control, 0).state, MemberState::InSync, "{shape:?}");
        assert!(!world.status(&control).state_line().contains("FAILED"));
        // Blocks that are written become readable again; those that the member refuses are recorded as bad.
        members[0].defects.lock().unwrap().push(at + 8192..at + 12288);
        let _ = world.write(&array, 0, 0, &pattern(0, 65536));
        assert_eq!(member(&world, &control, 0).state, MemberState::InSync, "{shape:?}");
        assert!(!world.status(&control).state_line().contains("FAILED"), "{shape:?}");
        assert!(world.read(&array, 0, 0, 4096).unwrap() == pattern(0, 4096));
    }
}

/// So many read errors of member 0, each at its own place, one after the other.
fn errors(world: &World, array: &Arc<Array>, member: &Arc<TestMember>, count: u64) {
    let start = data_start(world, member);
    for nr in 0..count {
        member.decayed.lock().unwrap().push(start + nr * 8192..start + nr * 8192 + 512);
        // Whoever is asked first: the second time it is the other.
        for _ in 0..4 {
            let bytes = world.read(array, 0, nr * 8192, 4096).unwrap();
            assert!(bytes == pattern(nr * 8192, 4096));
        }
    }
}

#[test]
fn a_member_fails_with_more_read_errors_than_max_read_errors() {
    let world = World::new(1);
    let (members, array, control) = started(&world, SHAPES[0], Vec::new());
    errors(&world, &array, &members[0], 20);
    let status = member(&world, &control, 0);
    assert_eq!((status.state, status.errors), (MemberState::InSync, 160));
    errors(&world, &array, &members[0], 1);
    let status = member(&world, &control, 0);
    assert_eq!(status.state, MemberState::Faulty);
    let why = status.fault.unwrap();
    assert!(why.contains("21 read errors of late, max_read_errors is 20"), "{why}");
}

#[test]
fn read_errors_of_hours_ago_count_for_less_and_the_limit_can_be_set() {
    let world = World::new(1);
    let (members, array, control) = started(&world, SHAPES[0], Vec::new());
    errors(&world, &array, &members[0], 20);
    world.sleep(HOUR);
    errors(&world, &array, &members[0], 9);
    assert_eq!(member(&world, &control, 0).state, MemberState::InSync);
    let settings = Settings { max_read_errors: Some(19), ..Settings::default() };
    let setting = Rc::clone(&control);
    world.run(async move { setting.set(settings).await }).unwrap();
    errors(&world, &array, &members[0], 1);
    assert_eq!(member(&world, &control, 0).state, MemberState::Faulty);
    // The last copy is kept, however many errors it has.
    errors_of_the_last(&world, &array, &members[1], &control);
}

fn errors_of_the_last(
    world: &World,
    array: &Arc<Array>,
    last: &Arc<TestMember>,
    control: &Rc<Control>,
) {
    let start = data_start(world, last);
    last.decayed.lock().unwrap().push(start..start + 512);
    for _ in 0..30 {
        assert!(world.read(array, 0, 0, 4096).is_err());
    }
    assert_eq!(member(world, control, 1).state, MemberState::InSync);
}

#[test]
fn a_member_of_a_parity_level_fails_with_more_read_errors_than_max_read_errors() {
    let world = World::new(1);
    let (members, array, control) = started(&world, (Level::Raid5, None, 3), Vec::new());
    let setting = Rc::clone(&control);
    let settings = Settings { max_read_errors: Some(5), ..Settings::default() };
    world.run(async move { setting.set(settings).await }).unwrap();
    let start = data_start(&world, &members[0]);
    let decays = |nr: u64| {
        let at = start + nr * 8192;
        members[0].decayed.lock().unwrap().push(at..at + 512);
    };
    // The reads are right, and of the first chunk, which is on that member.
    for nr in 0..5 {
        decays(nr);
        assert_eq!(world.read(&array, 0, nr * 8192, 4096).unwrap(), pattern(nr * 8192, 4096));
    }
    let status = member(&world, &control, 0);
    assert_eq!((status.state, status.errors), (MemberState::InSync, 5));
    decays(5);
    assert_eq!(world.read(&array, 0, 5 * 8192, 4096).unwrap(), pattern(5 * 8192, 4096));
    let status = member(&world, &control, 0);
    assert_eq!(status.state, MemberState::Faulty);
    let why = status.fault.unwrap();
    assert!(why.contains("6 read errors of late, max_read_errors is 5"), "{why}");
    // The data depends on the others, however many errors they have.
    let at = data_start(&world, &members[1]);
    members[1].decayed.lock().unwrap().push(at..at + 512);
    for _ in 0..10 {
        assert!(world.read(&array, 0, 64 << 10, 4096).is_err());
    }
    assert_eq!(member(&world, &control, 1).state, MemberState::InSync);
}

#[test]
fn max_read_errors_is_for_levels_with_redundancy() {
    let world = World::new(1);
    let (_, _, control) = started(&world, (Level::Raid0, None, 3), Vec::new());
    let settings = Settings { max_read_errors: Some(1), ..Settings::default() };
    let error = world.run(async move { control.set(settings).await }).unwrap_err();
    assert!(error.to_string().contains("max_read_errors is for arrays with redundancy"), "{error}");
    let mut settings = Settings::default();
    assert!(matches!(
        settings.set("max_read_errors", "-1"),
        Err(SettingError::Value { name: "max_read_errors", .. })
    ));
    settings.set("max_read_errors", "7").unwrap();
    assert_eq!(settings.get("max_read_errors").unwrap(), "7");
    assert_eq!(settings.max_read_errors(Level::Raid5), 7);
    assert_eq!(Settings::default().max_read_errors(Level::Raid1), 20);
    assert_eq!(Settings::default().max_read_errors(Level::Raid6), 256);
}

fn flags(world: &World, members: &[Arc<TestMember>]) -> Vec<MemberFlags> {
    members.iter().map(|member| MemberFlags::of(&world.superblock(member))).collect()
}

#[test]
fn flags_stay_with_their_members_through_assembly_rebuild_and_re_adding() {
    for version in [Version::V1_2, Version::V0_90] {
        let world = World::new(1);
        let members = members("m", 3, 6 * MIB);
        let none = MemberFlags::default();
        let options = CreateOptions {
            flags: vec![none, FAILFAST],
            version,
            assume_clean: true,
            bitmap: crate::options::CreateBitmap::Internal { chunk: None },
            ..CreateOptions::new("data", Level::Raid1, 2)
        };
        world.create(&members[..2], options);
        let (array, control) = world.assemble(&members[..2]);
        assert_eq!(flags(&world, &members[..2]), [none, FAILFAST]);
        assert_eq!(member(&world, &control, 1).flags, FAILFAST);
        // Added with flags, rebuilt, and kept by the next assembly.
        let opener = Arc::clone(&members[2]) as Arc<dyn Opener>;
        let adding = Rc::clone(&control);
        world.run(async move { adding.membership().add_with(opener, false, BOTH).await }).unwrap();
        let name = MemberSelector::Name(members[0].name().to_string());
        let failing = Rc::clone(&control);
        world.run(async move { failing.membership().fail(&name).await }).unwrap();
        world.wait_idle(&control);
        assert_eq!(world.status(&control).degraded, 0, "{version}");
        assert_eq!(flags(&world, &members[1..]), [FAILFAST, BOTH], "{version}");
        world.write(&array, 0, 0, &pattern(0, 65536)).unwrap();
        world.stop(&control);
        let (_, control) = world.assemble(&members[1..]);
        assert_eq!(flags(&world, &members[1..]), [FAILFAST, BOTH], "{version}");
        // Away and back: as it was.
        let name = MemberSelector::Name(members[2].name().to_string());
        let (failing, opener) = (Rc::clone(&control), Arc::clone(&members[2]) as Arc<dyn Opener>);
        world
            .run(async move {
                failing.membership().fail(&name).await?;
                failing.membership().remove(&name).await?;
                failing.membership().re_add(opener).await
            })
            .unwrap();
        world.wait_idle(&control);
        assert_eq!(flags(&world, &members[1..]), [FAILFAST, BOTH], "{version}");
    }
}

#[test]
fn flags_can_be_changed_while_the_array_runs() {
    let world = World::new(2);
    let (members, array, control) = started(&world, SHAPES[0], vec![FAILFAST]);
    let set = |nr: usize, change: fn(&mut MemberFlags)| {
        let name = MemberSelector::Name(members[nr].name().to_string());
        let control = Rc::clone(&control);
        world.run(async move { control.membership().set_flags(&name, change).await })
    };
    set(0, |flags| flags.write_mostly = true).unwrap();
    assert_eq!(flags(&world, &members), [BOTH, MemberFlags::default()]);
    let before = members[0].read.load(Ordering::Relaxed);
    read_all(&world, &array);
    assert_eq!(members[0].read.load(Ordering::Relaxed), before);
    set(0, |flags| flags.failfast = false).unwrap();
    set(0, |flags| flags.write_mostly = false).unwrap();
    assert_eq!(flags(&world, &members), [MemberFlags::default(); 2]);
    read_all(&world, &array);
    read_all(&world, &array);
    assert!(members[0].read.load(Ordering::Relaxed) > before);
    let failing = Rc::clone(&control);
    let name = MemberSelector::Name(members[0].name().to_string());
    world.run(async move { failing.membership().fail(&name).await }).unwrap();
    let error = set(0, |flags| flags.failfast = true).unwrap_err();
    assert!(error.to_string().contains("is faulty"), "{error}");
    world.stop(&control);
    let read_only = AssembleOptions { read_only: true, ..AssembleOptions::default() };
    let array = world.try_assemble(&members[1..], read_only).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    let name = MemberSelector::Name(members[1].name().to_string());
    let error =
        world
            .run(async move {
                control.membership().set_flags(&name, |flags| flags.failfast = true).await
            })
            .unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
}
