//! Whether a member is still all there: a file may be truncated, a disk unplugged, at any time.
//!
//! Asks only for what this machine knows: a shard must not wait for the server of a file system.

use super::closing;
use rustix::fs::{AtFlags, SeekFrom, StatxFlags, seek, statx};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The open and locked file, with the size that it had; shared by all shards.
#[derive(Debug)]
pub(super) struct Whole {
    /// There until it is dropped.
    fd: Option<OwnedFd>,
    block_device: bool,
    /// Bytes when it was opened, not rounded.
    size: u64,
    gone: AtomicBool,
    slow_to_close: Arc<AtomicBool>,
}

impl Whole {
    pub(super) fn new(fd: OwnedFd, block_device: bool, size: u64) -> Whole {
        let (gone, slow_to_close) = (AtomicBool::new(false), Arc::default());
        Whole { fd: Some(fd), block_device, size, gone, slow_to_close }
    }

    /// A further descriptor of the same open file: it holds the same lock.
    pub(super) fn descriptor(&self) -> std::io::Result<OwnedFd> {
        let fd = self.fd.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
        fd.try_clone()
    }

    /// Shared by all descriptors of the file: closing one takes long.
    pub(super) fn slow_to_close(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.slow_to_close)
    }

    /// It is a regular file, not a block device.
    pub(super) fn is_file(&self) -> bool {
        !self.block_device
    }

    /// True once [`check`](Whole::check) has failed.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Asks the system; false when the file is shorter than it was, or cannot be asked any more.
    /// Once false, always false.
    pub(super) fn check(&self) -> bool {
        if self.is_gone() {
            return false;
        }
        let Some(fd) = &self.fd else { return false };
        let size = if self.block_device {
            seek(fd, SeekFrom::End(0)).ok()
        } else {
            let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
            statx(fd, c"", flags, StatxFlags::SIZE).ok().map(|found| found.stx_size)
        };
        let whole = size.is_some_and(|size| size >= self.size);
        if !whole {
            self.gone.store(true, Ordering::Relaxed);
        }
        whole
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            closing::close(fd, &self.slow_to_close);
        }
    }
}
