//! The folder of a block device in sysfs.

use rustix::fs::{fstat, major, minor};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// That of the block device `fd`, with all links followed; `None` when sysfs does not have it. A partition's folder lies in
/// that of its disk.
pub(super) fn folder(fd: &OwnedFd) -> Option<PathBuf> {
    let device = fstat(fd).ok()?.st_rdev;
    std::fs::canonicalize(format!("/sys/dev/block/{}:{}", major(device), minor(device))).ok()
}
