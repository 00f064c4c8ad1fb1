//! `braid demo`: comes to its end, and leaves nothing behind, also when it is interrupted.

use crate::support::Place;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

const DEMO: &[&str] = &["demo", "--no-mount", "--data", "16", "--dir", "stage"];

#[test]
fn the_demo_proves_every_byte_and_leaves_nothing_behind() {
    let place = Place::new();
    fs::create_dir(place.path("stage")).unwrap();
    let said = place.braid(DEMO).ok();
    for words in [
        "truncate --size 0",
        "is faulty",
        "degraded",
        "every checksum is right",
        "0 mismatches",
        "Ratio",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert_eq!(fs::read_dir(place.path("stage")).unwrap().count(), 0);
}

#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    let place = Place::new();
    fs::create_dir(place.path("stage")).unwrap();
    let mut child =
        place.command(DEMO).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let mut lines = out.lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("control socket")));
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert!(!lines.any(|line| line.contains("Ratio")));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
    assert_eq!(fs::read_dir(place.path("stage")).unwrap().count(), 0);
}
