//! Volumes that are not mounted: checked, renamed, destroyed; and the options of a mount that forbid uses of its files.

use crate::volumes::Scene;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn a_volume_that_is_not_mounted_is_checked_and_renamed() {
    let Some(scene) = Scene::new(&["a", "b"]) else { return };
    scene.run("create pool a b").ok();
    scene.run("mount pool mnt").ok();
    scene.write_by_child("file", &[7; 300_000]);
    scene.run("check pool --offline").refused(2, &["is mounted at", "unmount"]);
    scene.run("rename pool other").refused(2, &["is mounted at"]);
    scene.unmount("pool");
    let before =
        [fs::read(scene.place.path("a")).unwrap(), fs::read(scene.place.path("b")).unwrap()];
    let said = scene.run("check pool --offline").ok();
    assert!(said.contains("no problems") && said.contains("2 files, 1 directory"), "{said}");
    let report: serde_json::Value =
        serde_json::from_str(&scene.run("check pool --offline --json a b").ok()).unwrap();
    assert_eq!((&report["found"], &report["files"]), (&0.into(), &2.into()));
    let after =
        [fs::read(scene.place.path("a")).unwrap(), fs::read(scene.place.path("b")).unwrap()];
    assert!(before == after, "a check without --repair writes nothing");
    scene.run("rename pool a/b").refused(2, &["'/'"]);
    let said = scene.run("rename pool other").ok();
    assert!(said.contains("is called other now"), "{said}");
    scene.run("mount pool mnt").refused(2, &["pool"]);
    scene.run("mount other mnt").ok();
    assert_eq!(fs::read(scene.file("file")).unwrap(), vec![7; 300_000]);
    assert!(scene.run("examine a").ok().contains("other"));
    scene.unmount("other");
}

#[test]
fn a_volume_is_destroyed_when_that_is_what_was_meant() {
    let Some(scene) = Scene::new(&["a", "b"]) else { return };
    scene.run("create pool a b").ok();
    scene.run("mount pool mnt").ok();
    scene.run("destroy pool --yes").refused(2, &["is mounted at"]);
    scene.unmount("pool");
    scene.run("destroy pool").refused(2, &["loses all files", "--yes"]);
    let would = scene.run("destroy pool --dry-run").ok();
    assert!(would.contains("would be destroyed") && would.contains("/a"), "{would}");
    fs::rename(scene.place.path("b"), scene.place.path("away")).unwrap();
    let words = ["1 of its bricks is not here", "--force"];
    scene.run("destroy pool --yes a").refused(2, &words);
    fs::rename(scene.place.path("away"), scene.place.path("b")).unwrap();
    let said = scene.run("destroy pool --yes").ok();
    assert!(said.contains("was destroyed"), "{said}");
    assert!(!scene.run("list").ok().contains("pool"));
    let ran = scene.run("mount pool mnt a b");
    assert_ne!(ran.code, 0, "{}", ran.out);
    // Nothing is found on the bricks any more.
    scene.run("create next a b").ok();
}

#[test]
fn a_dry_run_refuses_what_the_command_would() {
    let Some(scene) = Scene::new(&["a", "b", "new"]) else { return };
    scene.run("create pool a b").ok();
    scene.run("mount pool mnt").ok();
    scene.write_by_child("file", &vec![7; 8 << 20]);
    scene.unmount("pool");
    fs::rename(scene.place.path("b"), scene.place.path("away")).unwrap();
    scene.run("mount pool mnt a --degraded").ok();
    for verb in ["remove pool 1", "replace pool 1 new"] {
        for words in ["--dry-run", ""] {
            scene
                .run(&format!("{verb} {words}"))
                .refused(2, &["is missing, and", "bytes of files"]);
        }
    }
    scene.unmount("pool");
}

#[test]
fn a_mount_forbids_what_it_is_told_to() {
    let Some(scene) = Scene::new(&["a"]) else { return };
    scene.run("create pool a").ok();
    scene.run("mount pool mnt --nosuid --nodev --noexec").ok();
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let at = scene.place.path("mnt");
    let line = table.lines().find(|line| line.contains(&*at.to_string_lossy())).unwrap();
    for option in ["nosuid", "nodev", "noexec"] {
        assert!(line.split([' ', ',']).any(|word| word == option), "{option}: {line}");
    }
    scene.write_by_child("program", b"#!/bin/sh\nexit 0\n");
    fs::set_permissions(scene.file("program"), fs::Permissions::from_mode(0o755)).unwrap();
    let refused = Command::new(scene.file("program")).status().unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn fstrim_tells_the_bricks_what_is_free() {
    use std::os::unix::fs::MetadataExt;
    let Some(scene) = Scene::new(&["a"]) else { return };
    scene.run("create pool a").ok();
    scene.run("mount pool mnt").ok();
    let taken = || fs::metadata(scene.place.path("a")).unwrap().blocks() * 512;
    scene.write_by_child("big", &vec![1; 64 << 20]);
    scene.run("unmount pool").ok();
    scene.run("mount pool mnt").ok();
    let full = taken();
    fs::remove_file(scene.file("big")).unwrap();
    // Space is free once the removal is durable.
    scene.run("unmount pool").ok();
    scene.run("mount pool mnt").ok();
    let trimmed = Command::new("fstrim").arg("-v").arg(scene.place.path("mnt")).output().unwrap();
    assert!(trimmed.status.success(), "{}", String::from_utf8_lossy(&trimmed.stderr));
    assert!(taken() + (60 << 20) < full, "{} of {full} bytes are taken", taken());
}
