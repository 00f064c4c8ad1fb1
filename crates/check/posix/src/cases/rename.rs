//! rename: what takes whose place, what is refused, and that nobody ever sees a moment between.

use super::link::elsewhere;
use crate::cases;
use crate::scene::{
    ALICE, Kind, Outcome, STAFF, Scene, as_user, equal, facts, facts_of, holds, plain, refuses,
    refuses_with, same_bytes, skip, works,
};
use rustix::fs::{CWD, RenameFlags, rename};
use rustix::io::{Errno, Result};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

cases! {
    "rename":
        keeps_the_object_of_every_kind,
        replaces_every_kind_but_directories,
        replaces_an_empty_directory,
        refuses_a_directory_that_holds_something,
        refuses_a_file_over_a_directory,
        refuses_a_directory_over_a_file,
        into_its_own_subtree_is_refused,
        over_its_own_parent_is_refused,
        of_dot_is_refused,
        between_two_names_of_one_file_does_nothing,
        to_itself_does_nothing,
        replaced_open_file_stays_readable,
        replaced_file_s_other_names_stay,
        of_an_open_file_keeps_it,
        moves_a_directory_with_its_parent_link,
        counts_links_of_both_parents,
        changes_times_of_both_directories,
        does_not_follow_links,
        to_another_file_system_is_refused,
        refused_changes_nothing,
        of_a_foreign_directory_to_another_parent_needs_its_write,
        is_seen_by_nobody_halfway,
        back_and_forth_by_threads,
        by_an_open_directory_finds_it_where_it_went;
    "rename2":
        noreplace_refuses_what_is_there,
        noreplace_is_won_by_one,
        exchange_swaps_two_files,
        exchange_swaps_a_file_and_a_directory,
        exchange_counts_links_of_both_parents,
        exchange_of_what_is_missing,
        exchange_with_its_own_subtree_is_refused,
        both_flags_are_refused,
        whiteout_takes_the_old_name,
        whiteout_is_not_exchanged;
}

fn rename2(from: &Path, to: &Path, flags: RenameFlags) -> Result<()> {
    rustix::fs::renameat_with(CWD, from, CWD, to, flags)
}

/// Ends the case where the file system has no such flag.
fn supported(got: Result<()>) -> anyhow::Result<Result<()>> {
    match got {
        Err(Errno::INVAL | Errno::NOSYS) => skip("no renameat2 with this flag here"),
        other => Ok(other),
    }
}

fn keeps_the_object_of_every_kind(scene: &Scene) -> Outcome {
    for kind in scene.kinds() {
        let from = scene.make(kind, format!("{kind:?}"))?;
        let mut before = facts(&from)?;
        let to = scene.path(format!("{kind:?}-new"));
        works(format!("rename of a {kind:?}"), rename(&from, &to))?;
        holds("the old name is gone", from.symlink_metadata().is_err())?;
        let after = facts(&to)?;
        // POSIX lets a file system change the ctime, or not.
        before.ctime = after.ctime;
        equal(format!("the {kind:?}"), after, before)?;
    }
    Ok(())
}

fn replaces_every_kind_but_directories(scene: &Scene) -> Outcome {
    let kinds = scene.kinds().into_iter().filter(|kind| *kind != Kind::Directory);
    let kinds: Vec<Kind> = kinds.collect();
    for from_kind in &kinds {
        for to_kind in &kinds {
            let from = scene.make(*from_kind, "from")?;
            let to = scene.make(*to_kind, "to")?;
            let before = facts(&from)?;
            works(format!("rename of a {from_kind:?} over a {to_kind:?}"), rename(&from, &to))?;
            let after = facts(&to)?;
            let seen = (after.ino, after.mode, after.nlink);
            equal("what is there", seen, (before.ino, before.mode, 1))?;
            equal("names", std::fs::read_dir(scene.root())?.count(), 1)?;
            std::fs::remove_file(&to)?;
        }
    }
    Ok(())
}

fn replaces_an_empty_directory(scene: &Scene) -> Outcome {
    let from = scene.dir("from")?;
    scene.file("from/file")?;
    let to = scene.dir("to")?;
    let inode = facts(&from)?.ino;
    works("rename over an empty directory", rename(&from, &to))?;
    equal("inode", facts(&to)?.ino, inode)?;
    holds("what it holds came along", to.join("file").exists())?;
    equal("links of the parent", facts(scene.root())?.nlink, 3)
}

fn refuses_a_directory_that_holds_something(scene: &Scene) -> Outcome {
    let from = scene.dir("from")?;
    let to = scene.dir("to")?;
    for kind in scene.kinds() {
        let inner = scene.make(kind, "to/inner")?;
        let errors = [Errno::NOTEMPTY, Errno::EXIST];
        refuses_with(
            format!("rename over a directory with a {kind:?}"),
            rename(&from, &to),
            &errors,
        )?;
        if kind == Kind::Directory {
            std::fs::remove_dir(inner)?;
        } else {
            std::fs::remove_file(inner)?;
        }
    }
    works("rename once it is empty", rename(&from, &to))
}

fn refuses_a_file_over_a_directory(scene: &Scene) -> Outcome {
    let to = scene.dir("to")?;
    for kind in scene.kinds().into_iter().filter(|kind| *kind != Kind::Directory) {
        let from = scene.make(kind, format!("{kind:?}"))?;
        refuses(
            format!("rename of a {kind:?} over a directory"),
            rename(&from, &to),
            Errno::ISDIR,
        )?;
    }
    Ok(())
}

fn refuses_a_directory_over_a_file(scene: &Scene) -> Outcome {
    let from = scene.dir("from")?;
    for kind in scene.kinds().into_iter().filter(|kind| *kind != Kind::Directory) {
        let to = scene.make(kind, format!("{kind:?}"))?;
        let what = format!("rename of a directory over a {kind:?}");
        refuses(what, rename(&from, &to), Errno::NOTDIR)?;
    }
    Ok(())
}

fn into_its_own_subtree_is_refused(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    let inner = scene.dir("dir/inner")?;
    refuses("rename into itself", rename(&dir, dir.join("new")), Errno::INVAL)?;
    refuses("rename into its child", rename(&dir, inner.join("new")), Errno::INVAL)?;
    let deep = scene.dir("dir/inner/deep")?;
    refuses("rename into its grandchild", rename(&dir, deep.join("new")), Errno::INVAL)
}

fn over_its_own_parent_is_refused(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    let inner = scene.dir("dir/inner")?;
    let errors = [Errno::NOTEMPTY, Errno::EXIST];
    refuses_with("rename over the parent", rename(&inner, &dir), &errors)
}

fn of_dot_is_refused(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    let errors = [Errno::BUSY, Errno::INVAL];
    for last in [".", ".."] {
        let what = format!("rename of {last}");
        refuses_with(what, rename(dir.join(last), scene.path("new")), &errors)?;
        let from = scene.dir(format!("from{last}"))?;
        let got = rename(&from, dir.join(last));
        refuses_with(
            format!("rename over {last}"),
            got,
            &[Errno::BUSY, Errno::INVAL, Errno::EXIST],
        )?;
    }
    Ok(())
}

fn between_two_names_of_one_file_does_nothing(scene: &Scene) -> Outcome {
    let first = scene.file("first")?;
    let second = scene.path("second");
    works("link", rustix::fs::link(&first, &second))?;
    works("rename between names of one file", rename(&first, &second))?;
    equal("links", facts(&first)?.nlink, 2)?;
    equal("both names", facts(&first)?, facts(&second)?)
}

fn to_itself_does_nothing(scene: &Scene) -> Outcome {
    for kind in scene.kinds() {
        let path = scene.make(kind, format!("{kind:?}"))?;
        let before = facts(&path)?;
        works(format!("rename of a {kind:?} to itself"), rename(&path, &path))?;
        equal("the object", facts(&path)?, before)?;
    }
    Ok(())
}

fn replaced_open_file_stays_readable(scene: &Scene) -> Outcome {
    let old = scene.file_of("old", b"old text")?;
    let file = scene.open(&old)?;
    let new = scene.file_of("new", b"new text")?;
    works("rename over an open file", rename(&new, &old))?;
    equal("links of the replaced file", facts_of(&file)?.nlink, 0)?;
    let mut got = [0; 8];
    file.read_exact_at(&mut got, 0)?;
    same_bytes("the replaced file", &got, b"old text")?;
    file.write_all_at(b"OLD", 0)?;
    same_bytes("the new file", &std::fs::read(&old)?, b"new text")
}

fn replaced_file_s_other_names_stay(scene: &Scene) -> Outcome {
    let old = scene.file_of("old", b"old text")?;
    let other = scene.path("other");
    works("link", rustix::fs::link(&old, &other))?;
    let before = facts(&other)?;
    scene.tick();
    let new = scene.file_of("new", b"new text")?;
    works("rename", rename(&new, &old))?;
    let after = facts(&other)?;
    equal("links", after.nlink, 1)?;
    holds("ctime of the replaced file is later", after.ctime > before.ctime)?;
    same_bytes("by its other name", &std::fs::read(&other)?, b"old text")
}

fn of_an_open_file_keeps_it(scene: &Scene) -> Outcome {
    let from = scene.file_of("from", b"text")?;
    let file = scene.open(&from)?;
    let to = scene.path("to");
    works("rename", rename(&from, &to))?;
    file.write_all_at(b"TEXT and more", 0)?;
    same_bytes("by the new name", &std::fs::read(&to)?, b"TEXT and more")
}

fn moves_a_directory_with_its_parent_link(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    scene.file("dir/file")?;
    let parent = scene.dir("parent")?;
    let to = parent.join("moved");
    equal("..", facts(&dir.join(".."))?.ino, facts(scene.root())?.ino)?;
    works("rename", rename(&dir, &to))?;
    equal(".. after the move", facts(&to.join(".."))?.ino, facts(&parent)?.ino)?;
    holds("what it holds", to.join("file").exists())
}

fn counts_links_of_both_parents(scene: &Scene) -> Outcome {
    let (a, b) = (scene.dir("a")?, scene.dir("b")?);
    scene.dir("a/dir")?;
    works("rename", rename(a.join("dir"), b.join("dir")))?;
    equal("links of the old parent", facts(&a)?.nlink, 2)?;
    equal("links of the new parent", facts(&b)?.nlink, 3)?;
    scene.dir("a/other")?;
    works("rename over a directory", rename(a.join("other"), b.join("dir")))?;
    equal("links of the old parent", facts(&a)?.nlink, 2)?;
    equal("links of the new parent", facts(&b)?.nlink, 3)
}

fn changes_times_of_both_directories(scene: &Scene) -> Outcome {
    let (a, b) = (scene.dir("a")?, scene.dir("b")?);
    scene.file("a/file")?;
    let before = [facts(&a)?, facts(&b)?];
    scene.tick();
    works("rename", rename(a.join("file"), b.join("file")))?;
    for (before, after) in before.iter().zip([facts(&a)?, facts(&b)?]) {
        holds("mtime is later", after.mtime > before.mtime)?;
        holds("ctime is later", after.ctime > before.ctime)?;
    }
    Ok(())
}

fn does_not_follow_links(scene: &Scene) -> Outcome {
    let file = scene.file_of("file", b"text")?;
    let link = scene.symlink("file", "link")?;
    let moved = scene.path("moved");
    works("rename of a link", rename(&link, &moved))?;
    holds("the link moved", moved.symlink_metadata()?.is_symlink() && file.exists())?;
    let other = scene.file_of("other", b"other")?;
    works("rename over a link", rename(&other, &moved))?;
    holds("the link is gone", !moved.symlink_metadata()?.is_symlink())?;
    same_bytes("what it led to", &std::fs::read(&file)?, b"text")
}

fn to_another_file_system_is_refused(scene: &Scene) -> Outcome {
    let there = elsewhere(scene)?.join(format!("braid-posix-{}", std::process::id()));
    for kind in [Kind::Regular, Kind::Directory] {
        let path = scene.make(kind, format!("{kind:?}"))?;
        refuses("rename to another file system", rename(&path, &there), Errno::XDEV)?;
        holds("it is still here", path.exists())?;
    }
    Ok(())
}

fn refused_changes_nothing(scene: &Scene) -> Outcome {
    let file = scene.file("file")?;
    let dir = scene.dir("dir")?;
    let before = (facts(&file)?, facts(&dir)?, facts(scene.root())?);
    scene.tick();
    refuses("rename over a directory", rename(&file, &dir), Errno::ISDIR)?;
    refuses("rename into itself", rename(&dir, dir.join("x")), Errno::INVAL)?;
    let after = (facts(&file)?, facts(&dir)?, facts(scene.root())?);
    equal("file and directories", after, before)
}

fn of_a_foreign_directory_to_another_parent_needs_its_write(scene: &Scene) -> Outcome {
    // Its ".." is written, so the mover must be allowed to write it (rename(2), EACCES).
    let (a, b) = (scene.dir("a")?, scene.dir("b")?);
    let dir = scene.dir("a/dir")?;
    for path in [&a, &b] {
        scene.give(path, ALICE, STAFF)?;
    }
    let got = as_user(ALICE, &[STAFF], || rename(&dir, b.join("dir")))?;
    refuses("move of root's directory to another parent", got, Errno::ACCESS)?;
    let got = as_user(ALICE, &[STAFF], || rename(&dir, a.join("new")))?;
    works("rename of it within its parent", got)
}

fn is_seen_by_nobody_halfway(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"0")?;
    let done = AtomicBool::new(false);
    let missed = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut missed = 0;
            while !done.load(Ordering::Relaxed) {
                let seen = std::fs::read(&path);
                missed += u64::from(!seen.is_ok_and(|text| text.len() == 1));
            }
            missed
        });
        let renamed = (0..500).try_for_each(|number| {
            let new = scene.file_of(format!("new-{number}"), b"1")?;
            works("rename", rename(&new, &path))
        });
        done.store(true, Ordering::Relaxed);
        renamed?;
        watcher.join().map_err(|_| anyhow::anyhow!("the watcher panicked"))
    })?;
    equal("times that the name led nowhere or to half a file", missed, 0)
}

fn back_and_forth_by_threads(scene: &Scene) -> Outcome {
    // Directories moved into each other's parents at once: no loop may arise, nothing may be lost.
    let (a, b) = (scene.dir("a")?, scene.dir("b")?);
    scene.dir("a/x")?;
    scene.dir("b/y")?;
    let moves = [(a.clone(), b.join("y/a")), (b.clone(), a.join("x/b"))];
    std::thread::scope(|scope| {
        for (from, to) in &moves {
            scope.spawn(move || {
                for _ in 0..300 {
                    // Which of them is possible depends on the other; both at once would be a loop.
                    let _ = rename(from, to);
                    let _ = rename(to, from);
                }
            });
        }
    });
    holds("a and b are where they were", a.join("x").is_dir() && b.join("y").is_dir())?;
    equal("names", std::fs::read_dir(scene.root())?.count(), 2)?;
    equal("links", (facts(&a)?.nlink, facts(&b)?.nlink), (3, 3))
}

fn by_an_open_directory_finds_it_where_it_went(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    scene.file("dir/file")?;
    let open = std::fs::File::open(&dir)?;
    scene.dir("parent")?;
    works("rename", rename(&dir, scene.path("parent/moved")))?;
    works("unlink by the descriptor", plain_unlink(&open, "file"))?;
    holds("it is gone", !scene.path("parent/moved/file").exists())
}

fn plain_unlink(dir: &std::fs::File, name: &str) -> Result<()> {
    rustix::fs::unlinkat(dir, name, rustix::fs::AtFlags::empty())
}

fn noreplace_refuses_what_is_there(scene: &Scene) -> Outcome {
    let from = scene.file_of("from", b"text")?;
    supported(rename2(&from, &scene.path("new"), RenameFlags::NOREPLACE))?
        .map_err(|errno| anyhow::anyhow!("NOREPLACE to a new name: {errno:?}"))?;
    let from = scene.path("new");
    for kind in scene.kinds() {
        let to = scene.make(kind, format!("{kind:?}"))?;
        let got = rename2(&from, &to, RenameFlags::NOREPLACE);
        refuses(format!("NOREPLACE over a {kind:?}"), got, Errno::EXIST)?;
    }
    same_bytes("the file", &std::fs::read(&from)?, b"text")
}

fn noreplace_is_won_by_one(scene: &Scene) -> Outcome {
    let first = scene.file("first")?;
    supported(rename2(&first, &scene.path("probe"), RenameFlags::NOREPLACE))?
        .map_err(|errno| anyhow::anyhow!("NOREPLACE to a new name: {errno:?}"))?;
    for round in 0..50 {
        let to = scene.path(format!("{round}"));
        let froms = (0..4)
            .map(|number| scene.file(format!("{round}-{number}")))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let won = std::thread::scope(|scope| {
            let tries: Vec<_> = froms
                .iter()
                .map(|from| scope.spawn(|| rename2(from, &to, RenameFlags::NOREPLACE).is_ok()))
                .collect();
            tries.into_iter().filter_map(|one| one.join().ok()).filter(|won| *won).count()
        });
        equal("threads of four whose rename won", won, 1)?;
    }
    Ok(())
}

fn exchange_swaps_two_files(scene: &Scene) -> Outcome {
    let (a, b) = (scene.file_of("a", b"a's")?, scene.file_of("b", b"b's")?);
    let before = (facts(&a)?.ino, facts(&b)?.ino);
    works("EXCHANGE", supported(rename2(&a, &b, RenameFlags::EXCHANGE))?)?;
    equal("inodes", (facts(&b)?.ino, facts(&a)?.ino), before)?;
    same_bytes("a", &std::fs::read(&a)?, b"b's")?;
    equal("links", (facts(&a)?.nlink, facts(&b)?.nlink), (1, 1))
}

fn exchange_swaps_a_file_and_a_directory(scene: &Scene) -> Outcome {
    let file = scene.file("file")?;
    let dir = scene.dir("dir")?;
    scene.dir("dir/inner")?;
    scene.file("dir/inner/deep")?;
    works("EXCHANGE", supported(rename2(&file, &dir, RenameFlags::EXCHANGE))?)?;
    holds("each has the other's name", dir.is_file() && file.join("inner/deep").is_file())?;
    equal("links of the parent", facts(scene.root())?.nlink, 3)
}

fn exchange_counts_links_of_both_parents(scene: &Scene) -> Outcome {
    let (a, b) = (scene.dir("a")?, scene.dir("b")?);
    scene.dir("a/dir")?;
    scene.file("b/file")?;
    let got = rename2(&a.join("dir"), &b.join("file"), RenameFlags::EXCHANGE);
    works("EXCHANGE", supported(got)?)?;
    equal("links", (facts(&a)?.nlink, facts(&b)?.nlink), (2, 3))?;
    equal("..", facts(&b.join("file/.."))?.ino, facts(&b)?.ino)
}

fn whiteout_takes_the_old_name(scene: &Scene) -> Outcome {
    crate::scene::needs_root()?;
    let (old, new) = (scene.file_of("old", b"text")?, scene.file_of("new", b"other")?);
    let replaced = scene.path("more");
    rustix::fs::link(&new, &replaced)?;
    let got = rename2(&old, &new, RenameFlags::WHITEOUT);
    works("WHITEOUT", supported(got)?)?;
    let left = facts(&old)?;
    equal("type and number of what is left", (left.mode & 0o170_000, left.rdev), (0o020_000, 0))?;
    equal("what was moved", std::fs::read(&new)?, b"text".to_vec())?;
    equal("links of what was replaced", facts(&replaced)?.nlink, 1)?;
    let dir = scene.dir("dir")?;
    let (flags, moved) = (RenameFlags::WHITEOUT | RenameFlags::NOREPLACE, scene.path("moved"));
    refuses("over a name, with NOREPLACE", rename2(&dir, &new, flags), Errno::EXIST)?;
    works("of a directory, with NOREPLACE", rename2(&dir, &moved, flags))?;
    equal("type of what is left", facts(&dir)?.mode & 0o170_000, 0o020_000)?;
    // The directory and the scene's own two.
    equal("links of the parent", facts(scene.root())?.nlink, 3)
}

fn whiteout_is_not_exchanged(scene: &Scene) -> Outcome {
    let (a, b) = (scene.file("a")?, scene.file("b")?);
    refuses("both", rename2(&a, &b, RenameFlags::WHITEOUT | RenameFlags::EXCHANGE), Errno::INVAL)
}

fn exchange_of_what_is_missing(scene: &Scene) -> Outcome {
    let (a, b) = (scene.file("a")?, scene.file("b")?);
    works("EXCHANGE", supported(rename2(&a, &b, RenameFlags::EXCHANGE))?)?;
    let missing = scene.path("missing");
    let got = rename2(&a, &missing, RenameFlags::EXCHANGE);
    refuses("EXCHANGE with a missing name", got, Errno::NOENT)?;
    let got = rename2(&missing, &a, RenameFlags::EXCHANGE);
    refuses("EXCHANGE of a missing name", got, Errno::NOENT)
}

fn exchange_with_its_own_subtree_is_refused(scene: &Scene) -> Outcome {
    let (a, b) = (scene.dir("a")?, scene.dir("b")?);
    works("EXCHANGE", supported(rename2(&a, &b, RenameFlags::EXCHANGE))?)?;
    let inner = scene.dir("a/inner")?;
    let got = rename2(&a, &inner, RenameFlags::EXCHANGE);
    refuses("EXCHANGE with a child", got, Errno::INVAL)?;
    let got = rename2(&inner, &a, RenameFlags::EXCHANGE);
    refuses("EXCHANGE with the parent", got, Errno::INVAL)
}

fn both_flags_are_refused(scene: &Scene) -> Outcome {
    let (a, b) = (scene.file("a")?, scene.file("b")?);
    let flags = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE;
    refuses("NOREPLACE and EXCHANGE", rename2(&a, &b, flags), Errno::INVAL)?;
    let gone = plain(std::fs::metadata(&a)).and(plain(std::fs::metadata(&b)));
    works("both are there", gone).map(drop)
}
