//! Two hosts and one array: whoever uses it says so on its members, and is believed.

use crate::support::Place;
use braid_format::heartbeat::{Found, Heartbeat};
use rustix::process::Signal;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Members of version 1.2 have it at their beginning.
const AT: u64 = 0;

fn mirror(place: &Place) {
    place.members(&["a", "b"]);
    place.run("create mirror -l 1 -n 2 --assume-clean a b").ok();
}

fn beat(place: &Place, member: &str) -> Heartbeat {
    let mut block = vec![0; 4096];
    File::open(place.path(member)).unwrap().read_exact_at(&mut block, AT).unwrap();
    match Found::parse(&block) {
        Found::Beat(beat) => beat,
        other => panic!("{member}: {other:?}"),
    }
}

fn put(place: &Place, member: &str, beat: &Heartbeat) {
    let file = File::options().write(true).open(place.path(member)).unwrap();
    file.write_all_at(&beat.to_bytes(), AT).unwrap();
    file.sync_all().unwrap();
}

/// The beat of a server that was killed, as another host would have left it.
fn left_by_another(place: &Place) -> Heartbeat {
    let server = place.serve("a b --heartbeat 1");
    server.signal(Signal::KILL);
    server.ended();
    let found = beat(place, "a");
    assert!(found.beating);
    let other = Heartbeat { boot: [7; 16], host: "elsewhere".to_string(), ..found };
    ["a", "b"].iter().for_each(|member| put(place, member, &other));
    other
}

#[test]
fn a_server_beats_on_all_members_and_says_when_it_has_ended() {
    let place = Place::new();
    mirror(&place);
    let server = place.serve("a b --heartbeat 1");
    let first = beat(&place, "b");
    assert!(first.beating && first.interval == 1000 && !first.host.is_empty(), "{first:?}");
    for _ in 0..500 {
        if beat(&place, "b").sequence >= first.sequence + 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(beat(&place, "b").sequence >= first.sequence + 2);
    let said = place.run("detail mirror").ok();
    assert!(said.contains("Heartbeat : every 1 s on 2 of 2 members"), "{said}");
    assert_eq!(place.detail("mirror")["heartbeat"]["interval_ms"], 1000);
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code, 0);
    assert!(!beat(&place, "a").beating && !beat(&place, "b").beating);
    // Nobody asked for one.
    let server = place.serve("a b");
    assert!(!place.run("detail mirror").ok().contains("Heartbeat"));
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code, 0);
}

#[test]
fn an_array_that_another_host_uses_is_refused_and_one_that_it_used_is_not() {
    let place = Place::new();
    mirror(&place);
    let other = left_by_another(&place);
    let lives = AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = other.clone();
            while lives.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(300));
                next.sequence += 1;
                put(&place, "b", &next);
            }
        });
        let before = std::fs::read(place.path("a")).unwrap();
        let ran = place.run("serve a b --nbd unix:nbd.sock --strict");
        assert!(std::fs::read(place.path("a")).unwrap() == before, "a was written to");
        lives.store(false, Ordering::Relaxed);
        ran.refused(
            2,
            &["host elsewhere uses it", "by its heartbeat on", "/b; stop it there first"],
        );
    });
    let since = Instant::now();
    let server = place.serve("a b");
    assert!(since.elapsed() >= Duration::from_secs(3), "it did not wait for another beat");
    server.signal(Signal::TERM);
    let ran = server.ended();
    assert_eq!(ran.code, 0);
    assert!(
        ran.err.contains("host elsewhere used it") && ran.err.contains("waiting 3 s"),
        "{}",
        ran.err
    );
    assert!(!beat(&place, "b").beating);
}

#[test]
fn a_server_whose_array_another_host_has_taken_writes_no_more_to_it() {
    let place = Place::new();
    mirror(&place);
    let server = place.serve("a b --heartbeat 1");
    let other = Heartbeat { owner: [9; 16], host: "elsewhere".to_string(), ..beat(&place, "a") };
    put(&place, "a", &other);
    for _ in 0..500 {
        if place.run("detail mirror").ok().contains("LOST") {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = place.run("detail mirror").ok();
    assert!(said.contains("Heartbeat : LOST: host elsewhere has taken it"), "{said}");
    assert!(said.contains("FAILED"), "{said}");
    let kept = std::fs::read(place.path("a")).unwrap();
    server.signal(Signal::TERM);
    let ran = server.ended();
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("host elsewhere has taken it"), "{}", ran.err);
    assert!(std::fs::read(place.path("a")).unwrap() == kept, "a was written to");
}
