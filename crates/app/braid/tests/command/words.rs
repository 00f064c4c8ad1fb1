//! Sentences that people read: each said once, true, and with the next step.

use crate::support::Place;
use rustix::process::{Signal, kill_process};
use std::time::Instant;

#[test]
fn messages_say_what_is_wrong_once() {
    let place = Place::new();
    place.members(&["a", "b", "c", "d"]);
    let said = place
        .run("create data -l 5 -n 3 -c 5K a b c")
        .refused(2, &["cannot have a chunk of 5120 bytes"]);
    assert_eq!(said.matches("cannot have a chunk").count(), 1, "{said}");
    let said = place.run("examine /etc").refused(4, &["/etc is a directory"]);
    assert!(!said.contains("4096"), "{said}");
    let said = place.run("create x -l 1 -n 2 ram:16M ram:16M --dry-run");
    assert!(said.err.contains("the array ends with it"), "{}", said.err);
    let said = place.run("create data -l 5 -n 3 -x 1 --assume-clean a b missing c").ok();
    assert!(said.contains("3 slots, 1 spare,") && said.contains("slot 2 is missing: "), "{said}");
    place.run("detail --json data").refused(4, &["no server"]);
    assert!(place.run("detail --json data").out.contains("\"error\": \"no server"));
}

#[test]
fn options_of_mdadm_lead_to_the_verb() {
    let place = Place::new();
    place.run("-D /dev/md0").refused(2, &["braid detail NAME"]);
    place.run("--create /dev/md0 -l 1").refused(2, &["braid create NAME"]);
    place.run("--nonsense").refused(2, &["unexpected argument"]);
}

#[test]
fn a_running_array_is_spoken_of_as_it_is() {
    let place = Place::new();
    place.members(&["a", "b", "c", "d"]);
    place.run("create data -l 5 -n 3 --assume-clean a b c").ok();
    let server = place.serve("a b c");
    let export = place.detail("data")["exports"][0].as_str().unwrap().to_string();
    assert_eq!(export, place.uri("data"));
    assert!(place.run("status").ok().starts_with("data  raid5 "));
    assert_eq!(place.run("status --test").code, 0);
    let said = place.run("add data d").ok();
    assert!(said.contains("it waits as a spare"), "{said}");
    place.run("add data a").refused(2, &["/a is a member of array data already"]);
    assert!(place.run("wait data").ok().contains("nothing was running"));
    place.run("check data --cancel").refused(2, &["no check"]);
    // The second follows the first.
    place.run("set data sync_speed_max=2000").ok();
    place.run("check data").ok();
    let follows = std::thread::scope(|scope| {
        let follows = scope.spawn(|| place.run("check data --wait"));
        std::thread::sleep(std::time::Duration::from_millis(300));
        place.run("set data sync_speed_max=auto").ok();
        follows.join().unwrap()
    });
    assert!(follows.err.contains("is running already: this follows it"), "{}", follows.err);
    assert!(follows.err.contains("check: ") && follows.ok().contains("0 sectors mismatched"));
    place.run("stop").ok();
    assert_eq!(server.ended().code, 0);
}

#[test]
fn a_server_that_hangs_is_an_error_within_seconds() {
    let place = Place::new();
    place.members(&["a", "b"]);
    place.run("create data -l 1 -n 2 --assume-clean a b").ok();
    let server = place.serve("a b");
    kill_process(place.server_pid(), Signal::STOP).unwrap();
    let asked = Instant::now();
    place.run("detail data").refused(4, &["does not answer"]);
    assert!(asked.elapsed().as_secs() < 10, "{:?}", asked.elapsed());
    server.signal(Signal::CONT);
    assert_eq!(place.run("detail --test data").code, 0);
}

#[test]
fn manual_and_completions_are_made_of_the_command_line() {
    let place = Place::new();
    place.run("manual pages").ok();
    let page = std::fs::read_to_string(place.path("pages/braid-volume-create.8")).unwrap();
    assert!(page.contains(".TH") && page.contains("braid\\-volume\\-create"), "{page}");
    for page in ["braid", "braid-daemon", "braid-grow", "braid-config-check"] {
        assert!(place.path(&format!("pages/{page}.8")).exists(), "{page}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let said = place.run(&format!("completions {shell}")).ok();
        assert!(said.contains("daemon") && said.contains("raid-devices"), "{shell}");
    }
}
