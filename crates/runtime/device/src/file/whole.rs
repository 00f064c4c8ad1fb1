//! Whether a member is still all there: a file may be truncated, a disk unplugged, at any time.

use rustix::fs::{SeekFrom, fstat, seek};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// The open and locked file, with the size that it had; shared by all shards.
#[derive(Debug)]
pub(super) struct Whole {
    fd: OwnedFd,
    block_device: bool,
    /// Bytes when it was opened, not rounded.
    size: u64,
    gone: AtomicBool,
}

impl Whole {
    pub(super) fn new(fd: OwnedFd, block_device: bool, size: u64) -> Whole {
        Whole { fd, block_device, size, gone: AtomicBool::new(false) }
    }

    /// A further descriptor of the same open file: it holds the same lock.
    pub(super) fn descriptor(&self) -> std::io::Result<OwnedFd> {
        self.fd.try_clone()
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
        let size = if self.block_device {
            seek(&self.fd, SeekFrom::End(0)).ok()
        } else {
            fstat(&self.fd).ok().and_then(|stat| u64::try_from(stat.st_size).ok())
        };
        let whole = size.is_some_and(|size| size >= self.size);
        if !whole {
            self.gone.store(true, Ordering::Relaxed);
        }
        whole
    }
}
