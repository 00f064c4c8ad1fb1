//! Payloads of writes on their way from the threads that read requests to the shard.
//!
//! Each payload is copied once: out of the buffer that the request was read into, into an aligned buffer of the
//! shard. The shard lends such buffers to each thread beforehand; the thread fills one that is there, and when the
//! write has ended, the shard lends it the next. So writes under way are bounded: a thread without a buffer waits.
//! No thread shares its buffers with another, so nothing is locked.

use braid_shard::{Buf, Loan, Pool, Shard};
use std::cell::RefCell;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Bytes of a small buffer: most writes that are not large are at most this long.
pub(crate) const SMALL: usize = 16 << 10;

thread_local! {
    /// Of a thread that reads requests: makes handles over borrowed memory.
    static BORROWED: Pool = Pool::new(braid_shard::ShardId::MAX);
    /// The buffers of this thread, which reads the requests of one mount.
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// Buffers of one size that are at a reading thread.
struct Shelf {
    size: usize,
    /// Used last, used first: it is in the cache.
    here: Vec<Loan>,
    coming: Receiver<Loan>,
}

/// What a reading thread has been lent: small and large buffers.
pub(crate) struct Shelves {
    reader: usize,
    by_size: [Shelf; 2],
}

/// Goes back to the shard when the thread ends: only there it is known when the last buffer has come.
struct Own {
    shelves: Option<Shelves>,
    give_back: Box<dyn Fn(Shelves)>,
}

/// The shard's side: sends buffers out.
pub(crate) struct Lender {
    sizes: [usize; 2],
    /// Bytes lent to each thread, about.
    memory: usize,
    readers: RefCell<Vec<[Sender<Loan>; 2]>>,
    given_back: RefCell<Vec<Shelves>>,
}

/// A payload in an aligned buffer, on its way.
pub(crate) struct Payload {
    loan: Loan,
    len: usize,
    refill: Refill,
}

/// Copies `bytes`; waits for a buffer. The thread's first call borrows what it needs with `borrow`, which also says how
/// to give that back. `None` when they are longer than any buffer, or the shard is gone.
pub(crate) fn pack<G: Fn(Shelves) + 'static>(
    bytes: &[u8],
    borrow: impl FnOnce() -> Option<(Shelves, G)>,
) -> Option<Payload> {
    OWN.with_borrow_mut(|own| {
        if own.is_none() {
            let (shelves, give_back) = borrow()?;
            *own = Some(Own { shelves: Some(shelves), give_back: Box::new(give_back) });
        }
        own.as_mut()?.shelves.as_mut()?.pack(bytes)
    })
}

/// Gives back what this thread was lent. A thread that ends does it by itself.
pub(crate) fn give_back() {
    OWN.with_borrow_mut(Option::take);
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(shelves) = self.shelves.take() {
            (self.give_back)(shelves);
        }
    }
}

impl Shelves {
    fn pack(&mut self, bytes: &[u8]) -> Option<Payload> {
        let size = self.by_size.iter().position(|shelf| bytes.len() <= shelf.size)?;
        let loan = self.by_size[size].take()?;
        BORROWED.with(|pool| {
            // Only loans for reading are refused, and handles that are parts; these are neither.
            let mut buf = pool.adopt_mut(loan).ok()?;
            buf[..bytes.len()].copy_from_slice(bytes);
            let refill = Refill { reader: self.reader, size };
            Some(Payload { loan: buf.into_loan().ok()?, len: bytes.len(), refill })
        })
    }
}

impl Shelf {
    fn take(&mut self) -> Option<Loan> {
        self.here.extend(self.coming.try_iter());
        self.here.pop().or_else(|| self.coming.recv().ok())
    }
}

impl Lender {
    /// Lends each thread about `memory` bytes; `large` is the longest payload.
    pub(crate) fn new(large: usize, memory: usize) -> Lender {
        Lender {
            sizes: [SMALL, large.max(SMALL)],
            memory,
            readers: RefCell::default(),
            given_back: RefCell::default(),
        }
    }

    /// Buffers for a further thread: a quarter of its memory small ones; at least one of each size.
    pub(crate) fn lend(&self, shard: &Shard) -> Shelves {
        let reader = self.readers.borrow().len();
        let parts = [self.memory / 4, self.memory / 4 * 3];
        let lent = [0, 1].map(|at| {
            let (size, (to, coming)) = (self.sizes[at], channel());
            for _ in 0..(parts[at] / size).max(1) {
                lend(shard, size, &to);
            }
            (to, Shelf { size, here: Vec::new(), coming })
        });
        let [small, large] = lent;
        self.readers.borrow_mut().push([small.0, large.0]);
        Shelves { reader, by_size: [small.1, large.1] }
    }

    /// The payload as a buffer of the shard, and what is to be lent again when the write has ended. `None` when it is
    /// another shard's.
    pub(crate) fn unpack(&self, shard: &Shard, payload: Payload) -> Option<(Buf, Refill)> {
        let mut buf = shard.pool().reclaim(payload.loan).ok()?;
        buf.truncate(payload.len);
        Some((buf.freeze(), payload.refill))
    }

    /// Lends a buffer in place of one that was unpacked.
    pub(crate) fn refill(&self, shard: &Shard, refill: Refill) {
        if let Some(reader) = self.readers.borrow().get(refill.reader) {
            lend(shard, self.sizes[refill.size], &reader[refill.size]);
        }
    }

    /// Takes what a thread gives back, for [`settle`](Lender::settle): writes under way may still send buffers after it.
    pub(crate) fn take_back(&self, shelves: Shelves) {
        self.given_back.borrow_mut().push(shelves);
    }

    /// Settles all that was given back; no write is under way any more.
    pub(crate) fn settle(&self, shard: &Shard) {
        for shelf in self.given_back.take().into_iter().flat_map(|shelves| shelves.by_size) {
            for loan in shelf.here.into_iter().chain(shelf.coming.try_iter()) {
                // All were lent by this shard.
                let _ = shard.pool().settle(loan);
            }
        }
    }
}

fn lend(shard: &Shard, size: usize, to: &Sender<Loan>) {
    // Refused are parts of memory on loan, and this is the shard's own.
    let Ok(loan) = shard.pool().get(size).into_loan() else { return };
    if let Err(unsent) = to.send(loan) {
        // The thread has ended. It is this shard's, so it cannot be refused.
        let _ = shard.pool().settle(unsent.0);
    }
}

/// A buffer to be lent again.
pub(crate) struct Refill {
    reader: usize,
    size: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn a_payload_arrives_aligned_and_its_buffer_goes_round() {
        let shards = braid_shard::threads::start(1).expect("a shard");
        let remote = shards.remotes()[0].clone();
        let lenders = |shard: &Shard| shard.local::<RefCell<Option<Rc<Lender>>>>();
        let of = move |shard: &Shard| lenders(shard).borrow().clone().expect("made below");
        remote.call(move |shard| {
            *lenders(shard).borrow_mut() = Some(Rc::new(Lender::new(1 << 20, 1)));
        });
        let borrow = || {
            let shelves = remote.call(move |shard| of(shard).lend(shard))?;
            let home = remote.clone();
            Some((shelves, move |shelves| {
                home.run(move |shard| of(shard).take_back(shelves));
            }))
        };
        for round in 0..5u8 {
            for len in [1usize, SMALL, SMALL + 1, 1 << 20] {
                let bytes: Vec<u8> = (0..len).map(|at| at as u8 ^ round).collect();
                let payload = pack(&bytes, borrow).expect("there is a buffer");
                let arrived = remote.call(move |shard| {
                    let (buf, refill) = of(shard).unpack(shard, payload).expect("its own");
                    let right =
                        buf[..] == bytes[..] && (buf.as_ptr() as usize).is_multiple_of(4096);
                    drop(buf);
                    of(shard).refill(shard, refill);
                    right
                });
                assert_eq!(arrived, Some(true));
            }
        }
        assert!(pack(&vec![0; (1 << 20) + 1], borrow).is_none(), "longer than any");
        give_back();
        let left = remote.call(move |shard| {
            of(shard).settle(shard);
            shard.pool().outstanding()
        });
        assert_eq!(left, Some(0));
    }
}
