//! Files by handle (open_by_handle_at(2)): how an NFS server finds the files of its clients.

#![allow(unsafe_code)]

use super::last_error;
use rustix::fs::OFlags;
use std::ffi::CString;
use std::fs::File;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes that a handle may have (`MAX_HANDLE_SZ`).
const MAX: usize = 128;

/// What a file is known by, whatever its names.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct Handle {
    bytes: u32,
    kind: i32,
    handle: [u8; MAX],
}

// The two have their fields at the same places; the kernel's ends where the bytes of the handle begin.
const _: () = assert!(size_of::<libc::file_handle>() == 8 && size_of::<Handle>() == 8 + MAX);

impl Handle {
    /// That of what `path` itself names.
    ///
    /// # Errors
    ///
    /// That of name_to_handle_at: EOPNOTSUPP where the file system has none.
    pub fn of(path: &Path) -> rustix::io::Result<Self> {
        let path =
            CString::new(path.as_os_str().as_bytes()).map_err(|_| rustix::io::Errno::INVAL)?;
        let mut handle = Handle { bytes: MAX as u32, kind: 0, handle: [0; MAX] };
        let mut mount = 0;
        // SAFETY: the path ends with a zero byte, and the handle has room for the bytes that it says.
        let done = unsafe {
            libc::name_to_handle_at(
                libc::AT_FDCWD,
                path.as_ptr(),
                (&raw mut handle).cast(),
                &raw mut mount,
                0,
            )
        };
        if done == 0 { Ok(handle) } else { Err(last_error()) }
    }

    /// Opens the file; `on` is anything open on the same file system. Only root may.
    ///
    /// # Errors
    ///
    /// That of open_by_handle_at: ESTALE when there is no such file any more.
    pub fn open(&self, on: &File, flags: OFlags) -> rustix::io::Result<File> {
        let mut handle = self.clone();
        let flags = (flags | OFlags::CLOEXEC).bits().cast_signed();
        // SAFETY: the kernel reads as many bytes of the handle as it says to have, which are there.
        let fd =
            unsafe { libc::open_by_handle_at(on.as_raw_fd(), (&raw mut handle).cast(), flags) };
        if fd < 0 {
            return Err(last_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        Ok(unsafe { File::from_raw_fd(fd) })
    }
}
