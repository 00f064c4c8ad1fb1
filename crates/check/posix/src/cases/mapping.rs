//! Files in memory: maps see what is written, and what is written to maps is seen.

use super::truncate::forget;
use crate::cases;
use crate::raw::{Mapping, Sharing};
use crate::scene::{Outcome, Scene, equal, facts, holds, refuses, same_bytes, works};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;

cases! {
    "mmap":
        shows_what_is_written,
        is_seen_by_readers,
        is_on_disk_after_msync,
        of_two_agree,
        private_keeps_to_itself,
        of_a_hole_reads_zeros_and_takes_bytes,
        beyond_the_end_is_not_kept,
        sees_a_truncate_and_growth,
        outlives_close_and_unlink,
        of_what_is_open_to_read_is_not_written,
        of_a_large_file_at_random_places,
        changes_mtime;
}

const PAGE: usize = 4096;

fn map(file: &File, len: usize) -> anyhow::Result<Mapping> {
    works("mmap", Mapping::new(file, 0, len, Sharing::Shared, true))
}

fn bytes(map: &Mapping, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    map.read(at, &mut bytes);
    bytes
}

fn shows_what_is_written(scene: &Scene) -> Outcome {
    let file = scene.open(&scene.file_of("file", &[1; 3 * PAGE])?)?;
    let map = map(&file, 3 * PAGE)?;
    same_bytes("at first", &bytes(&map, 0, 3 * PAGE), &[1; 3 * PAGE])?;
    file.write_all_at(b"written", 4090)?;
    same_bytes("after a write", &bytes(&map, 4090, 7), b"written")
}

fn is_seen_by_readers(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[1; 3 * PAGE])?;
    let file = scene.open(&path)?;
    let mut map = map(&file, 3 * PAGE)?;
    // Linux keeps one copy of a page for maps and reads: no msync is needed to be seen.
    map.write(4090, b"mapped");
    let mut want = vec![1; 3 * PAGE];
    want[4090..4096].copy_from_slice(b"mapped");
    same_bytes("by read", &std::fs::read(&path)?, &want)?;
    file.write_all_at(b"M", 4090)?;
    same_bytes("by the map again", &bytes(&map, 4090, 6), b"Mapped")
}

fn is_on_disk_after_msync(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[1; 64 * PAGE])?;
    let file = scene.open(&path)?;
    file.sync_all()?;
    let mut want = vec![1; 64 * PAGE];
    {
        let mut map = map(&file, 64 * PAGE)?;
        for page in (0..64).step_by(3) {
            map.write(page * PAGE + page, b"mapped");
            want[page * PAGE + page..][..6].copy_from_slice(b"mapped");
        }
        works("msync", map.sync())?;
    }
    forget(&file)?;
    same_bytes("from disk", &std::fs::read(&path)?, &want)
}

fn of_two_agree(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[1; PAGE])?;
    let mut first = map(&scene.open(&path)?, PAGE)?;
    let mut second = map(&scene.open(&path)?, PAGE)?;
    first.write(10, b"first");
    second.write(20, b"second");
    same_bytes("by the second", &bytes(&second, 10, 5), b"first")?;
    same_bytes("by the first", &bytes(&first, 20, 6), b"second")
}

fn private_keeps_to_itself(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[1; PAGE])?;
    let file = scene.open(&path)?;
    let mut map = works("mmap", Mapping::new(&file, 0, PAGE, Sharing::Private, true))?;
    map.write(0, b"private");
    same_bytes("the map", &bytes(&map, 0, 7), b"private")?;
    same_bytes("the file", &std::fs::read(&path)?, &[1; PAGE])
}

fn of_a_hole_reads_zeros_and_takes_bytes(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    let file = scene.open(&path)?;
    file.set_len(100 * PAGE as u64)?;
    let mut map = map(&file, 100 * PAGE)?;
    same_bytes("a hole", &bytes(&map, 0, 100 * PAGE), &vec![0; 100 * PAGE])?;
    map.write(50 * PAGE, b"data");
    works("msync", map.sync())?;
    drop(map);
    forget(&file)?;
    let mut want = vec![0; 100 * PAGE];
    want[50 * PAGE..][..4].copy_from_slice(b"data");
    same_bytes("from disk", &std::fs::read(&path)?, &want)
}

fn beyond_the_end_is_not_kept(scene: &Scene) -> Outcome {
    // mmap(2): the rest of the last page is zero, and what is written there is not written out.
    let path = scene.file_of("file", &[1; 100])?;
    let file = scene.open(&path)?;
    let mut map = map(&file, PAGE)?;
    same_bytes("beyond the end", &bytes(&map, 100, PAGE - 100), &[0; PAGE - 100])?;
    map.write(90, b"across the end");
    works("msync", map.sync())?;
    drop(map);
    equal("size", facts(&path)?.size, 100)?;
    file.set_len(PAGE as u64)?;
    let mut want = vec![1; 90];
    want.extend_from_slice(b"across the");
    want.resize(PAGE, 0);
    same_bytes("after growing", &std::fs::read(&path)?, &want)
}

fn sees_a_truncate_and_growth(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[1; 2 * PAGE])?;
    let file = scene.open(&path)?;
    let map = map(&file, 2 * PAGE)?;
    bytes(&map, 0, 2 * PAGE);
    file.set_len(100)?;
    same_bytes("behind the new end", &bytes(&map, 100, 1000), &[0; 1000])?;
    file.set_len(2 * PAGE as u64)?;
    let mut want = vec![1; 100];
    want.resize(2 * PAGE, 0);
    same_bytes("after growing", &bytes(&map, 0, 2 * PAGE), &want)?;
    file.write_all_at(b"new", 5000)?;
    same_bytes("after a write", &bytes(&map, 5000, 3), b"new")
}

fn outlives_close_and_unlink(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[1; PAGE])?;
    let file = scene.open(&path)?;
    let mut map = map(&file, PAGE)?;
    drop(file);
    std::fs::remove_file(&path)?;
    map.write(7, b"still here");
    works("msync", map.sync())?;
    same_bytes("the map", &bytes(&map, 7, 10), b"still here")
}

fn of_what_is_open_to_read_is_not_written(scene: &Scene) -> Outcome {
    let file = File::open(scene.file_of("file", &[1; PAGE])?)?;
    let got = Mapping::new(&file, 0, PAGE, Sharing::Shared, true).map(drop);
    refuses("a shared map to write", got, Errno::ACCESS)?;
    works("a private one", Mapping::new(&file, 0, PAGE, Sharing::Private, true)).map(drop)
}

fn of_a_large_file_at_random_places(scene: &Scene) -> Outcome {
    let size = 8 << 20;
    let path = scene.file("file")?;
    let file = scene.open(&path)?;
    file.set_len(size as u64)?;
    let mut want = vec![0; size];
    let mut rng = fastrand::Rng::with_seed(11);
    let mut map = map(&file, size)?;
    for round in 0..400 {
        let len = rng.usize(1..3000);
        let at = rng.usize(0..size - len);
        let data = crate::bytes::pattern(round, len);
        if rng.bool() {
            map.write(at, &data);
        } else {
            file.write_all_at(&data, at as u64)?;
        }
        want[at..at + len].copy_from_slice(&data);
    }
    same_bytes("the map", &bytes(&map, 0, size), &want)?;
    works("msync", map.sync())?;
    drop(map);
    forget(&file)?;
    same_bytes("from disk", &std::fs::read(&path)?, &want)
}

fn changes_mtime(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", &[1; PAGE])?;
    let file = scene.open(&path)?;
    file.sync_all()?;
    let before = facts(&path)?;
    scene.tick();
    let mut map = map(&file, PAGE)?;
    map.write(0, b"x");
    works("msync", map.sync())?;
    let after = facts(&path)?;
    holds("mtime is later after msync", after.mtime > before.mtime)?;
    holds("ctime is later after msync", after.ctime > before.ctime)
}
