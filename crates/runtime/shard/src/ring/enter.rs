//! The call that submits to a ring and waits for it: its flags, and the errors that pass.

use std::io;

/// IORING_ENTER_GETEVENTS of the kernel's io_uring.h.
pub(super) const ENTER_GETEVENTS: u32 = 1;
/// IORING_ENTER_EXT_ARG: the argument is a structure with a time limit.
pub(super) const ENTER_EXT_ARG: u32 = 8;

/// True when the kernel may accept the same call later: it was interrupted, the time was over, it is short of memory, or
/// completions must be reaped first.
pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY | libc::ENOMEM)
    )
}
