//! Arrays of one server that share their spares.

use crate::support::Place;
use std::time::{Duration, Instant};

/// Names of the members of an array, in the order of `detail`.
fn members(place: &Place, array: &str) -> Vec<String> {
    let detail = place.detail(array);
    let members = detail["members"].as_array().unwrap().iter();
    let name = |text: &str| text.rsplit('/').next().unwrap().to_string();
    members.map(|member| name(member["name"].as_str().unwrap())).collect()
}

/// Waits until an array has this member.
#[track_caller]
fn gets(place: &Place, array: &str, member: &str) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !members(place, array).iter().any(|name| name == member) {
        assert!(Instant::now() < patience, "array {array} does not get {member}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Longer than it takes to look once.
fn a_while() {
    std::thread::sleep(Duration::from_millis(2500));
}

/// Two arrays of three, of which the second has a spare.
fn two_arrays(place: &Place) {
    place.members(&["a", "b", "c", "d", "e", "f", "spare"]);
    place.run("create one -l 5 -n 3 -c 64K --assume-clean a b c").ok();
    place.run("create two -l 1 -n 3 -x 1 --assume-clean d e f spare").ok();
}

#[test]
fn a_spare_goes_to_the_array_of_the_group_that_lacks_a_member_and_stays_there() {
    let place = Place::new();
    two_arrays(&place);
    let all = "a b c d e f spare";
    let server = place.serve(&format!("{all} --spare-group pool"));
    let data = place.data("in", 8 << 20);
    place.copy_in("in", "one");
    assert!(place.run("detail one").ok().contains("spare_group=pool"));
    place.run("fail one b").ok();
    gets(&place, "one", "spare");
    place.run("wait one").ok();
    let one = place.detail("one");
    assert_eq!((&one["degraded"], &one["spare_group"]), (&0.into(), &"pool".into()));
    assert_eq!(members(&place, "two"), ["d", "e", "f"]);
    for (array, words) in [("one", "came from array two"), ("two", "went to array one")] {
        let text = place.run(&format!("detail {array}")).ok();
        assert!(text.contains("Spare :") && text.contains(words), "{text}");
    }
    assert_eq!(&place.copy_out("one")[..data.len()], &data);
    assert!(place.run("check --wait one").ok().contains("0 sectors mismatched"));
    // Nobody has another, so that nothing happens.
    place.run("fail two d").ok();
    a_while();
    assert_eq!(place.detail("two")["degraded"], 1);
    place.run("stop one").ok();
    place.run("stop two").ok();
    server.ended().ok();
    let server = place.serve(all);
    assert!(members(&place, "one").contains(&"spare".to_string()));
    assert!(!members(&place, "two").contains(&"spare".to_string()));
    // It was for that run.
    assert_eq!(place.detail("one")["spare_group"], serde_json::Value::Null);
    assert_eq!(&place.copy_out("one")[..data.len()], &data);
    place.run("stop one").ok();
    place.run("stop two").ok();
    server.ended().ok();
}

#[test]
fn only_arrays_of_the_same_group_share_and_groups_are_kept() {
    let place = Place::new();
    two_arrays(&place);
    let all = "a b c d e f spare";
    let server = place.serve(all);
    place.run("set one spare_group=left/right").refused(2, &["no name of a spare group"]);
    place.run("set one spare_group=left").ok();
    place.run("set two spare_group=right").ok();
    assert!(place.run("get one").ok().contains("spare_group"));
    place.run("fail one a").ok();
    a_while();
    assert_eq!((members(&place, "one").len(), members(&place, "two").len()), (3, 4));
    place.run("stop one").ok();
    place.run("stop two").ok();
    server.ended().ok();
    let server = place.serve("b c d e f spare --run");
    assert_eq!(place.detail("two")["spare_group"], "right");
    place.run("set two spare_group=left").ok();
    gets(&place, "one", "spare");
    place.run("wait one").ok();
    assert_eq!(place.detail("one")["degraded"], 0);
    place.run("stop one").ok();
    place.run("stop two").ok();
    server.ended().ok();
}

#[test]
fn a_spare_that_is_too_small_or_needed_stays_where_it_is() {
    let place = Place::new();
    place.members(&["a", "b", "c", "d", "e", "f", "spare"]);
    place.run("create one -l 1 -n 3 --assume-clean a b c").ok();
    for small in ["d", "e", "f", "spare"] {
        let file = std::fs::File::options().write(true).open(place.path(small)).unwrap();
        file.set_len(8 << 20).unwrap();
    }
    place.run("create two -l 1 -n 3 -x 1 --assume-clean d e f spare").ok();
    let server = place.serve("a b c d e f spare --spare-group pool");
    place.run("fail one a").ok();
    a_while();
    assert_eq!((members(&place, "one").len(), members(&place, "two").len()), (3, 4));
    // The array that has it uses it itself.
    place.run("fail two d").ok();
    place.run("wait two").ok();
    assert_eq!(place.detail("two")["degraded"], 0);
    assert!(members(&place, "two").contains(&"spare".to_string()));
    place.run("stop one").ok();
    place.run("stop two").ok();
    let said = server.ended();
    assert_eq!(said.err.matches("does not take").count(), 1, "{}", said.err);
    said.ok();
}
