//! truncate and ftruncate: sizes, what comes back when a file grows again, and what is refused.

use crate::cases;
use crate::scene::{
    ALICE, BOB, Kind, Outcome, STAFF, Scene, as_user, equal, facts, facts_of, holds, plain,
    refuses, refuses_with, same_bytes, works,
};
use rustix::fs::{Mode, OFlags, ftruncate};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;

cases! {
    "truncate":
        sets_the_size,
        grows_with_zeros_after_shrinking,
        zeros_the_rest_of_a_block_on_disk_too,
        changes_mtime_and_ctime,
        refused_changes_nothing,
        of_a_directory_is_refused,
        without_write_permission_is_refused,
        of_a_negative_size_is_refused,
        beyond_the_largest_file;
    "ftruncate":
        of_what_is_open_to_read_is_refused,
        works_without_permission_on_an_open_file,
        of_a_fifo_is_refused,
        leaves_the_offset,
        frees_blocks,
        with_readers_never_shows_old_bytes;
}

const PATTERN: u8 = 0xa5;

fn sets_the_size(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[PATTERN; 10_000])?;
    let file = scene.open(&path)?;
    for size in [0, 1, 511, 512, 4095, 4096, 4097, 131_071, 131_072, 131_073, 10_000_000, 3] {
        works(format!("ftruncate to {size}"), ftruncate(&file, size))?;
        equal("size", facts(&path)?.size, size)?;
        equal("bytes", std::fs::read(&path)?.len() as u64, size)?;
    }
    Ok(())
}

fn grows_with_zeros_after_shrinking(scene: &Scene) -> Outcome {
    // 128 KiB is the usual size of a stripe or extent; blocks of 4 KiB; and all that lies just beside.
    for size in [1_u64, 100, 4095, 4096, 4097, 65_536, 131_071, 131_072, 131_073, 200_000] {
        let path = scene.file_of(format!("{size}"), &[PATTERN; 300_000])?;
        let file = scene.open(&path)?;
        works("shrink", ftruncate(&file, size))?;
        works("grow", ftruncate(&file, 400_000))?;
        let mut want = vec![PATTERN; size as usize];
        want.resize(400_000, 0);
        same_bytes(format!("shrunk to {size}"), &std::fs::read(&path)?, &want)?;
    }
    Ok(())
}

fn zeros_the_rest_of_a_block_on_disk_too(scene: &Scene) -> Outcome {
    for size in [1_u64, 4095, 5000, 131_073] {
        let path = scene.file_of(format!("{size}"), &[PATTERN; 300_000])?;
        let file = scene.open(&path)?;
        // What was in memory is on disk between the steps and forgotten.
        let settle = || -> Outcome {
            file.sync_all()?;
            forget(&file)
        };
        settle()?;
        works("shrink", ftruncate(&file, size))?;
        settle()?;
        works("grow", ftruncate(&file, 400_000))?;
        settle()?;
        let mut want = vec![PATTERN; size as usize];
        want.resize(400_000, 0);
        same_bytes(format!("shrunk to {size}"), &std::fs::read(&path)?, &want)?;
    }
    Ok(())
}

/// Asks the kernel to forget what it holds of a file in memory.
pub(super) fn forget(file: &File) -> Outcome {
    works("fadvise", rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed))
}

fn changes_mtime_and_ctime(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[PATTERN; 1000])?;
    for size in [500, 2000, 0] {
        let before = facts(&path)?;
        scene.tick();
        works("truncate", ftruncate(&File::options().write(true).open(&path)?, size))?;
        let after = facts(&path)?;
        holds(format!("mtime is later at {size}"), after.mtime > before.mtime)?;
        holds(format!("ctime is later at {size}"), after.ctime > before.ctime)?;
    }
    Ok(())
}

fn refused_changes_nothing(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[PATTERN; 1000])?;
    scene.give(&path, ALICE, STAFF)?;
    let before = facts(&path)?;
    scene.tick();
    let got = as_user(BOB, &[BOB], || {
        plain(File::options().write(true).open(&path).and_then(|file| file.set_len(0)))
    })?;
    refuses("truncate by another", got, Errno::ACCESS)?;
    equal("the file", facts(&path)?, before)
}

fn of_a_directory_is_refused(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    let got = plain(File::options().write(true).open(&dir)).map(drop);
    refuses("opening a directory to truncate it", got, Errno::ISDIR)?;
    refuses("ftruncate of a directory", ftruncate(&File::open(&dir)?, 0), Errno::INVAL)
}

fn without_write_permission_is_refused(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[PATTERN; 1000])?;
    scene.give(&path, ALICE, STAFF)?;
    scene.set_mode(&path, 0o444)?;
    let got = as_user(ALICE, &[STAFF], || {
        plain(File::options().write(true).open(&path).and_then(|file| file.set_len(0)))
    })?;
    refuses("truncate of a file of mode 444 by its owner", got, Errno::ACCESS)
}

fn of_a_negative_size_is_refused(scene: &Scene) -> Outcome {
    let file = scene.open(&scene.file_of("file", b"text")?)?;
    refuses("ftruncate to -1", ftruncate(&file, u64::MAX), Errno::INVAL)?;
    equal("size", facts_of(&file)?.size, 4)
}

fn beyond_the_largest_file(scene: &Scene) -> Outcome {
    let file = scene.open(&scene.file_of("file", b"text")?)?;
    // Some can have a file of 2^63 - 1 bytes; who cannot has to say so.
    match ftruncate(&file, i64::MAX as u64) {
        Ok(()) => equal("size", facts_of(&file)?.size, i64::MAX as u64),
        Err(errno) => {
            let got = Err::<(), _>(errno);
            refuses_with("ftruncate to 2^63-1", got, &[Errno::FBIG, Errno::INVAL])?;
            equal("size", facts_of(&file)?.size, 4)
        }
    }
}

fn of_what_is_open_to_read_is_refused(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    let got = ftruncate(&File::open(&path)?, 0);
    refuses_with("ftruncate of what is open to read", got, &[Errno::INVAL, Errno::BADF])?;
    equal("size", facts(&path)?.size, 4)
}

fn works_without_permission_on_an_open_file(scene: &Scene) -> Outcome {
    scene.set_mode(scene.root(), 0o777)?;
    let path = scene.path("file");
    let got = as_user(ALICE, &[ALICE], || {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::empty())?;
        ftruncate(&file, 5000)
    })?;
    works("ftruncate of a file that was made with mode 0", got)?;
    equal("size", facts(&path)?.size, 5000)
}

fn of_a_fifo_is_refused(scene: &Scene) -> Outcome {
    let path = scene.make(Kind::Fifo, "fifo")?;
    let file = scene.open(&path)?;
    refuses("ftruncate of a fifo", ftruncate(&file, 0), Errno::INVAL)
}

fn leaves_the_offset(scene: &Scene) -> Outcome {
    use std::io::{Seek, Write};
    let path = scene.file("file")?;
    let mut file = scene.open(&path)?;
    file.write_all(b"0123456789")?;
    works("ftruncate", ftruncate(&file, 4))?;
    equal("offset", file.stream_position()?, 10)?;
    file.write_all(b"x")?;
    same_bytes("what it holds", &std::fs::read(&path)?, b"0123\0\0\0\0\0\0x")
}

fn frees_blocks(scene: &Scene) -> Outcome {
    let file = scene.open(&scene.file_of("file", &[PATTERN; 1 << 20])?)?;
    file.sync_all()?;
    let full = facts_of(&file)?.blocks;
    holds(format!("1 MiB uses blocks: {full}"), full >= 2048)?;
    works("ftruncate", ftruncate(&file, 4096))?;
    file.sync_all()?;
    let left = facts_of(&file)?.blocks;
    holds(format!("4 KiB use fewer: {left} of {full}"), left < full / 4)
}

fn with_readers_never_shows_old_bytes(scene: &Scene) -> Outcome {
    // While one shrinks, grows and writes, another reads zeros or the pattern, nothing else and nothing longer.
    let path = scene.file_of("file", &[PATTERN; 64 << 10])?;
    let file = scene.open(&path)?;
    let done = std::sync::atomic::AtomicBool::new(false);
    let strange = std::thread::scope(|scope| {
        let reader = scope.spawn(|| -> anyhow::Result<usize> {
            let other = File::open(&path)?;
            let mut strange = 0;
            let mut buffer = vec![1; 64 << 10];
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let n = other.read_at(&mut buffer, 0)?;
                strange += buffer[..n].iter().filter(|byte| !matches!(**byte, 0 | PATTERN)).count();
            }
            Ok(strange)
        });
        let worked = (0..300_u64).try_for_each(|round| -> Outcome {
            works("shrink", ftruncate(&file, round * 37 % 60_000))?;
            works("grow", ftruncate(&file, 64 << 10))?;
            file.write_all_at(&[PATTERN; 8192], round * 8192 % (56 << 10))?;
            Ok(())
        });
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        worked?;
        reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?
    })?;
    equal("bytes that nobody wrote", strange, 0)
}
