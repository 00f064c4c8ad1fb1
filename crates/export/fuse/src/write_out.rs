//! Requests that need what the kernel holds back: where the data of a file lie is known only when its cache has been
//! written out. Linux does not do that before lseek(2) asks (fs/fuse/file.c: `fuse_lseek`), so it is asked to.
//!
//! The kernel waits for the writes, and those need the shard; so a thread of its own asks.

use crate::channel::Notices;
use braid_filesystem::Ino;
use std::sync::{OnceLock, mpsc};

/// What is done afterwards.
type Then = Box<dyn FnOnce() + Send>;

/// Asks the kernel to write files out, one after the other.
#[derive(Default)]
pub(crate) struct WriteOut {
    queue: OnceLock<mpsc::Sender<(Ino, Then)>>,
}

impl WriteOut {
    /// Starts the thread, which ends when this is dropped.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub fn start(&self, notices: Notices) -> std::io::Result<()> {
        let (send, receive) = mpsc::channel::<(Ino, Then)>();
        std::thread::Builder::new().name("fuse-write-out".to_owned()).spawn(move || {
            for (ino, then) in receive {
                // A file of which the kernel holds nothing is not known to it: just as well.
                let _ = notices.forget_content(ino, 0);
                then();
            }
        })?;
        // Started once for each mount.
        let _ = self.queue.set(send);
        Ok(())
    }

    /// Calls `then` when the kernel holds nothing back of `ino`.
    pub fn then(&self, ino: Ino, then: impl FnOnce() + Send + 'static) {
        let then: Then = Box::new(then);
        let unsent = match self.queue.get() {
            Some(queue) => queue.send((ino, then)).err().map(|error| error.0.1),
            None => Some(then),
        };
        if let Some(then) = unsent {
            then();
        }
    }
}
