//! Running arrays of another component size, and what their users see of them.

use crate::array::Array;
use crate::control::Control;
use crate::control::resizing::{Resized, WantedSize};
use crate::control::tests::stacked::{Running, start};
use crate::control::tests::world::{World, members, pattern};
use crate::error::ControlError;
use crate::options::{CreateBitmap, CreateOptions, MemberSelector};
use crate::status::MemberState;
use braid_device::Target;
use braid_format::superblock::{Superblock, Version};
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
const CHUNK: u64 = 64 * KIB;
const LEVELS: [(Level, usize); 5] = [
    (Level::Raid1, 2),
    (Level::Raid4, 3),
    (Level::Raid5, 4),
    (Level::Raid6, 5),
    (Level::Raid10, 3),
];
const SMALL: u64 = 4 * MIB;

fn options(level: Level, disks: usize) -> CreateOptions {
    CreateOptions {
        chunk_size: (level != Level::Raid1).then_some(CHUNK),
        size: Some(SMALL),
        ..CreateOptions::new("data", level, disks)
    }
}

fn resize(
    world: &World,
    control: &Rc<Control>,
    wanted: WantedSize,
    dry_run: bool,
) -> Result<Resized, ControlError> {
    let control = Rc::clone(control);
    world.run(async move { control.set_component_size(wanted, dry_run).await })
}

fn show(world: &World, control: &Rc<Control>, bytes: WantedSize) -> Result<Resized, ControlError> {
    let control = Rc::clone(control);
    world.run(async move { control.set_array_size(bytes, false).await })
}

fn size(array: &Array) -> u64 {
    array.info().device.size
}

fn refusal(result: Result<Resized, ControlError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_larger_component_is_there_at_once_and_redundant_after_a_resync() {
    for (level, disks) in LEVELS {
        for version in [Version::V0_90, Version::V1_0, Version::V1_1, Version::V1_2] {
            for bitmap in [CreateBitmap::None, CreateBitmap::Internal { chunk: Some(CHUNK) }] {
                let world = World::new(2);
                let members = members("m", disks, 16 * MIB);
                let what = format!("{level} {version} {bitmap:?}");
                world.create(&members, CreateOptions { version, bitmap, ..options(level, disks) });
                // What is to become part of the array holds anything: no parity matches there.
                for (nr, member) in (0..).zip(&members) {
                    let data = world.superblock(member).data_offset * 512;
                    let noise = pattern(nr, 4 * MIB as usize);
                    world.scribble(member, data + SMALL, &noise);
                }
                let (array, control) = world.assemble(&members);
                world.wait_idle(&control);
                let before = size(&array);
                let old = pattern(1, before as usize);
                world.write(&array, 1, 0, &old).unwrap();
                let would = resize(&world, &control, WantedSize::Max, true).unwrap();
                assert_eq!(size(&array), before, "{what}");
                let resized = resize(&world, &control, WantedSize::Max, false).unwrap();
                assert_eq!(would, resized, "{what}");
                assert!(resized.component_size.1 > 12 * MIB, "{what}: {resized:?}");
                assert_eq!(size(&array), resized.array_size.1, "{what}");
                assert!(size(&array) > 2 * before, "{what}");
                let new = pattern(2, 100 * KIB as usize);
                let end = size(&array) - new.len() as u64;
                world.write(&array, 0, end, &new).unwrap();
                world.wait_idle(&control);
                let status = world.status(&control);
                assert_eq!((status.resynced, status.array_size), (None, size(&array)), "{what}");
                assert_eq!(status.bitmap.is_some(), bitmap != CreateBitmap::None, "{what}");
                assert_eq!(world.check(&control), 0, "{what}");
                world.stop(&control);
                drop((array, control));
                let (array, control) = world.assemble(&members);
                assert_eq!(size(&array), resized.array_size.1, "{what}");
                assert!(world.read(&array, 1, 0, old.len()).unwrap() == old, "{what}");
                assert!(world.read(&array, 1, end, new.len()).unwrap() == new, "{what}");
                assert_eq!(world.check(&control), 0, "{what}");
            }
        }
    }
}

#[test]
fn with_a_bitmap_only_what_is_new_is_resynced() {
    for (level, disks) in LEVELS {
        let world = World::new(1);
        let members = members("m", disks, 16 * MIB);
        let bitmap = CreateBitmap::Internal { chunk: Some(CHUNK) };
        world.create(&members, CreateOptions { bitmap, ..options(level, disks) });
        let (_array, control) = world.assemble(&members);
        world.wait_idle(&control);
        world.sleep(20 * SECOND);
        let written = |nr: usize| members[nr].read.load(Ordering::Relaxed);
        let before = written(0);
        resize(&world, &control, WantedSize::Bytes(SMALL + MIB), false).unwrap();
        world.wait_idle(&control);
        assert!(written(0) - before < 2 * MIB, "{level}: {}", written(0) - before);
    }
}

/// Grows an array of which the power goes after `writes` writes to members. True when it was done by then.
fn cut_short(level: Level, disks: usize, bitmap: CreateBitmap, writes: u64) -> bool {
    let world = World::new(1);
    let members = members("m", disks, 8 * MIB);
    world.create(&members, CreateOptions { bitmap, ..options(level, disks) });
    for (nr, member) in (0..).zip(&members) {
        let data = world.superblock(member).data_offset * 512;
        world.scribble(member, data + SMALL, &pattern(nr, MIB as usize));
    }
    let (array, control) = world.assemble(&members);
    world.wait_idle(&control);
    world.sleep(20 * SECOND);
    let before = size(&array);
    let old = pattern(1, before as usize);
    world.write(&array, 0, 0, &old).unwrap();
    let power = &members[0].power;
    power.store(writes, Ordering::Relaxed);
    resize(&world, &control, WantedSize::Max, false).unwrap();
    let end = size(&array) - 4 * KIB;
    world.write(&array, 0, end, &pattern(7, 4 * KIB as usize)).unwrap();
    let ended = power.load(Ordering::Relaxed) > 0;
    drop((array, control));
    let world = world.crash();
    power.store(u64::MAX, Ordering::Relaxed);
    let (array, control) = world.assemble(&members);
    assert!(world.read(&array, 0, 0, old.len()).unwrap() == old, "{level} after {writes}");
    assert!(size(&array) == before || size(&array) == end + 4 * KIB);
    assert_eq!(world.check(&control), 0, "{level}, {bitmap:?}, after {writes} writes");
    ended
}

#[test]
fn a_power_cut_at_any_write_of_a_resize_leaves_the_old_size_or_the_new_and_no_wrong_parity() {
    for (level, disks) in [(Level::Raid1, 2), (Level::Raid5, 3)] {
        for bitmap in [CreateBitmap::None, CreateBitmap::Internal { chunk: Some(CHUNK) }] {
            let ended = (0..).position(|writes| cut_short(level, disks, bitmap, writes));
            assert!(ended.is_some_and(|writes| writes > 4), "{ended:?}");
        }
    }
}

#[test]
fn a_component_becomes_smaller_only_where_users_see_none_of_it() {
    for (level, disks) in LEVELS {
        let world = World::new(1);
        let members = members("m", disks, 16 * MIB);
        let bitmap = CreateBitmap::Internal { chunk: Some(CHUNK) };
        world.create(
            &members,
            CreateOptions { size: Some(8 * MIB), bitmap, ..options(level, disks) },
        );
        let (array, control) = world.assemble(&members);
        world.wait_idle(&control);
        let before = size(&array);
        let wanted = WantedSize::Bytes(4 * MIB);
        let why = refusal(resize(&world, &control, wanted, false));
        assert!(why.contains("--array-size"), "{why}");
        let open = array.open(&world.shards[0]).unwrap();
        let why = refusal(show(&world, &control, WantedSize::Bytes(before / 2)));
        assert!(why.contains("open 1 times"), "{why}");
        assert_eq!(size(&array), before);
        drop(open);
        let why = refusal(show(&world, &control, WantedSize::Bytes(before + CHUNK)));
        assert!(why.contains(&before.to_string()), "{why}");
        show(&world, &control, WantedSize::Bytes(before / 2)).unwrap();
        assert_eq!(size(&array), before / 2);
        let data = pattern(3, before as usize / 2);
        world.write(&array, 0, 0, &data).unwrap();
        assert!(world.write(&array, 0, before / 2, &[1; 512]).is_err());
        resize(&world, &control, wanted, false).unwrap();
        assert_eq!(world.status(&control).component_size, 4 * MIB);
        assert_eq!((size(&array), world.check(&control)), (before / 2, 0), "{level}");
        // Users see what they were shown until they are shown all again.
        resize(&world, &control, WantedSize::Bytes(8 * MIB), false).unwrap();
        assert_eq!(size(&array), before / 2);
        show(&world, &control, WantedSize::Max).unwrap();
        assert_eq!(size(&array), before);
        world.wait_idle(&control);
        assert_eq!(world.check(&control), 0, "{level}");
        assert!(world.read(&array, 0, 0, data.len()).unwrap() == data);
    }
}

#[test]
fn a_size_that_cannot_be_is_refused_with_the_reason() {
    let world = World::new(1);
    let some = members("m", 3, 16 * MIB);
    let spare = members("spare", 1, 12 * MIB);
    let all: Vec<_> = some.iter().chain(&spare).cloned().collect();
    world.create(&all, CreateOptions { spares: 1, ..options(Level::Raid5, 3) });
    let (_array, control) = world.assemble(&all);
    world.wait_idle(&control);
    let why = refusal(resize(&world, &control, WantedSize::Bytes(64 * MIB), false));
    assert!(why.contains("do not fit spare0"), "{why}");
    control.jobs().pause_jobs(true);
    control.jobs().start_check().unwrap();
    let why = refusal(resize(&world, &control, WantedSize::Max, false));
    assert!(why.contains("a check is running"), "{why}");
    control.jobs().pause_jobs(false);
    world.wait_idle(&control);
    let resized = resize(&world, &control, WantedSize::Max, false).unwrap();
    assert!(resized.component_size.1 < 12 * MIB, "{resized:?}");
    world.wait_idle(&control);
    let same = resize(&world, &control, WantedSize::Max, false).unwrap();
    assert_eq!(same.component_size.0, same.component_size.1);

    let far = members("far", 3, 16 * MIB);
    let layout = Some(0x201);
    world.create(&far, CreateOptions { layout, ..options(Level::Raid10, 3) });
    let (_array, control) = world.assemble(&far);
    world.wait_idle(&control);
    let why = refusal(resize(&world, &control, WantedSize::Max, false));
    assert!(why.contains("far copies"), "{why}");
    let plain = members("plain", 2, 16 * MIB);
    world.create(&plain, CreateOptions { size: None, ..options(Level::Raid0, 2) });
    let (_array, control) = world.assemble(&plain);
    let why = refusal(resize(&world, &control, WantedSize::Max, false));
    assert!(why.contains("raid0 uses all of its members"), "{why}");
}

#[test]
fn a_degraded_array_grows_and_is_filled_up_to_its_new_end() {
    for (level, disks) in LEVELS {
        let world = World::new(1);
        let some = members("m", disks + 1, 16 * MIB);
        world.create(&some[..disks], options(level, disks));
        let (array, control) = world.assemble(&some[..disks]);
        world.wait_idle(&control);
        let selector = MemberSelector::Name("m0".to_string());
        let membership = Rc::clone(control.membership());
        world.run(async move { membership.fail(&selector).await }).unwrap();
        resize(&world, &control, WantedSize::Max, false).unwrap();
        let data = pattern(5, size(&array) as usize);
        world.write(&array, 0, 0, &data).unwrap();
        let (membership, spare) = (Rc::clone(control.membership()), Arc::clone(&some[disks]));
        world.run(async move { membership.add(spare, false).await }).unwrap();
        world.wait_idle(&control);
        let status = world.status(&control);
        assert_eq!(status.degraded, 0, "{level}");
        assert!(status.members.iter().any(|member| member.state == MemberState::InSync));
        assert_eq!(world.check(&control), 0, "{level}");
        assert!(world.read(&array, 0, 0, data.len()).unwrap() == data, "{level}");
    }
}

#[test]
fn a_spare_that_was_away_while_an_array_grew_is_left_out_and_added_again() {
    let world = World::new(1);
    let some = members("m", 3, 16 * MIB);
    world.create(&some, CreateOptions { spares: 1, ..options(Level::Raid1, 2) });
    let (_array, control) = world.assemble(&some[..2]);
    world.wait_idle(&control);
    resize(&world, &control, WantedSize::Max, false).unwrap();
    world.wait_idle(&control);
    world.stop(&control);
    // Its device was as small as that, and has become larger with the others.
    let small = Superblock { data_size: SMALL / 512, ..world.superblock(&some[2]) };
    world.scribble(&some[2], small.super_offset * 512, &small.to_bytes());
    let (_array, control) = world.assemble(&some);
    let left_out = world.status(&control).left_out;
    assert!(left_out.len() == 1 && left_out[0].contains("m2: "), "{left_out:?}");
    let (membership, spare) = (Rc::clone(control.membership()), Arc::clone(&some[2]));
    world.run(async move { membership.add(spare, false).await }).unwrap();
    world.stop(&control);
    let (_array, control) = world.assemble(&some);
    assert!(world.status(&control).left_out.is_empty());
}

#[test]
fn an_array_above_uses_what_an_array_below_has_gained() {
    let world = World::new(2);
    let lower: Vec<Running> = (0..3)
        .map(|nr| {
            let leaves = members(&format!("m{nr}."), 2, 16 * MIB);
            let name = format!("m{nr}");
            world.create(&leaves, CreateOptions { name, ..options(Level::Raid1, 2) });
            let (array, control) = world.assemble(&leaves);
            world.wait_idle(&control);
            Running { array, control }
        })
        .collect();
    let openers = || lower.iter().map(Running::member).collect();
    world.create_of(openers(), CreateOptions { size: None, ..options(Level::Raid5, 3) });
    let top = start(&world, openers());
    world.wait_idle(&top.control);
    let data = pattern(6, size(&top.array) as usize);
    world.write(&top.array, 0, 0, &data).unwrap();
    let why = refusal(resize(&world, &top.control, WantedSize::Bytes(8 * MIB), false));
    assert!(why.contains("do not fit array:m0"), "{why}");
    for lower in &lower {
        resize(&world, &lower.control, WantedSize::Max, false).unwrap();
    }
    let resized = resize(&world, &top.control, WantedSize::Max, false).unwrap();
    assert!(resized.component_size.1 > 8 * MIB, "{resized:?}");
    let end = size(&top.array) - 8 * KIB;
    world.write(&top.array, 1, end, &pattern(8, 8 * KIB as usize)).unwrap();
    world.wait_idle(&top.control);
    assert_eq!(world.check(&top.control), 0);
    assert!(world.read(&top.array, 0, 0, data.len()).unwrap() == data);
    assert!(world.read(&top.array, 0, end, 8 << 10).unwrap() == pattern(8, 8 << 10));
}
