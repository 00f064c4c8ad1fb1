//! The sample arrays: one of each kind of metadata, as they are left by a stop, by a crash, in the middle of a rebuild
//! and in the middle of a reshape.

use super::super::clock;
use super::disk::Disk;
use super::uses::{self, context};
use braid_array::create::create;
use braid_array::options::{AssembleOptions, CreateBitmap, CreateOptions, SyncSpeed};
use braid_device::Opener;
use braid_format::SECTOR;
use braid_format::superblock::{Reshape, Superblock, Version};
use braid_layout::{Level, layout_number};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// How an array is left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Stopped,
    Crashed,
}

/// All samples. What goes wrong here is found by the tests of the engine.
pub fn all() -> Vec<Vec<Disk>> {
    let bitmap = CreateBitmap::Internal { chunk: Some(64 << 10) };
    let chunk_size = Some(64 << 10);
    let new = |level, disks| CreateOptions {
        assume_clean: true,
        chunk_size: if level == Level::Raid1 { None } else { chunk_size },
        bitmap: CreateBitmap::None,
        ..CreateOptions::new("data", level, disks)
    };
    let far = layout_number(Level::Raid10, "f2").ok();
    let mut samples = vec![
        made(64 * MIB, Left::Stopped, CreateOptions { bitmap, ..new(Level::Raid1, 2) }),
        // As large as disks will be for some time.
        made(
            1 << 46,
            Left::Crashed,
            CreateOptions { spares: 1, bitmap: CreateBitmap::Default, ..new(Level::Raid5, 4) },
        ),
        made(
            64 * MIB,
            Left::Crashed,
            CreateOptions { version: Version::V1_1, ..new(Level::Raid6, 5) },
        ),
        made(
            64 * MIB,
            Left::Stopped,
            CreateOptions { version: Version::V1_0, layout: far, ..new(Level::Raid10, 4) },
        ),
        made(
            64 * MIB,
            Left::Stopped,
            CreateOptions { version: Version::V0_90, bitmap, ..new(Level::Raid5, 3) },
        ),
        made(64 * MIB, Left::Stopped, new(Level::Raid0, 3)),
        made(64 * MIB, Left::Stopped, new(Level::Linear, 2)),
    ];
    let reshaping = |superblock: &mut Superblock| {
        superblock.reshape = Some(Reshape {
            new_level: 5,
            position: 8 * MIB / SECTOR as u64,
            delta_disks: 1,
            new_layout: 2,
            new_chunk_sectors: 128,
            backwards: false,
        });
    };
    samples.push(changed(made(64 * MIB, Left::Stopped, new(Level::Raid5, 4)), reshaping));
    let rebuilding = |superblock: &mut Superblock| {
        if superblock.dev_number == 1 {
            superblock.recovery_offset = Some(4 * MIB / SECTOR as u64);
        }
    };
    let mirror = CreateOptions { bitmap, ..new(Level::Raid1, 3) };
    samples.push(changed(made(64 * MIB, Left::Crashed, mirror), rebuilding));
    samples
}

fn made(size: u64, left: Left, options: CreateOptions) -> Vec<Disk> {
    let count = options.raid_disks + options.spares;
    let disks: Vec<Disk> = (0..count).map(|nr| Disk::new(format!("m{nr}"), size)).collect();
    let shard = clock::shard();
    let context = context(&shard);
    let openers = || disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Opener>);
    let (all, given) = (openers().collect::<Vec<_>>(), openers().map(Some).collect());
    let taken = disks.clone();
    let kept = shard.block_on({
        let shard = shard.clone();
        async move {
            create(&context, given, options).await.expect("the sample can be made");
            let sync_speed = SyncSpeed { min_kib: 0, max_kib: 1024 };
            let options = AssembleOptions { sync_speed, ..AssembleOptions::default() };
            let array = uses::assembled(&context, all, options).await;
            let array = array.expect("what was made can be assembled");
            uses::read_and_write(&shard, &*array).await;
            let crashed = taken.iter().map(Disk::copy).collect::<Vec<_>>();
            uses::stop(&shard, &array).await;
            if left == Left::Crashed { crashed } else { taken.iter().map(Disk::copy).collect() }
        }
    });
    shard.abandon();
    kept
}

/// The same members with something else in their superblocks.
fn changed(disks: Vec<Disk>, change: impl Fn(&mut Superblock)) -> Vec<Disk> {
    for disk in &disks {
        let mut superblock = disk.superblock().expect("a member has one");
        change(&mut superblock);
        disk.put(superblock.super_offset * SECTOR as u64, &superblock.to_bytes());
    }
    disks
}
