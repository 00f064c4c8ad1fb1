//! `braid volume replace`: a brick in the place of another, which is there or lost.

use crate::volumes::{Scene, wait_until};
use std::fs;

fn content(number: u64) -> Vec<u8> {
    (0..1_500_000 + number * 70_001).map(|at| (at / 5 + number * 77) as u8).collect()
}

fn write(scene: &Scene, files: u64) {
    for number in 0..files {
        scene.write_by_child(&format!("file{number}"), &content(number));
    }
}

#[track_caller]
fn read(scene: &Scene, files: u64) {
    for number in 0..files {
        let found = fs::read(scene.file(&format!("file{number}"))).unwrap();
        assert!(found == content(number), "file{number}");
    }
}

/// The brick of that name, as the status has it.
#[track_caller]
fn brick(scene: &Scene, name: &str) -> serde_json::Value {
    let status = scene.status();
    let bricks = status["bricks"].as_array().unwrap();
    let found = bricks.iter().find(|brick| brick["name"].as_str().unwrap().ends_with(name));
    found.unwrap_or_else(|| panic!("no brick {name}: {status}")).clone()
}

#[test]
fn a_brick_is_replaced_and_nothing_moves_between_the_others() {
    let Some(scene) = Scene::new(&["a", "b", "c", "new"]) else { return };
    scene.run("create pool a b c --domain b=east").ok();
    scene.run("mount pool mnt").ok();
    scene.run("weight pool b 2").ok();
    write(&scene, 16);
    read(&scene, 16);
    // Nothing is on its way to the bricks any more.
    scene.unmount("pool");
    scene.run("mount pool mnt").ok();
    let used = |name| brick(&scene, name)["used"].as_u64().unwrap();
    let before = (used("/a"), used("/b"), used("/c"));
    assert!(before.1 > 8 << 20, "{before:?}");
    let said = scene.run("replace pool b new --dry-run").ok();
    assert!(said.contains("can replace brick") && said.contains("would move"), "{said}");
    scene.run("add pool new --dry-run").ok();
    assert_eq!(scene.status()["bricks"].as_array().unwrap().len(), 3);

    let said = scene.run("replace pool b new").ok();
    assert!(said.contains("added to volume pool") && said.contains("has ended"), "{said}");
    assert_eq!((used("/a"), used("/new"), used("/c")), before);
    let new = brick(&scene, "/new");
    assert_eq!((new["weight"].as_f64(), new["domain"].as_str()), (Some(2.0), Some("east")));
    assert_eq!(scene.status()["bricks"].as_array().unwrap().len(), 3);
    assert_eq!(scene.status()["unbalanced"], false);
    scene.run("examine b").refused(4, &["not a brick"]);
    read(&scene, 16);
    scene.run("check pool").ok();
    scene.unmount("pool");
}

#[test]
fn a_lost_brick_is_made_again_on_another_from_the_copies() {
    let Some(scene) = Scene::new(&["a", "b", "c", "new"]) else { return };
    scene.run("create pool a b c --copies 2").ok();
    scene.run("mount pool mnt").ok();
    write(&scene, 10);
    scene.unmount("pool");
    fs::remove_file(scene.place.path("c")).unwrap();
    scene.run("mount pool mnt a b --degraded").ok();
    let said = scene.run("replace pool 2 new --weight 1 --json").ok();
    assert!(said.contains("has ended"), "{said}");
    wait_until("all copies are there", || {
        let status = scene.status();
        status["incomplete"] != true && status["job"].is_null()
    });
    scene.run("scrub pool").ok();
    scene.run("check pool").ok();
    scene.unmount("pool");
    // Another may go now.
    scene.run("mount pool mnt a new --degraded").ok();
    read(&scene, 10);
    scene.unmount("pool");
}

#[test]
fn nothing_is_written_to_a_brick_that_cannot_take_the_place() {
    let Some(scene) = Scene::new(&["a", "b", "new"]) else { return };
    scene.run("create pool a b").ok();
    scene.run("mount pool mnt").ok();
    write(&scene, 2);
    scene.run("replace pool nobody new").refused(2, &["no brick nobody"]);
    scene.run("replace pool a nothing").refused(2, &["nothing"]);
    scene.run("replace pool a b").refused(2, &["b"]);
    let mut found = fs::read(scene.place.path("new")).unwrap();
    found[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
    fs::write(scene.place.path("new"), &found).unwrap();
    scene.run("replace pool a new").refused(2, &["--force"]);
    scene.run("replace pool a new --dry-run").refused(2, &["--force"]);
    assert!(fs::read(scene.place.path("new")).unwrap() == found);
    assert_eq!(scene.status()["bricks"].as_array().unwrap().len(), 2);
    read(&scene, 2);
    scene.unmount("pool");
}
