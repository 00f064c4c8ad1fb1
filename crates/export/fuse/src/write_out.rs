//! Requests that need what the kernel holds back: where the data of a file lie is known only when its cache has been
//! written out. Linux does not do that before lseek(2) asks (fs/fuse/file.c: `fuse_lseek`), so it is asked to.
//!
//! The kernel locks the pages of the file one after the other and waits for writes of them, which need the shard; so a
//! thread of its own asks. And a reply may wait for it only where the kernel locks no page until that reply: where a
//! process waits in lseek(2), or reads past the page cache. With a page that is being read, as when a process touches a
//! mapped one, both would wait for each other, and `kill -9` would not end it.

use crate::channel::Notices;
use braid_filesystem::Ino;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};

/// Called afterwards.
type Then = Box<dyn FnOnce() + Send>;

/// Asks the kernel to write files out, one after the other.
#[derive(Default)]
pub(crate) struct WriteOut {
    queue: OnceLock<mpsc::Sender<(Ino, u64, Then)>>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    begun: AtomicU64,
    done: AtomicU64,
}

impl WriteOut {
    /// Starts the thread, which ends when this is dropped.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub fn start(&self, notices: Notices) -> std::io::Result<()> {
        let (send, receive) = mpsc::channel::<(Ino, u64, Then)>();
        let counts = Arc::clone(&self.counts);
        std::thread::Builder::new().name("fuse-write-out".to_owned()).spawn(move || {
            for (ino, from, then) in receive {
                counts.begun.fetch_add(1, Ordering::AcqRel);
                // Files end before that.
                let from = i64::try_from(from).unwrap_or(i64::MAX);
                // A file of which the kernel holds nothing is not known to it: just as well.
                let _ = notices.forget_content(ino, from);
                counts.done.fetch_add(1, Ordering::AcqRel);
                then();
            }
        })?;
        // Started once for each mount.
        let _ = self.queue.set(send);
        Ok(())
    }

    /// The number of the call that the kernel is at; `None` when there is none.
    pub fn under_way(&self) -> Option<u64> {
        let done = self.counts.done.load(Ordering::Acquire);
        let begun = self.counts.begun.load(Ordering::Acquire);
        (begun > done).then_some(begun)
    }

    /// Calls `then` when the kernel holds nothing back of `ino` from byte `from` on.
    pub fn then(&self, ino: Ino, from: u64, then: impl FnOnce() + Send + 'static) {
        let then: Then = Box::new(then);
        let unsent = match self.queue.get() {
            Some(queue) => queue.send((ino, from, then)).err().map(|error| error.0.2),
            None => Some(then),
        };
        if let Some(then) = unsent {
            then();
        }
    }
}
