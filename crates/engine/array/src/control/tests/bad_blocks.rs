//! Members with blocks that cannot be written, and arrays that come with bad blocks recorded.

// Lists of one range are meant here.
#![allow(clippy::single_range_in_vec_init)]

use crate::control::Control;
use crate::control::tests::hanging::{start, start_write};
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::error::AssembleError;
use crate::options::{AssembleOptions, CreateOptions};
use crate::status::{JobOutcome, MemberState};
use braid_device::{IoErrorKind, Opener, Target};
use braid_format::badblocks;
use braid_format::superblock::{Role, Superblock};
use braid_layout::Level;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;
const SECOND: u64 = 1_000_000_000;
const CHUNK: u64 = 64 * KIB;

fn options(level: Level, disks: usize) -> CreateOptions {
    CreateOptions {
        chunk_size: (level != Level::Raid1).then_some(CHUNK),
        assume_clean: true,
        ..CreateOptions::new("data", level, disks)
    }
}

/// Every level with redundancy, with its number of members.
const LEVELS: [(Level, usize); 5] = [
    (Level::Raid1, 2),
    (Level::Raid4, 3),
    (Level::Raid5, 4),
    (Level::Raid6, 5),
    (Level::Raid10, 4),
];

fn all_levels(shards: u16, test: impl Fn(&World, &[Arc<TestMember>])) {
    for (level, disks) in LEVELS {
        let world = World::new(shards);
        let members = members("m", disks, 6 * MIB);
        world.create(&members, options(level, disks));
        println!("{level}");
        test(&world, &members);
    }
}

/// Bytes of the device that hold these component bytes.
fn on_device(world: &World, member: &Arc<TestMember>, component: Range<u64>) -> Range<u64> {
    let start = world.superblock(member).data_offset * 512;
    start + component.start..start + component.end
}

/// The member's bad-block log in component bytes; `None` when its superblock says that nothing is bad.
fn logged(world: &World, member: &Arc<TestMember>) -> Option<Vec<Range<u64>>> {
    let superblock = world.superblock(member);
    if !superblock.bad_blocks {
        return None;
    }
    let at = superblock.bblog_sector().unwrap() as usize * 512;
    let log = &world.contents(member)[at..at + usize::from(superblock.bblog_size) * 512];
    let start = superblock.data_offset;
    let bytes = |sector: u64| (sector - start) * 512;
    let ranges = badblocks::parse(log, superblock.bblog_shift).unwrap();
    Some(ranges.iter().map(|range| bytes(range.start)..bytes(range.end)).collect())
}

/// Records component bytes as bad, as if Linux had done it while the array ran there.
pub(super) fn record(world: &World, member: &Arc<TestMember>, component: &[Range<u64>]) {
    let mut superblock = world.superblock(member);
    let sector = |bytes: u64| superblock.data_offset + bytes / 512;
    let ranges: Vec<_> = component.iter().map(|r| sector(r.start)..sector(r.end)).collect();
    let log = badblocks::encode(&ranges, 0, superblock.bblog_size).unwrap();
    world.scribble(member, superblock.bblog_sector().unwrap() * 512, &log);
    superblock.bad_blocks = true;
    write_superblock(world, member, &superblock);
}

fn write_superblock(world: &World, member: &Arc<TestMember>, superblock: &Superblock) {
    let mut bytes = superblock.to_bytes();
    bytes.resize(4096, 0);
    world.scribble(member, superblock.super_offset * 512, &bytes);
}

/// Spoils component bytes behind the array's back.
pub(super) fn spoil(world: &World, member: &Arc<TestMember>, component: Range<u64>) {
    let at = on_device(world, member, component);
    world.scribble(member, at.start, &vec![0xee; (at.end - at.start) as usize]);
}

#[test]
fn bad_blocks_that_linux_recorded_are_had_from_the_others_and_the_rest_of_a_request_too() {
    all_levels(2, |world, members| {
        let data = pattern(3, 512 << 10);
        let (array, control) = world.assemble(members);
        world.write(&array, 0, 0, &data).unwrap();
        world.stop(&control);
        // Different rows on two members.
        for (member, rows) in [(0, 8 * KIB..12 * KIB), (1, 20 * KIB..20 * KIB + 512)] {
            record(world, &members[member], std::slice::from_ref(&rows));
            spoil(world, &members[member], rows);
        }
        let (array, control) = world.assemble(members);
        assert_eq!(world.read(&array, 1, 0, data.len()).unwrap(), data);
        assert_eq!(world.read(&array, 0, 7 * KIB, 14 << 10).unwrap(), data[7 << 10..21 << 10]);
        let status = world.status(&control);
        assert!(status.members.iter().all(|member| member.state == MemberState::InSync));
        world.stop(&control);
        assert_eq!(logged(world, &members[0]), Some(vec![8 * KIB..12 * KIB]));
    });
}

#[test]
fn what_is_written_over_bad_blocks_is_good_and_leaves_the_log_with_the_next_superblock() {
    all_levels(2, |world, members| {
        record(world, &members[0], &[8 * KIB..16 * KIB]);
        spoil(world, &members[0], 8 * KIB..16 * KIB);
        let (array, control) = world.assemble(members);
        let data = pattern(5, 512 << 10);
        world.write(&array, 1, 0, &data).unwrap();
        world.stop(&control);
        assert_eq!(logged(world, &members[0]), None);
        let (array, control) = world.assemble(members);
        assert_eq!(world.read(&array, 0, 0, data.len()).unwrap(), data);
        assert_eq!(world.check(&control), 0);
        world.stop(&control);
    });
}

#[test]
fn a_write_over_part_of_what_is_bad_leaves_the_rest_in_the_log() {
    let world = World::new(1);
    let members = members("m", 2, 6 * MIB);
    world.create(&members, options(Level::Raid1, 2));
    record(&world, &members[1], &[8 * KIB..16 * KIB]);
    let (array, control) = world.assemble(&members);
    world.write(&array, 0, 10 * KIB, &pattern(1, 2048)).unwrap();
    world.stop(&control);
    assert_eq!(logged(&world, &members[1]), Some(vec![8 * KIB..10 * KIB, 12 * KIB..16 * KIB]));
}

#[test]
fn a_write_that_a_member_does_not_take_is_recorded_before_the_reply() {
    all_levels(2, |world, members| {
        let (array, control) = world.assemble(members);
        let old = pattern(1, 512 << 10);
        world.write(&array, 0, 0, &old).unwrap();
        let defect = on_device(world, &members[0], 9 * KIB..9 * KIB + 512);
        members[0].defects.lock().unwrap().push(defect);
        let new = pattern(2, 512 << 10);
        world.write(&array, 1, 0, &new).unwrap();
        // As the power fails now: one piece of the write, not all of it.
        assert_eq!(logged(world, &members[0]), Some(vec![8 * KIB..12 * KIB]));
        let status = world.status(&control);
        assert!(status.members.iter().all(|member| member.state == MemberState::InSync));
        for shard in [0, 1] {
            assert_eq!(world.read(&array, shard, 0, new.len()).unwrap(), new);
        }
        // Again: the log has it already, and superblocks need no write.
        let events = world.superblock(&members[0]).events;
        world.write(&array, 0, 0, &old).unwrap();
        assert_eq!(world.superblock(&members[0]).events, events);
        assert_eq!(world.read(&array, 0, 0, old.len()).unwrap(), old);
        world.stop(&control);
        // The medium is good again, and what is written is.
        members[0].defects.lock().unwrap().clear();
        let (array, control) = world.assemble(members);
        assert_eq!(world.read(&array, 0, 0, old.len()).unwrap(), old);
        world.write(&array, 0, 0, &new).unwrap();
        assert_eq!(world.check(&control), 0);
        world.stop(&control);
        assert_eq!(logged(world, &members[0]), None);
    });
}

#[test]
fn small_writes_and_zeroes_that_are_not_taken_are_recorded_too() {
    let world = World::new(1);
    let members = members("m", 8, 6 * MIB);
    world.create(&members, options(Level::Raid6, 8));
    let (array, control) = world.assemble(&members);
    for member in &members[..2] {
        let all = on_device(&world, member, 0..128 * KIB);
        member.defects.lock().unwrap().push(all);
    }
    let mut data = vec![0; 6 * CHUNK as usize];
    for nr in 0..6 {
        let (at, new) = (nr * CHUNK as usize + 8192, pattern(nr as u64, 4096));
        world.write(&array, 0, at as u64, &new).unwrap();
        data[at..at + 4096].copy_from_slice(&new);
    }
    assert_eq!(world.read(&array, 0, 0, data.len()).unwrap(), data);
    for member in &members[..2] {
        assert_eq!(logged(&world, member), Some(vec![8 * KIB..12 * KIB]));
    }
    world.stop(&control);
}

#[test]
fn an_error_that_passes_is_no_reason_to_record_anything() {
    // A request across a boundary of pieces of which one half only is refused.
    let world = World::new(1);
    let members = members("m", 2, 6 * MIB);
    world.create(&members, options(Level::Raid1, 2));
    let (array, control) = world.assemble(&members);
    members[1].defects.lock().unwrap().push(on_device(&world, &members[1], 4096..4608));
    world.write(&array, 0, 0, &pattern(1, 16 << 10)).unwrap();
    world.stop(&control);
    assert_eq!(logged(&world, &members[1]), Some(vec![4096..8192]));
    // The part that the member took is there.
    let at = on_device(&world, &members[1], 8192..16384);
    let held = world.contents(&members[1])[at.start as usize..at.end as usize].to_vec();
    assert_eq!(held, pattern(1, 16 << 10)[8192..]);
}

#[test]
fn a_member_without_a_log_or_with_a_full_one_fails_as_before() {
    for with_log in [false, true] {
        let world = World::new(1);
        let members = members("m", 3, 6 * MIB);
        let create = CreateOptions { bad_block_log: with_log, ..options(Level::Raid5, 3) };
        world.create(&members, create);
        if with_log {
            let full: Vec<Range<u64>> =
                (0..512).map(|nr| 2 * MIB + nr * 2048..2 * MIB + nr * 2048 + 512).collect();
            record(&world, &members[0], &full);
        }
        let (array, control) = world.assemble(&members);
        let defect = on_device(&world, &members[0], 0..512);
        members[0].defects.lock().unwrap().push(defect);
        let data = pattern(1, 256 << 10);
        world.write(&array, 0, 0, &data).unwrap();
        let status = world.status(&control);
        assert_eq!(status.members[0].state, MemberState::Faulty, "log: {with_log}");
        assert_eq!(world.read(&array, 0, 0, data.len()).unwrap(), data);
        world.stop(&control);
    }
}

#[test]
fn a_member_whose_log_cannot_be_written_fails() {
    all_levels(1, |world, members| {
        let (array, control) = world.assemble(members);
        let superblock = world.superblock(&members[0]);
        let log = superblock.bblog_sector().unwrap() * 512;
        let data_block = on_device(world, &members[0], 0..4096);
        members[0].defects.lock().unwrap().extend([log..log + 4096, data_block]);
        let data = pattern(1, 512 << 10);
        world.write(&array, 0, 0, &data).unwrap();
        assert_eq!(world.status(&control).members[0].state, MemberState::Faulty);
        assert_eq!(world.read(&array, 0, 0, data.len()).unwrap(), data);
        world.stop(&control);
    });
}

#[test]
fn where_no_redundancy_is_left_a_read_of_bad_blocks_fails_and_others_do_not() {
    for (level, disks) in [(Level::Raid1, 2), (Level::Raid5, 3)] {
        let world = World::new(1);
        let members = members("m", disks, 6 * MIB);
        world.create(&members, options(level, disks));
        for member in &members[..2] {
            record(&world, member, &[8 * KIB..12 * KIB]);
        }
        let (array, control) = world.assemble(&members);
        let lost = world.read(&array, 0, 8 * KIB, 4096).unwrap_err();
        assert_eq!(lost.kind, IoErrorKind::Medium);
        assert!(world.read(&array, 0, 0, 64 << 10).is_err());
        world.read(&array, 0, 0, 8 << 10).unwrap();
        world.read(&array, 0, 12 * KIB, 48 << 10).unwrap();
        assert_eq!(world.check(&control), 0);
        // Written anew they are there again.
        let data = pattern(9, if level == Level::Raid1 { 64 << 10 } else { 128 << 10 });
        world.write(&array, 0, 0, &data).unwrap();
        assert_eq!(world.read(&array, 0, 0, data.len()).unwrap(), data);
        world.stop(&control);
        assert_eq!((logged(&world, &members[0]), logged(&world, &members[1])), (None, None));
    }
}

#[test]
fn a_write_that_no_member_keeps_is_not_acknowledged() {
    for (level, disks) in [(Level::Raid1, 2), (Level::Raid5, 3)] {
        let world = World::new(1);
        let members = members("m", disks, 6 * MIB);
        world.create(&members, options(level, disks));
        let (array, control) = world.assemble(&members);
        for member in &members[..2] {
            let defect = on_device(&world, member, 8 * KIB..12 * KIB);
            member.defects.lock().unwrap().push(defect);
        }
        assert!(world.write(&array, 0, 0, &pattern(1, 128 << 10)).is_err());
        // All else still works.
        let data = pattern(2, 32 << 10);
        world.write(&array, 0, 16 * KIB, &data).unwrap();
        assert_eq!(world.read(&array, 0, 16 * KIB, data.len()).unwrap(), data);
        assert!(world.read(&array, 0, 8 * KIB, 4096).is_err());
        world.stop(&control);
    }
}

#[test]
fn a_rebuild_records_what_it_cannot_have_and_goes_on() {
    for (level, disks) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid10, 4)] {
        for with_log in [true, false] {
            let world = World::new(2);
            let members = members("m", disks + 1, 6 * MIB);
            let create = CreateOptions { bad_block_log: with_log, ..options(level, disks) };
            world.create(&members[..disks], create);
            let data = pattern(4, 512 << 10);
            let (array, control) = world.assemble(&members[..disks]);
            world.write(&array, 0, 0, &data).unwrap();
            world.stop(&control);
            let bad = on_device(&world, &members[1], 8 * KIB..12 * KIB);
            members[1].unreadable.lock().unwrap().push(bad);
            // All but member 0, which member 1 has copies of, or a part of its stripes.
            let degraded = AssembleOptions { start_degraded: true, ..AssembleOptions::default() };
            let array = world.try_assemble(&members[1..disks], degraded).unwrap();
            let control = Control::find(&world.shards[0], array.id()).unwrap();
            add(&world, &control, &members[disks]);
            world.wait_idle(&control);
            let status = world.status(&control);
            let outcome = status.last_job.map(|job| job.outcome);
            if !with_log {
                assert!(matches!(outcome, Some(JobOutcome::Failed(_))), "{level}: {outcome:?}");
                world.stop(&control);
                continue;
            }
            assert_eq!((outcome, status.degraded), (Some(JobOutcome::Done), 0), "{level}");
            assert_eq!(logged(&world, &members[disks]), Some(vec![8 * KIB..12 * KIB]), "{level}");
            let lost = world.read(&array, 1, 0, data.len()).unwrap_err();
            assert_eq!(lost.kind, IoErrorKind::Medium);
            assert_eq!(world.read(&array, 1, 256 << 10, 256 << 10).unwrap(), data[256 << 10..]);
            world.write(&array, 1, 0, &data).unwrap();
            assert_eq!(world.read(&array, 0, 0, data.len()).unwrap(), data);
            world.stop(&control);
            assert_eq!(logged(&world, &members[disks]), None, "{level}");
        }
    }
}

fn add(world: &World, control: &Rc<Control>, member: &Arc<TestMember>) {
    let (control, opener) = (Rc::clone(control), Arc::clone(member) as Arc<dyn Opener>);
    world.run(async move { control.membership().add(opener, false).await }).unwrap();
}

#[test]
fn a_rebuild_takes_rows_from_where_they_are_not_bad() {
    let world = World::new(1);
    let members = members("m", 6, 6 * MIB);
    world.create(&members[..5], options(Level::Raid6, 5));
    let data = pattern(4, 768 << 10);
    let (array, control) = world.assemble(&members[..5]);
    world.write(&array, 0, 0, &data).unwrap();
    world.stop(&control);
    for (member, rows) in
        [(1, 8 * KIB..12 * KIB), (2, 16 * KIB..17 * KIB), (3, 64 * KIB..128 * KIB)]
    {
        record(&world, &members[member], std::slice::from_ref(&rows));
        spoil(&world, &members[member], rows);
    }
    let degraded = AssembleOptions { start_degraded: true, ..AssembleOptions::default() };
    let array = world.try_assemble(&members[1..5], degraded).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    add(&world, &control, &members[5]);
    world.wait_idle(&control);
    assert_eq!(world.status(&control).degraded, 0);
    assert_eq!(logged(&world, &members[5]), None);
    assert_eq!(world.read(&array, 0, 0, data.len()).unwrap(), data);
    world.stop(&control);
}

#[test]
fn a_repair_writes_over_bad_blocks_and_a_check_leaves_them() {
    all_levels(1, |world, members| {
        let (array, control) = world.assemble(members);
        let data = pattern(6, 512 << 10);
        world.write(&array, 0, 0, &data).unwrap();
        world.stop(&control);
        record(world, &members[0], &[8 * KIB..12 * KIB]);
        spoil(world, &members[0], 8 * KIB..12 * KIB);
        let (array, control) = world.assemble(members);
        assert_eq!(world.check(&control), 0);
        world.stop(&control);
        assert_eq!(logged(world, &members[0]), Some(vec![8 * KIB..12 * KIB]));
        drop(array);
        let (array, control) = world.assemble(members);
        control.jobs().start_repair().unwrap();
        world.wait_idle(&control);
        assert_eq!(world.read(&array, 0, 0, data.len()).unwrap(), data);
        assert_eq!(world.check(&control), 0);
        world.stop(&control);
        assert_eq!(logged(world, &members[0]), None);
    });
}

#[test]
fn a_block_that_cannot_be_read_nor_mended_is_recorded() {
    all_levels(1, |world, members| {
        let (array, control) = world.assemble(members);
        let data = pattern(6, 512 << 10);
        world.write(&array, 0, 0, &data).unwrap();
        for member in members {
            let rows = if member.ram.name() == "m0" { 8 * KIB..8 * KIB + 512 } else { 0..0 };
            let bad = on_device(world, member, rows);
            member.unreadable.lock().unwrap().push(bad.clone());
            member.defects.lock().unwrap().push(bad);
        }
        control.jobs().start_repair().unwrap();
        world.wait_idle(&control);
        assert_eq!(world.read(&array, 0, 0, data.len()).unwrap(), data);
        let status = world.status(&control);
        assert!(status.members.iter().all(|member| member.state == MemberState::InSync));
        let logged = logged(world, &members[0]).unwrap();
        let [bad] = logged.as_slice() else { panic!("{logged:?}") };
        assert!(bad.start == 8 * KIB && bad.end > 8 * KIB && bad.end <= 12 * KIB, "{bad:?}");
        let read = members[0].read.load(Ordering::Relaxed);
        assert_eq!(world.read(&array, 0, 0, data.len()).unwrap(), data);
        assert!(members[0].read.load(Ordering::Relaxed) >= read);
        world.stop(&control);
    });
}

#[test]
fn blocks_that_are_bad_on_every_member_are_written_and_good_again() {
    let world = World::new(1);
    let members = members("m", 5, 6 * MIB);
    world.create(&members, options(Level::Raid5, 5));
    for member in &members {
        record(&world, member, &[8 * KIB..12 * KIB]);
    }
    record(&world, &members[1], &[]);
    let (array, control) = world.assemble(&members);
    let data = pattern(7, 256 << 10);
    world.write(&array, 0, 0, &data).unwrap();
    assert_eq!(world.read(&array, 0, 0, data.len()).unwrap(), data);
    world.stop(&control);
    for member in &members {
        assert_eq!(logged(&world, member), None);
    }
}

/// Loses the bad-block log of a member, which starts at this byte.
type Loss = fn(&World, &Arc<TestMember>, u64);

/// A log that makes no sense, and one that cannot be read.
const LOSSES: [Loss; 2] = [
    |world, member, at| world.scribble(member, at, &[0; 4096]),
    |_, member, at| member.unreadable.lock().unwrap().push(at..at + 512),
];

fn lose_log(world: &World, member: &Arc<TestMember>, lose: Loss) {
    record(world, member, &[8 * KIB..12 * KIB]);
    let at = world.superblock(member).bblog_sector().unwrap() * 512;
    lose(world, member, at);
}

#[test]
fn a_member_whose_log_is_lost_is_left_out() {
    for lose in LOSSES {
        let world = World::new(1);
        let (members, array, control) = world.full_array((Level::Raid5, 3), 6 * MIB, true);
        let all = world.read(&array, 0, 0, array.info().device.size as usize).unwrap();
        world.stop(&control);
        lose_log(&world, &members[2], lose);
        let (array, control) = world.assemble(&members);
        let status = world.status(&control);
        assert_eq!(status.degraded, 1);
        assert!(status.left_out[0].starts_with("m2: its bad-block log"), "{:?}", status.left_out);
        assert!(world.read(&array, 0, 0, all.len()).unwrap() == all);
        world.write(&array, 0, 0, &pattern(9, 64 << 10)).unwrap();
        world.stop(&control);

        // It does not count again when its log can be read again.
        record(&world, &members[2], &[]);
        members[2].unreadable.lock().unwrap().clear();
        let (_array, control) = world.assemble(&members);
        assert_eq!(world.status(&control).degraded, 1);
    }
}

#[test]
fn an_array_that_cannot_do_without_a_member_whose_log_is_lost_is_refused() {
    for (level, disks, lost) in [(Level::Raid5, 3, 2), (Level::Raid1, 2, 2), (Level::Raid0, 2, 1)] {
        for lose in LOSSES {
            let world = World::new(1);
            let members = members("m", disks, 6 * MIB);
            world.create(&members, options(level, disks));
            members.iter().take(lost).for_each(|member| lose_log(&world, member, lose));
            let before: Vec<_> = members.iter().map(|member| world.superblock(member)).collect();
            let error = world.try_assemble(&members, AssembleOptions::default()).err().unwrap();
            let said = error.to_string();
            assert!(matches!(error, AssembleError::NotEnough { .. }), "{level}: {said}");
            assert!(said.contains("m0: its bad-block log"), "{level}: {said}");
            let after: Vec<_> = members.iter().map(|member| world.superblock(member)).collect();
            assert_eq!(before, after, "{level}");
        }
    }
}

#[test]
fn levels_without_redundancy_ignore_the_log_and_keep_it() {
    let world = World::new(1);
    let members = members("m", 2, 6 * MIB);
    world.create(&members, options(Level::Raid0, 2));
    record(&world, &members[0], &[8 * KIB..12 * KIB]);
    let (array, control) = world.assemble(&members);
    let data = pattern(7, 256 << 10);
    world.write(&array, 0, 0, &data).unwrap();
    assert_eq!(world.read(&array, 0, 0, data.len()).unwrap(), data);
    world.stop(&control);
    assert_eq!(logged(&world, &members[0]), Some(vec![8 * KIB..12 * KIB]));
}

#[test]
fn a_silent_member_is_waited_for_that_alone_holds_what_is_bad_elsewhere() {
    all_levels(1, |world, members| {
        // As many members have lost these rows as the level survives.
        let level = world.superblock(&members[0]).level;
        let lost: &[usize] = if level == 6 { &[0, 1] } else { &[0] };
        for member in lost {
            record(world, &members[*member], &[8 * KIB..12 * KIB]);
        }
        let deaf = lost.len();
        let (array, control) = world.assemble(members);
        members[deaf].deaf.store(true, Ordering::Relaxed);
        let write = start_write(world, &array, 512 << 10);
        world.sleep(300 * SECOND);
        assert_eq!(world.status(&control).members[deaf].state, MemberState::InSync);
        let c = Rc::clone(&control);
        let left = start(world, async move { c.stop().await });
        world.sleep(2 * SECOND);
        assert!(left.borrow_mut().take().is_some_and(|left| !left.is_well()));
        assert!(write.borrow().is_some());
        members[deaf].deaf.store(false, Ordering::Relaxed);
        world.sleep(SECOND);
        for member in members {
            assert_ne!(world.superblock(member).roles[deaf], Role::Faulty);
        }
    });
}

#[test]
fn a_silent_member_is_failed_although_blocks_are_bad_elsewhere_that_it_does_not_hold() {
    let (world, members) = (World::new(1), members("m", 4, 6 * MIB));
    world.create(&members, options(Level::Raid10, 4));
    // The copies of these are on the first two.
    record(&world, &members[0], &[8 * KIB..12 * KIB]);
    let (array, control) = world.assemble(&members);
    members[2].deaf.store(true, Ordering::Relaxed);
    let writes: Vec<_> =
        (0..4).map(|nr| start_write(&world, &array, 512 * KIB + nr * CHUNK)).collect();
    world.sleep(60 * SECOND);
    assert_eq!(world.status(&control).members[2].state, MemberState::Faulty);
    assert!(writes.iter().all(|write| *write.borrow() == Some(true)));
    members[2].deaf.store(false, Ordering::Relaxed);
    world.sleep(SECOND);
    world.stop(&control);
}
