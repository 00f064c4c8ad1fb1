//! Copies of files: told to a volume, a folder or a file, shown, made and freed by a job.

use crate::volumes::Scene;
use std::fs;

fn shown(scene: &Scene, path: &str) -> serde_json::Value {
    serde_json::from_str(&scene.run(&format!("copies {path} --json")).ok()).unwrap()
}

#[test]
fn copies_are_in_distinct_domains_or_that_is_said() {
    let Some(scene) = Scene::new(&["a", "b", "c", "new"]) else { return };
    let words = ["2 copies", "in 1 domain", "--domain"];
    scene.run("create pool a b --copies 2 --domain a=east --domain b=east").refused(2, &words);
    scene.run("create pool a b --domain a=east --domain b=east").ok();
    scene.run("mount pool mnt").ok();
    scene.write_by_child("one", &[1; 1_000_000]);
    scene.run("copies pool 2").refused(2, &words);
    // A brick without a label is in a domain of its own.
    scene.run("add pool c").ok();
    scene.run("copies pool 2").ok();
    let status = scene.status();
    assert_eq!((&status["domains"], &status["copies_share_domain"]), (&2.into(), &false.into()));
    let together = ["left are in 1 domain", "2 copies", "lost together"];
    let said = [
        scene.run("remove pool c --dry-run").ok(),
        scene.run("replace pool c new --domain east --dry-run").ok(),
        scene.run("remove pool c").ok(),
    ];
    for (said, word) in said.iter().flat_map(|said| together.map(|word| (said, word))) {
        assert!(said.contains(word), "{word}: {said}");
    }
    let status = scene.status();
    assert_eq!((&status["domains"], &status["copies_share_domain"]), (&1.into(), &true.into()));
    assert!(scene.run("status pool").ok().contains("some copies lie together"));
    // What files are to have already is made all the same.
    scene.run("copies pool 2").ok();
    let said = scene.run("replace pool b new --domain west --dry-run").ok();
    assert!(!said.contains("domain"), "{said}");
    scene.unmount("pool");
}

#[test]
fn a_job_that_keeps_a_brick_from_being_replaced_is_named_with_what_ends_it() {
    let Some(scene) = Scene::new(&["a", "b", "new"]) else { return };
    scene.run("create pool a b").ok();
    scene.run("mount pool mnt").ok();
    scene.write_by_child("one", &[1; 4_000_000]);
    scene.run("jobs pool --speed 64K").ok();
    scene.run("copies pool 2 --detach").ok();
    scene.run("jobs pool --pause").ok();
    let words = ["a job, copies,", "`braid volume jobs pool --cancel`"];
    scene.run("replace pool a new --dry-run").refused(2, &words);
    for line in ["jobs pool --speed none", "jobs pool --resume", "jobs pool --wait"] {
        scene.run(line).ok();
    }
    scene.run("replace pool a new --dry-run").ok();
    scene.unmount("pool");
}

#[test]
fn a_folder_gets_copies_with_all_in_it_and_what_comes_has_them() {
    let Some(scene) = Scene::new(&["a", "b", "c"]) else { return };
    scene.run("create pool a b --copies 3").refused(2, &["3 copies", "add a brick"]);
    scene.run("create pool a b c --copies 5").refused(2, &["choose 1 to 4"]);
    scene.run("create pool a b c --copies 0").refused(2, &["choose 1 to 4"]);
    scene.run("create pool a b --copies 2 --checksums off").refused(2, &["no checksums"]);
    scene.run("create pool a b --domain z=x").refused(2, &["none of the bricks"]);
    scene
        .run("create pool a b --domain a=a-label-that-is-too-long")
        .refused(2, &["at most 16 bytes"]);
    let said = scene.run("create pool a b c --domain a=east --domain b=east --domain c=west").ok();
    assert!(!said.contains("copies"), "{said}");
    scene.run("mount pool mnt").ok();
    fs::create_dir(scene.file("photos")).unwrap();
    scene.write_by_child("photos/one", &[1; 1_000_000]);
    scene.write_by_child("other", &[2; 500_000]);
    let used = || -> Vec<u64> {
        let status: serde_json::Value =
            serde_json::from_str(&scene.run("status pool --json").ok()).unwrap();
        let bricks = status["bricks"].as_array().unwrap().iter();
        bricks.map(|brick| brick["used"].as_u64().unwrap()).collect()
    };
    scene.run("copies mnt/photos 4").refused(2, &["4 copies", "add a brick"]);
    assert_eq!(shown(&scene, "mnt/photos")["copies"], 1);
    let before = used();
    scene.run("copies mnt/photos 2").ok();
    let detail = shown(&scene, "mnt/photos/one");
    assert_eq!((&detail["volume_incomplete"], detail.get("incomplete")), (&false.into(), None));
    assert_eq!((&detail["copies"], &detail["file"]), (&2.into(), &"/photos/one".into()));
    assert_eq!(shown(&scene, "mnt/other")["copies"], 1);
    assert_eq!(shown(&scene, "pool")["copies"], 1);
    let after = used();
    let more: u64 = after.iter().sum::<u64>() - before.iter().sum::<u64>();
    assert!((1_000_000..1_200_000).contains(&more), "{more} bytes more: {before:?} {after:?}");
    scene.write_by_child("photos/two", &[3; 100_000]);
    assert!(scene.run("copies mnt/photos/two").ok().contains("2 copies"));
    scene.run("copies pool 1").ok();
    assert_eq!(shown(&scene, "mnt/photos/two")["copies"], 1);
    assert!(used().iter().sum::<u64>() < 1_800_000, "{:?}", used());
    scene.run("copies mnt/none 2").refused(2, &["/none"]);
    let said = scene.run("status pool").ok();
    assert!(said.contains("east") && said.contains("west"), "{said}");
    scene.run("check pool").ok();
    scene.unmount("pool");
}
