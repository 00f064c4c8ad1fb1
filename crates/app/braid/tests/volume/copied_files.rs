//! Files of a mounted volume that are copied with `cp`: they take no space until one of them is written.

use crate::volumes::{Scene, bytes, wait_until};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;

fn sync(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

/// Bytes in use on all bricks, after a commit.
fn used(scene: &Scene) -> u64 {
    rustix::fs::syncfs(File::open(scene.file(".")).unwrap()).unwrap();
    let space = rustix::fs::statvfs(scene.file(".")).unwrap();
    (space.f_blocks - space.f_bfree) * space.f_frsize
}

#[test]
fn a_file_that_is_copied_takes_no_space_and_each_stays_what_it_is() {
    let Some(scene) = Scene::new(&["a", "b"]) else { return };
    scene.run("create pool a b").ok();
    scene.run("mount pool mnt").ok();
    let (one, two) = (scene.file("one"), scene.file("two"));
    let mut content = bytes(40 * MIB as usize + 12_345, 7);
    fs::write(&one, &content).unwrap();
    sync(&one);
    let before = used(&scene);
    assert!(Command::new("cp").args([&one, &two]).status().unwrap().success());
    sync(&two);
    let after = used(&scene);
    assert!(after < before + MIB, "{} bytes more are in use", after - before);
    assert!(fs::read(&two).unwrap() == content);
    let file = OpenOptions::new().write(true).open(&one).unwrap();
    file.write_all_at(&[1; 5000], 3 * MIB).unwrap();
    file.sync_all().unwrap();
    assert!(fs::read(&two).unwrap() == content, "the copy is as it was");
    content[3 * MIB as usize..3 * MIB as usize + 5000].fill(1);
    assert!(fs::read(&one).unwrap() == content);
    drop(file);
    scene.unmount("pool");
    scene.run("mount pool mnt").ok();
    assert!(fs::read(&one).unwrap() == content);
    assert!(scene.run("check pool").ok().contains("no problems"));
    fs::remove_file(&one).unwrap();
    content[3 * MIB as usize..3 * MIB as usize + 5000].copy_from_slice(
        &bytes(40 * MIB as usize + 12_345, 7)[3 * MIB as usize..3 * MIB as usize + 5000],
    );
    assert!(fs::read(&two).unwrap() == content);
    fs::remove_file(&two).unwrap();
    wait_until("the space is free", || used(&scene) < before - 30 * MIB);
    assert!(scene.run("check pool").ok().contains("no problems"));
    scene.unmount("pool");
}
