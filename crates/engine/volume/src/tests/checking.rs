//! Checks: what they find, what they put right, and files that change meanwhile.

use super::*;
use crate::{CheckEnd, CheckReport, JobState, NewJob};
use braid_filesystem::{RenameFlags, SetAttr};
use braid_format::volume::entry::{ByCookie, ByName};
use braid_format::volume::extent::{Extent, PER_GROUP, encode};
use braid_format::volume::keys;
use std::cell::Cell;

/// More than are counted in one walk in tests.
const FILES: u64 = 50;

/// Files of one stripe and more, some in directories, some with two names.
async fn tree(volume: &Volume) -> Vec<Ino> {
    let mut files = Vec::new();
    let mut directory = ROOT;
    for at in 0..FILES {
        if at % 10 == 0 {
            let made = make(volume, directory, &format!("d{at}"), Kind::Directory).await;
            directory = made.unwrap().attr.ino;
        }
        let ino = make(volume, directory, &format!("f{at}"), Kind::File).await.unwrap().attr.ino;
        write(volume, ino, 0, &vec![at as u8; 200_000]).await.unwrap();
        if at % 7 == 0 {
            volume.link(ino, ROOT, format!("l{at}").as_bytes()).await.unwrap();
        }
        files.push(ino);
    }
    files
}

/// The findings of a check with `repair`, after which another finds nothing.
async fn repaired(volume: &Rc<Volume>) -> CheckReport {
    let told = volume.check(false).await.unwrap();
    let report = volume.check(true).await.unwrap();
    assert_eq!(report.problems, told.problems);
    assert_eq!((told.repaired, report.found), (0, report.repaired), "{:?}", report.problems);
    let left = volume.check(false).await.unwrap();
    assert_eq!(left.problems, Vec::<String>::new());
    report
}

fn has(report: &CheckReport, what: &str) -> bool {
    report.problems.iter().any(|problem| problem.contains(what))
}

#[test]
fn a_check_of_more_files_and_blocks_than_it_looks_at_at_a_time_counts_them_all() {
    let (world, store) = World::new(16 << 10, &[300, 300]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        tree(&volume).await;
        let report = volume.check(false).await.unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        assert_eq!((report.files, report.directories), (FILES + 6, 6));
        assert_eq!(report.bytes, volume.usage().0 * BLOCK);
    });
}

#[test]
fn whatever_is_wrong_with_names_is_told_and_put_right() {
    let (world, store) = World::new(128 << 10, &[64]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let files = tree(&volume).await;
        volume.sync().await.unwrap();
        let set = |key: Vec<u8>, value: Option<Vec<u8>>| volume.transactions.set(key, value);
        let file = |ino: u64, cookie: u64| ByName { ino, cookie, kind: 8 };
        // A name of a file that was never there, of one that cannot be yet, and in no directory.
        set(keys::name(ROOT, b"nothing"), Some(file(40_000, 1 << 40).encode()));
        set(keys::name(ROOT, b"later"), Some(file(1 << 60, 1 << 41).encode()));
        set(keys::name(1 << 61, b"nowhere"), Some(file(files[3], 1 << 42).encode()));
        // One that is only in the order of its directory, and a directory that is not there.
        let stray = ByCookie { ino: files[4], kind: 8, name: b"stray".to_vec() };
        set(keys::cookie(ROOT, 77), Some(stray.encode()));
        set(keys::cookie(1 << 62, 78), Some(stray.encode()));
        // One that is in no order.
        let found = volume.transactions.stored(&keys::name(ROOT, b"l7")).await.unwrap().unwrap();
        set(keys::cookie(ROOT, ByName::parse(&found).unwrap().cookie), None);
        // Records that cannot be read, and a file without a name.
        set(keys::name(ROOT, b"damaged"), Some(vec![1, 2, 3]));
        let lost = make(&volume, ROOT, "to be lost", Kind::File).await.unwrap().attr.ino;
        let found =
            volume.transactions.stored(&keys::name(ROOT, b"to be lost")).await.unwrap().unwrap();
        set(keys::cookie(ROOT, ByName::parse(&found).unwrap().cookie), None);
        set(keys::name(ROOT, b"to be lost"), None);
        let root = volume.inodes.get(ROOT).await.unwrap();
        volume.inodes.edit(&root, true, |record| record.entries -= 1);
        // Counts.
        let inode = volume.inodes.get(files[FILES as usize - 1]).await.unwrap();
        volume.inodes.edit(&inode, true, |record| record.nlink = 9);
        let directory = volume.resolve(b"/d0/d10").await.unwrap();
        let inode = volume.inodes.get(directory).await.unwrap();
        volume.inodes.edit(&inode, true, |record| (record.entries, record.parent) = (3, 1));
        volume.namespace.forget_names();
        let report = repaired(&volume).await;
        for what in [
            "the name nothing in directory 1 stands for nothing",
            "the name later in directory 1 stands for nothing",
            "the name nowhere in directory",
            "stray is in the order of directory 1 and",
            "stray is in the order of directory 4611686018427387904 and",
            "the name l7 in directory 1 is missing in its order",
            "a directory entry cannot be read",
            &format!("file {lost} has no name"),
            "says 9 links",
            "in another directory than it says",
        ] {
            assert!(has(&report, what), "{what}: {:?}", report.problems);
        }
        volume.resolve(format!("/lost+found/#{lost}").as_bytes()).await.unwrap();
        volume.resolve(b"/l7").await.unwrap();
        assert!(volume.resolve(b"/nothing").await.is_err());
    });
}

#[test]
fn whatever_is_wrong_with_places_is_told_and_put_right() {
    let (world, store) = World::new(16 << 10, &[300]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let files = tree(&volume).await;
        volume.sync().await.unwrap();
        let mut list = [Extent::HOLE; PER_GROUP as usize];
        // A file that does not exist names blocks of one that does.
        let inode = volume.inodes.get(files[9]).await.unwrap();
        list[5] = volume.extents.get(&inode.extents, 0).await.unwrap().1;
        volume.transactions.set(keys::extents(50_000, 3), encode(&list));
        let inode = volume.inodes.get(files[20]).await.unwrap();
        volume.inodes.edit(&inode, true, |record| record.blocks += 5);
        let brick = volume.brick(0).unwrap();
        let (_, extent) = volume.extents.get(&inode.extents, 2).await.unwrap();
        volume.extents.prepare_free(extent).await.unwrap();
        volume.extents.free_unnamed(&brick, extent.start, 1);
        volume.extents.reserve_on(&brick, 32).await.unwrap().unwrap().lose();
        let told = volume.check(false).await.unwrap();
        assert!(has(&told, "shares 4 blocks"), "{:?}", told.problems);
        let report = volume.check(true).await.unwrap();
        for what in [
            "extents of file 50000, which does not exist",
            "32 blocks are in use and no file has them",
            "1 blocks of files are recorded as free",
            "blocks, its extents take",
        ] {
            assert!(has(&told, what) && has(&report, what), "{what}: {:?}", report.problems);
        }
        let left = volume.check(true).await.unwrap();
        assert_eq!(left.problems, Vec::<String>::new());
        for (at, ino) in files.iter().enumerate() {
            assert_eq!(read_all(&volume, *ino).await, vec![at as u8; 200_000]);
        }
    });
}

#[test]
fn copies_are_checked_with_the_stripes_that_they_are_of() {
    let (world, store) = World::new(16 << 10, &[300, 300, 300]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let files = tree(&volume).await;
        let alone = volume.check(false).await.unwrap();
        volume.set_copies(ROOT, 2).await.unwrap();
        volume.wait_job().await.unwrap();
        let report = volume.check(false).await.unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        assert_eq!((report.stripes, report.bytes), (alone.stripes, 2 * alone.bytes));
        assert_eq!(report.bytes, volume.usage().0 * BLOCK);
        // A copy lies where the other is.
        let inode = volume.inodes.get(files[7]).await.unwrap();
        let stripe = volume.extents.stripe(&inode.extents, 2, 2).await.unwrap();
        let brick = volume.brick(stripe.get(0).brick).unwrap();
        let blocks = u64::from(stripe.get(1).blocks);
        let reserved = volume.extents.reserve_on(&brick, blocks).await.unwrap().unwrap();
        volume.extents.prepare_free(stripe.get(1)).await.unwrap();
        let (group, number) = stripe.place(1);
        let replaced = volume.extents.publish(group, number, &reserved, stripe.get(0).written);
        volume.inodes.extent_replaced(&inode, replaced);
        // Copies that their file does not know of.
        let other = volume.inodes.get(files[9]).await.unwrap();
        volume.inodes.edit(&other, true, |record| (record.copies, record.held) = (1, 1));
        let report = repaired(&volume).await;
        for what in [
            &format!("copy 1 of stripe 2 of file {} is on", files[7]),
            &format!("file {} has copy 1 of stripes, and says to have 1", files[9]),
        ] {
            assert!(has(&report, what), "{what}: {:?}", report.problems);
        }
        assert!(stripe.get(1).is_hole());
        volume.start_job(NewJob::Copies).await.unwrap();
        volume.wait_job().await.unwrap();
        assert_ne!(stripe.get(1).brick, stripe.get(0).brick);
        let freed = volume.extents.stripe(&other.extents, 0, 2).await.unwrap();
        assert!(!freed.get(0).is_hole() && freed.get(1).is_hole());
        assert_eq!(volume.check(false).await.unwrap().problems, Vec::<String>::new());
        for (at, ino) in files.iter().enumerate() {
            assert_eq!(read_all(&volume, *ino).await, vec![at as u8; 200_000]);
        }
    });
}

/// Makes, removes, renames, writes and cuts files at random.
async fn stir(volume: &Volume, seed: u64, rounds: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..rounds {
        let (one, other) = (random.u64(..30), random.u64(..30));
        let (name, new) = (format!("s{seed}-{one}"), format!("s{seed}-{other}"));
        match random.u8(..7) {
            0 => _ = make(volume, ROOT, &name, Kind::Directory).await,
            1 => _ = volume.unlink(ROOT, name.as_bytes()).await,
            2 => _ = volume.remove_dir(ROOT, name.as_bytes()).await,
            3 => {
                let flags = RenameFlags::default();
                _ = volume.rename(ROOT, name.as_bytes(), ROOT, new.as_bytes(), flags).await;
            }
            4 => {
                let Ok(entry) = volume.lookup(ROOT, name.as_bytes()).await else { continue };
                _ = volume.link(entry.attr.ino, ROOT, new.as_bytes()).await;
                volume.forget(entry.attr.ino, 1);
            }
            _ => {
                let made = make(volume, ROOT, &name, Kind::File).await;
                let found = match made {
                    Ok(entry) => Ok(entry),
                    Err(_) => volume.lookup(ROOT, name.as_bytes()).await,
                };
                let Ok(entry) = found else { continue };
                let ino = entry.attr.ino;
                let at = random.u64(..60) * 5000;
                _ = write(volume, ino, at, &[round as u8; 30_000]).await;
                let size = Some(random.u64(..400_000));
                _ = volume.set_attr(ME, ino, SetAttr { size, ..SetAttr::default() }).await;
                volume.forget(ino, 1);
            }
        }
        if random.u8(..20) == 0 {
            volume.sync().await.unwrap();
        }
        volume.shard.next_turn().await;
    }
}

#[test]
fn a_check_finds_nothing_wrong_in_files_that_change_and_move_meanwhile() {
    for seed in 0..6 {
        let (world, store) = World::new(16 << 10, &[300, 300]);
        store.set_commit_time(200_000);
        let volume = world.mount(&store);
        world.shard.block_on(async move {
            tree(&volume).await;
            stir(&volume, seed, 300).await;
            let stirring = Rc::clone(&volume);
            let (done, enough) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
            let (says, hears) = (Rc::clone(&done), Rc::clone(&enough));
            volume.shard.spawn(async move {
                stir(&stirring, seed, 9000).await;
                // However slow this machine is: several checks are to come to an end meanwhile.
                while !hears.get() {
                    stir(&stirring, seed, 100).await;
                }
                says.set(true);
            });
            volume.set_weight(0, seed * 100 + 1).await.unwrap();
            volume.start_job(NewJob::Balance).await.unwrap();
            let mut checks = 0;
            while !done.get() {
                let report = volume.check(checks % 2 == 1).await.unwrap();
                assert_eq!(report.problems, Vec::<String>::new());
                checks += 1;
                enough.set(checks > 2);
            }
            volume.wait_job().await.unwrap();
            assert_eq!(volume.check(false).await.unwrap().problems, Vec::<String>::new());
        });
    }
}

#[test]
fn a_file_that_is_made_while_a_check_begins_has_its_name() {
    for (turns, later) in (0..20).flat_map(|turns| (0..12).map(move |later| (turns, later))) {
        let (world, store) = World::new(16 << 10, &[300]);
        let volume = world.mount(&store);
        world.shard.block_on(async move {
            // Names are counted of 16 files at a time: the new one is the first of the second walk.
            for number in 1..16 {
                make(&volume, ROOT, &format!("f{number}"), Kind::File).await.unwrap();
            }
            volume.start_check(false).unwrap();
            for _ in 0..turns {
                volume.shard.next_turn().await;
            }
            make(&volume, ROOT, "new", Kind::File).await.unwrap();
            let soon = Rc::clone(&volume);
            volume.shard.spawn(async move {
                for _ in 0..later {
                    soon.shard.next_turn().await;
                }
                soon.sync().await.unwrap();
            });
            volume.wait_check().await;
            let Some(CheckEnd::Done(report)) = volume.last_check() else { panic!("not done") };
            assert_eq!(report.problems, Vec::<String>::new(), "after {turns} and {later} turns");
        });
    }
}

#[test]
fn a_check_that_is_paused_holds_nobody_up_and_goes_on_where_it_was() {
    let (world, store) = World::new(16 << 10, &[300]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let files = tree(&volume).await;
        for turns in 0..60 {
            volume.start_check(false).unwrap();
            assert!(volume.start_check(false).is_err());
            for _ in 0..turns {
                volume.shard.next_turn().await;
            }
            volume.pause_check();
            volume.wait_check().await;
            let Some(job) = volume.check_job() else { break };
            assert_eq!(job.state, JobState::Paused);
            stir(&volume, turns, 20).await;
            write(&volume, files[0], 0, &[9; 10]).await.unwrap();
            assert_eq!(volume.check_job().map(|job| job.done), Some(job.done));
            volume.resume_check();
            volume.wait_check().await;
            let Some(CheckEnd::Done(report)) = volume.last_check() else { panic!("not done") };
            assert_eq!(report.problems, Vec::<String>::new());
        }
    });
}

#[test]
fn a_check_that_is_cancelled_ends_and_another_can_begin() {
    let (world, store) = World::new(16 << 10, &[300]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        tree(&volume).await;
        volume.start_check(true).unwrap();
        volume.pause_check();
        volume.cancel_check();
        volume.wait_check().await;
        while volume.check_job().is_some() {
            volume.shard.next_turn().await;
        }
        assert!(matches!(volume.last_check(), Some(CheckEnd::Cancelled)));
        assert!(volume.check(true).await.unwrap().is_clean());
        volume.close().await.unwrap();
    });
}

#[test]
fn a_check_that_a_crash_or_the_end_of_the_mount_interrupted_begins_anew() {
    for (crash, pause) in [(true, false), (false, false), (false, true)] {
        let (world, store) = World::new(16 << 10, &[300]);
        let volume = world.mount(&store);
        let own = Rc::clone(&volume);
        world.shard.block_on(async move {
            tree(&own).await;
            own.start_check(true).unwrap();
            if pause {
                own.pause_check();
            }
            match crash {
                true => own.sync().await.unwrap(),
                false => own.close().await.unwrap(),
            }
            if !crash {
                assert!(own.start_check(false).is_err());
            }
        });
        drop(volume);
        let store = world.crash(&store);
        let volume = world.mount(&store);
        world.shard.block_on(async move {
            let job = volume.check_job().expect("it begins anew");
            assert_eq!(job.state == JobState::Paused, pause);
            volume.resume_check();
            volume.wait_check().await;
            let Some(CheckEnd::Done(report)) = volume.last_check() else { panic!("not done") };
            assert_eq!(report.files, FILES + 6);
            volume.close().await.unwrap();
        });
        let volume = world.mount(&store);
        assert_eq!(volume.check_job(), None);
    }
}

#[test]
fn a_volume_that_is_only_read_is_checked_and_not_repaired() {
    let (world, store) = World::new(128 << 10, &[64]);
    let volume = world.mount(&store);
    let own = Rc::clone(&volume);
    world.shard.block_on(async move {
        tree(&own).await;
        own.close().await.unwrap();
    });
    let shard = world.shard.clone();
    let from = crate::MountOf { read_only: true, ..world.mount_of(&store) };
    world.shard.block_on(async move {
        let volume = Volume::mount(&shard, from).await.unwrap();
        assert!(volume.check(true).await.is_err());
        assert_eq!(volume.check(false).await.unwrap().files, FILES + 6);
        volume.close().await.unwrap();
    });
}
