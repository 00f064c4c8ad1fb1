//! Checks that a member still has its size: a file may be truncated, and a disk unplugged, at any time.
//!
//! The check uses only cached attributes, because a shard must not wait for the server of a file system.

use super::closing;
use rustix::fs::{AtFlags, Mode, OFlags, SeekFrom, StatxFlags, fcntl_getfl, open, seek, statx};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The open and locked file, with the size that it had when it was opened. Shared by all shards.
#[derive(Debug)]
pub(super) struct Whole {
    /// `None` only while it is being dropped.
    fd: Option<OwnedFd>,
    /// The separate open file description for flushes, if there is one.
    for_flushes: Option<OwnedFd>,
    /// Locks on other ways to the same blocks.
    locks: Vec<OwnedFd>,
    block_device: bool,
    /// Size in bytes when it was opened, not rounded.
    size: u64,
    gone: AtomicBool,
    slow_to_close: Arc<AtomicBool>,
}

impl Whole {
    pub(super) fn new(fd: OwnedFd, block_device: bool, size: u64) -> Whole {
        let (gone, slow_to_close) = (AtomicBool::new(false), Arc::default());
        Whole {
            fd: Some(fd),
            for_flushes: None,
            locks: Vec::new(),
            block_device,
            size,
            gone,
            slow_to_close,
        }
    }

    /// Keeps `locks` until it is closed itself.
    pub(super) fn hold(&mut self, locks: Vec<OwnedFd>) {
        self.locks = locks;
    }

    /// Opens the same file a second time, for flushes only. This one is not locked: the lock belongs to the open file
    /// description of reads and writes, so that it is held while a killed process still has writes in flight. May block.
    ///
    /// The kernel reports a write-back error once to each open file description. If there were only one, a durable
    /// write of any shard could consume the error that a flush must see.
    pub(super) fn flush_apart(&mut self) {
        let Some(fd) = &self.fd else { return };
        // Opened through the descriptor, since the path may name another file by now, or none.
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let opened = fcntl_getfl(fd).and_then(|flags| {
            let flags = (flags & OFlags::RWMODE) | OFlags::CLOEXEC | OFlags::NOCTTY;
            open(path, flags, Mode::empty())
        });
        // Without /proc, or the permission to open it again, flushes use the first one.
        self.for_flushes = opened.ok();
    }

    /// A new descriptor for flushes, or `None` if they are to use that of [`Whole::descriptor`].
    pub(super) fn flush_descriptor(&self) -> std::io::Result<Option<OwnedFd>> {
        self.for_flushes.as_ref().map(OwnedFd::try_clone).transpose()
    }

    /// A new descriptor of the same open file description, which shares its lock.
    pub(super) fn descriptor(&self) -> std::io::Result<OwnedFd> {
        let fd = self.fd.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
        fd.try_clone()
    }

    /// A flag for all descriptors of the file: closing one of them has timed out.
    pub(super) fn slow_to_close(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.slow_to_close)
    }

    /// True for a regular file, false for a block device.
    pub(super) fn is_file(&self) -> bool {
        !self.block_device
    }

    /// True once [`check`](Whole::check) has failed.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// The size in bytes that it has now; `None` when it cannot be read.
    pub(super) fn size_now(&self) -> Option<u64> {
        let fd = self.fd.as_ref()?;
        if self.block_device {
            return seek(fd, SeekFrom::End(0)).ok();
        }
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        statx(fd, c"", flags, StatxFlags::SIZE).ok().map(|found| found.stx_size)
    }

    /// Checks the size; false when the file is shorter than it was, or its size cannot be read. After it was
    /// false once it stays false.
    pub(super) fn check(&self) -> bool {
        if self.is_gone() {
            return false;
        }
        let whole = self.size_now().is_some_and(|size| size >= self.size);
        if !whole {
            self.gone.store(true, Ordering::Relaxed);
        }
        whole
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        let others = self.for_flushes.take().into_iter().chain(self.locks.drain(..));
        for fd in others.chain(self.fd.take()) {
            closing::close(fd, &self.slow_to_close);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::Write;

    fn at(fd: &OwnedFd) -> u64 {
        seek(fd, SeekFrom::Current(0)).unwrap()
    }

    #[test]
    fn flushes_can_have_an_open_file_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("member");
        let mut file =
            OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all(&[7; 4096]).unwrap();
        let mut whole = Whole::new(file.into(), false, 4096);
        assert!(whole.flush_descriptor().unwrap().is_none());
        // The file that has taken its place must not be opened.
        std::fs::rename(&path, dir.path().join("away")).unwrap();
        std::fs::write(&path, [1]).unwrap();
        whole.flush_apart();
        let (same, apart) =
            (whole.descriptor().unwrap(), whole.flush_descriptor().unwrap().unwrap());
        assert_eq!(seek(&apart, SeekFrom::End(0)).unwrap(), 4096);
        // The offset belongs to the open file description, like the error that the kernel has yet to report.
        seek(&apart, SeekFrom::Start(512)).unwrap();
        assert_eq!((at(&same), at(&apart)), (4096, 512));
    }
}
