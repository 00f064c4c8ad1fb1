//! `braid serve` starts what it can, names what it cannot, and looks for the rest.

use crate::support::{self, Place, Server, damage};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use std::fs::{self, File};

/// A RAID5 of a to c with a bitmap, and a mirror of e and f.
fn two_arrays(place: &Place) {
    place.members(&["a", "b", "c", "e", "f"]);
    place.run("create data -l 5 -n 3 -c 64K --assume-clean --bitmap internal a b c").ok();
    place.run("create mirror -l 1 -n 2 --assume-clean e f").ok();
}

/// Asks until the array is as wanted.
#[track_caller]
fn until(place: &Place, line: &str, wanted: impl Fn(i32) -> bool) {
    for _ in 0..3000 {
        if wanted(place.run(line).code) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("{line}: it did not come to it");
}

fn end(server: Server) -> support::Ran {
    server.signal(Signal::TERM);
    server.ended()
}

#[test]
fn an_absent_member_keeps_no_other_array_from_starting_and_is_looked_for() {
    let place = Place::new();
    two_arrays(&place);
    fs::rename(place.path("c"), place.path("away")).unwrap();
    let server = place.serve("a b c e f");
    assert!(server.said.contains("array mirror"), "{}", server.said);
    assert!(!server.said.contains("array data"), "{}", server.said);
    place.run("detail data").refused(4, &["no array \"data\""]);
    let data = place.data("in", 1 << 20);
    place.copy_in("in", "mirror");
    // What waits is free for others.
    place.run("examine a").ok();
    fs::rename(place.path("away"), place.path("c")).unwrap();
    until(&place, "detail --test data", |code| code == 0);
    place.copy_in("in", "data");
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    let ran = end(server);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for words in ["c: No such file", "looking for it", "array data is not started", "--run"] {
        assert!(ran.err.contains(words), "{words:?} is not in {}", ran.err);
    }
}

#[test]
fn a_member_that_returns_is_taken_back_by_its_array() {
    let place = Place::new();
    two_arrays(&place);
    fs::rename(place.path("c"), place.path("away")).unwrap();
    let server = place.serve("a b c e f --run");
    assert_eq!(place.run("detail --test data").code, 1);
    let data = place.data("in", 1 << 20);
    place.copy_in("in", "data");
    fs::rename(place.path("away"), place.path("c")).unwrap();
    until(&place, "detail --test data", |code| code == 0);
    assert!(place.run("check --wait data").ok().contains("0 sectors mismatched"));
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    let ran = end(server);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("was re-added to array data"), "{}", ran.err);
}

#[test]
fn damaged_and_busy_members_are_named_and_the_rest_is_served() {
    let place = Place::new();
    two_arrays(&place);
    damage(&place.path("c"), 4096 + 60);
    let busy = File::open(place.path("b")).unwrap();
    flock(&busy, FlockOperation::LockExclusive).unwrap();
    place.members(&["blank"]);
    let before: Vec<Vec<u8>> =
        ["a", "e"].iter().map(|name| fs::read(place.path(name)).unwrap()).collect();
    let line = "serve a b c e f blank --nbd unix:nbd.sock --strict";
    place.run(line).refused(2, &["checksum", "in use", "blank: no md superblock", "--strict"]);
    for (name, before) in ["a", "e"].iter().zip(&before) {
        assert!(fs::read(place.path(name)).unwrap() == *before, "{name} was written to");
    }
    let server = place.serve("a b c e f blank --run");
    assert_eq!(place.run("detail --test mirror").code, 0);
    // The one that was busy is free now: with it two of three are there, which --run allows.
    drop(busy);
    until(&place, "detail --test data", |code| code == 1);
    let ran = end(server);
    assert_eq!(ran.code, 1, "{}", ran.err);
    for words in ["checksum", "in use", "blank: no md superblock", "missing to the end"] {
        assert!(ran.err.contains(words), "{words:?} is not in {}", ran.err);
    }
    // A strict start of what is whole is a start.
    let server = place.serve("e f --strict");
    assert_eq!(end(server).code, 0);
}

#[test]
fn halves_that_ran_apart_are_named_and_the_rest_is_served() {
    let place = Place::new();
    two_arrays(&place);
    for half in ["e", "f"] {
        let server = place.serve(&format!("{half} --run"));
        place.data("in", 4096);
        place.copy_in("in", "mirror");
        end(server).ok();
    }
    let server = place.serve("a b c e f");
    assert_eq!(place.run("detail --test data").code, 0);
    let ran = end(server);
    assert_eq!(ran.code, 1, "{}", ran.err);
    for words in ["ran apart", "side 1: ", "/e (slot 0", "/f (slot 1", "braid add mirror "] {
        assert!(ran.err.contains(words), "{words:?} is not in {}", ran.err);
    }
}

/// Serves a to c and kills the server while its array is being written.
fn killed_while_written(place: &Place) {
    for _ in 0..20 {
        let server = place.serve("a b c");
        std::thread::scope(|scope| {
            let copying = scope.spawn(|| {
                let copy = || place.tool("nbdcopy", &["--flush", "content", &place.uri("data")]);
                while copy().code == 0 {}
            });
            std::thread::sleep(std::time::Duration::from_millis(300));
            server.signal(Signal::KILL);
            drop(server);
            copying.join().expect("nbdcopy is there");
        });
        // Between two copies it may be clean on a busy machine.
        if place.examined("b")["state"] != "clean" {
            return;
        }
    }
    panic!("it is never killed while it is written");
}

#[test]
fn what_a_start_by_force_leaves_in_doubt_is_listed_until_somebody_accepts_it() {
    let place = Place::new();
    place.members(&["a", "b", "c"]);
    place.run("create data -l 5 -n 3 -c 64K --bitmap internal --bitmap-chunk 64K --assume-clean a b c").ok();
    place.data("content", 64 << 10);
    killed_while_written(&place);
    let refused = place.run("serve b c --run --strict --nbd unix:nbd.sock");
    // The first chunk is written, that of the member which is not there; the bitmap is new, and names others too.
    refused.refused(2, &["write hole", "bytes of the array from byte 0 on", "--force"]);
    let looked = place.run("examine --assemble b c");
    assert!(!looked.err.contains("started by force"), "{}", looked.err);
    // Force says more than --run does.
    let server = place.serve("b c --force");
    let doubt = |place: &Place| place.detail("data")["in_doubt"]["places"].clone();
    let places = doubt(&place);
    assert_eq!(
        (places[0]["offset"].as_u64(), places[0]["length"].as_u64()),
        (Some(0), Some(65536))
    );
    place.run("stop data").ok();
    assert!(server.ended().err.contains("write hole"));
    // It stays.
    let _server = place.serve("b c --run");
    let line = "bytes 0 to 65536: in doubt";
    for words in ["detail data", "check data --last"] {
        let told = place.run(words).out;
        assert!(told.contains(line), "{words}: {told}");
    }
    let said = place.run("check data --accept-doubt").ok();
    assert!(said.contains("nothing is in doubt"), "{said}");
    place.run("check data --accept-doubt").refused(2, &["nothing is in doubt on array data"]);
    let last = place.run("check data --last");
    last.refused(2, &["has not been checked on this machine", "nothing is in doubt"]);
    assert!(doubt(&place).is_null());
    assert!(!place.run("detail data").out.contains(line));
}
