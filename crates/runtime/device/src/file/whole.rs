//! Finds out if a member is still whole: a file may be truncated, a disk unplugged, at any time.
//!
//! Asks only for what this machine knows: a shard must not wait for the server of a file system.

use super::closing;
use rustix::fs::{AtFlags, Mode, OFlags, SeekFrom, StatxFlags, fcntl_getfl, open, seek, statx};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The open and locked file, with the size that it had; shared by all shards.
#[derive(Debug)]
pub(super) struct Whole {
    /// There until it is dropped.
    fd: Option<OwnedFd>,
    /// The open file for flushes, when it is another one.
    for_flushes: Option<OwnedFd>,
    block_device: bool,
    /// Bytes when it was opened, not rounded.
    size: u64,
    gone: AtomicBool,
    slow_to_close: Arc<AtomicBool>,
}

impl Whole {
    pub(super) fn new(fd: OwnedFd, block_device: bool, size: u64) -> Whole {
        let (gone, slow_to_close) = (AtomicBool::new(false), Arc::default());
        Whole { fd: Some(fd), for_flushes: None, block_device, size, gone, slow_to_close }
    }

    /// Opens the same file once more, for flushes alone. Without a lock: that stays with what reads and writes,
    /// so that it is held while a killed process still has writes under way. May block.
    ///
    /// The kernel tells an error of writing back to each open file once. Were there one only, a durable write of
    /// any shard could take away what a flush has to be told.
    pub(super) fn flush_apart(&mut self) {
        let Some(fd) = &self.fd else { return };
        // By the descriptor: the path may name another file by now, or none.
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let opened = fcntl_getfl(fd).and_then(|flags| {
            let flags = (flags & OFlags::RWMODE) | OFlags::CLOEXEC | OFlags::NOCTTY;
            open(path, flags, Mode::empty())
        });
        // Without /proc, or the right to open it again, one open file has to do.
        self.for_flushes = opened.ok();
    }

    /// A further descriptor for flushes; `None`: those of [`Whole::descriptor`] do.
    pub(super) fn flush_descriptor(&self) -> std::io::Result<Option<OwnedFd>> {
        self.for_flushes.as_ref().map(OwnedFd::try_clone).transpose()
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
        for fd in self.for_flushes.take().into_iter().chain(self.fd.take()) {
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
        // Whoever has taken its place meanwhile is not opened.
        std::fs::rename(&path, dir.path().join("away")).unwrap();
        std::fs::write(&path, [1]).unwrap();
        whole.flush_apart();
        let (same, apart) =
            (whole.descriptor().unwrap(), whole.flush_descriptor().unwrap().unwrap());
        assert_eq!(seek(&apart, SeekFrom::End(0)).unwrap(), 4096);
        // An offset belongs to the open file, as does the error that the kernel has yet to tell.
        seek(&apart, SeekFrom::Start(512)).unwrap();
        assert_eq!((at(&same), at(&apart)), (4096, 512));
    }
}
