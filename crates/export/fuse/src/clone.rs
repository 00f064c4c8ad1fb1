//! A further reader of the same mount.

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Opcode, Setter, opcode};
use std::os::fd::{AsRawFd, OwnedFd};

/// `FUSE_DEV_IOC_CLONE` of linux/fuse.h.
const CLONE: Opcode = opcode::read::<u32>(229, 0);

/// Another /dev/fuse of the mount of `device`. A request that is read from one of them is answered through the same one.
///
/// # Errors
/// The kernel's error.
pub(crate) fn another(device: &OwnedFd) -> std::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let new = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
    // Descriptors are not negative.
    let old = u32::try_from(device.as_raw_fd()).unwrap_or(u32::MAX);
    // SAFETY: this ioctl reads the number of a descriptor, a `u32`, from where it is told, and writes nothing.
    unsafe { rustix::ioctl::ioctl(&new, Setter::<CLONE, u32>::new(old)) }?;
    Ok(new)
}
