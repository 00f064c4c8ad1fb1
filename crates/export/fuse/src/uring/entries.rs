//! The entries of one mount, and replies into them.

use super::cpus;
use super::entry::Entry;
use braid_shard::ring::{BufMuts, RingOp, RingSink};
use braid_shard::{Buf, BufMut, Nanos, Shard};
use rustix::io::Errno;
use std::borrow::Borrow;
use std::cell::{Cell, OnceCell};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};

/// Entries that each queue has at least: requests of one processor that are under way at once. Of an entry's memory only
/// what requests have filled is really there.
const PER_QUEUE_MIN: usize = 32;
/// And at most.
const PER_QUEUE_MAX: usize = 64;
/// Entries of a queue that are left for requests that end by themselves, however many wait for the kernel.
const UNPARKED_MIN: usize = 4;
/// The interval at which a late reply looks for free memory, in nanoseconds.
const LATE: Nanos = 20_000;

/// See the module's documentation.
pub(crate) struct Entries {
    shard: Shard,
    fd: Rc<OwnedFd>,
    all: Vec<Entry>,
    /// Entries of each queue, and in how many of them a request is parked, by queue.
    each: usize,
    parked: Vec<Cell<usize>>,
    /// Hears of the requests that come.
    sink: OnceCell<Weak<dyn RingSink>>,
}

impl Entries {
    /// For a mount whose device is `fd`, with payloads up to `largest` bytes and about `memory` bytes for all of
    /// them: the part `nr` of so many parts of all queues. `None` when the kernel does not tell how many queues there are.
    pub fn new(
        shard: &Shard,
        fd: Rc<OwnedFd>,
        largest: usize,
        memory: usize,
        (nr, parts): (u16, u16),
    ) -> Option<Rc<Entries>> {
        let queues = cpus::possible()?;
        let each = memory / largest / usize::from(queues.max(1));
        let each = each.clamp(PER_QUEUE_MIN, PER_QUEUE_MAX);
        let of_queue = |queue| (0..each).map(move |_| Entry::new(shard, queue, largest));
        let own = (0..queues).filter(|queue| queue % parts.max(1) == nr);
        let all = own.flat_map(of_queue).collect();
        let parked = (0..queues).map(|_| Cell::new(0)).collect();
        let sink = OnceCell::new();
        Some(Rc::new(Entries { shard: shard.clone(), fd, all, each, parked, sink }))
    }

    /// Makes all known to the kernel; `sink` hears of the requests that come, with the entry's number as token.
    pub fn register(&self, sink: Weak<dyn RingSink>) {
        // Once for each mount.
        let _ = self.sink.set(sink);
        for (nr, entry) in self.all.iter().enumerate() {
            if let Some(op) = entry.register(&self.fd) {
                self.submit(nr, op);
            }
        }
    }

    fn get(&self, nr: usize) -> Option<&Entry> {
        self.all.get(nr)
    }

    /// The headers and the payload of the request that has come into entry `nr` with `memory`.
    pub fn arrived(&self, nr: usize, memory: BufMuts) -> Option<(BufMut, BufMut)> {
        self.get(nr)?.arrived(memory)
    }

    /// The memory of an entry, as the kernel gives it back with a request.
    #[cfg(test)]
    pub fn memory(&self, nr: usize) -> Option<BufMuts> {
        let (headers, payload) = self.all.get(nr)?.memory()?;
        Some(smallvec::smallvec![headers, payload])
    }

    fn submit(&self, nr: usize, op: RingOp) {
        // Without a sink the mount has ended, and with it everybody's waiting.
        if let (Some(ring), Some(sink)) =
            (self.shard.ring(), self.sink.get().and_then(Weak::upgrade))
        {
            ring.submit(op, sink, nr as u64);
        }
    }

    /// In how many entries of the queue of entry `nr` a request is parked.
    fn parked(&self, nr: usize) -> Option<&Cell<usize>> {
        self.parked.get(usize::from(self.all.get(nr)?.queue()))
    }

    /// The request in entry `nr` is to wait until the kernel has done something, for which it sends others by the same
    /// queue, behind all that wait there: with a request parked in every entry both would wait for ever. False when it
    /// may not wait therefore.
    pub fn park(&self, nr: usize) -> bool {
        let has_room = |parked: &&Cell<usize>| parked.get() + UNPARKED_MIN < self.each;
        let Some(parked) = self.parked(nr).filter(has_room) else { return false };
        parked.set(parked.get() + 1);
        true
    }

    /// It goes on.
    pub fn unpark(&self, nr: usize) {
        if let Some(parked) = self.parked(nr) {
            parked.set(parked.get().saturating_sub(1));
        }
    }

    /// The memory of an entry's payload; `None` while somebody has a part of it.
    pub fn room(&self, nr: usize) -> Option<BufMut> {
        self.all.get(nr)?.payload()
    }

    /// Answers the request in entry `nr`.
    pub fn answer(self: Rc<Self>, nr: usize, error: i32, body: &[u8]) {
        self.commit_when_free(nr, error, body, put);
    }

    /// Answers it with the content of a file, which may lie in the entry's own payload.
    pub fn answer_with(self: Rc<Self>, nr: usize, content: Buf) {
        let Some(entry) = self.all.get(nr) else { return };
        let Some(at) = entry.position(&content) else { return self.answer(nr, 0, &content) };
        let len = content.len();
        // Other holders of parts of the payload only read them, so the content stays.
        drop(content);
        self.commit_when_free(nr, 0, &(at..at + len), bring_forward);
    }

    fn commit(&self, nr: usize, error: i32, fill: impl FnOnce(&mut [u8]) -> usize) {
        if let Some(op) = self.all.get(nr).and_then(|entry| entry.commit(&self.fd, error, fill)) {
            self.submit(nr, op);
        }
    }

    /// True if nobody has a part of the memory of entry `nr`, so that its request can be answered now.
    pub fn is_free(&self, nr: usize) -> bool {
        self.all.get(nr).is_none_or(Entry::is_free)
    }

    /// Answers with what `fill` makes of `body`, as soon as nobody has a part of the entry's memory: a device may be slow
    /// to let go of what was written long ago. `body` is copied only if it has to wait for that.
    fn commit_when_free<B>(
        self: Rc<Self>,
        nr: usize,
        error: i32,
        body: &B,
        fill: fn(&mut [u8], &B) -> usize,
    ) where
        B: ToOwned<Owned: 'static> + ?Sized + 'static,
    {
        if self.is_free(nr) {
            return self.commit(nr, error, |payload| fill(payload, body));
        }
        let body = body.to_owned();
        let shard = self.shard.clone();
        shard.spawn(async move {
            while !self.is_free(nr) {
                self.shard.sleep(LATE).await;
            }
            self.commit(nr, error, |payload| fill(payload, body.borrow()));
        });
    }
}

/// Puts `body` at the front; gives its length. The kernel asks for no more than there is room for.
fn put(payload: &mut [u8], body: &[u8]) -> usize {
    match payload.get_mut(..body.len()) {
        Some(place) => {
            place.copy_from_slice(body);
            body.len()
        }
        None => 0,
    }
}

/// Brings the part of the payload that is the body to the front; gives its length.
fn bring_forward(payload: &mut [u8], body: &Range<usize>) -> usize {
    if body.start > 0 {
        payload.copy_within(body.clone(), 0);
    }
    body.len()
}

/// Why the kernel gave an entry back without a request, when it is not the end of the mount.
pub(crate) fn unexpected(result: i32) -> Option<std::io::Error> {
    let end = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED, Errno::NODEV];
    let is_end = end.iter().any(|error| error.raw_os_error() == result.wrapping_neg());
    (result < 0 && !is_end).then(|| std::io::Error::from_raw_os_error(result.wrapping_neg()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_comes_back_with_a_request_or_at_the_end_is_expected() {
        assert!(
            [0, 5, -107, -103, -125, -19].into_iter().all(|result| unexpected(result).is_none())
        );
        assert_eq!(unexpected(-22).and_then(|error| error.raw_os_error()), Some(22));
        assert!(unexpected(i32::MIN).is_some());
    }
}
