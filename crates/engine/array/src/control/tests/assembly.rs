//! Which members make an array, and which do not.

use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::create::create;
use crate::error::{AssembleError, CreateError, ExamineError};
use crate::options::{AssembleOptions, CreateBitmap, CreateOptions, MemberSelector};
use crate::status::{ArrayState, MemberState};
use braid_device::{IoErrorKind, Opener};
use braid_format::superblock::{CLEAN, Role, Version, candidates};
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;

fn clean(level: Level, raid_disks: usize) -> CreateOptions {
    CreateOptions {
        chunk_size: (level != Level::Raid1).then_some(64 << 10),
        assume_clean: true,
        ..CreateOptions::new("data", level, raid_disks)
    }
}

fn some(members: &[Arc<TestMember>], which: &[usize]) -> Vec<Arc<TestMember>> {
    which.iter().map(|nr| Arc::clone(&members[*nr])).collect()
}

fn refused(world: &World, members: &[Arc<TestMember>]) -> AssembleError {
    match world.try_assemble(members, AssembleOptions::default()) {
        Err(error) => error,
        Ok(array) => panic!("{} was assembled", array.name()),
    }
}

fn fail(world: &World, control: &Rc<Control>, name: &str) {
    let (control, selector) = (Rc::clone(control), MemberSelector::Name(name.to_string()));
    world.run(async move { control.membership().fail(&selector).await }).unwrap();
}

#[test]
fn superblocks_of_all_minors_are_found_and_earlier_ones_are_removed() {
    let world = World::new(1);
    let members = members("m", 2, 4 * MIB);
    for version in [Version::V1_2, Version::V1_0, Version::V1_1, Version::V1_2] {
        let created = world.create(&members, CreateOptions { version, ..clean(Level::Raid1, 2) });
        let superblock = world.superblock(&members[0]);
        assert_eq!((superblock.version, superblock.set_uuid), (version, created.uuid));
        assert_eq!((superblock.events, superblock.resync_offset), (0, CLEAN));
        let contents = world.contents(&members[0]);
        let magic = 0xa92b_4efc_u32.to_le_bytes();
        let places = candidates(4 * MIB / 512);
        let with_magic = places.iter().filter(|(_, at)| {
            let at = *at as usize * 512;
            contents[at..at + 4] == magic
        });
        assert_eq!(with_magic.count(), 1);
    }
}

#[test]
fn members_of_two_arrays_are_told_apart() {
    let world = World::new(1);
    let (mine, theirs) = (members("m", 3, 4 * MIB), members("t", 3, 4 * MIB));
    let created = world.create(&mine, clean(Level::Raid5, 3));
    world.create(&theirs, CreateOptions { name: "other".into(), ..clean(Level::Raid5, 3) });
    let mixed = [some(&mine, &[0, 1, 2]), some(&theirs, &[1])].concat();
    let error = refused(&world, &mixed);
    let text = error.to_string();
    assert!(matches!(error, AssembleError::SeveralArrays { .. }));
    assert!(text.contains("m0, m1, m2") && text.contains("other") && text.contains("t1"), "{text}");

    let options = AssembleOptions { uuid: Some(created.uuid), ..AssembleOptions::default() };
    let array = world.try_assemble(&mixed, options).unwrap();
    assert_eq!((array.uuid(), array.name()), (created.uuid, "data"));
    let error = refused(&world, &mine);
    assert!(matches!(error, AssembleError::Running { .. }), "{error}");
}

#[test]
fn what_is_no_member_is_refused_by_name() {
    let world = World::new(1);
    let mine = members("m", 2, 4 * MIB);
    let blank = members("blank", 1, 4 * MIB);
    world.create(&mine, clean(Level::Raid1, 2));
    let error = refused(&world, &[some(&mine, &[0]), some(&blank, &[0])].concat());
    assert!(matches!(error, AssembleError::NoSuperblock { .. }), "{error}");
    assert!(error.to_string().contains("blank0"), "{error}");
    let error = refused(&world, &some(&mine, &[0, 0]));
    assert!(matches!(error, AssembleError::SameMember { .. }), "{error}");
    assert!(matches!(refused(&world, &[]), AssembleError::NoMember));

    let at = 8 * 512 + 40;
    let mut broken = world.contents(&mine[1])[4096..8192].to_vec();
    broken[at - 4096] ^= 1;
    world.scribble(&mine[1], 4096, &broken);
    let error = refused(&world, &mine);
    assert!(matches!(error, AssembleError::Examine(ExamineError::Superblock { .. })), "{error}");

    let copy = members("copy", 1, 4 * MIB);
    world.scribble(&copy[0], 0, &world.contents(&mine[0]));
    let error = refused(&world, &[some(&mine, &[0]), some(&copy, &[0])].concat());
    assert!(matches!(error, AssembleError::SameMember { .. }), "{error}");
}

#[test]
fn too_few_members_are_refused_with_the_slots_that_are_missing() {
    let world = World::new(1);
    let members = members("m", 4, 4 * MIB);
    world.create(&members, clean(Level::Raid5, 4));
    let error = refused(&world, &some(&members, &[3, 1]));
    assert!(matches!(error, AssembleError::NotEnough { have: 2, .. }), "{error}");
    assert!(error.to_string().contains("slots 0, 2"), "{error}");
    let options = AssembleOptions { start_degraded: false, ..AssembleOptions::default() };
    let error = world.try_assemble(&some(&members, &[3, 1, 0]), options).err().unwrap();
    assert!(matches!(error, AssembleError::Degraded { .. }), "{error}");
    let (_, control) = world.assemble(&some(&members, &[3, 1, 0]));
    assert_eq!(world.status(&control).state, [ArrayState::Clean, ArrayState::Degraded]);

    let zero = self::members("z", 2, 4 * MIB);
    world.create(&zero, clean(Level::Raid0, 2));
    let error = refused(&world, &some(&zero, &[1]));
    assert!(matches!(error, AssembleError::NotEnough { have: 1, .. }), "{error}");
}

#[test]
fn a_member_that_was_away_while_the_array_was_written_is_left_out() {
    let world = World::new(1);
    let members = members("m", 3, 4 * MIB);
    world.create(&members, clean(Level::Raid5, 3));
    let (array, control) = world.assemble(&some(&members, &[0, 1]));
    let bytes = pattern(0, 1 << 20);
    world.write(&array, 0, 0, &bytes).unwrap();
    world.stop(&control);

    let (array, control) = world.assemble(&members);
    let status = world.status(&control);
    assert_eq!((status.degraded, status.members.len()), (1, 2));
    assert!(status.left_out[0].starts_with("m2: "), "{:?}", status.left_out);
    assert_eq!(world.read(&array, 0, 0, bytes.len()).unwrap(), bytes);
    world.stop(&control);

    // The other two make no array with it that would bring the old bytes back.
    let error = refused(&world, &some(&members, &[0, 2]));
    assert!(matches!(error, AssembleError::NotEnough { .. }), "{error}");
}

#[test]
fn power_cuts_in_two_starts_running_leave_no_member_out() {
    const DISKS: usize = 4;
    for (first, second) in (0..=DISKS).flat_map(|a| (0..=2 * DISKS).map(move |b| (a, b))) {
        let mut world = World::new(1);
        let members = members("m", DISKS, 2 * MIB);
        world.create(&members, clean(Level::Raid5, DISKS));
        for writes in [first, second] {
            members[0].power.store(writes as u64, Ordering::Relaxed);
            drop(world.try_assemble(&members, AssembleOptions::default()));
            members[0].power.store(u64::MAX, Ordering::Relaxed);
            world = world.crash();
        }
        let (_, control) = world.assemble(&members);
        let status = world.status(&control);
        assert_eq!((status.degraded, status.left_out), (0, vec![]), "{first} and {second} writes");
        world.stop(&control);
    }
}

#[test]
fn a_member_that_failed_is_not_taken_back() {
    let world = World::new(1);
    let members = members("m", 3, 4 * MIB);
    world.create(&members, clean(Level::Raid1, 3));
    let (_, control) = world.assemble(&members);
    fail(&world, &control, "m1");
    // As after a crash right behind the update that recorded the failure.
    let world = World::new(1);
    let (_, control) = world.assemble(&members);
    let status = world.status(&control);
    assert_eq!(status.degraded, 1);
    assert!(status.left_out[0].contains("m1: it failed"), "{:?}", status.left_out);
}

#[test]
fn the_bitmap_says_which_blocks_a_start_by_force_leaves_in_doubt() {
    const CHUNK: u64 = 64 << 10;
    let members = members("m", 3, 4 * MIB);
    {
        let world = World::new(1);
        let bitmap = CreateBitmap::Internal { chunk: Some(CHUNK) };
        let options = CreateOptions { chunk_size: Some(CHUNK), bitmap, ..clean(Level::Raid5, 3) };
        world.create(&members, options);
        let (array, _) = world.assemble(&members);
        // A new bitmap has all its bits set.
        world.sleep(60_000_000_000);
        // The first chunk of the first stripe, on slot 0 and with its parity on slot 2, and the last of the second: slot 2.
        world.write(&array, 0, 4096, &pattern(0, 4096)).unwrap();
        world.write(&array, 0, 2 * CHUNK, &pattern(0, 4096)).unwrap();
    }
    let force = || AssembleOptions { force: true, ..AssembleOptions::default() };
    let doubt = |missing: usize| {
        let world = World::new(1);
        let there: Vec<usize> = (0..3).filter(|slot| *slot != missing).collect();
        let members = some(&members, &there);
        let AssembleError::DirtyDegraded { in_doubt, .. } = refused(&world, &members) else {
            panic!("it starts")
        };
        let options = AssembleOptions { read_only: true, ..force() };
        let array = world.try_assemble(&members, options).unwrap();
        let control = Control::find(&world.shards[0], array.id()).unwrap();
        let told = world.status(&control).in_doubt;
        assert_eq!(told.as_deref(), Some(&*in_doubt).filter(|doubt| !doubt.is_empty()));
        assert!(!in_doubt.anywhere);
        in_doubt.places.iter().map(|place| (place.array.start, place.array.end)).collect::<Vec<_>>()
    };
    assert_eq!(doubt(0), [(0, CHUNK), (3 * CHUNK, 4 * CHUNK)]);
    assert_eq!(doubt(1), [(CHUNK, 2 * CHUNK)]);
    assert_eq!(doubt(2), [(2 * CHUNK, 3 * CHUNK)]);
}

#[test]
fn dirty_and_degraded_parity_needs_force() {
    let members = members("m", 3, 4 * MIB);
    {
        let world = World::new(1);
        world.create(&members, clean(Level::Raid5, 3));
        let (array, _) = world.assemble(&members);
        world.write(&array, 0, 0, &pattern(0, 4096)).unwrap();
    }
    let world = World::new(1);
    let error = refused(&world, &some(&members, &[0, 1]));
    assert!(matches!(error, AssembleError::DirtyDegraded { .. }), "{error}");
    assert!(error.to_string().contains("write hole"), "{error}");
    let options = AssembleOptions { force: true, ..AssembleOptions::default() };
    let array = world.try_assemble(&some(&members, &[0, 1]), options).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    assert_eq!(world.status(&control).state, [ArrayState::Clean, ArrayState::Degraded]);
}

#[test]
fn a_read_only_assembly_writes_no_byte() {
    let members = members("m", 3, 4 * MIB);
    {
        let world = World::new(1);
        world.create(&members, CreateOptions { assume_clean: false, ..clean(Level::Raid5, 3) });
        let (array, _) = world.assemble(&members);
        world.write(&array, 0, 0, &pattern(0, 8192)).unwrap();
    }
    let world = World::new(1);
    let before: Vec<Vec<u8>> = members.iter().map(|member| world.contents(member)).collect();
    let options = AssembleOptions { read_only: true, ..AssembleOptions::default() };
    let array = world.try_assemble(&members, options).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    assert_eq!(world.read(&array, 0, 0, 8192).unwrap(), pattern(0, 8192));
    let error = world.write(&array, 0, 0, &pattern(1, 4096)).unwrap_err();
    assert_eq!(error.kind, IoErrorKind::Refused);
    world.sleep(2_000_000_000);
    assert!(world.status(&control).state.contains(&ArrayState::ReadOnly));
    world.stop(&control);
    for (member, before) in members.iter().zip(&before) {
        assert!(world.contents(member) == *before, "{} was written", member.name());
    }
}

#[test]
fn an_array_created_with_a_missing_member_takes_one_later() {
    let world = World::new(1);
    let members = members("m", 3, 4 * MIB);
    let openers = vec![
        Some(Arc::clone(&members[0]) as Arc<dyn Opener>),
        None,
        Some(Arc::clone(&members[1]) as Arc<dyn Opener>),
    ];
    let (ctx, options) = (world.ctx.clone(), CreateOptions::new("data", Level::Raid5, 3));
    let options = CreateOptions { chunk_size: Some(64 << 10), ..options };
    let created = world.run(async move { create(&ctx, openers, options).await }).unwrap();
    assert_eq!((created.missing.clone(), created.needs_resync), (vec![1], false));
    let (array, control) = world.assemble(&some(&members, &[0, 1]));
    let bytes = pattern(0, 512 << 10);
    world.write(&array, 0, 0, &bytes).unwrap();
    let opener = Arc::clone(&members[2]) as Arc<dyn Opener>;
    let adding = Rc::clone(&control);
    world.run(async move { adding.membership().add(opener, false).await }).unwrap();
    world.wait_idle(&control);
    let status = world.status(&control);
    assert_eq!(status.degraded, 0);
    assert!(status.members.iter().all(|member| member.state == MemberState::InSync));
    assert_eq!(world.superblock(&members[2]).own_role(), Role::Slot(1));
    fail(&world, &control, "m0");
    assert_eq!(world.read(&array, 0, 0, bytes.len()).unwrap(), bytes);
}

#[test]
fn a_level_6_array_created_without_one_member_gets_both_its_parities_right() {
    let world = World::new(1);
    let members = members("m", 5, 4 * MIB);
    for (nr, member) in members.iter().enumerate() {
        world.scribble(member, MIB, &pattern(nr as u64 * 7919, 3 << 20));
    }
    let mut openers: Vec<Option<Arc<dyn Opener>>> = Vec::new();
    for member in &members[..4] {
        openers.push(Some(Arc::clone(member) as Arc<dyn Opener>));
    }
    openers.insert(1, None);
    let (ctx, options) = (world.ctx.clone(), clean(Level::Raid6, 5));
    let options = CreateOptions { assume_clean: false, ..options };
    world.run(async move { create(&ctx, openers, options).await }).unwrap();
    let (array, control) = world.assemble(&members[..4]);
    world.wait_idle(&control);
    let bytes = pattern(0, 4096);
    let places: Vec<u64> = (0..16).map(|nr| nr * (68 << 10)).collect();
    for place in &places {
        world.write(&array, 0, *place, &bytes).unwrap();
    }
    let (adding, opener) = (Rc::clone(&control), Arc::clone(&members[4]) as Arc<dyn Opener>);
    world.run(async move { adding.membership().add(opener, false).await }).unwrap();
    world.wait_idle(&control);
    control.jobs().start_check().unwrap();
    world.wait_idle(&control);
    assert_eq!(world.status(&control).mismatch_cnt, 0);
    fail(&world, &control, "m0");
    fail(&world, &control, "m2");
    for place in &places {
        assert!(world.read(&array, 0, *place, bytes.len()).unwrap() == bytes, "at {place}");
    }
}

#[test]
fn create_refuses_what_cannot_be() {
    let world = World::new(1);
    let mine = members("m", 3, 4 * MIB);
    let try_create = |openers: Vec<Option<Arc<dyn Opener>>>, options: CreateOptions| {
        let ctx = world.ctx.clone();
        world.run(async move { create(&ctx, openers, options).await }).unwrap_err()
    };
    let all = |which: &[usize]| -> Vec<Option<Arc<dyn Opener>>> {
        which.iter().map(|nr| Some(Arc::clone(&mine[*nr]) as Arc<dyn Opener>)).collect()
    };
    let before: Vec<Vec<u8>> = mine.iter().map(|member| world.contents(member)).collect();

    let error = try_create(all(&[0, 1]), clean(Level::Raid5, 3));
    assert!(matches!(error, CreateError::MemberCount { given: 2, .. }), "{error}");
    let error = try_create(all(&[0, 1, 0]), clean(Level::Raid5, 3));
    assert!(matches!(error, CreateError::Twice { .. }), "{error}");
    let error = try_create(vec![None, None], clean(Level::Raid5, 2));
    assert!(matches!(error, CreateError::Placement { .. }), "{error}");
    let mut two_missing = all(&[0]);
    two_missing.extend([None, None]);
    let error = try_create(two_missing, clean(Level::Raid5, 3));
    assert!(matches!(error, CreateError::TooManyMissing { missing: 2, .. }), "{error}");
    let mut one_missing = all(&[0]);
    one_missing.push(None);
    let error = try_create(one_missing, clean(Level::Raid0, 2));
    assert!(matches!(error, CreateError::TooManyMissing { missing: 1, .. }), "{error}");
    let options = CreateOptions { spares: 1, ..clean(Level::Raid0, 2) };
    let error = try_create(all(&[0, 1, 2]), options);
    assert!(matches!(error, CreateError::UselessSpares { .. }), "{error}");
    let options = CreateOptions { chunk_size: Some(5000), ..clean(Level::Raid5, 3) };
    let error = try_create(all(&[0, 1, 2]), options);
    assert!(matches!(error, CreateError::Layout(_)), "{error}");
    let options = CreateOptions { size: Some(64 * MIB), ..clean(Level::Raid5, 3) };
    let error = try_create(all(&[0, 1, 2]), options);
    assert!(matches!(error, CreateError::Placement { .. }), "{error}");
    let options = CreateOptions { name: "n".repeat(33), ..clean(Level::Raid5, 3) };
    let error = try_create(all(&[0, 1, 2]), options);
    assert!(matches!(error, CreateError::Name(_)), "{error}");

    for (member, before) in mine.iter().zip(&before) {
        assert!(world.contents(member) == *before, "{} was written", member.name());
    }
}

#[test]
fn a_superblock_is_found_whatever_cannot_be_read_behind_it() {
    let world = World::new(1);
    let members = members("m", 2, 4 * MIB);
    let created = world.create(&members, clean(Level::Raid1, 2));
    let at = world.superblock(&members[0]).super_offset * 512;
    members[0].decayed.lock().unwrap().push(at + 512..at + 1024);
    assert_eq!(world.superblock(&members[0]).set_uuid, created.uuid);
    let (_, control) = world.assemble(&members);
    assert_eq!(world.status(&control).degraded, 0);
    world.stop(&control);

    members[0].decayed.lock().unwrap().push(at..at + 512);
    let error = refused(&world, &members);
    assert!(matches!(error, AssembleError::Examine(ExamineError::Read { .. })), "{error}");
}
