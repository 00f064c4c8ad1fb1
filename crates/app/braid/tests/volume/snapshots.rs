//! Snapshots of folders of a mounted volume: made, compared with what was there, listed, removed; through a crash.

use crate::volumes::{Scene, bytes, wait_until};
use rustix::fs::{FallocateFlags, XattrFlags, fallocate, setxattr};
use rustix::process::{Signal, kill_process};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

const MIB: usize = 1 << 20;

/// All that can be seen of a file: mode, links, size, time of the last write, attributes, content or target.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    about: String,
    pub content: Vec<u8>,
}

/// Everything below a folder, by path.
pub fn tree(folder: &Path) -> BTreeMap<String, Seen> {
    fn walk(folder: &Path, at: &Path, seen: &mut BTreeMap<String, Seen>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            let mut about = format!("{:o} {}.{:09}", stat.mode(), stat.mtime(), stat.mtime_nsec());
            let mut content = Vec::new();
            if stat.is_dir() {
                walk(folder, &path, seen);
            } else if stat.is_symlink() {
                about.push_str(&format!(" to {}", fs::read_link(&path).unwrap().display()));
            } else {
                let mut note = [0; 16];
                let len = rustix::fs::getxattr(&path, "user.note", &mut note[..]).unwrap_or(0);
                let note = String::from_utf8_lossy(&note[..len]);
                about.push_str(&format!(" {} {} {note}", stat.nlink(), stat.size()));
                content = fs::read(&path).unwrap();
            }
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            seen.insert(name, Seen { about, content });
        }
    }
    let mut seen = BTreeMap::new();
    walk(folder, folder, &mut seen);
    seen
}

#[track_caller]
pub fn assert_same(found: &BTreeMap<String, Seen>, wanted: &BTreeMap<String, Seen>) {
    let names = |tree: &BTreeMap<String, Seen>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(wanted));
    for (name, seen) in found {
        let wanted = &wanted[name];
        assert_eq!(seen.about, wanted.about, "{name}");
        let differs = seen.content.iter().zip(&wanted.content).position(|(one, two)| one != two);
        assert_eq!(differs, None, "the first byte of {name} that differs");
        assert_eq!(seen.content.len(), wanted.content.len(), "{name}");
    }
}

fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

fn append(path: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

fn cut(path: &Path, len: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

/// Writes the kernel's pages out.
fn write_out(folder: &Path) {
    rustix::fs::syncfs(File::open(folder).unwrap()).unwrap();
}

/// Makes everything below a folder durable; for FUSE syncfs does not.
pub fn sync(folder: &Path) {
    write_out(folder);
    for name in tree(folder).into_keys().chain([String::new()]) {
        let path = folder.join(name);
        if !fs::symlink_metadata(&path).unwrap().is_symlink() {
            File::open(path).unwrap().sync_all().unwrap();
        }
    }
}

fn kill(scene: &Scene) {
    kill_process(scene.server(), Signal::KILL).unwrap();
    wait_until("the locks are gone", || scene.run("mount pool mnt").code == 0);
}

fn listed(scene: &Scene, of: &str) -> serde_json::Value {
    serde_json::from_str(&scene.run(&format!("snapshot {of} --json")).ok()).unwrap()
}

fn names(listed: &serde_json::Value) -> Vec<String> {
    let all = listed.as_array().unwrap().iter();
    all.map(|one| one["name"].as_str().unwrap().to_string()).collect()
}

/// Gives the files of a folder times: those that the kernel gives them itself it tells the server while data is on its way.
fn give_times(folder: &Path, seconds: u64) {
    for name in tree(folder).into_keys() {
        let path = folder.join(name);
        if fs::symlink_metadata(&path).unwrap().is_file() {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            File::open(path).unwrap().set_modified(time).unwrap();
        }
    }
}

/// A folder with one of each that a folder may have.
pub fn fill(home: &Path) {
    fs::create_dir_all(home.join("deep/er")).unwrap();
    fs::write(home.join("large"), bytes(MIB + 77_777, 1)).unwrap();
    fs::write(home.join("grows"), bytes(10_000, 2)).unwrap();
    fs::write(home.join("shrinks"), bytes(500_000, 3)).unwrap();
    fs::write(home.join("goes"), bytes(300_000, 4)).unwrap();
    fs::write(home.join("deep/er/moves"), bytes(200_000, 5)).unwrap();
    fs::write(home.join("deep/replaced"), "old").unwrap();
    fs::write(home.join("untouched"), bytes(150_000, 6)).unwrap();
    fs::write(home.join("empty"), "").unwrap();
    fs::hard_link(home.join("goes"), home.join("deep/link")).unwrap();
    symlink("untouched", home.join("symbolic")).unwrap();
    cut(&home.join("empty"), 0);
    File::create(home.join("sparse")).unwrap().set_len(900_000).unwrap();
    write_at(&home.join("sparse"), 400_000, b"in the middle");
    setxattr(home.join("grows"), "user.note", b"first", XattrFlags::empty()).unwrap();
    give_times(home, 1_000_000_000);
}

/// Changes something of each kind, in another way for each `round`.
pub fn change(home: &Path, round: u64) {
    let new = bytes(100_000, 100 + round);
    write_at(&home.join("large"), 0, &new[..10]);
    write_at(&home.join("large"), 200_000 + round * 4096, &new);
    append(&home.join("grows"), &new[..50_000]);
    cut(&home.join("shrinks"), 400_000 - round * 100_001);
    fs::rename(home.join("deep/er/moves"), home.join("moved")).unwrap();
    fs::rename(home.join("moved"), home.join(format!("deep/er/moved{round}"))).unwrap();
    fs::write(home.join("deep/er/moves"), &new[..100]).unwrap();
    fs::write(home.join("new"), format!("new {round}")).unwrap();
    fs::rename(home.join("new"), home.join("deep/replaced")).unwrap();
    fs::write(home.join(format!("made{round}")), &new).unwrap();
    write_at(&home.join("sparse"), 100 * round, b"at the start");
    let sparse = OpenOptions::new().write(true).open(home.join("sparse")).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&sparse, punch, 390_000, 20_000).unwrap();
    let note = format!("round{round}");
    setxattr(home.join("grows"), "user.note", note.as_bytes(), XattrFlags::empty()).unwrap();
    let mode = Permissions::from_mode(0o600 + round as u32);
    fs::set_permissions(home.join("empty"), mode).unwrap();
    fs::remove_file(home.join("symbolic")).unwrap();
    symlink(format!("made{round}"), home.join("symbolic")).unwrap();
    match round {
        1 => fs::remove_file(home.join("goes")).unwrap(),
        2 => fs::remove_file(home.join("deep/link")).unwrap(),
        _ => fs::remove_dir_all(home.join("deep")).unwrap(),
    }
    give_times(home, 1_000_000_000 + round);
}

#[test]
fn a_snapshot_keeps_a_folder_as_it_was() {
    let Some(scene) = Scene::new(&["a", "b"]) else { return };
    scene.run("create pool a b --stripe 128K").ok();
    scene.run("mount pool mnt").ok();
    let home = scene.file("home");
    let at = |name: &str| home.join(".snapshots").join(name);
    fill(&home);
    assert!(scene.run("snapshot mnt/home").ok().contains("/home of volume pool has no snapshots"));
    // The kernel notes that they are not there.
    assert!(fs::metadata(at("one")).is_err());
    let first = tree(&home);
    let said = scene.run("snapshot mnt/home one").ok();
    assert!(said.contains("snapshot one of /home of volume pool is made"), "{said}");
    assert!(said.contains("mnt/home/.snapshots/one"), "{said}");
    assert_same(&tree(&at("one")), &first);
    assert_eq!(
        fs::metadata(at("one/goes")).unwrap().ino(),
        fs::metadata(at("one/deep/link")).unwrap().ino()
    );

    change(&home, 1);
    assert_same(&tree(&at("one")), &first);
    sync(&home);
    let second = tree(&home);
    assert_same(&tree(&at("one")), &first);
    assert!(fs::metadata(at("two")).is_err());
    scene.run("snapshot mnt/home two").ok();
    assert_same(&tree(&at("two")), &second);
    change(&home, 2);
    sync(&home);
    change(&home, 3);
    sync(&home);
    let live = tree(&home);
    assert!(!live.keys().any(|name| name.contains(".snapshots")), "they are not listed");
    let inside = fs::read_dir(home.join(".snapshots")).unwrap();
    let mut inside: Vec<_> = inside.map(|entry| entry.unwrap().file_name()).collect();
    inside.sort();
    assert_eq!(inside, ["one", "two"]);
    assert_same(&tree(&at("one")), &first);
    assert_same(&tree(&at("two")), &second);

    let shown = listed(&scene, "mnt/home");
    assert_eq!(names(&shown), ["one", "two"]);
    assert_eq!((&shown[0]["folder"], &shown[0]["removing"]), (&"/home".into(), &false.into()));
    assert!(shown[0]["path"].as_str().unwrap().ends_with("mnt/home/.snapshots/one"), "{shown}");
    assert!(shown[0]["created"].as_i64().unwrap() > 1_700_000_000, "{shown}");
    assert_eq!(listed(&scene, "pool"), shown);
    assert_eq!(listed(&scene, "mnt"), shown);
    assert!(scene.run("snapshot pool").ok().contains("mnt/home/.snapshots/two"));
    let status = scene.status();
    assert_eq!(status["snapshots"], 2);
    assert!(status["snapshot_bytes"].as_u64().unwrap() > 500_000, "{status}");
    assert!(scene.run("status pool").ok().contains("2, which alone hold"));

    // A crash, then a stop in order.
    for round in 0..2 {
        match round {
            0 => kill(&scene),
            _ => {
                scene.unmount("pool");
                scene.run("mount pool mnt").ok();
            }
        }
        assert_same(&tree(&home), &live);
        assert_same(&tree(&at("one")), &first);
        assert_same(&tree(&at("two")), &second);
        assert_eq!(listed(&scene, "pool"), shown);
    }
    assert!(scene.run("check pool").ok().contains("no problems"));
    assert!(scene.run("scrub pool").ok().contains("all is as it was written"));

    scene.run("snapshot mnt/home one --remove --dry-run").ok();
    assert_same(&tree(&at("one")), &first);
    scene.run("snapshot mnt/home one --remove --yes").ok();
    assert!(fs::metadata(at("one")).is_err());
    assert_same(&tree(&at("two")), &second);
    assert_same(&tree(&home), &live);
    // A file is put back.
    fs::copy(at("two/large"), home.join("large")).unwrap();
    assert_eq!(fs::read(home.join("large")).unwrap(), second["large"].content);
    assert!(scene.run("check pool").ok().contains("no problems"));
    scene.unmount("pool");
}

#[test]
fn who_raises_copies_is_told_what_only_snapshots_have() {
    let Some(scene) = Scene::new(&["a", "b"]) else { return };
    scene.run("create pool a b").ok();
    scene.run("mount pool mnt").ok();
    scene.write_by_child("file", &bytes(MIB, 1));
    let said = scene.run("copies pool 2 --detach").ok();
    assert!(said.contains("2 copies started") && !said.contains("snapshots"), "{said}");
    scene.run("jobs pool --wait").ok();
    scene.run("snapshot mnt before").ok();
    scene.write_by_child("file", &bytes(MIB, 2));
    write_out(&scene.file(""));
    scene.run("copies pool 1").ok();
    let said = scene.run("copies pool 2 --detach").ok();
    assert!(said.contains("what snapshots alone hold (2 MiB) keeps the copies"), "{said}");
    scene.run("jobs pool --wait").ok();
    scene.unmount("pool");
}

#[test]
fn nothing_in_a_snapshot_can_be_changed() {
    let Some(scene) = Scene::new(&["a"]) else { return };
    scene.run("create pool a").ok();
    scene.run("mount pool mnt").ok();
    fs::create_dir_all(scene.file("home/folder")).unwrap();
    fs::write(scene.file("home/file"), "old").unwrap();
    scene.run("snapshot mnt/home daily").ok();
    let old = scene.file("home/.snapshots/daily");
    let write = |path: &Path| OpenOptions::new().write(true).open(path).map(|_| ());
    let mode = Permissions::from_mode(0o777);
    for (what, done) in [
        ("open to write", write(&old.join("file"))),
        ("make a file", fs::write(old.join("new"), "new")),
        ("make a folder", fs::create_dir(old.join("new"))),
        ("make a symbolic link", symlink("file", old.join("new"))),
        ("make a link", fs::hard_link(old.join("file"), old.join("new"))),
        ("rename", fs::rename(old.join("file"), old.join("new"))),
        ("remove a file", fs::remove_file(old.join("file"))),
        ("remove a folder", fs::remove_dir(old.join("folder"))),
        ("change the mode", fs::set_permissions(old.join("file"), mode.clone())),
        ("change the mode of the folder", fs::set_permissions(&old, mode)),
        (
            "set an attribute",
            setxattr(old.join("file"), "user.note", b"x", XattrFlags::empty())
                .map_err(std::io::Error::from),
        ),
        ("remove the snapshot", fs::remove_dir_all(&old)),
        ("make a snapshot by hand", fs::create_dir(scene.file("home/.snapshots/new"))),
        ("remove one by hand", fs::remove_dir(&old)),
    ] {
        let error = done.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem, "{what}: {error}");
    }
    assert_eq!(fs::read(old.join("file")).unwrap(), b"old");
    for done in [
        fs::rename(old.join("file"), scene.file("home/other")),
        fs::hard_link(old.join("file"), scene.file("home/other")),
        fs::rename(scene.file("home/file"), old.join("other")),
    ] {
        let error = done.unwrap_err();
        let refused = [ErrorKind::ReadOnlyFilesystem, ErrorKind::CrossesDevices];
        assert!(refused.contains(&error.kind()), "{error}");
    }
    let exists = fs::create_dir(scene.file("home/.snapshots")).unwrap_err();
    assert_eq!(exists.kind(), ErrorKind::AlreadyExists, "{exists}");

    // The folder has a border, and stays.
    fs::write(scene.file("beside"), "beside").unwrap();
    for done in [
        fs::rename(scene.file("beside"), scene.file("home/beside")),
        fs::rename(scene.file("home/file"), scene.file("file")),
        fs::hard_link(scene.file("home/file"), scene.file("file")),
    ] {
        assert_eq!(done.unwrap_err().kind(), ErrorKind::CrossesDevices);
    }
    let moved = Command::new("mv").arg(scene.file("beside")).arg(scene.file("home")).status();
    assert!(moved.unwrap().success());
    assert_eq!(fs::read(scene.file("home/beside")).unwrap(), b"beside");
    for name in ["beside", "file"] {
        fs::remove_file(scene.file("home").join(name)).unwrap();
    }
    fs::remove_dir(scene.file("home/folder")).unwrap();
    let busy = fs::remove_dir(scene.file("home")).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::ResourceBusy, "{busy}");
    scene.run("snapshot mnt/home daily --remove --yes").ok();
    wait_until("the snapshot is gone", || listed(&scene, "pool").as_array().unwrap().is_empty());
    fs::remove_dir(scene.file("home")).unwrap();
    assert!(scene.run("check pool").ok().contains("no problems"));
    scene.unmount("pool");
}

#[test]
fn a_removed_snapshot_gives_its_space_back() {
    let Some(scene) = Scene::new(&["a", "b"]) else { return };
    scene.run("create pool a b --stripe 128K").ok();
    scene.run("mount pool mnt").ok();
    fs::create_dir(scene.file("home")).unwrap();
    scene.run("quota mnt/home --limit 24M").ok();
    let used = || {
        write_out(&scene.file("home"));
        let space = rustix::fs::statvfs(scene.place.path("mnt")).unwrap();
        (space.f_blocks - space.f_bfree) * space.f_frsize
    };
    let near = |found: u64, wanted: u64| found.abs_diff(wanted) < 512 << 10;
    fs::write(scene.file("home/file"), bytes(16 * MIB, 1)).unwrap();
    fs::write(scene.file("home/stays"), bytes(4 * MIB, 2)).unwrap();
    let before = used();
    for round in 1..=3_u64 {
        let name = format!("round{round}");
        scene.run(&format!("snapshot mnt/home {name}")).ok();
        assert_eq!(used(), before, "a snapshot takes no space");
        assert_eq!(scene.status()["snapshot_bytes"], 0);
        match round {
            1 => fs::write(scene.file("home/file"), bytes(16 * MIB, 3)).unwrap(),
            2 => write_at(&scene.file("home/file"), 0, &bytes(16 * MIB, 4)),
            _ => fs::remove_file(scene.file("home/file")).unwrap(),
        }
        let held = if round == 3 { before - (16 << 20) } else { before };
        assert!(near(used(), held + (16 << 20)), "{} beside {held}", used());
        let alone = scene.status()["snapshot_bytes"].as_u64().unwrap();
        assert!(near(alone, 16 << 20), "{alone}");
        let quota: serde_json::Value =
            serde_json::from_str(&scene.run("quota mnt/home --json").ok()).unwrap();
        let counted = quota[0]["used"].as_u64().unwrap();
        assert!(near(counted, if round == 3 { 4 << 20 } else { 20 << 20 }), "{quota}");
        let old = bytes(16 * MIB, [1, 3, 4][round as usize - 1]);
        let kept = fs::read(scene.file(&format!("home/.snapshots/{name}/file"))).unwrap();
        assert!(kept == old, "round {round}");
        scene.run(&format!("snapshot mnt/home {name} --remove --yes")).ok();
        if round == 2 {
            kill(&scene);
        }
        wait_until("its space is free", || {
            scene.status()["snapshot_bytes"] == 0 && listed(&scene, "pool") == serde_json::json!([])
        });
        assert!(near(used(), held), "{} after {held}", used());
        assert!(scene.run("check pool").ok().contains("no problems"));
    }
    assert!(fs::read(scene.file("home/stays")).unwrap() == bytes(4 * MIB, 2));
    scene.unmount("pool");
}

#[test]
fn folders_within_folders_and_the_whole_volume_have_snapshots() {
    let Some(scene) = Scene::new(&["a"]) else { return };
    scene.run("create pool a").ok();
    scene.run("mount pool mnt").ok();
    fs::create_dir_all(scene.file("home/anna")).unwrap();
    fs::write(scene.file("home/anna/letter"), "first").unwrap();
    fs::write(scene.file("home/list"), "first").unwrap();
    scene.run("snapshot mnt/home/anna same").ok();
    fs::write(scene.file("home/anna/letter"), "second").unwrap();
    scene.run("snapshot mnt/home same").ok();
    fs::write(scene.file("home/anna/letter"), "third").unwrap();
    scene.run("snapshot pool same").ok();
    fs::write(scene.file("home/anna/letter"), "fourth").unwrap();
    let read = |name: &str| fs::read_to_string(scene.file(name)).unwrap();
    assert_eq!(read("home/anna/.snapshots/same/letter"), "first");
    assert_eq!(read("home/.snapshots/same/anna/letter"), "second");
    assert_eq!(read(".snapshots/same/home/anna/letter"), "third");
    assert_eq!(read("home/anna/letter"), "fourth");
    let of = |path: &str| {
        let listed = listed(&scene, path);
        let all = listed.as_array().unwrap().iter();
        all.map(|one| one["folder"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(of("pool"), ["/home/anna", "/home", "/"]);
    assert_eq!(of("mnt/home"), ["/home/anna", "/home"]);
    assert_eq!(of("mnt/home/anna"), ["/home/anna"]);
    scene.run("snapshot mnt same --remove --yes").ok();
    assert_eq!(read("home/.snapshots/same/anna/letter"), "second");
    scene.run("snapshot mnt/home/anna same --remove --yes").ok();
    assert_eq!(read("home/.snapshots/same/anna/letter"), "second");
    assert!(fs::metadata(scene.file("home/anna/.snapshots/same")).is_err());
    scene.run("snapshot mnt same").ok();
    scene.run("snapshot mnt/home/anna same").ok();
    assert_eq!(read(".snapshots/same/home/anna/letter"), "fourth");
    assert_eq!(read("home/anna/.snapshots/same/letter"), "fourth");
    assert!(scene.run("check pool").ok().contains("no problems"));
    scene.unmount("pool");
}

#[test]
fn what_cannot_have_a_snapshot_is_refused_with_the_reason() {
    let Some(scene) = Scene::new(&["a"]) else { return };
    scene.run("create pool a").ok();
    scene.run("mount pool mnt").ok();
    fs::create_dir(scene.file("folder")).unwrap();
    fs::create_dir(scene.place.path("elsewhere")).unwrap();
    fs::write(scene.file("file"), "x").unwrap();
    fs::create_dir_all(scene.file("own/.snapshots/below")).unwrap();
    fs::create_dir(scene.file("linked")).unwrap();
    fs::hard_link(scene.file("file"), scene.file("linked/file")).unwrap();
    scene.run("snapshot mnt/folder first").ok();
    scene.run("snapshot mnt/own/.snapshots/below first").ok();
    scene.run("snapshot mnt/own/.snapshots/below first --remove --yes").ok();
    for (words, says) in [
        (&["./elsewhere", "new"][..], "is on no volume that is mounted here; mounted: pool at"),
        (&["./elsewhere"], "is on no volume"),
        (&["other", "new"], "no volume other is mounted here"),
        (&["mnt/nowhere", "new"], "no such file"),
        (&["mnt/file", "new"], "not a directory"),
        (&["mnt/folder/.snapshots/first", "new"], "is in a snapshot"),
        (&["mnt/folder/.snapshots", "new"], "is in a snapshot"),
        (&["mnt/folder", "first"], "has a snapshot first already"),
        (&["mnt/own", "new"], "something named .snapshots"),
        (&["mnt/linked", "new"], "has a name outside of the folder"),
        (&["mnt/folder", ""], "needs a name"),
        (&["mnt/folder", "."], "cannot be called ."),
        (&["mnt/folder", ".."], "cannot be called .."),
        (&["mnt/folder", "a/b"], "no slash"),
        (&["mnt/folder", "a\tb"], "control character"),
        (&["mnt/folder", &"x".repeat(256)], "256 bytes"),
        (&["mnt/folder", "second", "--remove", "--yes"], "it has first"),
        (&["mnt/folder", "second", "--remove", "--dry-run"], "it has first"),
        (&["mnt/folder", "first", "--remove"], "--yes does it"),
        (&["mnt", "first", "--remove", "--yes"], "/ of volume pool has no snapshots"),
        (&["mnt/folder/.snapshots/first", "first", "--remove", "--yes"], "is in a snapshot"),
        (&["mnt/file", "first", "--remove", "--yes"], "has no snapshots"),
    ] {
        let ran = scene.place.braid(&[&["volume", "snapshot"], words].concat());
        assert_ne!(ran.code, 0, "{words:?}: {}", ran.out);
        assert!(ran.err.contains(says), "{words:?}: {}", ran.err);
        assert!(!ran.err.contains("panicked"), "{words:?}: {}", ran.err);
    }
    assert_eq!(names(&listed(&scene, "mnt/folder")), ["first"]);
    let longest = "x".repeat(255);
    scene.place.braid(&["volume", "snapshot", "mnt/folder", &longest]).ok();
    scene.place.braid(&["volume", "snapshot", "mnt/folder", "with spaces, ä"]).ok();
    assert_eq!(names(&listed(&scene, "mnt/folder")), ["first", &longest, "with spaces, ä"]);
    assert!(fs::metadata(scene.file("folder/.snapshots/with spaces, ä")).unwrap().is_dir());
    scene.unmount("pool");
    scene.run("mount pool mnt --read-only").ok();
    assert!(fs::metadata(scene.file("folder/.snapshots/first")).unwrap().is_dir());
    for words in ["snapshot mnt/folder new", "snapshot mnt/folder first --remove --yes"] {
        let ran = scene.run(words);
        assert!(ran.code == 2 && ran.err.contains("read-only"), "{words}: {}", ran.err);
    }
    scene.unmount("pool");
}

#[test]
fn snapshots_under_load_are_as_they_were_after_each_crash() {
    let Some(scene) = Scene::new(&["a", "b", "c"]) else { return };
    scene.run("create pool a b c --copies 2").ok();
    scene.run("mount pool mnt").ok();
    let home = scene.file("home");
    fs::create_dir(&home).unwrap();
    let mut kept: BTreeMap<String, BTreeMap<String, Seen>> = BTreeMap::new();
    for round in 0..6_u64 {
        let folder = home.clone();
        let writer = std::thread::spawn(move || {
            for step in round * 1_000_000.. {
                let path = folder.join(format!("file{}", step * 7 % 5));
                let written = match step % 11 {
                    0 => fs::write(&path, bytes(20_000, step)),
                    1 => fs::remove_file(&path),
                    2 => fs::rename(&path, folder.join("file0")),
                    3 => OpenOptions::new().write(true).open(&path).and_then(|file| {
                        file.set_len(step * 4099 % 700_000)?;
                        file.sync_all()
                    }),
                    _ => OpenOptions::new()
                        .write(true)
                        .create(true)
                        .truncate(false)
                        .open(&path)
                        .and_then(|file| {
                            file.write_all_at(&bytes(30_000, step), step * 37_003 % 600_000)
                        }),
                };
                match written {
                    Err(error) if error.kind() != ErrorKind::NotFound => break,
                    _ => {}
                }
            }
        });
        for part in ["a", "b"] {
            std::thread::sleep(Duration::from_millis(60 + 30 * round));
            let name = format!("{part}{round}");
            scene.run(&format!("snapshot mnt/home {name}")).ok();
            kept.insert(name.clone(), tree(&home.join(".snapshots").join(&name)));
        }
        if round > 1 {
            let oldest = format!("a{}", round - 2);
            scene.run(&format!("snapshot mnt/home {oldest} --remove --yes")).ok();
            kept.remove(&oldest);
        }
        kill_process(scene.server(), Signal::KILL).unwrap();
        writer.join().unwrap();
        wait_until("the locks are gone", || scene.run("mount pool mnt").code == 0);
        let mut shown = names(&listed(&scene, "pool"));
        shown.retain(|name| kept.contains_key(name));
        assert_eq!(shown.len(), kept.len(), "round {round}: {shown:?}");
        for (name, wanted) in &kept {
            assert_same(&tree(&home.join(".snapshots").join(name)), wanted);
        }
        assert!(scene.run("check pool").ok().contains("no problems"), "round {round}");
    }
    assert!(scene.run("scrub pool").ok().contains("all is as it was written"));
    scene.unmount("pool");
}
