//! Running arrays that are given more members.

use crate::array::Array;
use crate::control::Control;
use crate::control::reshaping::{Reshaped, WantedShape};
use crate::control::resizing::WantedSize;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::error::{AssembleError, ControlError};
use crate::options::{AssembleOptions, CreateBitmap, CreateOptions, MemberSelector, SyncSpeed};
use crate::status::JobKind;
use braid_device::Target;
use braid_format::superblock::Version;
use braid_layout::Level;
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const CHUNK: u64 = 4 * KIB;
const COMPONENT: u64 = 96 * CHUNK;
const LEVELS: [(Level, usize, u32); 5] = [
    (Level::Raid4, 3, 0),
    (Level::Raid5, 3, 2),
    (Level::Raid5, 4, 0),
    (Level::Raid6, 4, 2),
    (Level::Raid6, 5, 8),
];

fn options(level: Level, disks: usize, spares: usize) -> CreateOptions {
    CreateOptions {
        chunk_size: Some(CHUNK),
        size: Some(COMPONENT),
        data_offset: Some(64 * KIB),
        spares,
        ..CreateOptions::new("data", level, disks)
    }
}

/// A running array that is full of a pattern, with spares.
fn array_of(
    world: &World,
    options: CreateOptions,
) -> (Vec<Arc<TestMember>>, Arc<Array>, Rc<Control>) {
    let bytes = if options.ppl { 8 * MIB } else { 2 * MIB };
    let members = members("m", options.raid_disks + options.spares, bytes);
    world.create(&members, options);
    let (array, control) = world.assemble(&members);
    world.wait_idle(&control);
    let bytes = pattern(0, size(&array) as usize);
    world.write(&array, 0, 0, &bytes).unwrap();
    (members, array, control)
}

fn size(array: &Array) -> u64 {
    array.info().device.size
}

fn grow(
    world: &World,
    control: &Rc<Control>,
    disks: usize,
    dry_run: bool,
) -> Result<Reshaped, ControlError> {
    reshape(world, control, slots(disks), dry_run)
}

fn slots(disks: usize) -> WantedShape {
    WantedShape { raid_disks: Some(disks), ..WantedShape::default() }
}

fn reshape(
    world: &World,
    control: &Rc<Control>,
    wanted: WantedShape,
    dry_run: bool,
) -> Result<Reshaped, ControlError> {
    let control = Rc::clone(control);
    world.run(async move { control.reshape(wanted, dry_run).await })
}

/// The speed at which a reshape moves one window in a second.
fn crawl(control: &Rc<Control>, slow: bool) {
    let kib = if slow { 32 } else { u64::MAX };
    control.jobs().set_sync_speed(0, kib).unwrap();
}

#[test]
fn spares_get_slots_and_the_data_is_there_all_the_time() {
    for (level, disks, layout) in LEVELS {
        for (shards, more) in [(1, 1), (3, 1), (2, 2)] {
            for bitmap in [CreateBitmap::None, CreateBitmap::Internal { chunk: Some(16 * KIB) }] {
                let world = World::new(shards);
                let layout = (level != Level::Raid4).then_some(layout);
                let create = options(level, disks, more);
                let (members, array, control) =
                    array_of(&world, CreateOptions { layout, bitmap, ..create });
                let what = format!("{level} {layout:?} {disks}+{more} {bitmap:?} {shards}");
                let before = size(&array);
                let would = grow(&world, &control, disks + more, true).unwrap();
                assert_eq!(would.array_size.0, before, "{what}");
                assert_eq!(world.status(&control).raid_disks, disks);
                crawl(&control, true);
                let begun = grow(&world, &control, disks + more, false).unwrap();
                assert_eq!(begun, would, "{what}");
                let mut bytes = pattern(0, before as usize);
                for (nr, at) in [(1, 0), (2, before / 2 - 700 * 4), (3, before - 8 * KIB)] {
                    let at = at / 512 * 512;
                    let new = pattern(nr << 32, 6 * KIB as usize);
                    world.write(&array, (nr % u64::from(shards)) as usize, at, &new).unwrap();
                    bytes[at as usize..at as usize + new.len()].copy_from_slice(&new);
                    world.sleep(1_500_000_000);
                    assert!(world.read(&array, 0, 0, before as usize).unwrap() == bytes, "{what}");
                }
                let status = world.status(&control);
                assert_eq!(status.job.map(|job| job.kind), Some(JobKind::Reshape), "{what}");
                assert_eq!(size(&array), before, "{what}");
                crawl(&control, false);
                world.wait_idle(&control);
                assert_eq!(size(&array), begun.array_size.1, "{what}");
                let status = world.status(&control);
                assert_eq!((status.raid_disks, status.degraded), (disks + more, 0), "{what}");
                assert_eq!((status.reshape, status.resynced), (None, None), "{what}");
                assert!(world.read(&array, 0, 0, before as usize).unwrap() == bytes, "{what}");
                let end = size(&array) - 4 * KIB;
                assert!(world.read(&array, 0, end, 4 << 10).unwrap() == [0; 4096], "{what}");
                assert_eq!(world.check(&control), 0, "{what}");
                world.stop(&control);
                drop((array, control));
                for member in &members {
                    let superblock = world.superblock(member);
                    assert_eq!(superblock.reshape, None, "{what}");
                    assert_eq!(superblock.data_offset * 512, 64 * KIB - begun.data_moves_by);
                }
                let (array, control) = world.assemble(&members);
                assert!(world.read(&array, 0, 0, before as usize).unwrap() == bytes, "{what}");
                assert_eq!(world.check(&control), 0, "{what}");
            }
        }
    }
}

#[test]
fn a_reshape_goes_on_where_a_stop_or_a_crash_has_left_it() {
    for (level, disks, _) in LEVELS {
        for crashes in [false, true] {
            let world = World::new(2);
            let (members, array, control) = array_of(&world, options(level, disks, 1));
            let before = size(&array);
            crawl(&control, true);
            grow(&world, &control, disks + 1, false).unwrap();
            world.sleep(2_500_000_000);
            let mut bytes = pattern(0, before as usize);
            // Below the border, and above it.
            for (nr, at) in [(1, 512), (2, before - 4 * KIB)] {
                let new = pattern(nr << 32, 2048);
                world.write(&array, 0, at, &new).unwrap();
                bytes[at as usize..at as usize + 2048].copy_from_slice(&new);
            }
            if !crashes {
                world.stop(&control);
            }
            drop((array, control));
            let world = world.crash();
            let position = world.superblock(&members[0]).reshape.unwrap().position;
            assert!(position > 0 && position * 512 < before, "{level}: {position}");
            let options = AssembleOptions {
                sync_speed: SyncSpeed { min_kib: 0, max_kib: 32 },
                ..AssembleOptions::default()
            };
            let array = world.try_assemble(&members, options).unwrap();
            let control = Control::find(&world.shards[0], array.id()).unwrap();
            assert_eq!(size(&array), before, "{level}");
            assert!(world.read(&array, 0, 0, before as usize).unwrap() == bytes, "{level}");
            crawl(&control, false);
            world.wait_idle(&control);
            assert!(size(&array) > before, "{level}");
            assert!(world.read(&array, 0, 0, before as usize).unwrap() == bytes, "{level}");
            assert_eq!(world.check(&control), 0, "{level}");
        }
    }
}

/// Reshapes an array of which the power goes after `writes` writes to members. True when it was done by then.
fn cut_short(level: Level, disks: usize, bitmap: CreateBitmap, writes: u64) -> bool {
    let world = World::new(1);
    let create = CreateOptions { size: Some(24 * CHUNK), bitmap, ..options(level, disks, 2) };
    let (members, array, control) = array_of(&world, create);
    world.sleep(20_000_000_000);
    let before = size(&array);
    let bytes = pattern(0, before as usize);
    let power = &members[0].power;
    power.store(writes, Ordering::Relaxed);
    let _ = grow(&world, &control, disks + 2, false);
    world.wait_idle(&control);
    let ended = power.load(Ordering::Relaxed) > 0;
    drop((array, control));
    let world = world.crash();
    power.store(u64::MAX, Ordering::Relaxed);
    let (array, control) = world.assemble(&members);
    let what = format!("{level} {bitmap:?} after {writes} writes");
    assert!(world.read(&array, 0, 0, before as usize).unwrap() == bytes, "{what}");
    world.wait_idle(&control);
    assert!(world.read(&array, 0, 0, before as usize).unwrap() == bytes, "{what}");
    let status = world.status(&control);
    assert_eq!((status.reshape, status.resynced), (None, None), "{what}");
    assert_eq!(size(&array) > before, status.raid_disks > disks, "{what}");
    assert_eq!(world.check(&control), 0, "{what}");
    ended
}

#[test]
fn a_power_cut_at_any_write_of_a_reshape_loses_nothing() {
    for (level, disks, _) in [LEVELS[1], LEVELS[3]] {
        for bitmap in [CreateBitmap::None, CreateBitmap::Internal { chunk: Some(16 * KIB) }] {
            let ended = (0..).position(|writes| cut_short(level, disks, bitmap, writes));
            assert!(ended.is_some_and(|writes| writes > 20), "{ended:?}");
        }
    }
}

#[test]
fn a_member_that_fails_meanwhile_is_done_without_and_rebuilt_afterwards() {
    for (level, disks, _) in LEVELS {
        for lost in [0, disks - 1, disks] {
            let world = World::new(2);
            let (_members, array, control) = array_of(&world, options(level, disks, 2));
            let before = size(&array);
            crawl(&control, true);
            grow(&world, &control, disks + 1, false).unwrap();
            world.sleep(1_500_000_000);
            let selector = MemberSelector::Name(format!("m{lost}"));
            let membership = Rc::clone(control.membership());
            world.run(async move { membership.fail(&selector).await }).unwrap();
            let mut bytes = pattern(0, before as usize);
            let new = pattern(9 << 32, 10 << 10);
            for at in [0, before / 2 / 4096 * 4096, before - (10 << 10)] {
                world.write(&array, 1, at, &new).unwrap();
                bytes[at as usize..at as usize + new.len()].copy_from_slice(&new);
            }
            let what = format!("{level} without m{lost}");
            assert!(world.read(&array, 0, 0, before as usize).unwrap() == bytes, "{what}");
            crawl(&control, false);
            world.wait_idle(&control);
            let status = world.status(&control);
            assert_eq!((status.reshape, status.degraded), (None, 0), "{what}");
            assert_eq!(status.raid_disks, disks + 1, "{what}");
            assert!(world.read(&array, 0, 0, before as usize).unwrap() == bytes, "{what}");
            assert_eq!(world.check(&control), 0, "{what}");
        }
    }
}

#[test]
fn a_reshape_that_cannot_be_is_refused_with_the_reason() {
    let world = World::new(1);
    let refusal =
        |control: &Rc<Control>, disks| grow(&world, control, disks, false).unwrap_err().to_string();
    let (_members, _array, control) = array_of(&world, options(Level::Raid5, 3, 1));
    assert!(refusal(&control, 5).contains("2 spares are needed"));
    assert!(refusal(&control, 3).contains("that shape already"));
    control.jobs().pause_jobs(true);
    control.jobs().start_check().unwrap();
    assert!(refusal(&control, 4).contains("a check is running"));
    control.jobs().pause_jobs(false);
    world.wait_idle(&control);
    crawl(&control, true);
    grow(&world, &control, 4, false).unwrap();
    assert!(refusal(&control, 5).contains("a reshape is not done yet"));
    assert!(control.jobs().start_check().is_err());
    let why = world.run({
        let control = Rc::clone(&control);
        async move { control.bitmap().add(None).await.unwrap_err().to_string() }
    });
    assert!(why.contains("a reshape is not done yet"), "{why}");

    let narrow = CreateOptions { data_offset: Some(16 * KIB), ..options(Level::Raid5, 3, 1) };
    let narrow = CreateOptions { chunk_size: Some(16 * KIB), ..narrow };
    let (_members, _array, control) = array_of(&world, narrow);
    assert!(refusal(&control, 4).contains("backup file"));
    let create =
        CreateOptions { version: Version::V1_0, data_offset: None, ..options(Level::Raid5, 3, 1) };
    let (_members, _array, control) = array_of(&world, create);
    assert!(refusal(&control, 4).contains("metadata 1.0"));
    let create = CreateOptions { chunk_size: None, ..options(Level::Raid1, 2, 1) };
    let (_members, _array, control) = array_of(&world, create);
    assert!(refusal(&control, 3).contains("gives level 1 more copies"));
}

#[test]
fn a_partial_parity_log_and_a_reshape_keep_each_other_out() {
    let world = World::new(1);
    let create = CreateOptions { ppl: true, data_offset: None, ..options(Level::Raid5, 3, 1) };
    let create = CreateOptions { bitmap: CreateBitmap::None, bad_block_log: false, ..create };
    let (members, _array, control) = array_of(&world, create);
    let before = world.superblock(&members[0]);
    for dry_run in [true, false] {
        let why = grow(&world, &control, 4, dry_run).unwrap_err().to_string();
        assert!(why.contains("--consistency-policy resync"), "{why}");
    }
    assert_eq!(world.superblock(&members[0]).reshape, None);
    assert_eq!(world.superblock(&members[0]).events, before.events);
    let ppl = |add: bool| {
        let control = Rc::clone(&control);
        world.run(async move {
            match add {
                true => control.ppl().add().await,
                false => control.ppl().remove().await,
            }
        })
    };
    ppl(false).unwrap();
    crawl(&control, true);
    grow(&world, &control, 4, false).unwrap();
    let why = ppl(true).unwrap_err().to_string();
    assert!(why.contains("a reshape is not done yet"), "{why}");
    crawl(&control, false);
    world.wait_idle(&control);
    ppl(true).unwrap();
    world.stop(&control);
    let (array, control) = world.assemble(&members);
    let bytes = pattern(0, 1 << 16);
    assert!(world.read(&array, 0, 0, bytes.len()).unwrap() == bytes);
    assert_eq!(world.check(&control), 0);
}

#[test]
fn a_replacement_and_a_reshape_keep_each_other_out() {
    let world = World::new(1);
    let (_members, _array, control) = array_of(&world, options(Level::Raid5, 3, 2));
    crawl(&control, true);
    let m1 = MemberSelector::Name("m1".to_string());
    let (asked, old) = (Rc::clone(&control), m1.clone());
    world.run(async move { asked.membership().replace(&old, None).await.unwrap() });
    for dry_run in [true, false] {
        let why = grow(&world, &control, 4, dry_run).unwrap_err().to_string();
        assert!(why.contains("the replacement of m1 is not done yet"), "{why}");
    }
    crawl(&control, false);
    world.wait_idle(&control);
    crawl(&control, true);
    grow(&world, &control, 4, false).unwrap();
    let m2 = MemberSelector::Name("m2".to_string());
    let why = control.membership().check_replace(&m2, None).unwrap_err().to_string();
    assert!(why.contains("a reshape is not done yet"), "{why}");
    crawl(&control, false);
    world.wait_idle(&control);
    control.membership().check_replace(&m2, None).unwrap();
    assert_eq!(world.check(&control), 0);
}

#[test]
fn of_two_commands_at_once_one_begins_a_reshape_and_the_other_is_refused() {
    let world = World::new(2);
    let (_members, _array, control) = array_of(&world, options(Level::Raid5, 3, 2));
    crawl(&control, true);
    let first: Rc<OnceCell<Result<Reshaped, ControlError>>> = Rc::default();
    let (begun, meanwhile) = (Rc::clone(&first), Rc::clone(&control));
    world.shards[0].spawn(async move {
        let _ = begun.set(meanwhile.reshape(slots(4), false).await);
    });
    let why = grow(&world, &control, 5, false).unwrap_err().to_string();
    assert!(why.contains("a reshape is not done yet"), "{why}");
    assert!(matches!(first.get(), Some(Ok(planned)) if planned.raid_disks == (3, 4)));
    let why =
        world.run({
            let control = Rc::clone(&control);
            async move {
                control.set_component_size(WantedSize::Max, false).await.unwrap_err().to_string()
            }
        });
    assert!(why.contains("a reshape is not done yet"), "{why}");
    assert_eq!(world.status(&control).raid_disks, 4);
}

#[test]
fn no_stale_member_is_taken_by_force_in_the_middle_of_a_reshape() {
    let world = World::new(1);
    let (members, array, control) = array_of(&world, options(Level::Raid5, 3, 1));
    crawl(&control, true);
    grow(&world, &control, 4, false).unwrap();
    world.sleep(1_500_000_000);
    let selector = MemberSelector::Name("m1".to_string());
    let membership = Rc::clone(control.membership());
    world.run(async move { membership.fail(&selector).await }).unwrap();
    world.sleep(3_000_000_000);
    world.stop(&control);
    drop((array, control));
    let left: Vec<_> = [1, 2, 3].map(|nr| Arc::clone(&members[nr])).into();
    let forced = AssembleOptions {
        force: true,
        take_stale: true,
        start_degraded: true,
        ..AssembleOptions::default()
    };
    let error = world.try_assemble(&left, forced).err().unwrap();
    let AssembleError::NotEnough { by_force, .. } = &error else { panic!("{error}") };
    assert!(by_force.is_empty(), "{error}");
}
