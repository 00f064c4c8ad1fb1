//! The histories that the tests always go through: those that have failed once, and some that are always the same.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use std::process::Command;

/// Runs the simulator; what it says of seeds that fail, and how to replay them, is what a failed test shows.
fn simulate(arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_braid-sim")).args(arguments).output().unwrap();
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    println!("{}{}", said[0], said[1]);
    assert!(output.status.success());
    assert!(said[0].contains(" 0 failed"));
}

#[test]
fn seeds_that_failed_once_pass() {
    simulate(&["saved"]);
}

#[test]
fn the_first_five_hundred_seeds_pass() {
    simulate(&["run", "--seeds", "500", "--first", "1"]);
}
