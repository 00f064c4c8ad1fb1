//! Spares that go from one running array to another.

use crate::array::Array;
use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::metadata::superblock::read_superblock;
use crate::options::{AssembleOptions, CreateBitmap, CreateOptions, MemberSelector};
use crate::state::flags::MemberFlags;
use crate::status::MemberState;
use braid_device::{Opener, Target};
use braid_format::superblock::{Superblock, Version};
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SPARE: &str = "m6";

struct Two {
    all: Vec<Arc<TestMember>>,
    /// One lacks a member, the other has a spare.
    one: (Arc<Array>, Rc<Control>),
    other: (Arc<Array>, Rc<Control>),
}

fn named(name: &str) -> MemberSelector {
    MemberSelector::Name(name.to_string())
}

fn size(array: &Array) -> usize {
    array.info().device.size as usize
}

fn fail(world: &World, control: &Rc<Control>, name: &str) {
    let (control, name) = (Rc::clone(control), named(name));
    world.run(async move { control.membership().fail(&name).await }).unwrap();
}

/// Two arrays of three members; `version` is that of the first, which has lost one.
fn two_arrays(world: &World, version: Version) -> Two {
    let all = members("m", 7, 4 << 20);
    let of = |name: &str, level, version, spares| CreateOptions {
        chunk_size: (level != Level::Raid1).then_some(16 << 10),
        assume_clean: true,
        bitmap: CreateBitmap::None,
        version,
        spares,
        ..CreateOptions::new(name, level, 3)
    };
    world.create(&all[..3], of("one", Level::Raid5, version, 0));
    world.create(&all[3..], of("other", Level::Raid1, Version::V1_2, 1));
    let (one, other) = (world.assemble(&all[..3]), world.assemble(&all[3..]));
    for (array, _) in [&one, &other] {
        world.write(array, 0, 0, &pattern(0, size(array))).unwrap();
    }
    fail(world, &one.1, "m1");
    // Both are marked clean.
    world.sleep(20_000_000_000);
    Two { all, one, other }
}

/// The spare goes to the one that lacks a member; false when it has not arrived there.
fn moves(world: &World, two: &Two) -> bool {
    let (from, to) = (Rc::clone(&two.other.1), Rc::clone(&two.one.1));
    world.run(async move {
        let Ok(opener) = from.membership().give_spare(&named(SPARE)).await else { return false };
        to.membership().add_with(opener, true, MemberFlags::default()).await.is_ok()
    })
}

fn found(world: &World, member: &Arc<TestMember>) -> Option<Superblock> {
    let (shard, opener) = (world.shards[0].clone(), Arc::clone(member));
    world.run(async move {
        let device = opener.open(&shard).unwrap();
        read_superblock(&shard, &device, opener.name()).await.unwrap()
    })
}

#[test]
fn a_spare_that_is_not_needed_fills_the_slot_of_another_array() {
    let world = World::new(2);
    let two = two_arrays(&world, Version::V1_2);
    assert!(moves(&world, &two));
    world.wait_idle(&two.one.1);
    let status = world.status(&two.one.1);
    assert_eq!((status.degraded, world.status(&two.other.1).members.len()), (0, 3));
    assert!(status.members.iter().any(|m| m.name == SPARE && m.state == MemberState::InSync));
    assert_eq!(world.check(&two.one.1), 0);
    let content = pattern(0, size(&two.one.0));
    assert_eq!(world.read(&two.one.0, 0, 0, content.len()).unwrap(), content);
    world.stop(&two.one.1);
    world.stop(&two.other.1);
}

#[test]
fn an_array_gives_away_what_it_does_not_need_and_nothing_else() {
    let world = World::new(1);
    let two = two_arrays(&world, Version::V1_2);
    let other = &two.other.1;
    assert!(other.membership().spare(&named(SPARE)).is_ok());
    for (name, word) in [("m3", "needed here"), ("m9", "no member")] {
        let gives = Rc::clone(other);
        let given =
            world.run(async move { gives.membership().give_spare(&named(name)).await.err() });
        let error = given.expect("it is none").to_string();
        assert!(error.contains(word), "{error}");
    }
    // It is needed where it is.
    fail(&world, other, "m3");
    assert!(other.membership().spare(&named(SPARE)).is_err());
    world.wait_idle(other);
    assert!(!moves(&world, &two));
    assert_eq!(world.status(other).degraded, 0);
    world.stop(&two.one.1);
    world.stop(other);
}

/// The power goes after `writes` writes to members; true when the spare had arrived by then.
fn cut_short(version: Version, writes: u64) -> bool {
    let world = World::new(1);
    let two = two_arrays(&world, version);
    let power = &two.all[0].power;
    power.store(writes, Ordering::Relaxed);
    moves(&world, &two);
    let ended = power.load(Ordering::Relaxed) > 0;
    let (ids, sizes) =
        ([two.one.0.uuid(), two.other.0.uuid()], [size(&two.one.0), size(&two.other.0)]);
    let all = two.all.clone();
    drop(two);
    let world = world.crash();
    all[0].power.store(u64::MAX, Ordering::Relaxed);
    let what = format!("{version} after {writes} writes");
    let mut holders = Vec::new();
    for (uuid, size) in ids.into_iter().zip(sizes) {
        let own = |m: &&Arc<TestMember>| found(&world, m).is_some_and(|sb| sb.set_uuid == uuid);
        let own: Vec<_> = all.iter().filter(own).cloned().collect();
        let options = AssembleOptions { start_degraded: true, ..AssembleOptions::default() };
        let array = world.try_assemble(&own, options).expect(&what);
        let control = Control::find(&world.shards[0], array.id()).unwrap();
        assert_eq!(world.read(&array, 0, 0, size).unwrap(), pattern(0, size), "{what}");
        if world.status(&control).members.iter().any(|member| member.name == SPARE) {
            holders.push(uuid);
        }
        world.wait_idle(&control);
        assert_eq!(world.read(&array, 0, 0, size).unwrap(), pattern(0, size), "{what}");
        world.stop(&control);
    }
    assert!(holders.len() <= 1, "{what}: both have it");
    if ended {
        assert_eq!(holders, ids[..1], "{what}");
    }
    ended
}

#[test]
fn wherever_power_fails_one_array_has_the_spare_at_most() {
    for version in [Version::V1_2, Version::V1_0] {
        let mut writes = 0;
        while !cut_short(version, writes) {
            writes += 1;
        }
        assert!(writes > 5, "{version}: {writes}");
    }
}
