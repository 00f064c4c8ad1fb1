//! Bricks that are lost and used again while the volume is mounted: by themselves and by command.

use crate::volumes::{Far, Scene, wait_until};
use std::fs;

/// The content of a file of this number.
fn content(number: usize) -> Vec<u8> {
    (0..300_000 + number * 20_011).map(|at| (at / 7 + number * 31) as u8).collect()
}

/// Some files are written, by other processes, and are durable.
fn write(scene: &Scene, numbers: std::ops::Range<usize>, seed: usize) {
    for number in numbers {
        scene.write_by_child(&format!("file{number}"), &content(number + seed));
    }
    assert!(std::process::Command::new("sync").status().unwrap().success());
}

/// They have what was written.
#[track_caller]
fn read(scene: &Scene, numbers: std::ops::Range<usize>, seed: usize) {
    for number in numbers {
        let found = fs::read(scene.file(&format!("file{number}"))).unwrap();
        assert!(found == content(number + seed), "file{number}");
    }
}

/// The brick at this place of the status is as `state` says.
fn is(scene: &Scene, brick: usize, state: &str) -> bool {
    scene.status()["bricks"][brick]["state"] == state
}

#[test]
fn a_server_that_is_back_has_its_brick_used_again_with_what_it_missed() {
    let Some(scene) = Scene::new(&["a"]) else { return };
    let far = Far::new();
    let server = far.serve();
    let uri = far.uri();
    scene.run(&format!("create pool a {uri} --copies 2")).ok();
    scene.run("mount pool mnt").ok();
    write(&scene, 0..8, 0);
    drop(server);
    write(&scene, 4..8, 50);
    write(&scene, 8..12, 0);
    assert!(is(&scene, 1, "missing"), "{}", scene.status());
    read(&scene, 0..4, 0);
    let server = far.serve();
    wait_until("the brick is used again", || is(&scene, 1, "data"));
    wait_until("it has what it missed", || {
        let status = scene.status();
        status["incomplete"] != true && status["job"].is_null()
    });
    wait_until("it has the metadata, too", || {
        scene.status()["metadata_on"].as_array().unwrap().len() == 2
    });
    scene.run("scrub pool").ok();
    scene.run("check pool").ok();
    scene.unmount("pool");
    scene.run(&format!("mount pool mnt {uri} --degraded")).ok();
    read(&scene, 0..4, 0);
    read(&scene, 4..8, 50);
    read(&scene, 8..12, 0);
    scene.unmount("pool");
    drop(server);
}

#[test]
fn what_lies_on_a_server_without_copies_is_readable_again_when_it_is_back() {
    let Some(scene) = Scene::new(&["a"]) else { return };
    let far = Far::new();
    let server = far.serve();
    let uri = far.uri();
    scene.run(&format!("create pool a {uri}")).ok();
    scene.run("mount pool mnt").ok();
    write(&scene, 0..1, 0);
    scene.run(&format!("migrate pool mnt/file0 --to {uri}")).ok();
    drop(server);
    let lost = || {
        // The kernel has it no more.
        scene.forget("file0");
        fs::read(scene.file("file0")).is_err()
    };
    wait_until("the brick is found to be lost", lost);
    assert!(is(&scene, 1, "missing"), "{}", scene.status());
    let server = far.serve();
    wait_until("the brick is used again", || is(&scene, 1, "data"));
    read(&scene, 0..1, 0);
    scene.run("check pool").ok();
    write(&scene, 0..1, 9);
    read(&scene, 0..1, 9);
    scene.unmount("pool");
    drop(server);
}

#[test]
fn a_disk_that_was_missing_is_used_again_by_command() {
    let Some(scene) = Scene::new(&["a", "b", "c"]) else { return };
    scene.run("create pool a b c --copies 2").ok();
    scene.run("mount pool mnt").ok();
    write(&scene, 0..12, 0);
    scene.run("take-back pool 2").refused(2, &["nothing is to be taken back"]);
    scene.unmount("pool");
    let (here, away) = (scene.place.path("c"), scene.place.path("away"));
    let image = fs::read(&here).unwrap();
    fs::rename(&here, &away).unwrap();
    scene.run("mount pool mnt a b --degraded").ok();
    write(&scene, 8..12, 50);
    write(&scene, 12..16, 0);
    scene.run("take-back pool 2").refused(2, &["--device"]);
    scene.run("take-back pool 2 --device b").refused(2, &["bring the device that was lost"]);
    scene.run("take-back pool 7").refused(2, &["7"]);
    let said = scene.run("take-back pool 2 --device away").ok();
    assert!(said.contains("is used again"), "{said}");
    wait_until("it has what it missed", || {
        let status = scene.status();
        status["incomplete"] != true && status["job"].is_null()
    });
    scene.run("scrub pool").ok();
    scene.run("check pool").ok();
    scene.unmount("pool");
    // Another may go now.
    scene.run("mount pool mnt a away --degraded").ok();
    read(&scene, 0..8, 0);
    read(&scene, 8..12, 50);
    read(&scene, 12..16, 0);
    // As it was before it is no copy to go on with.
    let said = scene.run("take-back pool b --json").ok();
    assert!(said.contains("is used again"), "{said}");
    scene.unmount("pool");
    scene.run("mount pool mnt a b --degraded").ok();
    fs::write(&here, &image).unwrap();
    scene.run("take-back pool c").refused(2, &["not as it was when it was lost"]);
    scene.run("take-back pool 2").ok();
    read(&scene, 12..16, 0);
    scene.unmount("pool");
    scene.run("mount pool mnt a b away").ok();
    scene.unmount("pool");
}
