//! A [`FileSystem`](braid_filesystem::FileSystem) mounted through FUSE.
//!
//! ```text
//!  kernel ──/dev/fuse──► the shard: a request is read, a write's payload into an aligned buffer, and taken apart
//!    ▲                                │
//!    └────────── reply ────────── a task that asks the file system
//! ```
//!
//! Permissions, locks and caches are the kernel's; this crate passes requests on and answers. What is under way is
//! bounded: reads and writes by budgets of bytes; all others are one per calling thread.
//!
//! What it does not know: volumes, bricks, where bytes lie.

#![forbid(unsafe_code)]

mod abi;
mod channel;
mod errno;
mod kernel;
mod mount;
mod mountpoint;
mod options;
mod receive;
mod references;
mod serve;
mod table;
mod work;
mod write_out;

pub use mount::Mount;
pub use options::{Ended, EndedBy, MountError, MountOptions, UnmountError};
