//! Direct I/O beside the page cache, maps and asynchronous calls; what it does to times.

use crate::bytes::{Aligned, pattern};
use crate::cases;
use crate::raw::aio::{Aio, Memory};
use crate::raw::{Mapping, Sharing};
use crate::scene::{
    Facts, Outcome, Scene, equal, facts, facts_of, holds, plain, same_bytes, skip, works,
};
use anyhow::{Context, Result};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

cases! {
    "direct":
        map_of_the_last_page_is_read,
        map_of_a_cut_page_is_read_and_written,
        write_changes_times,
        asynchronous_write_changes_times,
        write_through_an_older_descriptor_changes_times,
        sees_what_is_cached_and_mapped,
        is_seen_by_caches_and_maps,
        ends_where_what_is_cached_ends,
        asynchronous_call_outlives_close,
        asynchronous_read_of_a_hole_before_what_is_cached,
        asynchronous_calls_side_by_side;
}

const PAGE: usize = 4096;

fn open(path: &Path, more: OFlags) -> Result<File> {
    let flags = (OFlags::DIRECT | more).bits().cast_signed();
    match plain(OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)) {
        Err(Errno::INVAL) => skip("no direct I/O here"),
        opened => works("opening for direct I/O", opened),
    }
}

fn write(file: &File, bytes: &[u8], at: usize) -> Outcome {
    let wrote = plain(file.write_at(Aligned::of(bytes).bytes(), at as u64));
    equal("bytes written directly", works("direct write", wrote)?, bytes.len())
}

fn read(file: &File, at: usize, len: usize) -> Result<Vec<u8>> {
    let mut memory = Aligned::of(&vec![0; len]);
    let got = works("direct read", plain(file.read_at(memory.bytes(), at as u64)))?;
    Ok(memory.bytes()[..got].to_vec())
}

fn aio() -> Result<Aio> {
    match Aio::new(64) {
        Err(Errno::NOSYS) => skip("no asynchronous I/O here"),
        made => works("io_setup", made),
    }
}

fn next(aio: &mut Aio) -> Result<(usize, Memory)> {
    let ended = works("io_getevents", aio.wait())?.context("a call is under way")?;
    Ok((works("the asynchronous call", ended.0)?, ended.1))
}

fn map_of_the_last_page_is_read(scene: &Scene) -> Outcome {
    let file = open(&scene.file("file")?, OFlags::empty())?;
    file.set_len(5000)?;
    let map = works("mmap", Mapping::new(&file, 0, 5000, Sharing::Shared, false))?;
    let mut byte = [7];
    map.read(4999, &mut byte);
    equal("a hole's last byte", byte, [0])
}

fn map_of_a_cut_page_is_read_and_written(scene: &Scene) -> Outcome {
    let file = open(&scene.file_of("file", &pattern(1, 3 * PAGE))?, OFlags::empty())?;
    let mut map = works("mmap", Mapping::new(&file, 0, 2 * PAGE, Sharing::Shared, true))?;
    file.set_len(5000)?;
    map.write(4990, b"0123456789");
    let mut want = pattern(1, 5000);
    want[4990..].copy_from_slice(b"0123456789");
    let mut seen = vec![0; 5000];
    map.read(0, &mut seen);
    same_bytes("the map", &seen, &want)?;
    same_bytes("read directly", &read(&file, 0, 2 * PAGE)?, &want)
}

fn later(what: &str, before: &Facts, after: &Facts) -> Outcome {
    holds(format!("mtime is later after {what}"), after.mtime > before.mtime)?;
    holds(format!("ctime is later after {what}"), after.ctime > before.ctime)
}

fn write_changes_times(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[1; 4 * PAGE])?;
    let file = open(&path, OFlags::empty())?;
    file.sync_all()?;
    let before = facts(&path)?;
    scene.tick();
    write(&file, &[2; PAGE], PAGE)?;
    let after = facts(&path)?;
    later("a direct write", &before, &after)?;
    scene.tick();
    write(&file, &[3; PAGE], 4 * PAGE)?;
    let grown = facts_of(&file)?;
    later("a direct write at the end", &after, &grown)?;
    scene.tick();
    file.sync_all()?;
    drop(file);
    equal("the file later", facts(&path)?, grown)
}

fn asynchronous_write_changes_times(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[1; 4 * PAGE])?;
    let file = open(&path, OFlags::empty())?;
    file.sync_all()?;
    let before = facts(&path)?;
    scene.tick();
    let mut aio = aio()?;
    works("io_submit", aio.write(&file, 0, Memory::Own(Aligned::of(&[2; PAGE]))))?;
    next(&mut aio)?;
    later("an asynchronous write", &before, &facts(&path)?)
}

fn write_through_an_older_descriptor_changes_times(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[1; 4 * PAGE])?;
    let (cached, direct) = (scene.open(&path)?, open(&path, OFlags::empty())?);
    cached.write_all_at(b"cached", 3)?;
    let before = facts(&path)?;
    scene.tick();
    write(&direct, &[2; PAGE], PAGE)?;
    let after = facts(&path)?;
    later("a direct write", &before, &after)?;
    // What is written out later has no earlier time.
    cached.sync_all()?;
    let synced = facts(&path)?;
    equal("times after fsync", (synced.mtime, synced.ctime), (after.mtime, after.ctime))
}

fn sees_what_is_cached_and_mapped(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[1; 3 * PAGE + 100])?;
    let (cached, direct) = (scene.open(&path)?, open(&path, OFlags::empty())?);
    let len = 3 * PAGE + 100;
    let mut map = works("mmap", Mapping::new(&cached, 0, len, Sharing::Shared, true))?;
    let mut want = vec![1; len];
    for (round, at) in [5, PAGE - 3, 2 * PAGE + 77, 3 * PAGE + 90].into_iter().enumerate() {
        let bytes = [round as u8 + 10; 10];
        match round % 2 {
            0 => map.write(at, &bytes),
            _ => cached.write_all_at(&bytes, at as u64)?,
        }
        want[at..at + 10].copy_from_slice(&bytes);
        same_bytes("read directly", &read(&direct, 0, 4 * PAGE)?, &want)?;
    }
    Ok(())
}

fn is_seen_by_caches_and_maps(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[1; 3 * PAGE + 100])?;
    let (cached, direct) = (scene.open(&path)?, open(&path, OFlags::empty())?);
    let len = 3 * PAGE + 100;
    let map = works("mmap", Mapping::new(&cached, 0, len, Sharing::Shared, true))?;
    let (mut want, mut seen) = (vec![1; len], vec![0; len]);
    for round in 0..3 {
        map.read(0, &mut seen);
        same_bytes("the map", &seen, &want)?;
        write(&direct, &[round as u8 + 20; PAGE], round * PAGE)?;
        want[round * PAGE..][..PAGE].fill(round as u8 + 20);
        map.read(0, &mut seen);
        same_bytes("the map after a direct write", &seen, &want)?;
        same_bytes("read", &std::fs::read(&path)?, &want)?;
    }
    Ok(())
}

fn ends_where_what_is_cached_ends(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    let (cached, direct) = (scene.open(&path)?, open(&path, OFlags::empty())?);
    cached.write_all_at(b"the end", 10 * PAGE as u64)?;
    same_bytes("a hole", &read(&direct, 0, 2 * PAGE)?, &[0; 2 * PAGE])?;
    let tail = read(&direct, 9 * PAGE, 4 * PAGE)?;
    same_bytes("the end", &tail[PAGE..], b"the end")
}

fn asynchronous_call_outlives_close(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[1; 8 * PAGE])?;
    let mut aio = aio()?;
    for round in 0..20_u8 {
        let direct = open(&path, OFlags::empty())?;
        // Something to write out when the file is closed.
        scene.open(&path)?.write_all_at(&[round; 9], 7 * PAGE as u64)?;
        works("write", aio.write(&direct, 0, Memory::Own(Aligned::of(&[round; PAGE]))))?;
        works("read", aio.read(&direct, 0, Memory::Own(Aligned::of(&[0; PAGE]))))?;
        drop(direct);
        for _ in 0..2 {
            equal("bytes", next(&mut aio)?.0, PAGE)?;
        }
        same_bytes("the file", &std::fs::read(&path)?[..PAGE], &[round; PAGE])?;
    }
    Ok(())
}

fn asynchronous_read_of_a_hole_before_what_is_cached(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    let (cached, direct) = (scene.open(&path)?, open(&path, OFlags::empty())?);
    cached.write_all_at(b"the end", 10 * PAGE as u64)?;
    let mut aio = aio()?;
    works("read", aio.read(&direct, 0, Memory::Own(Aligned::of(&[9; 2 * PAGE]))))?;
    let (got, memory) = next(&mut aio)?;
    equal("bytes of a hole", got, 2 * PAGE)?;
    let Memory::Own(mut memory) = memory else { return skip("not its own memory") };
    same_bytes("the hole", memory.bytes(), &[0; 2 * PAGE])
}

fn asynchronous_calls_side_by_side(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    let direct = open(&path, OFlags::empty())?;
    direct.set_len(64 * PAGE as u64)?;
    let mut aio = aio()?;
    let bytes = |nr: usize| pattern(nr as u64, PAGE);
    for nr in 0..64 {
        let memory = Memory::Own(Aligned::of(&bytes(nr)));
        works("io_submit", aio.write(&direct, (nr * PAGE) as u64, memory))?;
    }
    for _ in 0..64 {
        equal("bytes", next(&mut aio)?.0, PAGE)?;
    }
    let want: Vec<u8> = (0..64).flat_map(bytes).collect();
    same_bytes("the file", &std::fs::read(&path)?, &want)
}
