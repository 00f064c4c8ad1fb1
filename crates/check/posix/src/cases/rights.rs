//! The rights that a program's file gives (setuid, setgid, capabilities): every change of its content or of its space
//! takes them away, and that is seen at once. And files that are found by handle, as an NFS server does.

use crate::bytes::Aligned;
use crate::cases;
use crate::raw::handle::Handle;
use crate::scene::{
    ALICE, BOB, Kind, Outcome, STAFF, Scene, as_user, equal, facts, facts_of, holds, needs_root,
    plain, refuses, same_bytes, skip, works,
};
use anyhow::Result;
use rustix::fs::{FallocateFlags, OFlags, XattrFlags, fallocate};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

cases! {
    "rights":
        are_cleared_by_each_change_of_another,
        are_kept_by_root,
        setgid_without_execution_is_kept,
        of_capabilities_go_with_each_change,
        are_not_shown_by_an_open_file;
    "handle":
        of_a_file_opens_it,
        of_each_kind_is_that_of_the_same_object,
        of_a_directory_leads_to_its_parent,
        of_what_is_gone_is_stale,
        opens_what_the_kernel_has_forgotten;
}

type Change = (&'static str, fn(&mut File) -> rustix::io::Result<()>);

/// What changes a file's content or its space through a descriptor.
const CHANGES: &[Change] = &[
    ("write", |file| plain(file.write_at(b"x", 0)).map(drop)),
    ("append", |file| plain(file.seek(SeekFrom::End(0)).and_then(|_| file.write_all(b"x")))),
    ("ftruncate", |file| plain(file.set_len(100))),
    ("ftruncate to a larger size", |file| plain(file.set_len(100_000))),
    ("fallocate", |file| fallocate(file, FallocateFlags::empty(), 0, 300_000)),
    ("fallocate beyond the end", |file| fallocate(file, FallocateFlags::KEEP_SIZE, 0, 900_000)),
    ("a punch", |file| {
        fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096)
    }),
    ("zeroing", |file| fallocate(file, FallocateFlags::ZERO_RANGE, 0, 4096)),
    ("zeroing beyond the end", |file| {
        fallocate(file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, 0, 4096)
    }),
    ("copy_file_range", |file| {
        let (mut from, mut to) = (0, 8192);
        rustix::fs::copy_file_range(&*file, Some(&mut from), &*file, Some(&mut to), 100).map(drop)
    }),
    ("O_TRUNC", |file| {
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
        plain(OpenOptions::new().write(true).truncate(true).open(path)).map(drop)
    }),
];

/// The changes, and a direct write where there is such a thing.
fn each_change(
    path: &Path,
    change: impl Fn(&str, &mut File, fn(&mut File) -> rustix::io::Result<()>) -> Outcome,
) -> Outcome {
    for (what, does) in CHANGES {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        change(what, &mut file, *does)?;
    }
    let flags = OFlags::DIRECT.bits().cast_signed();
    match plain(OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)) {
        Err(Errno::INVAL) => Ok(()),
        opened => change("a direct write", &mut works("opening", opened)?, |file| {
            plain(file.write_at(Aligned::of(&[1; 4096]).bytes(), 0)).map(drop)
        }),
    }
}

fn done(what: &str, got: rustix::io::Result<()>) -> Result<bool> {
    match got {
        Err(Errno::OPNOTSUPP) => Ok(false),
        other => works(what, other).map(|()| true),
    }
}

fn are_cleared_by_each_change_of_another(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[1; 20_000])?;
    scene.give(&path, ALICE, STAFF)?;
    each_change(&path, |what, file, does| {
        scene.set_mode(&path, 0o6777)?;
        equal("mode before", facts(&path)?.permissions(), 0o6777)?;
        if done(what, as_user(BOB, &[BOB], || does(file))?)? {
            equal(format!("mode after {what}"), facts(&path)?.permissions(), 0o777)?;
            equal(format!("by descriptor after {what}"), facts_of(file)?.permissions(), 0o777)?;
        }
        Ok(())
    })
}

fn are_kept_by_root(scene: &Scene) -> Outcome {
    needs_root()?;
    let path = scene.file_of("file", &[1; 20_000])?;
    each_change(&path, |what, file, does| {
        scene.set_mode(&path, 0o6755)?;
        done(what, does(file))?;
        equal(format!("mode after {what} by root"), facts(&path)?.permissions(), 0o6755)
    })
}

fn setgid_without_execution_is_kept(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[1; 20_000])?;
    scene.give(&path, ALICE, STAFF)?;
    each_change(&path, |what, file, does| {
        scene.set_mode(&path, 0o2766)?;
        done(what, as_user(BOB, &[STAFF], || does(file))?)?;
        equal(format!("mode after {what}"), facts(&path)?.permissions(), 0o2766)
    })
}

const CAPABILITY: &str = "security.capability";

fn of_capabilities_go_with_each_change(scene: &Scene) -> Outcome {
    needs_root()?;
    let path = scene.file_of("file", &[1; 20_000])?;
    // struct vfs_cap_data of revision 2: cap_net_raw.
    let mut value = [0; 20];
    value[..4].copy_from_slice(&0x0200_0001_u32.to_le_bytes());
    value[4..8].copy_from_slice(&(1_u32 << 13).to_le_bytes());
    each_change(&path, |what, file, does| {
        match rustix::fs::setxattr(&path, CAPABILITY, &value, XattrFlags::empty()) {
            Err(Errno::OPNOTSUPP) => return skip("no capabilities of files here"),
            other => works("setting a capability", other)?,
        }
        if done(what, does(file))? {
            let mut room = [0; 64];
            let left = rustix::fs::getxattr(&path, CAPABILITY, &mut room[..]);
            refuses(format!("the capability after {what}"), left, Errno::NODATA)?;
        }
        Ok(())
    })
}

fn are_not_shown_by_an_open_file(scene: &Scene) -> Outcome {
    // Another descriptor, opened before, shows the same.
    let path = scene.file_of("file", &[1; 20_000])?;
    scene.give(&path, ALICE, STAFF)?;
    scene.set_mode(&path, 0o6777)?;
    let reader = File::open(&path)?;
    equal("mode before", facts_of(&reader)?.permissions(), 0o6777)?;
    let got = as_user(BOB, &[BOB], || {
        plain(OpenOptions::new().write(true).open(&path).and_then(|file| file.write_at(b"x", 0)))
    })?;
    works("writing", got)?;
    equal("mode after", facts_of(&reader)?.permissions(), 0o777)
}

fn handle_of(path: &Path) -> Result<Handle> {
    match Handle::of(path) {
        Err(Errno::OPNOTSUPP) => skip("no handles of files here"),
        other => works("name_to_handle_at", other),
    }
}

fn of_a_file_opens_it(scene: &Scene) -> Outcome {
    needs_root()?;
    let path = scene.file_of("file", b"content")?;
    let (handle, root) = (handle_of(&path)?, File::open(scene.root())?);
    std::fs::rename(&path, scene.path("renamed"))?;
    let mut file = works("open_by_handle_at", handle.open(&root, OFlags::RDWR))?;
    let mut content = String::new();
    file.read_to_string(&mut content)?;
    equal("content", content.as_str(), "content")?;
    file.write_all(b", and more")?;
    same_bytes("by name", &std::fs::read(scene.path("renamed"))?, b"content, and more")
}

fn of_each_kind_is_that_of_the_same_object(scene: &Scene) -> Outcome {
    needs_root()?;
    let root = File::open(scene.root())?;
    for kind in Kind::ALL {
        let path = scene.make(kind, format!("{kind:?}"))?;
        let handle = handle_of(&path)?;
        let found = works(format!("{kind:?}"), handle.open(&root, OFlags::PATH))?;
        equal(format!("{kind:?}"), facts_of(&found)?.ino, facts(&path)?.ino)?;
    }
    Ok(())
}

fn of_a_directory_leads_to_its_parent(scene: &Scene) -> Outcome {
    needs_root()?;
    let (_, inner) = (scene.dir("outer")?, scene.dir("outer/inner")?);
    let (handle, root) = (handle_of(&inner)?, File::open(scene.root())?);
    forget_all()?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let found = works("open_by_handle_at", handle.open(&root, flags))?;
    let parent = works("..", rustix::fs::openat(&found, "..", flags, rustix::fs::Mode::empty()))?;
    equal("parent", rustix::fs::fstat(&parent)?.st_ino, facts(&scene.path("outer"))?.ino)
}

fn of_what_is_gone_is_stale(scene: &Scene) -> Outcome {
    needs_root()?;
    let path = scene.file_of("file", b"content")?;
    let (handle, root) = (handle_of(&path)?, File::open(scene.root())?);
    std::fs::remove_file(&path)?;
    forget_all()?;
    refuses("open_by_handle_at", handle.open(&root, OFlags::RDONLY), Errno::STALE)
}

fn opens_what_the_kernel_has_forgotten(scene: &Scene) -> Outcome {
    needs_root()?;
    let path = scene.file_of("file", b"content")?;
    let (handle, root) = (handle_of(&path)?, File::open(scene.root())?);
    forget_all()?;
    let mut content = String::new();
    let found = works("open_by_handle_at", handle.open(&root, OFlags::RDONLY));
    found?.read_to_string(&mut content)?;
    equal("content", content.as_str(), "content")?;
    holds("the name is there", path.exists())
}

/// Has the kernel forget names and files that nobody uses.
fn forget_all() -> Outcome {
    rustix::fs::sync();
    match plain(std::fs::write("/proc/sys/vm/drop_caches", "2")) {
        // In a container: then it knows the file still.
        Err(Errno::ROFS | Errno::ACCESS | Errno::PERM) => Ok(()),
        other => works("dropping caches", other),
    }
}
