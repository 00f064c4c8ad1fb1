//! `serve --fuse`: an array as files, by which scripts made for md look at it and work with it.

use crate::support::{self, Place};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Three members, one array, its view at `view`.
fn served(place: &Place) -> support::Server {
    place.members(&["a", "b", "c", "d"]);
    place.run("create vault -l 5 -n 3 -c 64K --assume-clean a b c").ok();
    fs::create_dir(place.path("view")).unwrap();
    place.serve("a b c --fuse view")
}

fn read(place: &Place, path: &str) -> String {
    fs::read_to_string(place.path("view").join(path)).unwrap().trim_end().to_string()
}

fn write(place: &Place, path: &str, value: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(place.path("view").join(path))?;
    file.write_all(format!("{value}\n").as_bytes())
}

#[track_caller]
fn comes_to(place: &Place, path: &str, value: &str) {
    let patience = Instant::now() + Duration::from_secs(30);
    while read(place, path) != value {
        assert!(Instant::now() < patience, "{path} is {:?}, not {value:?}", read(place, path));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_script_made_for_md_reads_the_state_and_changes_it() {
    let place = Place::new();
    let server = served(&place);
    assert!(server.said.contains("view/vault/data"), "{}", server.said);
    let mdstat = read(&place, "mdstat");
    assert!(mdstat.contains("vault : active raid5 a[0] b[1] c[2]\n"), "{mdstat}");
    assert!(mdstat.contains("level 5, 64k chunk, algorithm 2 [3/3] [UUU]\n"), "{mdstat}");
    for (attribute, value) in [
        ("level", "raid5"),
        ("raid_disks", "3"),
        ("chunk_size", "65536"),
        ("degraded", "0"),
        ("sync_action", "idle"),
        ("dev-b/state", "in_sync"),
        ("rd1/slot", "1"),
    ] {
        assert_eq!(read(&place, &format!("vault/md/{attribute}")), value, "{attribute}");
    }
    write(&place, "vault/md/stripe_cache_size", "300").unwrap();
    assert_eq!(read(&place, "vault/md/stripe_cache_size"), "300");
    assert!(place.run("get vault").ok().contains("300"));
    write(&place, "vault/md/sync_action", "check").unwrap();
    comes_to(&place, "vault/md/last_sync_action", "check");
    comes_to(&place, "vault/md/sync_action", "idle");
    assert_eq!(read(&place, "vault/md/mismatch_cnt"), "0");
    write(&place, "vault/md/dev-a/state", "faulty").unwrap();
    comes_to(&place, "vault/md/degraded", "1");
    // As a monitoring script finds arrays that lack a member.
    let script = r"awk '/^[a-z]+ : / { name = $1 } /\[[U_]*_[U_]*\]/ { print name }' view/mdstat";
    assert_eq!(place.tool("sh", &["-c", script]).ok(), "vault\n");
    assert_eq!(
        write(&place, "vault/md/dev-b/state", "faulty").unwrap_err().raw_os_error(),
        Some(16)
    );
    write(&place, "vault/md/dev-a/state", "remove").unwrap();
    assert!(!place.path("view/vault/md/dev-a").exists());
    place.run("add vault d").ok();
    comes_to(&place, "vault/md/degraded", "0");
    write(&place, "vault/md/array_state", "clear").unwrap();
    server.ended().ok();
    assert!(fs::read_dir(place.path("view")).unwrap().next().is_none());
}

#[test]
fn the_bytes_of_an_array_are_a_file_beside_its_other_doors() {
    let place = Place::new();
    let server = served(&place);
    let data = place.data("in", 3 << 20);
    let size = place.detail("vault")["array_size"].as_u64().unwrap();
    assert_eq!(read(&place, "vault/size"), (size / 512).to_string());
    place.tool("dd", &["if=in", "of=view/vault/data", "bs=777777", "conv=notrunc,fsync"]).ok();
    assert_eq!(&place.copy_out("vault")[..data.len()], &data);
    // A write through another door is seen at once.
    let file =
        OpenOptions::new().read(true).write(true).open(place.path("view/vault/data")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), size);
    let mut found = vec![0; data.len()];
    file.read_exact_at(&mut found, 0).unwrap();
    place.data("in", 1 << 20);
    fs::write(place.path("in"), vec![7; 1 << 20]).unwrap();
    place.copy_in("in", "vault");
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found[..1 << 20].iter().all(|byte| *byte == 7) && found[1 << 20..] == data[1 << 20..]);
    // It is in use, and says by whom.
    assert!(place.run("detail vault").ok().contains("view/vault/data"));
    place.run("stop vault").refused(2, &["used by clients", "view/vault/data"]);
    drop(file);
    place.run("stop vault").ok();
    server.ended().ok();
}

#[test]
fn a_folder_that_cannot_be_mounted_at_is_refused_before_anything_is_served() {
    let place = Place::new();
    place.members(&["a", "b"]);
    place.run("create vault -l 1 -n 2 --assume-clean a b").ok();
    place.run("serve a b --fuse nowhere").refused(2, &["nowhere", "mkdir"]);
}
