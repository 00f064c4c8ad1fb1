//! Changes to a running array, and their trace in its superblocks.

use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::error::ControlError;
use crate::options::{AssembleOptions, CreateOptions, MemberSelector, SyncSpeed};
use crate::status::{ArrayState, JobKind, JobOutcome, MemberState};
use braid_device::{IoErrorKind, Opener, Target};
use braid_format::superblock::{CLEAN, Role};
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;

fn options(level: Level, raid_disks: usize, spares: usize) -> CreateOptions {
    CreateOptions {
        chunk_size: (level != Level::Raid1).then_some(64 << 10),
        spares,
        ..CreateOptions::new("data", level, raid_disks)
    }
}

fn named(name: &str) -> MemberSelector {
    MemberSelector::Name(name.to_string())
}

fn fail(world: &World, control: &Rc<Control>, name: &str) -> Result<(), ControlError> {
    let (control, selector) = (Rc::clone(control), named(name));
    world.run(async move { control.membership().fail(&selector).await })
}

fn remove(world: &World, control: &Rc<Control>, name: &str) -> Result<(), ControlError> {
    let (control, selector) = (Rc::clone(control), named(name));
    world.run(async move { control.membership().remove(&selector).await })
}

fn add(
    world: &World,
    control: &Rc<Control>,
    member: &Arc<TestMember>,
) -> Result<u32, ControlError> {
    let (control, opener) = (Rc::clone(control), Arc::clone(member) as Arc<dyn Opener>);
    world.run(async move { control.membership().add(opener, false).await }).map(|added| added.nr)
}

#[test]
fn every_level_runs_resyncs_and_stops_clean() {
    for (level, disks) in [
        (Level::Linear, 2),
        (Level::Raid0, 3),
        (Level::Raid1, 2),
        (Level::Raid4, 3),
        (Level::Raid5, 4),
        (Level::Raid6, 5),
        (Level::Raid10, 4),
    ] {
        let world = World::new(1);
        let members = members("m", disks, 6 * MIB);
        let created = world.create(&members, options(level, disks, 0));
        assert_eq!(created.needs_resync, level.has_redundancy(), "{level}");
        let (array, control) = world.assemble(&members);
        assert_eq!(Some(array.info().device.size), created.array_size, "{level}");
        let bytes = pattern(0, 300 << 10);
        world.write(&array, 0, 4096, &bytes).unwrap();
        world.wait_idle(&control);
        assert_eq!(world.read(&array, 0, 4096, bytes.len()).unwrap(), bytes, "{level}");
        let status = world.status(&control);
        assert_eq!((status.degraded, status.job.clone()), (0, None), "{level}");
        if level.has_redundancy() {
            let last = status.last_job.unwrap();
            assert_eq!((last.kind, last.outcome), (JobKind::Resync, JobOutcome::Done), "{level}");
            control.jobs().start_check().unwrap();
            world.wait_idle(&control);
            assert_eq!(world.status(&control).mismatch_cnt, 0, "{level}");
        }
        world.stop(&control);
        assert!(array.open(&world.shards[0]).is_err(), "{level}");
        for member in &members {
            assert_eq!(world.superblock(member).resync_offset, CLEAN, "{level}");
        }
    }
}

#[test]
fn the_first_write_makes_the_array_active_and_idleness_makes_it_clean() {
    let world = World::new(1);
    let members = members("m", 3, 4 * MIB);
    world.create(&members, CreateOptions { assume_clean: true, ..options(Level::Raid5, 3, 0) });
    let (array, control) = world.assemble(&members);
    assert_eq!(world.superblock(&members[0]).resync_offset, CLEAN);
    let before = world.status(&control).events;

    world.write(&array, 0, 0, &pattern(0, 4096)).unwrap();
    assert_eq!(world.superblock(&members[2]).resync_offset, 0);
    assert_eq!(world.status(&control).state, [ArrayState::Active]);

    world.sleep(1_000_000_000);
    assert_eq!(world.superblock(&members[2]).resync_offset, CLEAN);
    let status = world.status(&control);
    assert_eq!(status.state, [ArrayState::Clean]);
    assert_eq!(status.events, before + 2);
}

#[test]
fn a_failed_member_is_rebuilt_onto_the_spare_and_no_byte_changes() {
    for (level, disks, shards) in [
        (Level::Raid1, 2, 1),
        (Level::Raid5, 3, 1),
        (Level::Raid5, 4, 2),
        (Level::Raid6, 5, 3),
        (Level::Raid10, 4, 2),
        (Level::Raid10, 3, 1),
    ] {
        let world = World::new(shards);
        let members = members("m", disks + 1, 8 * MIB);
        world.create(&members, options(level, disks, 1));
        let (array, control) = world.assemble(&members);
        let last_shard = usize::from(shards) - 1;
        let bytes = pattern(0, 3 << 20);
        world.write(&array, last_shard, 0, &bytes).unwrap();
        world.wait_idle(&control);

        fail(&world, &control, "m0").unwrap();
        let roles = &world.superblock(&members[1]).roles;
        assert_eq!(roles[0], Role::Faulty, "{level}");
        world.wait_idle(&control);
        let status = world.status(&control);
        assert_eq!((status.degraded, status.last_job.unwrap().outcome), (0, JobOutcome::Done));
        assert_eq!(status.slots[0], Some(disks as u32), "{level}");
        let spare = world.superblock(&members[disks]);
        assert_eq!((spare.own_role(), spare.recovery_offset), (Role::Slot(0), None));

        // Now the data on the spare is needed.
        fail(&world, &control, "m1").unwrap();
        assert_eq!(world.read(&array, 0, 0, bytes.len()).unwrap(), bytes, "{level}");
        world.stop(&control);
    }
}

#[test]
fn a_member_that_dies_under_a_write_is_recorded_before_the_write_is_acknowledged() {
    // Found by the update that makes the array active, and by the write itself.
    for active_before in [false, true] {
        let world = World::new(2);
        let members = members("m", 3, 4 * MIB);
        let clean = CreateOptions { assume_clean: true, ..options(Level::Raid5, 3, 0) };
        world.create(&members, clean);
        let (array, control) = world.assemble(&members);
        if active_before {
            world.write(&array, 0, 0, &pattern(1, 4096)).unwrap();
        }
        members[1].dead.store(true, Ordering::Relaxed);
        let bytes = pattern(7, 128 << 10);
        world.write(&array, 1, 0, &bytes).unwrap();
        for survivor in [0, 2] {
            let superblock = world.superblock(&members[survivor]);
            assert_eq!(superblock.roles[1], Role::Faulty, "{active_before}");
        }
        let status = world.status(&control);
        assert_eq!((status.members[1].state, status.degraded), (MemberState::Faulty, 1));
        assert_eq!(world.read(&array, 0, 0, bytes.len()).unwrap(), bytes);
    }
}

#[test]
fn the_last_redundancy_is_not_failed_and_writes_are_refused_when_it_is_gone() {
    let world = World::new(1);
    let members = members("m", 3, 4 * MIB);
    world.create(&members, CreateOptions { assume_clean: true, ..options(Level::Raid5, 3, 0) });
    let (array, control) = world.assemble(&members);
    fail(&world, &control, "m0").unwrap();
    let refused = fail(&world, &control, "m1").unwrap_err();
    assert!(matches!(refused, ControlError::LastRedundancy { .. }), "{refused}");

    members[1].dead.store(true, Ordering::Relaxed);
    let error = world.write(&array, 0, 0, &pattern(0, 128 << 10)).unwrap_err();
    assert!(matches!(error.kind, IoErrorKind::Lost | IoErrorKind::Gone), "{error}");
    assert!(world.status(&control).state.contains(&ArrayState::Failed));
    let superblock = world.superblock(&members[2]);
    assert_eq!(superblock.roles[1], Role::Slot(1), "the data may be there, for --force");
    world.stop(&control);
}

#[test]
fn a_stop_without_warning_is_followed_by_a_resync_from_the_start() {
    let members = members("m", 3, 4 * MIB);
    let bytes = pattern(3, 256 << 10);
    {
        let world = World::new(1);
        world.create(&members, CreateOptions { assume_clean: true, ..options(Level::Raid5, 3, 0) });
        let (array, _) = world.assemble(&members);
        world.write(&array, 0, 0, &bytes).unwrap();
    }
    let world = World::new(1);
    // Parity that a torn write left behind.
    let data_offset = world.superblock(&members[2]).data_offset * 512;
    world.scribble(&members[2], data_offset, &pattern(99, 4096));
    let (array, control) = world.assemble(&members);
    world.wait_idle(&control);
    let last = world.status(&control).last_job.unwrap();
    assert_eq!((last.kind, last.outcome), (JobKind::Resync, JobOutcome::Done));
    assert_eq!(last.mismatches, 8);
    control.jobs().start_check().unwrap();
    world.wait_idle(&control);
    assert_eq!(world.status(&control).mismatch_cnt, 0);
    assert_eq!(world.read(&array, 0, 0, bytes.len()).unwrap(), bytes);
}

#[test]
fn a_level_6_array_that_loses_a_member_during_its_resync_is_resynced_without_it() {
    let world = World::new(1);
    let members = members("m", 5, 9 * MIB);
    for (nr, member) in members.iter().enumerate() {
        world.scribble(member, MIB, &pattern(nr as u64 * 7919, 8 << 20));
    }
    world.create(&members[..4], options(Level::Raid6, 4, 0));
    let sync_speed = SyncSpeed { min_kib: 0, max_kib: 2 << 10 };
    let options = AssembleOptions { sync_speed, ..AssembleOptions::default() };
    let array = world.try_assemble(&members[..4], options).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    world.sleep(1_000_000_000);
    assert_eq!(world.status(&control).job.unwrap().kind, JobKind::Resync);
    members[2].dead.store(true, Ordering::Relaxed);
    let bytes = pattern(7, 8192);
    world.write(&array, 0, 0, &bytes).unwrap();
    world.wait_idle(&control);
    let status = world.status(&control);
    assert_eq!((status.degraded, status.resynced), (1, None));
    assert_eq!(status.last_job.unwrap().kind, JobKind::Resync);

    add(&world, &control, &members[4]).unwrap();
    control.jobs().set_sync_speed(0, u64::MAX).unwrap();
    world.wait_idle(&control);
    assert_eq!(world.status(&control).degraded, 0);
    control.jobs().start_check().unwrap();
    world.wait_idle(&control);
    assert_eq!(world.status(&control).mismatch_cnt, 0);
    assert_eq!(world.read(&array, 0, 0, bytes.len()).unwrap(), bytes);
}

#[test]
fn check_counts_what_repair_corrects() {
    for level in [Level::Raid1, Level::Raid6, Level::Raid10] {
        let world = World::new(2);
        let members = members("m", 4, 4 * MIB);
        world.create(&members, CreateOptions { assume_clean: true, ..options(level, 4, 0) });
        let data_offset = world.superblock(&members[3]).data_offset * 512;
        world.scribble(&members[3], data_offset + 8192, &pattern(5, 4096));
        let (_, control) = world.assemble(&members);
        for (repair, found) in [(false, 8), (false, 8), (true, 8), (false, 0)] {
            if repair { control.jobs().start_repair() } else { control.jobs().start_check() }
                .unwrap();
            world.wait_idle(&control);
            assert_eq!(world.status(&control).mismatch_cnt, found, "{level}");
        }
    }
}

#[test]
fn a_recovery_goes_on_where_the_stop_has_left_it() {
    let members = members("m", 4, 9 * MIB);
    let world = World::new(1);
    let clean = CreateOptions { assume_clean: true, ..options(Level::Raid5, 3, 1) };
    world.create(&members, clean);
    let (_, control) = world.assemble(&members);
    // 8 MiB at 2 MiB/s: four seconds.
    control.jobs().set_sync_speed(0, 2 << 10).unwrap();
    fail(&world, &control, "m1").unwrap();
    world.sleep(2_000_000_000);
    let job = world.status(&control).job.unwrap();
    assert_eq!((job.kind, job.member), (JobKind::Recover, Some(3)));
    assert!(job.done > job.total / 4 && job.done < job.total * 3 / 4, "{job:?}");
    assert!((MIB..3 * MIB).contains(&job.rate), "{job:?}");
    world.stop(&control);
    let recovered = world.superblock(&members[3]).recovery_offset.unwrap();
    assert!(recovered * 512 >= job.done, "{recovered} sectors");

    let present = [0, 2, 3].map(|nr| Arc::clone(&members[nr]));
    let sync_speed = SyncSpeed { min_kib: 0, max_kib: 2 << 10 };
    let options = AssembleOptions { sync_speed, ..AssembleOptions::default() };
    let array = world.try_assemble(&present, options).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    world.sleep(1_000_000);
    let job = world.status(&control).job.unwrap();
    assert!(job.done >= recovered * 512 && job.done < job.total, "{job:?}");
    world.wait_idle(&control);
    assert_eq!(world.status(&control).degraded, 0);
    assert_eq!(world.superblock(&members[3]).recovery_offset, None);
}

#[test]
fn members_are_removed_and_added_while_the_array_runs() {
    let world = World::new(2);
    let mine = members("m", 3, 4 * MIB);
    world.create(&mine, CreateOptions { assume_clean: true, ..options(Level::Raid5, 3, 0) });
    let (array, control) = world.assemble(&mine);
    let bytes = pattern(1, 1 << 20);
    world.write(&array, 1, 0, &bytes).unwrap();

    let error = remove(&world, &control, "m2").unwrap_err();
    assert!(matches!(error, ControlError::NotRemovable { .. }), "{error}");
    let error = remove(&world, &control, "nobody").unwrap_err();
    assert!(error.to_string().contains("m0, m1, m2"), "{error}");

    let new = members("new", 2, 4 * MIB);
    let small = members("small", 1, 2 * MIB);
    let error = add(&world, &control, &mine[0]).unwrap_err();
    assert!(matches!(error, ControlError::AlreadyMember { .. }), "{error}");
    let error = add(&world, &control, &small[0]).unwrap_err();
    assert!(matches!(error, ControlError::Unfit { .. }), "{error}");
    world.create(&new[1..], options(Level::Raid0, 1, 0));
    let error = add(&world, &control, &new[1]).unwrap_err();
    assert!(matches!(error, ControlError::OtherArray { .. }), "{error}");

    fail(&world, &control, "m2").unwrap();
    remove(&world, &control, "m2").unwrap();
    let nr = add(&world, &control, &new[0]).unwrap();
    world.wait_idle(&control);
    let status = world.status(&control);
    assert_eq!((status.degraded, status.slots[2]), (0, Some(nr)));
    fail(&world, &control, "m0").unwrap();
    assert_eq!(world.read(&array, 0, 0, bytes.len()).unwrap(), bytes);
    world.stop(&control);
    let superblock = world.superblock(&new[0]);
    assert_eq!((superblock.own_role(), superblock.dev_number), (Role::Slot(2), 3));
}

#[test]
fn a_recovery_gives_the_next_spare_its_turn_when_the_first_dies() {
    let world = World::new(1);
    let members = members("m", 5, 9 * MIB);
    let clean = CreateOptions { assume_clean: true, ..options(Level::Raid5, 3, 2) };
    world.create(&members, clean);
    let (_, control) = world.assemble(&members);
    control.jobs().set_sync_speed(0, 2 << 10).unwrap();
    fail(&world, &control, "m0").unwrap();
    world.sleep(1_000_000_000);
    members[3].dead.store(true, Ordering::Relaxed);
    world.wait_idle(&control);
    let status = world.status(&control);
    assert_eq!((status.degraded, status.slots[0]), (0, Some(4)));
    assert_eq!(status.members[3].state, MemberState::Faulty);
}

#[test]
fn a_level_without_redundancy_fails_and_adds_nothing() {
    let world = World::new(1);
    let members = members("m", 2, 4 * MIB);
    world.create(&members, options(Level::Raid0, 2, 0));
    let (array, control) = world.assemble(&members);
    let error = fail(&world, &control, "m0").unwrap_err();
    assert!(matches!(error, ControlError::NoRedundancy { .. }), "{error}");
    assert!(control.jobs().start_check().is_err());
    members[1].dead.store(true, Ordering::Relaxed);
    assert!(world.write(&array, 0, 0, &pattern(0, 256 << 10)).is_err());
    members[1].dead.store(false, Ordering::Relaxed);
    world.write(&array, 0, 0, &pattern(0, 256 << 10)).unwrap();
}

#[test]
fn a_paused_job_makes_no_progress_and_a_cancelled_check_ends() {
    let world = World::new(1);
    let members = members("m", 3, 9 * MIB);
    world.create(&members, CreateOptions { assume_clean: true, ..options(Level::Raid5, 3, 0) });
    let (_, control) = world.assemble(&members);
    control.jobs().set_sync_speed(0, 2 << 10).unwrap();
    control.jobs().start_check().unwrap();
    world.sleep(1_000_000_000);
    control.jobs().pause_jobs(true);
    world.sleep(200_000_000);
    let before = world.status(&control).job.unwrap().done;
    world.sleep(1_000_000_000);
    assert_eq!(world.status(&control).job.unwrap().done, before);
    assert!(matches!(control.jobs().start_repair(), Err(ControlError::Busy { .. })));
    control.jobs().pause_jobs(false);
    control.jobs().cancel_job();
    world.wait_idle(&control);
    assert_eq!(world.status(&control).last_job.unwrap().outcome, JobOutcome::Interrupted);
}

#[test]
fn a_higher_speed_limit_holds_at_once() {
    let world = World::new(1);
    let members = members("m", 3, 9 * MIB);
    world.create(&members, CreateOptions { assume_clean: true, ..options(Level::Raid5, 3, 0) });
    let (_, control) = world.assemble(&members);
    // At this rate the second window is hours away.
    control.jobs().set_sync_speed(0, 1).unwrap();
    control.jobs().start_check().unwrap();
    world.sleep(1_000_000_000);
    let job = world.status(&control).job.unwrap();
    assert!(job.done < job.total);
    control.jobs().set_sync_speed(0, u64::MAX).unwrap();
    world.sleep(1_000_000_000);
    assert_eq!(world.status(&control).job, None);
    assert_eq!(world.status(&control).last_job.unwrap().outcome, JobOutcome::Done);
}

#[test]
fn the_default_of_assembly_is_that_of_md() {
    let options = AssembleOptions::default();
    assert_eq!((options.safe_mode_delay_ms, options.sync_speed.min_kib), (200, 1000));
}
