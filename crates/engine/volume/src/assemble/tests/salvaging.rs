//! A salvage finds what only a snapshot has of a file, also where that has lost its name there.

use super::*;
use crate::salvage;
use braid_filesystem::FileSystem;
use braid_format::volume::keys;
use braid_format::volume::snapshot::{file_of, in_snapshot, snapshot_of};

#[test]
fn a_brick_whose_first_block_was_overwritten_is_read_by_its_second_superblock() {
    let bricks = Bricks::new(&[32]);
    let ino = bricks.with(|volume| async move { put(&volume, "a").await });
    bricks.rams[0].memory().write(0, &[0xa5; 4096]);
    let (shard, device) = (bricks.shard.clone(), bricks.rams[0].device());
    bricks.run(async move {
        // Somebody may want what is there now: nothing is mounted.
        let refused = examine(&shard, Rc::clone(&device)).await.map(drop).unwrap_err();
        assert!(matches!(refused, AssembleError::Superblock { .. }), "{refused}");
        let found = examine_to_save(&shard, device).await.unwrap();
        assert!(found.notes[0].contains("the one at its end was taken"), "{:?}", found.notes);
        let volume = salvage::open(&shard, vec![found], CACHE).await.unwrap();
        assert!(volume.inode(ino).await.unwrap().is_some());
        volume.close().await;
    });
}

#[test]
fn a_file_that_only_a_snapshot_has_is_found_when_its_name_is_lost() {
    let bricks = Bricks::new(&[32, 32]);
    let ino = bricks.with(|volume| async move {
        let ino = put(&volume, "a").await;
        put(&volume, "b").await;
        volume.take_snapshot(ROOT, "s").await.unwrap();
        volume.unlink(ROOT, b"a").await.unwrap();
        put(&volume, "later").await;
        volume.sync_all().await.unwrap();
        for id in 1..10 {
            volume.transactions.set(keys::saved(&keys::name(ROOT, b"a"), id), None);
        }
        ino
    });
    let (shard, found) = (bricks.shard.clone(), bricks.found(bricks.devices()));
    bricks.run(async move {
        let volume = salvage::open(&shard, found, CACHE).await.unwrap();
        let root = volume.snapshots().await.found[0].root;
        let names = volume.entries(root).await.found;
        assert_eq!(names.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(), [b"b"]);
        let saved = volume.saved_inodes().await;
        assert_eq!(saved.damaged, Vec::<String>::new());
        // The folder has changed, too, and what was made later was not there.
        let files = saved.found.into_iter().filter(|one| file_of(*one) != ROOT);
        let shown = in_snapshot(ino, snapshot_of(root));
        assert_eq!(files.collect::<Vec<_>>(), [shown]);
        let record = volume.inode(shown).await.unwrap().unwrap();
        assert_eq!((record.nlink, record.size), (1, content("a").len() as u64));
        let mut bytes = vec![0; record.size as usize];
        let lost = volume.read(shown, record.size, |at, part| {
            bytes[at as usize..at as usize + part.len()].copy_from_slice(part);
            true
        });
        assert_eq!(lost.await, []);
        assert!(bytes == content("a"));
        volume.close().await;
    });
}
