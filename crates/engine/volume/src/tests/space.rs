//! Space that is taken, given back, and that runs out.

use super::*;
use braid_filesystem::{Allocate, Opening, Seek, SetAttr};

#[test]
fn a_full_volume_says_so_and_deleting_makes_room() {
    let (world, store) = World::new(128 << 10, &[4, 8]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        let mut at = 0;
        let full = loop {
            match write(&volume, ino, at, &[7; 100_000]).await {
                Ok(()) => at += 100_000,
                Err(error) => break error,
            }
        };
        assert_eq!(full, Errno::NoSpace);
        let space = volume.space(braid_filesystem::ROOT).await.unwrap();
        assert!(at > (12 << 20) - 400_000, "{at} bytes fitted");
        assert!(space.free < 64, "{} blocks are left", space.free);
        assert!(read_all(&volume, ino).await.iter().all(|byte| *byte == 7));
        volume.forget(ino, 1);
        volume.unlink(ROOT, b"a").await.unwrap();
        let other = file(&volume, "b").await;
        write(&volume, other, 0, &vec![1; 6 << 20]).await.unwrap();
        volume.sync().await.unwrap();
        let space = volume.space(braid_filesystem::ROOT).await.unwrap();
        assert_eq!((space.blocks - space.free) * BLOCK, 6 << 20);
    });
}

#[test]
fn a_file_without_a_name_lives_until_it_is_closed_and_a_crash_removes_it() {
    let (world, store) = World::new(128 << 10, &[8]);
    let volume = world.mount(&store);
    let own = Rc::clone(&volume);
    world.shard.block_on(async move {
        let ino = file(&own, "a").await;
        write(&own, ino, 0, &[1; 300_000]).await.unwrap();
        own.open(ino, Opening::WRITE).await.unwrap();
        own.unlink(ROOT, b"a").await.unwrap();
        assert_eq!(read_all(&own, ino).await, [1; 300_000]);
        own.sync().await.unwrap();
        assert!(own.usage().0 > 0);
    });
    let store = world.crash(&store);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        volume.sync().await.unwrap();
        while volume.orphans.is_busy() {
            volume.shard.yield_now().await;
        }
        volume.sync().await.unwrap();
        assert_eq!(volume.usage().0, 0);
    });
}

#[test]
fn free_blocks_that_lie_apart_are_put_together_when_a_stripe_needs_them() {
    let (world, store) = World::new(128 << 10, &[8]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let mut files = Vec::new();
        loop {
            let ino = match make(&volume, ROOT, &format!("f{}", files.len()), Kind::File).await {
                Ok(entry) => entry.attr.ino,
                Err(error) => panic!("{error}"),
            };
            volume.forget(ino, 1);
            match write(&volume, ino, 0, &[files.len() as u8; 4096]).await {
                Ok(()) => files.push(ino),
                Err(error) => break assert_eq!(error, Errno::NoSpace),
            }
        }
        assert_eq!(files.len(), 2048);
        for at in (0..files.len()).step_by(2) {
            volume.unlink(ROOT, format!("f{at}").as_bytes()).await.unwrap();
        }
        let ino = file(&volume, "whole").await;
        write(&volume, ino, 0, &vec![1; 3 << 20]).await.unwrap();
        for (at, ino) in files.iter().enumerate().skip(1).step_by(2) {
            assert_eq!(read_all(&volume, *ino).await, [at as u8; 4096]);
        }
        volume.wait_job().await.unwrap();
        let report = volume.check(false).await.unwrap();
        assert!(report.is_clean(), "{:?}", report.problems);
    });
}

#[test]
fn what_cannot_be_set_aside_is_refused_at_once_and_what_is_there_is_not_asked_for_again() {
    let (world, store) = World::new(128 << 10, &[4, 8]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        let reserve = Allocate::Reserve { keep_size: true };
        assert_eq!(volume.allocate(ino, reserve, 0, 13 << 20).await, Err(Errno::NoSpace));
        assert_eq!(volume.usage().0, 0);
        volume.allocate(ino, reserve, 0, 11 << 20).await.unwrap();
        let used = volume.usage().0;
        volume.allocate(ino, reserve, 0, 12 << 20).await.unwrap();
        assert!(volume.usage().0 > used);
        let other = file(&volume, "b").await;
        assert_eq!(volume.allocate(other, reserve, 0, 1 << 20).await, Err(Errno::NoSpace));
    });
}

#[test]
fn a_file_is_cut_also_beyond_a_large_part_that_was_just_punched() {
    let (world, store) = World::new(16 << 10, &[64]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        // A group of extents is 1 MiB of such stripes.
        for at in 0..600 {
            write(&volume, ino, at << 20, &[1; 4096]).await.unwrap();
        }
        volume.sync().await.unwrap();
        volume.allocate(ino, Allocate::PunchHole, 0, 300 << 20).await.unwrap();
        assert_eq!(volume.seek(ino, 0, Seek::Data).await, Ok(300 << 20));
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        volume.set_attr(ME, ino, set).await.unwrap();
        assert_eq!(volume.usage().0, 0);
    });
}

/// Fills a store with little room by many requests at once: it takes the commit, and some requests were refused.
fn fill_at_once<F: Future<Output = Result<(), Errno>> + 'static>(
    request: impl Fn(Rc<Volume>, u64) -> F + 'static,
) {
    let (world, store) = World::new(16 << 10, &[64]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        volume.sync().await.unwrap();
        store.set_capacity(store.space().used + (256 << 10));
        store.set_commit_time(20_000_000);
        // Whoever reads the store meanwhile waits for this.
        file(&volume, "b").await;
        let syncing = Rc::clone(&volume);
        volume.shard.spawn(async move { syncing.sync().await.unwrap() });
        volume.shard.sleep(1_000_000).await;
        let results = Rc::new(std::cell::RefCell::new(Vec::new()));
        for at in 0..400 {
            let (made, results) = (request(Rc::clone(&volume), at), Rc::clone(&results));
            volume.shard.spawn(async move {
                let result = made.await;
                results.borrow_mut().push(result);
            });
        }
        while results.borrow().len() < 400 {
            volume.shard.sleep(1_000_000).await;
        }
        assert_eq!(volume.sync().await, Ok(()));
        let results = results.take();
        let count = |wanted| results.iter().filter(|result| **result == wanted).count();
        assert!(count(Ok(())) > 10 && count(Err(Errno::NoSpace)) > 10, "{results:?}");
        assert_eq!(count(Ok(())) + count(Err(Errno::NoSpace)), 400, "{results:?}");
        volume.unlink(ROOT, b"a").await.unwrap();
        volume.forget(ino, 1);
        assert_eq!(volume.sync().await, Ok(()));
    });
}

#[test]
fn many_long_links_at_once_do_not_overrun_the_room_for_metadata() {
    fill_at_once(|volume, at| async move {
        let node =
            NewNode { kind: Kind::Symlink, perm: 0o777, umask: 0, rdev: 0, target: &[b't'; 4000] };
        volume.make(ME, ROOT, format!("l{at}").as_bytes(), node).await.map(|_| ())
    });
}

#[test]
fn many_writes_at_once_do_not_overrun_the_room_for_metadata() {
    fill_at_once(|volume, at| async move {
        let ino = volume.resolve(b"a").await.unwrap();
        write(&volume, ino, at << 24, &[1; 4096]).await
    });
}

#[test]
fn a_commit_without_room_is_tried_again_when_something_was_removed() {
    let (world, store) = World::new(128 << 10, &[8]);
    let volume = world.mount(&store);
    let own = Rc::clone(&volume);
    let held = store.clone();
    world.shard.block_on(async move {
        let kept = file(&own, "kept").await;
        write(&own, kept, 0, &[5; 9000]).await.unwrap();
        own.sync().await.unwrap();
        for at in 0..20 {
            let ino = file(&own, &format!("f{at}")).await;
            own.forget(ino, 1);
        }
        held.set_capacity(held.space().used + 100);
        assert_eq!(own.sync().await, Err(Errno::NoSpace));
        assert_eq!(make(&own, ROOT, "late", Kind::File).await, Err(Errno::NoSpace));
        assert_eq!(own.space(braid_filesystem::ROOT).await.unwrap().files_free, 0);
        // Earlier files are not lost, only not durable.
        assert!(own.lookup(ROOT, b"f19").await.is_ok());
        for at in 0..19 {
            own.unlink(ROOT, format!("f{at}").as_bytes()).await.unwrap();
        }
        own.unlink(ROOT, b"kept").await.unwrap();
        own.forget(kept, 1);
        while own.orphans.is_busy() {
            own.shard.yield_now().await;
        }
        assert_eq!(own.sync().await, Ok(()));
        assert_eq!(own.usage().0, 0);
    });
    let store = world.crash(&store);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        assert!(volume.lookup(ROOT, b"f19").await.is_ok());
        assert!(volume.lookup(ROOT, b"f18").await.is_err());
        let report = volume.check(false).await.unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
    });
}
