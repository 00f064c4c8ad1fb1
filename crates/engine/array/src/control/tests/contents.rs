//! Writes of every size leave what was written, and redundancy that matches it.

use crate::control::tests::world::{World, members, pattern};
use crate::options::{CreateOptions, MemberSelector};
use braid_device::Target;
use braid_layout::{Level, layout_number};
use std::rc::Rc;

const CHUNK: u64 = 16 << 10;

/// Where and how much: the same on every run.
fn writes(array_size: u64) -> Vec<(u64, usize)> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    (0..300)
        .map(|nr| {
            let len = match nr % 3 {
                0 => 512 * (1 + next(16)),
                1 => 4096,
                _ => 4096 * (1 + next(40)),
            };
            (512 * next((array_size - len) / 512), len as usize)
        })
        .collect()
}

/// Carries the writes out, with so many slots failed before them, and compares all that the array holds.
fn run(level: Level, layout: Option<u32>, lost: usize) {
    let disks = if level == Level::Raid6 { 7 } else { 5 };
    let world = World::new(1);
    let members = members("m", disks, 3 << 20);
    let options = CreateOptions {
        chunk_size: (level != Level::Raid1).then_some(CHUNK),
        layout,
        assume_clean: true,
        ..CreateOptions::new("written", level, disks)
    };
    world.create(&members, options);
    let (array, control) = world.assemble(&members);
    for nr in 0..lost {
        let (control, name) = (Rc::clone(&control), MemberSelector::Name(format!("m{nr}")));
        world.run(async move { control.membership().fail(&name).await }).unwrap();
    }
    let size = array.info().device.size;
    let mut expected = vec![0; size as usize];
    for (offset, len) in writes(size) {
        let bytes = pattern(offset ^ len as u64, len);
        world.write(&array, 0, offset, &bytes).unwrap();
        expected[offset as usize..][..len].copy_from_slice(&bytes);
    }
    if lost == 0 && level.has_redundancy() {
        control.jobs().start_check().unwrap();
        world.wait_idle(&control);
        assert_eq!(world.status(&control).mismatch_cnt, 0, "{level} {layout:?}");
    }
    let bytes = world.read(&array, 0, 0, size as usize).unwrap();
    assert!(bytes == expected, "{level} {layout:?} without {lost}");
    for (offset, len) in writes(size).into_iter().filter(|(_, len)| *len <= 8192) {
        let at = offset as usize;
        assert_eq!(world.read(&array, 0, offset, len).unwrap(), expected[at..at + len], "{level}");
    }
    let full = world.status(&control).counters.full_stripes;
    assert_eq!(full > 0, level.is_parity(), "{level}: full stripes");
    world.stop(&control);
}

#[test]
fn every_level_holds_what_was_written_whole_and_degraded() {
    let ddf = layout_number(Level::Raid6, "ddf-zero-restart").unwrap();
    for (level, layout, lost) in [
        (Level::Raid4, None, 0),
        (Level::Raid5, None, 0),
        (Level::Raid5, None, 1),
        (Level::Raid6, None, 0),
        (Level::Raid6, Some(ddf), 0),
        (Level::Raid6, None, 1),
        (Level::Raid6, None, 2),
        (Level::Raid0, None, 0),
        (Level::Raid1, None, 0),
        (Level::Raid1, None, 1),
        (Level::Raid10, None, 0),
        (Level::Raid10, None, 1),
    ] {
        run(level, layout, lost);
    }
}
