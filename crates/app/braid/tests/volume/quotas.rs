//! Limits of folders of a mounted volume: set, reached, shown and taken away.

use crate::volumes::Scene;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};

const MIB: usize = 1 << 20;

fn quotas(scene: &Scene, of: &str) -> serde_json::Value {
    serde_json::from_str(&scene.run(&format!("quota {of} --json")).ok()).unwrap()
}

/// Writes and syncs; the kernel may keep what is written in memory until then.
fn fill(scene: &Scene, name: &str, bytes: usize) -> std::io::Result<()> {
    let mut file = File::create(scene.file(name))?;
    file.write_all(&vec![7; bytes])?;
    file.sync_all()
}

#[test]
fn a_folder_takes_no_more_than_its_limit() {
    let Some(scene) = Scene::new(&["a"]) else { return };
    scene.run("create pool a --stripe 128K").ok();
    scene.run("mount pool mnt").ok();
    fs::create_dir(scene.file("home")).unwrap();
    fill(&scene, "home/before", 2 * MIB).unwrap();
    fill(&scene, "beside", MIB).unwrap();
    assert!(scene.run("quota pool").ok().contains("has no limits"));

    let said = scene.run("quota mnt/home --limit 4M --files 4").ok();
    assert!(said.contains("/home of volume pool may take 4 MiB and 4 files"), "{said}");
    let shown = quotas(&scene, "pool");
    assert_eq!((&shown[0]["folder"], &shown[0]["limit"]), (&"/home".into(), &(4 * MIB).into()));
    assert_eq!((&shown[0]["used"], &shown[0]["files"]), (&(2 * MIB).into(), &2.into()));
    assert_eq!(quotas(&scene, "mnt/home"), shown);

    let full = fill(&scene, "home/more", 3 * MIB).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::QuotaExceeded, "{full}");
    // A writer that does not ask for more than that is told, too.
    let mut much = File::create(scene.file("home/more")).unwrap();
    let full = much.write_all(&vec![1; 6 << 20]).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::QuotaExceeded, "{full}");
    drop(much);
    fs::write(scene.file("home/third"), "").unwrap();
    let many = fs::write(scene.file("home/fourth"), "").unwrap_err();
    assert_eq!(many.kind(), ErrorKind::QuotaExceeded, "{many}");
    let moved = fs::rename(scene.file("beside"), scene.file("home/beside")).unwrap_err();
    assert_eq!(moved.kind(), ErrorKind::CrossesDevices, "{moved}");
    let space = rustix::fs::statvfs(scene.file("home")).unwrap();
    assert_eq!((space.f_blocks * space.f_frsize, space.f_files), (4 << 20, 4));

    fs::remove_file(scene.file("home/before")).unwrap();
    fs::remove_file(scene.file("home/more")).unwrap();
    let said = scene.run("quota mnt/home --limit none --files 1").ok();
    assert!(said.contains("more than the limit"), "{said}");
    let said = scene.run("quota mnt/home --files none").ok();
    assert!(said.contains("any amount"), "{said}");
    fill(&scene, "home/large", 6 * MIB).unwrap();
    assert!(scene.run("quota pool").ok().contains("/home"));
    scene.run("quota mnt/home --none").ok();
    assert_eq!(quotas(&scene, "pool"), serde_json::json!([]));
    fs::rename(scene.file("beside"), scene.file("home/beside")).unwrap();
    assert!(scene.run("check pool").ok().contains("no problems"));
    scene.unmount("pool");
}

#[test]
fn what_cannot_have_a_limit_is_refused_with_the_reason() {
    let Some(scene) = Scene::new(&["a"]) else { return };
    scene.run("create pool a").ok();
    scene.run("mount pool mnt").ok();
    fs::write(scene.file("file"), "x").unwrap();
    for (of, says) in [
        ("mnt --limit 1G", "a limit is for a folder in it"),
        ("pool --limit 1G", "/mnt/FOLDER --limit"),
        ("pool --none", "a limit is for a folder in it"),
        ("other --limit 1G", "no volume other is mounted"),
        ("mnt/file --limit 1G", "not a directory"),
        ("mnt/nowhere --limit 1G", "no such file"),
        ("mnt/file --none", "not a directory"),
        ("other", "other"),
    ] {
        let ran = scene.run(&format!("quota {of}"));
        assert_ne!(ran.code, 0, "{of}");
        assert!(ran.err.contains(says), "{of}: {}", ran.err);
    }
    fs::create_dir(scene.file("folder")).unwrap();
    assert!(scene.run("quota mnt/folder --none").err.contains("has no limit of its own"));
    scene.unmount("pool");
}

#[test]
fn a_project_that_was_given_by_hand_has_the_limit() {
    let Some(scene) = Scene::new(&["a"]) else { return };
    scene.run("create pool a --stripe 128K").ok();
    scene.run("mount pool mnt").ok();
    for name in ["home", "beside"] {
        fs::create_dir(scene.file(name)).unwrap();
        scene.place.tool("chattr", &["-p", "4711", &format!("mnt/{name}")]).ok();
    }
    fill(&scene, "home/before", MIB).unwrap();
    let said = scene.run("quota mnt/home --limit 2M").ok();
    for part in
        ["project 4711, which /home of volume pool", "may take 2 MiB", "all files and folders"]
    {
        assert!(said.contains(part), "{said}");
    }
    assert!(said.contains("chattr +P"), "{said}");
    scene.place.tool("chattr", &["+P", "mnt/home", "mnt/beside"]).ok();
    let projects = scene.place.tool("lsattr", &["-pd", "mnt/home", "mnt/beside"]).ok();
    assert_eq!(projects.matches("4711").count(), 2, "{projects}");
    let shown = quotas(&scene, "mnt/home");
    assert_eq!((&shown[0]["project"], &shown[0]["limit"]), (&4711.into(), &(2 * MIB).into()));
    assert_eq!((quotas(&scene, "mnt/beside"), quotas(&scene, "pool")), (shown.clone(), shown));
    let full = fill(&scene, "beside/more", 3 * MIB).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::QuotaExceeded, "{full}");
    let said = scene.run("quota mnt/beside --none").ok();
    assert!(said.contains("project 4711") && said.contains("stays"), "{said}");
    assert_eq!(quotas(&scene, "mnt/home")[0]["limit"], serde_json::Value::Null);
    scene.unmount("pool");
}
