//! Running level 1 arrays that get more copies, or fewer.

use crate::array::Array;
use crate::control::Control;
use crate::control::levels::{Relevelled, WantedLevel};
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::error::ControlError;
use crate::options::{AssembleOptions, CreateBitmap, CreateOptions, MemberSelector};
use braid_device::{Opener, Target};
use braid_format::superblock::{Role, Superblock};
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;

const KIB: u64 = 1 << 10;

fn copies(
    world: &World,
    control: &Rc<Control>,
    copies: usize,
    dry_run: bool,
) -> Result<Relevelled, ControlError> {
    let wanted = WantedLevel {
        level: Level::Raid1,
        chunk_size: None,
        layout: None,
        raid_disks: Some(copies),
    };
    let control = Rc::clone(control);
    world.run(async move { control.change_level(wanted, dry_run).await })
}

/// A running mirror that is full of a pattern, and members behind its own that belong to nobody.
fn mirror_of(
    world: &World,
    disks: usize,
    bitmap: bool,
    more: usize,
) -> (Vec<Arc<TestMember>>, Arc<Array>, Rc<Control>) {
    let all = members("m", disks + more, 1 << 20);
    let options = CreateOptions {
        size: Some(384 * KIB),
        data_offset: Some(128 * KIB),
        bitmap: if bitmap { CreateBitmap::Internal { chunk: None } } else { CreateBitmap::None },
        ..CreateOptions::new("data", Level::Raid1, disks)
    };
    let (array, control) = world.filled(&all[..disks], options);
    (all, array, control)
}

fn fail(world: &World, control: &Rc<Control>, name: &str, remove: bool) {
    let (control, name) = (Rc::clone(control), MemberSelector::Name(name.to_string()));
    world.run(async move {
        control.membership().fail(&name).await.unwrap();
        if remove {
            control.membership().remove(&name).await.unwrap();
        }
    });
}

fn slots(world: &World, control: &Rc<Control>) -> Vec<Option<String>> {
    let status = world.status(control);
    let name = |nr| status.members.iter().find(|member| member.nr == nr).unwrap().name.clone();
    status.slots.iter().map(|holder| holder.map(name)).collect()
}

fn named(names: &[&str]) -> Vec<Option<String>> {
    names.iter().map(|name| Some((*name).to_string()).filter(|name| !name.is_empty())).collect()
}

#[test]
fn spares_become_further_copies_of_which_each_has_all() {
    for (shards, bitmap) in [(1, true), (1, false), (3, true)] {
        let world = World::new(shards);
        let (all, array, control) = mirror_of(&world, 2, bitmap, 2);
        let mut content = pattern(0, array.info().device.size as usize);
        world.add(&control, &all[2]);
        let would = copies(&world, &control, 4, true).unwrap();
        assert_eq!((would.raid_disks, would.empty), ((2, 4), 1));
        assert_eq!((&would.rebuilt[..], &would.freed[..]), (&["m2".to_string()][..], &[][..]));
        assert_eq!(world.status(&control).raid_disks, 2);
        assert_eq!(copies(&world, &control, 4, false).unwrap(), would);
        let new = pattern(7, 40 << 10);
        world.write(&array, 0, 24 * KIB, &new).unwrap();
        content[24 << 10..][..new.len()].copy_from_slice(&new);
        world.wait_idle(&control);
        assert_eq!(slots(&world, &control), named(&["m0", "m1", "m2", ""]));
        world.add(&control, &all[3]);
        world.wait_idle(&control);
        let status = world.status(&control);
        assert_eq!((status.degraded, status.array_size), (0, content.len() as u64));
        assert_eq!(world.check(&control), 0);
        world.stop(&control);
        let world = World::new(shards);
        let (array, control) = world.assemble(&all);
        assert_eq!(slots(&world, &control), named(&["m0", "m1", "m2", "m3"]));
        for lost in ["m0", "m1", "m2"] {
            fail(&world, &control, lost, false);
            assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content, "{lost}");
        }
        world.stop(&control);
    }
}

#[test]
fn fewer_copies_are_those_in_sync_and_the_others_are_spares() {
    // Gone before, copies that stay, and who has them then.
    type Names = &'static [&'static str];
    let cases: [(Names, usize, Names, Names); 4] = [
        (&[], 2, &["m0", "m1"], &["m2", "m3"]),
        (&["m1"], 2, &["m0", "m2"], &["m3"]),
        (&["m0", "m1"], 2, &["m2", "m3"], &[]),
        (&["m1", "m2"], 3, &["m0", "m3", ""], &[]),
    ];
    for (gone, stay, holders, freed) in cases {
        let what = format!("{gone:?} {stay}");
        let world = World::new(2);
        let (all, array, control) = mirror_of(&world, 4, true, 0);
        let content = pattern(0, array.info().device.size as usize);
        gone.iter().for_each(|name| fail(&world, &control, name, true));
        let would = copies(&world, &control, stay, true).unwrap();
        assert_eq!(would.freed, freed, "{what}");
        assert_eq!(copies(&world, &control, stay, false).unwrap(), would, "{what}");
        world.wait_idle(&control);
        assert_eq!(slots(&world, &control), named(holders), "{what}");
        assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content, "{what}");
        world.stop(&control);
        let is_spare = |name: &str| {
            let member = all.iter().find(|member| member.ram.name() == name).unwrap();
            world.superblock(member).own_role() == Role::Spare
        };
        assert!(freed.iter().all(|name| is_spare(name)), "{what}");
        let world = World::new(2);
        let present: Vec<_> =
            all.iter().filter(|member| !gone.contains(&member.ram.name())).cloned().collect();
        let (array, control) = world.assemble(&present);
        assert_eq!(slots(&world, &control), named(holders), "{what}");
        assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content, "{what}");
        assert_eq!(world.check(&control), 0, "{what}");
        world.stop(&control);
    }
}

#[test]
fn whoever_misses_the_update_is_brought_in_line() {
    for (gone, stay, right) in [(Some("m0"), 2, vec![0, 1]), (None, 5, vec![0, 1, 2, 3])] {
        for late in 1..7_u32 {
            let what = format!("{gone:?}, late {late:b}");
            let world = World::new(1);
            let (all, array, control) = mirror_of(&world, 4, false, 0);
            let content = pattern(0, array.info().device.size as usize);
            if let Some(name) = gone {
                fail(&world, &control, name, true);
            }
            let staying: Vec<_> =
                all.iter().filter(|member| Some(member.ram.name()) != gone).cloned().collect();
            let before: Vec<Superblock> =
                staying.iter().map(|member| world.superblock(member)).collect();
            copies(&world, &control, stay, false).unwrap();
            for (nr, (member, was)) in staying.iter().zip(&before).enumerate() {
                if late >> nr & 1 == 1 {
                    let after = world.superblock(member);
                    let old = Superblock {
                        events: after.events - 1,
                        raid_disks: was.raid_disks,
                        roles: was.roles.clone(),
                        ..after.clone()
                    };
                    world.scribble(member, after.super_offset * 512, &old.to_bytes());
                }
            }
            let world = world.crash();
            let options = AssembleOptions { start_degraded: true, ..AssembleOptions::default() };
            let array = world.try_assemble(&staying, options).expect(&what);
            let control = Control::find(&world.shards[0], array.id()).unwrap();
            // Where nobody has heard of it who has a copy then, the array is as it was.
            let unheard = gone.is_some() && late & 0b11 == 0b11;
            let slots = if unheard { 4 } else { stay };
            assert_eq!(world.status(&control).raid_disks, slots, "{what}");
            assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content, "{what}");
            world.wait_idle(&control);
            world.stop(&control);
            let slot = |member: &Arc<TestMember>| world.superblock(member).own_role().slot();
            let roles: Vec<_> = staying.iter().filter_map(slot).collect();
            let right = if unheard { vec![1, 2, roles[2]] } else { right.clone() };
            assert_eq!(roles, right, "{what}");
        }
    }
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_written() {
    let world = World::new(1);
    let (all, _array, control) = mirror_of(&world, 2, false, 0);
    let before = world.superblock(&all[0]).events;
    for (number, word) in [(2, "already"), (1, "no second copy"), (0, "no second copy")] {
        let error = copies(&world, &control, number, false).unwrap_err().to_string();
        assert!(error.contains(word), "{word:?} is not in {error}");
    }
    assert!(copies(&world, &control, 100_000, false).is_err());
    assert_eq!(world.superblock(&all[0]).events, before);
    world.stop(&control);
}
