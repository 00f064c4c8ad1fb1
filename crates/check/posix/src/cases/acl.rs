//! POSIX access control lists (acl(5)): whom they let in, the mask and the mode, and what new files get.

use crate::cases;
use crate::scene::{
    ALICE, BOB, Outcome, STAFF, Scene, as_user, equal, facts, holds, plain, refuses, refuses_with,
    same_bytes, skip, works,
};
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::{Errno, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

cases! {
    "acl":
        lets_a_named_user_in,
        lets_a_named_group_in,
        mask_bounds_what_entries_give,
        chmod_changes_the_mask,
        group_bits_of_the_mode_are_the_mask,
        one_that_is_just_a_mode_sets_the_mode,
        removed_leaves_the_mode,
        default_is_given_to_new_files,
        default_is_handed_down,
        default_takes_the_place_of_the_umask,
        without_a_default_the_umask_holds,
        default_is_for_directories,
        links_do_not_inherit,
        unnamed_files_inherit,
        is_the_owner_s_to_set,
        set_by_who_is_not_in_the_group_clears_setgid,
        damaged_is_refused;
}

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NOBODY: u32 = u32::MAX;

type Entry = (u16, u16, u32);

/// The value that the kernel keeps lists in (linux/posix_acl_xattr.h).
fn list(entries: &[Entry]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(perm.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// A list of the three that each has, a mask and one more entry, which stands where its tag belongs.
fn with(mode: u16, mask: u16, entry: Entry) -> Vec<u8> {
    let mut entries = vec![
        (OWNER, mode >> 6 & 7, NOBODY),
        (OWNING_GROUP, mode >> 3 & 7, NOBODY),
        (MASK, mask, NOBODY),
        (OTHER, mode & 7, NOBODY),
        entry,
    ];
    entries.sort_by_key(|(tag, ..)| *tag);
    list(&entries)
}

fn plain_list(mode: u16) -> Vec<u8> {
    list(&[
        (OWNER, mode >> 6 & 7, NOBODY),
        (OWNING_GROUP, mode >> 3 & 7, NOBODY),
        (OTHER, mode & 7, NOBODY),
    ])
}

fn set(path: &Path, name: &str, value: &[u8]) -> Result<()> {
    setxattr(path, name, value, XattrFlags::empty())
}

/// The list, or none.
fn get(path: &Path, name: &str) -> anyhow::Result<Option<Vec<u8>>> {
    let mut value = Vec::with_capacity(1000);
    match getxattr(path, name, rustix::buffer::spare_capacity(&mut value)) {
        Err(Errno::NODATA) => Ok(None),
        other => works(format!("getxattr of {name}"), other).map(|_| Some(value)),
    }
}

/// Sets an access list, where there are any.
fn give(path: &Path, value: &[u8]) -> Outcome {
    match set(path, ACCESS, value) {
        Err(Errno::OPNOTSUPP) => skip("no access control lists here"),
        other => works("setting the list", other),
    }
}

/// A directory with a default list, where there are any.
fn directory(scene: &Scene, value: &[u8]) -> anyhow::Result<PathBuf> {
    let dir = scene.dir("dir")?;
    match set(&dir, DEFAULT, value) {
        Err(Errno::OPNOTSUPP) => skip("no access control lists here"),
        other => works("setting the default list", other).map(|()| dir),
    }
}

fn reads(path: &Path) -> Result<()> {
    plain(std::fs::read(path)).map(drop)
}

fn writes(path: &Path) -> Result<()> {
    plain(std::fs::OpenOptions::new().append(true).open(path)).map(drop)
}

fn lets_a_named_user_in(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    scene.set_mode(&path, 0o600)?;
    let got = as_user(ALICE, &[STAFF], || reads(&path))?;
    refuses("reading without an entry", got, Errno::ACCESS)?;
    give(&path, &with(0o600, 6, (USER, 4, ALICE)))?;
    let (read, written) = as_user(ALICE, &[STAFF], || (reads(&path), writes(&path)))?;
    works("reading as the entry allows", read)?;
    refuses("writing, which it does not", written, Errno::ACCESS)?;
    refuses("reading by another", as_user(BOB, &[STAFF], || reads(&path))?, Errno::ACCESS)
}

fn lets_a_named_group_in(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    give(&path, &with(0o600, 7, (GROUP, 6, STAFF)))?;
    works("writing by a member", as_user(ALICE, &[ALICE, STAFF], || writes(&path))?)?;
    refuses("reading by another", as_user(BOB, &[BOB], || reads(&path))?, Errno::ACCESS)
}

fn mask_bounds_what_entries_give(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    give(&path, &with(0o600, 4, (USER, 6, ALICE)))?;
    let (read, written) = as_user(ALICE, &[STAFF], || (reads(&path), writes(&path)))?;
    works("reading", read)?;
    refuses("writing, which the mask takes away", written, Errno::ACCESS)
}

fn chmod_changes_the_mask(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    give(&path, &with(0o640, 6, (USER, 6, ALICE)))?;
    // Linux does not look at the list where the group has nothing: others must not have more.
    scene.set_mode(&path, 0o700)?;
    let got = get(&path, ACCESS)?;
    // The owning group keeps its own.
    same_bytes("the list", &got.unwrap_or_default(), &with(0o740, 0, (USER, 6, ALICE)))?;
    refuses("reading by the named", as_user(ALICE, &[STAFF], || reads(&path))?, Errno::ACCESS)?;
    scene.set_mode(&path, 0o664)?;
    works("writing by the named", as_user(ALICE, &[STAFF], || writes(&path))?)
}

fn group_bits_of_the_mode_are_the_mask(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    scene.set_mode(&path, 0o1644)?;
    let before = facts(&path)?;
    scene.tick();
    give(&path, &with(0o751, 2, (USER, 4, ALICE)))?;
    let after = facts(&path)?;
    equal("mode", after.permissions(), 0o1721)?;
    holds("ctime is later", after.ctime > before.ctime)?;
    equal("mtime", after.mtime, before.mtime)
}

fn one_that_is_just_a_mode_sets_the_mode(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    give(&path, &with(0o751, 2, (USER, 4, ALICE)))?;
    give(&path, &plain_list(0o640))?;
    equal("mode", facts(&path)?.permissions(), 0o640)?;
    equal("the list", get(&path, ACCESS)?, None)
}

fn removed_leaves_the_mode(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    give(&path, &with(0o600, 4, (USER, 4, ALICE)))?;
    works("removing the list", removexattr(&path, ACCESS))?;
    equal("mode", facts(&path)?.permissions(), 0o640)?;
    equal("the list", get(&path, ACCESS)?, None)?;
    refuses("reading by who was named", as_user(ALICE, &[BOB], || reads(&path))?, Errno::ACCESS)
}

fn default_is_given_to_new_files(scene: &Scene) -> Outcome {
    let dir = directory(scene, &with(0o750, 6, (USER, 6, ALICE)))?;
    let path = scene.file("dir/file")?;
    // Made with 0644: the mask gives no more than that to the group's bits.
    let got = get(&path, ACCESS)?;
    same_bytes("the list", &got.unwrap_or_default(), &with(0o650, 4, (USER, 6, ALICE)))?;
    equal("mode", facts(&path)?.permissions(), 0o640)?;
    equal("a default list of a file", get(&path, DEFAULT)?, None)?;
    equal("access list of the directory", get(&dir, ACCESS)?, None)?;
    let node = scene.make(crate::scene::Kind::Fifo, "dir/fifo")?;
    equal("mode of a fifo", facts(&node)?.permissions(), 0o640)
}

fn default_is_handed_down(scene: &Scene) -> Outcome {
    let value = with(0o750, 7, (USER, 7, ALICE));
    directory(scene, &value)?;
    let inner = scene.dir("dir/inner")?;
    same_bytes("default list", &get(&inner, DEFAULT)?.unwrap_or_default(), &value)?;
    let access = with(0o750, 5, (USER, 7, ALICE));
    same_bytes("access list", &get(&inner, ACCESS)?.unwrap_or_default(), &access)?;
    let file = scene.file("dir/inner/file")?;
    holds("a file below has a list", get(&file, ACCESS)?.is_some())
}

fn shell(scene: &Scene, script: &str) -> Outcome {
    let status = Command::new("sh").arg("-c").arg(script).current_dir(scene.root()).status()?;
    holds(format!("sh -c {script:?}"), status.success())
}

fn default_takes_the_place_of_the_umask(scene: &Scene) -> Outcome {
    directory(scene, &plain_list(0o775))?;
    shell(scene, "umask 077; : > dir/file; mkdir dir/inner")?;
    equal("mode of a file", facts(&scene.path("dir/file"))?.permissions(), 0o664)?;
    equal("mode of a directory", facts(&scene.path("dir/inner"))?.permissions(), 0o775)
}

fn without_a_default_the_umask_holds(scene: &Scene) -> Outcome {
    shell(scene, "umask 027; : > file; mkdir dir; mkfifo fifo")?;
    equal("mode of a file", facts(&scene.path("file"))?.permissions(), 0o640)?;
    equal("mode of a directory", facts(&scene.path("dir"))?.permissions(), 0o750)?;
    equal("mode of a fifo", facts(&scene.path("fifo"))?.permissions(), 0o640)
}

fn default_is_for_directories(scene: &Scene) -> Outcome {
    directory(scene, &plain_list(0o755))?;
    let path = scene.file("file")?;
    refuses("of a file", set(&path, DEFAULT, &plain_list(0o644)), Errno::ACCESS)
}

fn links_do_not_inherit(scene: &Scene) -> Outcome {
    directory(scene, &with(0o750, 6, (USER, 6, ALICE)))?;
    let link = scene.symlink("nowhere", "dir/link")?;
    equal("mode", facts(&link)?.permissions(), 0o777)
}

fn unnamed_files_inherit(scene: &Scene) -> Outcome {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags};
    let dir = directory(scene, &with(0o750, 6, (USER, 6, ALICE)))?;
    let file = match rustix::fs::open(&dir, OFlags::RDWR | OFlags::TMPFILE, Mode::from(0o666)) {
        Err(Errno::OPNOTSUPP) => return skip("no O_TMPFILE here"),
        other => works("O_TMPFILE", other)?,
    };
    let by_number = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let path = scene.path("dir/named");
    let linked = rustix::fs::linkat(CWD, by_number.as_str(), CWD, &path, AtFlags::SYMLINK_FOLLOW);
    works("linkat of it", linked)?;
    equal("mode", facts(&path)?.permissions(), 0o660)?;
    holds("it has a list", get(&path, ACCESS)?.is_some())
}

fn is_the_owner_s_to_set(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    give(&path, &plain_list(0o666))?;
    scene.give(&path, ALICE, STAFF)?;
    let value = with(0o600, 6, (USER, 6, BOB));
    refuses("by another", as_user(BOB, &[STAFF], || set(&path, ACCESS, &value))?, Errno::PERM)?;
    works("by the owner", as_user(ALICE, &[STAFF], || set(&path, ACCESS, &value))?)?;
    works("writing by whom the owner named", as_user(BOB, &[BOB], || writes(&path))?)
}

fn set_by_who_is_not_in_the_group_clears_setgid(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    give(&path, &plain_list(0o777))?;
    for (groups, left) in [(&[STAFF][..], 0o2000), (&[BOB], 0)] {
        scene.give(&path, ALICE, STAFF)?;
        scene.set_mode(&path, 0o2777)?;
        let value = with(0o770, 7, (USER, 6, BOB));
        works("by the owner", as_user(ALICE, groups, || set(&path, ACCESS, &value))?)?;
        equal(format!("setgid, set in groups {groups:?}"), facts(&path)?.mode & 0o2000, left)?;
    }
    Ok(())
}

fn damaged_is_refused(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    give(&path, &plain_list(0o644))?;
    let whole = with(0o644, 4, (USER, 4, ALICE));
    let no_mask = list(&[
        (OWNER, 6, NOBODY),
        (USER, 4, ALICE),
        (OWNING_GROUP, 4, NOBODY),
        (OTHER, 4, NOBODY),
    ]);
    for value in [&b"\x02\0"[..], b"\x03\0\0\0", &whole[..whole.len() - 3], &no_mask] {
        let want = [Errno::INVAL, Errno::OPNOTSUPP];
        refuses_with(format!("{value:?}"), set(&path, ACCESS, value), &want)?;
    }
    equal("mode", facts(&path)?.permissions(), 0o644)
}
