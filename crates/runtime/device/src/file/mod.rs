//! Members that are regular files or block devices.
//!
//! [`FileMember`] opens and locks the path once per process and finds out what it can do;
//! each shard then gets a device of its own over the same open file. Requests go through the
//! shard's io_uring with O_DIRECT, or are carried out at submit where the data is in memory anyway
//! (tmpfs). Where a filesystem refuses O_DIRECT the page cache is used, and a note says so; flushes then have an open
//! file of their own, which the kernel tells every error of writing back.
//!
//! It does not know metadata, arrays, or the content of blocks.
//!
//! Invariant: once the file has been found shorter than it was when it was opened, or the device
//! gone, every request on every shard fails with [`IoErrorKind::Gone`](crate::IoErrorKind::Gone),
//! and nothing makes the file grow again.

mod closing;
mod device;
mod inline;
mod open;
mod probe;
mod steps;
#[cfg(test)]
mod tests;
mod whole;

pub use open::{FileMember, Mode, create_sparse};
