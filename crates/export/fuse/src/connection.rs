//! The kernel's files about one mount's connection, of the file system fusectl (Documentation/filesystems/fuse.rst).
//!
//! Whoever may mount gets them also where fusectl is not mounted, as in many containers: by a mount of its own that is in no tree.

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::fs::File;
use std::os::fd::OwnedFd;

/// Where fusectl usually is.
const USUAL: &str = "/sys/fs/fuse/connections";

/// The file that ends the connection when something is written to it: all that waits in it gets an error, and whatever is asked of it
/// later. Once opened it is about that very connection, and about none when that has ended. `number` is the minor number of
/// the mount's device.
///
/// # Errors
/// The kernel's error: there is no such connection, or neither may this process mount nor is fusectl mounted.
pub(crate) fn abort_file(number: u32) -> std::io::Result<File> {
    let name = format!("{number}/abort");
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let opened = match unseen() {
        Ok(root) => rustix::fs::openat(root, name, flags, Mode::empty()),
        // Without the right, or before Linux 5.2.
        Err(_) => rustix::fs::open(format!("{USUAL}/{name}"), flags, Mode::empty()),
    };
    Ok(File::from(opened?))
}

/// The root of a fusectl that is mounted nowhere. It is there as long as something in it is open.
fn unseen() -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    let without = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, without)
}
