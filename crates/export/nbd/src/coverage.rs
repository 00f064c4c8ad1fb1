//! Which parts of a read have come, when its reply comes in chunks of any order.
//!
//! A sum of lengths is not enough: with two chunks over each other it may be right although a gap is left, in
//! which the buffer has what was there before. Invariant: the ranges are apart, and none touches another.

use std::collections::BTreeMap;

/// Ranges that lie apart, at most. Servers send a read in order, or in few pieces; one that sends it in so many,
/// and none of them beside another, wants memory for nothing.
const APART_MAX: usize = 1024;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    /// From zero up to here, without a gap: all there is when chunks come in order.
    front: u64,
    /// Starts and ends of the others.
    apart: BTreeMap<u64, u64>,
}

impl Coverage {
    /// Adds `length` bytes from `start` on; false when some of them have come before, the range has no end, or there are
    /// too many pieces.
    pub fn add(&mut self, start: u64, length: u64) -> bool {
        let Some(end) = start.checked_add(length) else { return false };
        let before = self.apart.range(..end).next_back();
        if start < self.front || before.is_some_and(|(_, before)| *before > start) {
            return false;
        }
        if start == self.front {
            self.front = end;
            while let Some(end) = self.apart.remove(&self.front) {
                self.front = end;
            }
            return true;
        }
        let joined = before.filter(|(_, before)| **before == start).map(|(from, _)| *from);
        let end = self.apart.remove(&end).unwrap_or(end);
        self.apart.insert(joined.unwrap_or(start), end);
        self.apart.len() <= APART_MAX
    }

    /// All of `length` bytes have come.
    pub fn is_all_of(&self, length: u64) -> bool {
        self.front == length && self.apart.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_any_order_make_the_whole() {
        let mut come = Coverage::default();
        for (start, length) in [(512, 512), (2048, 1024), (1024, 1024), (3072, 1024)] {
            assert!(come.add(start, length) && !come.is_all_of(4096));
        }
        assert_eq!(come.apart.len(), 1, "neighbours are joined");
        assert!(come.add(0, 512) && come.is_all_of(4096) && !come.is_all_of(4095));
    }

    #[test]
    fn what_came_before_is_refused_whatever_the_sum() {
        let add = |ranges: &[(u64, u64)]| {
            let mut come = Coverage::default();
            ranges.iter().all(|(start, length)| come.add(*start, *length))
        };
        assert!(!add(&[(0, 1024), (512, 512)]));
        assert!(!add(&[(512, 512), (512, 512)]));
        assert!(!add(&[(512, 512), (1000, 100)]));
        assert!(!add(&[(1024, 512), (0, 1025)]));
        assert!(!add(&[(1024, 512), (600, 2000)]));
        assert!(!add(&[(u64::MAX, 2)]));
        assert!(add(&[(1024, 512), (0, 1024), (1536, 10)]));
        assert!(!add(&(1..=1025).map(|at| (at * 2, 1)).collect::<Vec<_>>()));
    }
}
