//! `braid create` and `braid examine`: what is shown, what is refused, what is written.

use crate::support::{MEMBER, Place, damage};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
use std::fs;

const SHAPE: &str = "--level 5 --raid-devices 3 --chunk 64K";

#[test]
fn every_verb_has_help() {
    let place = Place::new();
    let overview = place.run("--help").ok();
    for verb in [
        "create", "serve", "examine", "detail", "fail", "remove", "add", "check", "repair", "wait",
        "speed", "stop", "bench", "demo",
    ] {
        assert!(overview.contains(&format!("  {verb} ")), "{verb}");
        assert!(place.run(&format!("{verb} --help")).ok().contains("Usage:"), "{verb}");
    }
    assert!(overview.contains("Exit codes:"));
    assert!(place.run("assemble --help").ok().contains("--nbd"));
}

#[test]
fn a_new_array_is_what_mdadm_expects() {
    let place = Place::new();
    place.members(&["a", "b", "c", "d"]);
    let said = place.run(&format!("create data {SHAPE} -x 1 --homehost host a b c d")).ok();
    for words in ["nothing", "raid5, 30 MiB", "chunk 64K", "left-symmetric", "starts a resync"] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    let a = place.examined("a");
    assert_eq!(a["name"], "host:data");
    assert_eq!((&a["slot"], &a["state"]), (&0.into(), &"active".into()));
    assert_eq!(place.examined("d")["role"], "spare");
    let theirs = place.tool("mdadm", &["--examine", "b"]).ok();
    for line in [
        "Name : host:data",
        "Raid Level : raid5",
        "Chunk Size : 64K",
        "Active device 1",
        "- correct",
    ] {
        assert!(theirs.contains(line), "{line:?} is not in {theirs}");
    }
    let ours = place.run("examine b").ok();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(name));
        line.map(|line| line.split_once(" : ").unwrap().1.to_string())
    };
    for name in [
        "Magic",
        "Version",
        "Feature Map",
        "Array UUID",
        "Raid Level",
        "Raid Devices",
        "Avail Dev Size",
        "Array Size",
        "Data Offset",
        "Super Offset",
        "State",
        "Device UUID",
        "Events",
        "Layout",
        "Chunk Size",
        "Device Role",
        "Array State",
    ] {
        assert_eq!(field(&ours, name), field(&theirs, name), "{name}\n{ours}\n{theirs}");
    }
}

/// A syscall of the kernel's ABI, by architecture-independent number: io_uring's are the same everywhere.
const IO_URING_ENTER: i64 = 426;

#[test]
fn a_filter_that_denies_io_uring_is_named_rather_than_hung_on() {
    let place = Place::new();
    place.members(&["a", "b", "c"]);
    let filtered = std::thread::spawn(move || {
        let arch: TargetArch = std::env::consts::ARCH.try_into().unwrap();
        let denied = SeccompAction::Errno(rustix::io::Errno::PERM.raw_os_error() as u32);
        let rules = [(IO_URING_ENTER, vec![])].into_iter().collect();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, arch).unwrap();
        let program: BpfProgram = filter.try_into().unwrap();
        // Of this thread, which the program inherits it from.
        apply_filter(&program).unwrap();
        for line in [format!("create data {SHAPE} a b c"), "serve a b c --nbd unix:n.sock".into()] {
            place.run(&line).refused(2, &["io_uring_enter is not permitted here", "seccomp"]);
        }
    });
    filtered.join().unwrap();
}

#[test]
fn a_dry_run_writes_nothing() {
    let place = Place::new();
    place.members(&["a", "b", "c"]);
    let said = place.run(&format!("create data {SHAPE} --dry-run a b c")).ok();
    assert!(said.contains("nothing was written"), "{said}");
    assert!(fs::read(place.path("a")).unwrap().iter().all(|byte| *byte == 0));
    let json = place.run(&format!("create data {SHAPE} --dry-run --json a b c")).ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["dry_run"], &json["raid_devices"]), (&true.into(), &3.into()));
}

#[test]
fn a_file_system_is_shown_and_kept_unless_forced() {
    let place = Place::new();
    place.members(&["a", "b", "c"]);
    place.tool("mkfs.ext4", &["-q", "-F", "-L", "precious", "b"]).ok();
    let before = fs::read(place.path("b")).unwrap();
    let ran = place.run(&format!("create data {SHAPE} a b c"));
    assert!(ran.out.contains("ext4") && ran.out.contains("precious"), "{}", ran.out);
    ran.refused(2, &["would destroy", "precious", "--force"]);
    assert_eq!(fs::read(place.path("b")).unwrap(), before);
    assert!(fs::read(place.path("a")).unwrap().iter().all(|byte| *byte == 0));

    place.run(&format!("create data {SHAPE} --force a b c")).ok();
    let seen = place.run(&format!("create data {SHAPE} a b c"));
    assert!(!seen.out.contains("ext4") && seen.out.contains("md array"), "{}", seen.out);
}

#[test]
fn a_member_of_another_array_is_kept_and_serve_is_offered() {
    let place = Place::new();
    place.members(&["a", "b", "c"]);
    place.run(&format!("create data {SHAPE} a b c")).ok();
    let uuid = place.examined("a")["array_uuid"].clone();
    place
        .run("create other -l 1 -n 2 a b")
        .refused(2, &["member of an md array", "data", "braid serve"]);
    assert_eq!(place.examined("a")["array_uuid"], uuid);
    place.run("create other -l 1 -n 2 --force a b").ok();
    assert_ne!(place.examined("a")["array_uuid"], uuid);
    assert_eq!(place.examined("c")["array_uuid"], uuid);
}

#[test]
fn what_cannot_be_an_array_is_refused_before_anything_is_written() {
    let place = Place::new();
    place.members(&["a", "b", "c"]);
    fs::write(place.path("tiny"), [0; 4096]).unwrap();
    fs::create_dir(place.path("folder")).unwrap();
    for (words, says) in [
        ("data -n 3 a b c", "--level"),
        ("data -l 5 a b c", "--raid-devices"),
        ("data -l 5 -n 2 a b c", "3 members were given for 2 slots"),
        ("data -l 6 -n 3 a b c", "at least 4"),
        ("data -l 5 -n 3 a b missing --chunk 3K", "power of two"),
        ("data -l 5 -n 3 a missing missing", "missing"),
        ("data -l 0 -n 2 -x 1 a b c", "no redundancy"),
        ("data -l 5 -n 3 a b a", "given twice"),
        ("data -l 5 -n 3 a b ./a", "given twice"),
        ("data -l 5 -n 3 a b gone", "gone"),
        ("data -l 5 -n 3 a b tiny", "tiny"),
        ("data -l 5 -n 3 a b folder", "directory"),
        ("data -l 5 -n 3 -p sideways a b c", "left-symmetric"),
        ("data -l 1 -n 2 -p n2 a b", "no layouts"),
        ("data -l 5 -n 3 -z 1G a b c", "ask for less"),
        ("data -l 5 -n 3 -e 0.91 a b c", "1.2"),
        ("data -l 5 -n 3 rom:1G b c", "ram:SIZE"),
        ("/dev/md0 -l 5 -n 3 a b c", "write \"md0\""),
        ("name-that-is-much-too-long-for-a-superblock -l 5 -n 3 a b c", "shorter"),
        ("data -l 5 -n 3 --homehost a:b a b c", "homehost"),
    ] {
        place.run(&format!("create {words}")).refused(2, &[says]);
    }
    assert!(fs::read(place.path("a")).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn unequal_members_are_warned_about() {
    let place = Place::new();
    place.members(&["a", "b"]);
    fs::File::create(place.path("c")).unwrap().set_len(MEMBER * 2).unwrap();
    let ran = place.run(&format!("create data {SHAPE} a b c"));
    assert!(ran.err.contains("only as much as the smallest"), "{}", ran.err);
    ran.ok();
}

#[test]
fn examine_says_what_is_wrong_with_a_member() {
    let place = Place::new();
    place.members(&["a", "b", "c", "none"]);
    place.run(&format!("create data {SHAPE} a b c")).ok();
    damage(&place.path("b"), 4096 + 100);
    place.run("examine b").refused(2, &["checksum"]);
    place.run("examine none").refused(2, &["no md superblock"]);
    let ran = place.run("examine a gone none");
    assert!(ran.out.contains("Array UUID"), "{}", ran.out);
    ran.refused(4, &["gone", "no md superblock"]);
    let json = place.run("examine --json a b gone");
    let reports: Vec<serde_json::Value> = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json.code, 4);
    assert_eq!(reports[0]["level"], "raid5");
    assert!(reports[1]["error"].as_str().unwrap().contains("checksum"));
    assert!(reports[2]["error"].is_string());
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::new();
    place.members(&["a", "b", "c"]);
    place.run(&format!("create data {SHAPE} a b c")).ok();
    let mut command = place.command(&["examine", "a", "b", "c"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert!(command.stdout(writer).status().unwrap().success());
}
