//! Members that are regular files or block devices.
//!
//! [`FileMember`] opens and locks the path once per process and probes its abilities;
//! each shard then gets a device of its own over the same open file. Requests go through the
//! shard's io_uring with O_DIRECT, or are executed at submit if the data is in memory anyway
//! (tmpfs). If the file system refuses O_DIRECT the page cache is used, and a note says so. Flushes then use a separate
//! open file description, to which the kernel reports every write-back error.
//!
//! It does not know metadata, arrays, or the content of blocks.
//!
//! Invariant: once the file turns out to be shorter than it was when it was opened, or the device
//! to be gone, every request on every shard fails with [`IoErrorKind::Gone`](crate::IoErrorKind::Gone),
//! and nothing makes the file grow again.

mod closing;
mod device;
mod holes;
mod inline;
mod loops;
mod network;
mod open;
mod probe;
mod reservations;
mod steps;
mod sysfs;
#[cfg(test)]
mod tests;
mod whole;

pub use open::{FileMember, Mode, create_sparse};
