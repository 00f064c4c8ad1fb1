//! Three fail-overs of two hosts, one of each kind; `make fail-overs` has fifty.

use braid_interop::vm_guest::program;
use std::process::Command;

#[test]
fn a_standby_takes_over_by_the_lease_without_loss_or_double_writers() {
    let folder = tempfile::Builder::new().prefix("braid-interop.").tempdir_in("/var/tmp");
    let work = folder.expect("a folder in /var/tmp");
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid-interop"));
    command.args(["fail-overs", "--times", "3", "--ttl", "3", "--braid"]).arg(program());
    let output = command.arg("--work").arg(work.path()).output().expect("braid-interop");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    println!("{out}");
    assert!(out.contains("3 fail-overs with a lease of 3 s"), "{out}{err}");
}
