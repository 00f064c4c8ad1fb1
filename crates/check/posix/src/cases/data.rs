//! Reading and writing: ends of files, appending, direct I/O, copies between files.

use super::truncate::forget;
use crate::bytes::{Aligned, pattern};
use crate::cases;
use crate::scene::{
    Outcome, Scene, equal, facts, facts_of, holds, plain, refuses, same_bytes, skip, works,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

cases! {
    "data":
        comes_back_at_every_offset,
        ends_where_the_file_ends,
        has_zeros_where_nobody_wrote,
        by_several_buffers,
        in_large_requests,
        of_one_file_by_two_descriptors,
        a_duplicate_shares_the_offset,
        of_wrong_descriptors_is_refused,
        comes_back_after_being_forgotten,
        by_threads_side_by_side,
        copies_between_files,
        copies_within_a_file;
    "append":
        goes_to_the_end,
        goes_to_the_end_after_a_truncate,
        by_threads_loses_nothing,
        between_two_descriptors;
    "direct":
        comes_back,
        agrees_with_buffered,
        unaligned_is_refused_or_right,
        at_the_end_of_a_file,
        over_what_is_mapped;
}

fn comes_back_at_every_offset(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    let file = scene.open(&path)?;
    let mut want = vec![0; 600_000];
    let borders = [0, 511, 512, 4095, 4096, 65_535, 65_536, 131_071, 131_072, 262_143, 524_287];
    for (number, at) in (0..).zip(borders) {
        for len in [1, 2, 513, 4097, 70_000] {
            let bytes = pattern(number * 100 + len as u64, len);
            file.write_all_at(&bytes, at as u64)?;
            want[at..at + len].copy_from_slice(&bytes);
            let mut got = vec![0; len];
            file.read_exact_at(&mut got, at as u64)?;
            same_bytes(format!("{len} bytes at {at}"), &got, &bytes)?;
        }
    }
    let got = std::fs::read(&path)?;
    same_bytes("the whole", &got, &want[..got.len()])?;
    equal("size", got.len(), 524_287 + 70_000)
}

fn ends_where_the_file_ends(scene: &Scene) -> Outcome {
    let file = scene.open(&scene.file_of("file", b"0123456789")?)?;
    let mut buffer = [0; 100];
    equal("bytes read across the end", file.read_at(&mut buffer, 4)?, 6)?;
    same_bytes("those", &buffer[..6], b"456789")?;
    equal("bytes read at the end", file.read_at(&mut buffer, 10)?, 0)?;
    equal("bytes read beyond the end", file.read_at(&mut buffer, 1 << 40)?, 0)
}

fn has_zeros_where_nobody_wrote(scene: &Scene) -> Outcome {
    let file = scene.open(&scene.file("file")?)?;
    file.write_all_at(b"a", 1_000_000)?;
    file.write_all_at(b"b", 3_000)?;
    let mut want = vec![0; 1_000_001];
    (want[3_000], want[1_000_000]) = (b'b', b'a');
    let mut got = vec![1; 1_000_001];
    file.read_exact_at(&mut got, 0)?;
    same_bytes("before it is on disk", &got, &want)?;
    file.sync_all()?;
    forget(&file)?;
    file.read_exact_at(&mut got, 0)?;
    same_bytes("from disk", &got, &want)
}

fn by_several_buffers(scene: &Scene) -> Outcome {
    let mut file = scene.open(&scene.file("file")?)?;
    let parts = [pattern(1, 10), pattern(2, 5000), Vec::new(), pattern(3, 1)];
    let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    equal("bytes written", file.write_vectored(&slices)?, 5011)?;
    file.seek(SeekFrom::Start(0))?;
    let (mut a, mut b) = (vec![0; 3000], vec![0; 3000]);
    let mut room = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
    equal("bytes read", file.read_vectored(&mut room)?, 5011)?;
    a.extend_from_slice(&b[..2011]);
    same_bytes("what came back", &a, &parts.concat())
}

fn in_large_requests(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    let mut file = scene.open(&path)?;
    let bytes = pattern(7, 24 << 20);
    file.write_all(&bytes)?;
    file.sync_data()?;
    forget(&file)?;
    same_bytes("24 MiB", &std::fs::read(&path)?, &bytes)
}

fn of_one_file_by_two_descriptors(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    let (first, second) = (scene.open(&path)?, scene.open(&path)?);
    for round in 0..50_u64 {
        let bytes = pattern(round, 3000);
        first.write_all_at(&bytes, round * 1000)?;
        let mut got = vec![0; 3000];
        second.read_exact_at(&mut got, round * 1000)?;
        same_bytes("by the other descriptor", &got, &bytes)?;
        equal("size", facts_of(&second)?.size, round * 1000 + 3000)?;
    }
    Ok(())
}

fn a_duplicate_shares_the_offset(scene: &Scene) -> Outcome {
    let mut file = scene.open(&scene.file_of("file", b"0123456789")?)?;
    let mut twin = file.try_clone()?;
    let mut got = [0; 4];
    file.read_exact(&mut got)?;
    equal("the duplicate's offset", twin.stream_position()?, 4)?;
    twin.read_exact(&mut got)?;
    same_bytes("what follows", &got, b"4567")
}

fn of_wrong_descriptors_is_refused(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    let reader = File::open(&path)?;
    refuses("write to what is open to read", plain((&reader).write(b"x")), Errno::BADF)?;
    let writer = File::options().write(true).open(&path)?;
    refuses("read of what is open to write", plain((&writer).read(&mut [0])), Errno::BADF)?;
    refuses("seek before the beginning", plain((&reader).seek(SeekFrom::End(-5))), Errno::INVAL)?;
    same_bytes("the file", &std::fs::read(&path)?, b"text")
}

fn comes_back_after_being_forgotten(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    let file = scene.open(&path)?;
    let mut want = vec![0; 1 << 20];
    let mut rng = fastrand::Rng::with_seed(3);
    for round in 0..40 {
        let len = rng.usize(1..20_000);
        let at = rng.usize(0..want.len() - len);
        let bytes = pattern(round, len);
        file.write_all_at(&bytes, at as u64)?;
        want[at..at + len].copy_from_slice(&bytes);
        if round % 8 == 7 {
            file.sync_data()?;
            forget(&file)?;
        }
        let got = std::fs::read(&path)?;
        same_bytes(format!("round {round}"), &got, &want[..got.len()])?;
    }
    Ok(())
}

/// Four threads, numbered from 0, each of which does `write`.
fn by_four(write: impl Fn(u32) -> Outcome + Sync) -> Outcome {
    std::thread::scope(|scope| {
        let write = &write;
        let writers: Vec<_> = (0..4).map(|writer| scope.spawn(move || write(writer))).collect();
        writers.into_iter().try_for_each(|writer| match writer.join() {
            Ok(done) => done,
            Err(_) => anyhow::bail!("a writer panicked"),
        })
    })
}

fn by_threads_side_by_side(scene: &Scene) -> Outcome {
    // Neighbours in one block, one page and one stripe: nobody's bytes may be lost to another's.
    const PIECE: usize = 700;
    let path = scene.file("file")?;
    by_four(|writer| {
        let file = scene.open(&path)?;
        for round in 0..300 {
            let place = round * 4 + writer as usize;
            let bytes = pattern(place as u64, PIECE);
            file.write_all_at(&bytes, (place * PIECE) as u64)?;
        }
        Ok(())
    })?;
    let want: Vec<u8> = (0..1200).flat_map(|place| pattern(place, PIECE)).collect();
    same_bytes("the whole", &std::fs::read(&path)?, &want)
}

fn copy(from: &File, mut at: u64, to: &File, mut into: u64, mut len: usize) -> Outcome {
    while len > 0 {
        let got = rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut into), len);
        match works("copy_file_range", got)? {
            0 => break,
            n => len -= n,
        }
    }
    Ok(())
}

fn copies_between_files(scene: &Scene) -> Outcome {
    let bytes = pattern(5, 500_000);
    let from = scene.open(&scene.file_of("from", &bytes)?)?;
    let path = scene.file_of("to", &[1; 1000])?;
    let to = scene.open(&path)?;
    copy(&from, 1000, &to, 500, 400_001)?;
    let mut want = vec![1; 500];
    want.extend_from_slice(&bytes[1000..401_001]);
    same_bytes("the copy", &std::fs::read(&path)?, &want)?;
    copy(&from, 499_990, &to, 0, 1000)?;
    want[..10].copy_from_slice(&bytes[499_990..]);
    same_bytes("a copy across the end", &std::fs::read(&path)?, &want)
}

fn copies_within_a_file(scene: &Scene) -> Outcome {
    let mut want = pattern(6, 300_000);
    let path = scene.file_of("file", &want)?;
    let file = scene.open(&path)?;
    copy(&file, 10, &file, 150_000, 100_000)?;
    want.copy_within(10..100_010, 150_000);
    same_bytes("the file", &std::fs::read(&path)?, &want)?;
    let (mut from, mut to) = (0, 500);
    let got = rustix::fs::copy_file_range(&file, Some(&mut from), &file, Some(&mut to), 1000);
    refuses("copy onto itself", got, Errno::INVAL)
}

fn appender(path: &std::path::Path) -> std::io::Result<File> {
    File::options().append(true).read(true).open(path)
}

fn goes_to_the_end(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"0123")?;
    let mut file = appender(&path)?;
    file.seek(SeekFrom::Start(1))?;
    file.write_all(b"45")?;
    equal("offset", file.stream_position()?, 6)?;
    // Another makes it longer meanwhile.
    scene.open(&path)?.write_all_at(b"89", 8)?;
    file.write_all(b"x")?;
    same_bytes("the file", &std::fs::read(&path)?, b"012345\0\089x")
}

fn goes_to_the_end_after_a_truncate(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[1; 10_000])?;
    let mut file = appender(&path)?;
    file.set_len(3)?;
    file.write_all(b"x")?;
    file.set_len(6)?;
    file.write_all(b"y")?;
    same_bytes("the file", &std::fs::read(&path)?, b"\x01\x01\x01x\0\0y")
}

fn by_threads_loses_nothing(scene: &Scene) -> Outcome {
    const EACH: u32 = 400;
    let path = scene.file("file")?;
    by_four(|writer| {
        let mut file = appender(&path)?;
        for round in 0..EACH {
            file.write_all(&[writer.to_le_bytes(), round.to_le_bytes()].concat())?;
        }
        Ok(())
    })?;
    let mut next = [0; 4];
    let bytes = std::fs::read(&path)?;
    equal("size", bytes.len(), 4 * EACH as usize * 8)?;
    for record in bytes.chunks_exact(8) {
        let (writer, round) = (
            usize::from(record[0]),
            u32::from_le_bytes([record[4], record[5], record[6], record[7]]),
        );
        holds(format!("a whole record: {record:?}"), writer < 4)?;
        equal("each writer's records are in order", round, next[writer])?;
        next[writer] += 1;
    }
    Ok(())
}

fn between_two_descriptors(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    let (mut a, mut b) = (appender(&path)?, appender(&path)?);
    for _ in 0..100 {
        a.write_all(b"a")?;
        b.write_all(b"b")?;
    }
    same_bytes("the file", &std::fs::read(&path)?, "ab".repeat(100).as_bytes())
}

/// A file opened for direct I/O, where there is such a thing.
fn direct(scene: &Scene, bytes: &[u8]) -> anyhow::Result<(std::path::PathBuf, OwnedFd)> {
    let path = scene.file_of("file", bytes)?;
    File::open(&path)?.sync_all()?;
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    match rustix::fs::open(&path, flags, Mode::empty()) {
        Err(Errno::INVAL) => skip("no O_DIRECT here"),
        other => Ok((path, works("O_DIRECT", other)?)),
    }
}

fn comes_back(scene: &Scene) -> Outcome {
    let (_, file) = direct(scene, b"")?;
    for (number, len, at) in [(1, 4096, 0), (2, 65_536, 4096), (3, 1 << 20, 131_072), (4, 8192, 0)]
    {
        let want = pattern(number, len);
        let wrote = rustix::io::pwrite(&file, Aligned::of(&want).bytes(), at);
        equal("bytes written", works("direct write", wrote)?, len)?;
        let mut got = Aligned::of(&vec![0; len]);
        let read = rustix::io::pread(&file, got.bytes(), at);
        equal("bytes read", works("direct read", read)?, len)?;
        same_bytes(format!("{len} bytes at {at}"), got.bytes(), &want)?;
    }
    Ok(())
}

fn agrees_with_buffered(scene: &Scene) -> Outcome {
    let first = pattern(1, 256 << 10);
    let (path, file) = direct(scene, &first)?;
    let buffered = scene.open(&path)?;
    let mut got = Aligned::of(&[0; 8192]);
    works("direct read", rustix::io::pread(&file, got.bytes(), 4096))?;
    same_bytes("a direct read of what was written buffered", got.bytes(), &first[4096..12_288])?;
    // The buffered side holds these bytes in memory by now, and must not keep the old ones.
    std::fs::read(&path)?;
    let second = pattern(2, 8192);
    works("direct write", rustix::io::pwrite(&file, Aligned::of(&second).bytes(), 4096))?;
    let mut seen = vec![0; 8192];
    buffered.read_exact_at(&mut seen, 4096)?;
    same_bytes("a buffered read of what was written directly", &seen, &second)?;
    buffered.write_all_at(b"buffered", 5000)?;
    works("direct read", rustix::io::pread(&file, got.bytes(), 4096))?;
    same_bytes("a direct read of what is still in memory", &got.bytes()[904..912], b"buffered")
}

fn unaligned_is_refused_or_right(scene: &Scene) -> Outcome {
    let first = pattern(1, 64 << 10);
    let (path, file) = direct(scene, &first)?;
    let mut got = Aligned::of(&[0; 1000]);
    match rustix::io::pread(&file, got.bytes(), 777) {
        Err(Errno::INVAL) => {}
        other => {
            equal("bytes read", works("unaligned direct read", other)?, 1000)?;
            same_bytes("those", got.bytes(), &first[777..1777])?;
        }
    }
    let mut want = first;
    match rustix::io::pwrite(&file, Aligned::of(&[9; 1000]).bytes(), 777) {
        Err(Errno::INVAL) => {}
        other => {
            equal("bytes written", works("unaligned direct write", other)?, 1000)?;
            want[777..1777].fill(9);
        }
    }
    same_bytes("the file", &std::fs::read(&path)?, &want)
}

fn at_the_end_of_a_file(scene: &Scene) -> Outcome {
    let bytes = pattern(1, 10_000);
    let (path, file) = direct(scene, &bytes)?;
    let mut got = Aligned::of(&[0; 16_384]);
    let read = rustix::io::pread(&file, got.bytes(), 8192);
    equal("bytes read across the end", works("direct read", read)?, 1808)?;
    same_bytes("those", &got.bytes()[..1808], &bytes[8192..])?;
    works("direct write", rustix::io::pwrite(&file, Aligned::of(&[7; 4096]).bytes(), 16_384))?;
    equal("size", facts(&path)?.size, 20_480)?;
    let mut want = bytes;
    want.resize(16_384, 0);
    want.resize(20_480, 7);
    same_bytes("the file", &std::fs::read(&path)?, &want)
}

fn over_what_is_mapped(scene: &Scene) -> Outcome {
    use crate::raw::{Mapping, Sharing};
    let (path, file) = direct(scene, &[1; 16_384])?;
    let map = Mapping::new(&File::open(&path)?, 0, 16_384, Sharing::Shared, false)?;
    let mut got = vec![0; 16_384];
    map.read(0, &mut got);
    works("direct write", rustix::io::pwrite(&file, Aligned::of(&[2; 4096]).bytes(), 4096))?;
    map.read(0, &mut got);
    let mut want = vec![1; 16_384];
    want[4096..8192].fill(2);
    same_bytes("the map after a direct write", &got, &want)
}
