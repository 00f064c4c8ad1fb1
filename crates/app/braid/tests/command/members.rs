//! Several members in one command, and mdadm's words in place of them.

use crate::support::Place;
use std::fs;

fn states(place: &Place, array: &str) -> Vec<(String, String)> {
    let detail = place.detail(array);
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_string();
    let name = |name: String| name.rsplit('/').next().unwrap().to_string();
    let members = detail["members"].as_array().unwrap().iter();
    members.map(|member| (name(text(&member["name"])), text(&member["state"]))).collect()
}

fn of(states: &[(&str, &str)]) -> Vec<(String, String)> {
    states.iter().map(|(name, state)| (name.to_string(), state.to_string())).collect()
}

#[test]
fn several_members_are_failed_removed_and_taken_back_in_one_command() {
    let place = Place::new();
    place.members(&["a", "b", "c", "d"]);
    place.run("create data -l 6 -n 4 --assume-clean --bitmap internal a b c d").ok();
    let _server = place.serve("a b c d");

    // One too many: none is failed.
    place.run("fail data a b c").refused(2, &["would lose data"]);
    place.run("fail data a nosuch").refused(2, &["no member"]);
    assert!(states(&place, "data").iter().all(|(_, state)| state == "active sync"));

    let said = place.run("fail data a b a").ok();
    assert_eq!(said.lines().count(), 2, "{said}");
    // One of them is in use: none is removed.
    place.run("remove data a c").refused(2, &["braid fail data"]);
    assert_eq!(states(&place, "data").len(), 4);
    let removed = place.run("remove data failed --json").ok();
    let removed: serde_json::Value = serde_json::from_str(&removed).unwrap();
    assert_eq!(removed["members"].as_array().unwrap().len(), 2);
    assert!(removed["error"].is_null());
    assert!(place.run("remove data failed").ok().contains("nothing was done"));

    place.run("re-add data a d").refused(2, &["in use"]);
    assert_eq!(states(&place, "data").len(), 2);
    let back = place.run("re-add data missing").ok();
    assert_eq!(back.matches("was re-added to array data").count(), 2, "{back}");
    place.run("wait data").ok();
    assert!(states(&place, "data").iter().all(|(_, state)| state == "active sync"));
    place.run("stop data").ok();
}

#[test]
fn members_whose_file_is_gone_are_detached() {
    let place = Place::new();
    place.members(&["a", "b", "c", "d", "spare"]);
    place.run("create data -l 1 -n 3 --assume-clean a b c").ok();
    let _server = place.serve("a b c");
    assert!(place.run("fail data detached").ok().contains("nothing was done"));
    fs::remove_file(place.path("b")).unwrap();
    fs::remove_file(place.path("c")).unwrap();
    place.run("remove data detached").ok();
    assert_eq!(states(&place, "data").len(), 3, "they are in use");
    assert_eq!(place.run("fail data detached").ok().lines().count(), 2);
    assert_eq!(place.run("remove data detached").ok().lines().count(), 2);
    assert_eq!(states(&place, "data"), of(&[("a", "active sync")]));

    // The second is none: the first is not added.
    fs::write(place.path("small"), [0; 4096]).unwrap();
    place.run("add data d small").refused(2, &["small"]);
    place.run("add data d d").refused(2, &["d"]);
    assert_eq!(states(&place, "data"), of(&[("a", "active sync")]));
    assert_eq!(place.run("add data d spare").ok().lines().count(), 2);
    place.run("wait data").ok();
    assert!(states(&place, "data").iter().all(|(_, state)| state == "active sync"));
    place.run("stop data").ok();
}

#[test]
fn a_member_is_replaced_by_a_new_device_and_says_so_itself() {
    let place = Place::new();
    place.members(&["a", "b", "c", "new", "other"]);
    place.run("create data -l 5 -n 3 -c 64 --assume-clean a b c").ok();
    let _server = place.serve("a b c");
    let bytes = place.data("in", 8 << 20);
    place.copy_in("in", "data");

    place.run("replace data b b").refused(2, &["named twice"]);
    place.run("replace data b --with c").refused(2, &["is no spare"]);
    place.run("replace data b --with new other").refused(2, &["--with"]);
    fs::write(place.path("small"), [0; 4096]).unwrap();
    place.run("replace data a b --with new small").refused(2, &["small"]);
    assert_eq!(states(&place, "data").len(), 3, "nothing was added");

    assert!(place.run("replace data b --with new").ok().contains("new is to replace"));
    place.run("wait data").ok();
    let now = states(&place, "data");
    assert!(now.contains(&("new".to_string(), "active sync".to_string())), "{now:?}");
    assert!(now.contains(&("b".to_string(), "faulty".to_string())), "{now:?}");
    assert!(place.run("detail data").ok().contains("has replaced it"));
    assert_eq!(place.copy_out("data")[..bytes.len()], bytes);
    place.run("check data -W").ok();
    place.run("remove data failed").ok();

    // Without a spare it waits for one.
    assert!(place.run("replace data c").ok().contains("as soon as there is a spare"));
    place.run("add data other").ok();
    place.run("wait data").ok();
    let now = states(&place, "data");
    assert!(now.contains(&("other".to_string(), "active sync".to_string())), "{now:?}");
    assert_eq!(place.copy_out("data")[..bytes.len()], bytes);
    place.run("stop data").ok();
}

#[test]
fn half_of_a_mirror_that_was_removed_is_no_array_of_its_own() {
    let place = Place::new();
    place.members(&["a", "b", "c", "d"]);
    place.run("create data -l 1 -n 2 --assume-clean --bitmap internal a b").ok();
    place.run("create kept -l 1 -n 2 --assume-clean c d").ok();
    let server = place.serve("a b c d");
    place.run("fail data b").ok();
    place.run("remove data b").ok();
    place.run("fail kept d").ok();
    place.run("remove kept d --keep").ok();
    place.run("stop --all").ok();
    server.ended();
    let ran = place.run("serve b --run --force --nbd unix:nbd.sock");
    assert_eq!(ran.code, 2, "{}{}", ran.out, ran.err);
    let _server = place.serve("d --run");
    place.run("stop --all").ok();
}
