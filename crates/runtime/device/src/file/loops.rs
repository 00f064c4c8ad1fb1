//! Loop devices: another way to the blocks of a file, past its lock. The kernel's loop driver takes no lock on the file
//! behind a device, and md, a mount or LVM on that device takes none either.
//!
//! So a file is kept off those who use it through a loop device by holding these exclusively, and a loop device is
//! kept off those who use the file itself by a lock on that. What is attached later is not seen: `losetup` asks nobody.
//! It knows sysfs (`loop/backing_file`, of drivers/block/loop.c) and no content.

use super::sysfs;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open, stat};
use rustix::io::Errno;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The user of the other way to the blocks, and how to end that use.
pub(super) struct InUse(pub(super) String);

/// Holds every loop device over the file `fd` exclusively, for as long as what is given lives.
///
/// # Errors
/// Somebody else holds one: md, a mount, LVM, another array.
pub(super) fn over(fd: &OwnedFd) -> Result<Vec<OwnedFd>, InUse> {
    let Ok(file) = fstat(fd) else { return Ok(Vec::new()) };
    let Ok(disks) = fs::read_dir("/sys/block") else { return Ok(Vec::new()) };
    let mut held = Vec::new();
    for disk in disks.flatten() {
        let Some(behind) = backing_file(&disk.path()) else { continue };
        if !stat(&behind).is_ok_and(|it| (it.st_dev, it.st_ino) == (file.st_dev, file.st_ino)) {
            continue;
        }
        let node = Path::new("/dev").join(disk.file_name());
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        match open(&node, flags, Mode::empty()) {
            Ok(fd) => held.push(fd),
            Err(Errno::BUSY) => return Err(InUse(through(&disk.path(), &node))),
            // A user who may not open it: what holds it is told by sysfs alone.
            Err(_) if holder(&disk.path()).is_some() => {
                return Err(InUse(through(&disk.path(), &node)));
            }
            Err(_) => {}
        }
    }
    Ok(held)
}

/// Locks the file behind the block device `fd`, where that is a loop device or a partition of one and its file can be
/// reached. Of a partition never exclusively, since the others may be somebody's.
///
/// # Errors
/// Somebody else has the file itself locked.
pub(super) fn behind(fd: &OwnedFd, exclusively: bool) -> Result<Option<OwnedFd>, InUse> {
    let Some(disk) = sysfs::folder(fd) else { return Ok(None) };
    let partition = disk.join("partition").exists();
    let whole = if partition { disk.parent().unwrap_or(&disk) } else { &disk };
    let Some(path) = backing_file(whole) else { return Ok(None) };
    let Ok(file) = open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        return Ok(None);
    };
    let operation = match exclusively && !partition {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    match flock(&file, operation) {
        Err(Errno::WOULDBLOCK) => Err(InUse(format!(
            "its file {} is in use by another process; stop the other user first",
            path.display()
        ))),
        locked => Ok(locked.ok().map(|()| file)),
    }
}

/// The file behind the disk whose folder in sysfs is `disk`; `None` when it is no loop device that has one.
fn backing_file(disk: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(disk.join("loop/backing_file")).ok()?;
    Some(PathBuf::from(text.strip_suffix('\n').unwrap_or(&text)))
}

/// The device that is stacked on the disk, by its name: `md0`, `dm-3`.
fn holder(disk: &Path) -> Option<String> {
    let mut holders = fs::read_dir(disk.join("holders")).ok()?;
    let name = holders.next()?.ok()?.file_name();
    Some(name.to_string_lossy().into_owned())
}

fn through(disk: &Path, node: &Path) -> String {
    let node = node.display();
    match holder(disk) {
        Some(md) if md.starts_with("md") => format!(
            "the kernel's array /dev/{md} uses it through the loop device {node}; stop that first: mdadm --stop /dev/{md}"
        ),
        Some(other) => {
            format!("/dev/{other} uses it through the loop device {node}; stop that first")
        }
        None => format!(
            "it is in use through the loop device {node}: mounted, or held by another process; end that first, and detach \
             it: losetup --detach {node}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_a_loop_device_is_named_with_the_way_to_end_it() {
        let disk = tempfile::tempdir().unwrap();
        let node = Path::new("/dev/loop7");
        let said = || through(disk.path(), node);
        assert!(said().contains("losetup --detach /dev/loop7"), "{}", said());
        let holders = disk.path().join("holders");
        fs::create_dir(&holders).unwrap();
        assert!(said().contains("mounted"), "{}", said());
        fs::create_dir(holders.join("dm-3")).unwrap();
        assert!(said().contains("/dev/dm-3"), "{}", said());
        fs::rename(holders.join("dm-3"), holders.join("md127")).unwrap();
        assert!(said().contains("mdadm --stop /dev/md127"), "{}", said());
    }
}
