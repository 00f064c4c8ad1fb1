//! Metadata on three bricks: any two of them do, one alone needs somebody who insists.

use crate::volumes::{Scene, wait_until};
use std::fs;

/// The content of a file of this number.
fn content(number: usize) -> Vec<u8> {
    (0..100_000 + number * 20_011).map(|at| (at / 7 + number * 31) as u8).collect()
}

fn write(scene: &Scene, numbers: std::ops::Range<usize>) {
    for number in numbers {
        scene.write_by_child(&format!("file{number}"), &content(number));
    }
}

#[track_caller]
fn read(scene: &Scene, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let found = fs::read(scene.file(&format!("file{number}"))).unwrap();
        assert!(found == content(number), "file{number}");
    }
}

fn copies_of_metadata(scene: &Scene) -> usize {
    scene.status()["metadata_on"].as_array().unwrap().len()
}

/// The state of the metadata on a brick, as `examine` shows it.
fn examined(scene: &Scene, brick: &str) -> serde_json::Value {
    let found = scene.run(&format!("examine {brick} --json")).ok();
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    match found.as_array() {
        Some(all) => all[0].clone(),
        None => found,
    }
}

#[test]
fn any_of_three_bricks_is_lost_and_gets_the_metadata_again() {
    let Some(scene) = Scene::new(&["a", "b", "c"]) else { return };
    let created = scene.run("create pool a b c --copies 2").ok();
    assert!(created.contains("pool"), "{created}");
    scene.run("mount pool mnt").ok();
    assert_eq!(copies_of_metadata(&scene), 3);
    write(&scene, 0..2);
    scene.unmount("pool");
    let away = scene.place.path("away");
    for (number, lost) in (2..).zip(["a", "b", "c"]) {
        let here = scene.place.path(lost);
        fs::rename(&here, &away).unwrap();
        scene.run("mount pool mnt").refused(2, &["--degraded"]);
        scene.run("mount pool mnt --degraded").ok();
        read(&scene, 0..number);
        write(&scene, number..number + 1);
        scene.unmount("pool");
        fs::rename(&away, &here).unwrap();
        scene.run("mount pool mnt").refused(2, &["--take-back"]);
        scene.run("mount pool mnt --take-back").ok();
        wait_until("three bricks have the metadata", || copies_of_metadata(&scene) == 3);
        wait_until("it has what it missed", || {
            let status = scene.status();
            status["incomplete"] != true && status["job"].is_null()
        });
        scene.run("scrub pool").ok();
        let checked = scene.run("check pool").ok();
        assert!(checked.contains("no problems"), "{checked}");
        scene.unmount("pool");
        let brick = examined(&scene, lost);
        assert_eq!(brick["metadata"], "in sync", "{brick}");
        assert_eq!(brick["metadata_holders"], serde_json::json!([0, 1, 2]), "{brick}");
    }
    scene.run("check pool --offline").ok();
    scene.run("mount pool mnt").ok();
    read(&scene, 0..5);
    scene.unmount("pool");
}

#[test]
fn one_of_three_is_mounted_when_somebody_insists_and_the_others_come_back() {
    let Some(scene) = Scene::new(&["a", "b", "c"]) else { return };
    scene.run("create pool a b c --copies 3").ok();
    scene.run("mount pool mnt").ok();
    write(&scene, 0..2);
    scene.unmount("pool");
    let path = |name: &str| scene.place.path(name);
    for name in ["a", "c"] {
        fs::rename(path(name), path(&format!("{name}.away"))).unwrap();
    }
    scene.run("mount pool mnt --degraded").refused(2, &["only brick 1 is", "--minority"]);
    scene.run("mount pool mnt --minority").refused(2, &["--degraded"]);
    // A command that only reads changes nothing, and need not ask.
    scene.run("check pool --offline").ok();
    let ran = scene.run("salvage b --into saved");
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let mounted = scene.run("mount pool mnt --degraded --minority").ok();
    assert!(mounted.contains("only brick 1 is current and there"), "{mounted}");
    read(&scene, 0..2);
    write(&scene, 2..3);
    scene.unmount("pool");
    // It is asked no more: the others would be told that they were away.
    scene.run("mount pool mnt --degraded").ok();
    scene.unmount("pool");
    for name in ["a", "c"] {
        fs::rename(path(&format!("{name}.away")), path(name)).unwrap();
    }
    scene.run("mount pool mnt").refused(2, &["--take-back"]);
    scene.run("mount pool mnt --take-back").ok();
    wait_until("three bricks have the metadata", || copies_of_metadata(&scene) == 3);
    read(&scene, 0..3);
    wait_until("they have what they missed", || {
        let status = scene.status();
        status["incomplete"] != true && status["job"].is_null()
    });
    scene.run("check pool").ok();
    scene.unmount("pool");
}

#[test]
fn a_third_brick_that_is_added_gets_the_metadata_and_one_that_is_removed_leaves_it() {
    let Some(scene) = Scene::new(&["a", "b", "c", "d"]) else { return };
    scene.run("create pool a").ok();
    scene.run("mount pool mnt").ok();
    write(&scene, 0..3);
    for (brick, copies) in [("b", 2), ("c", 3), ("d", 3)] {
        scene.run(&format!("add pool {brick}")).ok();
        wait_until("it has the metadata, too", || copies_of_metadata(&scene) == copies);
    }
    scene.run("remove pool a").ok();
    wait_until("the last brick has its metadata", || copies_of_metadata(&scene) == 3);
    read(&scene, 0..3);
    scene.unmount("pool");
    assert_eq!(examined(&scene, "d")["metadata_holders"], serde_json::json!([1, 2, 3]));
    scene.run("mount pool mnt b c --degraded").ok();
    scene.unmount("pool");
    scene.run("mount pool mnt b c d --take-back").ok();
    scene.run("remove pool d").ok();
    assert_eq!(copies_of_metadata(&scene), 2);
    read(&scene, 0..3);
    scene.unmount("pool");
    scene.run("check pool --offline").ok();
}
