//! Space: fallocate and its kinds, holes, large offsets, what statfs says.

use super::truncate::forget;
use crate::bytes::pattern;
use crate::cases;
use crate::scene::{
    Kind, Outcome, Scene, equal, facts_of, holds, plain, refuses, refuses_with, same_bytes, skip,
    works,
};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::{Errno, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

cases! {
    "posix_fallocate":
        makes_room_of_zeros,
        leaves_what_is_there,
        of_no_bytes_is_refused,
        of_what_is_open_to_read_is_refused,
        of_other_kinds_is_refused,
        of_more_than_is_free_is_refused,
        changes_ctime;
    "fallocate":
        keep_size_keeps_it,
        keep_size_shows_nothing_old,
        punch_hole_reads_zeros,
        punch_hole_needs_keep_size,
        punch_hole_beyond_the_end,
        punch_hole_frees_blocks,
        punch_hole_of_unaligned_edges_on_disk,
        zero_range_reads_zeros,
        zero_range_may_grow_the_file,
        collapse_and_insert_move_or_refuse;
    "seek":
        finds_data_and_holes,
        beyond_the_end_is_enxio,
        of_a_file_without_holes,
        never_calls_written_bytes_a_hole;
    "large":
        byte_at_16_tib,
        offsets_around_4_gib,
        beyond_the_largest_offset_is_refused;
    "statfs":
        adds_up,
        names_have_255_bytes,
        goes_down_with_what_is_written;
}

const ROOM: usize = 400_000;

fn subject(scene: &Scene, bytes: &[u8]) -> anyhow::Result<(PathBuf, File)> {
    let path = scene.file_of("file", bytes)?;
    let file = scene.open(&path)?;
    Ok((path, file))
}

/// Ends the case where the file system has no such operation.
fn supported(got: Result<()>) -> Outcome {
    match got {
        Err(Errno::OPNOTSUPP) => skip("no such fallocate here"),
        other => works("fallocate", other),
    }
}

/// What the file holds now, and after it was written to disk and forgotten.
fn holds_bytes(path: &std::path::Path, file: &File, want: &[u8]) -> Outcome {
    same_bytes("from memory", &std::fs::read(path)?, want)?;
    file.sync_all()?;
    forget(file)?;
    same_bytes("from disk", &std::fs::read(path)?, want)
}

fn makes_room_of_zeros(scene: &Scene) -> Outcome {
    let (path, file) = subject(scene, b"text")?;
    supported(fallocate(&file, FallocateFlags::empty(), 1000, 300_000))?;
    equal("size", facts_of(&file)?.size, 301_000)?;
    let mut want = b"text".to_vec();
    want.resize(301_000, 0);
    holds_bytes(&path, &file, &want)?;
    let blocks = facts_of(&file)?.blocks;
    holds(format!("300,000 bytes have room: {blocks} blocks"), blocks >= 300_000 / 512)
}

fn leaves_what_is_there(scene: &Scene) -> Outcome {
    let bytes = pattern(1, ROOM);
    let (path, file) = subject(scene, &bytes)?;
    supported(fallocate(&file, FallocateFlags::empty(), 0, 100_000))?;
    supported(fallocate(&file, FallocateFlags::empty(), 5, ROOM as u64 - 5))?;
    holds_bytes(&path, &file, &bytes)
}

fn of_no_bytes_is_refused(scene: &Scene) -> Outcome {
    let (_, file) = subject(scene, b"text")?;
    refuses("no bytes", fallocate(&file, FallocateFlags::empty(), 0, 0), Errno::INVAL)?;
    let got = fallocate(&file, FallocateFlags::empty(), u64::MAX, 1);
    refuses("a negative offset", got, Errno::INVAL)?;
    let got = fallocate(&file, FallocateFlags::empty(), 0, u64::MAX);
    refuses("a negative length", got, Errno::INVAL)?;
    equal("size", facts_of(&file)?.size, 4)
}

fn of_what_is_open_to_read_is_refused(scene: &Scene) -> Outcome {
    let (path, _) = subject(scene, b"text")?;
    let got = fallocate(File::open(path)?, FallocateFlags::empty(), 0, 10);
    refuses("fallocate of what is open to read", got, Errno::BADF)
}

fn of_other_kinds_is_refused(scene: &Scene) -> Outcome {
    let fifo = scene.open(&scene.make(Kind::Fifo, "fifo")?)?;
    let got = fallocate(&fifo, FallocateFlags::empty(), 0, 10);
    refuses_with("fallocate of a fifo", got, &[Errno::SPIPE, Errno::NODEV])?;
    let dir = File::open(scene.dir("dir")?)?;
    let got = fallocate(&dir, FallocateFlags::empty(), 0, 10);
    refuses_with("fallocate of a directory", got, &[Errno::BADF, Errno::NODEV, Errno::ISDIR])
}

fn of_more_than_is_free_is_refused(scene: &Scene) -> Outcome {
    let (_, file) = subject(scene, b"text")?;
    supported(fallocate(&file, FallocateFlags::empty(), 0, 10))?;
    let space = rustix::fs::statvfs(scene.root())?;
    let more = (space.f_blocks + 1024) * space.f_frsize;
    let got = fallocate(&file, FallocateFlags::empty(), 0, more);
    refuses_with("more than there is", got, &[Errno::NOSPC, Errno::FBIG])?;
    // What was taken on the way has to be free again, or at least to be freed with the file.
    file.set_len(0)?;
    file.write_all_at(&[1; 100_000], 0)?;
    works("fsync", plain(file.sync_all()))
}

fn changes_ctime(scene: &Scene) -> Outcome {
    let (_, file) = subject(scene, b"text")?;
    let before = facts_of(&file)?;
    scene.tick();
    supported(fallocate(&file, FallocateFlags::empty(), 0, 100_000))?;
    holds("ctime is later", facts_of(&file)?.ctime > before.ctime)
}

fn keep_size_keeps_it(scene: &Scene) -> Outcome {
    let (path, file) = subject(scene, b"text")?;
    supported(fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 300_000))?;
    equal("size", facts_of(&file)?.size, 4)?;
    holds_bytes(&path, &file, b"text")
}

fn keep_size_shows_nothing_old(scene: &Scene) -> Outcome {
    // Bytes of a file that is gone may lie where the room is.
    let (old, _) = subject(scene, &[0xee; 2 << 20])?;
    File::open(&old)?.sync_all()?;
    std::fs::remove_file(&old)?;
    let path = scene.file_of("new", b"text")?;
    let file = scene.open(&path)?;
    supported(fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 2 << 20))?;
    file.set_len(2 << 20)?;
    let mut want = b"text".to_vec();
    want.resize(2 << 20, 0);
    holds_bytes(&path, &file, &want)
}

const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

fn clears(scene: &Scene, flags: FallocateFlags) -> Outcome {
    let ranges = [
        (0, 4096),
        (4096, 4096),
        (1, 1),
        (4095, 2),
        (5000, 100),
        (100_000, 50_000),
        (131_072, 131_072),
        (131_071, 131_074),
        (399_000, 1000),
    ];
    for (number, (at, len)) in ranges.into_iter().enumerate() {
        let mut want = pattern(number as u64, ROOM);
        let path = scene.file_of(format!("{number}"), &want)?;
        let file = scene.open(&path)?;
        supported(fallocate(&file, flags, at as u64, len as u64))?;
        want[at..at + len].fill(0);
        same_bytes(format!("{len} bytes at {at}"), &std::fs::read(&path)?, &want)?;
        // And once more over bytes that are on disk and no longer in memory.
        file.write_all_at(&pattern(number as u64 + 100, len), at as u64)?;
        file.sync_all()?;
        forget(&file)?;
        supported(fallocate(&file, flags, at as u64, len as u64))?;
        holds_bytes(&path, &file, &want)?;
    }
    Ok(())
}

fn punch_hole_reads_zeros(scene: &Scene) -> Outcome {
    clears(scene, PUNCH)
}

fn punch_hole_needs_keep_size(scene: &Scene) -> Outcome {
    let (path, file) = subject(scene, b"text")?;
    let got = fallocate(&file, FallocateFlags::PUNCH_HOLE, 0, 2);
    refuses("PUNCH_HOLE alone", got, Errno::OPNOTSUPP)?;
    holds_bytes(&path, &file, b"text")
}

fn punch_hole_beyond_the_end(scene: &Scene) -> Outcome {
    let bytes = pattern(1, 10_000);
    let (path, file) = subject(scene, &bytes)?;
    supported(fallocate(&file, PUNCH, 20_000, 100_000))?;
    holds_bytes(&path, &file, &bytes)?;
    supported(fallocate(&file, PUNCH, 9_000, 100_000))?;
    let mut want = bytes;
    want[9_000..].fill(0);
    holds_bytes(&path, &file, &want)
}

fn punch_hole_frees_blocks(scene: &Scene) -> Outcome {
    let (_, file) = subject(scene, &pattern(1, 4 << 20))?;
    file.sync_all()?;
    let full = facts_of(&file)?.blocks;
    supported(fallocate(&file, PUNCH, 0, 3 << 20))?;
    file.sync_all()?;
    let left = facts_of(&file)?.blocks;
    holds(format!("3 of 4 MiB are free: {left} of {full} blocks left"), left < full / 2)?;
    equal("size", facts_of(&file)?.size, 4 << 20)
}

fn punch_hole_of_unaligned_edges_on_disk(scene: &Scene) -> Outcome {
    let mut want = pattern(1, ROOM);
    let (path, file) = subject(scene, &want)?;
    for (at, len) in [(100, 4096), (10_000, 1), (131_000, 200), (200_001, 65_537)] {
        supported(fallocate(&file, PUNCH, at as u64, len as u64))?;
        want[at..at + len].fill(0);
        file.write_all_at(b"new", at as u64 + 1)?;
        want[at + 1..at + 4].copy_from_slice(b"new");
    }
    holds_bytes(&path, &file, &want)
}

fn zero_range_reads_zeros(scene: &Scene) -> Outcome {
    clears(scene, FallocateFlags::ZERO_RANGE)
}

fn zero_range_may_grow_the_file(scene: &Scene) -> Outcome {
    let bytes = pattern(1, 10_000);
    let (path, file) = subject(scene, &bytes)?;
    let keep = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    supported(fallocate(&file, keep, 9_000, 50_000))?;
    let mut want = bytes;
    want[9_000..].fill(0);
    holds_bytes(&path, &file, &want)?;
    supported(fallocate(&file, FallocateFlags::ZERO_RANGE, 8_000, 50_000))?;
    want[8_000..].fill(0);
    want.resize(58_000, 0);
    holds_bytes(&path, &file, &want)
}

fn collapse_and_insert_move_or_refuse(scene: &Scene) -> Outcome {
    let unit = 128 << 10;
    let bytes = pattern(1, 4 * unit);
    let (path, file) = subject(scene, &bytes)?;
    let size = unit as u64;
    supported(fallocate(&file, FallocateFlags::COLLAPSE_RANGE, size, size))?;
    let shorter = [&bytes[..unit], &bytes[2 * unit..]].concat();
    holds_bytes(&path, &file, &shorter)?;
    supported(fallocate(&file, FallocateFlags::INSERT_RANGE, 2 * size, size))?;
    let longer = [&shorter[..2 * unit], &vec![0; unit], &shorter[2 * unit..]].concat();
    holds_bytes(&path, &file, &longer)?;
    let got = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 5 * size);
    refuses("collapse of more than there is", got, Errno::INVAL)
}

fn finds_data_and_holes(scene: &Scene) -> Outcome {
    let (_, file) = subject(scene, b"")?;
    file.set_len(8 << 20)?;
    file.write_all_at(&[1; 4096], 2 << 20)?;
    file.sync_all()?;
    let data = works("SEEK_DATA", seek(&file, SeekFrom::Data(0)))?;
    if data == 0 {
        return skip("holes are not told from data here");
    }
    holds(format!("data at {data} begins at or before 2 MiB"), data <= 2 << 20)?;
    let hole = works("SEEK_HOLE", seek(&file, SeekFrom::Hole(2 << 20)))?;
    holds(format!("a hole at {hole} begins after the data"), hole >= (2 << 20) + 4096)?;
    holds("it begins before the end", hole < 8 << 20)?;
    equal("a hole at 0", works("SEEK_HOLE", seek(&file, SeekFrom::Hole(0)))?, 0)?;
    refuses("data in the hole at the end", seek(&file, SeekFrom::Data(hole)), Errno::NXIO)
}

fn beyond_the_end_is_enxio(scene: &Scene) -> Outcome {
    let (_, file) = subject(scene, &[1; 5000])?;
    for at in [5000, 5001, 1 << 40] {
        refuses(format!("SEEK_DATA at {at}"), seek(&file, SeekFrom::Data(at)), Errno::NXIO)?;
        refuses(format!("SEEK_HOLE at {at}"), seek(&file, SeekFrom::Hole(at)), Errno::NXIO)?;
    }
    Ok(())
}

fn of_a_file_without_holes(scene: &Scene) -> Outcome {
    let (_, file) = subject(scene, &[1; 300_000])?;
    for at in [0, 1, 150_000, 299_999] {
        equal("data", works("SEEK_DATA", seek(&file, SeekFrom::Data(at)))?, at)?;
        equal("hole", works("SEEK_HOLE", seek(&file, SeekFrom::Hole(at)))?, 300_000)?;
    }
    Ok(())
}

fn never_calls_written_bytes_a_hole(scene: &Scene) -> Outcome {
    // Before and after it is on disk: cp and tar skip what is called a hole.
    let size = 4 << 20;
    let (_, file) = subject(scene, b"")?;
    file.set_len(size as u64)?;
    let mut written = vec![false; size];
    let mut rng = fastrand::Rng::with_seed(9);
    for round in 0..30 {
        let len = rng.usize(1..9000);
        let at = rng.usize(0..size - len);
        file.write_all_at(&vec![1; len], at as u64)?;
        written[at..at + len].fill(true);
        if round % 7 == 6 {
            file.sync_all()?;
        }
        let mut at = 0;
        while let Ok(hole) = seek(&file, SeekFrom::Hole(at)) {
            let end = match seek(&file, SeekFrom::Data(hole)) {
                Ok(data) => data,
                Err(_) => size as u64,
            };
            let lost = written[hole as usize..end as usize].iter().filter(|byte| **byte).count();
            equal(format!("written bytes in the hole {hole}..{end}"), lost, 0)?;
            if end >= size as u64 {
                break;
            }
            at = end;
        }
    }
    Ok(())
}

fn byte_at_16_tib(scene: &Scene) -> Outcome {
    const AT: u64 = (16 << 40) - 8192;
    let (path, file) = subject(scene, b"text")?;
    match plain(file.write_all_at(b"x", AT)) {
        Err(Errno::FBIG) => return skip("files here are smaller than 16 TiB"),
        other => works("writing a byte just below 16 TiB", other)?,
    }
    equal("size", facts_of(&file)?.size, AT + 1)?;
    file.sync_all()?;
    forget(&file)?;
    let mut got = [1; 4];
    equal("bytes at the end", file.read_at(&mut got, AT)?, 1)?;
    equal("the byte", got[0], b'x')?;
    file.read_exact_at(&mut got, AT - 100)?;
    same_bytes("before it", &got, &[0; 4])?;
    file.read_exact_at(&mut got, 0)?;
    same_bytes("at the beginning", &got, b"text")?;
    let blocks = facts_of(&file)?.blocks;
    holds(format!("it takes little room: {blocks} blocks"), blocks < 10_000)?;
    works("cutting it off", rustix::fs::ftruncate(&file, 4))?;
    same_bytes("the rest", &std::fs::read(path)?, b"text")
}

fn offsets_around_4_gib(scene: &Scene) -> Outcome {
    let (_, file) = subject(scene, b"")?;
    for (number, at) in (0..).zip([(2 << 30) - 1000, (4_u64 << 30) - 1000, (8 << 30) - 3]) {
        let bytes = pattern(number, 5000);
        file.write_all_at(&bytes, at)?;
        file.sync_data()?;
        forget(&file)?;
        let mut got = vec![0; 5000];
        file.read_exact_at(&mut got, at)?;
        same_bytes(format!("at {at}"), &got, &bytes)?;
    }
    let mut low = [1; 5000];
    file.read_exact_at(&mut low, 1000)?;
    same_bytes("what a lost high half would overwrite", &low, &[0; 5000])
}

fn beyond_the_largest_offset_is_refused(scene: &Scene) -> Outcome {
    let (_, file) = subject(scene, b"text")?;
    let got = plain(file.write_at(b"xy", i64::MAX as u64 - 1));
    refuses_with("a write up to 2^63", got, &[Errno::FBIG, Errno::INVAL])?;
    let got = plain(file.write_at(b"xy", 1 << 63));
    refuses("a write at a negative offset", got, Errno::INVAL)?;
    equal("size", facts_of(&file)?.size, 4)
}

fn adds_up(scene: &Scene) -> Outcome {
    let space = rustix::fs::statvfs(scene.root())?;
    holds("there are blocks", space.f_blocks > 0 && space.f_frsize > 0 && space.f_bsize > 0)?;
    holds("free is not more than all", space.f_bfree <= space.f_blocks)?;
    holds("what users may have is not more than free", space.f_bavail <= space.f_bfree)?;
    holds("free files are not more than all", space.f_ffree <= space.f_files)?;
    let inner = rustix::fs::statvfs(scene.file("file")?)?;
    equal("blocks by a file in it", inner.f_blocks, space.f_blocks)
}

fn names_have_255_bytes(scene: &Scene) -> Outcome {
    equal("f_namemax", rustix::fs::statvfs(scene.root())?.f_namemax, 255)
}

fn goes_down_with_what_is_written(scene: &Scene) -> Outcome {
    const SIZE: u64 = 16 << 20;
    let free = || -> anyhow::Result<u64> {
        // Some count at a commit only.
        rustix::fs::syncfs(File::open(scene.root())?)?;
        let space = rustix::fs::statvfs(scene.root())?;
        Ok(space.f_bfree * space.f_frsize)
    };
    let before = free()?;
    scene.file_of("file", &vec![7; SIZE as usize])?;
    let after = free()?;
    holds(format!("16 MiB show: {before} free, then {after}"), after + SIZE / 2 < before)
}
