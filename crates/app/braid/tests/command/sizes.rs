//! `braid grow` with sizes on the command line: members that have become larger, and what clients see.

use crate::support::{self, Place};
use std::fs::OpenOptions;

#[test]
fn an_array_uses_members_that_have_become_larger_while_it_runs() {
    let place = Place::new();
    place.members(&["a", "b", "c"]);
    place.run("create data -l 5 -n 3 -c 64K --bitmap internal --bitmap-chunk 64K a b c").ok();
    let server = place.serve("a b c");
    place.run("wait data").ok();
    let data = place.data("in", 2 << 20);
    place.copy_in("in", "data");
    let before = place.detail("data");
    let said = place.run("grow data --size max").ok();
    assert!(said.contains("nothing to do"), "{said}");
    for name in ["a", "b", "c"] {
        let file = OpenOptions::new().write(true).open(place.path(name)).unwrap();
        file.set_len(2 * support::MEMBER).unwrap();
    }
    let would = place.run("grow data --size max --dry-run --json").ok();
    let would: serde_json::Value = serde_json::from_str(&would).unwrap();
    assert_eq!(would["dry_run"], true);
    assert_eq!(place.detail("data")["array_size"], before["array_size"]);
    let said = place.run("grow data --size max").ok();
    assert!(said.contains("until they connect again"), "{said}");
    let after = place.detail("data");
    assert_eq!(after["array_size"], would["new_array_size"]);
    assert!(after["array_size"].as_u64() > before["array_size"].as_u64().map(|size| size * 3 / 2));
    assert_eq!(after["bitmap"]["chunk"], would["new_bitmap_chunk"]);
    place.run("wait data").ok();
    assert!(place.run("check --wait data").ok().contains("0 sectors mismatched"));
    let seen = place.copy_out("data");
    assert_eq!(Some(seen.len() as u64), after["array_size"].as_u64());
    assert_eq!(&seen[..data.len()], &data);
    place.run("stop data").ok();
    server.ended().ok();
    let server = place.serve("a b c");
    assert_eq!(place.detail("data")["array_size"], after["array_size"]);
    place.run("stop data").ok();
    server.ended().ok();
}

#[test]
fn less_of_each_member_is_used_only_when_users_see_less_of_the_array() {
    let place = Place::new();
    place.members(&["a", "b"]);
    place.run("create data -l 1 -n 2 --assume-clean --bitmap none a b").ok();
    let server = place.serve("a b");
    place.run("grow data").refused(2, &["--size", "--array-size", "--bitmap"]);
    place.run("grow data --size 1M --bitmap none").refused(2, &["cannot be used with"]);
    place.run("grow data --size 1T").refused(2, &["do not fit"]);
    place.run("grow data --size 4M").refused(2, &["braid grow data --array-size 4194304"]);
    let said = place.run("grow data --array-size 4M").ok();
    assert!(said.contains("what its users see is 4M"), "{said}");
    place.run("grow data --size 4M").ok();
    assert_eq!(place.detail("data")["component_size"], 4 << 20);
    place.run("grow data --array-size 8M").refused(2, &["4194304"]);
    place.run("stop data").ok();
    server.ended().ok();
}
