//! The buffers of a load: more of them than are in flight, used in turn.
//!
//! A client's data does not lie in the caches of the core that serves it; a generator that wrote
//! the same few buffers over and over would measure something that never happens. Buffers are
//! taken from the front and put back at the end, so each comes again only after all others.

use braid_shard::{Buf, BufMut, Pool};
use std::collections::VecDeque;

/// The working set of one generator. Its content is not zero and differs from block to block.
pub(crate) struct Payload {
    pool: Pool,
    block: usize,
    write: Vec<Buf>,
    next: usize,
    read: VecDeque<BufMut>,
}

impl Payload {
    /// Buffers of `block` bytes, `bytes` in all and at least `least` of them, for each direction
    /// that the load has.
    pub(crate) fn new(
        pool: &Pool,
        block: usize,
        bytes: usize,
        least: usize,
        (reads, writes): (bool, bool),
    ) -> Payload {
        let count = (bytes / block.max(1)).max(least).max(1);
        let filled = |nr: usize| {
            let mut buf = pool.get(block);
            fill(&mut buf, nr as u64);
            buf
        };
        Payload {
            pool: pool.clone(),
            block,
            write: (0..if writes { count } else { 0 }).map(|nr| filled(nr).freeze()).collect(),
            next: 0,
            read: (0..if reads { count } else { 0 }).map(filled).collect(),
        }
    }

    /// The next buffer to write.
    pub(crate) fn next_written(&mut self) -> Buf {
        let Some(buf) = self.write.get(self.next) else {
            // The load does not write; nobody asks.
            return self.pool.zeroed(self.block).freeze();
        };
        self.next = if self.next + 1 == self.write.len() { 0 } else { self.next + 1 };
        buf.clone()
    }

    /// The next buffer to read into; to be given back with [`Payload::keep`].
    pub(crate) fn next_read(&mut self) -> BufMut {
        self.read.pop_front().unwrap_or_else(|| self.pool.get(self.block))
    }

    /// Takes a buffer back. One that a failed request lost is replaced when it is needed.
    pub(crate) fn keep(&mut self, buf: BufMut) {
        if buf.len() == self.block {
            self.read.push_back(buf);
        }
    }
}

/// Bytes that depend on `nr` and on their position.
pub(crate) fn fill(bytes: &mut [u8], nr: u64) {
    let mut word = nr.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x0123_4567_89ab_cdef;
    for chunk in bytes.chunks_mut(8) {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_again_after_all_others() {
        let mut payload = Payload::new(&Pool::new(0), 4096, 4 * 4096, 2, (true, true));
        let first = payload.next_written();
        for _ in 0..3 {
            assert_ne!(payload.next_written()[..64], first[..64]);
        }
        assert_eq!(payload.next_written()[..], first[..]);

        let one = payload.next_read();
        let mark = one[..64].to_vec();
        payload.keep(one);
        for _ in 0..3 {
            let other = payload.next_read();
            assert_ne!(other[..64], mark[..]);
            payload.keep(other);
        }
        assert_eq!(payload.next_read()[..64], mark[..]);
    }

    #[test]
    fn there_are_as_many_buffers_as_may_be_in_flight() {
        let payload = Payload::new(&Pool::new(0), 1 << 20, 4096, 3, (true, false));
        assert_eq!((payload.read.len(), payload.write.len()), (3, 0));
    }
}
