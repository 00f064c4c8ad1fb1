//! Checksums of blocks: what a brick gives that was not written to it, and what a crash leaves.

use super::*;
use braid_filesystem::Allocate;
use braid_format::volume::keys;
use braid_shard::buffer::SharedMemory;
use std::sync::Arc;
use std::time::{Duration, Instant};

const STRIPE: u64 = 128 << 10;

/// The number of records of that kind, given one key of it.
async fn records(store: &ModelStore, like: Vec<u8>) -> usize {
    let tag = &like[..1];
    store.scan(tag, &keys::after(tag), 1000).await.unwrap().len()
}

async fn sums(store: &ModelStore) -> usize {
    records(store, keys::sums(0, 0)).await
}

async fn intents(store: &ModelStore) -> usize {
    records(store, keys::intent(0, 0)).await
}

/// Where a byte lies that the brick has once.
pub(super) fn find(ram: &SharedMemory, byte: u8) -> usize {
    let mut bytes = vec![0; ram.len()];
    ram.read(0, &mut bytes);
    bytes.iter().position(|found| *found == byte).unwrap()
}

/// Waits for what happens in the background.
pub(super) async fn comes(volume: &Volume, is: impl Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !is() {
        assert!(Instant::now() < patience, "it does not come");
        volume.shard.sleep(1_000_000).await;
    }
}

#[test]
fn rot_is_an_error_and_only_where_it_is() {
    let (world, store) = World::new(STRIPE, &[8]);
    let volume = world.mount(&store);
    let ram = Arc::clone(world.bricks[0].memory());
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        let mut bytes = vec![1; 64 << 10];
        bytes[20_000] = 77;
        write(&volume, ino, 0, &bytes).await.unwrap();
        ram.write(find(&ram, 77), &[78]);
        assert_eq!(volume.read(ino, 0, 64 << 10).await.map(drop), Err(Errno::Io));
        assert_eq!(volume.read(ino, 16_384, 1).await.map(drop), Err(Errno::Io), "its block");
        assert_eq!(&volume.read(ino, 0, 16_384).await.unwrap()[..], &bytes[..16_384]);
        assert_eq!(&volume.read(ino, 20_480, 4096).await.unwrap()[..], &bytes[20_480..24_576]);
        assert_eq!(volume.status().checksum_errors, 2);
        // A part of the block would keep the rest of what is wrong; all of it is a block anew.
        assert_eq!(write(&volume, ino, 20_000, &[3]).await, Err(Errno::Io));
        write(&volume, ino, 16_384, &bytes[16_384..20_480]).await.unwrap();
        assert_eq!(read_all(&volume, ino).await, bytes);
    });
}

#[test]
fn what_is_written_once_needs_no_intent_and_what_is_written_over_has_one_while_it_is() {
    let (world, store) = World::new(STRIPE, &[8]);
    let volume = world.mount(&store);
    let own = store.clone();
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &[1; 3 << 20]).await.unwrap();
        volume.sync().await.unwrap();
        assert_eq!((sums(&own).await, intents(&own).await), (3, 0));
        write(&volume, ino, 70_000, &[2; 10]).await.unwrap();
        assert_eq!(intents(&own).await, 1, "it is durable before the bytes go");
        volume.close().await.unwrap();
        assert_eq!((sums(&own).await, intents(&own).await), (3, 0));
    });
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let ino = volume.resolve(b"/a").await.unwrap();
        let bytes = read_all(&volume, ino).await;
        assert_eq!((bytes[69_999], bytes[70_000], bytes[70_010]), (1, 2, 1));
    });
}

#[test]
fn bytes_that_a_crash_left_newer_than_their_checksums_are_taken_and_get_new_ones() {
    let (world, store) = World::new(STRIPE, &[8]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &[1; 64 << 10]).await.unwrap();
        volume.sync().await.unwrap();
        write(&volume, ino, 8192, &[2; 8192]).await.unwrap();
    });
    // The checksums of what was written over are in memory only.
    let store = world.crash(&store);
    let ram = Arc::clone(world.bricks[0].memory());
    let volume = world.mount(&store);
    let own = store.clone();
    world.shard.block_on(async move {
        let ino = volume.resolve(b"/a").await.unwrap();
        let bytes = read_all(&volume, ino).await;
        assert!(bytes[..8192].iter().all(|byte| *byte == 1));
        assert!(bytes[8192..16_384].iter().all(|byte| *byte == 2));
        let sums = Rc::clone(&volume.sums);
        comes(&volume, || sums.unsettled().is_empty()).await;
        volume.close().await.unwrap();
        assert_eq!(intents(&own).await, 0);
    });
    // From then on they are held against the bytes again.
    ram.write(find(&ram, 2), &[3]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let ino = volume.resolve(b"/a").await.unwrap();
        assert_eq!(volume.read(ino, 8192, 1).await.map(drop), Err(Errno::Io));
        assert_eq!(volume.read(ino, 4096, 4096).await.unwrap()[0], 1);
    });
}

#[test]
fn checksums_go_with_what_they_are_of() {
    let (world, store) = World::new(STRIPE, &[16]);
    let volume = world.mount(&store);
    let own = store.clone();
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &[1; 5 << 20]).await.unwrap();
        volume.sync().await.unwrap();
        assert_eq!(sums(&own).await, 5);
        volume.allocate(ino, Allocate::PunchHole, 1 << 20, 1 << 20).await.unwrap();
        volume.sync().await.unwrap();
        assert_eq!(sums(&own).await, 4, "a hole has none");
        volume.files.set_size(&volume.inodes.file(ino).await.unwrap(), 2_200_000).await.unwrap();
        volume.sync().await.unwrap();
        assert_eq!(sums(&own).await, 2, "nor what was cut off");
        write(&volume, ino, 0, &[2; 4096]).await.unwrap();
        assert_eq!(intents(&own).await, 1);
        assert!(volume.check(false).await.unwrap().is_clean());
        volume.forget(ino, 1);
        volume.unlink(ROOT, b"a").await.unwrap();
        let orphans = Rc::clone(&volume.orphans);
        comes(&volume, || !orphans.is_busy()).await;
        volume.sync().await.unwrap();
        assert_eq!((sums(&own).await, intents(&own).await), (0, 0), "nor a file that is no more");
    });
}

#[test]
fn a_check_finds_checksums_of_files_that_do_not_exist() {
    let (world, store) = World::new(STRIPE, &[8]);
    let stray =
        vec![(keys::sums(4711, 0), Some(vec![1, 2, 3, 4])), (keys::intent(4711, 0), Some(vec![1]))];
    world.shard.block_on(store.commit(stray)).unwrap();
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let report = volume.check(true).await.unwrap();
        assert!(report.repaired >= 1 && report.found == report.repaired, "{report:?}");
        assert!(volume.check(false).await.unwrap().is_clean());
    });
}

#[test]
fn stripes_that_move_keep_their_checksums() {
    let (world, store) = World::new(STRIPE, &[16, 16]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        let bytes: Vec<u8> = (0..4 << 20).map(|at: u32| (at / 4096 % 251) as u8).collect();
        write(&volume, ino, 0, &bytes).await.unwrap();
        for brick in [0, 1] {
            volume.migrate_files(&[ino], brick).await.unwrap();
            volume.wait_job().await.unwrap();
            assert_eq!(read_all(&volume, ino).await, bytes);
        }
        assert_eq!(volume.status().checksum_errors, 0);
    });
}
