//! Members that lost blocks of one stripe in different rows: every row that can be had is had, by jobs and by clients.

// Lists of one range are meant here.
#![allow(clippy::single_range_in_vec_init)]

use crate::array::Array;
use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::options::{AssembleOptions, CreateOptions, MemberSelector};
use crate::state::findings::{Findings, Verdict};
use crate::status::{JobOutcome, MemberState, MemberStatus};
use braid_device::{Opener, Target};
use braid_layout::Level;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

/// Levels and members; of each at least two lose something.
pub(super) const LEVELS: [(Level, usize); 6] = [
    (Level::Raid1, 2),
    (Level::Raid1, 3),
    (Level::Raid4, 3),
    (Level::Raid5, 3),
    (Level::Raid6, 5),
    (Level::Raid10, 4),
];

pub(super) fn options(level: Level, disks: usize) -> CreateOptions {
    CreateOptions {
        chunk_size: (level != Level::Raid1).then_some(64 * KIB),
        assume_clean: true,
        ..CreateOptions::new("data", level, disks)
    }
}

/// An array full of the pattern.
fn filled(
    world: &World,
    members: &[Arc<TestMember>],
    options: CreateOptions,
) -> (Arc<Array>, Rc<Control>) {
    world.create(members, options);
    let (array, control) = world.assemble(members);
    let size = array.info().device.size as usize;
    world.write(&array, 0, 0, &pattern(0, size)).unwrap();
    (array, control)
}

/// Component bytes that the member gives again only when they were written.
fn decay(world: &World, member: &Arc<TestMember>, component: Range<u64>) {
    let start = world.superblock(member).data_offset * 512;
    let bytes = start + component.start..start + component.end;
    member.decayed.lock().unwrap().push(bytes);
}

/// Each of the first three members loses another block of the same stripe, two of them in the same 4 KiB.
fn decay_different_rows(world: &World, members: &[Arc<TestMember>]) {
    for (nr, member) in members.iter().enumerate().take(3) {
        let at = MIB + nr as u64 * 512;
        decay(world, member, at..at + 512);
        let at = MIB + 16 * KIB + nr as u64 * 8 * KIB;
        decay(world, member, at..at + 4 * KIB);
    }
}

fn decayed(members: &[Arc<TestMember>]) -> usize {
    members.iter().map(|member| member.decayed.lock().unwrap().len()).sum()
}

fn reads_right(world: &World, array: &Array) {
    let size = array.info().device.size as usize;
    for at in (0..size as u64).step_by(64 << 10) {
        let len = (size - at as usize).min(64 << 10);
        let read = world.read(array, 0, at, len).unwrap();
        assert!(read == pattern(at, len), "wrong bytes at {at}");
    }
}

fn scrub(world: &World, control: &Rc<Control>, repair: bool) -> Findings {
    world.wait_idle(control);
    if repair { control.jobs().start_repair() } else { control.jobs().start_check() }.unwrap();
    world.wait_idle(control);
    let status = world.status(control);
    assert_eq!(status.last_job.unwrap().outcome, JobOutcome::Done);
    status.scrubbed.unwrap().findings
}

#[test]
fn a_physical_block_that_is_lost_is_mended_as_a_whole_by_reads_of_any_size() {
    for (level, disks) in LEVELS {
        for len in [512, 1536, 64 << 10] {
            let (world, members) = (World::new(2), members("m", disks, 3 * MIB));
            let (array, control) = filled(&world, &members, options(level, disks));
            for (nr, member) in members.iter().enumerate() {
                let at = nr as u64 * 128 * KIB + 20 * KIB;
                decay(&world, member, at..at + 4 * KIB);
            }
            let size = array.info().device.size as usize;
            for at in (0..size as u64).step_by(len) {
                let len = (size - at as usize).min(len);
                let read = world.read(&array, 0, at, len).unwrap();
                assert!(read == pattern(at, len), "{level}, {len} bytes at {at}");
            }
            // Parity, or another copy, that nobody had to read is still lost.
            let copies = matches!(level, Level::Raid1 | Level::Raid10);
            assert!(copies || decayed(&members) < disks, "{level}, reads of {len}");
            let states = world.status(&control).members;
            let in_sync = |member: &MemberStatus| member.state == MemberState::InSync;
            assert!(states.iter().all(in_sync), "{level}, reads of {len}: {states:?}");
            let found = scrub(&world, &control, false);
            let left: Vec<_> = members.iter().map(|m| m.decayed.lock().unwrap().clone()).collect();
            assert_eq!(
                decayed(&members),
                0,
                "{level}, reads of {len} {left:?} {found:?} {:?}",
                world.status(&control).members
            );
        }
    }
}

#[test]
fn check_and_repair_mend_what_members_lost_in_different_rows() {
    for (level, disks) in LEVELS {
        for repair in [false, true] {
            let (world, members) = (World::new(2), members("m", disks, 3 * MIB));
            let (array, control) = filled(&world, &members, options(level, disks));
            decay_different_rows(&world, &members);
            let losses = decayed(&members) as u64;
            let found = scrub(&world, &control, repair);
            assert_eq!(decayed(&members), 0, "{level} {repair}");
            assert_eq!((found.lost, found.unmended), (0, 0), "{level} {repair}");
            let mended = |place: &crate::state::findings::Finding| {
                (place.verdict, place.mended) == (Verdict::Unreadable, true)
            };
            assert!(found.places.iter().all(mended), "{level} {repair} {found:?}");
            assert!(found.places.len() as u64 >= losses / 2, "{level} {repair} {found:?}");
            assert_eq!(scrub(&world, &control, false), Findings::default());
            reads_right(&world, &array);
        }
    }
}

#[test]
fn a_resync_mends_what_members_lost_in_different_rows() {
    for (level, disks) in LEVELS {
        let members = members("m", disks, 3 * MIB);
        let world = World::new(1);
        let (array, _) = filled(&world, &members, options(level, disks));
        drop(array);
        decay_different_rows(&world, &members);
        let world = world.crash();
        let (array, control) = world.assemble(&members);
        world.wait_idle(&control);
        let status = world.status(&control);
        assert_eq!(status.last_job.unwrap().outcome, JobOutcome::Done, "{level}");
        assert_eq!((status.resynced, decayed(&members)), (None, 0), "{level}");
        reads_right(&world, &array);
    }
}

#[test]
fn a_resync_keeps_what_could_be_read_before_it_beside_a_block_that_is_lost() {
    for (level, disks) in LEVELS {
        let members = members("m", disks, 3 * MIB);
        let world = World::new(1);
        let (array, _) = filled(&world, &members, options(level, disks));
        let size = array.info().device.size as usize;
        drop(array);
        // A crash has left something else on each member, in rows where one has lost a block, too.
        let start = world.superblock(&members[0]).data_offset * 512;
        for (nr, member) in members.iter().enumerate() {
            world.scribble(member, start + MIB, &vec![nr as u8 + 1; 64 << 10]);
        }
        decay(&world, &members[0], MIB + 8 * KIB..MIB + 12 * KIB);
        let world = world.crash();
        let options = AssembleOptions { read_only: true, ..AssembleOptions::default() };
        let array = world.try_assemble(&members, options).unwrap();
        let before = world.read(&array, 0, 0, size).unwrap();
        drop(array);
        let world = world.crash();
        let (array, control) = world.assemble(&members);
        world.wait_idle(&control);
        assert_eq!(world.status(&control).resynced, None, "{level}");
        let after = world.read(&array, 0, 0, size).unwrap();
        let differs = before.iter().zip(&after).position(|(before, after)| before != after);
        assert_eq!(differs, None, "{level}: the first byte that changed");
    }
}

#[test]
fn a_rebuild_without_a_log_gets_every_row_that_is_left() {
    for (level, disks) in [(Level::Raid1, 3), (Level::Raid6, 5)] {
        let (world, members) = (World::new(1), members("m", disks + 1, 3 * MIB));
        let options = CreateOptions { bad_block_log: false, ..options(level, disks) };
        let (array, control) = filled(&world, &members[..disks], options);
        let (c, last) = (Rc::clone(&control), format!("m{}", disks - 1));
        world.run(async move { c.membership().fail(&MemberSelector::Name(last)).await }).unwrap();
        decay_different_rows(&world, &members[..2]);
        let spare = Arc::clone(&members[disks]) as Arc<dyn Opener>;
        let c = Rc::clone(&control);
        world.run(async move { c.membership().add(spare, true).await }).unwrap();
        world.wait_idle(&control);
        let status = world.status(&control);
        assert_eq!(status.last_job.unwrap().outcome, JobOutcome::Done, "{level}");
        assert_eq!(status.degraded, 0, "{level}");
        reads_right(&world, &array);
        assert_eq!(scrub(&world, &control, false).lost, 0);
    }
}

#[test]
fn clients_read_and_write_where_members_lost_different_rows() {
    for (level, disks) in LEVELS {
        for write in [false, true] {
            for degraded in [false, true] {
                if degraded && !matches!((level, disks), (Level::Raid6, _) | (Level::Raid1, 3)) {
                    continue;
                }
                let (world, members) = (World::new(2), members("m", disks, 3 * MIB));
                let (array, control) = filled(&world, &members, options(level, disks));
                let mut losing = &members[..];
                if degraded {
                    let (c, last) = (Rc::clone(&control), format!("m{}", disks - 1));
                    world
                        .run(async move { c.membership().fail(&MemberSelector::Name(last)).await })
                        .unwrap();
                    losing = &members[..2];
                }
                decay_different_rows(&world, losing);
                if write {
                    // Small ones, each of which needs what is around it.
                    let size = array.info().device.size;
                    for at in (0..size).step_by(24 << 10) {
                        let len = (size - at).min(20 << 10) as usize;
                        world.write(&array, 0, at, &pattern(at, len)).unwrap();
                    }
                }
                reads_right(&world, &array);
                if !degraded {
                    let found = scrub(&world, &control, true);
                    assert_eq!((found.lost, found.unmended), (0, 0), "{level}");
                }
                assert_eq!(world.check(&control), 0, "{level}");
            }
        }
    }
}

#[test]
fn a_repair_says_what_it_could_not_mend_and_where() {
    for (level, disks) in [(Level::Raid1, 2), (Level::Raid5, 3)] {
        let (world, members) = (World::new(1), members("m", disks, 3 * MIB));
        let (array, control) = filled(&world, &members, options(level, disks));
        decay_different_rows(&world, &members);
        // The same row of two members: nothing is left of it.
        for member in &members[..2] {
            decay(&world, member, MIB + 48 * KIB..MIB + 48 * KIB + 512);
        }
        let found = scrub(&world, &control, true);
        let lost: Vec<_> =
            found.places.iter().filter(|place| place.verdict == Verdict::Lost).collect();
        assert!(found.lost > 0 && !lost.is_empty(), "{level}: {found:?}");
        for place in &lost {
            let len = (place.array.end - place.array.start) as usize;
            assert_eq!(len, 512, "{level}");
            assert!(world.read(&array, 0, place.array.start, len).is_err(), "{level}");
        }
        assert_eq!(decayed(&members), 2, "{level}: all else is mended");
        let mut lost_to_readers = 0;
        for at in (0..array.info().device.size).step_by(512) {
            lost_to_readers += u64::from(world.read(&array, 0, at, 512).is_err());
        }
        assert_eq!(lost_to_readers, lost.len() as u64, "{level}");
    }
}

#[test]
fn a_stripe_that_a_repair_mended_is_not_written_from_the_cache() {
    let (world, members) = (World::new(1), members("m", 5, 3 * MIB));
    let (array, control) = filled(&world, &members, options(Level::Raid6, 5));
    let start = world.superblock(&members[1]).data_offset * 512;
    for nr in 0..2 {
        // Twice: the first time the cache only learns that the stripe comes back.
        for _ in 0..3 {
            world.write(&array, 0, nr * 4096, &pattern(nr * 4096, 512)).unwrap();
        }
    }
    world.scribble(&members[1], start, &[0xee; 8192]);
    scrub(&world, &control, true);
    world.write(&array, 0, 0, &pattern(0, 512)).unwrap();
    world.write(&array, 0, 64 * KIB, &pattern(64 * KIB, 512)).unwrap();
    assert_eq!(world.check(&control), 0);
    reads_right(&world, &array);
    let options = AssembleOptions::default();
    world.stop(&control);
    let array = world.try_assemble(&members, options).unwrap();
    reads_right(&world, &array);
}
