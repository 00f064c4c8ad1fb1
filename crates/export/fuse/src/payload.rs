//! Payloads of writes on their way from the thread that reads requests to the shard.
//!
//! Each payload is copied once: out of the buffer that the request was read into, into an aligned buffer of the
//! shard. The shard lends such buffers out beforehand and a thread fills one that is there; when the write has
//! ended, the shard lends the next. So writes under way are bounded: a thread without a buffer waits.

use braid_shard::{Buf, Loan, Pool, Shard};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

/// Bytes of a small buffer: most writes that are not large are at most this long.
pub(crate) const SMALL: usize = 16 << 10;

thread_local! {
    /// Of a thread that reads requests: makes handles over borrowed memory.
    static BORROWED: Pool = Pool::new(braid_shard::ShardId::MAX);
}

/// Buffers of one size that are at the reading threads.
struct Shelf {
    size: usize,
    waiting: Mutex<Waiting>,
}

struct Waiting {
    /// Used last, used first: it is in the cache.
    here: Vec<Loan>,
    coming: Receiver<Loan>,
}

/// The threads' side.
pub(crate) struct Payloads {
    small: Shelf,
    large: Shelf,
}

/// The shard's side: sends buffers out.
pub(crate) struct Lender {
    small: (usize, Sender<Loan>),
    large: (usize, Sender<Loan>),
}

/// A payload in an aligned buffer, on its way.
pub(crate) struct Payload {
    loan: Loan,
    len: usize,
}

/// Both sides; `large` is the longest payload. The shard lends nothing yet.
pub(crate) fn payloads(large: usize) -> (Payloads, Lender) {
    let shelf = |size| {
        let (send, coming) = channel();
        (Shelf { size, waiting: Mutex::new(Waiting { here: Vec::new(), coming }) }, (size, send))
    };
    let ((small, to_small), (large, to_large)) = (shelf(SMALL), shelf(large.max(SMALL)));
    (Payloads { small, large }, Lender { small: to_small, large: to_large })
}

impl Payloads {
    /// Copies `bytes`; waits for a buffer. `None` when they are longer than any buffer, or the shard is gone.
    pub(crate) fn pack(&self, bytes: &[u8]) -> Option<Payload> {
        let shelf = [&self.small, &self.large].into_iter().find(|s| bytes.len() <= s.size)?;
        let loan = shelf.take()?;
        BORROWED.with(|pool| {
            // Only loans for reading are refused, and handles that are parts; these are neither.
            let mut buf = pool.adopt_mut(loan).ok()?;
            buf[..bytes.len()].copy_from_slice(bytes);
            Some(Payload { loan: buf.into_loan().ok()?, len: bytes.len() })
        })
    }

    /// All buffers that are here, to be settled on the shard at the end.
    pub(crate) fn empty(&self) -> Vec<Loan> {
        let mut all = Vec::new();
        for shelf in [&self.small, &self.large] {
            let mut waiting = shelf.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            all.append(&mut waiting.here);
            all.extend(waiting.coming.try_iter());
        }
        all
    }
}

impl Shelf {
    fn take(&self) -> Option<Loan> {
        // A thread that panicked held no half-changed state: each change is one push or pop.
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Waiting { here, coming } = &mut *waiting;
        here.extend(coming.try_iter());
        here.pop().or_else(|| coming.recv().ok())
    }
}

impl Lender {
    /// Lends as many of each size as `memory` bytes allow, a quarter of it small ones; at least one of each.
    pub(crate) fn lend_all(&self, shard: &Shard, memory: usize) {
        for ((size, to), share) in [(&self.small, memory / 4), (&self.large, memory / 4 * 3)] {
            for _ in 0..(share / size).max(1) {
                lend(shard, *size, to);
            }
        }
    }

    /// The payload as a buffer of the shard, together with what is to be called when the write has ended.
    /// `None` when it is another shard's.
    pub(crate) fn unpack(&self, shard: &Shard, payload: Payload) -> Option<(Buf, Refill)> {
        let mut buf = shard.pool().reclaim(payload.loan).ok()?;
        let large = buf.len() > self.small.0;
        buf.truncate(payload.len);
        Some((buf.freeze(), Refill { large }))
    }

    /// Lends a buffer in place of one that was unpacked.
    pub(crate) fn refill(&self, shard: &Shard, refill: Refill) {
        let (size, to) = if refill.large { &self.large } else { &self.small };
        lend(shard, *size, to);
    }
}

fn lend(shard: &Shard, size: usize, to: &Sender<Loan>) {
    // Refused are parts of memory on loan, and this is the shard's own.
    let Ok(loan) = shard.pool().get(size).into_loan() else { return };
    if let Err(unsent) = to.send(loan) {
        // The threads have ended. It is this shard's, so it cannot be refused.
        let _ = shard.pool().settle(unsent.0);
    }
}

/// A buffer to be lent again.
pub(crate) struct Refill {
    large: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_arrives_aligned_and_its_buffer_goes_round() {
        let shards = braid_shard::threads::start(1).expect("a shard");
        let remote = shards.remotes()[0].clone();
        let (payloads, lender) = payloads(1 << 20);
        let lender = remote.call(move |shard| {
            lender.lend_all(shard, 1);
            lender
        });
        let mut lender = lender.expect("the shard runs");
        for round in 0..5u8 {
            for len in [1usize, SMALL, SMALL + 1, 1 << 20] {
                let bytes: Vec<u8> = (0..len).map(|at| at as u8 ^ round).collect();
                let payload = payloads.pack(&bytes).expect("there is a buffer");
                lender = remote
                    .call(move |shard| {
                        let (buf, refill) = lender.unpack(shard, payload).expect("its own");
                        assert!(
                            buf[..] == bytes[..] && (buf.as_ptr() as usize).is_multiple_of(4096)
                        );
                        drop(buf);
                        lender.refill(shard, refill);
                        lender
                    })
                    .expect("the shard runs");
            }
        }
        assert!(payloads.pack(&vec![0; (1 << 20) + 1]).is_none(), "longer than any");
        let back = payloads.empty();
        assert_eq!(back.len(), 2);
        let left = remote.call(move |shard| {
            back.into_iter().for_each(|loan| shard.pool().settle(loan).expect("its own"));
            shard.pool().outstanding()
        });
        assert_eq!(left, Some(0));
    }
}
