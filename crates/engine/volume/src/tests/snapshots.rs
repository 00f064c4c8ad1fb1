//! Snapshots: what they show stays as it was, whatever is done to files, bricks and other snapshots.

use super::sums::find;
use super::*;
use crate::{CheckEnd, NewJob, VolumeError};
use braid_filesystem::{Allocate, Opening, RenameFlags, SetAttr, XattrMode};
use braid_format::volume::snapshot::snapshot_of;
use std::collections::BTreeMap;
use std::sync::Arc;

const STRIPE: u64 = 128 << 10;

/// Bytes that differ from block to block.
fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 4096) as u8 ^ (at as u8).wrapping_mul(seed | 1)).collect()
}

async fn is_well(volume: &Volume) {
    // One that a crash cut off goes on by itself.
    volume.wait_check().await;
    let report = volume.check(false).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
}

async fn take(volume: &Rc<Volume>, name: &str) {
    volume.take_snapshot(ROOT, name).await.unwrap();
}

async fn old(volume: &Volume, path: &str) -> Ino {
    let path = format!("/.snapshots/{path}");
    volume.resolve(path.as_bytes()).await.unwrap_or_else(|error| panic!("{path}: {error}"))
}

async fn names(volume: &Volume, ino: Ino) -> Vec<String> {
    let entries = volume.read_dir(ino, 0, 100).await.unwrap();
    let mut names: Vec<String> =
        entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect();
    names.sort();
    names
}

async fn truncate(volume: &Volume, ino: Ino, size: u64) {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    volume.set_attr(ME, ino, set).await.unwrap();
}

/// Waits until nothing of removed snapshots is left.
async fn freed(world: &Shard, volume: &Rc<Volume>) {
    while volume.snapshots().await.iter().any(|snapshot| snapshot.is_going) {
        world.sleep(1_000_000).await;
    }
    volume.sync_all().await.unwrap();
}

#[test]
fn a_snapshot_shows_everything_as_it_was() {
    let (world, store) = World::new(STRIPE, &[16, 16]);
    let volume = world.mount(&store);
    let mounted = Rc::clone(&volume);
    let content = bytes(700_000, 3);
    let expected = content.clone();
    world.shard.block_on(async move {
        let volume = mounted;
        let over = file(&volume, "over").await;
        write(&volume, over, 0, &content).await.unwrap();
        let cut = file(&volume, "cut").await;
        write(&volume, cut, 0, &content).await.unwrap();
        let gone = file(&volume, "gone").await;
        write(&volume, gone, 0, &content[..5000]).await.unwrap();
        volume.set_xattr(gone, b"user.a", b"before", XattrMode::Any).await.unwrap();
        let folder = make(&volume, ROOT, "folder", Kind::Directory).await.unwrap().attr.ino;
        make(&volume, folder, "inside", Kind::File).await.unwrap();
        let before = volume.attr(over).await.unwrap();
        take(&volume, "one").await;
        write(&volume, over, 100_000, &[9; 200_000]).await.unwrap();
        write(&volume, over, 699_000, &[8; 50_000]).await.unwrap();
        truncate(&volume, cut, 10_000).await;
        write(&volume, cut, 10_500, &[7; 10]).await.unwrap();
        volume.set_xattr(gone, b"user.a", b"after", XattrMode::Any).await.unwrap();
        volume.unlink(ROOT, b"gone").await.unwrap();
        volume.rename(folder, b"inside", ROOT, b"outside", RenameFlags(0)).await.unwrap();
        volume.remove_dir(ROOT, b"folder").await.unwrap();
        file(&volume, "new").await;
        for durable in [false, true] {
            if durable {
                volume.sync_all().await.unwrap();
            }
            let root = old(&volume, "one").await;
            assert_eq!(names(&volume, root).await, ["cut", "folder", "gone", "over"]);
            let was = old(&volume, "one/over").await;
            assert!(read_all(&volume, was).await == expected);
            let attr = volume.attr(was).await.unwrap();
            assert_eq!(
                (attr.size, attr.mtime, attr.blocks),
                (before.size, before.mtime, before.blocks)
            );
            let was = old(&volume, "one/cut").await;
            assert!(read_all(&volume, was).await == expected);
            let was = old(&volume, "one/gone").await;
            assert!(read_all(&volume, was).await == expected[..5000]);
            assert_eq!(volume.xattr(was, b"user.a").await.unwrap(), b"before");
            assert_eq!(volume.xattrs(was).await.unwrap(), [b"user.a".to_vec()]);
            assert_eq!(names(&volume, old(&volume, "one/folder").await).await, ["inside"]);
            assert_eq!(names(&volume, ROOT).await, ["cut", "new", "outside", "over"]);
            is_well(&volume).await;
        }
        // As the kernel looks at it.
        let listing = volume.lookup(ROOT, b".snapshots").await.unwrap().attr.ino;
        assert_eq!(names(&volume, listing).await, ["one"]);
        let root = volume.lookup(listing, b"one").await.unwrap().attr.ino;
        assert_eq!(volume.parent(root).await.unwrap(), listing);
        assert_eq!(volume.parent(listing).await.unwrap(), ROOT);
        let plus = volume.read_dir_plus(root, 0, 100).await.unwrap();
        assert_eq!(plus.len(), 4);
        assert!(plus.iter().all(|(entry, found)| {
            snapshot_of(entry.ino) == 1 && found.as_ref().unwrap().attr.ino == entry.ino
        }));
        volume.close().await.unwrap();
    });
    drop(volume);
    let volume = world.mount(&world.crash(&store));
    world.shard.block_on(async move {
        let was = old(&volume, "one/over").await;
        assert!(read_all(&volume, was).await == bytes(700_000, 3), "after a mount");
        is_well(&volume).await;
    });
}

#[test]
fn a_folder_in_a_snapshot_lists_its_own_names_whatever_its_number() {
    let (world, store) = World::new(STRIPE, &[16]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let mut folders = Vec::new();
        for number in 0..300 {
            let name = format!("d{number}");
            let folder = make(&volume, ROOT, &name, Kind::Directory).await.unwrap().attr.ino;
            folders.push((folder, name));
        }
        for (folder, name) in &folders {
            make(&volume, *folder, &format!("in-{name}"), Kind::File).await.unwrap();
        }
        // The last octet of one of the numbers is the highest.
        assert!(folders.iter().any(|(folder, _)| folder & 0xff == 0xff));
        take(&volume, "one").await;
        for (_, name) in &folders {
            let was = old(&volume, &format!("one/{name}")).await;
            assert_eq!(names(&volume, was).await, [format!("in-{name}")]);
        }
    });
}

#[test]
fn nothing_in_a_snapshot_changes() {
    let (world, store) = World::new(STRIPE, &[16]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &[1; 5000]).await.unwrap();
        take(&volume, "one").await;
        let (root, was) = (old(&volume, "one").await, old(&volume, "one/a").await);
        let listing = volume.resolve(b"/.snapshots").await.unwrap();
        let refused = Err(Errno::ReadOnly);
        assert_eq!(write(&volume, was, 0, &[2; 10]).await, refused);
        let writes = Opening { truncate: false, writes: true, appends: false };
        assert_eq!(volume.open(was, writes).await, refused);
        volume.open(was, Opening::READ).await.unwrap();
        FileSystem::close(&*volume, was);
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        assert_eq!(volume.set_attr(ME, was, set).await.err(), Some(Errno::ReadOnly));
        assert_eq!(volume.allocate(was, Allocate::PunchHole, 0, 4096).await, refused);
        assert_eq!(volume.unlink(root, b"a").await, refused);
        assert_eq!(volume.rename(root, b"a", ROOT, b"b", RenameFlags(0)).await, refused);
        assert_eq!(volume.rename(ROOT, b"a", root, b"b", RenameFlags(0)).await, refused);
        assert_eq!(volume.link(was, ROOT, b"b").await.err(), Some(Errno::ReadOnly));
        assert_eq!(volume.set_xattr(was, b"user.a", b"", XattrMode::Any).await, refused);
        assert_eq!(make(&volume, root, "b", Kind::File).await.err(), Some(Errno::ReadOnly));
        assert_eq!(volume.remove_dir(listing, b"one").await, refused);
        assert_eq!(
            make(&volume, ROOT, ".snapshots", Kind::File).await.err(),
            Some(Errno::Exists),
            "the name is taken"
        );
        for bad in ["", ".", "..", "a/b", "a\nb", "one"] {
            let taken = volume.take_snapshot(ROOT, bad).await;
            assert!(matches!(taken, Err(VolumeError::Refused(_))), "{bad:?}: {taken:?}");
        }
        let taken = volume.take_snapshot(root, "x").await;
        assert!(matches!(taken, Err(VolumeError::Refused(_))), "{taken:?}");
        let removed = volume.remove_snapshot(ROOT, "two").await.unwrap_err().to_string();
        assert_eq!(removed, "the folder has no snapshot two; it has: one");
        assert_eq!(read_all(&volume, was).await, [1; 5000]);
        is_well(&volume).await;
    });
}

#[test]
fn the_space_of_removed_snapshots_is_freed_in_whatever_order_they_go() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        let (world, store) = World::new(STRIPE, &[32, 32]);
        let volume = world.mount(&store);
        let shard = world.shard.clone();
        world.shard.block_on(async move {
            let mut shown = Vec::new();
            let ino = file(&volume, "a").await;
            let other = file(&volume, "b").await;
            for round in 0..3u8 {
                write(&volume, ino, u64::from(round) * 200_000, &bytes(600_000, round))
                    .await
                    .unwrap();
                write(&volume, other, 0, &[round; 3000]).await.unwrap();
                take(&volume, &round.to_string()).await;
                shown.push(read_all(&volume, ino).await);
            }
            write(&volume, ino, 300_000, &bytes(100_000, 77)).await.unwrap();
            truncate(&volume, other, 10).await;
            let mut left: Vec<usize> = vec![0, 1, 2];
            for gone in order {
                volume.remove_snapshot(ROOT, &gone.to_string()).await.unwrap();
                left.retain(|at| *at != gone);
                // While it goes files change, and some of what it had changes first now.
                write(&volume, ino, 900_000, &[5; 50_000]).await.unwrap();
                write(&volume, ino, 100, &[5; 50]).await.unwrap();
                freed(&shard, &volume).await;
                for at in &left {
                    let was = old(&volume, &format!("{at}/a")).await;
                    assert!(
                        read_all(&volume, was).await == shown[*at],
                        "{at} after {gone} of {order:?}"
                    );
                    let was = old(&volume, &format!("{at}/b")).await;
                    assert_eq!(read_all(&volume, was).await, vec![*at as u8; 3000]);
                }
                is_well(&volume).await;
            }
            assert!(volume.snapshots().await.is_empty());
            assert_eq!(volume.snapshot_bytes(), 0);
            let blocks = volume.attr(ino).await.unwrap().blocks / 8
                + volume.attr(other).await.unwrap().blocks / 8;
            assert_eq!(volume.usage().0, blocks, "nothing but the files takes space");
            assert!(volume.resolve(b"/.snapshots").await.is_err());
            volume.close().await.unwrap();
        });
        assert!(world.shard.block_on(store.scan(b"Z", b"[", 10)).unwrap().is_empty());
    }
}

#[test]
fn a_folder_with_snapshots_is_kept_apart() {
    let (world, store) = World::new(STRIPE, &[16]);
    let volume = world.mount(&store);
    let shard = world.shard.clone();
    world.shard.block_on(async move {
        let folder = make(&volume, ROOT, "folder", Kind::Directory).await.unwrap().attr.ino;
        let inner = make(&volume, folder, "inner", Kind::Directory).await.unwrap().attr.ino;
        let inside = make(&volume, inner, "a", Kind::File).await.unwrap().attr.ino;
        write(&volume, inside, 0, &[1; 9000]).await.unwrap();
        let outside = file(&volume, "b").await;
        write(&volume, outside, 0, &[1; 9000]).await.unwrap();
        volume.link(inside, ROOT, b"also").await.unwrap();
        let taken = volume.take_snapshot(folder, "one").await.unwrap_err().to_string();
        assert!(taken.contains("has a name outside of the folder"), "{taken}");
        volume.rename(ROOT, b"also", folder, b"also", RenameFlags(0)).await.unwrap();
        volume.unlink(folder, b"also").await.unwrap();
        let status = volume.take_snapshot(folder, "one").await.unwrap();
        assert_eq!(status.folder.as_deref(), Some("/folder"));
        write(&volume, inside, 0, &[2; 9000]).await.unwrap();
        write(&volume, outside, 0, &[2; 9000]).await.unwrap();
        volume.sync_all().await.unwrap();
        let was = volume.resolve(b"/folder/.snapshots/one/inner/a").await.unwrap();
        assert_eq!(read_all(&volume, was).await, [1; 9000]);
        assert_eq!(volume.snapshot_bytes(), 12288, "what is elsewhere is not kept");
        let crossed = volume.rename(inner, b"a", ROOT, b"a", RenameFlags(0)).await;
        assert_eq!(crossed, Err(Errno::CrossDevice));
        assert_eq!(volume.link(outside, inner, b"b").await.err(), Some(Errno::CrossDevice));
        volume.rename(inner, b"a", folder, b"a", RenameFlags(0)).await.unwrap();
        volume.rename(ROOT, b"folder", ROOT, b"moved", RenameFlags(0)).await.unwrap();
        assert_eq!(volume.snapshots().await[0].folder.as_deref(), Some("/moved"));
        // A snapshot of the whole has the folder as it is by then.
        take(&volume, "all").await;
        write(&volume, inside, 0, &[3; 9000]).await.unwrap();
        let new = make(&volume, folder, "new", Kind::File).await.unwrap().attr.ino;
        write(&volume, new, 0, &[4; 100]).await.unwrap();
        volume.take_snapshot(folder, "two").await.unwrap();
        volume.unlink(folder, b"new").await.unwrap();
        assert_eq!(read_all(&volume, old(&volume, "all/moved/a").await).await, [2; 9000]);
        let was = volume.resolve(b"/moved/.snapshots/two/new").await.unwrap();
        assert_eq!(read_all(&volume, was).await, [4; 100]);
        let was = volume.resolve(b"/moved/.snapshots/one/inner/a").await.unwrap();
        assert_eq!(read_all(&volume, was).await, [1; 9000]);
        is_well(&volume).await;
        for name in [&b"a"[..], b"inner"] {
            match name {
                b"a" => volume.unlink(folder, name).await.unwrap(),
                _ => volume.remove_dir(folder, name).await.unwrap(),
            }
        }
        assert_eq!(volume.remove_dir(ROOT, b"moved").await, Err(Errno::Busy));
        for name in ["one", "two"] {
            volume.remove_snapshot(folder, name).await.unwrap();
            freed(&shard, &volume).await;
        }
        volume.remove_dir(ROOT, b"moved").await.unwrap();
        assert_eq!(read_all(&volume, old(&volume, "all/moved/a").await).await, [2; 9000]);
        volume.remove_snapshot(ROOT, "all").await.unwrap();
        freed(&shard, &volume).await;
        assert_eq!(volume.snapshot_bytes(), 0);
        is_well(&volume).await;
    });
}

#[test]
fn a_scrub_reads_what_only_a_snapshot_has() {
    let (world, store) = World::new(STRIPE, &[16]);
    let volume = world.mount(&store);
    let ram = Arc::clone(world.bricks[0].memory());
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        let mut content = vec![1; 300_000];
        content[200_000] = 77;
        write(&volume, ino, 0, &content).await.unwrap();
        take(&volume, "one").await;
        write(&volume, ino, 0, &[2; 300_000]).await.unwrap();
        volume.start_scrub().unwrap();
        volume.wait_check().await;
        let Some(CheckEnd::Done(report)) = volume.last_check() else { panic!("it has ended") };
        assert!(report.rotten.is_empty() && report.lost.is_empty(), "{report:?}");
        assert!(report.bytes >= 600_000, "{report:?}");
        ram.write(find(&ram, 77), &[78]);
        volume.start_scrub().unwrap();
        volume.wait_check().await;
        let Some(CheckEnd::Done(report)) = volume.last_check() else { panic!("it has ended") };
        let paths: Vec<&str> = report.rotten.iter().map(|lost| &lost.path[..]).collect();
        assert_eq!(paths, ["/a in snapshot one"], "{report:?}");
        is_well(&volume).await;
        assert_eq!(read_all(&volume, ino).await, [2; 300_000]);
        volume.close().await.unwrap();
    });
}

/// Files that are changed at random, with a model of what they and their snapshots hold.
struct Model {
    shard: Shard,
    random: fastrand::Rng,
    files: BTreeMap<String, Vec<u8>>,
    snapshots: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    taken: u32,
}

impl Model {
    fn random(&mut self, below: u64) -> u64 {
        self.random.u64(..below)
    }

    async fn change(&mut self, volume: &Rc<Volume>) {
        let name = format!("f{}", self.random(4));
        if !self.files.contains_key(&name) {
            file(volume, &name).await;
            self.files.insert(name.clone(), Vec::new());
        }
        let ino = volume.resolve(name.as_bytes()).await.unwrap();
        match self.random(12) {
            0..=5 => {
                let offset = self.random(600_000);
                let len =
                    1 + if self.random(2) == 0 { self.random(5000) } else { self.random(400_000) };
                let data = bytes(len as usize, self.random(256) as u8);
                write(volume, ino, offset, &data).await.unwrap();
                let content = self.files.get_mut(&name).unwrap();
                let end = (offset + len) as usize;
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[offset as usize..end].copy_from_slice(&data);
            }
            6 => {
                let size = self.random(900_000);
                truncate(volume, ino, size).await;
                self.files.get_mut(&name).unwrap().resize(size as usize, 0);
            }
            7 => {
                let (offset, len) = (self.random(700_000), 1 + self.random(300_000));
                volume.allocate(ino, Allocate::PunchHole, offset, len).await.unwrap();
                let content = self.files.get_mut(&name).unwrap();
                let end = content.len().min((offset + len) as usize);
                if (offset as usize) < end {
                    content[offset as usize..end].fill(0);
                }
            }
            8 => {
                volume.unlink(ROOT, name.as_bytes()).await.unwrap();
                self.files.remove(&name);
            }
            9 => volume.sync_all().await.unwrap(),
            10 if self.snapshots.len() < 4 => {
                self.taken += 1;
                let snapshot = format!("s{}", self.taken);
                take(volume, &snapshot).await;
                self.snapshots.insert(snapshot, self.files.clone());
            }
            _ => {
                let at = self.random(self.snapshots.len().max(1) as u64) as usize;
                let Some(snapshot) = self.snapshots.keys().nth(at).cloned() else { return };
                volume.remove_snapshot(ROOT, &snapshot).await.unwrap();
                self.snapshots.remove(&snapshot);
            }
        }
    }

    async fn compare(&self, volume: &Rc<Volume>, when: &str) {
        let expected: Vec<&String> = self.files.keys().collect();
        assert_eq!(names(volume, ROOT).await.iter().collect::<Vec<_>>(), expected, "{when}");
        for (name, content) in &self.files {
            let ino = volume.resolve(name.as_bytes()).await.unwrap();
            assert!(read_all(volume, ino).await == *content, "{when}: {name}");
        }
        for (snapshot, files) in &self.snapshots {
            let root = old(volume, snapshot).await;
            let expected: Vec<&String> = files.keys().collect();
            assert_eq!(names(volume, root).await.iter().collect::<Vec<_>>(), expected, "{when}");
            for (name, content) in files {
                let ino = old(volume, &format!("{snapshot}/{name}")).await;
                assert!(read_all(volume, ino).await == *content, "{when}: {snapshot}/{name}");
            }
        }
        is_well(volume).await;
    }

    /// After a crash files are as they were at some commit; snapshots are as they were taken.
    async fn take_files_as_they_are(&mut self, volume: &Rc<Volume>) {
        self.files.clear();
        for name in names(volume, ROOT).await {
            let ino = volume.resolve(name.as_bytes()).await.unwrap();
            self.files.insert(name, read_all(volume, ino).await);
        }
        // One of which the removal was not durable, or that was being taken.
        let known: Vec<String> = volume
            .snapshots()
            .await
            .into_iter()
            .filter(|snapshot| !snapshot.is_going)
            .map(|snapshot| snapshot.name)
            .collect();
        assert_eq!(known.len(), self.snapshots.len(), "{known:?}");
    }

    /// No snapshot is left, and nothing but files takes space.
    async fn end(&mut self, volume: &Rc<Volume>) {
        for snapshot in std::mem::take(&mut self.snapshots).into_keys() {
            volume.remove_snapshot(ROOT, &snapshot).await.unwrap();
        }
        freed(&self.shard, volume).await;
        let mut blocks = 0;
        for name in self.files.keys() {
            let ino = volume.resolve(name.as_bytes()).await.unwrap();
            blocks += volume.attr(ino).await.unwrap().blocks / 8;
        }
        is_well(volume).await;
        assert_eq!((volume.usage().0, volume.snapshot_bytes()), (blocks, 0));
    }
}

fn changed_at_random(copies: u8, seed: u64) {
    let (world, store) = World::with_copies(STRIPE, &[64, 64, 64], copies);
    let mut volume = world.mount(&store);
    let mut model = Model {
        shard: world.shard.clone(),
        random: fastrand::Rng::with_seed(seed),
        files: BTreeMap::new(),
        snapshots: BTreeMap::new(),
        taken: 0,
    };
    let mut store = store;
    for round in 0..12 {
        let mounted = Rc::clone(&volume);
        model = world.shard.block_on(async move {
            for _ in 0..12 {
                model.change(&mounted).await;
            }
            match round % 4 {
                1 => {
                    // A job moves what files and snapshots have.
                    let brick = (round / 4) as u16;
                    if mounted.start_job(NewJob::Remove { brick }).await.is_ok() {
                        mounted.wait_job().await.unwrap();
                        let left = mounted.brick(brick);
                        assert!(left.is_none(), "the brick is empty");
                    }
                }
                3 => mounted.sync_all().await.unwrap(),
                _ => {}
            }
            model.compare(&mounted, &format!("seed {seed}, round {round}")).await;
            if round % 4 == 1 {
                for _ in 0..model.random(8) {
                    model.change(&mounted).await;
                }
            }
            model
        });
        if round % 2 == 1 {
            store = world.crash(&store);
            drop(volume);
            volume = world.mount(&store);
            let mounted = Rc::clone(&volume);
            model = world.shard.block_on(async move {
                if round % 4 == 1 {
                    model.take_files_as_they_are(&mounted).await;
                }
                model.compare(&mounted, &format!("seed {seed}, mount {round}")).await;
                model
            });
        }
    }
    world.shard.block_on(async move {
        model.end(&volume).await;
        volume.close().await.unwrap();
    });
}

#[test]
fn random_changes_leave_snapshots_as_they_were() {
    for seed in 0..60 {
        changed_at_random(1, seed);
    }
}

#[test]
fn random_changes_leave_snapshots_of_files_with_copies_as_they_were() {
    for seed in 100..120 {
        changed_at_random(2, seed);
    }
}
