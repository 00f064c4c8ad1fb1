//! Closing descriptors. A close may block for ever, because it writes back data to a disk or a server that may not
//! answer.
//!
//! Each descriptor is closed by a thread of its own. The caller waits for it a moment, so that normally the file is
//! closed and its lock released when the device is dropped. After one timeout the caller does not wait for the other
//! descriptors of the same file.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// The shard that closes a file is blocked for this time at most.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

/// Closes `fd`. `slow` is shared by all descriptors of the file.
pub(super) fn close(fd: OwnedFd, slow: &AtomicBool) {
    let (closed, wait) = mpsc::sync_channel::<()>(1);
    let work = move || {
        drop(fd);
        // Fails if the caller does not wait any more.
        let _ = closed.send(());
    };
    // If no thread can be started, dropping the closure closes the descriptor here.
    let started = std::thread::Builder::new().name("close".to_string()).spawn(work).is_ok();
    if started
        && !slow.load(Ordering::Relaxed)
        && wait.recv_timeout(CLOSE_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout)
    {
        slow.store(true, Ordering::Relaxed);
    }
}
