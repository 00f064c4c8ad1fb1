//! Reservations of block devices, by the kernel's ioctls (linux/pr.h), which it makes commands of SCSI or NVMe of.
//!
//! An ioctl waits for the disk, so that each has a thread.

use super::sysfs;
use crate::reservation::{Carried, Order, OrderError, Reservations};
use braid_shard::Shard;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// `PR_WRITE_EXCLUSIVE_REG_ONLY`: those that have registered write, all read.
const TYPE: u32 = 3;
/// `PR_FL_IGNORE_KEY`: registers whatever key was registered before.
const IGNORE_KEY: u32 = 1;
/// `enum pr_status`, which has SCSI's numbers, also from kernels before 6.1: a reservation of another host is in the way.
const CONFLICT: i32 = 0x18;

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

/// `struct pr_preempt`.
#[repr(C)]
struct Preempt {
    old_key: u64,
    new_key: u64,
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
const PREEMPT_ABORT: libc::Ioctl = ioc::<Preempt>(204);

/// See the module's documentation.
pub(super) struct DiskReservations {
    shard: Shard,
    fd: Arc<OwnedFd>,
}

impl DiskReservations {
    /// Those of the block device `fd`; `None` for a partition, since a reservation is of the whole disk.
    pub(super) fn of(shard: &Shard, fd: OwnedFd) -> Option<DiskReservations> {
        let partition = sysfs::folder(&fd).is_some_and(|disk| disk.join("partition").exists());
        (!partition).then(|| DiskReservations { shard: shard.clone(), fd: Arc::new(fd) })
    }
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
            ioctl(fd, REGISTER, &registration)
        }
        Order::Reserve { key } => ioctl(fd, RESERVE, &Reservation { key, kind: TYPE, flags: 0 }),
        Order::Preempt { key, of } => {
            let preempt = Preempt { old_key: of, new_key: key, kind: TYPE, flags: 0 };
            match ioctl(fd, PREEMPT_ABORT, &preempt) {
                // A disk that cannot end requests under way takes the registration alone.
                Err(OrderError::Unable(_) | OrderError::Failed(_)) => ioctl(fd, PREEMPT, &preempt),
                done => done,
            }
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
    // SAFETY: each of the orders above reads the structure that it is made with, and writes nothing; `argument` outlives the
    // call.
    #[allow(unsafe_code)]
    let status = unsafe { libc::ioctl(fd.as_raw_fd(), order, std::ptr::from_ref(argument)) };
    match status {
        0 => Ok(()),
        CONFLICT => Err(OrderError::Conflict),
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
        status => Err(OrderError::Failed(format!("the disk's status is {status:#x}"))),
    }
}
