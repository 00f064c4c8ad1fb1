//! A member that is half rebuilt when the array stops uncleanly: what it has is redundancy that may be wrong.

use crate::control::Control;
use crate::control::tests::world::{TestMember, World, pattern};
use crate::options::{AssembleOptions, MemberSelector};
use crate::status::{JobKind, JobOutcome};
use braid_device::Opener;
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

/// An array whose `slot` was being rebuilt when the power went in the middle of a write; the byte of its members at
/// which their data starts, and the byte of the component below which the member is valid.
fn half_rebuilt(
    (level, disks): (Level, usize),
    log: bool,
    slot: usize,
) -> (Vec<Arc<TestMember>>, u64, u64) {
    // With two shards windows are one stripe each, so that it is not left at the end of a larger one.
    let world = World::new(2);
    let (members, array, control) = world.full_array((level, disks), 24 * MIB, log);
    let (failing, name) = (Rc::clone(&control), MemberSelector::Name(format!("m{slot}")));
    let opener = Arc::clone(&members[slot]) as Arc<dyn Opener>;
    control.jobs().set_sync_speed(0, 2 << 10).unwrap();
    world.run(async move {
        failing.membership().fail(&name).await.unwrap();
        failing.membership().remove(&name).await.unwrap();
        failing.membership().add(opener, true).await.unwrap();
    });
    world.sleep(6 * SECOND);
    world.write(&array, 0, 0, &pattern(0, 4096)).unwrap();
    let superblock = world.superblock(&members[slot]);
    let recovered = superblock.recovery_offset.unwrap() * 512;
    assert!((6 * MIB..16 * MIB).contains(&recovered), "{recovered}");
    assert_eq!(superblock.resync_offset, 0);
    (members, superblock.data_offset * 512, recovered)
}

#[test]
fn a_rebuild_that_could_not_go_on_is_tried_again_after_a_minute_or_at_once_when_asked() {
    for asked in [false, true] {
        let (members, data, _) = half_rebuilt((Level::Raid1, 2), false, 1);
        let world = World::new(1);
        members[0].unreadable.lock().unwrap().push(data + 20 * MIB..data + 20 * MIB + 4096);
        let (_array, control) = world.assemble(&members);
        world.wait_idle(&control);
        let stuck = world.status(&control).stuck_jobs;
        assert!(stuck[0].kind == JobKind::Recover && stuck[0].why.contains("at byte"), "{stuck:?}");
        // A second time: the disk has not got better.
        world.sleep(90 * SECOND);
        assert_eq!(world.status(&control).degraded, 1);
        members[0].unreadable.lock().unwrap().clear();
        world.sleep(SECOND);
        assert_eq!(world.status(&control).degraded, 1);
        if asked {
            assert!(control.jobs().try_again());
            world.sleep(SECOND);
        } else {
            world.sleep(120 * SECOND);
        }
        world.wait_idle(&control);
        assert_eq!(world.status(&control).degraded, 0, "asked: {asked}");
        assert!(!control.jobs().try_again() && world.status(&control).stuck_jobs.is_empty());
        world.stop(&control);
    }
}

#[test]
fn a_mirror_is_resynced_below_a_rebuild_that_is_stuck() {
    for slot in [0, 1] {
        let (members, data, recovered) = half_rebuilt((Level::Raid1, 2), false, slot);
        let other = 1 - slot;
        let world = World::new(1);
        // The write that was under way reached one copy; the only whole copy has a latent error further on.
        for at in [MIB, recovered - 4096] {
            world.scribble(&members[other], data + at, &[0xee; 4096]);
        }
        members[other].unreadable.lock().unwrap().push(data + 20 * MIB..data + 20 * MIB + 4096);
        let (array, control) = world.assemble(&members);
        world.wait_idle(&control);
        assert_eq!(world.status(&control).degraded, 1);
        for at in [MIB, recovered - 4096] {
            let first = world.read(&array, 0, at, 4096).unwrap();
            for _ in 0..8 {
                assert!(world.read(&array, 0, at, 4096).unwrap() == first, "slot {slot} at {at}");
            }
        }
        assert_eq!(world.check(&control), 0, "slot {slot}");
        // The disk gets better.
        members[other].unreadable.lock().unwrap().clear();
        world.stop(&control);
        let (_, control) = world.assemble(&members);
        assert_eq!(world.check(&control), 0, "slot {slot}");
        let status = world.status(&control);
        assert_eq!((status.degraded, status.last_job.unwrap().outcome), (0, JobOutcome::Done));
    }
}

#[test]
fn parity_is_resynced_below_a_rebuild_however_the_start_was_forced() {
    for (level, disks) in [(Level::Raid5, 3), (Level::Raid6, 5)] {
        for stuck in [false, true] {
            let (members, data, recovered) = half_rebuilt((level, disks), false, 1);
            let world = World::new(1);
            // The write reached data and not parity, where all members are whole.
            // In stripes where it holds data, and where it holds P or Q; the last ones before the end of what is
            // rebuilt, which is not the end of a window.
            assert_ne!(recovered % MIB, 0);
            let last = (0..5).map(|stripe| recovered - 4096 - stripe * (64 << 10));
            for at in last.chain([MIB]) {
                world.scribble(&members[0], data + at, &[0xee; 4096]);
            }
            if stuck {
                // In the first window of the rebuild, and not in that of the resync which reaches beyond its start.
                let at = data + recovered + 11 * (64 << 10);
                let defect = at..at + 4096;
                let all = disks - usize::from(level == Level::Raid6);
                for member in members[..all].iter().filter(|m| m.name() != "m1") {
                    member.unreadable.lock().unwrap().push(defect.clone());
                }
            }
            let options = AssembleOptions { force: true, ..AssembleOptions::default() };
            let array = world.try_assemble(&members, options).unwrap();
            let control = Control::find(&world.shards[0], array.id()).unwrap();
            world.wait_idle(&control);
            assert_eq!(world.status(&control).degraded, usize::from(stuck), "{level}");
            for member in &members {
                member.unreadable.lock().unwrap().clear();
            }
            assert_eq!(world.check(&control), 0, "{level} stuck={stuck}");
            // All of it is compared once the rebuild has come to its end.
            world.stop(&control);
            let (_, control) = world.assemble(&members);
            assert_eq!(world.check(&control), 0, "{level} stuck={stuck}");
            assert_eq!(world.status(&control).degraded, 0, "{level}");
        }
    }
}
