//! Stripes that move while files are read and written.

use super::*;
use crate::{BrickToAdd, Gone, JobState, NewJob, VolumeError};
use braid_format::volume::brick_record::BrickState;
use braid_format::volume::job::JobRecord;
use braid_format::volume::keys;
use std::cell::RefCell;
use std::collections::BTreeSet;

const FILES: u64 = 4;
const SIZE: usize = 3 << 19;

fn content(at: u64) -> Vec<u8> {
    (0..SIZE as u64 / 512).flat_map(|block| [(block * 7 + at * 31) as u8; 512]).collect()
}

async fn fill(volume: &Volume) -> Vec<Ino> {
    let mut files = Vec::new();
    for at in 0..FILES {
        let ino = file(volume, &format!("f{at}")).await;
        write(volume, ino, 0, &content(at)).await.unwrap();
        files.push(ino);
    }
    files
}

async fn check_all(volume: &Rc<Volume>, files: &[Ino]) {
    for (ino, at) in files.iter().zip(0..) {
        assert!(read_all(volume, *ino).await == content(at), "file {at}");
    }
    let report = volume.check(false).await.unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    assert!(report.is_clean());
}

fn another(size: u64, id: u128) -> (Ram, BrickToAdd) {
    let ram = Ram::new("another", size << 20);
    let brick = BrickToAdd {
        uuid: Uuid::from_u128(id),
        device: ram.device(),
        data_offset: 0,
        weight: size,
        blocks: (size << 20) / BLOCK,
        proxy: false,
        domain: String::new(),
        in_place_of: None,
    };
    (ram, brick)
}

/// Runs a job to its end and gives the bytes that it wrote.
async fn run(volume: &Rc<Volume>, job: NewJob) -> u64 {
    let written = || volume.bricks().iter().map(|brick| brick.counts().bytes_written).sum::<u64>();
    let before = written();
    volume.start_job(job).await.unwrap();
    volume.wait_job().await.unwrap();
    // A brick that was let go was only read.
    written().saturating_sub(before)
}

#[test]
fn a_brick_that_is_added_gets_its_share_and_one_that_is_removed_gives_all_back() {
    let (world, store) = World::new(128 << 10, &[32, 32, 32]);
    let volume = world.mount(&store);
    let (_ram, brick) = another(32, 4);
    world.shard.block_on(async move {
        let files = fill(&volume).await;
        let id = volume.add_brick(brick).await.unwrap();
        assert!(volume.status().unbalanced);
        let all = FILES * SIZE as u64;
        let moved = run(&volume, NewJob::Balance).await;
        assert!(
            moved <= all / 4 + (all / 100) && moved >= all / 4 - all / 50,
            "{moved} of {all} bytes"
        );
        let used = volume.brick(id).unwrap().space.used() * BLOCK;
        assert_eq!(used, moved);
        assert!(!volume.status().unbalanced);
        check_all(&volume, &files).await;
        let gone = volume.brick(0).unwrap();
        let (used, written) = (gone.space.used() * BLOCK, gone.counts().bytes_written);
        // Earlier writes to this brick are not part of the difference.
        assert_eq!(run(&volume, NewJob::Remove { brick: 0 }).await, used.saturating_sub(written));
        assert!(volume.brick(0).is_none());
        assert_eq!(volume.take_gone(), [Gone { id: 0, uuid: Uuid::from_u128(1) }]);
        check_all(&volume, &files).await;
        // A balanced volume stays as it is.
        assert_eq!(run(&volume, NewJob::Balance).await, 0);
    });
}

#[test]
fn a_brick_that_takes_the_place_of_another_gets_what_that_held_and_nothing_else_moves() {
    let (world, store) = World::new(128 << 10, &[32, 32, 32]);
    let volume = world.mount(&store);
    let (_ram, mut brick) = another(32, 4);
    world.shard.block_on(async move {
        let files = fill(&volume).await;
        let held = |id: u16| volume.brick(id).unwrap().space.used();
        let before = (held(0), held(1), held(2));
        (brick.weight, brick.in_place_of) = (volume.brick(1).unwrap().weight(), Some(1));
        let id = volume.add_brick(brick).await.unwrap();
        assert_eq!(volume.brick(1).unwrap().state(), BrickState::Removing);
        assert!(!volume.status().unbalanced);
        let moved = run(&volume, NewJob::Remove { brick: 1 }).await;
        // The old one's own counts went with it.
        assert!(moved <= before.1 * BLOCK, "{moved} of {}", before.1 * BLOCK);
        assert_eq!((held(0), held(id), held(2)), before);
        assert!(volume.brick(1).is_none() && !volume.status().unbalanced);
        check_all(&volume, &files).await;
        assert_eq!(run(&volume, NewJob::Balance).await, 0);
        let refused = |old| {
            let (_ram, mut brick) = another(32, 5);
            brick.in_place_of = Some(old);
            volume.add_brick(brick)
        };
        assert!(matches!(refused(1).await, Err(VolumeError::NoSuchBrick(1))));
        volume.set_proxy(Some(0)).await.unwrap();
        assert!(matches!(refused(0).await, Err(VolumeError::Refused(_))));
        assert_eq!(volume.bricks().len(), 3);
    });
}

#[test]
fn bricks_that_are_added_at_the_same_time_get_numbers_of_their_own() {
    let (world, store) = World::new(128 << 10, &[32]);
    let volume = world.mount(&store);
    store.set_commit_time(100_000_000);
    let bricks = [another(32, 4), another(32, 5), another(32, 5)];
    world.shard.block_on(async move {
        file(&volume, "a").await;
        let syncing = Rc::clone(&volume);
        volume.shard.spawn(async move { syncing.sync().await.unwrap() });
        // The commit is under way, and whoever reads the store waits for it.
        volume.shard.sleep(1_000_000).await;
        let results = Rc::new(RefCell::new(Vec::new()));
        for (_, brick) in bricks {
            let (own, results) = (Rc::clone(&volume), Rc::clone(&results));
            volume.shard.spawn(async move {
                let result = own.add_brick(brick).await;
                results.borrow_mut().push(result.ok());
            });
        }
        while results.borrow().len() < 3 {
            volume.shard.sleep(1_000_000).await;
        }
        results.borrow_mut().sort();
        assert_eq!(*results.borrow(), [None, Some(1), Some(2)]);
        assert_eq!(volume.bricks().len(), 3);
    });
}

#[test]
fn a_job_that_is_cancelled_or_paused_while_it_is_prepared_does_not_go_on() {
    let (world, store) = World::new(128 << 10, &[32, 32]);
    let volume = world.mount(&store);
    store.set_commit_time(5_000_000);
    world.shard.block_on(async move {
        let files = fill(&volume).await;
        for cancel in [false, true] {
            let starting = Rc::clone(&volume);
            volume.shard.spawn(async move {
                starting.start_job(NewJob::Remove { brick: 1 }).await.unwrap();
            });
            volume.shard.sleep(1_000_000).await;
            match cancel {
                false => volume.pause_job(),
                true => volume.cancel_job(),
            }
            volume.wait_job().await.unwrap();
            let state = volume.job().map(|job| job.state);
            assert_eq!(state, (!cancel).then_some(crate::JobState::Paused));
            // A paused job is cancelled at once.
            volume.cancel_job();
            assert_eq!(volume.brick(1).unwrap().state(), BrickState::Data);
        }
        check_all(&volume, &files).await;
    });
}

#[test]
fn the_last_brick_and_one_whose_data_fit_nowhere_are_not_removed() {
    let (world, store) = World::new(128 << 10, &[16, 4]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &[1; 8 << 20]).await.unwrap();
        let refused = volume.start_job(NewJob::Remove { brick: 0 }).await.unwrap_err().to_string();
        assert!(refused.contains("do not fit"), "{refused}");
        assert_eq!(volume.brick(0).unwrap().state(), BrickState::Data);
        run(&volume, NewJob::Remove { brick: 1 }).await;
        let refused = volume.start_job(NewJob::Remove { brick: 0 }).await.unwrap_err().to_string();
        assert!(refused.contains("last brick"), "{refused}");
        assert!(volume.set_weight(0, 0).await.is_err());
    });
}

#[test]
fn a_proxy_takes_new_stripes_until_it_is_flushed() {
    let (world, store) = World::new(128 << 10, &[32, 32]);
    let volume = world.mount(&store);
    let (_ram, mut brick) = another(32, 4);
    brick.proxy = true;
    world.shard.block_on(async move {
        let id = volume.add_brick(brick).await.unwrap();
        let files = fill(&volume).await;
        let on_proxy = volume.brick(id).unwrap().space.used() * BLOCK;
        assert_eq!(on_proxy, FILES * SIZE as u64);
        assert_eq!(run(&volume, NewJob::Flush).await, on_proxy);
        volume.sync().await.unwrap();
        assert_eq!(volume.brick(id).unwrap().space.used(), 0);
        check_all(&volume, &files).await;
        run(&volume, NewJob::Remove { brick: id }).await;
        check_all(&volume, &files).await;
    });
}

#[test]
fn a_file_that_was_migrated_stays_on_its_brick() {
    let (world, store) = World::new(128 << 10, &[32, 32]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let files = fill(&volume).await;
        run(&volume, NewJob::Migrate { ino: files[1], brick: 1 }).await;
        write(&volume, files[1], 0, &content(1)).await.unwrap();
        assert_eq!(run(&volume, NewJob::Balance).await, 0);
        volume.set_pinned(files[1], false).await.unwrap();
        assert!(run(&volume, NewJob::Balance).await > 0);
        check_all(&volume, &files).await;
    });
}

#[test]
fn many_files_are_migrated_by_one_job_which_goes_on_after_a_crash() {
    let (world, store) = World::new(128 << 10, &[32, 32, 8]);
    let volume = world.mount(&store);
    let files = world.shard.block_on(async move {
        let files = fill(&volume).await;
        let directory = make(&volume, ROOT, "d", Kind::Directory).await.unwrap().attr.ino;
        assert!(volume.migrate_files(&[files[0], directory], 1).await.is_err());
        let refused = volume.migrate_files(&files, 2).await.err().map(|error| error.to_string());
        assert_eq!(refused, None, "6 MiB fit on 8");
        volume.cancel_job();
        volume.wait_job().await.unwrap();
        volume.set_job_speed(Some(512 << 10));
        volume.migrate_files(&files[1..3], 1).await.unwrap();
        assert!(volume.migrate_files(&files, 0).await.is_err());
        let told = async |ino| volume.inodes.get(ino).await.unwrap().with(|record| record.brick);
        assert_eq!((told(files[0]).await, told(files[1]).await), (2, 1), "one job at a time");
        volume.sync().await.unwrap();
        assert!(volume.job().is_some_and(|job| job.done < job.total));
        files
    });
    let store = world.crash(&store);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        volume.wait_job().await.unwrap();
        for ino in &files[1..3] {
            let inode = volume.inodes.get(*ino).await.unwrap();
            let placed = volume.extents.group(&inode.extents, 0).await.unwrap().placed();
            assert!(placed.iter().all(|(_, extent)| extent.brick == 1));
        }
        check_all(&volume, &files).await;
    });
}

#[test]
fn a_job_goes_on_after_a_crash_and_after_a_remount() {
    for kept in [3, 20, 60] {
        let (mut world, store) = World::new(128 << 10, &[32, 32, 32]);
        let volume = world.mount(&store);
        let (ram, brick) = another(32, 4);
        let files = world.shard.block_on(async move {
            let files = fill(&volume).await;
            volume.add_brick(brick).await.unwrap();
            volume.set_job_speed(Some(256 << 10));
            volume.start_job(NewJob::Balance).await.unwrap();
            while volume.job().is_some_and(|job| job.done < kept << 10) {
                volume.shard.sleep(1_000_000).await;
            }
            volume.sync().await.unwrap();
            files
        });
        world.bricks.push(ram);
        let store = world.crash(&store);
        let volume = world.mount(&store);
        world.shard.block_on(async move {
            volume.wait_job().await.unwrap();
            check_all(&volume, &files).await;
            assert_eq!(run(&volume, NewJob::Balance).await, 0);
            volume.close().await.unwrap();
        });
    }
}

#[test]
fn a_job_that_was_said_to_be_started_goes_on_after_a_crash_at_once() {
    let (world, store) = World::new(128 << 10, &[32, 32, 32]);
    let volume = world.mount(&store);
    store.set_commit_time(100_000_000);
    let files = world.shard.block_on(async move {
        let files = fill(&volume).await;
        volume.start_job(NewJob::Remove { brick: 0 }).await.unwrap();
        files
    });
    let store = world.crash(&store);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        volume.wait_job().await.unwrap();
        assert!(volume.brick(0).is_none());
        check_all(&volume, &files).await;
    });
}

#[test]
fn stripes_that_are_written_while_they_move_keep_what_was_written() {
    let (world, store) = World::new(128 << 10, &[32, 32]);
    let volume = world.mount(&store);
    let (_ram, brick) = another(32, 4);
    world.shard.block_on(async move {
        let files = fill(&volume).await;
        volume.add_brick(brick).await.unwrap();
        volume.start_job(NewJob::Balance).await.unwrap();
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..200 {
            let at = random.usize(..files.len());
            let from = random.usize(..SIZE - 5000);
            write(&volume, files[at], from as u64, &content(at as u64)[from..from + 5000])
                .await
                .unwrap();
        }
        volume.wait_job().await.unwrap();
        check_all(&volume, &files).await;
    });
}

#[test]
fn a_defragmented_file_lies_in_one_piece_on_each_brick() {
    let (world, store) = World::new(128 << 10, &[64]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let (one, other) = (file(&volume, "a").await, file(&volume, "b").await);
        for at in 0..64u64 {
            for ino in [one, other] {
                write(&volume, ino, at << 17, &vec![at as u8; 1 << 17]).await.unwrap();
            }
        }
        let parts = async || {
            let inode = volume.inodes.get(one).await.unwrap();
            let extents = volume.extents.group(&inode.extents, 0).await.unwrap().placed();
            extents.windows(2).filter(|pair| pair[0].1.start + 32 != pair[1].1.start).count()
        };
        assert_eq!(parts().await, 63);
        run(&volume, NewJob::Defrag).await;
        assert!(parts().await < 4);
        let report = volume.check(false).await.unwrap();
        assert!(report.is_clean(), "{:?}", report.problems);
        assert!(volume.read(one, 63 << 17, 10).await.unwrap().iter().all(|byte| *byte == 63));
    });
}

#[test]
fn what_lay_on_a_lost_brick_is_named_and_the_rest_is_read() {
    let (mut world, store) = World::new(128 << 10, &[32, 32, 32]);
    let volume = world.mount(&store);
    let files = world.shard.block_on(async move {
        let files = fill(&volume).await;
        volume.close().await.unwrap();
        files
    });
    world.bricks.pop();
    let store = world.crash(&store);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let report = volume.check(false).await.unwrap();
        assert_eq!(report.lost.len(), files.len());
        assert_eq!(report.lost[0].path, "/f0");
        let mut good = 0;
        for at in (0..SIZE as u64).step_by(1 << 17) {
            let is_lost = report.lost[0].ranges.iter().any(|range| range.0 <= at && at < range.1);
            let read = volume.read(files[0], at, 1 << 17).await;
            assert_eq!(read.is_err(), is_lost, "at {at}");
            good += u64::from(!is_lost);
        }
        assert_eq!(good, 8);
        let ino = file(&volume, "new").await;
        write(&volume, ino, 0, &[9; 1 << 20]).await.unwrap();
        assert_eq!(read_all(&volume, ino).await, vec![9; 1 << 20]);
        // A stripe that is written as a whole is there again.
        let at = report.lost[0].ranges[0].0;
        write(&volume, files[0], at, &vec![8; 1 << 17]).await.unwrap();
        assert_eq!(volume.read(files[0], at, 1 << 17).await.unwrap()[..], vec![8; 1 << 17]);
        assert_eq!(
            write(&volume, files[1], report.lost[1].ranges[0].0 + 5, b"x").await,
            Err(Errno::Io)
        );
    });
}

#[test]
fn blocks_that_nobody_names_are_found_and_freed() {
    let (world, store) = World::new(128 << 10, &[32]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        fill(&volume).await;
        let brick = volume.brick(0).unwrap();
        volume.extents.reserve_on(&brick, 32).await.unwrap().unwrap().lose();
        let report = volume.check(false).await.unwrap();
        assert_eq!((report.leaked_blocks, report.found, report.repaired), (32, 1, 0));
        assert_eq!(volume.check(true).await.unwrap().repaired, 1);
        assert!(volume.check(false).await.unwrap().is_clean());
        assert_eq!(brick.space.used() * BLOCK, FILES * SIZE as u64);
    });
}

#[test]
fn a_job_that_is_resumed_before_its_pause_took_effect_goes_on() {
    let (world, store) = World::new(128 << 10, &[32]);
    let volume = world.mount(&store);
    let (_ram, brick) = another(32, 4);
    world.shard.block_on(async move {
        let files = fill(&volume).await;
        volume.add_brick(brick).await.unwrap();
        volume.start_job(NewJob::Balance).await.unwrap();
        volume.pause_job();
        volume.resume_job();
        volume.wait_job().await.unwrap();
        assert_eq!(volume.job(), None);
        assert!(!volume.status().unbalanced);
        check_all(&volume, &files).await;
    });
}

#[test]
fn a_job_that_was_paused_just_before_the_end_of_the_mount_stays_paused_and_others_do_not() {
    for pause in [true, false] {
        let (world, store) = World::new(128 << 10, &[32, 32]);
        let volume = world.mount(&store);
        let own = Rc::clone(&volume);
        world.shard.block_on(async move {
            fill(&own).await;
            own.set_weight(0, 1).await.unwrap();
            own.set_job_speed(Some(1 << 20));
            own.start_job(NewJob::Balance).await.unwrap();
            if pause {
                own.pause_job();
            }
            own.close().await.unwrap();
            assert!(own.start_job(NewJob::Balance).await.is_err());
        });
        drop(volume);
        let volume = world.mount(&store);
        world.shard.block_on(async move {
            let is_paused = volume.job().is_some_and(|job| job.state == JobState::Paused);
            assert_eq!(is_paused, pause);
            assert!(volume.status().unbalanced || !pause);
            volume.resume_job();
            volume.wait_job().await.unwrap();
            assert_eq!(volume.job(), None);
            assert!(!volume.status().unbalanced);
        });
    }
}

#[test]
fn what_was_said_of_a_job_is_known_after_a_crash() {
    let (world, store) = World::new(128 << 10, &[32, 32]);
    let volume = world.mount(&store);
    let after_crash = |volume: &Rc<Volume>, what: fn(&Volume)| {
        let own = Rc::clone(volume);
        world.shard.block_on(async move {
            what(&own);
            own.make_job_durable().await.unwrap();
        });
        let left = world.crash(&store);
        let record = world.shard.block_on(async move { left.get(keys::JOB).await }).unwrap();
        record.map(|bytes| JobRecord::parse(&bytes).unwrap().paused)
    };
    let own = Rc::clone(&volume);
    world.shard.block_on(async move {
        fill(&own).await;
        own.set_weight(0, 1).await.unwrap();
        own.set_job_speed(Some(1 << 20));
        own.start_job(NewJob::Balance).await.unwrap();
    });
    assert_eq!(after_crash(&volume, |_| ()), Some(false));
    assert_eq!(after_crash(&volume, Volume::pause_job), Some(true));
    assert_eq!(after_crash(&volume, Volume::resume_job), Some(false));
    assert_eq!(after_crash(&volume, Volume::cancel_job), None);
    assert!(volume.job().is_none());
}

#[test]
fn a_migration_that_is_refused_leaves_the_file_where_it_was_told_to_be() {
    let (world, store) = World::new(128 << 10, &[32, 32, 4]);
    let volume = world.mount(&store);
    let own = Rc::clone(&volume);
    let ino = world.shard.block_on(async move {
        let ino = file(&own, "a").await;
        write(&own, ino, 0, &vec![1; 12 << 20]).await.unwrap();
        own.start_job(NewJob::Migrate { ino, brick: 0 }).await.unwrap();
        own.wait_job().await.unwrap();
        let refused = own.start_job(NewJob::Migrate { ino, brick: 2 }).await.unwrap_err();
        assert!(refused.to_string().contains("are to go to"), "{refused}");
        let told = own.inodes.get(ino).await.unwrap().with(|record| record.wanted_brick());
        assert_eq!(told, Some(0));
        let before = own.brick(2).unwrap().space.used();
        write(&own, ino, 12 << 20, &vec![1; 2 << 20]).await.unwrap();
        assert_eq!(own.brick(2).unwrap().space.used(), before);
        own.sync().await.unwrap();
        ino
    });
    let store = world.crash(&store);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let told = volume.inodes.get(ino).await.unwrap().with(|record| record.wanted_brick());
        assert_eq!(told, Some(0));
    });
}

/// The bricks of all copies of each of a file's first stripes.
async fn places(volume: &Volume, ino: Ino, stripes: u64) -> Vec<BTreeSet<u16>> {
    let inode = volume.inodes.file(ino).await.unwrap();
    let rows = inode.with(|record| record.held);
    let mut all = Vec::new();
    for stripe in 0..stripes {
        let stripe = volume.extents.stripe(&inode.extents, stripe, rows).await.unwrap();
        let bricks: Vec<u16> = stripe.extents().map(|(_, extent)| extent.brick).collect();
        let distinct: BTreeSet<u16> = bricks.iter().copied().collect();
        assert_eq!(distinct.len(), bricks.len(), "two copies on one brick: {bricks:?}");
        all.push(distinct);
    }
    all
}

#[test]
fn a_fifth_brick_gets_its_share_of_two_copies_and_nothing_else_moves() {
    const STRIPE: u64 = 16 << 10;
    const STRIPES: u64 = 2000;
    let (world, store) = World::with_copies(STRIPE, &[64, 64, 64, 64], 2);
    let volume = world.mount(&store);
    let (_ram, brick) = another(64, 5);
    world.shard.block_on(async move {
        let ino = file(&volume, "f").await;
        let bytes: Vec<u8> = (0..STRIPES * STRIPE).map(|at| (at / 4096) as u8).collect();
        for (nr, part) in bytes.chunks(1 << 20).enumerate() {
            write(&volume, ino, (nr as u64) << 20, part).await.unwrap();
        }
        let before = places(&volume, ino, STRIPES).await;
        let id = volume.add_brick(brick).await.unwrap();
        let written = run(&volume, NewJob::Balance).await;
        let after = places(&volume, ino, STRIPES).await;
        let moved: usize =
            before.iter().zip(&after).map(|(old, new)| new.difference(old).count()).sum();
        let there = after.iter().filter(|bricks| bricks.contains(&id)).count();
        assert_eq!(moved, there, "only what is on the new brick has moved");
        assert!(there.abs_diff(2 * STRIPES as usize / 5) <= 8, "{there} stripes are there");
        let least = there as u64 * STRIPE;
        assert!(written * 100 <= least * 101, "{written} bytes were written, {least} had to be");
        assert!(read_all(&volume, ino).await == bytes);
        run(&volume, NewJob::Remove { brick: 0 }).await;
        for bricks in places(&volume, ino, STRIPES).await {
            assert!(bricks.len() == 2 && !bricks.contains(&0), "{bricks:?}");
        }
        run(&volume, NewJob::Migrate { ino, brick: 1 }).await;
        for bricks in places(&volume, ino, STRIPES).await {
            assert!(bricks.len() == 2 && bricks.contains(&1), "one copy is where it is to be");
        }
        run(&volume, NewJob::Balance).await;
        for bricks in places(&volume, ino, STRIPES).await {
            assert!(bricks.len() == 2 && bricks.contains(&1), "and stays there");
        }
        assert!(read_all(&volume, ino).await == bytes);
        let report = volume.check(false).await.unwrap();
        assert!(report.is_clean(), "{report:?}");
        volume.close().await.unwrap();
    });
}
