//! What every call that takes a path owes to a path that leads nowhere, too far, through a loop or past a door that
//! is shut.
//!
//! A table of calls times the errors: each pair is a case, such as `mkdir/enametoolong_component`.

use crate::case::Case;
use crate::scene::{
    ALICE, Kind, Outcome, STAFF, Scene, as_user, holds, plain, refuses, skip, works,
};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::{Errno, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What must be at the path for the call to succeed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wants {
    /// Nothing: the call makes the name.
    Nothing,
    File,
    Directory,
    Link,
}

/// A call with one path that matters.
#[derive(Clone, Copy)]
struct Call {
    name: &'static str,
    wants: Wants,
    /// Whether a last symbolic link is followed.
    follows: bool,
    /// Whether the directory of the name is changed.
    writes_parent: bool,
    make: fn(&Scene, &Path) -> Result<()>,
}

const fn makes(name: &'static str, make: fn(&Scene, &Path) -> Result<()>) -> Call {
    Call { name, wants: Wants::Nothing, follows: false, writes_parent: true, make }
}

const fn removes(name: &'static str, wants: Wants, make: fn(&Scene, &Path) -> Result<()>) -> Call {
    Call { name, wants, follows: false, writes_parent: true, make }
}

const fn follows(name: &'static str, make: fn(&Scene, &Path) -> Result<()>) -> Call {
    Call { name, wants: Wants::File, follows: true, writes_parent: false, make }
}

const fn stays(name: &'static str, wants: Wants, make: fn(&Scene, &Path) -> Result<()>) -> Call {
    Call { name, wants, follows: false, writes_parent: false, make }
}

const CALLS: &[Call] = &[
    follows("chmod", |_, path| rustix::fs::chmod(path, Mode::from(0o600))),
    follows("chown", |_, path| rustix::fs::chown(path, None, None)),
    stays("lchown", Wants::File, |_, path| {
        rustix::fs::chownat(CWD, path, None, None, AtFlags::SYMLINK_NOFOLLOW)
    }),
    stays("link_from", Wants::File, |scene, path| {
        rustix::fs::link(path, scene.path("link-of-it"))?;
        rustix::fs::unlink(scene.path("link-of-it"))
    }),
    makes("link_to", |scene, path| {
        let source = source(scene, "link-source")?;
        rustix::fs::link(source, path)
    }),
    makes("mkdir", |_, path| rustix::fs::mkdir(path, Mode::from(0o755))),
    makes("mkfifo", |_, path| rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from(0o644), 0)),
    makes("mknod", |_, path| {
        rustix::fs::mknodat(CWD, path, FileType::Socket, Mode::from(0o644), 0)
    }),
    follows("open", |_, path| {
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(drop)
    }),
    makes("open_create", |_, path| {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::from(0o644)).map(drop)
    }),
    removes("rename_from", Wants::File, |scene, path| {
        rustix::fs::rename(path, scene.path("renamed"))?;
        rustix::fs::unlink(scene.path("renamed"))
    }),
    makes("rename_to", |scene, path| {
        let source = source(scene, "rename-source")?;
        rustix::fs::rename(source, path)
    }),
    removes("rmdir", Wants::Directory, |_, path| rustix::fs::rmdir(path)),
    makes("symlink", |_, path| rustix::fs::symlink("text", path)),
    follows("truncate", |_, path| truncate(path, 10)),
    removes("unlink", Wants::File, |_, path| rustix::fs::unlink(path)),
    follows("utimensat", |_, path| {
        let time = Timespec { tv_sec: 1, tv_nsec: 2 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())
    }),
    follows("stat", |_, path| rustix::fs::stat(path).map(drop)),
    stays("lstat", Wants::File, |_, path| rustix::fs::lstat(path).map(drop)),
    follows("statfs", |_, path| rustix::fs::statfs(path).map(drop)),
    stays("readlink", Wants::Link, |_, path| rustix::fs::readlink(path, Vec::new()).map(drop)),
    Call {
        name: "opendir",
        wants: Wants::Directory,
        follows: true,
        writes_parent: false,
        make: |_, path| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty()).map(drop)
        },
    },
    follows("setxattr", |_, path| {
        rustix::fs::setxattr(path, "user.name", b"value", XattrFlags::empty())
    }),
    follows("listxattr", |_, path| rustix::fs::listxattr_query(path).map(drop)),
];

/// A file to be linked or renamed, made unless it is there.
fn source(scene: &Scene, name: &str) -> Result<PathBuf> {
    let path = scene.path(name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    rustix::fs::open(&path, flags, Mode::from(0o644)).map(drop)?;
    Ok(path)
}

fn truncate(path: &Path, size: u64) -> Result<()> {
    // rustix has the call for descriptors only.
    plain(std::fs::OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(size)))
}

impl Call {
    fn on(self, scene: &Scene, path: &Path) -> Result<()> {
        (self.make)(scene, path)
    }

    /// Puts at `name` what the call needs, and gives the path.
    fn prepare(self, scene: &Scene, name: &str) -> anyhow::Result<PathBuf> {
        match self.wants {
            Wants::Nothing => Ok(scene.path(name)),
            Wants::File => scene.file(name),
            Wants::Directory => scene.dir(name),
            Wants::Link => scene.symlink("text", name),
        }
    }
}

/// All pairs of a call and an error.
#[must_use]
pub fn cases() -> Vec<Case> {
    type Question = fn(Call, &Scene) -> Outcome;
    let mut cases = Vec::new();
    let mut ask = |call: Call, name: &str, question: Question| {
        cases.push(Case::new(format!("{}/{name}", call.name), move |scene: &Scene| {
            question(call, scene)
        }));
    };
    for call in CALLS.iter().copied() {
        ask(call, "enotdir_prefix", enotdir_prefix);
        ask(call, "enametoolong_component", enametoolong_component);
        ask(call, "enametoolong_path", enametoolong_path);
        ask(call, "enoent_prefix", enoent_prefix);
        ask(call, "eloop_prefix", eloop_prefix);
        ask(call, "eacces_prefix", eacces_prefix);
        if call.wants != Wants::Nothing {
            ask(call, "enoent_name", enoent_name);
            ask(call, "enotdir_trailing_slash", enotdir_trailing_slash);
        } else if call.name != "rename_to" {
            ask(call, "eexist", eexist);
        }
        if call.follows {
            ask(call, "eloop_name", eloop_name);
            ask(call, "follows_a_link", follows_a_link);
        }
        if call.writes_parent {
            ask(call, "eacces_parent_not_writable", eacces_parent);
        }
        let needs_no_object =
            matches!(call.name, "chmod" | "chown" | "lchown" | "utimensat" | "setxattr");
        // A rename or link from elsewhere is across file systems before it is on a read-only one.
        let changes = call.writes_parent && !matches!(call.name, "rename_to" | "link_to");
        if needs_no_object || (changes && call.wants == Wants::Nothing) {
            ask(call, "erofs", erofs);
        }
    }
    cases
}

fn enotdir_prefix(call: Call, scene: &Scene) -> Outcome {
    for kind in scene.kinds() {
        if matches!(kind, Kind::Directory | Kind::Symlink) {
            continue;
        }
        let path = scene.make(kind, format!("{kind:?}"))?.join("x");
        refuses(format!("{} below a {kind:?}", call.name), call.on(scene, &path), Errno::NOTDIR)?;
    }
    Ok(())
}

fn enametoolong_component(call: Call, scene: &Scene) -> Outcome {
    let path = call.prepare(scene, &"x".repeat(255))?;
    works(format!("{} of a name of 255 bytes", call.name), call.on(scene, &path))?;
    let path = scene.path("x".repeat(256));
    let what = format!("{} of a name of 256 bytes", call.name);
    refuses(what, call.on(scene, &path), Errno::NAMETOOLONG)?;
    let path = scene.path("x".repeat(256)).join("y");
    let what = format!("{} below a name of 256 bytes", call.name);
    refuses(what, call.on(scene, &path), Errno::NAMETOOLONG)
}

fn enametoolong_path(call: Call, scene: &Scene) -> Outcome {
    // A path holds 4095 bytes and the zero that ends it: limits.h, PATH_MAX.
    let path = call.prepare(scene, "name")?;
    let longest = padded(scene, &path, 4095);
    works(format!("{} of a path of 4095 bytes", call.name), call.on(scene, &longest))?;
    let path = call.prepare(scene, "other")?;
    let longer = padded(scene, &path, 4096);
    refuses(
        format!("{} of a path of 4096 bytes", call.name),
        call.on(scene, &longer),
        Errno::NAMETOOLONG,
    )
}

/// The same path with so many slashes more that it has `len` bytes.
fn padded(scene: &Scene, path: &Path, len: usize) -> PathBuf {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let mut bytes = scene.root().as_os_str().as_bytes().to_vec();
    bytes.resize(len.saturating_sub(name.len()), b'/');
    bytes.extend_from_slice(name);
    PathBuf::from(std::ffi::OsStr::from_bytes(&bytes))
}

fn enoent_prefix(call: Call, scene: &Scene) -> Outcome {
    let path = scene.path("missing").join("x");
    refuses(
        format!("{} in a directory that is missing", call.name),
        call.on(scene, &path),
        Errno::NOENT,
    )?;
    let path = scene.symlink("missing", "dangling")?.join("x");
    refuses(format!("{} below a link to nothing", call.name), call.on(scene, &path), Errno::NOENT)?;
    let what = format!("{} of the empty path", call.name);
    refuses(what, call.on(scene, Path::new("")), Errno::NOENT)
}

fn enoent_name(call: Call, scene: &Scene) -> Outcome {
    let path = scene.path("missing");
    refuses(format!("{} of what is missing", call.name), call.on(scene, &path), Errno::NOENT)?;
    // What was removed is missing, too, whatever was remembered of it.
    let path = call.prepare(scene, "removed")?;
    works("stat before removal", rustix::fs::lstat(&path))?;
    if call.wants == Wants::Directory {
        std::fs::remove_dir(&path)?;
    } else {
        std::fs::remove_file(&path)?;
    }
    refuses(format!("{} of what was removed", call.name), call.on(scene, &path), Errno::NOENT)
}

fn eloop_prefix(call: Call, scene: &Scene) -> Outcome {
    scene.symlink("loop-b", "loop-a")?;
    scene.symlink("loop-a", "loop-b")?;
    let path = scene.path("loop-a").join("x");
    refuses(format!("{} below a loop of links", call.name), call.on(scene, &path), Errno::LOOP)?;
    let itself = scene.symlink("itself", "itself")?.join("x");
    refuses(format!("{} below a link to itself", call.name), call.on(scene, &itself), Errno::LOOP)
}

fn eloop_name(call: Call, scene: &Scene) -> Outcome {
    let path = scene.symlink("loop-b", "loop-a")?;
    scene.symlink("loop-a", "loop-b")?;
    refuses(format!("{} of a loop of links", call.name), call.on(scene, &path), Errno::LOOP)
}

fn follows_a_link(call: Call, scene: &Scene) -> Outcome {
    call.prepare(scene, "object")?;
    let link = scene.symlink("object", "link")?;
    works(format!("{} by a link", call.name), call.on(scene, &link))?;
    let dangling = scene.symlink("missing", "dangling")?;
    let what = format!("{} by a link to nothing", call.name);
    refuses(what, call.on(scene, &dangling), Errno::NOENT)
}

fn eacces_prefix(call: Call, scene: &Scene) -> Outcome {
    // The scene is the user's, so that nothing else is in the way; one directory cannot be searched.
    scene.give(scene.root(), ALICE, STAFF)?;
    let inner = scene.dir("inner")?;
    let path = call.prepare(scene, "inner/object")?;
    if call.wants != Wants::Nothing {
        scene.give(&path, ALICE, STAFF)?;
    }
    scene.give(&inner, ALICE, STAFF)?;
    scene.set_mode(&inner, 0o644)?;
    let got = as_user(ALICE, &[STAFF], || call.on(scene, &path))?;
    let what = format!("{} in a directory that may not be searched", call.name);
    refuses(what, got, Errno::ACCESS)?;
    scene.set_mode(&inner, 0o755)?;
    let got = as_user(ALICE, &[STAFF], || call.on(scene, &path))?;
    works(format!("{} in the same directory once it may be searched", call.name), got).map(drop)
}

fn eacces_parent(call: Call, scene: &Scene) -> Outcome {
    scene.give(scene.root(), ALICE, STAFF)?;
    let inner = scene.dir("inner")?;
    let path = call.prepare(scene, "inner/object")?;
    if call.wants != Wants::Nothing {
        scene.give(&path, ALICE, STAFF)?;
    }
    scene.give(&inner, ALICE, STAFF)?;
    scene.set_mode(&inner, 0o555)?;
    let got = as_user(ALICE, &[STAFF], || call.on(scene, &path))?;
    refuses(format!("{} in a directory that may not be written", call.name), got, Errno::ACCESS)?;
    let there = path.symlink_metadata().is_ok();
    holds("what was refused changed nothing", there == (call.wants != Wants::Nothing))?;
    scene.set_mode(&inner, 0o755)?;
    let got = as_user(ALICE, &[STAFF], || call.on(scene, &path))?;
    works(format!("{} in the same directory once it may be written", call.name), got).map(drop)
}

fn enotdir_trailing_slash(call: Call, scene: &Scene) -> Outcome {
    if matches!(call.wants, Wants::Directory | Wants::Link) {
        let mut path = scene.file("plain")?.into_os_string();
        path.push("/");
        let what = format!("{} of a file with a slash at its end", call.name);
        return refuses(what, call.on(scene, Path::new(&path)), Errno::NOTDIR);
    }
    let mut path = call.prepare(scene, "object")?.into_os_string();
    path.push("/");
    let what = format!("{} of a file with a slash at its end", call.name);
    refuses(what, call.on(scene, Path::new(&path)), Errno::NOTDIR)
}

fn eexist(call: Call, scene: &Scene) -> Outcome {
    for kind in scene.kinds() {
        let path = scene.make(kind, format!("{kind:?}"))?;
        let before = crate::scene::facts(&path)?;
        refuses(format!("{} over a {kind:?}", call.name), call.on(scene, &path), Errno::EXIST)?;
        crate::scene::equal(format!("the {kind:?}"), crate::scene::facts(&path)?, before)?;
    }
    Ok(())
}

fn erofs(call: Call, scene: &Scene) -> Outcome {
    let Some(dir) = &scene.surroundings.read_only else {
        return skip("needs --read-only DIR, a read-only mount");
    };
    let path = if call.wants == Wants::Nothing { dir.join("braid-posix-new") } else { dir.clone() };
    let what = format!("{} on a read-only mount", call.name);
    refuses(what, call.on(scene, &path), Errno::ROFS)
}
