//! Checks and repairs over restarts of the server, paused and gone on with, within hours; and their reports.

use crate::support::{Place, damage};
use rustix::process::Signal;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Whatever is waited for comes sooner.
const PATIENCE: Duration = Duration::from_secs(120);

/// Three members that hold data, a byte of which is spoilt near the beginning and one near the end.
fn spoilt(place: &Place) {
    place.members(&["a", "b", "c"]);
    place.run("create data -l 5 -n 3 -c 64K --assume-clean a b c").ok();
    let start = place.examined("b")["data_offset"].as_u64().unwrap();
    let size = place.examined("b")["component_size"].as_u64().unwrap();
    damage(&place.path("b"), start + 4096);
    damage(&place.path("b"), start + size - 4096);
}

/// What `check --last` says.
fn reports(place: &Place) -> Value {
    serde_json::from_str(&place.run("check data --last --json").out).unwrap()
}

/// Waits until `is` so of the reports.
#[track_caller]
fn until(place: &Place, is: impl Fn(&Value) -> bool) -> Value {
    let since = Instant::now();
    loop {
        let reports = reports(place);
        if is(&reports) {
            return reports;
        }
        assert!(since.elapsed() < PATIENCE, "{reports}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn found_one(reports: &Value) -> bool {
    reports["under_way"]["found"]["places"].as_array().is_some_and(|places| places.len() == 1)
}

/// The report of a check that went through everything and has found both bytes once.
fn found_both_once(reports: &Value) {
    let last = &reports["last"];
    assert_eq!(
        (&last["state"], &reports["under_way"]),
        (&"done".into(), &Value::Null),
        "{reports}"
    );
    assert_eq!((&last["from"], &last["mismatches"]), (&0.into(), &16.into()), "{reports}");
    assert_eq!(last["position"], last["until"], "{reports}");
    let places = last["found"]["places"].as_array().unwrap();
    let at: Vec<u64> = places.iter().map(|at| at["component_offset"].as_u64().unwrap()).collect();
    assert_eq!(at, [4096, last["until"].as_u64().unwrap() - 4096], "{reports}");
}

#[test]
fn a_check_goes_on_after_the_server_was_killed_and_finds_everything_once() {
    let place = Place::new();
    spoilt(&place);
    let server = place.serve("a b c");
    place.run("check data --last").refused(2, &["has not been checked"]);
    place.run("set data sync_speed_max=4000").ok();
    place.run("check data").ok();
    until(&place, found_one);
    // The findings are on disk a moment later.
    let kept = std::fs::read_dir(place.path("state")).unwrap().flatten();
    let kept =
        kept.map(|entry| entry.path()).find(|path| path.extension() == Some("scrub".as_ref()));
    let kept = kept.unwrap();
    let since = Instant::now();
    while !std::fs::read_to_string(&kept).unwrap().contains("component_offset") {
        assert!(since.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    server.signal(Signal::KILL);
    drop(server);
    let server = place.serve("a b c --set sync_speed_max=none");
    let reports = until(&place, |reports| reports["under_way"].is_null());
    found_both_once(&reports);
    let text = place.run("check data --last");
    assert_eq!(text.code, 1, "{}", text.err);
    for says in [
        "check of array data: done",
        "100.0 % done",
        "16 sectors mismatched",
        "component bytes 4096 to",
    ] {
        assert!(text.out.contains(says), "{says}: {}", text.out);
    }
    place.run("stop data").ok();
    server.ended().ok();
    // The report stays, and detail has it.
    let _server = place.serve("a b c");
    found_both_once(&self::reports(&place));
    assert_eq!(place.detail("data")["mismatch_count"], 16);
}

#[test]
fn a_paused_check_waits_for_its_resume_also_over_a_restart() {
    let place = Place::new();
    spoilt(&place);
    let server = place.serve("a b c");
    place.run("check data --pause").refused(2, &["no check or repair of array data"]);
    place.run("set data sync_speed_max=4000").ok();
    place.run("check data").ok();
    until(&place, found_one);
    assert!(place.run("check data --pause").ok().contains("is paused at"));
    let position = reports(&place)["under_way"]["position"].clone();
    assert!(position.as_u64().unwrap() > 0);
    place.run("check data").refused(2, &["is paused at", "--resume", "--cancel"]);
    place.run("stop data").ok();
    server.ended().ok();
    let _server = place.serve("a b c --set sync_speed_max=none");
    let paused = reports(&place);
    assert_eq!(
        (&paused["under_way"]["state"], &paused["under_way"]["position"]),
        (&"paused".into(), &position)
    );
    assert!(place.run("detail data").ok().contains("Check : paused"));
    place.run("check data --resume").ok();
    found_both_once(&until(&place, |reports| reports["under_way"].is_null()));
}

#[test]
fn a_check_waits_for_its_hours_and_can_be_cancelled() {
    let place = Place::new();
    spoilt(&place);
    let server = place.serve("a b c");
    // The time zone of the server is UTC; whatever the time is, one of the two is not now.
    let minute =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() / 60
            % 1440;
    let hours = if (120..1380).contains(&minute) { "00:00-01:00" } else { "11:00-12:00" };
    let said = place.run(&format!("check data --between {hours}")).ok();
    assert!(said.contains("begins at"), "{said}");
    assert_eq!(reports(&place)["under_way"]["state"], "waiting");
    assert!(place.run("get data check_between").ok().contains(hours));
    assert!(place.run("check data --cancel").ok().contains("cancelled"));
    assert_eq!(reports(&place)["last"]["state"], "cancelled");
    place.run("check data --wait").refused(2, &["waiting"]);
    // Without hours it goes on by itself.
    place.run("set data check_between=auto").ok();
    found_both_once(&until(&place, |reports| reports["under_way"].is_null()));
    place.run("set data sync_min=1M sync_max=2M").ok();
    assert!(place.run("check data --wait").ok().contains("0 sectors mismatched"));
    let part = reports(&place);
    assert_eq!(
        (&part["last"]["from"], &part["last"]["until"]),
        (&(1 << 20).into(), &(2 << 20).into())
    );
    place.run("set data sync_min=auto sync_max=max").ok();
    place.run("repair data --parity-only --wait").ok();
    assert!(place.run("check data --wait").ok().contains("0 sectors mismatched"));
    place.run("stop data").ok();
    server.ended().ok();
}
