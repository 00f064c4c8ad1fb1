//! Writes to members that lend their memory leave the same bytes as writes by request.

use super::world::{World, members, pattern};
use crate::options::{CreateOptions, MemberSelector};
use braid_device::Target;
use braid_layout::{Level, layout_number};
use std::rc::Rc;
use std::sync::atomic::Ordering;

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

/// The array's bytes and all members' data after those writes; `lost` slots failed before them.
fn run(
    level: Level,
    layout: Option<u32>,
    lost: usize,
    lends: bool,
) -> (Vec<u8>, Vec<Vec<u8>>, u64) {
    let disks = if level == Level::Raid6 { 7 } else { 5 };
    let world = World::new(1);
    let members = members("m", disks, 3 << 20);
    members.iter().for_each(|member| member.lends.store(lends, Ordering::Relaxed));
    let options = CreateOptions {
        chunk_size: (level != Level::Raid1).then_some(CHUNK),
        layout,
        assume_clean: true,
        ..CreateOptions::new("memory", level, disks)
    };
    world.create(&members, options);
    let (array, control) = world.assemble(&members);
    for nr in 0..lost {
        let (control, name) = (Rc::clone(&control), MemberSelector::Name(format!("m{nr}")));
        world.run(async move { control.fail(&name).await }).unwrap();
    }
    let size = array.info().device.size;
    for (offset, len) in writes(size) {
        world.write(&array, 0, offset, &pattern(offset ^ len as u64, len)).unwrap();
    }
    if lost == 0 && level.has_redundancy() {
        control.start_check().unwrap();
        world.wait_idle(&control);
        assert_eq!(world.status(&control).mismatch_cnt, 0, "{level} {layout:?}");
    }
    let bytes = world.read(&array, 0, 0, size as usize).unwrap();
    for (offset, len) in writes(size).into_iter().filter(|(_, len)| *len <= 8192) {
        let at = offset as usize;
        assert_eq!(world.read(&array, 0, offset, len).unwrap(), bytes[at..at + len], "{level}");
    }
    let full = world.status(&control).counters.full_stripes;
    world.stop(&control);
    let data = world.superblock(&members[disks - 1]).data_offset as usize * 512;
    let members = members[lost..].iter().map(|member| world.contents(member)[data..].to_vec());
    (bytes, members.collect(), full)
}

#[test]
fn members_that_lend_their_memory_get_the_same_bytes() {
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
        let (bytes, members, full) = run(level, layout, lost, true);
        let (expected, by_request, full_by_request) = run(level, layout, lost, false);
        assert!(bytes == expected, "{level} {layout:?} without {lost}");
        assert!(members == by_request, "{level} {layout:?} without {lost}: members differ");
        assert_eq!(full, full_by_request, "{level}: in place or not, what is counted is the same");
        assert_eq!(full > 0, level.is_parity(), "{level}: full stripes");
    }
}
