//! The bytes of a running array that its users see, which its shards and handles share without a message.
//!
//! It may be less than what the members hold: whoever wants to make the members' part smaller makes this smaller first, as
//! md demands. As in md no superblock says so.

use std::sync::atomic::{AtomicU64, Ordering};

/// See the module's documentation. Whoever opens the array is given the size of that moment, and keeps it.
#[derive(Debug)]
pub(crate) struct ArraySize(AtomicU64);

impl ArraySize {
    /// So many bytes.
    pub(crate) fn new(bytes: u64) -> ArraySize {
        ArraySize(AtomicU64::new(bytes))
    }

    /// The size now, in bytes.
    pub(crate) fn get(&self) -> u64 {
        // Nothing else is read or written by it, so that any order of memory is good enough.
        self.0.load(Ordering::Relaxed)
    }

    /// It is so many bytes from now on. Gives what it was.
    pub(crate) fn set(&self, bytes: u64) -> u64 {
        self.0.swap(bytes, Ordering::Relaxed)
    }
}
