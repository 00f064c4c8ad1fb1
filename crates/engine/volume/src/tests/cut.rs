//! Files that are cut, and grow while what was cut off is still there.

use super::*;
use braid_filesystem::{Allocate, SetAttr};
use braid_format::volume::{inode::InodeRecord, keys};
use braid_kv::{Answer, Change, Pair, StoreSpace};

const MIB: u64 = 1 << 20;

async fn resize(volume: &Volume, ino: Ino, size: u64) -> Result<(), Errno> {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    volume.set_attr(ME, ino, set).await.map(|_| ())
}

/// A store as a crash leaves it in the middle of cutting these files to 4096 bytes: their sizes and the notes are there,
/// and all of their extents.
fn cut_and_crashed(world: &World, store: &ModelStore, files: &[Ino]) -> ModelStore {
    let store = world.crash(store);
    let mut changes = Vec::new();
    for ino in files {
        let bytes = world.shard.block_on(store.get(&keys::inode(*ino))).unwrap().unwrap();
        let mut record = InodeRecord::parse(*ino, &bytes).unwrap();
        record.size = 4096;
        changes.push((keys::inode(*ino), Some(record.encode())));
        changes.push((keys::orphan(*ino), Some(Vec::new())));
    }
    let commit = store.commit(changes);
    world.shard.block_on(commit).unwrap();
    store
}

/// A store that takes its time to find something, as one on a thread of its own does.
struct Slow(ModelStore, Shard);

impl Slow {
    fn later<T: 'static>(&self, answer: Answer<T>) -> Answer<T> {
        let shard = self.1.clone();
        Box::pin(async move {
            shard.sleep(200_000).await;
            answer.await
        })
    }
}

impl Store for Slow {
    fn get(&self, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        self.later(self.0.get(key))
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Answer<Vec<Pair>> {
        self.later(self.0.scan(from, to, limit))
    }

    fn commit(&self, changes: Vec<Change>) -> Answer<()> {
        self.0.commit(changes)
    }

    fn space(&self) -> StoreSpace {
        self.0.space()
    }
}

/// The operations that can make a file grow to a MiB.
#[derive(Clone, Copy, Debug)]
enum Growth {
    Resize,
    Write,
    Reserve,
    Zero,
}

async fn grow(volume: &Volume, ino: Ino, how: Growth) {
    match how {
        Growth::Resize => resize(volume, ino, MIB).await.unwrap(),
        Growth::Write => write(volume, ino, MIB - 1, &[0]).await.unwrap(),
        Growth::Reserve => {
            let how = Allocate::Reserve { keep_size: false };
            volume.allocate(ino, how, MIB - 4096, 4096).await.unwrap();
        }
        Growth::Zero => {
            let how = Allocate::ZeroRange { keep_size: false };
            volume.allocate(ino, how, MIB - 4096, 4096).await.unwrap();
        }
    }
}

#[test]
fn what_was_cut_before_a_crash_does_not_show_when_the_file_grows() {
    for how in [Growth::Resize, Growth::Write, Growth::Reserve, Growth::Zero] {
        for wait in [false, true] {
            let (world, store) = World::new(16 << 10, &[64]);
            let volume = world.mount(&store);
            let own = Rc::clone(&volume);
            let (big, small) = world.shard.block_on(async move {
                let (big, small) = (file(&own, "big").await, file(&own, "small").await);
                write(&own, big, 0, &vec![2; 8 << 20]).await.unwrap();
                write(&own, small, 0, &vec![7; 1 << 20]).await.unwrap();
                own.close().await.unwrap();
                (big, small)
            });
            // The small one waits behind the big one.
            let store = cut_and_crashed(&world, &store, &[big, small]);
            let mut from = world.mount_of(&store);
            from.store = Rc::new(Slow(store, world.shard.clone()));
            let shard = world.shard.clone();
            world.shard.block_on(async move {
                let volume = Volume::mount(&shard, from).await.unwrap();
                grow(&volume, small, how).await;
                while wait && volume.orphans.is_busy() {
                    volume.shard.sleep(1_000_000).await;
                }
                let held = read_all(&volume, small).await;
                assert_eq!(held.len() as u64, MIB);
                assert!(held[4096..].iter().all(|byte| *byte == 0), "{how:?}, {wait}");
                assert!(held[..4096].iter().all(|byte| *byte == 7));
                // Data that is written from now on stays.
                write(&volume, small, 500_000, &[9; 1000]).await.unwrap();
                while volume.orphans.is_busy() {
                    volume.shard.sleep(1_000_000).await;
                }
                assert_eq!(read_all(&volume, small).await[500_000..501_000], [9; 1000]);
                let report = volume.check(false).await.unwrap();
                assert_eq!(report.problems, Vec::<String>::new());
                volume.close().await.unwrap();
            });
        }
    }
}

#[test]
fn what_could_not_be_trimmed_is_before_the_file_grows() {
    let (world, store) = World::new(16 << 10, &[64]);
    let volume = world.mount(&store);
    let own = Rc::clone(&volume);
    let ino = world.shard.block_on(async move {
        let ino = file(&own, "a").await;
        write(&own, ino, 0, &vec![7; 2 << 20]).await.unwrap();
        own.close().await.unwrap();
        ino
    });
    // The extents of the second MiB cannot be read, which a trim finds out when the size is cut already.
    let store = world.crash(&store);
    let key = keys::extents(ino, 1);
    let right = world.shard.block_on(store.get(&key)).unwrap().unwrap();
    let damage = store.commit(vec![(key.clone(), Some(vec![1]))]);
    world.shard.block_on(damage).unwrap();
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        assert_eq!(resize(&volume, ino, 4096).await, Err(Errno::Io));
        assert_eq!(volume.attr(ino).await.unwrap().size, 4096);
        assert_eq!(resize(&volume, ino, 2 * MIB).await, Err(Errno::Io));
        assert_eq!(write(&volume, ino, MIB, &[1]).await, Err(Errno::Io));
        assert_eq!(volume.attr(ino).await.unwrap().size, 4096);
        store.commit(vec![(key, Some(right))]).await.unwrap();
        resize(&volume, ino, 2 * MIB).await.unwrap();
        let held = read_all(&volume, ino).await;
        assert!(held[4096..].iter().all(|byte| *byte == 0));
        volume.close().await.unwrap();
    });
}

#[test]
fn a_file_that_is_cut_while_a_write_waits_shows_nothing_of_before() {
    // A sub-block has four blocks.
    let (world, store) = World::new(512 << 10, &[16]);
    let volume = world.mount(&store);
    let shard = world.shard.clone();
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &[7; 40_000]).await.unwrap();
        let inode = volume.inodes.get(ino).await.unwrap();
        let held = inode.locks.exclusive(196_608..212_992).await;
        let (writer, cutter) = (Rc::clone(&volume), Rc::clone(&volume));
        // The extent is too short for it, so it asks for all of the stripe when it has its part, and stands behind the cut.
        shard.spawn(async move { write(&writer, ino, 200_000, &[9; 100]).await.unwrap() });
        shard.spawn(async move { resize(&cutter, ino, 21_111).await.unwrap() });
        drop(held);
        while volume.attr(ino).await.unwrap().size != 200_100 || !inode.locks.is_free() {
            shard.sleep(100_000).await;
        }
        let held = read_all(&volume, ino).await;
        assert!(held[..21_111].iter().all(|byte| *byte == 7));
        assert!(held[21_111..200_000].iter().all(|byte| *byte == 0));
        volume.close().await.unwrap();
    });
}

#[test]
fn what_is_set_aside_stays_so_when_a_part_is_punched() {
    let (world, store) = World::new(128 << 10, &[8]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        let reserve = Allocate::Reserve { keep_size: false };
        volume.allocate(ino, reserve, 0, 256 << 10).await.unwrap();
        let blocks = || async { volume.attr(ino).await.unwrap().blocks };
        let before = blocks().await;
        volume.allocate(ino, Allocate::PunchHole, 0, 4096).await.unwrap();
        assert!(blocks().await >= before - 8);
        write(&volume, ino, 8192, &[1; 4096]).await.unwrap();
        volume.allocate(ino, Allocate::PunchHole, 8192, 4096).await.unwrap();
        assert!(blocks().await >= before - 16);
        assert!(read_all(&volume, ino).await.iter().all(|byte| *byte == 0));
        // A stripe that is punched as a whole is free.
        volume.allocate(ino, Allocate::PunchHole, 0, 128 << 10).await.unwrap();
        assert_eq!(blocks().await, before / 2);
        // Nothing was set aside for this one: it is free when nothing is left of it.
        let other = file(&volume, "b").await;
        write(&volume, other, 0, &[1; 128 << 10]).await.unwrap();
        for at in 0..4 {
            volume.allocate(other, Allocate::PunchHole, at * (32 << 10), 32 << 10).await.unwrap();
        }
        assert_eq!(volume.attr(other).await.unwrap().blocks, 0);
    });
}
