//! Checks and repairs that go on where they were interrupted, over parts of an array, and of parity only.

use crate::control::Control;
use crate::control::tests::world::{World, members, pattern};
use crate::error::ControlError;
use crate::options::{AssembleOptions, CreateOptions, Scrub, SyncRange};
use crate::state::findings::{Findings, Verdict};
use crate::status::{JobOutcome, Scrubbed};
use braid_device::Target;
use braid_layout::Level;
use std::rc::Rc;
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

/// Starts a check or repair, lets `turns` pass and interrupts it; what it has come to.
fn part(world: &World, control: &Rc<Control>, scrub: Scrub, turns: usize) -> Scrubbed {
    let nr = control.jobs().start_scrub(scrub).unwrap();
    let ended = |part: Scrubbed| part.nr == nr && part.outcome.is_some();
    for _ in 0..turns {
        if control.jobs().scrub_now().is_some_and(ended) {
            break;
        }
        world.step();
    }
    control.jobs().cancel_scrub();
    world.wait_idle(control);
    let part = control.jobs().scrub_now();
    part.filter(|part| part.nr == nr).unwrap_or(Scrubbed {
        nr,
        kind: scrub.kind(),
        range: scrub.position..scrub.position,
        position: scrub.position,
        mismatches: scrub.mismatches,
        findings: Findings::default(),
        outcome: Some(JobOutcome::Interrupted),
    })
}

#[test]
fn a_check_that_goes_on_finds_everything_once() {
    for level in [Level::Raid5, Level::Raid6, Level::Raid1, Level::Raid10] {
        let disks = if level == Level::Raid1 { 2 } else { 4 };
        let world = World::new(2);
        let (members, _array, control) = world.full_array((level, disks), 20 * MIB, false);
        let start = world.superblock(&members[0]).data_offset * 512;
        for at in 0..12 {
            world.scribble(&members[0], start + at * MIB + 4096, &pattern(99, 4096));
        }
        let whole = world.check(&control);
        let all = world.status(&control).scrubbed.unwrap();
        assert!(whole > 0 && all.position == all.range.end, "{level}");
        // So that time passes between windows.
        control.jobs().set_sync_speed(0, 10 << 10).unwrap();
        let (mut so_far, mut places, mut parts) = (Scrub::default(), 0, 0);
        loop {
            parts += 1;
            let found =
                part(&world, &control, so_far, if parts > 200 { 100_000 } else { 1 + parts % 40 });
            assert_eq!(found.range.start, so_far.position, "{level}");
            places += found.findings.places.len();
            (so_far.position, so_far.mismatches) = (found.position, found.mismatches);
            if found.outcome == Some(JobOutcome::Done) {
                break;
            }
        }
        assert!(parts > 1, "{level}: nothing was interrupted");
        assert_eq!((so_far.mismatches, places), (whole, all.findings.places.len()), "{level}");
    }
}

#[test]
fn nothing_is_gone_through_again_from_the_end_of_a_part_of_a_unit() {
    for level in [Level::Raid5, Level::Raid1, Level::Raid10] {
        let disks = if level == Level::Raid1 { 2 } else { 4 };
        let world = World::new(1);
        let (_members, _array, control) =
            world.full_array((level, disks), 4 * MIB + 36 * KIB, false);
        world.check(&control);
        let position = world.status(&control).scrubbed.unwrap().position;
        let rest = control.jobs().start_scrub(Scrub { position, ..Scrub::default() });
        assert!(matches!(rest, Err(ControlError::NothingToScrub { .. })), "{level}: {rest:?}");
    }
}

#[test]
fn sync_min_and_sync_max_bound_a_check_and_only_a_check() {
    let world = World::new(1);
    let (members, _array, control) = world.full_array((Level::Raid5, 3), 12 * MIB, false);
    let start = world.superblock(&members[0]).data_offset * 512;
    for at in [1, 4, 7] {
        world.scribble(&members[0], start + at * MIB, &pattern(99, 512));
    }
    let range = SyncRange { min: 2 * MIB + 1, max: 5 * MIB };
    control.jobs().set_sync_range(range).unwrap();
    assert_eq!(world.status(&control).sync_range, range);
    world.check(&control);
    let found = world.status(&control).scrubbed.unwrap();
    assert_eq!((found.range, found.position), (2 * MIB..5 * MIB, 5 * MIB));
    assert_eq!(found.outcome, Some(JobOutcome::Done));
    let places: Vec<u64> = found.findings.places.iter().map(|at| at.component.start).collect();
    assert_eq!(places, [4 * MIB]);
    // Where nothing is left, and where nothing could be.
    let beyond = Scrub { position: 5 * MIB, ..Scrub::default() };
    let refused = control.jobs().start_scrub(beyond).unwrap_err();
    assert!(matches!(refused, ControlError::NothingToScrub { .. }), "{refused}");
    let refused = control.jobs().set_sync_range(SyncRange { min: MIB, max: MIB }).unwrap_err();
    assert!(refused.to_string().contains("sync_max"), "{refused}");
    // It is one of the options of an assembly.
    world.stop(&control);
    let options = AssembleOptions { sync_range: range, ..AssembleOptions::default() };
    let array = world.try_assemble(&members, options).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    assert_eq!(world.status(&control).sync_range, range);
}

#[test]
fn a_repair_of_parity_only_leaves_data_as_it_is() {
    for (level, disks) in [(Level::Raid6, 5), (Level::Raid1, 3)] {
        let (world, members) = (World::new(1), members("m", disks, 3 * MIB));
        let options = CreateOptions {
            chunk_size: (level != Level::Raid1).then_some(64 * KIB),
            assume_clean: true,
            ..CreateOptions::new("data", level, disks)
        };
        world.create(&members, options);
        let (array, control) = world.assemble(&members);
        let size = array.info().device.size as usize;
        world.write(&array, 0, 0, &pattern(0, size)).unwrap();
        world.wait_idle(&control);
        // Of the first stripe the last member and the first hold parity, and of copies the first one counts.
        let member = &members[if level == Level::Raid6 { 1 } else { 0 }];
        let start = world.superblock(member).data_offset * 512;
        world.scribble(member, start + 8192, &pattern(99, 4096));
        let wrong = world.read(&array, 0, 0, size).unwrap();
        let parity_only = Scrub { repair: true, parity_only: true, ..Scrub::default() };
        control.jobs().start_scrub(parity_only).unwrap();
        world.wait_idle(&control);
        let found = world.status(&control).scrubbed.unwrap().findings;
        let [place] = found.places.as_slice() else { panic!("{level} {found:?}") };
        assert_eq!((place.verdict, place.mended), (Verdict::Unknown, true), "{level}");
        assert!(place.members.is_empty() && found.wrong.is_empty(), "{level}");
        assert_eq!(world.check(&control), 0, "{level}");
        if level == Level::Raid6 {
            assert_ne!(wrong, pattern(0, size));
        }
        let held = world.contents(member);
        let held = &held[(start + 8192) as usize..][..4096];
        assert!(held == &pattern(99, 4096)[..], "{level}: the member has been written to");
    }
}

#[test]
fn what_a_repair_has_mended_is_durable_when_it_has_ended() {
    for level in [Level::Raid5, Level::Raid6, Level::Raid1, Level::Raid10] {
        let world = World::new(1);
        let (members, _array, control) = world.full_array((level, 4), 4 * MIB, false);
        // Clean: nothing else flushes from here on.
        world.sleep(10_000_000_000);
        let start = world.superblock(&members[0]).data_offset * 512;
        world.scribble(&members[0], start + 4096, &pattern(99, 4096));
        let flushes =
            || members.iter().map(|m| m.flushes.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let before = flushes();
        control.jobs().start_scrub(Scrub { repair: true, ..Scrub::default() }).unwrap();
        world.wait_idle(&control);
        assert!(world.status(&control).mismatch_cnt > 0, "{level}");
        for (nr, (before, after)) in before.iter().zip(flushes()).enumerate() {
            assert!(after > *before, "{level}: m{nr} was not flushed");
        }
    }
}
