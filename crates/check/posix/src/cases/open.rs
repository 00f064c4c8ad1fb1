//! open: its flags, and files that are open while their names go.

use crate::cases;
use crate::scene::{
    ALICE, BOB, Kind, Outcome, STAFF, Scene, as_user, equal, facts, facts_of, holds, plain,
    refuses, same_bytes, skip, works,
};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::{Errno, Result};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

cases! {
    "open":
        exclusive_makes_or_refuses,
        exclusive_is_won_by_one,
        create_opens_what_is_there,
        create_through_a_dangling_link,
        truncates,
        truncates_only_what_may_be_written,
        directory_flag_refuses_files,
        nofollow_refuses_links,
        directories_are_not_written,
        a_socket_is_not_opened,
        mode_without_write_holds_for_others_not_for_the_maker,
        a_running_program_is_not_written,
        a_file_being_written_is_not_run,
        without_a_name_can_get_one,
        a_path_only_gives_no_bytes,
        noatime_is_for_the_owner;
    "unlinked":
        stays_readable_and_writable,
        has_no_links,
        gives_its_name_to_another,
        directory_takes_no_entries,
        many_at_once;
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::from(0o644))
}

fn exclusive_makes_or_refuses(scene: &Scene) -> Outcome {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    works("O_EXCL of a new name", open(&scene.path("file"), flags))?;
    refuses("O_EXCL of a name that is there", open(&scene.path("file"), flags), Errno::EXIST)?;
    let dangling = scene.symlink("missing", "link")?;
    refuses("O_EXCL of a link to nothing", open(&dangling, flags), Errno::EXIST)?;
    holds("the link's target was not made", !scene.path("missing").exists())
}

fn exclusive_is_won_by_one(scene: &Scene) -> Outcome {
    for round in 0..100 {
        let path = scene.path(format!("{round}"));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let won = std::thread::scope(|scope| {
            let tries: Vec<_> =
                (0..4).map(|_| scope.spawn(|| open(&path, flags).is_ok())).collect();
            tries.into_iter().filter_map(|one| one.join().ok()).filter(|won| *won).count()
        });
        equal("threads of four that made the file", won, 1)?;
    }
    Ok(())
}

fn create_opens_what_is_there(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    scene.set_mode(&path, 0o600)?;
    works("O_CREAT", open(&path, OFlags::RDWR | OFlags::CREATE))?;
    equal("what it holds", std::fs::read(&path)?, b"text".to_vec())?;
    equal("mode", facts(&path)?.permissions(), 0o600)
}

fn create_through_a_dangling_link(scene: &Scene) -> Outcome {
    let link = scene.symlink("target", "link")?;
    works("O_CREAT by a link to nothing", open(&link, OFlags::RDWR | OFlags::CREATE))?;
    holds("the target is a file", scene.path("target").is_file())
}

fn truncates(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[7; 100_000])?;
    let before = facts(&path)?;
    scene.tick();
    works("O_TRUNC", open(&path, OFlags::WRONLY | OFlags::TRUNC))?;
    let after = facts(&path)?;
    equal("size", after.size, 0)?;
    equal("inode", after.ino, before.ino)?;
    holds("mtime is later", after.mtime > before.mtime)?;
    holds("ctime is later", after.ctime > before.ctime)?;
    File::options().write(true).open(&path)?.set_len(10)?;
    same_bytes("what comes back", &std::fs::read(&path)?, &[0; 10])
}

fn truncates_only_what_may_be_written(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    scene.give(&path, ALICE, STAFF)?;
    let got = as_user(BOB, &[BOB], || open(&path, OFlags::WRONLY | OFlags::TRUNC).map(drop))?;
    refuses("O_TRUNC without permission", got, Errno::ACCESS)?;
    equal("size", facts(&path)?.size, 4)
}

fn directory_flag_refuses_files(scene: &Scene) -> Outcome {
    for kind in scene.kinds().into_iter().filter(|kind| *kind != Kind::Directory) {
        let path = scene.make(kind, format!("{kind:?}"))?;
        let want = if kind == Kind::Symlink { Errno::NOENT } else { Errno::NOTDIR };
        let what = format!("O_DIRECTORY of a {kind:?}");
        refuses(what, open(&path, OFlags::RDONLY | OFlags::DIRECTORY), want)?;
    }
    let dir = scene.dir("dir")?;
    works("O_DIRECTORY of a directory", open(&dir, OFlags::RDONLY | OFlags::DIRECTORY)).map(drop)
}

fn nofollow_refuses_links(scene: &Scene) -> Outcome {
    scene.file("file")?;
    let link = scene.symlink("file", "link")?;
    refuses("O_NOFOLLOW of a link", open(&link, OFlags::RDONLY | OFlags::NOFOLLOW), Errno::LOOP)?;
    works("O_NOFOLLOW of a file", open(&scene.path("file"), OFlags::RDONLY | OFlags::NOFOLLOW))
        .map(drop)
}

fn directories_are_not_written(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    for flags in [OFlags::WRONLY, OFlags::RDWR, OFlags::RDONLY | OFlags::TRUNC] {
        let what = format!("{flags:?} of a directory");
        // O_TRUNC asks for the right to write.
        refuses(what, open(&dir, flags), Errno::ISDIR)?;
    }
    refuses("O_CREAT of a directory", open(&dir, OFlags::RDONLY | OFlags::CREATE), Errno::ISDIR)?;
    let fd = works("opening it to read", open(&dir, OFlags::RDONLY))?;
    refuses("reading its bytes", rustix::io::read(&fd, &mut [0; 16]), Errno::ISDIR)
}

fn a_socket_is_not_opened(scene: &Scene) -> Outcome {
    let path = scene.make(Kind::Socket, "socket")?;
    refuses("opening a socket's name", open(&path, OFlags::RDONLY), Errno::NXIO)
}

fn mode_without_write_holds_for_others_not_for_the_maker(scene: &Scene) -> Outcome {
    scene.set_mode(scene.root(), 0o777)?;
    let path = scene.path("file");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let (first, second) = as_user(ALICE, &[ALICE], || {
        let made = rustix::fs::open(&path, flags, Mode::from(0o444))
            .and_then(|file| rustix::io::write(&file, b"text"));
        (made, open(&path, OFlags::WRONLY).map(drop))
    })?;
    equal("bytes written by the maker", works("writing", first)?, 4)?;
    refuses("opening it again to write", second, Errno::ACCESS)
}

/// A program in the file system under test that runs until it is killed.
fn program(scene: &Scene) -> anyhow::Result<std::path::PathBuf> {
    let Ok(bytes) = std::fs::read("/bin/sleep") else { return skip("needs /bin/sleep") };
    let path = scene.file_of("program", &bytes)?;
    scene.set_mode(&path, 0o755)?;
    Ok(path)
}

fn a_running_program_is_not_written(scene: &Scene) -> Outcome {
    let path = program(scene)?;
    let started = Command::new(&path).arg("1000").stdin(Stdio::null()).spawn();
    let mut child = match plain(started) {
        Err(Errno::ACCESS) => return skip("programs may not run here: mounted noexec"),
        other => works("running a program", other)?,
    };
    let opened = open(&path, OFlags::WRONLY).map(drop);
    let truncated = plain(File::options().write(true).truncate(true).open(&path)).map(drop);
    let removed = plain(std::fs::remove_file(&path));
    child.kill()?;
    child.wait()?;
    refuses("opening a running program to write", opened, Errno::TXTBSY)?;
    refuses("truncating a running program", truncated, Errno::TXTBSY)?;
    works("removing a running program", removed)
}

fn a_file_being_written_is_not_run(scene: &Scene) -> Outcome {
    let path = program(scene)?;
    let writer = File::options().write(true).open(&path)?;
    let run = || plain(Command::new(&path).arg("0").status());
    match run() {
        Err(Errno::ACCESS) => return skip("programs may not run here: mounted noexec"),
        other => refuses("running what is open to be written", other, Errno::TXTBSY)?,
    }
    drop(writer);
    let ended = works("running it afterwards", run())?;
    holds("it ran to its end", ended.success())
}

fn without_a_name_can_get_one(scene: &Scene) -> Outcome {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = match rustix::fs::open(scene.root(), flags, Mode::from(0o640)) {
        Err(Errno::OPNOTSUPP) => return skip("no O_TMPFILE here"),
        other => File::from(works("O_TMPFILE", other)?),
    };
    equal("entries", std::fs::read_dir(scene.root())?.count(), 0)?;
    equal("links", facts_of(&file)?.nlink, 0)?;
    file.write_all_at(b"text", 0)?;
    let by_number = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let path = scene.path("named");
    works(
        "linkat of it",
        rustix::fs::linkat(CWD, by_number.as_str(), CWD, &path, AtFlags::SYMLINK_FOLLOW),
    )?;
    equal("links", facts(&path)?.nlink, 1)?;
    equal("what it holds", std::fs::read(&path)?, b"text".to_vec())
}

fn a_path_only_gives_no_bytes(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    let file = works("O_PATH", open(&path, OFlags::PATH))?;
    refuses("reading it", rustix::io::read(&file, &mut [0; 4]), Errno::BADF)?;
    let found = works("fstat of it", rustix::fs::fstat(&file))?;
    equal("size", found.st_size, 4)
}

fn noatime_is_for_the_owner(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    scene.give(&path, ALICE, STAFF)?;
    let got = as_user(BOB, &[STAFF], || open(&path, OFlags::RDONLY | OFlags::NOATIME).map(drop))?;
    refuses("O_NOATIME by another", got, Errno::PERM)?;
    let got = as_user(ALICE, &[STAFF], || open(&path, OFlags::RDONLY | OFlags::NOATIME).map(drop))?;
    works("O_NOATIME by the owner", got)
}

fn stays_readable_and_writable(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    let file = scene.open(&path)?;
    std::fs::remove_file(&path)?;
    let big = vec![9; 1 << 20];
    file.write_all_at(&big, 4)?;
    file.sync_all()?;
    let mut got = vec![0; (1 << 20) + 4];
    file.read_exact_at(&mut got, 0)?;
    same_bytes("the first bytes", &got[..4], b"text")?;
    same_bytes("the others", &got[4..], &big)?;
    file.set_len(2)?;
    equal("size after a truncate", facts_of(&file)?.size, 2)
}

fn has_no_links(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    let file = scene.open(&path)?;
    std::fs::remove_file(&path)?;
    equal("links of an unlinked file", facts_of(&file)?.nlink, 0)?;
    refuses("stat of its name", rustix::fs::stat(&path), Errno::NOENT)?;
    equal("entries of the directory", std::fs::read_dir(scene.root())?.count(), 0)
}

fn gives_its_name_to_another(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"first")?;
    let first = scene.open(&path)?;
    std::fs::remove_file(&path)?;
    scene.file_of("file", b"second")?;
    let mut got = [0; 5];
    first.read_exact_at(&mut got, 0)?;
    same_bytes("the unlinked file", &got, b"first")?;
    holds("inodes differ", facts_of(&first)?.ino != facts(&path)?.ino)?;
    first.write_all_at(b"FIRST", 0)?;
    equal("the new file", std::fs::read(&path)?, b"second".to_vec())
}

fn directory_takes_no_entries(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    let fd = works("opening", open(&dir, OFlags::RDONLY | OFlags::DIRECTORY))?;
    std::fs::remove_dir(&dir)?;
    let mode = Mode::from(0o644);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let what = "making a file in a removed directory";
    refuses(what, rustix::fs::openat(&fd, "x", flags, mode), Errno::NOENT)?;
    let what = "making a directory in a removed directory";
    refuses(what, rustix::fs::mkdirat(&fd, "x", mode), Errno::NOENT)
}

fn many_at_once(scene: &Scene) -> Outcome {
    let mut files = Vec::new();
    for number in 0..200_u64 {
        let path = scene.path(format!("{number}"));
        let file =
            File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all_at(&number.to_le_bytes(), number * 1000)?;
        std::fs::remove_file(&path)?;
        files.push(file);
    }
    for (number, file) in (0_u64..).zip(&files) {
        let mut got = [0; 8];
        file.read_exact_at(&mut got, number * 1000)?;
        equal("an unlinked file's bytes", u64::from_le_bytes(got), number)?;
    }
    Ok(())
}
