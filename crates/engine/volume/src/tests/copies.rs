//! Files with copies: a brick that is lost takes nothing along, and a copy that missed something is not read.

use super::failing::mount;
use super::*;
use crate::NewJob;
use braid_device::IoErrorKind;
use braid_filesystem::{Allocate, SetAttr};
use braid_format::volume::keys;
use braid_format::volume::sums::IntentRecord;
use braid_shard::buffer::SharedMemory;
use std::sync::Arc;

const STRIPE: u64 = 128 << 10;

/// Bytes that differ from block to block.
fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 4096) as u8 ^ (at as u8).wrapping_mul(seed | 1)).collect()
}

/// The extents of a file's stripe, of each copy.
async fn extents(volume: &Volume, ino: Ino, stripe: u64) -> Vec<(u8, u16, u32)> {
    let inode = volume.inodes.file(ino).await.unwrap();
    let rows = inode.with(|record| record.held);
    let stripe = volume.extents.stripe(&inode.extents, stripe, rows).await.unwrap();
    stripe.extents().map(|(copy, extent)| (copy, extent.brick, extent.written)).collect()
}

/// Waits for the job, which must succeed.
async fn job(volume: &Rc<Volume>, new: NewJob) {
    volume.start_job(new).await.unwrap();
    volume.wait_job().await.unwrap();
}

async fn is_well(volume: &Volume) {
    let report = volume.check(false).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
}

/// Mounts without the bricks of these numbers.
fn mount_without(world: &World, store: &ModelStore, missing: &[usize]) -> Rc<Volume> {
    let mut from = world.mount_of(store);
    let mut at = 0;
    from.devices.retain(|_| {
        at += 1;
        !missing.contains(&(at - 1))
    });
    let shard = world.shard.clone();
    world.shard.block_on(async move { Volume::mount(&shard, from).await }).unwrap()
}

#[test]
fn a_mark_of_a_file_of_which_a_crash_has_left_no_record_goes_though_its_brick_is_away() {
    let (world, store) = World::with_copies(STRIPE, &[8, 8, 8], 2);
    let mark = IntentRecord { written_over: false, stale: vec![1] }.encode();
    world.shard.block_on(store.commit(vec![(keys::intent(4711, 0), mark)])).unwrap();
    let volume = mount_without(&world, &store, &[1]);
    world.shard.block_on(async move {
        is_well(&volume).await;
        volume.sync_all().await.unwrap();
        assert_eq!(store.get(&keys::intent(4711, 0)).await, Ok(None));
        volume.close().await.unwrap();
    });
}

#[test]
fn the_copies_of_a_stripe_are_on_different_bricks_and_each_has_all_of_it() {
    let (world, store) = World::with_copies(STRIPE, &[8, 8, 8], 2);
    let volume = world.mount(&store);
    let content = bytes(1 << 20, 3);
    let written = content.clone();
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &written).await.unwrap();
        for stripe in 0..8 {
            let found = extents(&volume, ino, stripe).await;
            assert_eq!(found.len(), 2, "stripe {stripe}");
            assert_ne!(found[0].1, found[1].1, "stripe {stripe}");
            assert_eq!(found[0].2, found[1].2);
        }
        assert_eq!(volume.attr(ino).await.unwrap().blocks, 2 * (2 << 10), "both take space");
        is_well(&volume).await;
        volume.close().await.unwrap();
    });
    for missing in 0..3 {
        let volume = mount_without(&world, &world.crash(&store), &[missing]);
        let expected = content.clone();
        world.shard.block_on(async move {
            let ino = volume.resolve(b"/a").await.unwrap();
            assert!(read_all(&volume, ino).await == expected, "without brick {missing}");
        });
    }
}

#[test]
fn what_a_brick_missed_while_it_was_away_is_read_elsewhere_and_filled_when_it_is_back() {
    let (world, store) = World::with_copies(STRIPE, &[8, 8], 2);
    let volume = world.mount(&store);
    let mut content = bytes(300_000, 5);
    let first = content.clone();
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &first).await.unwrap();
        volume.close().await.unwrap();
    });
    let volume = mount_without(&world, &store, &[0]);
    content[50_000..60_000].fill(7);
    let second = content.clone();
    world.shard.block_on(async move {
        let ino = volume.resolve(b"/a").await.unwrap();
        write(&volume, ino, 50_000, &[7; 10_000]).await.unwrap();
        let new = file(&volume, "b").await;
        write(&volume, new, 0, &[9; 5000]).await.unwrap();
        assert!(read_all(&volume, ino).await == second);
        assert!(volume.status().incomplete);
        volume.close().await.unwrap();
    });
    let volume = world.mount(&store);
    let third = content.clone();
    world.shard.block_on(async move {
        let ino = volume.resolve(b"/a").await.unwrap();
        for _ in 0..4 {
            assert!(read_all(&volume, ino).await == third, "the old copy is not read");
        }
        job(&volume, NewJob::Copies).await;
        assert!(!volume.status().incomplete);
        let new = volume.resolve(b"/b").await.unwrap();
        assert_eq!(extents(&volume, new, 0).await.len(), 2);
        is_well(&volume).await;
        volume.close().await.unwrap();
    });
    let volume = mount_without(&world, &store, &[1]);
    world.shard.block_on(async move {
        let ino = volume.resolve(b"/a").await.unwrap();
        assert!(read_all(&volume, ino).await == content, "the copy that was filled");
        let new = volume.resolve(b"/b").await.unwrap();
        assert_eq!(read_all(&volume, new).await, vec![9; 5000]);
    });
}

#[test]
fn a_brick_that_fails_under_writes_and_reads_costs_nothing() {
    let (world, store) = World::with_copies(STRIPE, &[8, 8, 8], 2);
    let (volume, bricks) = mount(&world, &store, true);
    let content = bytes(1 << 20, 9);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &content).await.unwrap();
        volume.fsync(ino, false).await.unwrap();
        write(&volume, ino, 10_000, &[1; 200_000]).await.unwrap();
        bricks[1].fail(IoErrorKind::Gone);
        write(&volume, ino, 500_000, &[2; 200_000]).await.unwrap();
        volume.fsync(ino, false).await.unwrap();
        let mut expected = content.clone();
        expected[10_000..210_000].fill(1);
        expected[500_000..700_000].fill(2);
        assert!(read_all(&volume, ino).await == expected);
        let new = file(&volume, "b").await;
        write(&volume, new, 0, &[5; 300_000]).await.unwrap();
        volume.sync().await.unwrap();
        assert_eq!(read_all(&volume, new).await, vec![5; 300_000]);
    });
}

#[test]
fn what_a_brick_lost_that_it_had_taken_is_not_trusted_when_it_is_back() {
    let (world, store) = World::with_copies(STRIPE, &[8, 8], 2);
    let (volume, bricks) = mount(&world, &store, true);
    let own = store.clone();
    let old = bytes(256 << 10, 3);
    let before: Vec<u8> = old.clone();
    let ram = Arc::clone(world.bricks[0].memory());
    let snapshot = world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &before).await.unwrap();
        volume.fsync(ino, false).await.unwrap();
        let mut had = vec![0; ram.len()];
        ram.read(0, &mut had);
        // Taken by both, and made durable by one.
        write(&volume, ino, 8192, &[6; 50_000]).await.unwrap();
        bricks[0].fail(IoErrorKind::Gone);
        volume.fsync(ino, false).await.unwrap();
        ram.write(0, &had);
        own.snapshot()
    });
    let store = ModelStore::from_snapshot(&world.shard, snapshot);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let ino = volume.resolve(b"/a").await.unwrap();
        let mut expected = old.clone();
        expected[8192..58_192].fill(6);
        for _ in 0..4 {
            assert!(read_all(&volume, ino).await == expected);
        }
        super::sums::comes(&volume, || volume.sums.unsettled().is_empty()).await;
        volume.close().await.unwrap();
    });
    let volume = mount_without(&world, &store, &[1]);
    world.shard.block_on(async move {
        let ino = volume.resolve(b"/a").await.unwrap();
        let mut expected = bytes(256 << 10, 3);
        expected[8192..58_192].fill(6);
        assert!(read_all(&volume, ino).await == expected, "it was given what it had lost");
    });
}

#[test]
fn rot_in_one_copy_is_mended_by_a_read_and_by_a_scrub() {
    let (world, store) = World::with_copies(STRIPE, &[8, 8], 2);
    let volume = world.mount(&store);
    let rams: Vec<_> = world.bricks.iter().map(|brick| Arc::clone(brick.memory())).collect();
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        let mut content = bytes(128 << 10, 0);
        content[20_000..20_008].copy_from_slice(b"rot here");
        write(&volume, ino, 0, &content).await.unwrap();
        volume.sync().await.unwrap();
        let find = |ram: &SharedMemory| {
            let mut all = vec![0; ram.len()];
            ram.read(0, &mut all);
            all.windows(8).position(|part| part == b"rot here")
        };
        for round in 0..2 {
            for ram in &rams {
                let at = find(ram).expect("each has it");
                ram.write(at, b"ROT");
                if round == 0 {
                    // One of two reads, at the latest, takes that copy.
                    for _ in 0..8 {
                        assert!(read_all(&volume, ino).await == content);
                        volume.read(ino, 16_384, 4096).await.unwrap();
                    }
                }
                volume.start_scrub().unwrap();
                volume.wait_check().await;
                assert_eq!(find(ram), Some(at), "it was mended");
            }
        }
        assert!(volume.status().checksum_mended >= 4);
        for ram in &rams {
            ram.write(find(ram).expect("each has it"), b"ROT");
        }
        assert_eq!(volume.read(ino, 16_384, 8192).await.map(drop), Err(Errno::Io), "in both");
    });
}

#[test]
fn rot_does_not_move_along_where_there_is_another_copy() {
    let (world, store) = World::with_copies(STRIPE, &[8, 8, 8], 2);
    let volume = world.mount(&store);
    let rams: Vec<_> = world.bricks.iter().map(|brick| Arc::clone(brick.memory())).collect();
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        let mut content = bytes(128 << 10, 0);
        content[20_000..20_008].copy_from_slice(b"rot here");
        write(&volume, ino, 0, &content).await.unwrap();
        volume.sync().await.unwrap();
        let find = |ram: &SharedMemory, bytes: &[u8; 8]| {
            let mut all = vec![0; ram.len()];
            ram.read(0, &mut all);
            all.windows(8).position(|part| part == bytes)
        };
        let (brick, at) = (0..3)
            .find_map(|brick| Some((brick, find(&rams[usize::from(brick)], b"rot here")?)))
            .expect("two have it");
        rams[usize::from(brick)].write(at, b"ROT");
        volume.start_job(NewJob::Remove { brick }).await.unwrap();
        volume.wait_job().await.unwrap();
        let left = (0..3).filter(|other| *other != brick).map(|other| &rams[usize::from(other)]);
        for ram in left {
            assert!(find(ram, b"rot here").is_some(), "both that are left have it");
            assert!(find(ram, b"ROT here").is_none(), "it came along");
        }
        assert!(read_all(&volume, ino).await == content);
        is_well(&volume).await;
    });
}

#[test]
fn copies_that_a_crash_left_different_are_made_equal() {
    let (world, store) = World::with_copies(STRIPE, &[8, 8], 2);
    let volume = world.mount(&store);
    let (one, two) = (Arc::clone(world.bricks[0].memory()), Arc::clone(world.bricks[1].memory()));
    let own = store.clone();
    let snapshot = world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &[1; 128 << 10]).await.unwrap();
        volume.sync().await.unwrap();
        write(&volume, ino, 16_384, &[2; 4096]).await.unwrap();
        own.snapshot()
    });
    // The second never had it, as if its cache had been lost.
    let find = |ram: &SharedMemory, byte: u8| {
        let mut all = vec![0; ram.len()];
        ram.read(0, &mut all);
        all.iter().position(|found| *found == byte)
    };
    let at = find(&two, 2).unwrap();
    two.write(at, &[1; 4096]);
    let volume = world.mount(&ModelStore::from_snapshot(&world.shard, snapshot));
    world.shard.block_on(async move {
        let ino = volume.resolve(b"/a").await.unwrap();
        let first = volume.read(ino, 16_384, 4096).await.unwrap()[0];
        super::sums::comes(&volume, || volume.sums.unsettled().is_empty()).await;
        let left = find(&one, 2).is_some();
        assert_eq!(left, find(&two, 2).is_some(), "they are equal");
        assert_eq!(left, first == 2, "what was read once stays");
        assert_eq!(volume.read(ino, 16_384, 4096).await.unwrap()[0], first);
        is_well(&volume).await;
    });
}

#[test]
fn the_number_of_copies_is_changed_while_the_file_is_there() {
    let (world, store) = World::new(STRIPE, &[8, 8, 8]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let folder = make(&volume, ROOT, "d", Kind::Directory).await.unwrap().attr.ino;
        let ino = make(&volume, folder, "a", Kind::File).await.unwrap().attr.ino;
        let content = bytes(700_000, 11);
        write(&volume, ino, 0, &content).await.unwrap();
        let blocks = volume.attr(ino).await.unwrap().blocks;
        for (copies, times) in [(3, 3), (2, 2), (1, 1), (2, 2)] {
            volume.set_copies(folder, copies).await.unwrap();
            volume.wait_job().await.unwrap();
            assert_eq!(volume.copies_of(ino).await.unwrap(), copies);
            assert_eq!(extents(&volume, ino, 3).await.len(), usize::from(copies));
            assert_eq!(volume.attr(ino).await.unwrap().blocks, blocks * times);
            assert!(read_all(&volume, ino).await == content);
            is_well(&volume).await;
        }
        let new = make(&volume, folder, "b", Kind::File).await.unwrap().attr.ino;
        write(&volume, new, 0, &[1; 10]).await.unwrap();
        assert_eq!(extents(&volume, new, 0).await.len(), 2, "what is made there gets them");
        assert!(volume.set_copies(folder, 4).await.is_err(), "more than bricks");
        assert!(volume.set_copies(folder, 0).await.is_err());
    });
}

#[test]
fn fewer_copies_leave_those_that_can_be_read() {
    for (sizes, before, after) in [(&[8, 8][..], 2, 1), (&[8, 8, 8], 3, 2), (&[8, 8, 8], 3, 1)] {
        for missing in 0..sizes.len() {
            let (world, store) = World::with_copies(STRIPE, sizes, before);
            let volume = world.mount(&store);
            let content = bytes(900_000, 11);
            let written = content.clone();
            world.shard.block_on(async move {
                let ino = file(&volume, "a").await;
                write(&volume, ino, 0, &written).await.unwrap();
                volume.close().await.unwrap();
            });
            let volume = mount_without(&world, &store, &[missing]);
            world.shard.block_on(async move {
                let ino = volume.resolve(b"/a").await.unwrap();
                volume.set_copies(ROOT, after).await.unwrap();
                volume.wait_job().await.unwrap();
                assert!(read_all(&volume, ino).await == content, "without {missing} of {sizes:?}");
                let found = extents(&volume, ino, 3).await;
                assert_eq!(found.len(), usize::from(after));
                assert!(found.iter().all(|(_, brick, _)| usize::from(*brick) != missing));
                is_well(&volume).await;
            });
        }
    }
}

#[test]
fn fewer_copies_are_right_where_one_of_those_before_had_rotten() {
    for nr in 0..2 {
        let (world, store) = World::with_copies(STRIPE, &[8, 8], 2);
        let volume = world.mount(&store);
        let ram = Arc::clone(world.bricks[nr].memory());
        world.shard.block_on(async move {
            let ino = file(&volume, "a").await;
            let mut content = bytes(1 << 20, 0);
            content[20_000..20_008].copy_from_slice(b"rot here");
            write(&volume, ino, 0, &content).await.unwrap();
            volume.sync().await.unwrap();
            let mut all = vec![0; ram.len()];
            ram.read(0, &mut all);
            let at = all.windows(8).position(|part| part == b"rot here").expect("it has it");
            ram.write(at, b"ROT");
            volume.set_copies(ROOT, 1).await.unwrap();
            volume.wait_job().await.unwrap();
            assert!(read_all(&volume, ino).await == content);
            is_well(&volume).await;
        });
    }
}

#[test]
fn copies_are_cut_punched_reserved_and_removed_together() {
    let (world, store) = World::with_copies(STRIPE, &[8, 8, 8], 2);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        let mut content = bytes(900_000, 13);
        write(&volume, ino, 0, &content).await.unwrap();
        volume.allocate(ino, Allocate::PunchHole, 100_000, 300_000).await.unwrap();
        content[100_000..400_000].fill(0);
        assert!(read_all(&volume, ino).await == content);
        is_well(&volume).await;
        let size = SetAttr { size: Some(650_001), ..SetAttr::default() };
        volume.set_attr(ME, ino, size).await.unwrap();
        content.truncate(650_001);
        write(&volume, ino, 700_000, &[3; 5]).await.unwrap();
        content.resize(700_000, 0);
        content.extend([3; 5]);
        assert!(read_all(&volume, ino).await == content);
        is_well(&volume).await;
        let reserve = Allocate::Reserve { keep_size: false };
        volume.allocate(ino, reserve, 0, 1 << 20).await.unwrap();
        assert_eq!(extents(&volume, ino, 2).await.len(), 2);
        is_well(&volume).await;
        volume.unlink(ROOT, b"a").await.unwrap();
        volume.forget(ino, 1);
        super::sums::comes(&volume, || volume.usage().0 == 0).await;
        is_well(&volume).await;
    });
}

#[test]
fn a_brick_that_is_gone_for_good_is_removed_and_what_it_held_is_made_again() {
    let (world, store) = World::with_copies(STRIPE, &[16, 16, 16], 2);
    let volume = world.mount(&store);
    let content = bytes(3 << 20, 17);
    let written = content.clone();
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &written).await.unwrap();
        volume.close().await.unwrap();
    });
    let volume = mount_without(&world, &store, &[1]);
    let expected = content.clone();
    world.shard.block_on(async move {
        let ino = volume.resolve(b"/a").await.unwrap();
        let held = volume.brick(1).unwrap().space.used() * BLOCK;
        volume.start_job(NewJob::Remove { brick: 1 }).await.unwrap();
        let total = volume.job().unwrap().total;
        volume.wait_job().await.unwrap();
        assert!(total <= held, "only what it held: {total} of {held}");
        assert!(volume.brick(1).is_none());
        for stripe in 0..24 {
            let found = extents(&volume, ino, stripe).await;
            assert_eq!(found.len(), 2);
            assert_ne!(found[0].1, found[1].1);
        }
        assert!(read_all(&volume, ino).await == expected);
        is_well(&volume).await;
        volume.close().await.unwrap();
    });
    let volume = mount_without(&world, &store, &[0, 1]);
    world.shard.block_on(async move {
        let ino = volume.resolve(b"/a").await.unwrap();
        assert!(read_all(&volume, ino).await == content, "one of two is enough");
    });
}

#[test]
fn a_copy_that_missed_a_write_is_made_again_beside_what_a_snapshot_has_of_it() {
    let (world, store) = World::with_copies(STRIPE, &[8, 8, 8], 2);
    let old = vec![3; 4 * STRIPE as usize];
    let mut new = old.clone();
    let part = STRIPE as usize / 2;
    new[part..3 * STRIPE as usize].fill(5);
    let (volume, written) = (world.mount(&store), old.clone());
    world.shard.block_on(async move {
        let ino = file(&volume, "f").await;
        write(&volume, ino, 0, &written).await.unwrap();
        volume.take_snapshot(ROOT, "then").await.unwrap();
        volume.close().await.unwrap();
    });
    let (volume, written) = (mount_without(&world, &store, &[1]), new.clone());
    world.shard.block_on(async move {
        let ino = volume.resolve(b"/f").await.unwrap();
        write(&volume, ino, part as u64, &written[part..3 * STRIPE as usize]).await.unwrap();
        volume.close().await.unwrap();
    });
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        // It may have begun by itself.
        let _ = volume.start_job(NewJob::Copies).await;
        volume.wait_job().await.unwrap();
        is_well(&volume).await;
        volume.close().await.unwrap();
    });
    for missing in 0..3 {
        let volume = mount_without(&world, &store, &[missing]);
        let (old, new) = (old.clone(), new.clone());
        world.shard.block_on(async move {
            let now = volume.resolve(b"/f").await.unwrap();
            let then = volume.resolve(b"/.snapshots/then/f").await.unwrap();
            assert!(read_all(&volume, now).await == new, "without brick {missing}");
            assert!(read_all(&volume, then).await == old, "without brick {missing}");
            volume.close().await.unwrap();
        });
    }
}
