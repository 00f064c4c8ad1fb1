//! Files that are read by leases, as other shards do.

use super::failing::{Frail, mount, until};
use super::files::{LONGEST, step};
use super::*;
use crate::leases::{LEASED, LeaseReader};
use braid_device::{Device, IoErrorKind};
use braid_filesystem::{Leases, SetAttr};
use std::cell::RefCell;

const STRIPE: u64 = 128 << 10;

/// A reader of a volume over `bricks`.
fn reader(volume: &Volume, bricks: Vec<Rc<dyn Device>>) -> Rc<LeaseReader> {
    let open = move |_: &Shard, uuid: Uuid| bricks.get(uuid.as_u128() as usize - 1).cloned();
    LeaseReader::new(&volume.shard, Box::new(open), volume.file_counts())
}

fn of(world: &World, volume: &Volume) -> Rc<LeaseReader> {
    reader(volume, world.bricks.iter().map(Ram::device).collect())
}

/// Gives the reader leases of a file from `offset` to `end`, as far as they are to be had; true: of all.
async fn lease(volume: &Volume, reader: &LeaseReader, ino: Ino, offset: u64, end: u64) -> bool {
    let mut all = true;
    for window in offset / LEASED..end.div_ceil(LEASED).max(offset / LEASED + 1) {
        let lease = volume.lease(ino, window * LEASED).await;
        all &= lease.is_some();
        reader.keep(ino, lease);
    }
    all
}

#[test]
fn random_operations_between_lease_and_read_are_seen() {
    let mut read = 0;
    for seed in 0..24 {
        let stripe = [16 << 10, 128 << 10, 1 << 20][seed as usize % 3];
        let (world, store) = World::new(stripe, &[8, 16, 8]);
        let mut random = fastrand::Rng::with_seed(seed);
        let volume = world.mount(&store);
        let reader = of(&world, &volume);
        let (own, by) = (Rc::clone(&volume), Rc::clone(&reader));
        world.shard.block_on(async move {
            let ino = file(&own, "a").await;
            let mut model = Vec::new();
            for number in 0..60 {
                if random.bool() {
                    lease(&own, &by, ino, 0, LONGEST).await;
                }
                if random.bool() {
                    step(&own, ino, &mut model, &mut random).await;
                }
                for _ in 0..3 {
                    let (from, len) = (random.usize(..LONGEST as usize), random.usize(1..200_000));
                    if let Some(found) = by.read(ino, from as u64, len, None).await {
                        let (from, to) = (from.min(model.len()), (from + len).min(model.len()));
                        assert!(found[..] == model[from..to], "seed {seed}, step {number}");
                    }
                }
            }
            own.close().await.unwrap();
        });
        read += reader.reads();
    }
    assert!(read > 500, "{read} reads were answered");
}

#[test]
fn reads_and_writes_are_counted_wherever_they_are_answered() {
    let (world, store) = World::new(STRIPE, &[16]);
    let volume = world.mount(&store);
    let by = of(&world, &volume);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &[1; 16 << 10]).await.unwrap();
        volume.sync().await.unwrap();
        assert!(lease(&volume, &by, ino, 0, 1).await);
        assert_eq!(by.read(ino, 0, 4096, None).await.unwrap().len(), 4096);
        // Up to the end.
        assert_eq!(volume.read(ino, 8 << 10, 1 << 20).await.unwrap().len(), 8 << 10);
        let (reads, writes) = volume.file_counts().get();
        assert_eq!((reads.requests, reads.bytes), (2, 12 << 10));
        assert_eq!((writes.requests, writes.bytes), (1, 16 << 10));
    });
}

/// Plays with a volume of one brick, a file of a stripe of ones, and a reader whose own way to the brick can be held.
fn held<W: Future<Output = ()> + 'static>(
    play: impl FnOnce(Rc<Volume>, Rc<LeaseReader>, Frail, Ino) -> W + 'static,
) {
    let (world, store) = World::new(STRIPE, &[16]);
    let volume = world.mount(&store);
    let frail = Frail::new(&world.bricks[0], false);
    let reader = reader(&volume, vec![Rc::new(frail.clone())]);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &[1; STRIPE as usize]).await.unwrap();
        play(volume, reader, frail, ino).await;
    });
}

/// Has 8 KiB read by leases while `meanwhile` happens after the read has begun; gives the answer.
async fn read_while(
    volume: &Rc<Volume>,
    reader: &Rc<LeaseReader>,
    frail: &Frail,
    ino: Ino,
    meanwhile: impl AsyncFnOnce(),
) -> Option<Vec<u8>> {
    assert!(lease(volume, reader, ino, 0, 8192).await);
    frail.hold();
    let answer: Rc<RefCell<Option<Option<Vec<u8>>>>> = Rc::default();
    let (by, to) = (Rc::clone(reader), Rc::clone(&answer));
    volume.shard.spawn(async move {
        let found = by.read(ino, 4096, 8192, None).await;
        *to.borrow_mut() = Some(found.map(|found| found.to_vec()));
    });
    until(volume, || frail.waiting() == 1).await;
    meanwhile().await;
    frail.release();
    frail.hold_no_more();
    until(volume, || answer.borrow().is_some()).await;
    answer.take().flatten()
}

#[test]
fn a_read_under_way_is_no_answer_when_the_file_has_changed_meanwhile() {
    held(|volume, reader, frail, ino| async move {
        let found = read_while(&volume, &reader, &frail, ino, async || ()).await;
        assert_eq!(found, Some(vec![1; 8192]));
        let found = read_while(&volume, &reader, &frail, ino, async || {
            write(&volume, ino, 4096, &[2; 4096]).await.unwrap();
        });
        assert_eq!(found.await, None, "it was written over");
        let found = read_while(&volume, &reader, &frail, ino, async || {
            let cut = SetAttr { size: Some(5000), ..SetAttr::default() };
            volume.set_attr(ME, ino, cut).await.unwrap();
        });
        assert_eq!(found.await, None, "it was cut");
        let found = read_while(&volume, &reader, &frail, ino, async || {
            write(&volume, ino, 9 << 20, &[3; 4096]).await.unwrap();
        });
        assert_eq!(found.await, None, "it has become longer");
        assert!(lease(&volume, &reader, ino, 0, 8192).await);
        let all = reader.read(ino, 0, 8192, None).await.unwrap();
        let expected = [vec![1; 4096], vec![2; 904], vec![0; 3192]].concat();
        assert!(all[..] == expected[..]);
        assert_eq!(reader.reads(), 2);
    });
}

#[test]
fn a_brick_that_fails_or_a_job_that_begins_ends_leases() {
    let (world, store) = World::new(STRIPE, &[16, 16]);
    let (volume, bricks) = mount(&world, &store, true);
    let reader = of(&world, &volume);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &[1; 32 * STRIPE as usize]).await.unwrap();
        volume.fsync(ino, false).await.unwrap();
        assert!(lease(&volume, &reader, ino, 0, 8192).await);
        assert!(reader.read(ino, 0, 4096, None).await.is_some());
        let moved = file(&volume, "moved").await;
        write(&volume, moved, 0, &[3; 8 * STRIPE as usize]).await.unwrap();
        for brick in [0, 1] {
            volume.migrate_files(&[moved], brick).await.unwrap();
            volume.wait_job().await.unwrap();
        }
        assert!(reader.read(ino, 0, 4096, None).await.is_none(), "jobs see all requests");
        assert!(!lease(&volume, &reader, ino, 0, 8192).await);
        volume.shard.sleep(1_100_000_000).await;
        assert!(lease(&volume, &reader, ino, 0, 8192).await);
        assert!(reader.read(ino, 0, 4096, None).await.is_some());
        bricks[0].fail(IoErrorKind::Gone);
        write(&volume, ino, 0, &[2; 32 * STRIPE as usize]).await.unwrap_err();
        let other = file(&volume, "b").await;
        assert!(reader.read(ino, 0, 4096, None).await.is_none());
        assert!(!lease(&volume, &reader, ino, 0, 8192).await, "something of it is lost");
        assert!(lease(&volume, &reader, other, 0, 8192).await);
        assert_eq!(reader.read(other, 0, 10, None).await.unwrap().len(), 0);
    });
}

#[test]
fn what_is_newer_in_memory_than_on_the_brick_is_not_leased() {
    let (world, store) = World::new(STRIPE, &[16]);
    // These may keep requests waiting, so that small writes are kept in memory.
    let (volume, _bricks) = mount(&world, &store, true);
    let reader = of(&world, &volume);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &[1; STRIPE as usize]).await.unwrap();
        volume.fsync(ino, false).await.unwrap();
        assert!(lease(&volume, &reader, ino, 0, 8192).await);
        let buf = volume.shard.pool().copy_of(&[2; 4096]).freeze();
        let behind = Writing { behind: true, ..Writing::default() };
        volume.write(ino, 0, buf, behind).await.unwrap();
        assert!(reader.read(ino, 0, 4096, None).await.is_none());
        assert!(!lease(&volume, &reader, ino, 0, 8192).await, "it is in memory only");
        volume.fsync(ino, false).await.unwrap();
        assert!(lease(&volume, &reader, ino, 0, 8192).await);
        assert_eq!(&reader.read(ino, 0, 4096, None).await.unwrap()[..], [2; 4096]);
    });
}

#[test]
fn bytes_that_are_not_as_their_checksum_says_are_no_answer() {
    let (world, store) = World::new(STRIPE, &[16]);
    let volume = world.mount(&store);
    let reader = of(&world, &volume);
    let rotten = world.bricks[0].device();
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &[1; STRIPE as usize]).await.unwrap();
        assert!(lease(&volume, &reader, ino, 0, 8192).await);
        let end = rotten.info().size;
        let bytes = volume.shard.pool().zeroed((1 << 20) as usize).freeze();
        for at in (0..end).step_by(1 << 20) {
            let write = braid_device::Request::write(at, bytes.slice(0..bytes.len()), false);
            let sets = braid_device::IoSets::new(&volume.shard);
            sets.one(&*rotten, write).await.result.unwrap();
        }
        assert!(reader.read(ino, 0, 4096, None).await.is_none());
        assert_eq!(volume.read(ino, 0, 4096).await.err(), Some(Errno::Io));
    });
}
