//! Requests to the metadata store, and those that the caches save.

use super::*;
use braid_filesystem::XattrMode;
use braid_format::volume::keys;
use braid_kv::{Answer, Change, Pair, StoreSpace};
use std::cell::Cell;

/// Counts what is read of a store.
struct Counted {
    store: ModelStore,
    reads: Rc<Cell<u32>>,
}

impl Store for Counted {
    fn get(&self, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        self.reads.set(self.reads.get() + 1);
        self.store.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Answer<Vec<Pair>> {
        self.reads.set(self.reads.get() + 1);
        self.store.scan(from, to, limit)
    }

    fn commit(&self, changes: Vec<Change>) -> Answer<()> {
        self.store.commit(changes)
    }

    fn space(&self) -> StoreSpace {
        self.store.space()
    }
}

fn mount(world: &World, store: &ModelStore) -> (Rc<Volume>, Rc<Cell<u32>>) {
    let reads = Rc::new(Cell::new(0));
    let counted = Counted { store: store.clone(), reads: Rc::clone(&reads) };
    let from = MountOf { store: Rc::new(counted), ..world.mount_of(store) };
    let shard = world.shard.clone();
    let volume = world.shard.block_on(async move { Volume::mount(&shard, from).await }).unwrap();
    (volume, reads)
}

/// Makes a file with something in it, as a program does through Linux.
async fn small_file(volume: &Volume, parent: Ino, name: &str) -> Ino {
    assert_eq!(volume.lookup(parent, name.as_bytes()).await, Err(Errno::NotFound));
    let ino = make(volume, parent, name, Kind::File).await.unwrap().attr.ino;
    assert_eq!(volume.xattr(ino, b"security.capability").await, Err(Errno::NoData));
    write(volume, ino, 0, &[7; 5000]).await.unwrap();
    ino
}

#[test]
fn small_files_in_a_new_directory_are_made_and_removed_without_asking_the_store() {
    let (world, store) = World::new(128 << 10, &[8]);
    let (volume, reads) = mount(&world, &store);
    world.shard.block_on(async move {
        // The room on the brick is looked at once.
        small_file(&volume, ROOT, "first").await;
        let directory = make(&volume, ROOT, "d", Kind::Directory).await.unwrap().attr.ino;
        volume.sync().await.unwrap();
        reads.set(0);
        for number in 0..50 {
            let name = format!("f{number}");
            let ino = small_file(&volume, directory, &name).await;
            if number % 10 == 0 {
                volume.sync().await.unwrap();
            }
            if number % 2 == 0 {
                volume.unlink(directory, name.as_bytes()).await.unwrap();
                volume.forget(ino, 1);
                assert_eq!(volume.attr(ino).await, Err(Errno::Stale), "it is removed at once");
            }
        }
        assert_eq!(reads.get(), 0);
    });
}

#[test]
fn after_a_mount_a_directory_is_read_once() {
    let (world, store) = World::new(128 << 10, &[8]);
    let (volume, _) = mount(&world, &store);
    world.shard.block_on(async move {
        for number in 0..20 {
            small_file(&volume, ROOT, &format!("f{number}")).await;
        }
        volume.close().await.unwrap();
    });
    let (volume, reads) = mount(&world, &store);
    world.shard.block_on(async move {
        volume.attr(ROOT).await.unwrap();
        reads.set(0);
        for number in 20..40 {
            let name = format!("f{number}");
            assert_eq!(volume.lookup(ROOT, name.as_bytes()).await, Err(Errno::NotFound));
        }
        assert_eq!(reads.get(), 1);
        let entry = volume.lookup(ROOT, b"f7").await.unwrap();
        reads.set(0);
        volume.unlink(ROOT, b"f7").await.unwrap();
        volume.forget(entry.attr.ino, 1);
        volume.sync().await.unwrap();
        // The extents, and what is free on the brick.
        assert_eq!(reads.get(), 2);
        assert_eq!(volume.check(false).await.unwrap().found, 0);
    });
}

#[test]
fn entries_that_are_looked_for_in_order_are_read_ahead() {
    const FILES: u32 = 3000;
    let (world, store) = World::new(128 << 10, &[8]);
    let (volume, _) = mount(&world, &store);
    world.shard.block_on(async move {
        for number in 0..FILES {
            make(&volume, ROOT, &format!("f{number}"), Kind::File).await.unwrap();
        }
        volume.close().await.unwrap();
    });
    let each = async |volume: &Volume, numbers: &mut dyn Iterator<Item = u32>, removes: bool| {
        for number in numbers {
            let name = format!("f{number}");
            let ino = volume.lookup(ROOT, name.as_bytes()).await.unwrap().attr.ino;
            if removes {
                volume.unlink(ROOT, name.as_bytes()).await.unwrap();
            }
            volume.forget(ino, 1);
        }
    };
    // Not so many that all names are read, which takes one look-up in 32 that asks.
    let part = FILES / 40;
    for removes in [false, true] {
        let (volume, reads) = mount(&world, &store);
        world.shard.block_on(async move {
            volume.attr(ROOT).await.unwrap();
            reads.set(0);
            each(&volume, &mut (0..part), removes).await;
            // Two that had to be asked for, with their files, and what comes after them.
            assert_eq!(reads.get(), 2 * 2 + 2, "in the order in which they were made");
            each(&volume, &mut (FILES - part..FILES).rev(), removes).await;
            assert_eq!(reads.get(), 2 * (2 * 2 + 2), "in the order of reading");
            volume.sync().await.unwrap();
            assert_eq!(volume.check(false).await.unwrap().found, 0);
            volume.close().await.unwrap();
        });
    }
}

#[test]
fn attributes_are_there_after_a_mount_and_go_with_their_file() {
    let (world, store) = World::new(128 << 10, &[8]);
    let (volume, _) = mount(&world, &store);
    let name = b"user.a";
    world.shard.block_on(async move {
        let ino = small_file(&volume, ROOT, "f").await;
        assert_eq!(volume.remove_xattr(ino, name).await, Err(Errno::NoData));
        volume.set_xattr(ino, name, b"1", XattrMode::Create).await.unwrap();
        assert_eq!(volume.xattrs(ino).await.unwrap(), [name]);
        volume.close().await.unwrap();
    });
    let (volume, _) = mount(&world, &store);
    world.shard.block_on(async move {
        let ino = volume.lookup(ROOT, b"f").await.unwrap().attr.ino;
        assert_eq!(volume.xattr(ino, name).await.unwrap(), b"1");
        volume.unlink(ROOT, b"f").await.unwrap();
        volume.forget(ino, 1);
        volume.close().await.unwrap();
    });
    assert!(!store.snapshot().pairs().keys().any(|key| key.starts_with(b"X")));
}

#[test]
fn attributes_that_nobody_knows_of_are_found_and_put_right() {
    let (world, store) = World::new(128 << 10, &[8]);
    let (volume, _) = mount(&world, &store);
    let ino = world.shard.block_on(async move {
        let ino = small_file(&volume, ROOT, "f").await;
        volume.close().await.unwrap();
        ino
    });
    let name = b"user.a";
    let damage = [ino, ino + 100].map(|ino| (keys::xattr(ino, name), Some(b"1".to_vec())));
    world.shard.block_on(store.commit(damage.to_vec())).unwrap();
    let (volume, _) = mount(&world, &store);
    world.shard.block_on(async move {
        let report = volume.check(true).await.unwrap();
        // A new one is no problem.
        let other = small_file(&volume, ROOT, "g").await;
        volume.set_xattr(other, name, b"2", XattrMode::Create).await.unwrap();
        assert_eq!((report.found, report.repaired), (2, 2), "{:?}", report.problems);
        assert_eq!(volume.xattr(ino, name).await.unwrap(), b"1");
        assert_eq!(volume.check(false).await.unwrap().found, 0);
    });
}
