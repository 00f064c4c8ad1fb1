//! Members that hold something else than they should: named where P and Q or most copies tell, and mended alone.

use crate::array::Array;
use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::options::CreateOptions;
use crate::state::findings::{Findings, Verdict};
use braid_device::Target;
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;
const NEAR_3: u32 = 0x103;

fn options(level: Level, disks: usize) -> CreateOptions {
    CreateOptions {
        chunk_size: (level != Level::Raid1).then_some(64 * KIB),
        layout: (level == Level::Raid10).then_some(NEAR_3),
        assume_clean: true,
        ..CreateOptions::new("data", level, disks)
    }
}

fn filled(
    world: &World,
    members: &[Arc<TestMember>],
    level: Level,
) -> (Arc<Array>, Rc<Control>, usize) {
    world.create(members, options(level, members.len()));
    let (array, control) = world.assemble(members);
    let size = array.info().device.size as usize;
    world.write(&array, 0, 0, &pattern(0, size)).unwrap();
    (array, control, size)
}

/// Spoils component bytes of a member behind the array's back.
fn rot(world: &World, member: &Arc<TestMember>, at: u64, len: usize) {
    let start = world.superblock(member).data_offset * 512;
    world.scribble(member, start + at, &pattern(99, len));
}

fn scrub(world: &World, control: &Rc<Control>, repair: bool) -> Findings {
    world.wait_idle(control);
    if repair { control.jobs().start_repair() } else { control.jobs().start_check() }.unwrap();
    world.wait_idle(control);
    world.status(control).scrubbed.unwrap().findings
}

#[test]
fn the_member_that_is_wrong_is_named_and_mended_alone() {
    for (level, disks) in [(Level::Raid6, 5), (Level::Raid1, 3), (Level::Raid10, 3)] {
        for victim in 0..disks {
            let (world, members) = (World::new(2), members("m", disks, 3 * MIB));
            let (array, control, size) = filled(&world, &members, level);
            rot(&world, &members[victim], MIB + 8192, 4096);
            rot(&world, &members[(victim + 1) % disks], MIB + 16384, 512);
            let nrs: Vec<u32> = world.status(&control).members.iter().map(|m| m.nr).collect();
            for repair in [false, true] {
                let found = scrub(&world, &control, repair);
                let named: Vec<_> = found.places.iter().map(|place| place.members[0]).collect();
                let expected = [nrs[victim], nrs[(victim + 1) % disks]];
                assert!(named.iter().all(|nr| expected.contains(nr)), "{level} {victim} {found:?}");
                let right = |place: &crate::state::findings::Finding| {
                    place.verdict == Verdict::Wrong && place.mended == repair
                };
                assert!(found.places.iter().all(right), "{level} {victim} {found:?}");
                let bytes = (found.wrong.get(&expected[0]), found.wrong.get(&expected[1]));
                assert_eq!(bytes, (Some(&4096), Some(&512)), "{level} {victim}");
            }
            assert_eq!(scrub(&world, &control, false), Findings::default(), "{level} {victim}");
            assert!(world.read(&array, 0, 0, size).unwrap() == pattern(0, size), "{level}");
            let status = world.status(&control);
            assert_eq!((status.members[victim].wrong, status.degraded), (2 * 4096, 0));
        }
    }
}

#[test]
fn what_nobody_can_know_is_said_and_made_consistent_as_md_does() {
    for (level, disks, verdict) in [
        (Level::Raid5, 3, Verdict::Unknown),
        (Level::Raid1, 2, Verdict::Unknown),
        (Level::Raid6, 5, Verdict::Several),
    ] {
        let (world, members) = (World::new(1), members("m", disks, 3 * MIB));
        let (_, control, _) = filled(&world, &members, level);
        rot(&world, &members[0], MIB + 8192, 4096);
        if level == Level::Raid6 {
            let start = world.superblock(&members[1]).data_offset * 512;
            world.scribble(&members[1], start + MIB + 8192, &pattern(7, 4096));
        }
        for repair in [false, true] {
            let found = scrub(&world, &control, repair);
            let [place] = found.places.as_slice() else { panic!("{level} {found:?}") };
            assert_eq!((place.verdict, place.mended), (verdict, repair), "{level}");
            assert_eq!(place.component, MIB + 8192..MIB + 12288, "{level}");
            assert!(place.members.is_empty() && found.wrong.is_empty());
        }
        assert_eq!(scrub(&world, &control, false), Findings::default(), "{level}");
    }
}

#[test]
fn a_resync_after_a_crash_makes_parity_match_data_and_names_nobody() {
    let members = members("m", 5, 3 * MIB);
    let world = World::new(1);
    let (array, _, size) = filled(&world, &members, Level::Raid6);
    drop(array);
    let world = world.crash();
    // A write was under way: it reached the data, and no parity. Taken back it would be as good.
    rot(&world, &members[1], 8192, 4096);
    let (array, control) = world.assemble(&members);
    world.wait_idle(&control);
    assert_eq!(scrub(&world, &control, false), Findings::default());
    let now = world.read(&array, 0, 0, size).unwrap();
    assert_ne!(now, pattern(0, size));
    assert!(world.status(&control).members.iter().all(|member| member.wrong == 0));
}

#[test]
fn a_place_is_given_in_array_bytes() {
    let (world, members) = (World::new(1), members("m", 5, 3 * MIB));
    let (array, control, size) = filled(&world, &members, Level::Raid6);
    rot(&world, &members[2], MIB, 512);
    let now = world.read(&array, 0, 0, size).unwrap();
    let was = pattern(0, size);
    let first = (0..size).find(|at| now[*at] != was[*at]).unwrap() as u64;
    let found = scrub(&world, &control, false);
    assert_eq!(found.places[0].array, first / 512 * 512..first / 512 * 512 + 512);
    assert_eq!(found.places[0].component, MIB..MIB + 512);
}
