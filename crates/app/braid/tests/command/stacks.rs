//! Arrays made of arrays: made, served again from a heap of members, taken apart.

use crate::support::{Place, Server};
use rustix::process::Signal;
use std::path::Path;

const HEAP: &str = "a0 a1 a2 b0 b1 b2";

/// Two mirrors of three, m0 and m1, served.
fn mirrors(place: &Place) -> Server {
    place.members(&["a0", "a1", "a2", "b0", "b1", "b2"]);
    place.run("create m0 -l 1 -n 3 --assume-clean a0 a1 a2").ok();
    place.run("create m1 -l 1 -n 3 --assume-clean b0 b1 b2").ok();
    place.serve(HEAP)
}

fn exports(place: &Place, array: &str) -> usize {
    place.detail(array)["exports"].as_array().map_or(0, Vec::len)
}

#[test]
fn a_stripe_over_mirrors_takes_the_place_of_the_mirrors_and_is_found_again() {
    let place = Place::new();
    let server = mirrors(&place);
    assert_eq!((exports(&place, "m0"), exports(&place, "m1")), (1, 1));
    let planned = place.run("create top -l 0 -n 2 -c 64K array:m0 array:m1 --dry-run").ok();
    assert!(planned.contains("would be created"), "{planned}");
    assert_eq!(exports(&place, "m0"), 1);
    let made = place.run("create top -l 0 -n 2 -c 64K array:m0 array:m1").ok();
    assert!(made.contains("it runs"), "{made}");
    assert_eq!((exports(&place, "m0"), exports(&place, "top")), (0, 1));
    let data = place.data("in", 8 << 20);
    place.copy_in("in", "top");

    let text = place.run("detail top").ok();
    for line in ["├─ array:m0: raid1", "│  ├─ ", "└─ array:m1: raid1", "   └─ ", "(active sync)"]
    {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
    assert_eq!(place.detail("top")["members"][0]["array"]["members"][2]["state"], "active sync");
    place.run("fail m0 a1").ok();
    place.run("fail m1 b0").ok();
    assert_eq!(place.detail("top")["degraded"], 0);
    let text = place.run("detail top").ok();
    assert!(text.contains("array:m0: raid1") && text.contains("degraded"), "{text}");
    assert_eq!(&place.copy_out("top")[..data.len()], &data);
    server.signal(Signal::TERM);
    server.ended().ok();

    let server = place.serve(HEAP);
    assert!(server.said.contains("array top: raid0"), "{}", server.said);
    assert!(!server.said.contains("nbd+unix:///m0"), "{}", server.said);
    assert_eq!(&place.copy_out("top")[..data.len()], &data);
    server.signal(Signal::TERM);
    server.ended().ok();

    let server = place.serve(&format!("{HEAP} --read-only"));
    assert_eq!(exports(&place, "m0"), 0);
    assert_eq!(&place.copy_out("top")[..data.len()], &data);
    server.signal(Signal::TERM);
    server.ended().ok();
    let server = place.serve(&format!("{HEAP} --stack never"));
    assert!(!server.said.contains("array top"), "{}", server.said);
    server.signal(Signal::TERM);
    server.ended().ok();
}

#[test]
fn what_an_array_is_made_of_is_neither_stopped_nor_used_twice() {
    let place = Place::new();
    let server = mirrors(&place);
    place.run("create top -l 0 -n 2 -c 64K array:m0 array:m1").ok();
    place.run("stop m0").refused(2, &["m0 is a member of array top", "stop top first"]);
    place
        .run("create other -l linear -n 1 array:m0")
        .refused(2, &["m0 is a member of array top already"]);
    place.run("create top -l linear -n 1 array:m0").refused(2, &["is running here already"]);
    place.run("add m1 array:top").refused(2, &["top cannot be a member of array m1"]);
    place.run("create odd -l 1 -n 2 array:top array:nothing").refused(4, &["no array \"nothing\""]);
    assert_eq!(exports(&place, "top"), 1);
    let said = place.run("stop top").ok();
    assert!(said.contains("stopped: top; what it was made of still runs"), "{said}");
    assert_eq!((exports(&place, "m0"), exports(&place, "m1")), (1, 1));
    place.run("create top -l 0 -n 2 array:m0 array:m1").refused(2, &["array:m0", "--force"]);
    server.signal(Signal::TERM);
    server.ended().ok();
}

#[test]
fn an_array_replaces_an_array_that_was_lost() {
    let place = Place::new();
    place.members(&["a0", "a1", "b0", "b1", "c0", "c1"]);
    for (name, members) in [("s0", "a0 a1"), ("s1", "b0 b1"), ("s2", "c0 c1")] {
        place.run(&format!("create {name} -l 0 -n 2 -c 64K {members}")).ok();
    }
    let server = place.serve("a0 a1 b0 b1 c0 c1");
    place.run("create top -l 1 -n 2 --assume-clean array:s0 array:s1").ok();
    let data = place.data("in", 4 << 20);
    place.copy_in("in", "top");
    place.run("fail top array:s0").ok();
    place.run("add top array:s2").ok();
    place.run("wait top").ok();
    place.run("remove top array:s0").ok();
    assert_eq!((exports(&place, "s0"), exports(&place, "s2")), (1, 0));
    assert!(place.run("check --wait top").ok().contains("0 sectors mismatched"));
    assert_eq!(&place.copy_out("top")[..data.len()], &data);
    assert_eq!(place.detail("top")["degraded"], 0);
    server.signal(Signal::TERM);
    server.ended().ok();
}

#[test]
fn an_array_of_another_machine_on_an_exported_one_is_left_to_it() {
    let place = Place::new();
    let server = mirrors(&place);
    place.run("create guest -l 0 -n 2 -c 64K --homehost elsewhere array:m0 array:m1").ok();
    server.signal(Signal::TERM);
    server.ended().ok();
    let server = place.serve(HEAP);
    assert!(!server.said.contains("array guest"), "{}", server.said);
    assert_eq!((exports(&place, "m0"), exports(&place, "m1")), (1, 1));
    server.signal(Signal::TERM);
    let notes = server.ended().err;
    assert!(notes.contains("elsewhere:guest") && notes.contains("--stack always"), "{notes}");
    let server = place.serve(&format!("{HEAP} --stack always"));
    assert!(server.said.contains("array guest"), "{}", server.said);
    server.signal(Signal::TERM);
    server.ended().ok();
}

#[test]
fn array_members_need_the_server_that_runs_them() {
    let place = Place::new();
    place.run("create top -l 0 -n 2 array:m0 array:m1").refused(4, &["no server is running"]);
    place.run("serve array:m0 --nbd unix:nbd.sock").refused(2, &["the server that runs it"]);
    assert!(!Path::new("nbd.sock").exists());
}
