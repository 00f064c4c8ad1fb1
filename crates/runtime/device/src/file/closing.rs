//! Closing descriptors, which may take for ever: the last write-out of a file system whose server does not answer, or of a
//! disk that does not.
//!
//! A thread of its own closes each; whoever asked waits a moment for it, so that as a rule a file is closed, and its
//! lock given back, when its device is gone. Once that has taken too long nobody waits for another descriptor of the file.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// A shard stands still for so long at most.
const PATIENCE: Duration = Duration::from_millis(100);

/// Closes `fd`. `slow` is shared by all descriptors of the file.
pub(super) fn close(fd: OwnedFd, slow: &AtomicBool) {
    let (closed, wait) = mpsc::sync_channel::<()>(1);
    let work = move || {
        drop(fd);
        // Nobody may be waiting any more.
        let _ = closed.send(());
    };
    // Without a thread it is closed here, when the closure is dropped.
    let started = std::thread::Builder::new().name("close".to_string()).spawn(work).is_ok();
    if started
        && !slow.load(Ordering::Relaxed)
        && wait.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout)
    {
        slow.store(true, Ordering::Relaxed);
    }
}
