//! A [`FileSystem`](braid_filesystem::FileSystem) mounted through FUSE.
//!
//! ```text
//!  kernel ──/dev/fuse──► fuser's threads: parse, copy a write's payload into an aligned buffer
//!    ▲                                │ a job to the shard
//!    └────────── reply ────────── the shard: a task that asks the file system
//! ```
//!
//! Permissions, locks and caches are the kernel's; this crate passes requests on and answers. What is under way is
//! bounded: reads by a budget of bytes, writes by the buffers that they are copied into; all others are one per
//! calling thread.
//!
//! What it does not know: volumes, bricks, where bytes lie.

#![forbid(unsafe_code)]

mod attributes;
mod errno;
mod kernel;
mod mount;
mod mountpoint;
mod options;
mod payload;
mod references;
mod requests;
mod serve;
mod table;
mod work;
mod write_out;

pub use mount::Mount;
pub use options::{Ended, EndedBy, MountError, MountOptions, UnmountError};
