//! The guest under QEMU itself: its kernel, its drivers, what it sees of this machine, and what comes back.

use braid_interop::outcome::GuestError;
use braid_interop::session::Session;
use braid_interop::vm::Vm;
use std::time::Duration;

const SCRIPT: &str = r#"
set -e
uname -r
for module in ublk_drv nvme-tcp nbd virtio_blk raid456 brd loop dm-mod; do load $module; done
[ -c /dev/ublk-control ] && [ -c /dev/nvme-fabrics ] && [ -b /dev/nbd0 ] && echo "drivers: loaded"
cat given > back
echo "disk: $(blockdev --getsize64 /dev/ram0)"
exec 3<>/dev/tcp/127.0.0.1/1 || true
exit 7
"#;

#[test]
fn a_guest_loads_drivers_sees_the_folder_and_gives_its_status() {
    let mut session = Session::boot_vm(Vm::default()).expect("a guest");
    std::fs::write(session.shared().join("given"), "to the guest").expect("room");
    let output = session.run(SCRIPT, Duration::from_secs(120)).expect("the guest runs");
    for said in ["6.12.", "drivers: loaded", "disk: ", "Connection refused"] {
        assert!(output.text.contains(said), "no {said:?} in what the guest said:\n{}", output.text);
    }
    assert_eq!(output.status, 7, "{}", output.text);
    let back = std::fs::read_to_string(session.shared().join("back")).expect("the guest wrote it");
    assert_eq!(back, "to the guest");
    let again = session.run("echo second", Duration::from_secs(60)).expect("the guest runs on");
    assert_eq!((again.status, again.text.as_str()), (0, "second\n"));
}

#[test]
fn a_guest_that_takes_too_long_is_ended_with_what_it_said() {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let vm = Vm { limit: Duration::from_millis(10), ..Vm::default() };
    let error = vm.run("echo never", folder.path()).expect_err("no guest is that fast");
    assert!(matches!(error, GuestError::Unfinished(..)), "{error}");
}
