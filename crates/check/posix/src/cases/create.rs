//! New objects: mkdir, mkfifo, mknod and open with O_CREAT. Whose they are, their modes, times and links.

use crate::cases;
use crate::scene::{
    ALICE, BOB, Facts, Kind, Outcome, STAFF, Scene, as_user, equal, facts, holds, needs_root,
    plain, refuses, skip, works,
};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::{Errno, Result};
use std::io::{Read, Write};
use std::path::Path;

cases! {
    "create":
        mode_is_what_was_asked,
        umask_is_applied,
        owner_is_the_maker,
        group_comes_from_a_setgid_directory,
        a_setgid_directory_makes_setgid_directories,
        changes_the_directory_s_times,
        has_times_of_now,
        refused_leaves_the_directory_alone,
        inode_numbers_differ;
    "mkdir":
        links_itself_and_its_parent,
        is_empty,
        a_name_with_a_slash_at_its_end;
    "mknod":
        keeps_device_numbers,
        of_a_device_is_for_root,
        of_a_fifo_and_a_socket_is_for_all,
        of_a_regular_file;
    "mkfifo":
        carries_bytes,
        may_be_opened_by_both_ends;
}

/// Makes an object of some kind with a mode.
type Make = fn(&Path, u32) -> Result<()>;

/// Each way to make an object without a privilege.
const WAYS: &[(&str, Make)] = &[
    ("mkdir", |path, mode| rustix::fs::mkdir(path, Mode::from(mode))),
    ("mkfifo", |path, mode| rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from(mode), 0)),
    ("mknod", |path, mode| rustix::fs::mknodat(CWD, path, FileType::Socket, Mode::from(mode), 0)),
    ("open", |path, mode| {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::from(mode)).map(drop)
    }),
];

fn mode_is_what_was_asked(scene: &Scene) -> Outcome {
    for (name, make) in WAYS {
        for mode in [0, 0o151, 0o345, 0o755, 0o777, 0o1777] {
            let path = scene.path(format!("{name}-{mode:o}"));
            works(format!("{name} with mode {mode:o}"), make(&path, mode))?;
            equal(format!("mode after {name}"), facts(&path)?.permissions(), mode)?;
        }
    }
    Ok(())
}

fn umask_is_applied(scene: &Scene) -> Outcome {
    for (mask, left) in [(0o022, 0o755), (0o077, 0o700), (0o70, 0o707), (0o777, 0)] {
        for (name, make) in WAYS {
            let path = scene.path(format!("{name}-{mask:o}"));
            // The mask is the process's; nothing else makes files while a case is played.
            rustix::process::umask(Mode::from(mask));
            let made = make(&path, 0o777);
            rustix::process::umask(Mode::empty());
            works(name, made)?;
            equal(format!("mode of {name} under {mask:o}"), facts(&path)?.permissions(), left)?;
        }
    }
    Ok(())
}

fn owner_is_the_maker(scene: &Scene) -> Outcome {
    scene.set_mode(scene.root(), 0o777)?;
    for (name, make) in WAYS {
        let path = scene.path(name);
        works(name, as_user(ALICE, &[STAFF], || make(&path, 0o755))?)?;
        let made = facts(&path)?;
        equal(format!("owners after {name}"), (made.uid, made.gid), (ALICE, STAFF))?;
    }
    Ok(())
}

fn group_comes_from_a_setgid_directory(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    scene.give(&dir, BOB, STAFF)?;
    scene.set_mode(&dir, 0o2777)?;
    for (name, make) in WAYS {
        let path = dir.join(name);
        works(name, as_user(ALICE, &[ALICE], || make(&path, 0o755))?)?;
        let made = facts(&path)?;
        equal(format!("owners after {name}"), (made.uid, made.gid), (ALICE, STAFF))?;
    }
    Ok(())
}

fn a_setgid_directory_makes_setgid_directories(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    scene.give(&dir, ALICE, STAFF)?;
    scene.set_mode(&dir, 0o2777)?;
    let inner = dir.join("inner");
    works("mkdir", as_user(BOB, &[BOB], || rustix::fs::mkdir(&inner, Mode::from(0o755)))?)?;
    equal("mode", facts(&inner)?.permissions(), 0o2755)?;
    let file = scene.file("dir/file")?;
    equal("mode of a file there", facts(&file)?.permissions(), 0o644)
}

fn changes_the_directory_s_times(scene: &Scene) -> Outcome {
    for (name, make) in WAYS {
        let before = facts(scene.root())?;
        scene.tick();
        works(name, make(&scene.path(name), 0o755))?;
        let after = facts(scene.root())?;
        holds(format!("the directory's mtime is later after {name}"), after.mtime > before.mtime)?;
        holds(format!("the directory's ctime is later after {name}"), after.ctime > before.ctime)?;
    }
    Ok(())
}

fn has_times_of_now(scene: &Scene) -> Outcome {
    // The clock is the file system's own: that of an object made before and of one made after.
    for (name, make) in WAYS {
        let before = facts(&scene.file(format!("{name}-before"))?)?.mtime;
        scene.tick();
        let path = scene.path(name);
        works(name, make(&path, 0o755))?;
        let Facts { atime, mtime, ctime, .. } = facts(&path)?;
        scene.tick();
        let after = facts(&scene.file(format!("{name}-after"))?)?.mtime;
        for (which, time) in [("atime", atime), ("mtime", mtime), ("ctime", ctime)] {
            holds(format!("{which} of {name} is of now"), before < time && time < after)?;
        }
    }
    Ok(())
}

fn refused_leaves_the_directory_alone(scene: &Scene) -> Outcome {
    scene.file("taken")?;
    let before = facts(scene.root())?;
    scene.tick();
    for (name, make) in WAYS {
        refuses(name, make(&scene.path("taken"), 0o755), Errno::EXIST)?;
    }
    equal("the directory", facts(scene.root())?, before)
}

fn inode_numbers_differ(scene: &Scene) -> Outcome {
    let mut numbers = Vec::new();
    for kind in scene.kinds() {
        numbers.push(facts(&scene.make(kind, format!("{kind:?}"))?)?.ino);
    }
    let all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    equal("inode numbers that differ", numbers.len(), all)
}

fn links_itself_and_its_parent(scene: &Scene) -> Outcome {
    let parent = scene.dir("parent")?;
    equal("links of an empty directory", facts(&parent)?.nlink, 2)?;
    for number in 1..=3 {
        scene.dir(format!("parent/{number}"))?;
        equal("links of its parent", facts(&parent)?.nlink, 2 + number)?;
    }
    scene.file("parent/file")?;
    equal("links, which files do not count in", facts(&parent)?.nlink, 5)?;
    std::fs::remove_dir(parent.join("2"))?;
    equal("links after rmdir", facts(&parent)?.nlink, 4)
}

fn is_empty(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    equal("entries", std::fs::read_dir(&dir)?.count(), 0)?;
    let (here, above) = (facts(&dir)?.ino, facts(scene.root())?.ino);
    equal("the inode of .", facts(&dir.join("."))?.ino, here)?;
    equal("the inode of ..", facts(&dir.join(".."))?.ino, above)
}

fn a_name_with_a_slash_at_its_end(scene: &Scene) -> Outcome {
    let mut path = scene.path("dir").into_os_string();
    path.push("/");
    works("mkdir of dir/", rustix::fs::mkdir(Path::new(&path), Mode::from(0o755)))?;
    holds("dir is a directory", scene.path("dir").is_dir())
}

fn keeps_device_numbers(scene: &Scene) -> Outcome {
    needs_root()?;
    for (name, major, minor) in [("small", 1, 3), ("byte", 255, 255), ("large", 4095, 1_048_575)] {
        for (kind, file_type) in [("c", FileType::CharacterDevice), ("b", FileType::BlockDevice)] {
            let path = scene.path(format!("{name}-{kind}"));
            let device = rustix::fs::makedev(major, minor);
            let made = rustix::fs::mknodat(CWD, &path, file_type, Mode::from(0o600), device);
            works(format!("mknod {kind} {major} {minor}"), made)?;
            let found = facts(&path)?;
            equal("device", found.rdev, device)?;
            equal("type", FileType::from_raw_mode(found.mode), file_type)?;
        }
    }
    Ok(())
}

fn of_a_device_is_for_root(scene: &Scene) -> Outcome {
    scene.set_mode(scene.root(), 0o777)?;
    for file_type in [FileType::CharacterDevice, FileType::BlockDevice] {
        let path = scene.path("device");
        let got = as_user(ALICE, &[ALICE], || {
            rustix::fs::mknodat(CWD, &path, file_type, Mode::from(0o600), 7)
        })?;
        refuses("mknod of a device by a user", got, Errno::PERM)?;
        holds("nothing was made", path.symlink_metadata().is_err())?;
    }
    Ok(())
}

fn of_a_fifo_and_a_socket_is_for_all(scene: &Scene) -> Outcome {
    scene.set_mode(scene.root(), 0o777)?;
    for file_type in [FileType::Fifo, FileType::Socket] {
        let path = scene.path(format!("{file_type:?}"));
        let got = as_user(ALICE, &[ALICE], || {
            rustix::fs::mknodat(CWD, &path, file_type, Mode::from(0o600), 0)
        })?;
        works(format!("mknod of a {file_type:?} by a user"), got)?;
        equal("type", FileType::from_raw_mode(facts(&path)?.mode), file_type)?;
    }
    Ok(())
}

fn of_a_regular_file(scene: &Scene) -> Outcome {
    let path = scene.path("file");
    let made = rustix::fs::mknodat(CWD, &path, FileType::RegularFile, Mode::from(0o640), 0);
    works("mknod of a regular file", made)?;
    let found = facts(&path)?;
    equal("type", FileType::from_raw_mode(found.mode), FileType::RegularFile)?;
    equal("mode and size", (found.permissions(), found.size), (0o640, 0))?;
    std::fs::write(&path, b"text")?;
    equal("what it holds", std::fs::read(&path)?, b"text".to_vec())
}

fn carries_bytes(scene: &Scene) -> Outcome {
    let path = scene.make(Kind::Fifo, "fifo")?;
    let got = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut text = String::new();
            plain(std::fs::File::open(&path).and_then(|mut end| end.read_to_string(&mut text)))?;
            Ok::<_, Errno>(text)
        });
        let end = std::fs::OpenOptions::new().write(true).open(&path);
        let written = plain(end.and_then(|mut end| end.write_all(b"through the pipe")));
        works("writing", written)?;
        match reader.join() {
            Ok(got) => works("reading", got),
            Err(_) => skip("the reader's thread panicked"),
        }
    })?;
    equal("what came through", got.as_str(), "through the pipe")?;
    equal("size of the fifo", facts(&path)?.size, 0)
}

fn may_be_opened_by_both_ends(scene: &Scene) -> Outcome {
    let path = scene.make(Kind::Fifo, "fifo")?;
    let open = |flags| rustix::fs::open(&path, flags | OFlags::NONBLOCK, Mode::empty());
    refuses("the writing end without a reader", open(OFlags::WRONLY), Errno::NXIO)?;
    let reader = works("the reading end without a writer", open(OFlags::RDONLY))?;
    let writer = works("the writing end with a reader", open(OFlags::WRONLY))?;
    works("writing", rustix::io::write(&writer, b"abc"))?;
    let mut got = [0; 8];
    equal("bytes read", works("reading", rustix::io::read(&reader, &mut got))?, 3)
}
