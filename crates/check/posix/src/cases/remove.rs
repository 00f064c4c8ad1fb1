//! unlink and rmdir.

use crate::cases;
use crate::scene::{
    Kind, Outcome, Scene, equal, facts, facts_of, holds, refuses, refuses_with, works,
};
use rustix::fs::{AtFlags, CWD, rmdir, unlink};
use rustix::io::Errno;
use std::os::unix::fs::FileExt;

cases! {
    "unlink":
        removes_every_kind_but_directories,
        refuses_directories,
        changes_the_directory_s_times,
        changes_ctime_of_what_has_other_names,
        does_not_follow_links,
        refused_changes_nothing,
        gives_space_back,
        gives_space_back_at_the_last_close;
    "rmdir":
        refuses_what_holds_something,
        refuses_every_other_kind,
        refuses_dot_and_dotdot,
        refuses_a_link_to_a_directory,
        changes_the_parent_s_times,
        counts_links_of_the_parent,
        unlinkat_with_its_flag_is_the_same;
}

fn removes_every_kind_but_directories(scene: &Scene) -> Outcome {
    for kind in scene.kinds().into_iter().filter(|kind| *kind != Kind::Directory) {
        let path = scene.make(kind, format!("{kind:?}"))?;
        works(format!("unlink of a {kind:?}"), unlink(&path))?;
        refuses("lstat afterwards", rustix::fs::lstat(&path), Errno::NOENT)?;
        equal("names", std::fs::read_dir(scene.root())?.count(), 0)?;
    }
    Ok(())
}

fn refuses_directories(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    // POSIX says EPERM, Linux EISDIR (unlink(2)).
    refuses_with("unlink of a directory", unlink(&dir), &[Errno::ISDIR, Errno::PERM])?;
    holds("it is there", dir.is_dir())
}

fn changes_times(
    scene: &Scene,
    what: &str,
    remove: impl Fn() -> rustix::io::Result<()>,
) -> Outcome {
    let before = facts(scene.root())?;
    scene.tick();
    works(what, remove())?;
    let after = facts(scene.root())?;
    holds(format!("the directory's mtime is later after {what}"), after.mtime > before.mtime)?;
    holds(format!("the directory's ctime is later after {what}"), after.ctime > before.ctime)
}

fn changes_the_directory_s_times(scene: &Scene) -> Outcome {
    for kind in scene.kinds().into_iter().filter(|kind| *kind != Kind::Directory) {
        let path = scene.make(kind, "object")?;
        changes_times(scene, "unlink", || unlink(&path))?;
    }
    Ok(())
}

fn changes_the_parent_s_times(scene: &Scene) -> Outcome {
    let path = scene.dir("object")?;
    changes_times(scene, "rmdir", || rmdir(&path))
}

fn changes_ctime_of_what_has_other_names(scene: &Scene) -> Outcome {
    let first = scene.file("first")?;
    let second = scene.path("second");
    works("link", rustix::fs::link(&first, &second))?;
    let before = facts(&first)?;
    scene.tick();
    works("unlink", unlink(&second))?;
    let after = facts(&first)?;
    equal("links", after.nlink, 1)?;
    holds("ctime is later", after.ctime > before.ctime)?;
    equal("mtime", after.mtime, before.mtime)
}

fn does_not_follow_links(scene: &Scene) -> Outcome {
    let file = scene.file("file")?;
    let link = scene.symlink("file", "link")?;
    works("unlink of a link", unlink(&link))?;
    holds("the file is there, the link is not", file.exists() && !link.exists())
}

fn refused_changes_nothing(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    let file = scene.file("dir/file")?;
    let before = (facts(&dir)?, facts(&file)?, facts(scene.root())?);
    scene.tick();
    refuses("unlink below a file", unlink(file.join("x")), Errno::NOTDIR)?;
    refuses("rmdir of what holds something", rmdir(&dir), Errno::NOTEMPTY)?;
    let after = (facts(&dir)?, facts(&file)?, facts(scene.root())?);
    equal("file and directories", after, before)
}

/// Free bytes, once all that is in memory is on disk.
fn free(scene: &Scene) -> anyhow::Result<u64> {
    rustix::fs::syncfs(std::fs::File::open(scene.root())?)?;
    let found = rustix::fs::statvfs(scene.root())?;
    Ok(found.f_bfree * found.f_frsize)
}

/// Free bytes once they are `wanted`, or what they are after some seconds: what is removed may be freed behind the
/// scenes.
fn free_again(scene: &Scene, wanted: u64) -> anyhow::Result<u64> {
    for _ in 0..50 {
        let now = free(scene)?;
        if now >= wanted {
            return Ok(now);
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    free(scene)
}

const SIZE: u64 = 8 << 20;

fn gives_space_back(scene: &Scene) -> Outcome {
    // Somebody else's files may come and go at the same time: half of it has to show.
    let full = free(scene)?;
    let path = scene.file_of("file", &vec![7; SIZE as usize])?;
    std::fs::File::open(&path)?.sync_all()?;
    let used = free(scene)?;
    holds(
        format!("{SIZE} bytes written are used: {full} free, then {used}"),
        full - used > SIZE / 2,
    )?;
    works("unlink", unlink(&path))?;
    let again = free_again(scene, used + SIZE / 2)?;
    holds(format!("they are free again: {used}, then {again}"), again > used + SIZE / 2)
}

fn gives_space_back_at_the_last_close(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &vec![7; SIZE as usize])?;
    let file = scene.open(&path)?;
    file.sync_all()?;
    works("unlink", unlink(&path))?;
    let held = free(scene)?;
    equal("size of the open file", facts_of(&file)?.size, SIZE)?;
    let mut last = [0];
    file.read_exact_at(&mut last, SIZE - 1)?;
    equal("its last byte", last[0], 7)?;
    drop(file);
    let again = free_again(scene, held + SIZE / 2)?;
    holds(format!("free again: {held}, then {again}"), again > held + SIZE / 2)
}

fn refuses_what_holds_something(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    for kind in scene.kinds() {
        let inner = scene.make(kind, "dir/inner")?;
        let errors = [Errno::NOTEMPTY, Errno::EXIST];
        refuses_with(format!("rmdir of a directory with a {kind:?}"), rmdir(&dir), &errors)?;
        holds("what it holds is there", inner.symlink_metadata().is_ok())?;
        if kind == Kind::Directory {
            works("rmdir", rmdir(&inner))?;
        } else {
            works("unlink", unlink(&inner))?;
        }
    }
    works("rmdir once it is empty", rmdir(&dir))
}

fn refuses_every_other_kind(scene: &Scene) -> Outcome {
    for kind in scene.kinds().into_iter().filter(|kind| *kind != Kind::Directory) {
        let path = scene.make(kind, format!("{kind:?}"))?;
        refuses(format!("rmdir of a {kind:?}"), rmdir(&path), Errno::NOTDIR)?;
    }
    Ok(())
}

fn refuses_dot_and_dotdot(scene: &Scene) -> Outcome {
    scene.dir("dir")?;
    let inner = scene.dir("dir/inner")?;
    refuses("rmdir of .", rmdir(inner.join(".")), Errno::INVAL)?;
    let errors = [Errno::NOTEMPTY, Errno::EXIST];
    refuses_with("rmdir of ..", rmdir(inner.join("..")), &errors)
}

fn refuses_a_link_to_a_directory(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    let link = scene.symlink("dir", "link")?;
    refuses("rmdir of a link to a directory", rmdir(&link), Errno::NOTDIR)?;
    holds("the directory is there", dir.is_dir())
}

fn counts_links_of_the_parent(scene: &Scene) -> Outcome {
    let dirs =
        (0..5).map(|number| scene.dir(format!("{number}"))).collect::<anyhow::Result<Vec<_>>>()?;
    for (dir, left) in dirs.iter().zip((0..5).rev()) {
        works("rmdir", rmdir(dir))?;
        equal("links of the parent", facts(scene.root())?.nlink, 2 + left)?;
    }
    Ok(())
}

fn unlinkat_with_its_flag_is_the_same(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    let file = scene.file("file")?;
    let remove = |path| rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR);
    refuses("AT_REMOVEDIR of a file", remove(&file), Errno::NOTDIR)?;
    works("AT_REMOVEDIR of a directory", remove(&dir))?;
    holds("it is gone", !dir.exists())
}
