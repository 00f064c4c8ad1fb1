//! Files that are made without a name, and whiteouts.

use super::*;
use braid_filesystem::{Opening, RENAME_EXCHANGE, RENAME_WHITEOUT, RenameFlags};

async fn unnamed(volume: &Volume) -> Ino {
    let node = NewNode { kind: Kind::File, perm: 0o600, umask: 0, rdev: 0, target: b"" };
    let made = volume.make_unnamed(ME, ROOT, node).await.unwrap();
    assert_eq!((made.attr.nlink, made.attr.uid), (0, 7));
    volume.open(made.attr.ino, Opening::WRITE).await.unwrap();
    made.attr.ino
}

#[test]
fn a_file_made_without_a_name_stays_once_it_has_one() {
    let (world, store) = World::new(128 << 10, &[8]);
    let volume = world.mount(&store);
    let own = Rc::clone(&volume);
    world.shard.block_on(async move {
        let (kept, lost) = (unnamed(&own).await, unnamed(&own).await);
        for ino in [kept, lost] {
            write(&own, ino, 0, &[1; 300_000]).await.unwrap();
        }
        // Shorter than before, so that what is beyond the end is to be removed while it gets its name.
        let cut = braid_filesystem::SetAttr { size: Some(1000), ..Default::default() };
        own.set_attr(ME, kept, cut).await.unwrap();
        assert_eq!(own.link(kept, ROOT, b"kept").await.unwrap().attr.nlink, 1);
        own.unlink(ROOT, b"kept").await.unwrap();
        // It has had one: it gets no other.
        assert_eq!(own.link(kept, ROOT, b"kept").await, Err(Errno::NotFound));
        let kept = unnamed(&own).await;
        write(&own, kept, 0, &[2; 1000]).await.unwrap();
        own.link(kept, ROOT, b"kept").await.unwrap();
        own.sync().await.unwrap();
        let report = own.check(false).await.unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    });
    // Those that have none are gone after a crash, with their space.
    let store = world.crash(&store);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let kept = volume.lookup(ROOT, b"kept").await.unwrap().attr;
        assert_eq!((kept.nlink, read_all(&volume, kept.ino).await), (1, vec![2; 1000]));
        while volume.orphans.is_busy() {
            volume.shard.sleep(1_000_000).await;
        }
        volume.sync().await.unwrap();
        assert_eq!(volume.usage().0, kept.blocks / 8);
        // A volume that was not unmounted in order checks itself.
        volume.wait_check().await;
        let report = volume.check(false).await.unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    });
}

#[test]
fn one_that_is_closed_without_a_name_is_removed() {
    let (world, store) = World::new(128 << 10, &[8]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let ino = unnamed(&volume).await;
        write(&volume, ino, 0, &[1; 5000]).await.unwrap();
        FileSystem::close(&*volume, ino);
        volume.forget(ino, 1);
        while volume.orphans.is_busy() {
            volume.shard.sleep(1_000_000).await;
        }
        assert_eq!(volume.attr(ino).await, Err(Errno::Stale));
    });
}

#[test]
fn a_whiteout_takes_the_name_of_what_was_renamed() {
    let (world, store) = World::new(128 << 10, &[8]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let moved = file(&volume, "old").await;
        file(&volume, "new").await;
        volume.rename(ROOT, b"old", ROOT, b"new", RENAME_WHITEOUT).await.unwrap();
        assert_eq!(volume.lookup(ROOT, b"new").await.unwrap().attr.ino, moved);
        let left = volume.lookup(ROOT, b"old").await.unwrap().attr;
        assert_eq!((left.kind, left.rdev, left.nlink), (Kind::CharDevice, 0, 1));
        let both = RenameFlags(RENAME_WHITEOUT.0 | RENAME_EXCHANGE.0);
        assert_eq!(volume.rename(ROOT, b"old", ROOT, b"new", both).await, Err(Errno::Invalid));
        let report = volume.check(false).await.unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    });
}
