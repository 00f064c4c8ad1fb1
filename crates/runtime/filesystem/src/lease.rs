//! Files that are read on shards which are not the file system's own.
//!
//! The file system stays on one shard. To the others it gives leases: what they need to read a part of a file by
//! themselves, as long as nothing of it changes. What is in a lease is the file system's affair.

use crate::attr::Ino;
use braid_shard::Buf;
use braid_shard::BufMut;
use std::any::Any;
use std::future::Future;
use std::pin::Pin;

/// A lease on its way to the shard that uses it.
pub type Lease = Box<dyn Any + Send>;

/// A read under way; `None`: the leases do not suffice, and the file system is to be asked.
pub type LeasedRead<'a> = Pin<Box<dyn Future<Output = Option<Buf>> + 'a>>;

/// Says if a shard's leases suffice for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leased {
    /// They do, as far as can be told before.
    Yes,
    /// They do not, and more may be had: see [`FileSystem::lease`](crate::FileSystem::lease).
    Ask,
    /// They do not, and it is too early to ask again.
    No,
}

/// The leases of one shard.
pub trait Leases {
    /// Says if they suffice to read `len` bytes at `offset`.
    fn suffice(&self, ino: Ino, offset: u64, len: usize) -> Leased;

    /// Reads as [`FileSystem::read_into`](crate::FileSystem::read_into) does.
    fn read(&self, ino: Ino, offset: u64, len: usize, room: Option<BufMut>) -> LeasedRead<'_>;

    /// Takes note of an answer of [`FileSystem::lease`](crate::FileSystem::lease).
    fn keep(&self, ino: Ino, lease: Option<Lease>);
}
