//! One entry of a queue: the memory in which a request comes and its reply goes.
//!
//! Invariant: the kernel has the memory from the start of a command to its end, and between two commands it is ours.

use crate::abi::ring;
use braid_shard::buffer::FixedBuffer;
use braid_shard::ring::{BufMuts, Command, RingOp};
use braid_shard::{BufMut, Shard};
use smallvec::smallvec;
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// See the module's documentation.
pub(super) struct Entry {
    queue: u16,
    headers: FixedBuffer,
    payload: FixedBuffer,
    /// The request in it: its number, and that under which it is answered.
    held: Cell<Option<(u64, u64)>>,
}

impl Entry {
    /// For queue `queue`, with `payload` bytes beside the headers.
    pub fn new(shard: &Shard, queue: u16, payload: usize) -> Entry {
        let pool = shard.pool();
        let headers = pool.fixed(ring::HEADERS);
        Entry { queue, headers, payload: pool.fixed(payload), held: Cell::new(None) }
    }

    /// Number of its queue.
    pub fn queue(&self) -> u16 {
        self.queue
    }

    pub(super) fn memory(&self) -> Option<(BufMut, BufMut)> {
        Some((self.headers.take()?, self.payload.take()?))
    }

    /// The command that makes it known to the kernel.
    pub fn register(&self, fd: &Rc<OwnedFd>) -> Option<RingOp> {
        Some(self.command(fd, ring::REGISTER, 0, self.memory()?))
    }

    #[allow(unsafe_code)]
    fn command(
        &self,
        fd: &Rc<OwnedFd>,
        code: u32,
        commit: u64,
        (headers, payload): (BufMut, BufMut),
    ) -> RingOp {
        let argument = ring::argument(self.queue, commit);
        let memory = smallvec![headers, payload];
        let is_new = code == ring::REGISTER;
        // SAFETY: the kernel writes to the memory that it was told of when the entry was registered
        // whose request `commit` names (fs/fuse/dev_uring.c). That is this entry, for the number was
        // read from its memory when the request came and kept where nobody else sets it; and the
        // memory is all of what lasts as long as the entry, which is what the command has here.
        RingOp::Command(unsafe { Command::new(Rc::clone(fd), code, argument, memory, is_new) })
    }

    /// Takes note of the request that has come, in the `memory` of the command that has ended; gives headers and
    /// payload.
    pub fn arrived(&self, memory: BufMuts) -> Option<(BufMut, BufMut)> {
        let mut memory = memory.into_iter();
        let (headers, payload) = (memory.next()?, memory.next()?);
        let unique = crate::abi::request::Header::parse(&headers)?.unique;
        self.held.set(Some((unique, ring::commit_number(&headers)?)));
        Some((headers, payload))
    }

    /// The memory for a payload; `None` while somebody has a part of it.
    pub fn payload(&self) -> Option<BufMut> {
        self.payload.take()
    }

    /// Where `bytes` lie in the payload.
    pub fn position(&self, bytes: &[u8]) -> Option<usize> {
        self.payload.position(bytes)
    }

    /// True if nobody has a part of the memory.
    pub fn is_free(&self) -> bool {
        self.memory().is_some()
    }

    /// The command that answers the request: `fill` puts the body into the payload and gives its length. `None` while
    /// somebody has a part of the memory, and when there is no request.
    pub fn commit(
        &self,
        fd: &Rc<OwnedFd>,
        error: i32,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Option<RingOp> {
        let (mut headers, mut payload) = self.memory()?;
        let (unique, commit) = self.held.take()?;
        let len = fill(&mut payload);
        ring::put_reply(&mut headers, unique, error, len);
        Some(self.command(fd, ring::COMMIT_AND_FETCH, commit, (headers, payload)))
    }
}
