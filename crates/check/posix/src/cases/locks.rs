//! Locks between processes: flock on whole files, fcntl on ranges.

use crate::cases;
use crate::helper::Helper;
use crate::raw::{LockKind, LockOwner, lock_in_the_way, lock_range};
use crate::scene::{Outcome, Scene, equal, refuses, refuses_with, works};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::path::PathBuf;

cases! {
    "flock":
        shared_and_exclusive,
        ends_with_the_last_descriptor,
        ends_with_the_process,
        waits_for_the_other;
    "fcntl":
        ranges_of_others_are_respected,
        says_who_holds_a_lock,
        readers_share,
        part_of_a_range_may_be_let_go,
        ends_when_any_descriptor_is_closed,
        end_with_the_process,
        wait_for_the_other,
        of_a_description_is_not_the_process_s;
}

const BUSY: [Errno; 2] = [Errno::AGAIN, Errno::ACCESS];

fn both(scene: &Scene) -> anyhow::Result<(PathBuf, File, Helper)> {
    let path = scene.file_of("file", &[0; 100])?;
    let file = scene.open(&path)?;
    Ok((path, file, Helper::start(&scene.surroundings.helper)?))
}

fn range(file: &File, kind: LockKind, start: i64, len: i64) -> rustix::io::Result<()> {
    lock_range(file, LockOwner::Process, kind, start, len, false)
}

fn shared_and_exclusive(scene: &Scene) -> Outcome {
    let (path, file, mut other) = both(scene)?;
    works("a shared lock", flock(&file, FlockOperation::NonBlockingLockShared))?;
    works("the other's shared lock", other.ask("flock shared", &path)?)?;
    let got = flock(&file, FlockOperation::NonBlockingLockExclusive);
    refuses("an exclusive lock beside a shared one", got, Errno::AGAIN)?;
    works("letting it go", other.ask("flock none", &path)?)?;
    works("an exclusive lock", flock(&file, FlockOperation::NonBlockingLockExclusive))?;
    refuses("the other's shared lock", other.ask("flock shared", &path)?, Errno::AGAIN)?;
    refuses("the other's exclusive lock", other.ask("flock exclusive", &path)?, Errno::AGAIN)?;
    works("letting it go", flock(&file, FlockOperation::Unlock))?;
    works("the other's exclusive lock", other.ask("flock exclusive", &path)?)
}

fn ends_with_the_last_descriptor(scene: &Scene) -> Outcome {
    let (path, file, mut other) = both(scene)?;
    works("a lock", flock(&file, FlockOperation::NonBlockingLockExclusive))?;
    let twin = file.try_clone()?;
    drop(file);
    let got = other.ask("flock exclusive", &path)?;
    refuses("the other's while a duplicate is open", got, Errno::AGAIN)?;
    drop(twin);
    works("the other's after the last close", other.ask("flock exclusive", &path)?)
}

fn ends_with_the_process(scene: &Scene) -> Outcome {
    let (path, file, mut other) = both(scene)?;
    works("the other's lock", other.ask("flock exclusive", &path)?)?;
    let got = flock(&file, FlockOperation::NonBlockingLockExclusive);
    refuses("a lock meanwhile", got, Errno::AGAIN)?;
    other.kill()?;
    // Its files are closed before it can be waited for; a file system of a user's may hear of it a moment later.
    works("a lock afterwards", flock(&file, FlockOperation::LockExclusive))
}

fn waits_for_the_other(scene: &Scene) -> Outcome {
    let (path, file, mut other) = both(scene)?;
    works("a lock", flock(&file, FlockOperation::NonBlockingLockExclusive))?;
    other.send("flock wait", &path)?;
    std::thread::sleep(std::time::Duration::from_millis(50));
    works("letting it go", flock(&file, FlockOperation::Unlock))?;
    works("the other's lock", other.answer()?)?;
    let got = flock(&file, FlockOperation::NonBlockingLockExclusive);
    refuses("a lock beside the other's", got, Errno::AGAIN)
}

fn ranges_of_others_are_respected(scene: &Scene) -> Outcome {
    let (path, file, mut other) = both(scene)?;
    works("a lock on 10..20", range(&file, LockKind::Write, 10, 10))?;
    for (start, len) in [(10, 10), (0, 11), (19, 1), (0, 0), (15, 0)] {
        let got = other.ask(&format!("range write {start} {len}"), &path)?;
        refuses_with(format!("the other's on {start}, {len}"), got, &BUSY)?;
        let got = other.ask(&format!("range read {start} {len}"), &path)?;
        refuses_with(format!("the other's to read on {start}, {len}"), got, &BUSY)?;
    }
    for (start, len) in [(0, 10), (20, 0)] {
        let got = other.ask(&format!("range write {start} {len}"), &path)?;
        works(format!("the other's on {start}, {len}"), got)?;
    }
    refuses_with("a lock on 0..1", range(&file, LockKind::Write, 0, 1), &BUSY)?;
    refuses_with("a lock far behind", range(&file, LockKind::Write, 1 << 50, 1), &BUSY)
}

fn says_who_holds_a_lock(scene: &Scene) -> Outcome {
    let (path, file, mut other) = both(scene)?;
    works("the other's lock", other.ask("range write 10 10", &path)?)?;
    let found = works("F_GETLK", lock_in_the_way(&file, LockKind::Read, 0, 0))?;
    equal("who is in the way", found, Some(other.pid()))?;
    let found = works("F_GETLK", lock_in_the_way(&file, LockKind::Write, 20, 5))?;
    equal("who is in the way of what is free", found, None)
}

fn readers_share(scene: &Scene) -> Outcome {
    let (path, file, mut other) = both(scene)?;
    works("a lock to read", range(&file, LockKind::Read, 0, 50))?;
    works("the other's to read", other.ask("range read 25 50", &path)?)?;
    refuses_with("the other's to write", other.ask("range write 25 10", &path)?, &BUSY)?;
    refuses_with("one to write over the other's", range(&file, LockKind::Write, 60, 1), &BUSY)?;
    works("one to write over the own alone", range(&file, LockKind::Write, 0, 20))
}

fn part_of_a_range_may_be_let_go(scene: &Scene) -> Outcome {
    let (path, file, mut other) = both(scene)?;
    works("a lock on 0..30", range(&file, LockKind::Write, 0, 30))?;
    works("letting 10..20 go", range(&file, LockKind::Unlock, 10, 10))?;
    works("the other's on 10..20", other.ask("range write 10 10", &path)?)?;
    refuses_with("the other's on 9..10", other.ask("range write 9 1", &path)?, &BUSY)?;
    refuses_with("the other's on 20..21", other.ask("range write 20 1", &path)?, &BUSY)
}

fn ends_when_any_descriptor_is_closed(scene: &Scene) -> Outcome {
    let (path, file, mut other) = both(scene)?;
    works("a lock", range(&file, LockKind::Write, 0, 0))?;
    refuses_with("the other's", other.ask("range write 0 0", &path)?, &BUSY)?;
    drop(File::open(&path)?);
    works("the other's after some close", other.ask("range write 0 0", &path)?)
}

fn end_with_the_process(scene: &Scene) -> Outcome {
    let (path, file, mut other) = both(scene)?;
    works("the other's lock", other.ask("range write 0 0", &path)?)?;
    refuses_with("a lock meanwhile", range(&file, LockKind::Write, 0, 1), &BUSY)?;
    other.kill()?;
    let got = lock_range(&file, LockOwner::Process, LockKind::Write, 0, 1, true);
    works("a lock afterwards", got)
}

fn wait_for_the_other(scene: &Scene) -> Outcome {
    let (path, file, mut other) = both(scene)?;
    works("a lock", range(&file, LockKind::Write, 0, 0))?;
    other.send("range wait 5 5", &path)?;
    std::thread::sleep(std::time::Duration::from_millis(50));
    works("letting it go", range(&file, LockKind::Unlock, 0, 0))?;
    works("the other's lock", other.answer()?)?;
    refuses_with("a lock beside the other's", range(&file, LockKind::Write, 7, 1), &BUSY)
}

fn of_a_description_is_not_the_process_s(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[0; 100])?;
    let (first, second) = (scene.open(&path)?, scene.open(&path)?);
    let lock = |file, kind| lock_range(file, LockOwner::Description, kind, 0, 10, false);
    works("a description's lock", lock(&first, LockKind::Write))?;
    refuses_with("another's of the same process", lock(&second, LockKind::Write), &BUSY)?;
    drop(File::open(&path)?);
    let got = lock(&second, LockKind::Write);
    refuses_with("another's after some close", got, &BUSY)?;
    works("letting it go", lock(&first, LockKind::Unlock))?;
    works("another's", lock(&second, LockKind::Write))
}
