//! Copies of what only snapshots have: they are made and filled like those of files.

use super::failing;
use super::returning::{back, take_back};
use super::sums::comes;
use super::*;
use crate::{BrickToAdd, NewJob};
use braid_device::IoErrorKind;
use braid_format::volume::keys;
use std::cell::Cell;
use std::sync::Arc;

const STRIPE: u64 = 128 << 10;

/// Bytes that differ from block to block.
fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 4096) as u8 ^ (at as u8).wrapping_mul(seed | 1)).collect()
}

/// Mounts with the bricks of these numbers only.
fn mount_with(world: &World, store: &ModelStore, there: &[usize]) -> Rc<Volume> {
    let mut from = world.mount_of(store);
    let mut at = 0;
    from.devices.retain(|_| {
        at += 1;
        there.contains(&(at - 1))
    });
    let shard = world.shard.clone();
    world.shard.block_on(async move { Volume::mount(&shard, from).await }).unwrap()
}

async fn is_well(volume: &Volume) {
    let report = volume.check(false).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
}

/// The stripes of which a check finds fewer copies than asked.
async fn lacking(volume: &Volume) -> u64 {
    volume.check(false).await.unwrap().lacking
}

async fn take(volume: &Rc<Volume>, name: &str) {
    volume.take_snapshot(ROOT, name).await.unwrap();
}

async fn remove(volume: &Volume, name: &str) {
    let ino = volume.resolve(format!("/{name}").as_bytes()).await.unwrap();
    volume.unlink(ROOT, name.as_bytes()).await.unwrap();
    volume.forget(ino, 1);
    volume.sync_all().await.unwrap();
}

/// Makes copies, unless that has begun by itself, and waits for the end.
async fn copies(volume: &Rc<Volume>) {
    let _ = volume.start_job(NewJob::Copies).await;
    volume.wait_job().await.unwrap();
    if volume.status().incomplete {
        volume.start_job(NewJob::Copies).await.unwrap();
        volume.wait_job().await.unwrap();
    }
    assert!(!volume.status().incomplete);
    is_well(volume).await;
    assert_eq!(lacking(volume).await, 0);
    volume.close().await.unwrap();
}

/// Each of these files is readable with any one of the bricks of `there` away.
fn readable(world: &World, store: &ModelStore, there: &[usize], files: &[(&str, &[u8])]) {
    let mut wrong = Vec::new();
    for missing in there {
        let rest: Vec<usize> = there.iter().copied().filter(|nr| nr != missing).collect();
        let volume = mount_with(world, &world.crash(store), &rest);
        for (path, content) in files {
            let (volume, path) = (Rc::clone(&volume), path.to_string());
            let own = path.clone();
            let read = world.shard.block_on(async move {
                let ino = volume.resolve(own.as_bytes()).await.unwrap();
                let size = volume.attr(ino).await.unwrap().size;
                volume.read(ino, 0, size as usize).await.map(|read| read.to_vec())
            });
            match read {
                Ok(read) if read == *content => {}
                Ok(_) => wrong.push(format!("{path} without brick {missing} is another")),
                Err(error) => wrong.push(format!("{path} without brick {missing}: {error:?}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// All snapshots go, and nothing is left of them.
fn all_is_freed(
    world: &World,
    store: &ModelStore,
    there: &[usize],
    names: &'static [&'static str],
) {
    let volume = mount_with(world, store, there);
    let shard = world.shard.clone();
    world.shard.block_on(async move {
        is_well(&volume).await;
        for name in names {
            volume.remove_snapshot(ROOT, name).await.unwrap();
        }
        while !volume.snapshots().await.is_empty() {
            shard.sleep(1_000_000).await;
        }
        volume.sync_all().await.unwrap();
        assert_eq!(volume.snapshot_bytes(), 0);
        is_well(&volume).await;
        volume.close().await.unwrap();
    });
}

#[test]
fn a_lost_brick_that_is_removed_takes_no_copy_of_what_snapshots_have_along() {
    let (world, store) = World::with_copies(STRIPE, &[16, 16, 16], 2);
    let (gone, over) = (bytes(1 << 20, 3), bytes(1 << 20, 5));
    let volume = world.mount(&store);
    let (first, second) = (gone.clone(), over.clone());
    world.shard.block_on(async move {
        let ino = file(&volume, "gone").await;
        write(&volume, ino, 0, &first).await.unwrap();
        let ino = file(&volume, "over").await;
        write(&volume, ino, 0, &second).await.unwrap();
        take(&volume, "then").await;
        write(&volume, ino, 0, &[9; 600_000]).await.unwrap();
        remove(&volume, "gone").await;
        volume.close().await.unwrap();
    });
    let volume = mount_with(&world, &store, &[0, 2]);
    world.shard.block_on(async move {
        volume.start_job(NewJob::Remove { brick: 1 }).await.unwrap();
        volume.wait_job().await.unwrap();
        assert!(volume.brick(1).is_none());
        is_well(&volume).await;
        volume.close().await.unwrap();
    });
    let files = [("/.snapshots/then/gone", &gone[..]), ("/.snapshots/then/over", &over)];
    readable(&world, &store, &[0, 2], &files);
    all_is_freed(&world, &store, &[0, 2], &["then"]);
}

#[test]
fn a_lost_brick_that_is_replaced_gets_what_snapshots_were_given_while_it_was_away() {
    let (mut world, store) = World::with_copies(STRIPE, &[16, 16], 2);
    let (old, new) = (bytes(1 << 20, 3), bytes(1 << 20, 5));
    let volume = world.mount(&store);
    let first = old.clone();
    world.shard.block_on(async move {
        let ino = file(&volume, "old").await;
        write(&volume, ino, 0, &first).await.unwrap();
        volume.close().await.unwrap();
    });
    let mut changed = old.clone();
    changed[300_000..500_000].fill(8);
    let volume = mount_with(&world, &store, &[0]);
    let second = new.clone();
    world.bricks.push(Ram::new("another", 16 << 20));
    let brick = BrickToAdd {
        uuid: Uuid::from_u128(3),
        device: world.bricks[2].device(),
        data_offset: 0,
        weight: 16,
        blocks: (16 << 20) / BLOCK,
        proxy: false,
        domain: String::new(),
        in_place_of: None,
    };
    world.shard.block_on(async move {
        let ino = volume.resolve(b"/old").await.unwrap();
        write(&volume, ino, 300_000, &[8; 200_000]).await.unwrap();
        let ino = file(&volume, "new").await;
        write(&volume, ino, 0, &second).await.unwrap();
        take(&volume, "then").await;
        remove(&volume, "new").await;
        remove(&volume, "old").await;
        // Eight stripes that were made meanwhile, and two of which a part was written.
        assert_eq!(lacking(&volume).await, 10);
        volume.add_brick(brick).await.unwrap();
        volume.start_job(NewJob::Remove { brick: 1 }).await.unwrap();
        volume.wait_job().await.unwrap();
        copies(&volume).await;
    });
    let files = [("/.snapshots/then/old", &changed[..]), ("/.snapshots/then/new", &new)];
    readable(&world, &store, &[0, 2], &files);
    all_is_freed(&world, &store, &[0, 2], &["then"]);
}

/// A brick is away while files are written, snapshots taken, and files written over and removed.
fn comes_back(away: usize) {
    let (world, store) = World::with_copies(STRIPE, &[32, 32], 2);
    let size = 1 << 20;
    let (old, new) = (bytes(size, 3), bytes(size, 5));
    let volume = world.mount(&store);
    let first = old.clone();
    world.shard.block_on(async move {
        for name in ["a", "b", "same"] {
            let ino = file(&volume, name).await;
            write(&volume, ino, 0, &first).await.unwrap();
        }
        take(&volume, "first").await;
        let ino = volume.resolve(b"/b").await.unwrap();
        write(&volume, ino, 200_000, &[1; 300_000]).await.unwrap();
        volume.close().await.unwrap();
    });
    let volume = mount_with(&world, &store, &[1 - away]);
    let second = new.clone();
    world.shard.block_on(async move {
        let a = volume.resolve(b"/a").await.unwrap();
        let b = volume.resolve(b"/b").await.unwrap();
        write(&volume, a, 100_000, &[2; 300_000]).await.unwrap();
        write(&volume, b, 300_000, &[2; 300_000]).await.unwrap();
        let new = file(&volume, "new").await;
        write(&volume, new, 0, &second).await.unwrap();
        take(&volume, "second").await;
        take(&volume, "third").await;
        write(&volume, b, 350_000, &[3; 100_000]).await.unwrap();
        write(&volume, new, 350_000, &[3; 100_000]).await.unwrap();
        take(&volume, "fourth").await;
        remove(&volume, "a").await;
        write(&volume, new, 700_000, &[4; 100_000]).await.unwrap();
        assert!(lacking(&volume).await > 8, "of files and snapshots");
        volume.close().await.unwrap();
    });
    let volume = world.mount(&store);
    world.shard.block_on(async move { copies(&volume).await });
    let with = |mut of: Vec<u8>, changes: &[(usize, usize, u8)]| {
        changes.iter().for_each(|(at, len, byte)| of[*at..at + len].fill(*byte));
        of
    };
    let a = with(old.clone(), &[(100_000, 300_000, 2)]);
    let b_first = (200_000, 300_000, 1);
    let b_second = (300_000, 300_000, 2);
    let b = with(old.clone(), &[b_first, b_second]);
    let b_fourth = with(b.clone(), &[(350_000, 100_000, 3)]);
    let new_fourth = with(new.clone(), &[(350_000, 100_000, 3)]);
    let new_now = with(new_fourth.clone(), &[(700_000, 100_000, 4)]);
    let files = [
        ("/.snapshots/first/a", &old[..]),
        ("/.snapshots/first/b", &old),
        ("/.snapshots/first/same", &old),
        ("/.snapshots/second/a", &a),
        ("/.snapshots/third/a", &a),
        ("/.snapshots/fourth/a", &a),
        ("/.snapshots/second/b", &b),
        ("/.snapshots/third/b", &b),
        ("/.snapshots/fourth/b", &b_fourth),
        ("/.snapshots/second/new", &new),
        ("/.snapshots/third/new", &new),
        ("/.snapshots/fourth/new", &new_fourth),
        ("/.snapshots/fourth/same", &old),
        ("/b", &b_fourth),
        ("/new", &new_now),
    ];
    readable(&world, &store, &[0, 1], &files);
    let other: &'static [&'static str] = match away {
        0 => &["third", "first", "fourth", "second"],
        _ => &["fourth", "second", "first", "third"],
    };
    all_is_freed(&world, &store, &[0, 1], other);
}

#[test]
fn a_brick_that_is_back_gets_what_snapshots_were_given_while_it_was_away() {
    comes_back(0);
    comes_back(1);
}

#[test]
fn more_copies_are_made_of_what_snapshots_have() {
    let (world, store) = World::new(STRIPE, &[16, 16]);
    let old = bytes(1 << 20, 3);
    let volume = world.mount(&store);
    let first = old.clone();
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &first).await.unwrap();
        take(&volume, "then").await;
        write(&volume, ino, 0, &[9; 600_000]).await.unwrap();
        volume.set_copies(ROOT, 2).await.unwrap();
        volume.wait_job().await.unwrap();
        is_well(&volume).await;
        volume.close().await.unwrap();
    });
    readable(&world, &store, &[0, 1], &[("/.snapshots/then/a", &old)]);
    all_is_freed(&world, &store, &[0, 1], &["then"]);
}

#[test]
fn snapshots_that_see_a_file_alike_get_the_same_copies_though_only_the_last_was_told_of_them() {
    let (world, store) = World::new(STRIPE, &[16, 16]);
    let old = bytes(1 << 20, 5);
    let volume = world.mount(&store);
    store.set_commit_time(5_000_000);
    let (first, shard) = (old.clone(), world.shard.clone());
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &first).await.unwrap();
        take(&volume, "one").await;
        let own = Rc::clone(&volume);
        let later = Rc::new(Cell::new(false));
        let told = Rc::clone(&later);
        shard.spawn(async move {
            own.set_copies(ROOT, 2).await.unwrap();
            told.set(true);
        });
        for _ in 0..1000 {
            if volume.job().is_some() {
                break;
            }
            shard.sleep(100_000).await;
        }
        volume.cancel_job();
        shard.sleep(1_000_000_000).await;
        assert!(later.get());
        volume.wait_job().await.unwrap();
        // The file is to have two copies now, and has one still.
        assert_eq!(lacking(&volume).await, 8);
        take(&volume, "two").await;
        copies(&volume).await;
    });
    let files: [(&str, &[u8]); 3] =
        [("/a", &old), ("/.snapshots/one/a", &old), ("/.snapshots/two/a", &old)];
    readable(&world, &store, &[0, 1], &files);
    all_is_freed(&world, &store, &[0, 1], &["one", "two"]);
}

/// What a job gave a brick of a snapshot's copies, and the brick has lost, is made again when it is back. `is_there`: the file is
/// there still, and has changed.
fn lost_by_the_brick_that_a_job_moves_to(is_there: bool) {
    let (world, store) = World::with_copies(STRIPE, &[16, 16, 16], 2);
    let (volume, bricks) = failing::mount(&world, &store, true);
    let ram = Arc::clone(world.bricks[2].memory());
    let returned = back(&world, 2, world.bricks[2].device());
    let old = bytes(4 << 20, 3);
    let content = old.clone();
    let own = store.clone();
    world.shard.block_on(async move {
        let ino = file(&volume, "old").await;
        write(&volume, ino, 0, &content).await.unwrap();
        take(&volume, "then").await;
        match is_there {
            true => write(&volume, ino, 0, &[9; 4 << 20]).await.unwrap(),
            false => remove(&volume, "old").await,
        }
        volume.sync_all().await.unwrap();
        let mut had = vec![0; ram.len()];
        ram.read(0, &mut had);
        let written = || volume.brick(2).unwrap().counts().bytes_written;
        let before = written();
        volume.start_job(NewJob::Remove { brick: 0 }).await.unwrap();
        failing::until(&volume, || written() >= before + 4 * STRIPE).await;
        bricks[2].fail(IoErrorKind::Gone);
        let _ = volume.wait_job().await;
        ram.write(0, &had);
        volume.sync_all().await.unwrap();
        let marks = volume.sums.unsettled();
        assert!(marks.iter().any(|mark| mark.stale[..] == [2]), "it had lost nothing");
        // The next mount is to know as well.
        let mark = own.get(&keys::intent(ino, 0)).await.unwrap();
        assert!(mark.is_some());
        is_well(&volume).await;
        take_back(&volume, returned).await.unwrap();
        comes(&volume, || volume.sums.unsettled().is_empty()).await;
        volume.resume_job();
        volume.wait_job().await.unwrap();
        copies(&volume).await;
    });
    readable(&world, &store, &[1, 2], &[("/.snapshots/then/old", &old[..])]);
    all_is_freed(&world, &store, &[1, 2], &["then"]);
}

#[test]
fn what_a_brick_has_lost_of_a_removed_file_that_a_snapshot_has_is_made_again() {
    lost_by_the_brick_that_a_job_moves_to(false);
}

#[test]
fn what_a_brick_has_lost_of_a_changed_file_as_a_snapshot_has_it_is_made_again() {
    lost_by_the_brick_that_a_job_moves_to(true);
}

#[test]
fn marks_of_what_only_a_snapshot_had_go_with_it() {
    let (world, store) = World::with_copies(STRIPE, &[16, 16, 16], 2);
    let (volume, bricks) = failing::mount(&world, &store, true);
    let own = store.clone();
    world.shard.block_on(async move {
        let ino = file(&volume, "old").await;
        write(&volume, ino, 0, &bytes(1 << 20, 3)).await.unwrap();
        take(&volume, "then").await;
        // Taken by two bricks, and not durable.
        write(&volume, ino, 0, &[7; 4096]).await.unwrap();
        bricks[2].fail(IoErrorKind::Gone);
        let _ = volume.sync_all().await;
        remove(&volume, "old").await;
        is_well(&volume).await;
        assert!(own.get(&keys::intent(ino, 0)).await.unwrap().is_some());
        volume.remove_snapshot(ROOT, "then").await.unwrap();
        while !volume.snapshots().await.is_empty() {
            volume.shard.sleep(1_000_000).await;
        }
        volume.sync_all().await.unwrap();
        assert_eq!(own.get(&keys::intent(ino, 0)).await.unwrap(), None);
        is_well(&volume).await;
    });
}
