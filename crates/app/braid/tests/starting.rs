//! `braid serve` starts what it can, names what it cannot, and looks for the rest.

mod support;

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use std::fs::{self, File};
use support::{Place, Server, damage};

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
