//! Owners and groups, and the setuid and setgid bits that a change of owner, a write and a truncate clear.

use crate::cases;
use crate::scene::{
    ALICE, BOB, Kind, Outcome, STAFF, Scene, as_user, equal, facts, facts_of, holds, needs_root,
    plain, refuses, works,
};
use rustix::fs::{AtFlags, CWD};
use rustix::io::{Errno, Result};
use rustix::process::{Gid, Uid};
use std::io::Write;
use std::path::Path;

cases! {
    "chown":
        sets_owner_and_group_of_every_kind,
        takes_large_numbers,
        without_a_change_is_allowed,
        follows_a_link_and_lchown_does_not,
        changes_ctime,
        giving_away_is_for_root,
        owner_may_choose_among_own_groups,
        refused_changes_nothing,
        clears_setuid_and_setgid,
        leaves_setgid_of_a_directory,
        by_descriptor_works_after_unlink;
    "setuid":
        write_by_another_clears,
        write_by_root_keeps,
        truncate_by_another_clears,
        setgid_without_execution_stays_on_write;
}

fn chown(path: &Path, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    rustix::fs::chown(path, uid.map(Uid::from_raw), gid.map(Gid::from_raw))
}

fn lchown(path: &Path, uid: u32, gid: u32) -> Result<()> {
    let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    rustix::fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
}

fn owners(path: &Path) -> anyhow::Result<(u32, u32)> {
    let found = facts(path)?;
    Ok((found.uid, found.gid))
}

fn sets_owner_and_group_of_every_kind(scene: &Scene) -> Outcome {
    needs_root()?;
    for kind in scene.kinds() {
        let path = scene.make(kind, format!("{kind:?}"))?;
        works("lchown", lchown(&path, ALICE, STAFF))?;
        equal(format!("owners of a {kind:?}"), owners(&path)?, (ALICE, STAFF))?;
        if kind == Kind::Symlink {
            continue;
        }
        works("chown of the owner alone", chown(&path, Some(BOB), None))?;
        equal("owners", owners(&path)?, (BOB, STAFF))?;
        works("chown of the group alone", chown(&path, None, Some(7)))?;
        equal("owners", owners(&path)?, (BOB, 7))?;
    }
    Ok(())
}

fn takes_large_numbers(scene: &Scene) -> Outcome {
    needs_root()?;
    let path = scene.file("file")?;
    for id in [65_535, 65_536, 0x7fff_ffff, 0xffff_fffe] {
        works(format!("chown to {id}"), chown(&path, Some(id), Some(id)))?;
        equal("owners", owners(&path)?, (id, id))?;
    }
    Ok(())
}

fn without_a_change_is_allowed(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    let before = owners(&path)?;
    scene.give(&path, ALICE, STAFF)?;
    let got = as_user(ALICE, &[ALICE], || chown(&path, None, None))?;
    works("chown of nothing by the owner", got)?;
    let got = as_user(ALICE, &[ALICE], || chown(&path, Some(ALICE), None))?;
    works("chown to himself by the owner", got)?;
    equal("owners", owners(&path)?, (ALICE, STAFF))?;
    holds("it was another's before", before != (ALICE, STAFF))
}

fn follows_a_link_and_lchown_does_not(scene: &Scene) -> Outcome {
    needs_root()?;
    let file = scene.file("file")?;
    let link = scene.symlink("file", "link")?;
    works("chown by the link", chown(&link, Some(ALICE), Some(STAFF)))?;
    equal("the file's owners", owners(&file)?, (ALICE, STAFF))?;
    equal("the link's owners", owners(&link)?, (0, 0))?;
    works("lchown of the link", lchown(&link, BOB, 7))?;
    equal("the file's owners", owners(&file)?, (ALICE, STAFF))?;
    equal("the link's owners", owners(&link)?, (BOB, 7))
}

fn changes_ctime(scene: &Scene) -> Outcome {
    needs_root()?;
    for kind in scene.kinds() {
        let path = scene.make(kind, format!("{kind:?}"))?;
        let before = facts(&path)?;
        scene.tick();
        works("lchown", lchown(&path, ALICE, STAFF))?;
        let after = facts(&path)?;
        holds(format!("ctime of a {kind:?} is later after chown"), after.ctime > before.ctime)?;
        equal("mtime", after.mtime, before.mtime)?;
    }
    Ok(())
}

fn giving_away_is_for_root(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    scene.give(&path, ALICE, STAFF)?;
    let got = as_user(ALICE, &[STAFF], || chown(&path, Some(BOB), None))?;
    refuses("giving a file away by its owner", got, Errno::PERM)?;
    let got = as_user(BOB, &[STAFF], || chown(&path, Some(BOB), None))?;
    refuses("taking another's file", got, Errno::PERM)?;
    let got = as_user(BOB, &[STAFF], || chown(&path, None, Some(STAFF)))?;
    refuses("setting the group of another's file", got, Errno::PERM)?;
    equal("owners", owners(&path)?, (ALICE, STAFF))
}

fn owner_may_choose_among_own_groups(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    scene.give(&path, ALICE, ALICE)?;
    let got = as_user(ALICE, &[ALICE, STAFF], || chown(&path, None, Some(STAFF)))?;
    works("to a group that the owner is in", got)?;
    equal("owners", owners(&path)?, (ALICE, STAFF))?;
    let got = as_user(ALICE, &[ALICE], || chown(&path, None, Some(BOB)))?;
    refuses("to a group that the owner is not in", got, Errno::PERM)?;
    equal("owners", owners(&path)?, (ALICE, STAFF))
}

fn refused_changes_nothing(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    scene.give(&path, ALICE, STAFF)?;
    scene.set_mode(&path, 0o6755)?;
    let before = facts(&path)?;
    scene.tick();
    let got = as_user(BOB, &[BOB], || chown(&path, Some(BOB), Some(BOB)))?;
    refuses("chown by another", got, Errno::PERM)?;
    equal("the file", facts(&path)?, before)
}

fn clears_setuid_and_setgid(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    scene.give(&path, ALICE, ALICE)?;
    scene.set_mode(&path, 0o6755)?;
    let got = as_user(ALICE, &[ALICE, STAFF], || chown(&path, None, Some(STAFF)))?;
    works("chown of the group by the owner", got)?;
    equal("mode", facts(&path)?.permissions(), 0o755)?;
    // POSIX leaves it open for root; Linux clears them for everybody (chown(2)).
    scene.set_mode(&path, 0o6755)?;
    works("chown by root", chown(&path, Some(BOB), None))?;
    equal("mode", facts(&path)?.permissions(), 0o755)
}

fn leaves_setgid_of_a_directory(scene: &Scene) -> Outcome {
    needs_root()?;
    let dir = scene.dir("dir")?;
    scene.set_mode(&dir, 0o2775)?;
    works("chown of a directory", chown(&dir, Some(ALICE), Some(STAFF)))?;
    equal("mode", facts(&dir)?.permissions(), 0o2775)
}

fn by_descriptor_works_after_unlink(scene: &Scene) -> Outcome {
    needs_root()?;
    let path = scene.file("file")?;
    let file = scene.open(&path)?;
    std::fs::remove_file(&path)?;
    let (uid, gid) = (Some(Uid::from_raw(ALICE)), Some(Gid::from_raw(STAFF)));
    works("fchown of an unlinked file", rustix::fs::fchown(&file, uid, gid))?;
    let found = facts_of(&file)?;
    equal("owners", (found.uid, found.gid), (ALICE, STAFF))
}

fn append(path: &Path) -> Result<()> {
    plain(std::fs::OpenOptions::new().append(true).open(path).and_then(|mut file| {
        file.write_all(b"x")?;
        file.sync_all()
    }))
}

fn write_by_another_clears(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    scene.give(&path, ALICE, STAFF)?;
    for mode in [0o4777, 0o2777, 0o6777] {
        scene.set_mode(&path, mode)?;
        works("writing", as_user(BOB, &[BOB], || append(&path))?)?;
        equal(format!("mode {mode:o} after a write"), facts(&path)?.permissions(), 0o777)?;
    }
    Ok(())
}

fn write_by_root_keeps(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    scene.give(&path, ALICE, STAFF)?;
    scene.set_mode(&path, 0o6755)?;
    works("writing", append(&path))?;
    equal("mode after a write by root", facts(&path)?.permissions(), 0o6755)
}

fn truncate_by_another_clears(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    scene.give(&path, ALICE, STAFF)?;
    for mode in [0o4777, 0o2777, 0o6777] {
        scene.set_mode(&path, mode)?;
        let got = as_user(BOB, &[BOB], || {
            let open = std::fs::OpenOptions::new().write(true).open(&path);
            plain(open.and_then(|file| file.set_len(2)))
        })?;
        works("truncating", got)?;
        equal(format!("mode {mode:o} after a truncate"), facts(&path)?.permissions(), 0o777)?;
    }
    Ok(())
}

fn setgid_without_execution_stays_on_write(scene: &Scene) -> Outcome {
    // Without the group's execute bit setgid does not mean "run as the group", and is left (inode(7)), for one who
    // is in the group.
    let path = scene.file_of("file", b"text")?;
    scene.give(&path, ALICE, STAFF)?;
    scene.set_mode(&path, 0o2766)?;
    works("writing", as_user(BOB, &[STAFF], || append(&path))?)?;
    equal("mode after a write", facts(&path)?.permissions(), 0o2766)
}
