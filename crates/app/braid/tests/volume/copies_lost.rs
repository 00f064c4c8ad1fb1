//! Copies of files: a brick that is lost and comes back, rot in one copy, a server that is killed while copies are written.

use crate::checksums::rot;
use crate::volumes::{Scene, wait_until};
use rustix::process::{Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

const BRICKS: [&str; 3] = ["a", "b", "c"];
const BLOCK: usize = 4096;

/// The content of a file of this number.
fn content(number: usize) -> Vec<u8> {
    (0..100_000 + number * 20_011).map(|at| (at / 7 + number * 31) as u8).collect()
}

/// Some files are written, by other processes.
fn write(scene: &Scene, numbers: std::ops::Range<usize>, seed: usize) {
    for number in numbers {
        scene.write_by_child(&format!("file{number}"), &content(number + seed));
    }
}

/// They have what was written.
#[track_caller]
fn read(scene: &Scene, numbers: std::ops::Range<usize>, seed: usize) {
    for number in numbers {
        let found = fs::read(scene.file(&format!("file{number}"))).unwrap();
        assert!(found == content(number + seed), "file{number}");
    }
}

/// The bricks that have `mark` somewhere.
fn having(scene: &Scene, mark: &[u8]) -> Vec<&'static str> {
    let has_it = |name: &&str| {
        let bytes = fs::read(scene.place.path(name)).unwrap();
        bytes.windows(mark.len()).any(|here| here == mark)
    };
    BRICKS.into_iter().filter(has_it).collect()
}

#[test]
fn a_missing_brick_that_was_removed_is_not_missed_at_the_next_mount() {
    let Some(scene) = Scene::new(&BRICKS) else { return };
    scene.run("create pool a b c --copies 2").ok();
    scene.run("mount pool mnt").ok();
    write(&scene, 0..4, 0);
    scene.unmount("pool");
    fs::rename(scene.place.path("a"), scene.place.path("away")).unwrap();
    scene.run("mount pool mnt --degraded").ok();
    scene.run("remove pool 0").ok();
    scene.unmount("pool");
    scene.run("mount pool mnt").ok();
    read(&scene, 0..4, 0);
    scene.unmount("pool");
    // It comes back, and is left out.
    fs::rename(scene.place.path("away"), scene.place.path("a")).unwrap();
    scene.run("mount pool mnt a b c").ok();
    read(&scene, 0..4, 0);
    scene.unmount("pool");
}

#[test]
fn fewer_copies_while_a_brick_is_away_lose_nothing() {
    let Some(scene) = Scene::new(&BRICKS) else { return };
    scene.run("create pool a b --copies 2").ok();
    scene.run("mount pool mnt").ok();
    write(&scene, 0..6, 0);
    scene.unmount("pool");
    fs::rename(scene.place.path("b"), scene.place.path("away")).unwrap();
    scene.run("mount pool mnt --degraded").ok();
    scene.run("copies pool 1").ok();
    read(&scene, 0..6, 0);
    scene.run("check pool").ok();
    // As its refusal said before: then the brick can go.
    let said = scene.run("remove pool 1 --dry-run").ok();
    assert!(said.starts_with("brick 1 ("), "{said}");
    scene.run("remove pool 1").ok();
    scene.unmount("pool");
    scene.run("mount pool mnt").ok();
    read(&scene, 0..6, 0);
    scene.unmount("pool");
}

#[test]
fn a_brick_that_is_lost_takes_no_file_along_and_is_filled_when_it_is_back() {
    let Some(scene) = Scene::new(&BRICKS) else { return };
    scene.run("create pool a b c --copies 2").ok();
    scene.run("mount pool mnt").ok();
    write(&scene, 0..12, 0);
    scene.unmount("pool");
    let (here, away) = (scene.place.path("c"), scene.place.path("away"));
    fs::rename(&here, &away).unwrap();
    // A salvage finds all in the other copies.
    let ran = scene.run("salvage a b --into saved");
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    for number in 0..12 {
        let path = scene.place.path("saved/files").join(format!("file{number}"));
        assert!(fs::read(path).unwrap() == content(number), "file{number}");
    }
    scene.run("mount pool mnt a b --degraded").ok();
    read(&scene, 0..12, 0);
    // Some are written over, and some are new, while it is away.
    write(&scene, 8..12, 50);
    write(&scene, 12..16, 0);
    read(&scene, 8..12, 50);
    scene.unmount("pool");
    fs::rename(&away, &here).unwrap();
    scene.run("mount pool mnt").refused(2, &["--take-back"]);
    scene.run("mount pool mnt --take-back").ok();
    wait_until("the copies are made", || {
        let status = scene.status();
        status["job"].is_null() && scene.run("scrub pool").code == 0
    });
    scene.run("check pool").ok();
    scene.unmount("pool");
    // What it missed is on it now: another brick may go.
    fs::rename(scene.place.path("b"), &away).unwrap();
    scene.run("mount pool mnt a c --degraded").ok();
    read(&scene, 0..8, 0);
    read(&scene, 8..12, 50);
    read(&scene, 12..16, 0);
    scene.unmount("pool");
}

#[test]
fn rot_in_one_copy_is_put_right_by_a_read_and_by_a_scrub() {
    let Some(scene) = Scene::new(&BRICKS) else { return };
    scene.run("create pool a b c --copies 2").ok();
    scene.run("mount pool mnt").ok();
    let mut bytes = vec![7; 3_000_000];
    let mark = b"a mark that is only here";
    bytes[2_000_000..2_000_024].copy_from_slice(mark);
    scene.write_by_child("file", &bytes);
    scene.unmount("pool");
    let both = having(&scene, mark);
    assert_eq!(both.len(), 2, "{both:?}");
    for by_scrub in [false, true] {
        for rotten in &both {
            assert_eq!(rot(&scene.place.path(rotten), mark), 1);
            scene.run("mount pool mnt").ok();
            if by_scrub {
                let ran = scene.run("scrub pool");
                assert_eq!(ran.code, 0, "{}", ran.out);
            }
            assert!(fs::read(scene.file("file")).unwrap() == bytes);
            let ran = scene.run("scrub pool");
            assert_eq!(ran.code, 0, "{}", ran.out);
            scene.unmount("pool");
            assert_eq!(having(&scene, mark), both);
        }
    }
    // When both have rotten it is an error.
    for rotten in &both {
        rot(&scene.place.path(rotten), mark);
    }
    scene.run("mount pool mnt").ok();
    let error = fs::read(scene.file("file")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    let ran = scene.run("scrub pool");
    let from = 2_000_000 / BLOCK * BLOCK;
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.out.contains(&format!("rotten: /file: bytes {from}+4096")), "{}", ran.out);
    scene.unmount("pool");
}

#[test]
fn what_was_synced_is_in_all_copies_after_the_server_was_killed() {
    let Some(scene) = Scene::new(&BRICKS) else { return };
    scene.run("create pool a b c --copies 2").ok();
    let blocks = 256u64;
    let synced = Arc::new(Mutex::new(vec![0u64; blocks as usize]));
    for round in 0..4u64 {
        scene.run("mount pool mnt").ok();
        if round == 0 {
            scene.write_by_child("file", &vec![0; blocks as usize * BLOCK]);
        }
        let (path, told) = (scene.file("file"), Arc::clone(&synced));
        let writer = std::thread::spawn(move || {
            let file = File::options().write(true).open(path).unwrap();
            for number in round * 1_000_000 + 1.. {
                let block = number * 37 % blocks;
                let bytes = number.to_le_bytes().repeat(BLOCK / 8);
                let written = file.write_all_at(&bytes, block * BLOCK as u64);
                if written.and_then(|()| file.sync_data()).is_err() {
                    break;
                }
                told.lock().unwrap()[block as usize] = number;
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(150 + 70 * round));
        kill_process(scene.server(), Signal::KILL).unwrap();
        writer.join().unwrap();
        wait_until("the locks are gone", || scene.run("mount pool mnt").code == 0);
        let found = fs::read(scene.file("file")).unwrap();
        for (block, (bytes, told)) in
            found.chunks_exact(BLOCK).zip(synced.lock().unwrap().iter()).enumerate()
        {
            let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            // The last one was on its way.
            assert!(number >= *told, "round {round}, block {block}: {number}, told {told}");
        }
        scene.run("scrub pool").ok();
        scene.unmount("pool");
    }
}
