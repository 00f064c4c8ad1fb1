//! Checksums of data: rot on a brick, a scrub, a server that is killed while files are written over.

use crate::volumes::{Scene, wait_until};
use rustix::process::{Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Changes a byte of every copy of `mark` on a brick; gives how many there were.
pub fn rot(brick: &Path, mark: &[u8]) -> usize {
    let bytes = fs::read(brick).unwrap();
    let at = |(at, here): (usize, &[u8])| (here == mark).then_some(at);
    let found: Vec<usize> = bytes.windows(mark.len()).enumerate().filter_map(at).collect();
    let file = File::options().write(true).open(brick).unwrap();
    for at in &found {
        file.write_all_at(b"?", *at as u64).unwrap();
    }
    found.len()
}

#[test]
fn rot_is_an_error_which_a_scrub_names_and_a_new_copy_ends() {
    let Some(scene) = Scene::new(&["a", "b"]) else { return };
    let said = scene.run("create pool a b").ok();
    assert!(said.contains("with checksums"), "{said}");
    scene.run("mount pool mnt").ok();
    let mut bytes = vec![7; 3_000_000];
    bytes[2_000_000..2_000_024].copy_from_slice(b"a mark that is only here");
    fs::create_dir(scene.file("below")).unwrap();
    scene.write_by_child("below/file", &bytes);
    scene.write_by_child("other", &[8; 300_000]);
    assert!(scene.run("scrub pool").ok().contains("all is as it was written"));
    scene.unmount("pool");
    let bricks = ["a", "b"].map(|name| scene.place.path(name));
    let rotten: usize = bricks.iter().map(|brick| rot(brick, b"a mark that is only here")).sum();
    assert_eq!(rotten, 1);
    scene.run("mount pool mnt").ok();
    let read = fs::read(scene.file("below/file")).unwrap_err();
    assert_eq!(read.raw_os_error(), Some(5), "{read}");
    assert_eq!(fs::read(scene.file("other")).unwrap(), vec![8; 300_000]);
    let status: serde_json::Value =
        serde_json::from_str(&scene.run("status pool --json").ok()).unwrap();
    assert!(status["checksum_errors"].as_u64() > Some(0), "{status}");
    let ran = scene.run("scrub pool");
    assert_eq!(ran.code, 1, "{}", ran.out);
    let from = 2_000_000 / 4096 * 4096;
    assert!(ran.out.contains(&format!("rotten: /below/file: bytes {from}+4096")), "{}", ran.out);
    let report: serde_json::Value =
        serde_json::from_str(&scene.run("scrub pool --last --json").out).unwrap();
    assert_eq!(report["rotten"][0]["ranges"][0], serde_json::json!([from, 4096]));
    scene.write_by_child("below/file", &bytes);
    assert!(scene.run("scrub pool").ok().contains("all is as it was written"));
    scene.unmount("pool");
}

#[test]
fn a_volume_without_checksums_has_nothing_to_scrub() {
    let Some(scene) = Scene::new(&["a"]) else { return };
    let said = scene.run("create pool a --checksums off").ok();
    assert!(said.contains("no checksums"), "{said}");
    scene.run("create other a --checksums maybe --force").refused(2, &["maybe", "on or off"]);
    scene.run("mount pool mnt").ok();
    scene.write_by_child("file", b"a mark that is only here");
    scene.run("scrub pool").refused(2, &["without checksums"]);
    assert!(scene.run("status pool").ok().contains("checksums   off"));
    scene.unmount("pool");
    assert_eq!(rot(&scene.place.path("a"), b"a mark that is only here"), 1);
    scene.run("mount pool mnt").ok();
    assert_eq!(fs::read(scene.file("file")).unwrap(), b"? mark that is only here");
    scene.unmount("pool");
}

#[test]
fn a_server_that_is_killed_while_a_file_is_written_over_leaves_no_rot() {
    let Some(scene) = Scene::new(&["a", "b"]) else { return };
    scene.run("create pool a b").ok();
    for round in 0..6u8 {
        scene.run("mount pool mnt").ok();
        if round == 0 {
            scene.write_by_child("file", &[0; 4 << 20]);
        }
        let path = scene.file("file");
        let writer = std::thread::spawn(move || {
            let file = File::options().write(true).open(path).unwrap();
            for at in (0..).map(|step: u64| step * 37 % 1000 * 4096) {
                let block = [round + 1; 4096];
                if file.write_all_at(&block, at).and_then(|()| file.sync_data()).is_err() {
                    break;
                }
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(100 + 70 * u64::from(round)));
        kill_process(scene.server(), Signal::KILL).unwrap();
        writer.join().unwrap();
        // What was being written is no rot to a salvage either.
        let salvage = format!("salvage a b --into salvaged{round}");
        wait_until("the locks are gone", || scene.run(&salvage).code == 0);
        wait_until("the locks are gone", || scene.run("mount pool mnt").code == 0);
        assert_eq!(fs::read(scene.file("file")).unwrap().len(), 4 << 20, "round {round}");
        scene.run("scrub pool").ok();
        scene.unmount("pool");
    }
}
