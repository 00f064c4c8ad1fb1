//! Bricks that are lost and taken back while the volume is mounted.

use super::failing::mount;
use super::sums::comes;
use super::*;
use crate::{BrickBack, VolumeError};
use braid_device::{Device, IoErrorKind};
use std::cell::Cell;
use std::sync::Arc;

const STRIPE: u64 = 128 << 10;

/// Brick `nr` of the world, as `device`.
pub(super) fn back(world: &World, nr: usize, device: Rc<dyn Device>) -> BrickBack {
    let blocks = (world.bricks[nr].memory().len() as u64) / BLOCK;
    let uuid = Uuid::from_u128(nr as u128 + 1);
    BrickBack { id: nr as u16, uuid, device, data_offset: 0, blocks }
}

pub(super) async fn take_back(volume: &Volume, back: BrickBack) -> Result<(), VolumeError> {
    volume.take_back_brick(back, async || Ok(())).await
}

#[test]
fn files_without_copies_are_readable_again() {
    let (world, store) = World::new(STRIPE, &[8, 8]);
    let (volume, bricks) = mount(&world, &store, true);
    let returned = back(&world, 1, world.bricks[1].device());
    world.shard.block_on(async move {
        let content: Vec<u8> = (0..1 << 20).map(|at| (at / 4096) as u8).collect();
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &content).await.unwrap();
        volume.sync().await.unwrap();
        bricks[1].fail(IoErrorKind::Gone);
        assert_eq!(volume.read(ino, 0, 1 << 20).await.map(drop), Err(Errno::Io));
        assert!(!volume.brick(1).unwrap().is_there());
        // Whole stripes go elsewhere; a part of one that is lost cannot be written.
        let mut answers = [0, 0];
        for stripe in 0..8 {
            let written = write(&volume, ino, stripe * STRIPE + 8192, &[9; 4096]).await;
            answers[usize::from(written.is_err())] += 1;
        }
        assert!(answers[0] > 0 && answers[1] > 0, "{answers:?}");
        let whole = write(&volume, ino, 3 * STRIPE, &[7; STRIPE as usize]).await;
        whole.unwrap();
        take_back(&volume, returned).await.unwrap();
        let brick = volume.brick(1).unwrap();
        assert!(brick.is_there() && brick.failure().is_none());
        let read = read_all(&volume, ino).await;
        for (at, (read, had)) in read.iter().zip(&content).enumerate() {
            let stripe = at as u64 / STRIPE;
            let over = (8192..12_288).contains(&(at as u64 % STRIPE));
            let right = if stripe == 3 { *read == 7 } else { read == had || over && *read == 9 };
            assert!(right, "byte {at} is {read}");
        }
        for stripe in 0..8 {
            write(&volume, ino, stripe * STRIPE + 8192, &[9; 4096]).await.unwrap();
        }
        volume.sync().await.unwrap();
        assert!(volume.check(false).await.unwrap().is_clean());
        volume.close().await.unwrap();
    });
}

#[test]
fn only_what_changed_is_copied_to_a_brick_that_is_back() {
    let (world, store) = World::with_copies(STRIPE, &[8, 8], 2);
    let (volume, bricks) = mount(&world, &store, true);
    let ram = Arc::clone(world.bricks[0].memory());
    let returned = back(&world, 0, world.bricks[0].device());
    let old: Vec<u8> = (0..2 << 20).map(|at| (at / 4096) as u8).collect();
    let mut expected = old.clone();
    expected[8192..58_192].fill(6);
    expected[1_000_000..1_005_000].fill(7);
    let content = expected.clone();
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &old).await.unwrap();
        volume.fsync(ino, false).await.unwrap();
        let mut had = vec![0; ram.len()];
        ram.read(0, &mut had);
        // Taken by both, and made durable by one.
        write(&volume, ino, 8192, &[6; 50_000]).await.unwrap();
        bricks[0].fail(IoErrorKind::Gone);
        volume.fsync(ino, false).await.unwrap();
        ram.write(0, &had);
        write(&volume, ino, 1_000_000, &[7; 5000]).await.unwrap();
        let new = file(&volume, "b").await;
        write(&volume, new, 0, &[8; 100_000]).await.unwrap();
        volume.fsync(new, false).await.unwrap();
        let before = volume.brick(0).unwrap().counts().bytes_written;
        take_back(&volume, returned).await.unwrap();
        for _ in 0..4 {
            assert!(read_all(&volume, ino).await == expected);
        }
        comes(&volume, || !volume.status().incomplete && volume.sums.unsettled().is_empty()).await;
        let copied = volume.brick(0).unwrap().counts().bytes_written - before;
        assert!(copied < 400_000, "{copied} bytes were copied");
        assert!(volume.check(false).await.unwrap().is_clean());
        volume.close().await.unwrap();
    });
    let mut from = world.mount_of(&store);
    from.devices.pop();
    let shard = world.shard.clone();
    let volume = world.shard.block_on(async move { Volume::mount(&shard, from).await }).unwrap();
    world.shard.block_on(async move {
        let ino = volume.resolve(b"/a").await.unwrap();
        assert!(read_all(&volume, ino).await == content, "on the brick that was away");
        let new = volume.resolve(b"/b").await.unwrap();
        assert_eq!(read_all(&volume, new).await, vec![8; 100_000]);
    });
}

#[test]
fn a_brick_is_taken_back_when_writes_to_it_have_ended() {
    let (world, store) = World::with_copies(STRIPE, &[8, 8], 2);
    let (volume, bricks) = mount(&world, &store, true);
    let returned = back(&world, 0, world.bricks[0].device());
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &[1; 1 << 20]).await.unwrap();
        volume.sync().await.unwrap();
        // The region has its intent then, and the next write waits for no commit.
        write(&volume, ino, 0, &[1; 128 << 10]).await.unwrap();
        volume.sync().await.unwrap();
        bricks[0].hold();
        let own = Rc::clone(&volume);
        let written = Rc::new(Cell::new(None));
        let told = Rc::clone(&written);
        volume.shard.spawn(async move {
            told.set(Some(write(&own, ino, 0, &[2; 128 << 10]).await));
        });
        super::failing::until(&volume, || bricks[0].waiting() >= 1).await;
        let before = bricks[0].waiting();
        for stripe in 1..8 {
            let own = Rc::clone(&volume);
            volume.shard.spawn(async move {
                let _ = own.read(ino, stripe * STRIPE, 4096).await;
            });
        }
        super::failing::until(&volume, || bricks[0].waiting() > before).await;
        bricks[0].fail(IoErrorKind::Gone);
        // The read is answered, and shows that the brick has failed; the write is still there.
        bricks[0].release_last();
        super::failing::until(&volume, || !volume.brick(0).unwrap().is_there()).await;
        let own = Rc::clone(&volume);
        let taken = Rc::new(Cell::new(false));
        let told = Rc::clone(&taken);
        volume.shard.spawn(async move {
            take_back(&own, returned).await.unwrap();
            told.set(true);
        });
        for _ in 0..1000 {
            volume.shard.yield_now().await;
        }
        assert!(!taken.get() && written.get().is_none(), "{} {:?}", taken.get(), written.get());
        while bricks[0].waiting() > 0 {
            bricks[0].release();
        }
        super::failing::until(&volume, || taken.get() && written.get().is_some()).await;
        written.get().unwrap().unwrap();
        comes(&volume, || !volume.status().incomplete).await;
        for _ in 0..4 {
            assert_eq!(read_all(&volume, ino).await[..128 << 10], [2; 128 << 10]);
        }
    });
}

#[test]
fn what_is_not_the_brick_that_was_lost_is_refused() {
    let (world, store) = World::new(STRIPE, &[8, 8]);
    let (volume, bricks) = mount(&world, &store, true);
    let device = || world.bricks[1].device();
    let of = |change: fn(&mut BrickBack)| {
        let mut one = back(&world, 1, device());
        change(&mut one);
        one
    };
    let (there, unknown) = (of(|_| ()), of(|back| back.id = 7));
    let (other, small) = (of(|back| back.uuid = Uuid::from_u128(77)), of(|back| back.blocks = 5));
    let (right, stays) = (of(|_| ()), of(|_| ()));
    world.shard.block_on(async move {
        let refused = |result: Result<(), VolumeError>| result.unwrap_err().to_string();
        assert!(refused(take_back(&volume, there).await).contains("nothing is to be taken back"));
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &[1; 1 << 20]).await.unwrap();
        volume.sync().await.unwrap();
        bricks[1].fail(IoErrorKind::Gone);
        let _ = volume.read(ino, 0, 1 << 20).await;
        assert!(refused(take_back(&volume, unknown).await).contains("no brick"));
        let said = refused(take_back(&volume, other).await);
        assert!(said.contains("bring the device that was lost"), "{said}");
        assert!(refused(take_back(&volume, small).await).contains("has 5 blocks"));
        let failing = async || Err(VolumeError::Refused("no".to_string()));
        assert_eq!(refused(volume.take_back_brick(stays, failing).await), "no");
        assert!(!volume.brick(1).unwrap().is_there(), "it is away as before");
        take_back(&volume, right).await.unwrap();
        assert_eq!(read_all(&volume, ino).await, vec![1; 1 << 20]);
    });
}
