//! Members whose devices go away and are there again: taken back by what the bitmap knows, unless somebody has failed them.

use crate::array::Array;
use crate::control::Control;
use crate::control::tests::hanging::{clear, set};
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::error::ControlError;
use crate::options::{CreateBitmap, CreateOptions, MemberSelector};
use crate::state::view::MemberNr;
use crate::status::{MemberState, MemberStatus};
use braid_device::{Opener, Target};
use braid_format::superblock::Version;
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
const CHUNK: u64 = 64 << 10;

fn started(
    version: Version,
    level: Level,
) -> (World, Vec<Arc<TestMember>>, Arc<Array>, Rc<Control>) {
    let members = members("m", 3, 8 * MIB);
    let world = World::new(2);
    let options = CreateOptions {
        version,
        assume_clean: true,
        chunk_size: level.is_parity().then_some(CHUNK),
        bitmap: CreateBitmap::Internal { chunk: Some(CHUNK) },
        ..CreateOptions::new("data", level, 3)
    };
    world.create(&members, options);
    let (array, control) = world.assemble(&members);
    world.write(&array, 0, 0, &pattern(0, array.info().device.size as usize)).unwrap();
    world.sleep(20 * SECOND);
    (world, members, array, control)
}

fn named(world: &World, control: &Rc<Control>, name: &str) -> MemberStatus {
    let members = world.status(control).members;
    members.into_iter().find(|member| member.name == name).unwrap()
}

fn come_back(
    world: &World,
    control: &Rc<Control>,
    nr: MemberNr,
    member: &Arc<TestMember>,
) -> Result<MemberNr, ControlError> {
    let (control, opener) = (Rc::clone(control), Arc::clone(member) as Arc<dyn Opener>);
    world.run(async move { control.membership().come_back(nr, opener).await })
}

#[test]
fn a_member_that_was_gone_comes_back_with_what_it_missed_and_no_more() {
    let levels = [Level::Raid5, Level::Raid1];
    for (version, level) in [Version::V1_2, Version::V0_90].into_iter().zip(levels) {
        let (world, members, array, control) = started(version, level);
        set(&members[1].dead);
        world.write(&array, 0, CHUNK, &pattern(7, 3 * CHUNK as usize)).unwrap();
        let lost = named(&world, &control, "m1");
        assert_eq!((lost.state, lost.away), (MemberState::Faulty, true), "{version}: {lost:?}");
        let refused = come_back(&world, &control, lost.nr, &members[1]).unwrap_err().to_string();
        assert!(refused.contains("m1"), "{version}: {refused}");
        world.write(&array, 1, 8 * CHUNK, &pattern(9, CHUNK as usize)).unwrap();
        clear(&members[1].dead);
        let before = members[1].written.load(Ordering::Relaxed);
        let nr = come_back(&world, &control, lost.nr, &members[1]).unwrap();
        world.wait_idle(&control);
        let copied = members[1].written.load(Ordering::Relaxed) - before;
        assert!(copied < 2 * MIB, "{version}: {copied} bytes for what was written meanwhile");
        let status = world.status(&control);
        assert_eq!((status.degraded, status.members.len()), (0, 3), "{version}: {status:?}");
        let back = named(&world, &control, "m1");
        assert_eq!((back.nr, back.state, back.away), (nr, MemberState::InSync, false));
        assert_eq!(back.dev_number, lost.dev_number);
        assert_eq!(world.check(&control), 0, "{version}");
        // It holds what it should: without another one all can be had.
        set(&members[0].dead);
        let size = array.info().device.size as usize;
        let mut expected = pattern(0, size);
        let (three, one) = (3 * CHUNK as usize, CHUNK as usize);
        expected[one..one + three].copy_from_slice(&pattern(7, three));
        expected[8 * one..9 * one].copy_from_slice(&pattern(9, one));
        assert!(world.read(&array, 0, 0, size).unwrap() == expected, "{version}");
        world.stop(&control);
    }
}

#[test]
fn a_member_that_fails_a_flush_or_is_silent_is_away_and_one_that_was_failed_is_not() {
    let (world, members, array, control) = started(Version::V1_2, Level::Raid5);
    let selector = MemberSelector::Name("m1".to_string());
    let failing = Rc::clone(&control);
    world.run(async move { failing.membership().fail(&selector).await }).unwrap();
    set(&members[1].dead);
    world.write(&array, 0, 0, &pattern(1, 4096)).unwrap();
    let failed = named(&world, &control, "m1");
    assert_eq!((failed.state, failed.away), (MemberState::Faulty, false), "{failed:?}");
    clear(&members[1].dead);
    come_back(&world, &control, failed.nr, &members[1]).unwrap();
    world.wait_idle(&control);

    set(&members[2].hangs);
    let size = array.info().device.size;
    let write = world.begin_write(&array, size - 4096, &pattern(2, 4096));
    world.sleep(120 * SECOND);
    assert!(world.end(write).is_ok());
    let silent = named(&world, &control, "m2");
    assert_eq!((silent.state, silent.away), (MemberState::Faulty, true), "{silent:?}");
    // Its own requests may overtake those that bring it up to date.
    let refused = come_back(&world, &control, silent.nr, &members[2]).unwrap_err().to_string();
    assert!(refused.contains("m2"), "{refused}");
    clear(&members[2].hangs);
    world.sleep(SECOND);
    come_back(&world, &control, silent.nr, &members[2]).unwrap();
    world.wait_idle(&control);
    assert_eq!((world.status(&control).degraded, world.check(&control)), (0, 0));
    world.stop(&control);
}

#[test]
fn only_a_faulty_member_comes_back_and_only_as_itself() {
    let (world, members, array, control) = started(Version::V1_2, Level::Raid5);
    let sound = named(&world, &control, "m0");
    assert!(come_back(&world, &control, sound.nr, &members[0]).is_err());
    set(&members[1].dead);
    world.write(&array, 0, 0, &pattern(3, CHUNK as usize)).unwrap();
    clear(&members[1].dead);
    let lost = named(&world, &control, "m1");
    let refused = come_back(&world, &control, lost.nr, &members[2]).unwrap_err().to_string();
    assert!(refused.contains("no faulty member"), "{refused}");
    // Another member's superblock where the lost one's was.
    let stranger = world.superblock(&members[2]);
    let mut bytes = world.contents(&members[2]);
    let at = stranger.super_offset as usize * 512;
    bytes.truncate(at + 4096);
    world.scribble(&members[1], at as u64, &bytes[at..]);
    let refused = come_back(&world, &control, lost.nr, &members[1]).unwrap_err().to_string();
    assert!(refused.contains("not the member that was lost"), "{refused}");
    let status = world.status(&control);
    assert_eq!((status.degraded, status.members.len()), (1, 3), "{status:?}");
    world.stop(&control);
}
