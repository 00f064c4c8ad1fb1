//! Members with logical blocks of 512 and of 4096 bytes in one array: the array has the larger, and every
//! byte that goes to a member, of data or metadata, is in whole blocks of that member.

use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::error::{AssembleError, CreateError};
use crate::options::{AssembleOptions, CreateBitmap, CreateOptions, MemberSelector};
use braid_device::{Opener, Target};
use braid_format::superblock::Version;
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;
const CHUNK: u64 = 64 << 10;
const SECOND: u64 = 1_000_000_000;

/// Every second member has large blocks.
fn mixed(prefix: &str, count: usize, size: u64) -> Vec<Arc<TestMember>> {
    let members = members(prefix, count, size);
    for member in members.iter().skip(1).step_by(2) {
        member.block.store(4096, Ordering::Relaxed);
    }
    members
}

fn options(level: Level, raid_disks: usize) -> CreateOptions {
    CreateOptions {
        chunk_size: (level != Level::Raid1).then_some(CHUNK),
        ..CreateOptions::new("mixed", level, raid_disks)
    }
}

fn add(
    world: &World,
    control: &Rc<Control>,
    member: &Arc<TestMember>,
) -> Result<crate::control::membership::Added, crate::error::ControlError> {
    let (control, opener) = (Rc::clone(control), Arc::clone(member) as Arc<dyn Opener>);
    world.run(async move { control.membership().add(opener, false).await })
}

#[test]
fn an_array_of_both_has_the_larger_block_and_lives_through_all_that_happens_to_arrays() {
    let levels = [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid6, 4), (Level::Raid10, 4)];
    for (level, disks) in levels {
        for version in [Version::V0_90, Version::V1_0, Version::V1_1, Version::V1_2] {
            let what = format!("{level} {version}");
            let world = World::new(1);
            let members = mixed("m", disks + 1, 8 * MIB);
            let options = CreateOptions {
                version,
                bitmap: CreateBitmap::Internal { chunk: Some(CHUNK) },
                ..options(level, disks)
            };
            world.create(&members[..disks], options);
            let (array, control) = world.assemble(&members[..disks]);
            let device = array.open(&world.shards[0]).unwrap();
            assert_eq!(device.info().logical_block, 4096, "{what}");
            assert_eq!(device.info().size % 4096, 0, "{what}");
            let bytes = pattern(3, 5 * CHUNK as usize + 4096);
            world.write(&array, 0, 3 * 4096, &bytes).unwrap();
            assert!(world.write(&array, 0, 512, &bytes[..512]).is_err());
            // A member of small blocks is replaced by whichever comes.
            let selector = MemberSelector::Name("m0".to_string());
            let failing = Rc::clone(&control);
            world.run(async move {
                failing.membership().fail(&selector).await.unwrap();
                failing.membership().remove(&selector).await.unwrap();
            });
            add(&world, &control, &members[disks]).unwrap();
            world.wait_idle(&control);
            assert_eq!(world.status(&control).degraded, 0, "{what}");
            world.sleep(20 * SECOND);
            let more = pattern(9, CHUNK as usize);
            world.write(&array, 0, 40 * 4096, &more).unwrap();
            drop((array, control, device));
            let world = world.crash();
            let (array, control) = world.assemble(&members[1..]);
            let bitmap = world.status(&control).bitmap.unwrap();
            assert!(bitmap.dirty > 0 && bitmap.dirty < 5, "{what}: {bitmap:?}");
            assert_eq!(world.check(&control), 0, "{what}");
            assert!(world.read(&array, 0, 40 * 4096, more.len()).unwrap() == more, "{what}");
            let before = world.read(&array, 0, 3 * 4096, 37 * 4096).unwrap();
            assert!(before == bytes[..37 * 4096], "{what}");
            world.stop(&control);
        }
    }
}

#[test]
fn a_member_with_larger_blocks_than_the_running_array_has_is_refused() {
    let world = World::new(1);
    let members = mixed("m", 4, 8 * MIB);
    let small = [Arc::clone(&members[0]), Arc::clone(&members[2])];
    world.create(&small, options(Level::Raid1, 2));
    let (_, control) = world.assemble(&small);
    let error = add(&world, &control, &members[1]).unwrap_err().to_string();
    assert!(error.contains("4096") && error.contains("512"), "{error}");
    world.stop(&control);
    // Together from the start they work: whoever uses the array learns of the larger block first.
    let superblock = world.superblock(&small[0]);
    assert_eq!(superblock.raid_disks, 2);
    small[1].block.store(4096, Ordering::Relaxed);
    let (array, control) = world.assemble(&small);
    assert_eq!(array.open(&world.shards[0]).unwrap().info().logical_block, 4096);
    add(&world, &control, &members[1]).unwrap();
    world.stop(&control);
}

#[test]
fn what_cannot_be_had_in_whole_blocks_of_a_member_is_refused_before_anything_is_written() {
    let world = World::new(1);
    let members = mixed("m", 2, 8 * MIB);
    let create = |options: CreateOptions| {
        let openers = members.iter().map(|member| Some(Arc::clone(member) as Arc<dyn Opener>));
        let (ctx, openers) = (world.ctx.clone(), openers.collect());
        world.run(async move { crate::create::create(&ctx, openers, options).await })
    };
    let half = CreateOptions { data_offset: Some(MIB + 512), ..options(Level::Raid1, 2) };
    let small = CreateOptions { chunk_size: Some(2048), ..options(Level::Raid0, 2) };
    for (options, what) in [(half, "a data offset"), (small, "a chunk")] {
        match create(options) {
            Err(CreateError::NotAligned { what: found, block: 4096, name, .. }) => {
                assert_eq!((found, name.as_str()), (what, "m1"));
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    // An array of disks with sectors of 512 bytes, moved to one with larger: named, not damaged.
    members[1].block.store(512, Ordering::Relaxed);
    create(CreateOptions { chunk_size: Some(2048), ..options(Level::Raid0, 2) }).unwrap();
    members[1].block.store(4096, Ordering::Relaxed);
    let error = world.try_assemble(&members, AssembleOptions::default()).err().unwrap();
    assert!(matches!(error, AssembleError::NotAligned { block: 4096, .. }), "{error}");
}
