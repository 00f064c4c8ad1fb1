//! Running arrays that get another level without anything being moved.

use crate::array::Array;
use crate::control::Control;
use crate::control::levels::{Relevelled, WantedLevel};
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::error::ControlError;
use crate::options::{AssembleOptions, CreateBitmap, CreateOptions, MemberSelector};
use crate::status::{JobKind, MemberState};
use braid_device::{Opener, Target};
use braid_format::superblock::Role;
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;

const KIB: u64 = 1 << 10;
const CHUNK: u64 = 8 * KIB;
const COMPONENT: u64 = 48 * CHUNK;
/// md's number of the layout of level 10 that has two copies side by side.
const NEAR_2: u32 = 0x102;

fn wanted(level: Level) -> WantedLevel {
    WantedLevel { level, chunk_size: None, layout: None, raid_disks: None }
}

fn change(
    world: &World,
    control: &Rc<Control>,
    wanted: WantedLevel,
    dry_run: bool,
) -> Result<Relevelled, ControlError> {
    let control = Rc::clone(control);
    world.run(async move { control.change_level(wanted, dry_run).await })
}

/// A running array that is full of a pattern, and members behind its own that belong to nobody.
fn array_of(
    world: &World,
    (level, layout, disks): (Level, u32, usize),
    bitmap: bool,
    more: usize,
) -> (Vec<Arc<TestMember>>, Arc<Array>, Rc<Control>) {
    let all = members("m", disks + more, 1 << 20);
    let options = CreateOptions {
        chunk_size: (level != Level::Raid1).then_some(CHUNK),
        layout: matches!(level, Level::Raid5 | Level::Raid6).then_some(layout),
        size: (level != Level::Raid0).then_some(COMPONENT),
        data_offset: Some(128 * KIB),
        bitmap: if bitmap { CreateBitmap::Internal { chunk: None } } else { CreateBitmap::None },
        ..CreateOptions::new("data", level, disks)
    };
    let (array, control) = world.filled(&all[..disks], options);
    (all, array, control)
}

fn size(array: &Array) -> usize {
    array.info().device.size as usize
}

fn take_away(world: &World, control: &Rc<Control>, name: &str) {
    let (control, name) = (Rc::clone(control), MemberSelector::Name(name.to_string()));
    world.run(async move {
        control.membership().fail(&name).await.unwrap();
        control.membership().remove(&name).await.unwrap();
    });
}

/// All changes of one command, with the layout that they lead to and how many slots are new.
const CHANGES: [(Level, u32, usize, Level, u32, usize); 16] = [
    (Level::Raid4, 0, 3, Level::Raid5, 5, 0),
    (Level::Raid5, 5, 3, Level::Raid4, 0, 0),
    (Level::Raid5, 0, 3, Level::Raid6, 16, 1),
    (Level::Raid5, 1, 3, Level::Raid6, 17, 1),
    (Level::Raid5, 2, 4, Level::Raid6, 18, 1),
    (Level::Raid5, 3, 3, Level::Raid6, 19, 1),
    (Level::Raid5, 4, 3, Level::Raid6, 20, 1),
    (Level::Raid5, 5, 3, Level::Raid6, 5, 1),
    (Level::Raid4, 0, 3, Level::Raid6, 5, 1),
    (Level::Raid0, 0, 3, Level::Raid5, 5, 1),
    (Level::Raid0, 0, 2, Level::Raid4, 0, 1),
    (Level::Raid0, 0, 2, Level::Raid6, 5, 2),
    (Level::Raid1, 0, 2, Level::Raid5, 2, 0),
    (Level::Raid5, 3, 2, Level::Raid1, 0, 0),
    (Level::Raid0, 0, 2, Level::Raid10, NEAR_2, 2),
    (Level::Raid0, 0, 3, Level::Raid10, NEAR_2, 3),
];

#[test]
fn all_is_there_before_and_after_the_new_slots_are_filled_and_in_the_next_life() {
    for shards in [1, 3] {
        for (from, layout, disks, to, becomes, more) in CHANGES {
            let what = format!("{from} {layout} of {disks} to {to}, {shards} shards");
            let bitmap = from != Level::Raid0 && shards == 1;
            let world = World::new(shards);
            let (all, array, control) = array_of(&world, (from, layout, disks), bitmap, more);
            let mut content = pattern(0, size(&array));
            let would = change(&world, &control, wanted(to), true).unwrap();
            assert_eq!(world.status(&control).level, from, "{what}");
            let is = change(&world, &control, wanted(to), false).unwrap();
            assert_eq!(is, would, "{what}");
            assert_eq!((is.level, is.layout.1, is.empty), ((from, to), becomes, more), "{what}");
            let status = world.status(&control);
            assert_eq!((status.level, status.layout), (to, becomes), "{what}");
            assert_eq!((status.raid_disks, status.degraded), (disks + more, more), "{what}");
            assert_eq!(status.array_size, content.len() as u64, "{what}");
            assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content, "{what}");
            let new = pattern(7, 5 * CHUNK as usize);
            world.write(&array, 0, 3 * CHUNK, &new).unwrap();
            content[3 * CHUNK as usize..][..new.len()].copy_from_slice(&new);
            for member in &all[disks..] {
                world.add(&control, member);
                world.wait_idle(&control);
            }
            assert_eq!(world.status(&control).degraded, 0, "{what}");
            assert_eq!(world.check(&control), 0, "{what}");
            world.stop(&control);
            let world = World::new(shards);
            let (array, control) = world.assemble(&all);
            let status = world.status(&control);
            assert_eq!((status.level, status.layout), (to, becomes), "{what}");
            assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content, "{what}");
            // Its redundancy is worth something.
            let lost = all[0].ram.name().to_string();
            let fails = Rc::clone(&control);
            let selector = MemberSelector::Name(lost);
            world.run(async move { fails.membership().fail(&selector).await }).unwrap();
            assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content, "{what}");
            world.stop(&control);
        }
    }
}

#[test]
fn and_back_again() {
    let backs = [
        ((Level::Raid5, 2, 3), Level::Raid6),
        ((Level::Raid5, 4, 3), Level::Raid6),
        ((Level::Raid4, 0, 3), Level::Raid6),
        ((Level::Raid4, 0, 3), Level::Raid5),
        ((Level::Raid1, 0, 2), Level::Raid5),
    ];
    for (from, to) in backs {
        let world = World::new(2);
        let (all, array, control) = array_of(&world, from, true, 1);
        let content = pattern(0, size(&array));
        change(&world, &control, wanted(to), false).unwrap();
        let had = if to == Level::Raid6 {
            world.add(&control, &all[from.2]);
            world.wait_idle(&control);
            from.2 + 1
        } else {
            from.2
        };
        let back = change(&world, &control, wanted(from.0), false).unwrap();
        assert_eq!(back.freed.len(), had - from.2, "{to}");
        let status = world.status(&control);
        assert_eq!((status.level, status.layout, status.degraded), (from.0, from.1, 0));
        let spares = |state: &MemberState| *state == MemberState::Spare;
        let spares = status.members.iter().filter(|member| spares(&member.state)).count();
        assert_eq!((status.raid_disks, spares), (from.2, had - from.2), "{to}");
        assert_eq!(world.check(&control), 0, "{to}");
        assert_eq!(world.read(&array, 1, 0, content.len()).unwrap(), content, "{to}");
        world.stop(&control);
        let (array, control) = world.assemble(&all[..had]);
        assert_eq!(world.read(&array, 1, 0, content.len()).unwrap(), content, "{to}");
        world.stop(&control);
    }
}

#[test]
fn level_0_is_gone_back_to_and_whoever_holds_parity_leaves() {
    for (to, layout, taken_away) in
        [(Level::Raid4, 0, true), (Level::Raid4, 0, false), (Level::Raid5, 5, false)]
    {
        let world = World::new(2);
        let (all, array, control) = array_of(&world, (Level::Raid0, 0, 3), false, 1);
        let content = pattern(0, size(&array));
        change(&world, &control, wanted(to), false).unwrap();
        world.add(&control, &all[3]);
        world.wait_idle(&control);
        assert_eq!(world.status(&control).layout, layout);
        if taken_away {
            take_away(&world, &control, "m3");
        }
        world.write(&array, 0, 0, &content).unwrap();
        let would = change(&world, &control, wanted(Level::Raid0), true).unwrap();
        assert_eq!(would.leaving.len(), usize::from(!taken_away));
        let is = change(&world, &control, wanted(Level::Raid0), false).unwrap();
        assert_eq!(is, would);
        assert!(taken_away || world.superblock(&all[3]).own_role() == Role::Faulty);
        let status = world.status(&control);
        assert_eq!(status.members.len(), 3);
        assert_eq!((status.level, status.raid_disks, status.degraded), (Level::Raid0, 3, 0));
        assert_eq!(world.read(&array, 1, 0, content.len()).unwrap(), content);
        for member in &all[..3] {
            let superblock = world.superblock(member);
            assert_eq!((superblock.level, superblock.size), (0, 0));
            assert_eq!(superblock.data_size * 512, content.len() as u64 / 3);
        }
        // Its members are not made to change their minds by what is written.
        let events = world.superblock(&all[0]).events;
        world.write(&array, 1, CHUNK, &content[CHUNK as usize..]).unwrap();
        assert_eq!(world.superblock(&all[0]).events, events);
        // A failed flush is told to whoever asks, since no other member makes it good.
        world.stop(&control);
        let (array, control) = world.assemble(&all[..3]);
        assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content);
        // The tasks of an array with redundancy run again: it is marked clean by itself.
        change(&world, &control, wanted(Level::Raid5), false).unwrap();
        world.write(&array, 0, 0, &content).unwrap();
        assert!(!world.superblock(&all[0]).is_clean());
        world.sleep(2_000_000_000);
        assert!(world.superblock(&all[0]).is_clean());
        world.stop(&control);
    }
}

#[test]
fn whoever_misses_the_last_update_is_brought_in_line() {
    // Each member in turn keeps the superblock of before.
    let all_changes = CHANGES.iter().copied();
    let backs = [
        (Level::Raid6, 18, 5, Level::Raid5, 2, 0),
        (Level::Raid6, 5, 4, Level::Raid4, 0, 0),
        (Level::Raid5, 5, 3, Level::Raid0, 0, 0),
        (Level::Raid6, 5, 4, Level::Raid0, 0, 0),
    ];
    for (from, layout, disks, to, becomes, _) in all_changes.chain(backs) {
        for late in 0..disks {
            let what = format!("{from} {layout} of {disks} to {to}, {late} is late");
            let world = World::new(1);
            let (all, array, control) = array_of(&world, (from, layout, disks), false, 0);
            let content = pattern(0, size(&array));
            let mut holders = all.clone();
            if to == Level::Raid0 {
                holders.truncate(2);
            }
            if late >= holders.len() {
                continue;
            }
            // The last write to it is that of the superblock of the new level.
            let member = &holders[late];
            let before = world.superblock(member);
            change(&world, &control, wanted(to), false).unwrap();
            let after = world.superblock(member);
            assert!(after.events > before.events, "{what}");
            let at = after.super_offset * 512;
            let old = braid_format::superblock::Superblock {
                events: after.events - 1,
                data_size: after.data_size,
                level: before.level,
                layout: before.layout,
                size: before.size,
                chunk_sectors: before.chunk_sectors,
                raid_disks: before.raid_disks,
                roles: before.roles.clone(),
                ..after
            };
            world.scribble(member, at, &old.to_bytes());
            let world = world.crash();
            let options = AssembleOptions { start_degraded: true, ..AssembleOptions::default() };
            let array = world.try_assemble(&all, options).expect(&what);
            let control = Control::find(&world.shards[0], array.id()).unwrap();
            let status = world.status(&control);
            assert_eq!((status.level, status.layout), (to, becomes), "{what}");
            assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content, "{what}");
            world.stop(&control);
            for member in &holders {
                let superblock = world.superblock(member);
                let left_out = late + 1 == disks && to != Level::Raid0 && from == Level::Raid6;
                let right = superblock.level == to.md_number() || left_out;
                assert!(right && superblock.own_role() != Role::Faulty, "{what}");
            }
        }
    }
}

/// Of a level 10 array of four: level 0 is on one member of each two.
#[test]
fn the_second_copies_leave_with_level_10() {
    // None is lost before; or first, second or both copies of the one or the other.
    for lost in [&[][..], &[0], &[1], &[3], &[0, 2], &[1, 2]] {
        for shards in [1, 3] {
            let what = format!("without {lost:?}, {shards} shards");
            let world = World::new(shards);
            let (all, array, control) = array_of(&world, (Level::Raid10, NEAR_2, 4), false, 0);
            let mut content = pattern(0, size(&array));
            for slot in lost {
                take_away(&world, &control, &format!("m{slot}"));
            }
            let would = change(&world, &control, wanted(Level::Raid0), true).unwrap();
            let is = change(&world, &control, wanted(Level::Raid0), false).unwrap();
            assert_eq!(is, would, "{what}");
            assert_eq!((is.raid_disks, is.layout.1, is.empty), ((4, 2), 0, 0), "{what}");
            assert_eq!(is.leaving.len() + lost.len(), 2, "{what}");
            assert!(is.rebuilt.is_empty() && is.freed.is_empty(), "{what}");
            let status = world.status(&control);
            assert_eq!((status.level, status.members.len()), (Level::Raid0, 2), "{what}");
            assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content, "{what}");
            let new = pattern(7, 5 * CHUNK as usize);
            world.write(&array, 0, 3 * CHUNK, &new).unwrap();
            content[3 * CHUNK as usize..][..new.len()].copy_from_slice(&new);
            world.stop(&control);
            // Those that have left are no members to whoever finds them.
            let names: Vec<&str> = status.members.iter().map(|m| m.name.as_str()).collect();
            let (stay, gone): (Vec<_>, Vec<_>) =
                all.iter().cloned().partition(|member| names.contains(&member.ram.name()));
            for member in gone.iter().filter(|m| is.leaving.iter().any(|name| name == m.ram.name()))
            {
                assert_eq!(world.superblock(member).own_role(), Role::Faulty, "{what}");
            }
            for (slot, member) in stay.iter().enumerate() {
                let superblock = world.superblock(member);
                assert_eq!(superblock.own_role(), Role::Slot(slot as u16), "{what}");
                assert_eq!((superblock.data_size * 512, superblock.size), (COMPONENT, 0), "{what}");
            }
            let world = World::new(shards);
            let (array, control) = world.assemble(&all);
            assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content, "{what}");
            // And back: they can be the second copies again.
            change(&world, &control, wanted(Level::Raid10), false).unwrap();
            for member in &gone {
                let (adding, opener) = (Rc::clone(&control), Arc::clone(member));
                world.run(async move { adding.membership().add(opener, true).await }).unwrap();
                world.wait_idle(&control);
            }
            assert_eq!(world.status(&control).degraded, 0, "{what}");
            assert_eq!(world.check(&control), 0, "{what}");
            assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content, "{what}");
            world.stop(&control);
        }
    }
}

/// Any of the members may have missed the update in which slots get other numbers.
#[test]
fn whoever_misses_other_numbers_of_slots_is_brought_in_line() {
    for (from, layout, disks, to) in
        [(Level::Raid0, 0, 3, Level::Raid10), (Level::Raid10, NEAR_2, 6, Level::Raid0)]
    {
        for late in 1..7_u32 {
            let what = format!("{from} to {to}, late {late:b}");
            let world = World::new(1);
            let (all, array, control) = array_of(&world, (from, layout, disks), false, 0);
            let content = pattern(0, size(&array));
            let second = (to == Level::Raid0).then_some("m0");
            if let Some(name) = second {
                // The first slot is that of a second copy.
                take_away(&world, &control, name);
            }
            let before: Vec<_> = all.iter().map(|member| world.superblock(member)).collect();
            change(&world, &control, wanted(to), false).unwrap();
            let status = world.status(&control);
            let held = |member: &&Arc<TestMember>| {
                status.members.iter().any(|held| held.name == member.ram.name())
            };
            let holders: Vec<_> = all.iter().filter(held).cloned().collect();
            assert_eq!(holders.len(), 3, "{what}");
            for (nr, member) in holders.iter().enumerate().filter(|(nr, _)| late >> nr & 1 == 1) {
                let after = world.superblock(member);
                let was = before.iter().find(|was| was.dev_number == after.dev_number).unwrap();
                let old = braid_format::superblock::Superblock {
                    events: after.events - 1,
                    level: was.level,
                    layout: was.layout,
                    size: was.size,
                    chunk_sectors: was.chunk_sectors,
                    raid_disks: was.raid_disks,
                    roles: was.roles.clone(),
                    ..after.clone()
                };
                assert!(nr == 0 || old.own_role() != after.own_role(), "{what}");
                world.scribble(member, after.super_offset * 512, &old.to_bytes());
            }
            let world = world.crash();
            let options = AssembleOptions { start_degraded: true, ..AssembleOptions::default() };
            let array = world.try_assemble(&all, options).expect(&what);
            let control = Control::find(&world.shards[0], array.id()).unwrap();
            let status = world.status(&control);
            assert_eq!((status.level, status.members.len()), (to, 3), "{what}");
            assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content, "{what}");
            world.stop(&control);
            let roles = |member: &Arc<TestMember>| world.superblock(member).own_role().slot();
            let roles: Vec<_> = holders.iter().filter_map(roles).collect();
            let right = if to == Level::Raid0 { [0, 1, 2] } else { [0, 2, 4] };
            assert_eq!(roles, right, "{what}");
        }
    }
}

#[test]
fn what_stands_in_the_way_is_said_before_anything_is_written() {
    let world = World::new(1);
    let (all, _array, control) = array_of(&world, (Level::Raid5, 2, 4), true, 1);
    let events = |member| world.superblock(member).events;
    let before = events(&all[0]);
    let refused = |wanted, words: &[&str]| {
        let error = change(&world, &control, wanted, false).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "{word:?} is not in {error}");
        }
    };
    refused(wanted(Level::Raid5), &["already"]);
    refused(wanted(Level::Raid0), &["--layout parity-last"]);
    refused(wanted(Level::Raid4), &["--layout parity-last"]);
    refused(wanted(Level::Raid1), &["two members"]);
    refused(wanted(Level::Raid10), &["does not change raid5 to raid10"]);
    let six = wanted(Level::Raid6);
    refused(
        WantedLevel { layout: Some(2), ..six },
        &["left-symmetric-6", "--layout left-symmetric"],
    );
    refused(WantedLevel { raid_disks: Some(6), ..six }, &["5 slots", "--raid-devices 6"]);
    refused(WantedLevel { chunk_size: Some(4 * KIB), ..six }, &["chunks first"].map(|_| "first"));
    assert_eq!(events(&all[0]), before);
    let right = WantedLevel { layout: Some(18), raid_disks: Some(5), ..six };
    let would = change(&world, &control, right, true).unwrap();
    assert_eq!((would.layout, would.raid_disks, would.empty), ((2, 18), (4, 5), 1));
    assert_eq!(events(&all[0]), before);
    // While something is being made redundant.
    world.add(&control, &all[4]);
    let selector = MemberSelector::Name("m1".to_string());
    let fails = Rc::clone(&control);
    control.jobs().pause_jobs(true);
    world.run(async move { fails.membership().fail(&selector).await }).unwrap();
    let busy = || world.status(&control).job.is_some_and(|job| job.kind == JobKind::Recover);
    while !busy() {
        world.step();
    }
    refused(six, &["braid wait data"]);
    control.jobs().pause_jobs(false);
    world.wait_idle(&control);
    world.stop(&control);
    // Of members that differ in size, what the larger have alone would have nowhere to go.
    let world = World::new(1);
    let mut uneven = members("u", 2, 1 << 20);
    uneven.extend(members("v", 1, 2 << 20));
    let options = CreateOptions {
        chunk_size: Some(CHUNK),
        data_offset: Some(128 * KIB),
        ..CreateOptions::new("data", Level::Raid0, 3)
    };
    world.create(&uneven, options);
    let (_array, control) = world.assemble(&uneven);
    let error = change(&world, &control, wanted(Level::Raid5), false).unwrap_err().to_string();
    assert!(error.contains("differ in size"), "{error}");
    let error = change(&world, &control, wanted(Level::Raid10), false).unwrap_err().to_string();
    assert!(error.contains("differ in size"), "{error}");
    world.stop(&control);
    // Level 10: whole copies on single members alone.
    let world = World::new(1);
    let (all, _array, control) = array_of(&world, (Level::Raid10, NEAR_2, 3), false, 0);
    let error = change(&world, &control, wanted(Level::Raid0), false).unwrap_err().to_string();
    assert!(error.contains("n2 of an even number"), "{error}");
    world.stop(&control);
    drop(all);
    let world = World::new(1);
    let (_all, _array, control) = array_of(&world, (Level::Raid10, NEAR_2, 4), true, 1);
    let error = change(&world, &control, wanted(Level::Raid5), false).unwrap_err().to_string();
    assert!(error.contains("does not change raid10 to raid5"), "{error}");
    world.stop(&control);
}

#[test]
fn a_bitmap_and_spares_leave_for_level_0() {
    for (from, layout, disks, stays) in
        [(Level::Raid10, NEAR_2, 4, 2), (Level::Raid5, 5, 4, 3), (Level::Raid6, 5, 5, 3)]
    {
        let world = World::new(2);
        let (all, array, control) = array_of(&world, (from, layout, disks), true, 1);
        let content = pattern(0, size(&array));
        world.add(&control, &all[disks]);
        let would = change(&world, &control, wanted(Level::Raid0), true).unwrap();
        assert!(would.leaving.contains(&format!("m{disks}")), "{from}: {would:?}");
        assert_eq!(would.leaving.len(), disks + 1 - stays, "{from}: {would:?}");
        assert!(world.status(&control).bitmap.is_some(), "{from}");
        let is = change(&world, &control, wanted(Level::Raid0), false).unwrap();
        assert_eq!(is, would, "{from}");
        let status = world.status(&control);
        assert_eq!((status.members.len(), status.bitmap), (stays, None), "{from}");
        assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content, "{from}");
        world.stop(&control);
        for member in &all {
            let stays = status.members.iter().any(|held| held.name == member.ram.name());
            let superblock = world.superblock(member);
            let holds = matches!(superblock.own_role(), Role::Slot(_));
            assert_eq!(holds, stays, "{from}: {superblock:?}");
            assert!(!stays || superblock.bitmap_sector().is_none(), "{from}");
        }
        let (array, control) = world.assemble(&all);
        assert_eq!(world.status(&control).level, Level::Raid0);
        assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content, "{from}");
        world.stop(&control);
    }
}

#[test]
fn level_0_is_refused_while_data_is_had_from_parity_alone() {
    let world = World::new(1);
    let (_all, _array, control) = array_of(&world, (Level::Raid5, 5, 4), false, 0);
    take_away(&world, &control, "m1");
    let error = change(&world, &control, wanted(Level::Raid0), false).unwrap_err().to_string();
    assert!(error.contains("cannot go on with the members that it has"), "{error}");
    world.stop(&control);
}
