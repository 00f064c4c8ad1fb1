//! Limits of projects and of folders.

use super::*;
use crate::{Limits, ProjectStatus};
use braid_filesystem::{Allocate, FileFlags, SetAttr};
use braid_format::volume::project::ProjectRecord;

const MIB: u64 = 1 << 20;

async fn folder(volume: &Volume, parent: Ino, name: &str) -> Ino {
    make(volume, parent, name, Kind::Directory).await.unwrap().attr.ino
}

fn limits(bytes: u64, files: u64) -> Limits {
    Limits { bytes: Some(bytes), files: Some(files) }
}

async fn only_project(volume: &Volume) -> ProjectStatus {
    let mut all = volume.projects().await;
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

async fn assert_sound(volume: &Volume) {
    let report = volume.check(false).await.unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn copies_that_were_missed_are_made_again_beyond_a_limit() {
    let (world, store) = World::with_copies(128 << 10, &[16, 16], 2);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let top = folder(&volume, ROOT, "top").await;
        volume.limit_folder(top, limits(MIB, 10)).await.unwrap();
        volume.close().await.unwrap();
    });
    let mut from = world.mount_of(&store);
    from.devices.pop();
    let shard = world.shard.clone();
    let volume = world.shard.block_on(async move { Volume::mount(&shard, from).await }).unwrap();
    world.shard.block_on(async move {
        let top = volume.resolve(b"/top").await.unwrap();
        let ino = make(&volume, top, "a", Kind::File).await.unwrap().attr.ino;
        // With one brick there is one copy, which the limit has room for.
        write(&volume, ino, 0, &vec![1; MIB as usize]).await.unwrap();
        volume.close().await.unwrap();
    });
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let _ = volume.start_job(crate::NewJob::Copies).await;
        volume.wait_job().await.unwrap();
        assert!(!volume.status().incomplete);
        let project = only_project(&volume).await;
        assert_eq!(project.bytes, 2 * MIB);
        let ino = volume.resolve(b"/top/a").await.unwrap();
        assert_eq!(write(&volume, ino, MIB, &[1; 4096]).await, Err(Errno::Quota));
        assert_sound(&volume).await;
    });
}

#[test]
fn writers_are_told_at_once_where_little_is_left_below_a_limit() {
    let (world, store) = World::new(128 << 10, &[600]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let top = folder(&volume, ROOT, "top").await;
        let ino = make(&volume, top, "a", Kind::File).await.unwrap().attr.ino;
        for (limit, near) in [(4 * MIB, true), (255 * MIB, true), (300 * MIB, false)] {
            volume.limit_folder(top, limits(limit, 10)).await.unwrap();
            assert_eq!(volume.is_nearly_full(ino), near, "{limit}");
        }
        assert!(!volume.is_nearly_full(ROOT));
    });
}

#[test]
fn a_folder_with_a_limit_takes_so_much_and_no_more() {
    let (world, store) = World::new(128 << 10, &[32]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let top = folder(&volume, ROOT, "top").await;
        volume.limit_folder(top, limits(MIB, 4)).await.unwrap();
        let ino = make(&volume, top, "a", Kind::File).await.unwrap().attr.ino;
        write(&volume, ino, 0, &vec![1; 900 << 10]).await.unwrap();
        assert_eq!(write(&volume, ino, 900 << 10, &[1; 200 << 10]).await, Err(Errno::Quota));
        let reserve = Allocate::Reserve { keep_size: true };
        let other = make(&volume, top, "b", Kind::File).await.unwrap().attr.ino;
        assert_eq!(volume.allocate(other, reserve, 0, 2 * MIB).await, Err(Errno::Quota));
        assert_eq!(volume.attr(other).await.unwrap().blocks, 0);
        // What is there can be written over, and what is cut off is given back.
        write(&volume, ino, 0, &vec![2; 900 << 10]).await.unwrap();
        let cut = SetAttr { size: Some(100 << 10), ..SetAttr::default() };
        volume.set_attr(ME, ino, cut).await.unwrap();
        volume.allocate(other, reserve, 0, 512 << 10).await.unwrap();
        // The folder, two files and one more.
        folder(&volume, top, "below").await;
        assert_eq!(make(&volume, top, "d", Kind::File).await.err(), Some(Errno::Quota));
        let node = NewNode { kind: Kind::File, perm: 0o600, umask: 0, rdev: 0, target: b"" };
        assert_eq!(volume.make_unnamed(ME, top, node).await.err(), Some(Errno::Quota));
        let space = volume.space(ino).await.unwrap();
        let used = volume.attr(ino).await.unwrap().blocks / 8 + 128;
        assert_eq!((space.blocks, space.free), (256, 256 - used));
        assert_eq!((space.files, space.files_free), (4, 0));
        assert!(volume.space(ROOT).await.unwrap().blocks > 256);
        // From elsewhere nothing comes in by another name.
        let outside = file(&volume, "outside").await;
        assert_eq!(volume.link(outside, top, b"in").await, Err(Errno::CrossDevice));
        assert_sound(&volume).await;
    });
}

#[test]
fn a_limit_counts_what_is_in_the_folder_already_and_may_be_below_it() {
    let (world, store) = World::new(128 << 10, &[32]);
    let volume = world.mount(&store);
    let own = Rc::clone(&volume);
    world.shard.block_on(async move {
        let top = folder(&own, ROOT, "top").await;
        let mut at = top;
        for depth in 0..5 {
            for name in 0..60 {
                let made = make(&own, at, &format!("f{name}"), Kind::File).await.unwrap();
                if name % 20 == 0 {
                    write(&own, made.attr.ino, 0, &[depth; 10_000]).await.unwrap();
                }
            }
            at = folder(&own, at, "d").await;
        }
        file(&own, "outside").await;
        own.limit_folder(top, limits(4096, 10)).await.unwrap();
        let project = only_project(&own).await;
        assert_eq!((project.folder.as_deref(), project.is_moving), (Some("/top"), false));
        // 300 files and 6 folders; 15 files have 3 blocks.
        assert_eq!((project.files, project.bytes), (306, 15 * 3 * 4096));
        assert_eq!(project.limits, limits(4096, 10));
        assert_eq!(make(&own, at, "more", Kind::File).await.err(), Some(Errno::Quota));
        let inherits = own.flags(at).await.unwrap();
        assert!(inherits.inherits_project && inherits.project == project.id);
        own.limit_folder(top, Limits::default()).await.unwrap();
        make(&own, at, "more", Kind::File).await.unwrap();
        assert_sound(&own).await;
    });
    // It is there after a crash, too, and agrees.
    let store = world.crash(&store);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        volume.wait_check().await;
        let project = only_project(&volume).await;
        assert!((306..=307).contains(&project.files));
        let top = volume.resolve(b"top").await.unwrap();
        volume.unlimit_folder(top).await.unwrap();
        assert_eq!(volume.projects().await, []);
        assert_eq!(volume.flags(top).await.unwrap(), FileFlags::default());
        assert!(volume.unlimit_folder(top).await.is_err());
        assert_sound(&volume).await;
    });
}

#[test]
fn a_walk_that_was_interrupted_goes_on_at_the_next_mount() {
    let (world, store) = World::new(128 << 10, &[8]);
    let volume = world.mount(&store);
    let own = Rc::clone(&volume);
    world.shard.block_on(async move {
        let top = folder(&own, ROOT, "top").await;
        make(&own, top, "a", Kind::File).await.unwrap();
        let id = own.limit_folder(top, limits(MIB, 100)).await.unwrap();
        // As it stands before the first step.
        let moving = Some(braid_format::volume::project::Moving { from: 0, to: id });
        own.projects.edit(id, |record| record.moving = moving);
        for name in [&b"top"[..], b"top/a"] {
            let inode = own.inodes.get(own.resolve(name).await.unwrap()).await.unwrap();
            own.inodes.edit(&inode, true, |record| (record.project, record.flags) = (0, 0));
        }
        own.sync().await.unwrap();
        assert_eq!(only_project(&own).await.files, 0);
    });
    let store = world.crash(&store);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        volume.wait_check().await;
        while only_project(&volume).await.is_moving {
            volume.shard.sleep(1_000_000).await;
        }
        assert_eq!(only_project(&volume).await.files, 2);
        assert_sound(&volume).await;
    });
}

#[test]
fn folders_within_have_their_own_and_a_removed_folder_leaves_nothing() {
    let (world, store) = World::new(128 << 10, &[8]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let top = folder(&volume, ROOT, "top").await;
        let inner = folder(&volume, top, "inner").await;
        make(&volume, inner, "a", Kind::File).await.unwrap();
        volume.limit_folder(inner, limits(MIB, 100)).await.unwrap();
        volume.limit_folder(top, limits(MIB, 100)).await.unwrap();
        let files = |all: Vec<ProjectStatus>| all.iter().map(|one| one.files).collect::<Vec<_>>();
        assert_eq!(files(volume.projects().await), [2, 1]);
        // Without its own limit it belongs to that of the folder above.
        volume.unlimit_folder(inner).await.unwrap();
        assert_eq!(files(volume.projects().await), [3]);
        volume.unlink(inner, b"a").await.unwrap();
        volume.forget(volume.lookup(top, b"inner").await.unwrap().attr.ino, 2);
        volume.remove_dir(top, b"inner").await.unwrap();
        volume.remove_dir(ROOT, b"top").await.unwrap();
        volume.forget(top, 1);
        while volume.orphans.is_busy() {
            volume.shard.sleep(1_000_000).await;
        }
        assert!(volume.limit_folder(ROOT, limits(1, 1)).await.is_err());
        assert_sound(&volume).await;
    });
}

#[test]
fn a_file_does_not_come_into_a_project_that_is_full() {
    let (world, store) = World::new(128 << 10, &[8]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &[1; 9000]).await.unwrap();
        let flags = FileFlags { project: 5, ..FileFlags::default() };
        volume.limit_project(5, limits(8192, 9)).unwrap();
        assert_eq!(volume.set_flags(ino, flags).await, Err(Errno::Quota));
        volume.limit_project(5, limits(12288, 9)).unwrap();
        volume.set_flags(ino, flags).await.unwrap();
        assert_eq!(only_project(&volume).await.bytes, 12288);
        assert!(volume.limit_project(0, limits(1, 1)).is_err());
        assert_sound(&volume).await;
    });
}

#[test]
fn a_project_that_was_chosen_for_a_folder_stays_and_has_the_limit() {
    let (world, store) = World::new(128 << 10, &[8]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let chosen = FileFlags { project: 4711, inherits_project: true, ..FileFlags::default() };
        let top = folder(&volume, ROOT, "top").await;
        volume.set_flags(top, chosen).await.unwrap();
        let beside = folder(&volume, ROOT, "beside").await;
        volume.set_flags(beside, chosen).await.unwrap();
        let file = make(&volume, top, "a", Kind::File).await.unwrap().attr.ino;
        let inner = folder(&volume, top, "inner").await;
        assert_eq!(volume.limits_of(top).await.unwrap(), Limits::default());
        assert_eq!(volume.limit_folder(top, limits(MIB, 5)).await.unwrap(), 4711);
        for ino in [top, beside, inner] {
            assert_eq!(volume.flags(ino).await.unwrap(), chosen);
            assert_eq!(volume.limits_of(ino).await.unwrap(), limits(MIB, 5));
        }
        assert_eq!(volume.flags(file).await.unwrap().project, 4711);
        let project = only_project(&volume).await;
        assert_eq!((project.id, project.folder, project.files), (4711, None, 4));
        make(&volume, beside, "b", Kind::File).await.unwrap();
        assert_eq!(make(&volume, top, "c", Kind::File).await.err(), Some(Errno::Quota));
        // A limit below it that is its own takes none of it over.
        let apart = folder(&volume, ROOT, "apart").await;
        let id = volume.limit_folder(apart, limits(MIB, 100)).await.unwrap();
        let within = folder(&volume, apart, "within").await;
        assert_ne!(volume.limit_folder(within, limits(MIB, 9)).await.unwrap(), id);
        volume.unlimit_folder(inner).await.unwrap();
        assert_eq!(volume.limits_of(top).await.unwrap(), Limits::default());
        assert_eq!(volume.flags(top).await.unwrap(), chosen);
        assert!(volume.unlimit_folder(top).await.is_err());
        assert_sound(&volume).await;
    });
}

#[test]
fn a_check_finds_and_mends_what_projects_are_said_to_take() {
    let (world, store) = World::new(128 << 10, &[8]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let top = folder(&volume, ROOT, "top").await;
        let id = volume.limit_folder(top, limits(MIB, 9)).await.unwrap();
        let ino = make(&volume, top, "a", Kind::File).await.unwrap().attr.ino;
        write(&volume, ino, 0, &[1; 9000]).await.unwrap();
        let wrong = |record: &mut ProjectRecord| (record.blocks, record.files) = (77, 1);
        volume.projects.edit(id, wrong);
        let report = volume.check(false).await.unwrap();
        assert_eq!((report.found, report.repaired), (1, 0), "{:?}", report.problems);
        let report = volume.check(true).await.unwrap();
        assert_eq!((report.found, report.repaired), (1, 1));
        assert_eq!(only_project(&volume).await.bytes, 12288);
        assert_sound(&volume).await;
    });
}
