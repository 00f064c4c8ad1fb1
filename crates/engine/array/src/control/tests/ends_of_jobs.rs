//! Members that fail at the very end of a job that they took part in, before that is recorded.

use crate::array::Array;
use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::options::{CreateOptions, MemberSelector};
use crate::status::{ArrayState, JobOutcome, MemberState};
use braid_device::{Opener, Target};
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

/// An array full of a pattern whose member 0 has just been filled anew, and is being flushed for that.
fn all_but_rebuilt(
    world: &World,
    level: Level,
    disks: usize,
) -> (Vec<Arc<TestMember>>, Arc<Array>, Rc<Control>) {
    let (members, array, control) = world.full_array((level, disks), 4 * MIB, false);
    let (failing, name) = (Rc::clone(&control), MemberSelector::Name("m0".to_string()));
    let opener = Arc::clone(&members[0]) as Arc<dyn Opener>;
    members[0].slow_flush.store(SECOND, Ordering::Relaxed);
    // Active before the end of the rebuild is recorded, so that later writes need not wait for that first.
    world.write(&array, 0, 0, &pattern(0, 4096)).unwrap();
    world.run(async move {
        failing.membership().fail(&name).await.unwrap();
        failing.membership().remove(&name).await.unwrap();
        failing.membership().add(opener, true).await.unwrap();
    });
    wait_for_the_last_window(world, &control);
    assert!(world.superblock(&members[0]).recovery_offset.is_some());
    (members, array, control)
}

/// The job has nothing left to do, and its end is not recorded yet, since member 0 takes long to flush.
fn wait_for_the_last_window(world: &World, control: &Rc<Control>) {
    let over = || world.status(control).job.is_some_and(|job| job.done == job.total);
    while !over() {
        world.sleep(SECOND / 100);
    }
    world.sleep(SECOND / 10);
}

fn filled(world: &World, control: &Rc<Control>) -> MemberState {
    world.status(control).members.iter().find(|member| member.name == "m0").unwrap().state
}

fn die(members: &[Arc<TestMember>]) {
    members.iter().for_each(|member| member.dead.store(true, Ordering::Relaxed));
}

#[test]
fn a_rebuilt_member_counts_when_its_source_fails_right_after_the_last_window() {
    for (level, disks) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid10, 2)] {
        let world = World::new(1);
        let (members, array, control) = all_but_rebuilt(&world, level, disks);
        die(&members[1..2]);
        world.write(&array, 0, 0, &pattern(MIB, 4096)).unwrap();
        world.wait_idle(&control);
        let status = world.status(&control);
        assert!(!status.state.contains(&ArrayState::Failed), "{level}");
        assert_eq!(filled(&world, &control), MemberState::InSync, "{level}");
        assert_eq!(status.last_job.unwrap().outcome, JobOutcome::Done, "{level}");
        assert_eq!(world.superblock(&members[0]).recovery_offset, None, "{level}");
        world.stop(&control);

        let left: Vec<_> = members.iter().filter(|m| m.name() != "m1").cloned().collect();
        let (array, _) = world.assemble(&left);
        let size = array.info().device.size as usize;
        assert!(world.read(&array, 0, 0, 4096).unwrap() == pattern(MIB, 4096), "{level}");
        let rest = world.read(&array, 0, 4096, size - 4096).unwrap();
        assert!(rest == pattern(4096, size - 4096), "{level}");
    }
}

#[test]
fn requests_wait_while_the_end_of_a_rebuild_is_recorded_and_its_source_fails() {
    for (level, disks) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid10, 2)] {
        let world = World::new(1);
        let (members, array, control) = all_but_rebuilt(&world, level, disks);
        // The flush comes back; the superblock that says that the member is whole does not.
        members[0].hangs.store(true, Ordering::Relaxed);
        world.sleep(2 * SECOND);
        assert_eq!(filled(&world, &control), MemberState::InSync, "{level}");
        die(&members[1..2]);
        // The first are told by the source that it is gone; those after them, elsewhere, find that it is not to be read.
        let at = |nr: u64| (nr / 6) * MIB + (nr % 6) * (64 << 10);
        let begin_read = |nr| world.begin_read(&array, at(nr), 4096);
        let early: Vec<_> = (0..6).map(begin_read).collect();
        world.sleep(SECOND / 100);
        let late: Vec<_> = (6..12).map(begin_read).collect();
        let new: Vec<u8> = pattern(MIB, 4096);
        let begin_write = |nr| world.begin_write(&array, at(nr), &new);
        let writes: Vec<_> = (12..18).map(begin_write).collect();
        world.sleep(SECOND / 100);
        members[0].hangs.store(false, Ordering::Relaxed);
        for (nr, under_way) in early.into_iter().chain(late).enumerate() {
            let read = world.end(under_way);
            let expected = pattern(at(nr as u64), 4096);
            assert_eq!(read.map(|read| read == expected), Ok(true), "{level} read {nr}");
        }
        for (nr, under_way) in writes.into_iter().enumerate() {
            assert_eq!(world.end(under_way).err(), None, "{level} write {nr}");
            let read = world.read(&array, 0, at(nr as u64 + 12), 4096);
            assert_eq!(read.map(|read| read == new), Ok(true), "{level} write {nr}");
        }
        world.wait_idle(&control);
        assert_eq!(filled(&world, &control), MemberState::InSync, "{level}");
    }
}

#[test]
fn a_rebuild_does_not_count_as_done_when_its_end_cannot_be_recorded() {
    let world = World::new(1);
    let (members, array, control) = all_but_rebuilt(&world, Level::Raid5, 4);
    die(&members[1..3]);
    world.write(&array, 0, 0, &pattern(MIB, 256 << 10)).unwrap_err();
    world.wait_idle(&control);
    let status = world.status(&control);
    assert!(status.state.contains(&ArrayState::Failed));
    assert!(matches!(filled(&world, &control), MemberState::Rebuilding { .. }));
    assert!(matches!(status.last_job.unwrap().outcome, JobOutcome::Failed(_)));
    assert!(world.superblock(&members[0]).recovery_offset.is_some());
}

#[test]
fn a_resync_does_not_count_as_done_when_its_end_cannot_be_recorded() {
    let world = World::new(1);
    let members = members("m", 3, 4 * MIB);
    let options = CreateOptions {
        bad_block_log: false,
        chunk_size: Some(64 << 10),
        ..CreateOptions::new("data", Level::Raid5, 3)
    };
    world.create(&members, options);
    members[0].slow_flush.store(SECOND, Ordering::Relaxed);
    let (array, control) = world.assemble(&members);
    wait_for_the_last_window(&world, &control);
    die(&members[1..3]);
    world.read(&array, 0, 0, 256 << 10).unwrap_err();
    world.wait_idle(&control);
    let status = world.status(&control);
    assert!(status.state.contains(&ArrayState::Failed));
    assert!(status.resynced.is_some());
    assert!(matches!(status.last_job.unwrap().outcome, JobOutcome::Failed(_)));
    assert_ne!(world.superblock(&members[0]).resync_offset, u64::MAX);
}
