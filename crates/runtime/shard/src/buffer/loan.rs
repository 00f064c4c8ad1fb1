//! Handles that travel between shards.

use super::{Block, BufMut};
use crate::shard::ShardId;
use std::ptr::NonNull;

/// A handle on its way to another shard or back. While it exists, its memory stays where it is.
/// Dropping one anywhere but at home (by [`Pool::settle`](super::Pool::settle)) leaks its block rather than free
/// memory that somebody might use.
#[derive(Debug)]
pub struct Loan {
    pub(super) block: NonNull<Block>,
    pub(super) start: u32,
    pub(super) memory: NonNull<u8>,
    pub(super) len: u32,
    pub(super) home: ShardId,
    /// The pool's identity: it lives on one thread, which a shard's number does not prove.
    pub(super) pool: u64,
    pub(super) writable: bool,
}

// SAFETY: a loan holds one handle's share of a block but never touches the block's (unsynchronised)
// count away from home: only `into_handle` does, which Pool::reclaim and Pool::settle call after
// checking that the pool is the block's own, which never leaves its thread. The memory behind it
// is used by one shard at a time for writing, since the loan replaces the only writable handle.
unsafe impl Send for Loan {}

impl Loan {
    /// The shard whose memory this is.
    pub fn home(&self) -> ShardId {
        self.home
    }

    /// Bytes in the range.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True for a range of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn into_handle(self) -> BufMut {
        BufMut { block: self.block, start: self.start, len: self.len }
    }
}
