//! The rules for every door, for ublk: those of them that have a meaning for a block device, in Linux 6.12 under QEMU.
//!
//! The guest runs this program, whose cases are ignored elsewhere.

use braid_device::Target;
use braid_doors::block::BlockDevice;
use braid_doors::{Adapter, Client};
use braid_export::{Export, Listening};
use braid_interop::session::Session;
use braid_interop::vm::Vm;
use braid_shard::mailbox::Remote;
use braid_ublk::{Limits, Place, Server};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The time that a guest may live.
const LIMIT: Duration = Duration::from_secs(600);

struct Ublk;

braid_doors::conformance!(#[ignore = "the guest runs it"] Ublk,
    content: every_byte_is_written_and_read_back, the_largest_request_goes_through_whole,
        data_survives_a_storm_of_requests, clients_see_each_others_writes,
        a_discard_harms_no_neighbour, zeroes_read_back_as_zeroes;
    bounds: the_target_is_described_as_it_is, blocks_of_4096_are_kept_to,
        requests_beyond_the_end_are_refused, a_read_only_target_takes_no_write,
        errors_of_the_device_reach_the_client_and_nobody_else;
    durability: a_fua_write_survives_a_power_cut, a_flush_covers_what_was_answered,
        a_flush_covers_what_other_clients_wrote, what_is_not_flushed_is_old_or_new,
        a_flush_covers_zeroes;
    lifecycle: a_drain_answers_what_was_taken, a_target_that_is_withdrawn_loses_its_clients;
);

#[test]
fn ublk_keeps_the_rules_that_a_block_device_has() {
    let vm = Vm { limit: LIMIT, ..Vm::default() };
    let mut session = Session::boot_vm(vm).expect("a guest");
    let program = std::env::current_exe().expect("this test is a file");
    let script = format!(
        "load ublk_drv\n{} --ignored --test-threads 1 || {{ dmesg | tail -n 30; exit 1; }}\n\
         ! dmesg | grep -E 'Oops|BUG:|WARNING:'",
        program.display()
    );
    let output = session.run(&script, LIMIT).expect("the guest runs");
    assert!(output.text.contains("test result: ok. 18 passed"), "{}", output.text);
    assert_eq!(output.status, 0, "{}", output.text);
}

impl Adapter for Ublk {
    fn protocol(&self) -> &'static str {
        "ublk"
    }

    fn start(&self, _: &Path, shards: &[Remote], target: Arc<dyn Target>) -> Arc<dyn Export> {
        let server = Server::start(&Limits::default(), shards, &[Place::default()], &[target]);
        Arc::new(server.expect("a ublk server"))
    }

    fn adopt(&self, _: Vec<Listening>, _: &[Remote], _: Arc<dyn Target>) -> Arc<dyn Export> {
        unreachable!("no case among these hands a door over")
    }

    fn connect(&self, _: &Path) -> Option<Box<dyn Client>> {
        Some(Box::new(BlockDevice::open(Path::new("/dev/braid/disk"))?))
    }

    fn garbage(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn names(&self, location: &str, _: &Path) -> bool {
        location == "/dev/braid/disk" || location.starts_with("/dev/ublkb")
    }

    fn tells_refusals(&self) -> bool {
        true
    }
}
