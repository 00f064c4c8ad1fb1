//! The messages between the shards of a mount.

use crate::abi::request::{Header, WriteHead};
use braid_filesystem::{Ino, Lease};
use braid_shard::Loan;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// A message between the home shard and a front.
pub(crate) enum Msg {
    /// To the home shard: this was read, and is to be answered. The body is what comes after the header.
    Request { header: Header, body: Box<[u8]> },
    /// The same of a write, with its payload; that it has ended is told under `id`.
    Write { header: Header, head: WriteHead, id: usize, loan: Loan },
    /// This came over the io_uring of the front, and is to be answered under `id`; with memory for the answer.
    RingRequest { header: Header, body: Box<[u8]>, id: usize, room: Option<Loan> },
    /// The same of a write, with its payload.
    RingWrite { header: Header, head: WriteHead, id: usize, loan: Loan },
    /// A lease is wanted for the bytes at `offset`.
    Ask { ino: Ino, offset: u64 },
    /// To a front: there is much to do.
    Called,
    /// The answer to [`Msg::Ask`].
    Leased { ino: Ino, lease: Option<Lease> },
    /// The answer to what came over io_uring: an error number, negative, or 0 and a body.
    Answer { id: usize, error: i32, body: Box<[u8]> },
    /// The same: the content of a file, in the memory that was given for it.
    Content { id: usize, loan: Loan },
    /// A write has ended.
    Ended { id: usize },
    /// A loan whose last borrower is gone.
    Return(Loan),
}

/// The state that the home shard and a front look at without a message.
#[derive(Default)]
pub(crate) struct Shared {
    /// Requests under way on the home shard.
    pub depth: AtomicUsize,
    /// Fronts that were called, a bit for each, and have not gone back to waiting.
    pub called: [AtomicBool; FRONTS_MAX],
}

/// Shards that a mount can be served by.
pub(crate) const FRONTS_MAX: usize = 32;
