//! Hard links: one object under several names.

use crate::cases;
use crate::scene::{
    ALICE, BOB, Kind, Outcome, STAFF, Scene, as_user, equal, facts, holds, needs_root, refuses,
    refuses_with, same_bytes, skip, works,
};
use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

cases! {
    "link":
        counts_names_of_every_kind,
        shares_bytes_and_attributes,
        changes_ctime_and_the_directory,
        of_a_symlink_is_of_the_link_itself,
        may_follow_a_symlink,
        of_a_directory_is_refused,
        to_another_file_system_is_refused,
        refused_changes_nothing,
        of_another_s_file_is_allowed_where_it_may_be_written,
        limit_is_exact;
}

fn counts_names_of_every_kind(scene: &Scene) -> Outcome {
    for kind in scene.kinds().into_iter().filter(|kind| *kind != Kind::Directory) {
        let first = scene.make(kind, format!("{kind:?}-1"))?;
        let names: Vec<PathBuf> =
            (2..=4).map(|number| scene.path(format!("{kind:?}-{number}"))).collect();
        for (name, links) in names.iter().zip(2..) {
            works(format!("link of a {kind:?}"), rustix::fs::link(&first, name))?;
            let found = facts(&first)?;
            equal("links", found.nlink, links)?;
            equal("the other name", facts(name)?, found)?;
        }
        std::fs::remove_file(&first)?;
        equal("links after unlink of the first name", facts(&names[0])?.nlink, 3)?;
        std::fs::remove_file(&names[0])?;
        equal("links after unlink of the second", facts(&names[1])?.nlink, 2)?;
    }
    Ok(())
}

fn shares_bytes_and_attributes(scene: &Scene) -> Outcome {
    let first = scene.file_of("first", b"text")?;
    let second = scene.path("second");
    works("link", rustix::fs::link(&first, &second))?;
    std::fs::write(&second, b"longer text")?;
    same_bytes("by the first name", &std::fs::read(&first)?, b"longer text")?;
    scene.set_mode(&first, 0o601)?;
    equal("by the second name", facts(&second)?, facts(&first)?)
}

fn changes_ctime_and_the_directory(scene: &Scene) -> Outcome {
    let file = scene.file("file")?;
    let dir = scene.dir("dir")?;
    let (file_before, dir_before) = (facts(&file)?, facts(&dir)?);
    scene.tick();
    works("link", rustix::fs::link(&file, dir.join("name")))?;
    let (file_after, dir_after) = (facts(&file)?, facts(&dir)?);
    holds("the file's ctime is later", file_after.ctime > file_before.ctime)?;
    equal("the file's mtime", file_after.mtime, file_before.mtime)?;
    holds("the directory's mtime is later", dir_after.mtime > dir_before.mtime)?;
    holds("the directory's ctime is later", dir_after.ctime > dir_before.ctime)
}

fn of_a_symlink_is_of_the_link_itself(scene: &Scene) -> Outcome {
    scene.file("file")?;
    let link = scene.symlink("file", "link")?;
    let other = scene.path("other");
    works("link of a symlink", rustix::fs::link(&link, &other))?;
    equal("the new name", facts(&other)?, facts(&link)?)?;
    equal("links of the file", facts(&scene.path("file"))?.nlink, 1)
}

fn may_follow_a_symlink(scene: &Scene) -> Outcome {
    let file = scene.file("file")?;
    let link = scene.symlink("file", "link")?;
    let other = scene.path("other");
    let flags = AtFlags::SYMLINK_FOLLOW;
    works("linkat that follows", rustix::fs::linkat(CWD, &link, CWD, &other, flags))?;
    equal("the new name", facts(&other)?, facts(&file)?)
}

fn of_a_directory_is_refused(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    let got = rustix::fs::link(&dir, scene.path("other"));
    refuses("link of a directory", got, Errno::PERM)
}

/// A directory on another file system that may be written to.
pub(super) fn elsewhere(scene: &Scene) -> anyhow::Result<PathBuf> {
    let here = std::fs::metadata(scene.root())?.dev();
    for candidate in ["/dev/shm", "/tmp", "/run"] {
        if std::fs::metadata(candidate).is_ok_and(|found| found.dev() != here) {
            return Ok(PathBuf::from(candidate));
        }
    }
    skip("no other file system to go to")
}

fn to_another_file_system_is_refused(scene: &Scene) -> Outcome {
    let file = scene.file("file")?;
    let there = elsewhere(scene)?.join(format!("braid-posix-{}", std::process::id()));
    refuses("link to another file system", rustix::fs::link(&file, &there), Errno::XDEV)?;
    equal("links", facts(&file)?.nlink, 1)
}

fn refused_changes_nothing(scene: &Scene) -> Outcome {
    let file = scene.file("file")?;
    let taken = scene.file("taken")?;
    let before = (facts(&file)?, facts(&taken)?, facts(scene.root())?);
    scene.tick();
    refuses("link over a file", rustix::fs::link(&file, &taken), Errno::EXIST)?;
    let got = rustix::fs::link(&file, scene.path("missing/name"));
    refuses("link into a missing directory", got, Errno::NOENT)?;
    let after = (facts(&file)?, facts(&taken)?, facts(scene.root())?);
    equal("files and directory", after, before)
}

fn of_another_s_file_is_allowed_where_it_may_be_written(scene: &Scene) -> Outcome {
    needs_root()?;
    let dir = scene.dir("dir")?;
    scene.give(&dir, BOB, BOB)?;
    let file = scene.file("file")?;
    scene.give(&file, ALICE, STAFF)?;
    scene.set_mode(&file, 0o666)?;
    // With fs.protected_hardlinks a user links another's file only where he may read and write it.
    let got = as_user(BOB, &[BOB], || rustix::fs::link(&file, dir.join("name")))?;
    works("link of another's file that may be written", got)?;
    equal("links", facts(&file)?.nlink, 2)
}

fn limit_is_exact(scene: &Scene) -> Outcome {
    // ext4 has room for 65,000, btrfs for 65,535; who takes more takes 70,000 as well.
    const ENOUGH: u64 = 70_000;
    let file = scene.file("file")?;
    let names = scene.dir("names")?;
    let mut links = 1;
    let refused = loop {
        if links == ENOUGH {
            break false;
        }
        match rustix::fs::link(&file, names.join(format!("{links}"))) {
            Ok(()) => links += 1,
            Err(Errno::MLINK) => break true,
            Err(other) => {
                let what = format!("link number {links}");
                return refuses_with::<()>(what, Err(other), &[Errno::MLINK]);
            }
        }
    };
    equal("links", facts(&file)?.nlink, links)?;
    holds("at least as many as POSIX asks for", links >= 8)?;
    std::fs::remove_file(names.join("1"))?;
    equal("links after unlink", facts(&file)?.nlink, links - 1)?;
    if refused {
        works("link after unlink at the limit", rustix::fs::link(&file, names.join("1")))?;
    }
    std::fs::remove_dir_all(&names)?;
    equal("links after unlink of them all", facts(&file)?.nlink, 1)
}
