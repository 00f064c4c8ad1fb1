//! A [`FileSystem`](braid_filesystem::FileSystem) mounted through FUSE.
//!
//! ```text
//!  kernel ──io_uring, or /dev/fuse──► the shard: a request, a write's payload in an aligned buffer, is taken apart
//!    ▲                                      │
//!    └────────── reply ──────────── a task that asks the file system
//! ```
//!
//! Permissions, locks and caches are the kernel's; this crate passes requests on and answers. What is under way is
//! bounded: over io_uring by the entries of its queues; through the device reads and writes by budgets of bytes, all
//! others are one per calling thread.
//!
//! It does not know volumes, bricks, or where bytes lie.

#![deny(unsafe_code)]

mod abi;
mod channel;
#[allow(unsafe_code)]
mod clone;
mod connection;
mod depth;
mod errno;
mod fronts;
mod guard;
mod install;
mod kernel;
mod mount;
mod mountpoint;
mod options;
mod receive;
mod references;
mod reply;
mod serve;
mod table;
mod uring;
mod watchdog;
mod work;
mod write_out;

pub use guard::guard;
pub use mount::{Front, Mount, OpenLeases};
pub use mountpoint::metadata_now;
pub use options::{Ended, EndedBy, MountError, MountOptions, UnmountError, Without};
pub use uring::io_uring_is_off;
