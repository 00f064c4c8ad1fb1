//! A server that answers no more. Over io_uring the kernel does not end requests that it has begun to hand over to a thread
//! that does not take them, so this is asked of /dev/fuse only.

use crate::lifecycle::{LONG, is_gone};
use crate::support::mounted_with;
use braid_fuse::EndedBy;
use std::fs;
use std::time::Duration;

#[test]
fn a_mount_whose_server_waits_for_ever_is_ended() {
    let patience = Duration::from_secs(2);
    let Some(m) = mounted_with(|options| options.patience = patience) else { return };
    let (go_on, waits) = std::sync::mpsc::channel::<()>();
    m.shards.remotes()[0].run(move |_| {
        let _ = waits.recv();
    });
    // Without the end nobody would come back from this, and SIGKILL would not help.
    let code = fs::write(m.path("f"), "x").err().and_then(|error| error.raw_os_error());
    assert!(is_gone(code), "{code:?}");
    drop(go_on);
    let ended = m.ended.recv_timeout(LONG).unwrap();
    assert!(matches!(ended.by, EndedBy::Outside), "{ended:?}");
}
