//! Halves of an array that ran apart are refused until somebody chooses; what merely failed or was away is not.

use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members};
use crate::error::{AssembleError, ControlError};
use crate::options::{AssembleOptions, CreateOptions, MemberSelector};
use braid_device::Opener;
use braid_format::superblock::Version;
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

fn made(world: &World, level: Level, disks: usize, version: Version) -> Vec<Arc<TestMember>> {
    let members = members("m", disks, 8 * MIB);
    let options = CreateOptions {
        assume_clean: true,
        chunk_size: (level != Level::Raid1).then_some(64 << 10),
        version,
        ..CreateOptions::new("data", level, disks)
    };
    world.create(&members, options);
    members
}

fn some(members: &[Arc<TestMember>], which: &[usize]) -> Vec<Arc<TestMember>> {
    which.iter().map(|nr| Arc::clone(&members[*nr])).collect()
}

/// Starts the array from some of its members, writes to it so many times, and stops it.
fn go_on(world: &World, members: &[Arc<TestMember>], byte: u8, writes: u32) {
    let (array, control) = world.assemble(members);
    for _ in 0..writes {
        world.write(&array, 0, 0, &[byte; 4096]).unwrap();
        world.sleep(SECOND);
    }
    world.stop(&control);
}

fn refused(world: &World, members: &[Arc<TestMember>]) -> String {
    match world.try_assemble(members, AssembleOptions::default()) {
        Err(error @ AssembleError::RanApart { .. }) => error.to_string(),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was assembled"),
    }
}

fn add(
    world: &World,
    control: &Rc<Control>,
    member: &Arc<TestMember>,
    force: bool,
) -> Result<(), ControlError> {
    let (control, opener) = (Rc::clone(control), Arc::clone(member) as Arc<dyn Opener>);
    world.run(async move { control.membership().add(opener, force).await }).map(drop)
}

#[test]
fn halves_that_ran_apart_are_refused_in_any_order() {
    for version in [Version::V1_2, Version::V0_90] {
        // Also with as many updates on both sides.
        for writes in [(1, 3), (3, 1), (2, 2)] {
            let world = World::new(1);
            let members = made(&world, Level::Raid1, 2, version);
            go_on(&world, &some(&members, &[0]), 0xaa, writes.0);
            go_on(&world, &some(&members, &[1]), 0xbb, writes.1);
            let before: Vec<_> = members.iter().map(|member| world.contents(member)).collect();
            for order in [[0, 1], [1, 0]] {
                let text = refused(&world, &some(&members, &order));
                for (name, member) in [("m0", &members[0]), ("m1", &members[1])] {
                    let events = world.superblock(member).events;
                    assert!(text.contains(&format!("{name} (slot")), "{text}");
                    assert!(text.contains(&format!("{events} updates")), "{text}");
                }
                assert!(text.contains("the last 2023-11-14 22:13:20 UTC"), "{text}");
                for (keep, give_up) in [("m0", "m1"), ("m1", "m0")] {
                    let name = if version == Version::V0_90 { "" } else { "data" };
                    let command = format!("braid serve {keep}; braid add {name}");
                    assert!(text.contains(&command), "{text}");
                    assert!(text.contains(&format!("{give_up} --force")), "{text}");
                }
            }
            for (member, before) in members.iter().zip(&before) {
                assert!(world.contents(member) == *before, "{version}: it was written to");
            }
        }
    }
}

#[test]
fn a_half_is_added_to_the_other_with_force_only() {
    for version in [Version::V1_2, Version::V0_90] {
        let world = World::new(1);
        let members = made(&world, Level::Raid1, 2, version);
        go_on(&world, &some(&members, &[0]), 0xaa, 3);
        go_on(&world, &some(&members, &[1]), 0xbb, 1);
        let (array, control) = world.assemble(&some(&members, &[1]));
        let before = world.contents(&members[0]);
        let error = add(&world, &control, &members[0], false).unwrap_err();
        assert!(matches!(error, ControlError::RanApart { .. }), "{error}");
        assert!(error.to_string().contains("--force"), "{error}");
        assert!(world.contents(&members[0]) == before, "it was written to");
        add(&world, &control, &members[0], true).unwrap();
        assert_eq!(world.check(&control), 0);
        assert_eq!(world.status(&control).degraded, 0);
        assert_eq!(world.read(&array, 0, 0, 4096).unwrap(), [0xbb; 4096]);
        world.stop(&control);
        world.assemble(&members);
    }
}

#[test]
fn every_side_of_a_mirror_of_three_is_named() {
    let world = World::new(1);
    let members = made(&world, Level::Raid1, 3, Version::V1_2);
    for nr in 0..3 {
        go_on(&world, &some(&members, &[nr]), nr as u8, nr as u32 + 1);
    }
    let text = refused(&world, &members);
    for side in ["side 1: m2 (", "side 2: m1 (", "side 3: m0 ("] {
        assert!(text.contains(side), "{text}");
    }

    let world = World::new(1);
    let members = made(&world, Level::Raid6, 4, Version::V1_2);
    go_on(&world, &some(&members, &[0, 2]), 1, 1);
    go_on(&world, &some(&members, &[1, 3]), 2, 2);
    let text = refused(&world, &members);
    assert!(text.contains("side 1: m1 (") && text.contains("side 2: m0 ("), "{text}");
    assert!(text.contains("braid serve m0 m2; braid add data m1 --force"), "{text}");
}

#[test]
fn members_that_left_one_after_another_are_stale_and_no_halves() {
    for version in [Version::V1_2, Version::V0_90] {
        let world = World::new(1);
        let members = made(&world, Level::Raid1, 3, version);
        // m0 leaves, then m1; then m0 is back while m1 is away.
        go_on(&world, &some(&members, &[1, 2]), 1, 2);
        let (array, control) = world.assemble(&some(&members, &[1, 2]));
        let (failing, name) = (Rc::clone(&control), MemberSelector::Name("m1".to_string()));
        world.run(async move { failing.membership().fail(&name).await }).unwrap();
        add(&world, &control, &members[0], false).unwrap();
        world.wait_idle(&control);
        world.write(&array, 0, 0, &[2; 4096]).unwrap();
        world.stop(&control);

        let (array, control) = world.assemble(&members);
        let status = world.status(&control);
        assert!(status.left_out.iter().any(|line| line.starts_with("m1: ")), "{status:?}");
        assert_eq!(world.read(&array, 0, 0, 4096).unwrap(), [2; 4096]);
        add(&world, &control, &members[1], false).unwrap();
        world.wait_idle(&control);
        assert_eq!(world.status(&control).degraded, 0);
    }
}
