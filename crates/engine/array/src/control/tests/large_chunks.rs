//! Arrays whose chunks are larger than what a job holds of them at a time.

use crate::control::tests::world::{World, members, pattern};
use crate::options::CreateOptions;
use braid_layout::Level;
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;

#[test]
fn a_large_chunk_is_checked_and_repaired_in_slices() {
    for (level, layout) in [(Level::Raid5, None), (Level::Raid10, None)] {
        let members = members("m", 3, 130 * MIB);
        let world = World::new(1);
        let options = CreateOptions {
            assume_clean: true,
            chunk_size: Some(32 * MIB),
            layout,
            ..CreateOptions::new("data", level, 3)
        };
        world.create(&members, options);
        let (array, control) = world.assemble(&members);
        world.write(&array, 0, 5 * MIB, &pattern(0, 64 << 10)).unwrap();
        let data = world.superblock(&members[1]).data_offset * 512;
        for at in [MIB, 20 * MIB] {
            world.scribble(&members[1], data + at, &[0x77; 4096]);
        }
        let reads: u64 = members.iter().map(|m| m.reads.load(Ordering::Relaxed)).sum();
        assert_eq!(world.check(&control), 16, "{level}");
        let now: u64 = members.iter().map(|m| m.reads.load(Ordering::Relaxed)).sum();
        assert!(now - reads >= 64, "{level}: {} reads of 32 MiB", now - reads);
        control.jobs().start_repair().unwrap();
        world.wait_idle(&control);
        assert_eq!(world.check(&control), 0, "{level}");
        assert_eq!(world.read(&array, 0, 5 * MIB, 64 << 10).unwrap(), pattern(0, 64 << 10));
    }
}
