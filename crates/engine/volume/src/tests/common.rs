//! Extents that several files have: copies take no space, each file stays what it is, and jobs move what they share once.

use super::*;
use crate::NewJob;
use braid_filesystem::{Allocate, RenameFlags, SetAttr};
use braid_format::volume::keys;
use std::cell::Cell;

const STRIPE: u64 = 128 << 10;

/// Bytes that differ from block to block.
fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 4096) as u8 ^ (at as u8).wrapping_mul(seed | 1)).collect()
}

async fn is_well(volume: &Volume) {
    volume.sync_all().await.unwrap();
    // Whoever has left common extents is looked at after that.
    volume.extents.free_left().await.unwrap();
    volume.sync_all().await.unwrap();
    let report = volume.check(false).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
}

/// Copies all of a file to the start of another.
async fn copy(volume: &Volume, from: Ino, to: Ino) {
    let size = volume.attr(from).await.unwrap().size;
    let mut done = 0;
    while done < size {
        let bytes = volume.copy_range((from, done), (to, done), size - done).await.unwrap();
        assert!(bytes > 0, "it ends at {done}");
        done += bytes;
    }
    assert_eq!(volume.copy_range((from, size), (to, size), 10).await, Ok(0));
}

/// The blocks that are in use.
async fn used(volume: &Volume) -> u64 {
    volume.sync_all().await.unwrap();
    volume.extents.free_left().await.unwrap();
    volume.sync_all().await.unwrap();
    volume.usage().0
}

/// Removes a file, which nobody has open.
async fn remove(volume: &Volume, name: &str) {
    let path = format!("/{name}");
    let ino = volume.resolve(path.as_bytes()).await.unwrap();
    volume.unlink(ROOT, name.as_bytes()).await.unwrap();
    volume.forget(ino, 1);
}

/// Waits until so many blocks are in use.
async fn wait_used(volume: &Volume, blocks: u64) {
    for _ in 0..2000 {
        if used(volume).await == blocks {
            return;
        }
        volume.shard.sleep(1_000_000).await;
    }
    panic!("{} blocks are in use, and should be {blocks}", used(volume).await);
}

/// Records of common extents and of their owners.
async fn records(volume: &Volume) -> usize {
    let (pairs, _) = volume.transactions.scan(b"E", &keys::after(b"F"), 10_000).await.unwrap();
    pairs.len()
}

#[test]
fn a_copy_takes_no_space_and_both_files_stay_what_they_are_when_they_are_written() {
    let (world, store) = World::new(STRIPE, &[16, 16]);
    let volume = world.mount(&store);
    let content = bytes(1_000_000, 3);
    let expected = content.clone();
    world.shard.block_on(async move {
        let one = file(&volume, "one").await;
        write(&volume, one, 0, &content).await.unwrap();
        let before = used(&volume).await;
        let two = file(&volume, "two").await;
        copy(&volume, one, two).await;
        assert_eq!(used(&volume).await, before);
        assert!(read_all(&volume, two).await == content);
        let (of_one, of_two) = (volume.attr(one).await.unwrap(), volume.attr(two).await.unwrap());
        assert_eq!((of_one.size, of_one.blocks), (of_two.size, of_two.blocks));
        is_well(&volume).await;
        // Each side is written: a part of a stripe, a whole one, across two, behind the end.
        write(&volume, two, 5000, &[7; 3000]).await.unwrap();
        write(&volume, one, STRIPE, &[8; STRIPE as usize]).await.unwrap();
        write(&volume, two, 3 * STRIPE - 10, &[9; 20]).await.unwrap();
        write(&volume, one, 1_000_000, &[6; 100]).await.unwrap();
        let (mut first, mut second) = (content.clone(), content.clone());
        second[5000..8000].fill(7);
        first[STRIPE as usize..2 * STRIPE as usize].fill(8);
        second[3 * STRIPE as usize - 10..3 * STRIPE as usize + 10].fill(9);
        first.extend_from_slice(&[6; 100]);
        assert!(read_all(&volume, one).await == first);
        assert!(read_all(&volume, two).await == second);
        is_well(&volume).await;
        volume.close().await.unwrap();
    });
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let one = volume.resolve(b"/one").await.unwrap();
        let two = volume.resolve(b"/two").await.unwrap();
        // A stripe that both have is known to be common after a mount, too.
        write(&volume, one, 4 * STRIPE + 1, &[5; 10]).await.unwrap();
        let back = volume.read(two, 4 * STRIPE, 20).await.unwrap();
        let at = 4 * STRIPE as usize;
        assert!(back[..] == expected[at..at + 20]);
        is_well(&volume).await;
        volume.close().await.unwrap();
    });
}

#[test]
fn the_blocks_are_free_when_the_last_file_lets_them_go_and_nothing_is_left() {
    let (world, store) = World::new(STRIPE, &[16, 16]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let empty = used(&volume).await;
        let one = file(&volume, "one").await;
        write(&volume, one, 0, &bytes(700_000, 5)).await.unwrap();
        let full = used(&volume).await;
        for name in ["two", "three"] {
            let other = file(&volume, name).await;
            copy(&volume, one, other).await;
        }
        remove(&volume, "one").await;
        is_well(&volume).await;
        assert_eq!(used(&volume).await, full);
        let two = volume.resolve(b"/two").await.unwrap();
        let set = SetAttr { size: Some(STRIPE + 5000), ..SetAttr::default() };
        volume.set_attr(ME, two, set).await.unwrap();
        volume.allocate(two, Allocate::PunchHole, 0, STRIPE).await.unwrap();
        is_well(&volume).await;
        assert_eq!(used(&volume).await, full);
        remove(&volume, "three").await;
        // The part that the other was cut off is kept until it lets all of the stripe go.
        wait_used(&volume, empty + STRIPE / BLOCK).await;
        assert!(
            read_all(&volume, two).await[STRIPE as usize..]
                == bytes(700_000, 5)[STRIPE as usize..STRIPE as usize + 5000]
        );
        is_well(&volume).await;
        remove(&volume, "two").await;
        wait_used(&volume, empty).await;
        assert_eq!(records(&volume).await, 0);
        is_well(&volume).await;
        volume.close().await.unwrap();
    });
}

#[test]
fn after_a_crash_blocks_that_nobody_has_any_more_are_found() {
    let (world, store) = World::new(STRIPE, &[16, 16]);
    let volume = world.mount(&store);
    let mounted = Rc::clone(&volume);
    let left = store.clone();
    let (crashed, empty) = world.shard.block_on(async move {
        let volume = mounted;
        let empty = used(&volume).await;
        let one = file(&volume, "one").await;
        write(&volume, one, 0, &bytes(700_000, 5)).await.unwrap();
        let two = file(&volume, "two").await;
        copy(&volume, one, two).await;
        volume.sync_all().await.unwrap();
        remove(&volume, "one").await;
        remove(&volume, "two").await;
        while !volume.extents.has_left() {
            volume.shard.sleep(100_000).await;
        }
        volume.sync_all().await.unwrap();
        (left.snapshot(), empty)
    });
    drop(volume);
    let store = ModelStore::from_snapshot(&world.shard, crashed);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        wait_used(&volume, empty).await;
        assert_eq!(records(&volume).await, 0);
        is_well(&volume).await;
        volume.close().await.unwrap();
    });
}

#[test]
fn jobs_move_what_files_share_once_and_for_all() {
    let (world, store) = World::new(STRIPE, &[16, 16, 16]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let content = bytes(2_000_000, 11);
        let one = file(&volume, "one").await;
        write(&volume, one, 0, &content).await.unwrap();
        let (two, three) = (file(&volume, "two").await, file(&volume, "three").await);
        copy(&volume, one, two).await;
        volume.take_snapshot(ROOT, "then").await.unwrap();
        copy(&volume, two, three).await;
        write(&volume, two, 10, &[1; 10]).await.unwrap();
        let before = used(&volume).await;
        volume.start_job(NewJob::Remove { brick: 0 }).await.unwrap();
        volume.wait_job().await.unwrap();
        assert_eq!(used(&volume).await, before);
        let mut second = content.clone();
        second[10..20].fill(1);
        assert!(read_all(&volume, one).await == content);
        assert!(read_all(&volume, two).await == second);
        assert!(read_all(&volume, three).await == content);
        let old = volume.resolve(b"/.snapshots/then/two").await.unwrap();
        assert!(read_all(&volume, old).await == content);
        is_well(&volume).await;
        volume.start_job(NewJob::Balance).await.unwrap();
        volume.wait_job().await.unwrap();
        // An extent that lies where the first who has it wants it stays there, whoever else has it.
        volume.start_job(NewJob::Balance).await.unwrap();
        assert_eq!(volume.job().map_or(0, |job| job.total), 0);
        volume.wait_job().await.unwrap();
        for name in ["one", "two", "three"] {
            remove(&volume, name).await;
        }
        assert!(read_all(&volume, old).await == content);
        is_well(&volume).await;
        volume.remove_snapshot(ROOT, "then").await.unwrap();
        wait_used(&volume, 0).await;
        assert_eq!(records(&volume).await, 0);
        assert_eq!(volume.status().snapshot_bytes, 0);
        is_well(&volume).await;
        volume.close().await.unwrap();
    });
}

#[test]
fn a_stripe_does_not_get_an_extent_again_that_only_a_snapshot_has_of_it() {
    let (world, store) = World::new(STRIPE, &[16]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let content = bytes(STRIPE as usize, 13);
        let (one, two) = (file(&volume, "one").await, file(&volume, "two").await);
        write(&volume, one, 0, &content).await.unwrap();
        copy(&volume, one, two).await;
        volume.take_snapshot(ROOT, "first").await.unwrap();
        write(&volume, two, 0, &[1; 4096]).await.unwrap();
        volume.take_snapshot(ROOT, "second").await.unwrap();
        copy(&volume, one, two).await;
        assert!(read_all(&volume, two).await == content);
        is_well(&volume).await;
        volume.remove_snapshot(ROOT, "second").await.unwrap();
        is_well(&volume).await;
        let first = volume.resolve(b"/.snapshots/first/two").await.unwrap();
        assert!(read_all(&volume, first).await == content);
        volume.close().await.unwrap();
    });
}

#[test]
fn files_with_copies_share_both_and_those_with_other_numbers_of_copies_none() {
    let (world, store) = World::with_copies(STRIPE, &[16, 16, 16], 2);
    let content = bytes(600_000, 17);
    let volume = world.mount(&store);
    let written = content.clone();
    world.shard.block_on(async move {
        let one = file(&volume, "one").await;
        write(&volume, one, 0, &written).await.unwrap();
        // Bytes that were written just now may not be on both bricks yet, and is copied.
        let other = file(&volume, "other").await;
        copy(&volume, one, other).await;
        assert_eq!(records(&volume).await, 0);
        volume.close().await.unwrap();
    });
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let one = volume.resolve(b"/one").await.unwrap();
        let before = used(&volume).await;
        let two = file(&volume, "two").await;
        copy(&volume, one, two).await;
        assert_eq!(used(&volume).await, before);
        is_well(&volume).await;
        volume.start_job(NewJob::Remove { brick: 1 }).await.unwrap();
        volume.wait_job().await.unwrap();
        assert_eq!(used(&volume).await, before);
        is_well(&volume).await;
        write(&volume, one, 1000, &[3; 1000]).await.unwrap();
        assert!(read_all(&volume, two).await == content);
        is_well(&volume).await;
        volume.close().await.unwrap();
    });
}

#[test]
fn ranges_that_do_not_fall_on_stripes_alike_are_copied_and_bad_ones_refused() {
    let (world, store) = World::new(STRIPE, &[16]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let content = bytes(500_000, 19);
        let (one, two) = (file(&volume, "one").await, file(&volume, "two").await);
        write(&volume, one, 0, &content).await.unwrap();
        let mut done = 0;
        while done < 400_000 {
            let at = 1000 + done;
            done += volume.copy_range((one, at), (two, 500 + done), 400_000 - done).await.unwrap();
        }
        let mut expected = vec![0; 500];
        expected.extend_from_slice(&content[1000..401_000]);
        assert!(read_all(&volume, two).await == expected);
        assert_eq!(volume.copy_range((one, 0), (one, 100), 1000).await, Err(Errno::Invalid));
        assert_eq!(volume.copy_range((one, 0), (two, u64::MAX - 5), 100).await, Err(Errno::TooBig));
        assert_eq!(volume.copy_range((ROOT, 0), (two, 0), 100).await, Err(Errno::IsDirectory));
        // Within a file, and a hole over data.
        let four = 4 * STRIPE;
        assert_eq!(volume.copy_range((one, 0), (one, four), STRIPE).await, Ok(STRIPE));
        let far = file(&volume, "far").await;
        write(&volume, far, 3 * STRIPE, &[1; 10]).await.unwrap();
        assert_eq!(volume.copy_range((far, 0), (one, STRIPE), STRIPE).await, Ok(STRIPE));
        let mut expected = content.clone();
        expected.resize(four as usize, 0);
        expected.extend_from_slice(&content[..STRIPE as usize]);
        expected[STRIPE as usize..2 * STRIPE as usize].fill(0);
        assert!(read_all(&volume, one).await == expected);
        volume.rename(ROOT, b"far", ROOT, b"two", RenameFlags::default()).await.unwrap();
        is_well(&volume).await;
        volume.close().await.unwrap();
    });
}

#[test]
fn a_job_and_a_write_do_not_wait_for_each_other_where_a_file_has_an_extent_twice() {
    let (world, store) = World::new(STRIPE, &[16, 16]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let one = file(&volume, "one").await;
        let content = bytes(12 * STRIPE as usize, 3);
        write(&volume, one, 0, &content).await.unwrap();
        for (from, to) in [(0, 10), (1, 11), (2, 9)] {
            let copied = volume.copy_range((one, from * STRIPE), (one, to * STRIPE), STRIPE).await;
            assert_eq!(copied, Ok(STRIPE));
        }
        volume.sync_all().await.unwrap();
        for brick in [0, 1, 0, 1] {
            volume.start_job(NewJob::Migrate { ino: one, brick }).await.unwrap();
            let ended = Rc::new(Cell::new(false));
            let (own, done) = (Rc::clone(&volume), Rc::clone(&ended));
            volume.shard.spawn(async move {
                own.wait_job().await.unwrap();
                done.set(true);
            });
            let mut turns = 0;
            while !ended.get() {
                // It begins before what the job holds and reaches behind it.
                let own = [9u8; 4096];
                write(&volume, one, 0, &own).await.unwrap();
                assert_eq!(read_all(&volume, one).await.len(), content.len());
                let wide = vec![turns as u8; 12 * STRIPE as usize];
                write(&volume, one, 0, &wide).await.unwrap();
                turns += 1;
                assert!(turns < 10_000);
            }
            for (from, to) in [(0, 10), (1, 11), (2, 9)] {
                let copied =
                    volume.copy_range((one, from * STRIPE), (one, to * STRIPE), STRIPE).await;
                assert_eq!(copied, Ok(STRIPE));
            }
        }
        is_well(&volume).await;
    });
}

#[test]
fn a_file_that_a_write_makes_grow_while_its_end_is_shared_shows_nothing_of_the_source() {
    let (world, store) = World::new(STRIPE, &[16]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let (one, two) = (file(&volume, "one").await, file(&volume, "two").await);
        // The source was longer once.
        write(&volume, one, 0, &[7; 70_000]).await.unwrap();
        let cut = SetAttr { size: Some(65_001), ..SetAttr::default() };
        volume.set_attr(ME, one, cut).await.unwrap();
        let written = Rc::new(Cell::new(false));
        let (own, done) = (Rc::clone(&volume), Rc::clone(&written));
        volume.shard.spawn(async move {
            write(&own, two, 200_000, &[5; 100]).await.unwrap();
            done.set(true);
        });
        let mut copied = 0;
        while copied < 65_001 {
            copied +=
                volume.copy_range((one, copied), (two, copied), 65_001 - copied).await.unwrap();
        }
        while !written.get() {
            volume.shard.next_turn().await;
        }
        let found = read_all(&volume, two).await;
        let expected = [vec![7; 65_001], vec![0; 200_000 - 65_001], vec![5; 100]].concat();
        assert!(found == expected);
        is_well(&volume).await;
    });
}
