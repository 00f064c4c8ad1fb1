//! Metadata that is damaged at random: a mount and all that can be done to it end, with errors or without, and nothing
//! panics.

use super::*;
use crate::NewJob;
use braid_filesystem::{Allocate, Seek, SetAttr, XattrMode};
use braid_kv::Change;
use std::cell::RefCell;

thread_local! {
    /// What is done now: a panic in it can be told where it came from.
    static DOING: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A volume with some of everything, as its store holds it.
fn sample() -> (World, ModelStore) {
    let (world, store) = World::new(16 << 10, &[8, 16, 8]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let dir = make(&volume, ROOT, "dir", Kind::Directory).await.unwrap().attr.ino;
        let inner = make(&volume, dir, "inner", Kind::Directory).await.unwrap().attr.ino;
        for (name, parent) in [("a", ROOT), ("b", dir), ("c", inner)] {
            let ino = make(&volume, parent, name, Kind::File).await.unwrap().attr.ino;
            write(&volume, ino, 5000, &[7; 100_000]).await.unwrap();
            write(&volume, ino, 3 << 20, &[8; 5000]).await.unwrap();
            volume.set_xattr(ino, b"user.a", b"value", XattrMode::Any).await.unwrap();
            volume.link(ino, inner, format!("{name} too").as_bytes()).await.unwrap();
        }
        let node = NewNode { kind: Kind::Symlink, perm: 0o777, rdev: 0, target: b"dir/b" };
        volume.make(ME, ROOT, b"link", node).await.unwrap();
        let gone = file(&volume, "gone").await;
        write(&volume, gone, 0, &[9; 50_000]).await.unwrap();
        volume.open(gone, false).await.unwrap();
        volume.unlink(ROOT, b"gone").await.unwrap();
        volume.sync().await.unwrap();
    });
    let store = world.crash(&store);
    (world, store)
}

/// A few records of `pairs` become others.
fn damage(pairs: &[(Vec<u8>, Vec<u8>)], random: &mut fastrand::Rng) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    for _ in 0..random.usize(1..4) {
        let (key, value) = &pairs[random.usize(..pairs.len())];
        if changes.iter().any(|(other, _)| other == key) {
            continue;
        }
        let mut value = value.clone();
        match random.u32(..10) {
            0 => {
                changes.push((key.clone(), None));
                continue;
            }
            1 => value.truncate(random.usize(..=value.len())),
            2 => value.extend(std::iter::repeat_n(random.u8(..), random.usize(1..40))),
            3 => value.clone_from(&pairs[random.usize(..pairs.len())].1),
            4 => {
                // Of the same kind.
                let like: Vec<_> = pairs.iter().filter(|pair| pair.0[0] == key[0]).collect();
                value.clone_from(&like[random.usize(..like.len())].1);
            }
            5 if value.len() >= 8 => {
                let at = random.usize(..=value.len() - 8);
                let extreme = [0, 1, u64::MAX, u64::MAX >> 1, 1 << 63, random.u64(..)];
                let number = extreme[random.usize(..extreme.len())];
                value[at..at + 8].copy_from_slice(&number.to_le_bytes());
            }
            6 => {
                // A record where none should be.
                let mut key = key.clone();
                let at = random.usize(..key.len());
                key[at] = random.u8(..);
                if !pairs.iter().any(|pair| pair.0 == key)
                    && !changes.iter().any(|(other, _)| *other == key)
                {
                    changes.push((key, Some(value)));
                }
                continue;
            }
            _ => {
                for _ in 0..random.usize(1..5) {
                    let len = value.len();
                    if len > 0 {
                        value[random.usize(..len)] = random.u8(..);
                    }
                }
            }
        }
        changes.push((key.clone(), Some(value)));
    }
    changes
}

fn doing(what: impl Into<String>) {
    DOING.set(what.into());
}

/// Does everything to a file and to what is below it, whatever comes back.
async fn walk(volume: &Volume, ino: Ino, depth: u32, left: &mut u32) {
    if depth > 8 || *left == 0 {
        return;
    }
    *left -= 1;
    doing(format!("looking at {ino}"));
    let Ok(attr) = volume.attr(ino).await else { return };
    let _ = volume.parent(ino).await;
    let _ = volume.read_link(ino).await;
    for name in volume.xattrs(ino).await.unwrap_or_default() {
        let _ = volume.xattr(ino, &name).await;
    }
    let _ = volume.set_xattr(ino, b"user.new", b"x", XattrMode::Any).await;
    doing(format!("reading {ino}"));
    for at in [0, 4096, 100_000, 3 << 20, attr.size.saturating_sub(5000), u64::MAX >> 1] {
        let _ = volume.read(ino, at, 70_000).await;
        let _ = volume.seek(ino, at, Seek::Data).await;
        let _ = volume.seek(ino, at, Seek::Hole).await;
    }
    doing(format!("writing {ino}"));
    let _ = write(volume, ino, 60_000, &[1; 70_000]).await;
    let _ = volume.allocate(ino, Allocate::PunchHole, 10_000, 60_000).await;
    let _ = volume.allocate(ino, Allocate::Reserve { keep_size: false }, 0, 200_000).await;
    let mut cookie = 0;
    for _ in 0..20 {
        doing(format!("listing {ino}"));
        let entries = volume.read_dir(ino, cookie, 100).await.unwrap_or_default();
        let Some(last) = entries.last() else { break };
        cookie = last.cookie;
        for entry in entries {
            doing(format!("looking up in {ino}"));
            let _ = volume.lookup(ino, &entry.name).await;
            Box::pin(walk(volume, entry.ino, depth + 1, left)).await;
        }
    }
    doing(format!("truncating {ino}"));
    let set = SetAttr { size: Some(70_000), ..SetAttr::default() };
    let _ = volume.set_attr(ME, ino, set).await;
    let _ = volume.fsync(ino, false).await;
}

/// Removes what can be removed.
async fn remove_all(volume: &Volume, dir: Ino, depth: u32) {
    if depth > 8 {
        return;
    }
    doing(format!("removing from {dir}"));
    for entry in volume.read_dir(dir, 0, 100).await.unwrap_or_default() {
        Box::pin(remove_all(volume, entry.ino, depth + 1)).await;
        doing(format!("removing {} from {dir}", entry.ino));
        let _ = volume.unlink(dir, &entry.name).await;
        let _ = volume.remove_dir(dir, &entry.name).await;
    }
}

async fn everything(shard: Shard, from: MountOf) {
    doing("mounting");
    let Ok(volume) = Volume::mount(&shard, from).await else { return };
    doing("checking");
    let _ = volume.check(false).await;
    walk(&volume, ROOT, 0, &mut 60).await;
    for job in [NewJob::Balance, NewJob::Defrag] {
        doing("a job");
        if volume.start_job(job).await.is_ok() {
            let _ = volume.wait_job().await;
        }
    }
    doing("repairing");
    let _ = volume.check(true).await;
    walk(&volume, ROOT, 0, &mut 60).await;
    remove_all(&volume, ROOT, 0).await;
    doing("closing");
    let _ = volume.status();
    let _ = volume.close().await;
}

#[test]
fn damaged_metadata_never_panics() {
    let (world, store) = sample();
    let pairs: Vec<(Vec<u8>, Vec<u8>)> =
        store.snapshot().pairs().iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let seeds = match std::env::var("DAMAGE_SEEDS").ok().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse::<u64>().ok()?..to.parse::<u64>().ok()?)
    }) {
        Some(seeds) => seeds,
        None => 0..200,
    };
    for seed in seeds {
        let mut random = fastrand::Rng::with_seed(seed);
        let damaged = world.crash(&store);
        let changes = damage(&pairs, &mut random);
        let keys: Vec<String> =
            changes.iter().map(|(key, _)| key.escape_ascii().to_string()).collect();
        let commit = damaged.commit(changes);
        world.shard.block_on(commit).unwrap();
        let from = world.mount_of(&damaged);
        let shard = world.shard.clone();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            world.shard.block_on(everything(shard, from));
        }));
        let doing = DOING.with_borrow(String::clone);
        assert!(ended.is_ok(), "seed {seed}: a panic while {doing}; damaged: {keys:?}");
    }
}
