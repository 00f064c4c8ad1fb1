//! The attributes that chattr(1) sets, projects among them, and what they forbid.

use crate::cases;
use crate::raw::attributes::Attributes;
use crate::scene::{
    ALICE, BOB, Outcome, STAFF, Scene, as_user, equal, facts, needs_root, plain, refuses,
    refuses_with, skip, works,
};
use rustix::fs::{AtFlags, CWD, IFlags, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::{Errno, Result};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

cases! {
    "flags":
        are_kept,
        change_ctime_only,
        immutable_file_does_not_change,
        immutable_directory_keeps_its_names,
        append_only_file_grows,
        append_only_directory_gets_names,
        immutable_is_root_s_to_set,
        others_are_the_owner_s_to_set,
        unknown_are_refused,
        project_is_kept,
        project_is_handed_down,
        another_project_stays_outside;
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
}

fn flags_of(path: &Path) -> Result<IFlags> {
    rustix::fs::ioctl_getflags(&open(path, OFlags::RDONLY)?)
}

/// Sets one flag or takes it away, with the others as they are.
fn change(path: &Path, flag: IFlags, on: bool) -> Result<()> {
    let file = open(path, OFlags::RDONLY)?;
    let mut flags = rustix::fs::ioctl_getflags(&file)?;
    flags.set(flag, on);
    rustix::fs::ioctl_setflags(&file, flags)
}

/// Something has a flag while this value is: nothing that has could be removed afterwards.
struct Flagged {
    path: PathBuf,
    flag: IFlags,
}

impl Flagged {
    fn new(path: &Path, flag: IFlags) -> anyhow::Result<Self> {
        needs_root()?;
        match change(path, flag, true) {
            Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::NOSYS) => skip("no such attributes here"),
            other => works(format!("setting {flag:?}"), other)
                .map(|()| Self { path: path.to_owned(), flag }),
        }
    }
}

impl Drop for Flagged {
    fn drop(&mut self) {
        // The runner says so when it cannot remove it.
        let _ = change(&self.path, self.flag, false);
    }
}

fn are_kept(scene: &Scene) -> Outcome {
    for path in [scene.file("file")?, scene.dir("dir")?] {
        let dump = Flagged::new(&path, IFlags::NODUMP)?;
        let atime = Flagged::new(&path, IFlags::NOATIME)?;
        let set = works("get", flags_of(&path))?;
        let both = IFlags::NODUMP | IFlags::NOATIME;
        equal("what was set", set & both, both)?;
        drop(dump);
        let left = works("get", flags_of(&path))?;
        equal("what is left", left & both, IFlags::NOATIME)?;
        drop(atime);
    }
    Ok(())
}

fn change_ctime_only(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    let before = facts(&path)?;
    scene.tick();
    let _flag = Flagged::new(&path, IFlags::NODUMP)?;
    let mut after = facts(&path)?;
    crate::scene::holds("ctime is later", after.ctime > before.ctime)?;
    after.ctime = before.ctime;
    equal("all else", after, before)
}

/// Changes of a file or its name.
fn changes(path: &Path) -> [(&'static str, Result<()>); 8] {
    let other = path.with_extension("other");
    [
        ("writing", open(path, OFlags::WRONLY).map(drop)),
        ("cutting", open(path, OFlags::WRONLY | OFlags::TRUNC).map(drop)),
        (
            "truncate",
            plain(File::options().append(true).open(path))
                .and_then(|file| rustix::fs::ftruncate(&file, 0)),
        ),
        ("chmod", rustix::fs::chmod(path, Mode::from(0o600))),
        ("an attribute", rustix::fs::setxattr(path, "user.a", b"1", XattrFlags::empty())),
        ("a link", rustix::fs::link(path, &other)),
        ("a rename", rustix::fs::rename(path, &other)),
        ("unlink", rustix::fs::unlink(path)),
    ]
}

fn immutable_file_does_not_change(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    let before = facts(&path)?;
    let flag = Flagged::new(&path, IFlags::IMMUTABLE)?;
    for (what, got) in changes(&path) {
        refuses_with(what, got, &[Errno::PERM, Errno::ACCESS])?;
    }
    let got = open(&path, OFlags::WRONLY | OFlags::APPEND);
    refuses("appending", got, Errno::PERM)?;
    let by_another = scene.file("by")?;
    refuses("a rename over it", rustix::fs::rename(&by_another, &path), Errno::PERM)?;
    equal("what it holds", std::fs::read(&path)?, b"text".to_vec())?;
    let after = facts(&path)?;
    equal("mode and links", (after.mode, after.nlink), (before.mode, before.nlink))?;
    drop(flag);
    works("writing afterwards", open(&path, OFlags::WRONLY))?;
    works("unlink afterwards", rustix::fs::unlink(&path))
}

fn immutable_directory_keeps_its_names(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    let path = scene.file_of("dir/file", b"text")?;
    let outside = scene.file("outside")?;
    let _flag = Flagged::new(&dir, IFlags::IMMUTABLE)?;
    refuses("a new file", plain(File::create(dir.join("new"))), Errno::PERM)?;
    refuses("a new directory", rustix::fs::mkdir(dir.join("new"), Mode::from(0o755)), Errno::PERM)?;
    refuses("a link", rustix::fs::link(&outside, dir.join("new")), Errno::PERM)?;
    refuses("a rename into it", rustix::fs::rename(&outside, dir.join("new")), Errno::PERM)?;
    refuses("a rename out of it", rustix::fs::rename(&path, scene.path("new")), Errno::PERM)?;
    refuses("unlink", rustix::fs::unlink(&path), Errno::PERM)?;
    // Its files' content may change.
    works("writing a file in it", open(&path, OFlags::WRONLY))?;
    equal("entries", std::fs::read_dir(&dir)?.count(), 1)
}

fn append_only_file_grows(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    let flag = Flagged::new(&path, IFlags::APPEND)?;
    for (what, got) in changes(&path) {
        refuses_with(what, got, &[Errno::PERM, Errno::ACCESS])?;
    }
    let file = works("O_APPEND", open(&path, OFlags::WRONLY | OFlags::APPEND))?;
    equal("bytes", works("write", rustix::io::write(&file, b" more"))?, 5)?;
    equal("what it holds", std::fs::read(&path)?, b"text more".to_vec())?;
    let got = open(&path, OFlags::WRONLY | OFlags::APPEND | OFlags::TRUNC);
    refuses("O_APPEND with O_TRUNC", got, Errno::PERM)?;
    drop(flag);
    works("cutting afterwards", open(&path, OFlags::WRONLY | OFlags::TRUNC))?;
    equal("bytes", facts(&path)?.size, 0)
}

fn append_only_directory_gets_names(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    let path = scene.file("dir/file")?;
    let _flag = Flagged::new(&dir, IFlags::APPEND)?;
    scene.file("dir/new")?;
    refuses("unlink", rustix::fs::unlink(&path), Errno::PERM)?;
    refuses("a rename in it", rustix::fs::rename(&path, dir.join("other")), Errno::PERM)?;
    equal("entries", std::fs::read_dir(&dir)?.count(), 2)
}

fn immutable_is_root_s_to_set(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    drop(Flagged::new(&path, IFlags::IMMUTABLE)?);
    scene.give(&path, ALICE, STAFF)?;
    for flag in [IFlags::IMMUTABLE, IFlags::APPEND] {
        let got = as_user(ALICE, &[STAFF], || change(&path, flag, true))?;
        refuses(format!("{flag:?} by the owner"), got, Errno::PERM)?;
    }
    Ok(())
}

fn others_are_the_owner_s_to_set(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    drop(Flagged::new(&path, IFlags::NODUMP)?);
    scene.give(&path, ALICE, STAFF)?;
    let got = as_user(BOB, &[STAFF], || change(&path, IFlags::NODUMP, true))?;
    refuses_with("by another", got, &[Errno::PERM, Errno::ACCESS])?;
    works("by the owner", as_user(ALICE, &[STAFF], || change(&path, IFlags::NODUMP, true))?)?;
    works("by the owner", as_user(ALICE, &[STAFF], || change(&path, IFlags::NODUMP, false))?)
}

fn unknown_are_refused(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    drop(Flagged::new(&path, IFlags::NODUMP)?);
    // One that no file system has.
    let got = change(&path, IFlags::from_bits_retain(0x1000_0000), true);
    if got.is_ok() {
        // Linux leaves some out without a word.
        let set = works("get", flags_of(&path))?;
        return equal("an unknown one", set.bits() & 0x1000_0000, 0);
    }
    refuses_with("an unknown one", got, &[Errno::OPNOTSUPP, Errno::INVAL])
}

/// `FS_XFLAG_PROJINHERIT`.
const INHERIT: u32 = 0x200;

/// Gives a project to a file or directory, where they can have one.
fn join_project(path: &Path, project: u32, inherit: bool) -> Outcome {
    needs_root()?;
    let file = works("open", open(path, OFlags::RDONLY))?;
    let got = Attributes::of(&file).and_then(|mut attributes| {
        attributes.project = project;
        attributes.flags |= if inherit { INHERIT } else { 0 };
        attributes.set(&file)
    });
    match got {
        Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::NOSYS) => skip("no projects here"),
        other => works("setting a project", other),
    }
}

fn project_of(path: &Path) -> anyhow::Result<(u32, bool)> {
    let file = works("open", open(path, OFlags::RDONLY))?;
    let attributes = works("reading the project", Attributes::of(&file))?;
    Ok((attributes.project, attributes.flags & INHERIT != 0))
}

fn project_is_kept(scene: &Scene) -> Outcome {
    let (file, dir) = (scene.file("file")?, scene.dir("dir")?);
    join_project(&file, 77, false)?;
    join_project(&dir, 0xfeed_beef, true)?;
    equal("of the file", project_of(&file)?, (77, false))?;
    equal("of the directory", project_of(&dir)?, (0xfeed_beef, true))?;
    // The other form of the attributes leaves it.
    works("nodump", change(&file, IFlags::NODUMP, true))?;
    equal("of the file", project_of(&file)?, (77, false))
}

fn project_is_handed_down(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    join_project(&dir, 78, true)?;
    let (file, inner) = (scene.file("dir/file")?, scene.dir("dir/inner")?);
    equal("of a file in it", project_of(&file)?, (78, false))?;
    equal("of a directory in it", project_of(&inner)?, (78, true))?;
    let deep = scene.file("dir/inner/deep")?;
    equal("of a file below", project_of(&deep)?, (78, false))
}

fn another_project_stays_outside(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    join_project(&dir, 79, true)?;
    let outside = scene.file("outside")?;
    let inside = dir.join("new");
    refuses("a link", rustix::fs::link(&outside, &inside), Errno::XDEV)?;
    refuses("a rename", rustix::fs::rename(&outside, &inside), Errno::XDEV)?;
    let exchanged = scene.file("dir/there")?;
    let got = rustix::fs::renameat_with(CWD, &outside, CWD, &exchanged, RenameFlags::EXCHANGE);
    refuses("an exchange", got, Errno::XDEV)?;
    join_project(&outside, 79, false)?;
    works("a rename of one of the project", rustix::fs::rename(&outside, &inside))?;
    let out = rustix::fs::linkat(CWD, &inside, CWD, scene.path("out"), AtFlags::empty());
    works("a link out of it", out)
}
