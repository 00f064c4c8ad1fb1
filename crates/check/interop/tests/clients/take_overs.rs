//! A few take-overs at each door; `make take-overs` has a hundred.

use braid_interop::take_overs::{Door, Options, run};
use braid_interop::vm_guest::program;
use std::time::Duration;

/// Far above what it takes on an idle machine: many tests run here at the same time.
const PAUSE_MAX: Duration = Duration::from_secs(20);

fn taken_over(door: Door) {
    let folder = tempfile::Builder::new().prefix("braid-interop.").tempdir_in("/var/tmp");
    let work = folder.expect("a folder in /var/tmp");
    let own = env!("CARGO_BIN_EXE_braid-interop").into();
    let options =
        Options { braid: program(), work: work.path().to_path_buf(), times: 4, seed: 1, own };
    for outcome in run(&options, door).unwrap_or_else(|error| panic!("{error:#}")) {
        println!("{outcome}");
        assert!(outcome.longest() > Duration::ZERO && outcome.longest() < PAUSE_MAX, "{outcome}");
    }
}

#[test]
fn an_nbd_client_verifies_through_take_overs() {
    taken_over(Door::Nbd);
}

#[test]
fn a_guests_disk_verifies_through_take_overs() {
    taken_over(Door::VhostUser);
}

#[test]
fn an_nvme_host_verifies_through_take_overs() {
    taken_over(Door::Nvme);
}
