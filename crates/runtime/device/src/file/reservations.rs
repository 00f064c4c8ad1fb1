//! Reservations of block devices, by the kernel's ioctls (linux/pr.h), which it makes commands of SCSI or NVMe of.
//!
//! An ioctl waits for the disk, so that each has a thread.

use super::sysfs;
use crate::reservation::{Carried, Order, OrderError, Reservations};
use braid_shard::Shard;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// `PR_WRITE_EXCLUSIVE_REG_ONLY`: those that have registered write, all read.
const TYPE: u32 = 3;
/// `PR_FL_IGNORE_KEY`: registers whatever key was registered before.
const IGNORE_KEY: u32 = 1;
/// The statuses that tell of a reservation of another host, or of a key that is registered no more: SCSI's, which is also
/// that of `enum pr_status`, in the lowest byte; and NVMe's, from kernels before 6.4 as it is.
const CONFLICT: i32 = 0x18;
const NVME_CONFLICT: i32 = 0x83;
/// A SCSI disk tells something else first, such as a reset or that a registration has ended (*unit attention*): the order has
/// to be given again.
const CHECK_CONDITION: i32 = 2;
/// It has so many things to tell, at most.
const TELLS_MAX: u32 = 5;

/// `struct pr_registration`.
#[repr(C)]
#[derive(Default)]
struct Registration {
    old_key: u64,
    new_key: u64,
    flags: u32,
    pad: u32,
}

/// `struct pr_reservation`.
#[repr(C)]
struct Reservation {
    key: u64,
    kind: u32,
    flags: u32,
}

/// `struct pr_preempt`, whose fields the kernel calls `old_key` and `new_key`. Its drivers send the first as the key of the
/// sender, and the second as the one to be preempted (`sd_pr_preempt`, `nvme_pr_preempt`).
#[repr(C)]
struct Preempt {
    own_key: u64,
    other_key: u64,
    kind: u32,
    flags: u32,
}

/// `_IOW('p', NUMBER, T)`.
const fn ioc<T>(number: u32) -> libc::Ioctl {
    (rustix::ioctl::opcode::write::<T>(b'p', number as u8)) as libc::Ioctl
}

const REGISTER: libc::Ioctl = ioc::<Registration>(200);
const RESERVE: libc::Ioctl = ioc::<Reservation>(201);
const RELEASE: libc::Ioctl = ioc::<Reservation>(202);
const PREEMPT: libc::Ioctl = ioc::<Preempt>(203);

/// See the module's documentation.
pub(super) struct DiskReservations {
    shard: Shard,
    fd: Arc<OwnedFd>,
}

impl DiskReservations {
    /// Those of the block device `fd`; `None` where it is no disk of its own.
    pub(super) fn of(shard: &Shard, fd: OwnedFd) -> Option<DiskReservations> {
        let whole = is_whole_disk(&sysfs::folder(&fd)?);
        whole.then(|| DiskReservations { shard: shard.clone(), fd: Arc::new(fd) })
    }
}

/// The device of this folder of sysfs is a disk, or all paths to one. A reservation is of the whole disk, so that a partition
/// has none; nor has any other device of the device mapper, which passes orders on to disks that others use parts of.
fn is_whole_disk(folder: &Path) -> bool {
    let mapped = std::fs::read_to_string(folder.join("dm/uuid"));
    let multipath = |uuid: String| uuid.starts_with("mpath-");
    !folder.join("partition").exists()
        && (!folder.join("dm").exists() || mapped.is_ok_and(multipath))
}

impl Reservations for DiskReservations {
    fn carry_out(&self, order: Order) -> Carried {
        let fd = Arc::clone(&self.fd);
        let done = self.shard.on_thread(move || carry_out(&fd, order));
        Box::pin(async move {
            let no_thread = || OrderError::Failed("no thread can be started for it".to_string());
            done.await.unwrap_or_else(|| Err(no_thread()))
        })
    }
}

fn carry_out(fd: &OwnedFd, order: Order) -> Result<(), OrderError> {
    match order {
        Order::Register { key } => {
            let registration =
                Registration { new_key: key, flags: IGNORE_KEY, ..Registration::default() };
            match ioctl(fd, REGISTER, &registration) {
                // NVMe registers only where nothing is registered, and replaces where an earlier key is named; whatever that
                // is, since it is ignored.
                Err(OrderError::Conflict) => {
                    ioctl(fd, REGISTER, &Registration { old_key: key, ..registration })
                }
                done => done,
            }
        }
        Order::Reserve { key } => ioctl(fd, RESERVE, &Reservation { key, kind: TYPE, flags: 0 }),
        Order::Preempt { key, of } => {
            // Not "and abort": a disk of Linux's own target (LIO, 6.1) carries that out and never answers.
            ioctl(fd, PREEMPT, &Preempt { own_key: key, other_key: of, kind: TYPE, flags: 0 })
        }
        Order::Leave { key } => {
            // Fails when another holds it, which is as well.
            let _ = ioctl(fd, RELEASE, &Reservation { key, kind: TYPE, flags: 0 });
            ioctl(fd, REGISTER, &Registration { old_key: key, ..Registration::default() })
        }
    }
}

/// `order` is that of `T`.
fn ioctl<T>(fd: &OwnedFd, order: libc::Ioctl, argument: &T) -> Result<(), OrderError> {
    let mut status = CHECK_CONDITION;
    for _ in 0..TELLS_MAX {
        // SAFETY: each of the orders above reads the structure that it is made with, and writes nothing; `argument` outlives
        // the call.
        #[allow(unsafe_code)]
        let answer = unsafe { libc::ioctl(fd.as_raw_fd(), order, std::ptr::from_ref(argument)) };
        status = answer;
        if status < 0 || status & 0xff != CHECK_CONDITION {
            break;
        }
    }
    match status {
        0 => Ok(()),
        -1 => Err(match Errno::from_io_error(&std::io::Error::last_os_error()) {
            Some(Errno::BADE) => OrderError::Conflict,
            Some(
                errno @ (Errno::OPNOTSUPP
                | Errno::NOTTY
                | Errno::INVAL
                | Errno::PERM
                | Errno::ACCESS),
            ) => OrderError::Unable(errno.to_string()),
            errno => OrderError::Failed(errno.map_or_else(String::new, |errno| errno.to_string())),
        }),
        status if is_conflict(status) => Err(OrderError::Conflict),
        status => Err(OrderError::Failed(format!("the disk's status is {status:#x}"))),
    }
}

fn is_conflict(status: i32) -> bool {
    status & 0xff == CONFLICT || status & 0x7ff == NVME_CONFLICT
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn disks_and_multipath_devices_have_reservations_and_parts_of_disks_have_none() {
        let folder = tempfile::tempdir().unwrap();
        let device = |name: &str, files: &[(&str, &str)]| {
            let place = folder.path().join(name);
            fs::create_dir_all(place.join("queue")).unwrap();
            for (file, text) in files {
                let file = place.join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            is_whole_disk(&place)
        };
        assert!(device("sda", &[("device/type", "0\n")]));
        assert!(device("dm-0", &[("dm/uuid", "mpath-36001405\n"), ("dm/name", "mpatha\n")]));
        assert!(!device("sda1", &[("partition", "1\n")]));
        assert!(!device("dm-1", &[("dm/uuid", "LVM-abc\n")]));
        assert!(!device("dm-2", &[("dm/uuid", "part1-mpath-36001405\n")]));
        assert!(!device("dm-3", &[("dm/uuid", "\n")]));
        assert!(!device("dm-4", &[("dm/name", "of another kernel\n")]));
    }

    #[test]
    fn conflicts_are_seen_whatever_stands_beside_them() {
        // As drivers give them: plain, with a message byte (tcm_loop), of NVMe, with "do not retry".
        assert!([0x18, 0x118, 0x83, 0x4083].into_iter().all(is_conflict));
        assert!(![0, 2, 0x8000002, 0x10000, 0x4002].into_iter().any(is_conflict));
    }
}
