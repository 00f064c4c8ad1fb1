//! A server that takes over from another, while clients are at work.

use crate::support::Place;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Starts the successor with these words more, and waits until it says that it serves, or has ended.
fn take_over(place: &Place, more: &[&str]) -> Child {
    let words = [&["serve", "--take-over"], more].concat();
    let said = std::fs::File::create(place.path("successor")).unwrap();
    let mut child = place.command(&words).stdout(said).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        let said = std::fs::read_to_string(place.path("successor")).unwrap();
        if said.contains("control socket") {
            return child;
        }
        assert!(Instant::now() < end, "neither serves nor ends: {said}");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

fn ended(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn clients_under_load_notice_nothing_of_a_successor() {
    let place = Place::new();
    place.members(&["a", "b", "c"]);
    place.run("create data -l 5 -n 3 --assume-clean a b c").ok();
    let mut before = Some(place.serve("a b c"));
    let uri = format!("nbd+unix:///data?socket={}", place.path("nbd.sock").display());
    // Writes 64 MiB in all, and reads each block back right after.
    let fio = std::process::Command::new("fio")
        .current_dir(place.path("."))
        .args(["--name=v", "--ioengine=nbd", "--iodepth=32", "--rw=randwrite", "--bs=4k"])
        .args(["--size=16m", "--loops=4", "--verify=crc32c", "--verify_backlog=256"])
        .args(["--verify_state_save=0", "--rate_iops=2500"])
        .arg(format!("--uri={uri}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut newest: Option<Child> = None;
    for _ in 0..3 {
        let next = take_over(&place, &[]);
        if let Some(first) = before.take() {
            assert!(first.ended().err.contains("another process has taken over"));
        }
        if let Some(one) = newest.replace(next) {
            let (code, said) = ended(one);
            assert_eq!(code, Some(0), "{said}");
        }
    }
    let clients = place.run("detail data").ok();
    let (code, said) = ended(fio);
    assert_eq!(code, Some(0), "{said}\n{clients}");
    assert!(clients.contains("nbd"), "its client is listed: {clients}");
    place.run("check data --wait").ok();
    place.run("stop data").ok();
    assert_eq!(ended(newest.unwrap()).0, Some(0));
    assert_eq!(place.examined("a")["state"], "clean");
}

#[test]
fn a_successor_that_does_not_come_up_leaves_everything_as_it_was() {
    let place = Place::new();
    place.members(&["a", "b"]);
    place.run("create data -l 1 -n 2 --assume-clean a b").ok();
    let server = place.serve("a b");
    place.data("content", 1 << 20);
    place.copy_in("content", "data");
    // No address of this machine (RFC 5737).
    let failed = take_over(&place, &["--nbd", "tcp:203.0.113.1:10809"]);
    let (code, said) = ended(failed);
    assert_ne!(code, Some(0));
    assert!(said.contains("203.0.113.1"), "{said}");
    place.copy_in("content", "data");
    assert!(!place.run("detail data").ok().contains("degraded"));
    place.run("stop data").ok();
    let said = server.ended();
    assert!(said.err.contains("did not come up, so this one goes on"), "{}", said.err);
    said.ok();
}

#[test]
fn what_cannot_be_taken_over_is_refused_with_the_reason() {
    let place = Place::new();
    place.run("serve --take-over").refused(4, &["control.sock"]);
    let server = place.serve("ram:16M ram:16M --create data -l 1 -n 2");
    place.run("serve --take-over").refused(2, &["ram:16M", "memory of this server"]);
    assert!(place.run("detail data").ok().contains("data"));
    place.run("stop data").ok();
    server.ended().ok();
}
