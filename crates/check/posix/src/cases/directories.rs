//! Reading directories: every name once, also while others come and go.

use crate::cases;
use crate::scene::{Kind, Outcome, Scene, equal, facts, holds, refuses, works};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::Path;

cases! {
    "readdir":
        names_kinds_and_inodes,
        dot_and_dotdot,
        thousands_once_each,
        while_unlinking_every_name,
        while_others_come_and_go,
        while_names_are_renamed,
        begins_again_after_rewinding,
        goes_on_from_a_position,
        two_readers_do_not_mind_each_other,
        of_a_removed_directory,
        of_a_file_is_refused;
    "directory":
        shrinks_and_grows_again,
        is_filled_by_threads;
}

/// An entry as getdents gives it: name, inode, kind and the position after it.
struct Entry {
    name: String,
    ino: u64,
    kind: FileType,
    position: u64,
}

fn open(path: &Path) -> anyhow::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    works("opening a directory", rustix::fs::open(path, flags, Mode::empty()))
}

/// What one system call with a buffer of `room` bytes gives; nothing at the end.
fn some(dir: &OwnedFd, room: usize) -> rustix::io::Result<Vec<Entry>> {
    let mut buffer = Vec::with_capacity(room);
    let mut raw = RawDir::new(dir, buffer.spare_capacity_mut());
    let mut entries = Vec::new();
    while let Some(entry) = raw.next() {
        let entry = entry?;
        entries.push(Entry {
            name: entry.file_name().to_string_lossy().into_owned(),
            ino: entry.ino(),
            kind: entry.file_type(),
            position: entry.next_entry_cookie(),
        });
        if raw.is_buffer_empty() {
            break;
        }
    }
    Ok(entries)
}

/// All that follows, without . and .., read `room` bytes at a time; fails where a name comes twice.
fn rest(dir: &OwnedFd, room: usize) -> anyhow::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    loop {
        let entries = works("getdents", some(dir, room))?;
        if entries.is_empty() {
            return Ok(names);
        }
        for entry in entries.into_iter().filter(|entry| !matches!(&*entry.name, "." | "..")) {
            holds(format!("{} is listed once", entry.name), names.insert(entry.name))?;
        }
    }
}

fn fill(scene: &Scene, count: usize) -> anyhow::Result<BTreeSet<String>> {
    // Lengths differ, so that blocks of the directory are not filled in step with the reader's buffer.
    let names: BTreeSet<String> =
        (0..count).map(|number| format!("{number}-{}", "n".repeat(number % 40))).collect();
    for name in &names {
        scene.file(name)?;
    }
    Ok(names)
}

fn names_kinds_and_inodes(scene: &Scene) -> Outcome {
    let mut want = BTreeMap::new();
    for kind in scene.kinds() {
        let path = scene.make(kind, format!("{kind:?}"))?;
        let found = facts(&path)?;
        want.insert(format!("{kind:?}"), (found.ino, FileType::from_raw_mode(found.mode)));
    }
    let mut got = BTreeMap::new();
    for entry in works("getdents", some(&open(scene.root())?, 32 << 10))? {
        if matches!(&*entry.name, "." | "..") {
            continue;
        }
        // A file system may leave the kind to stat.
        let kind = match (entry.kind, want.get(&entry.name)) {
            (FileType::Unknown, Some((_, kind))) => *kind,
            (kind, _) => kind,
        };
        got.insert(entry.name, (entry.ino, kind));
    }
    equal("names, inodes and kinds", got, want)
}

fn dot_and_dotdot(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    let entries = works("getdents", some(&open(&dir)?, 4096))?;
    let mut got: Vec<(String, u64)> =
        entries.into_iter().map(|entry| (entry.name, entry.ino)).collect();
    got.sort();
    let want =
        vec![(".".to_owned(), facts(&dir)?.ino), ("..".to_owned(), facts(scene.root())?.ino)];
    equal("entries of an empty directory", got, want)
}

fn thousands_once_each(scene: &Scene) -> Outcome {
    let want = fill(scene, 3000)?;
    for room in [512, 4096, 256 << 10] {
        let got = rest(&open(scene.root())?, room)?;
        holds(format!("all 3000 names are read {room} bytes at a time"), got == want)?;
    }
    Ok(())
}

fn while_unlinking_every_name(scene: &Scene) -> Outcome {
    // What rm -r does: remove each name as it is read.
    let want = fill(scene, 2000)?;
    let dir = open(scene.root())?;
    let mut seen = BTreeSet::new();
    loop {
        let entries = works("getdents", some(&dir, 1024))?;
        if entries.is_empty() {
            break;
        }
        for entry in entries.into_iter().filter(|entry| !matches!(&*entry.name, "." | "..")) {
            let what = format!("unlink of {}", entry.name);
            works(what, rustix::fs::unlinkat(&dir, &entry.name, AtFlags::empty()))?;
            seen.insert(entry.name);
        }
    }
    holds(format!("all names were met: {} of {}", seen.len(), want.len()), seen == want)?;
    equal("names left", std::fs::read_dir(scene.root())?.count(), 0)
}

fn while_others_come_and_go(scene: &Scene) -> Outcome {
    // POSIX: names that stay all the while are read exactly once.
    let want = fill(scene, 1000)?;
    let dir = open(scene.root())?;
    let mut seen = BTreeSet::new();
    let mut round = 0;
    loop {
        let entries = works("getdents", some(&dir, 1024))?;
        if entries.is_empty() {
            break;
        }
        for entry in entries {
            if want.contains(&entry.name) {
                holds(format!("{} is read once", entry.name), seen.insert(entry.name))?;
            }
        }
        for number in 0..20 {
            scene.file(format!("passing-{round}-{number}"))?;
        }
        if round > 0 {
            for number in 0..20 {
                std::fs::remove_file(scene.path(format!("passing-{}-{number}", round - 1)))?;
            }
        }
        round += 1;
        // A reader that meets what is made behind it for ever would never end.
        holds("reading ends though names are made", round < 2000)?;
    }
    holds(format!("all that stayed were read: {} of 1000", seen.len()), seen == want)
}

fn while_names_are_renamed(scene: &Scene) -> Outcome {
    let want = fill(scene, 500)?;
    scene.file("moving-0")?;
    let dir = open(scene.root())?;
    let mut seen = BTreeSet::new();
    let mut round = 0;
    loop {
        let entries = works("getdents", some(&dir, 512))?;
        if entries.is_empty() {
            break;
        }
        for entry in entries {
            if want.contains(&entry.name) {
                holds(format!("{} is read once", entry.name), seen.insert(entry.name))?;
            }
        }
        let to = scene.path(format!("moving-{}", round + 1));
        works("rename", rustix::fs::rename(scene.path(format!("moving-{round}")), to))?;
        round += 1;
        holds("reading ends though a name is renamed", round < 2000)?;
    }
    holds("all that stayed were read", seen == want)
}

fn begins_again_after_rewinding(scene: &Scene) -> Outcome {
    let mut want = fill(scene, 300)?;
    let dir = open(scene.root())?;
    holds("the first time", rest(&dir, 4096)? == want)?;
    scene.file("new")?;
    want.insert("new".to_owned());
    let gone = want.pop_first().unwrap_or_default();
    std::fs::remove_file(scene.path(gone))?;
    works("rewinding", rustix::fs::seek(&dir, SeekFrom::Start(0)))?;
    holds("the second time, with what is new", rest(&dir, 4096)? == want)
}

fn goes_on_from_a_position(scene: &Scene) -> Outcome {
    fill(scene, 500)?;
    let dir = open(scene.root())?;
    let mut all = Vec::new();
    loop {
        let entries = works("getdents", some(&dir, 2048))?;
        if entries.is_empty() {
            break;
        }
        all.extend(entries);
    }
    for place in [0, 1, 2, 77, 250, all.len() - 2] {
        works("seeking", rustix::fs::seek(&dir, SeekFrom::Start(all[place].position)))?;
        let mut again = Vec::new();
        loop {
            let entries = works("getdents", some(&dir, 2048))?;
            if entries.is_empty() {
                break;
            }
            again.extend(entries.into_iter().map(|entry| entry.name));
        }
        let want: Vec<String> = all[place + 1..].iter().map(|entry| entry.name.clone()).collect();
        holds(format!("from position {place} on comes what came before"), again == want)?;
    }
    Ok(())
}

fn two_readers_do_not_mind_each_other(scene: &Scene) -> Outcome {
    let want = fill(scene, 500)?;
    let (first, second) = (open(scene.root())?, open(scene.root())?);
    let mut got = BTreeSet::new();
    let mut other = BTreeSet::new();
    loop {
        let (a, b) =
            (works("getdents", some(&first, 600))?, works("getdents", some(&second, 900))?);
        if a.is_empty() && b.is_empty() {
            break;
        }
        got.extend(a.into_iter().map(|entry| entry.name));
        other.extend(b.into_iter().map(|entry| entry.name));
    }
    for seen in [&mut got, &mut other] {
        seen.remove(".");
        seen.remove("..");
    }
    holds("both read all", got == want && other == want)
}

fn of_a_removed_directory(scene: &Scene) -> Outcome {
    let path = scene.dir("dir")?;
    let dir = open(&path)?;
    std::fs::remove_dir(&path)?;
    // Nothing, or ENOENT: getdents(2) has it for a directory that is gone.
    match some(&dir, 4096) {
        Err(Errno::NOENT) => Ok(()),
        other => {
            let left = works("getdents", other)?;
            holds("nothing but . and ..", left.iter().all(|entry| entry.name.starts_with('.')))
        }
    }
}

fn of_a_file_is_refused(scene: &Scene) -> Outcome {
    let path = scene.make(Kind::Regular, "file")?;
    let file = works("opening", rustix::fs::open(&path, OFlags::RDONLY, Mode::empty()))?;
    refuses("getdents of a file", some(&file, 4096), Errno::NOTDIR)
}

fn shrinks_and_grows_again(scene: &Scene) -> Outcome {
    for round in 0..3 {
        let want = fill(scene, 1500)?;
        let got = rest(&open(scene.root())?, 8192)?;
        holds(format!("all are there in round {round}"), got == want)?;
        for name in &want {
            works("unlink", rustix::fs::unlink(scene.path(name)))?;
        }
        equal("names left", std::fs::read_dir(scene.root())?.count(), 0)?;
    }
    Ok(())
}

fn is_filled_by_threads(scene: &Scene) -> Outcome {
    let made = std::thread::scope(|scope| {
        let makers: Vec<_> = (0..4)
            .map(|maker| {
                scope.spawn(move || {
                    (0..300).try_for_each(|number| -> Outcome {
                        scene.file(format!("{maker}-{number}"))?;
                        if number % 3 == 0 {
                            std::fs::remove_file(scene.path(format!("{maker}-{number}")))?;
                        }
                        Ok(())
                    })
                })
            })
            .collect();
        makers.into_iter().try_for_each(|maker| match maker.join() {
            Ok(done) => done,
            Err(_) => anyhow::bail!("a maker panicked"),
        })
    });
    made?;
    let got = rest(&open(scene.root())?, 4096)?;
    equal("names", got.len(), 800)
}
