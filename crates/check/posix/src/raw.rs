//! Shared maps of files, locks on ranges of them, asynchronous I/O, handles and attributes with a project: what has no safe interface elsewhere.
//!
//! Owns the crate's only unsafe code. A [`Mapping`] is reached by copying in and out, within its bounds, so no
//! reference to memory that another map or a write may change ever exists.

#![allow(unsafe_code)]

pub mod aio;
pub mod attributes;
pub mod handle;

use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes of a file in memory.
///
/// Reaching bytes that lie beyond the end of the file, in a page that holds none of it, ends the process with SIGBUS:
/// whoever holds a map keeps the file long enough.
#[derive(Debug)]
pub struct Mapping {
    at: *mut u8,
    len: usize,
    writable: bool,
}

// SAFETY: a map is memory of the process, not of a thread, and is owned by one value.
unsafe impl Send for Mapping {}

/// Who sees what is written to a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The file and all who read it.
    Shared,
    /// This map alone.
    Private,
}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset` on, a multiple of the page size.
    ///
    /// # Errors
    ///
    /// That of mmap: EACCES when the file was not opened for what is wanted, EINVAL for no bytes, ENODEV where the
    /// file system has no maps.
    pub fn new(
        file: &File,
        offset: u64,
        len: usize,
        sharing: Sharing,
        writable: bool,
    ) -> rustix::io::Result<Self> {
        let protection =
            if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let flags = match sharing {
            Sharing::Shared => MapFlags::SHARED,
            Sharing::Private => MapFlags::PRIVATE,
        };
        // SAFETY: no address is asked for, so the kernel takes free ones, and nothing that exists is replaced.
        let at = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, file.as_fd(), offset)
        }?;
        Ok(Self { at: at.cast(), len, writable })
    }

    /// Copies bytes out.
    ///
    /// # Panics
    ///
    /// If the range is not within the map.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(
            offset.checked_add(into.len()).is_some_and(|end| end <= self.len),
            "beyond the map"
        );
        // SAFETY: the range is within the map by the line above, `into` is memory of its own, and the map lives as
        // long as `self`.
        unsafe {
            std::ptr::copy_nonoverlapping(self.at.add(offset), into.as_mut_ptr(), into.len());
        }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    ///
    /// If the range is not within the map, or the map is not writable.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(self.writable, "a map that is read only");
        assert!(
            offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len),
            "beyond the map"
        );
        // SAFETY: the range is within the map, which is writable, by the lines above; `bytes` is memory of its own.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.add(offset), bytes.len());
        }
    }

    /// Has the kernel do what it does when a process reads, or writes, a byte of each page of the range
    /// (`MADV_POPULATE_READ`, `MADV_POPULATE_WRITE`): also where that would end the process with SIGBUS.
    ///
    /// # Errors
    ///
    /// EFAULT where a page lies beyond the end of the file or cannot be read; EINVAL before Linux 5.14.
    pub fn touch(&self, offset: usize, len: usize, write: bool) -> rustix::io::Result<()> {
        let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
        self.advise(offset, len, advice)
    }

    /// Forgets the pages of the map, but not what was written to a shared one (`MADV_DONTNEED`).
    ///
    /// # Errors
    ///
    /// That of madvise.
    pub fn forget(&self) -> rustix::io::Result<()> {
        self.advise(0, self.len, libc::MADV_DONTNEED)
    }

    /// Says that it will be read here and there: the kernel then reads what is touched and nothing around it.
    ///
    /// # Errors
    ///
    /// That of madvise.
    pub fn here_and_there(&self) -> rustix::io::Result<()> {
        self.advise(0, self.len, libc::MADV_RANDOM)
    }

    fn advise(&self, offset: usize, len: usize, advice: libc::c_int) -> rustix::io::Result<()> {
        let start = offset / 4096 * 4096;
        let len = len.saturating_add(offset - start);
        assert!(start.checked_add(len).is_some_and(|end| end <= self.len), "beyond the map");
        // SAFETY: whole pages of the map, which end within its last page; what it holds stays, but for private pages,
        // to which no reference was ever given out.
        let done = unsafe { libc::madvise(self.at.add(start).cast(), len, advice) };
        if done == 0 { Ok(()) } else { Err(last_error()) }
    }

    /// msync: brings what was written to the file, and waits for it.
    ///
    /// # Errors
    ///
    /// That of msync.
    pub fn sync(&self) -> rustix::io::Result<()> {
        // SAFETY: the range is the whole of the map, which lives as long as `self`.
        unsafe { rustix::mm::msync(self.at.cast(), self.len, MsyncFlags::SYNC) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the whole of the map, and no reference into it was ever given out. A map that cannot
        // be ended stays, which harms nobody.
        let _ = unsafe { rustix::mm::munmap(self.at.cast(), self.len) };
    }
}

/// What a lock on a range lets others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Others may read: F_RDLCK.
    Read,
    /// Others may do nothing: F_WRLCK.
    Write,
    /// The range is let go: F_UNLCK.
    Unlock,
}

/// Whose a lock on a range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOwner {
    /// The process's, as POSIX has it: gone when the process closes any descriptor of the file.
    Process,
    /// The open file description's.
    Description,
}

fn request(kind: LockKind, start: i64, len: i64) -> libc::flock {
    let kind = match kind {
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
        LockKind::Unlock => libc::F_UNLCK,
    };
    libc::flock {
        // The constants are 0 to 2, whatever type they are given.
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: len,
        l_pid: 0,
    }
}

/// Locks or lets go `len` bytes from `start` on; a length of 0 is all that follows.
///
/// # Errors
///
/// That of fcntl: EAGAIN or EACCES when another owner's lock is in the way and `wait` is false.
pub fn lock_range(
    file: &File,
    owner: LockOwner,
    kind: LockKind,
    start: i64,
    len: i64,
    wait: bool,
) -> rustix::io::Result<()> {
    let command = match (owner, wait) {
        (LockOwner::Process, false) => libc::F_SETLK,
        (LockOwner::Process, true) => libc::F_SETLKW,
        (LockOwner::Description, false) => libc::F_OFD_SETLK,
        (LockOwner::Description, true) => libc::F_OFD_SETLKW,
    };
    let wanted = request(kind, start, len);
    // SAFETY: the descriptor is open while `file` is borrowed, and the kernel only reads the structure.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const wanted) };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

/// The process that stands in the way of a lock (F_GETLK), or none.
///
/// # Errors
///
/// That of fcntl.
pub fn lock_in_the_way(
    file: &File,
    kind: LockKind,
    start: i64,
    len: i64,
) -> rustix::io::Result<Option<i32>> {
    let mut found = request(kind, start, len);
    // SAFETY: the descriptor is open while `file` is borrowed, and the kernel writes a structure of this type.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut found) };
    if done != 0 {
        return Err(last_error());
    }
    Ok((i32::from(found.l_type) != libc::F_UNLCK).then_some(found.l_pid))
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_a_map_holds_is_what_the_file_holds() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abcdef").unwrap();
        let mut map = Mapping::new(&file, 0, 6, Sharing::Shared, true).unwrap();
        map.write(2, b"XY");
        let mut seen = [0; 6];
        map.read(0, &mut seen);
        assert_eq!(&seen, b"abXYef");
    }

    #[test]
    #[should_panic(expected = "beyond the map")]
    fn a_range_beyond_the_map_is_refused() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abcdef").unwrap();
        let map = Mapping::new(&file, 0, 6, Sharing::Shared, false).unwrap();
        map.read(4, &mut [0; 3]);
    }
}
