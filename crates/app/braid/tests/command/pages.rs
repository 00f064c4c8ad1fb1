//! The commands of pages of the documentation, typed by scripts/run-page as a reader types them.

use std::path::Path;
use std::process::Command;

/// Seconds; nothing on a page takes longer, on a machine that is busy with other things, too.
const PATIENCE: &str = "300";

#[track_caller]
fn run(page: &str) {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap();
    let mut command = Command::new("timeout");
    command.arg(PATIENCE).arg(repository.join("scripts/run-page"));
    command.arg(env!("CARGO_BIN_EXE_braid")).arg(repository.join("docs").join(page));
    let output = command.output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {out}{err}", output.status);
    assert!(out.contains("commands, all as"), "{out}{err}");
}

#[test]
fn the_tutorial_is_as_it_says() {
    run("tutorial.md");
}

#[test]
fn recovery_can_be_practised_as_its_page_says() {
    run("recovery-practice.md");
}

#[test]
fn arrays_of_several_machines_are_as_their_page_says() {
    assert!(rustix::process::geteuid().is_root(), "it makes namespaces (make test-command)");
    run("several-machines.md");
}
