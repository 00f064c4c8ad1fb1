//! Requests counted by what they do and how large they are.
//!
//! Plain data: a filter, a plug or an array fills it. Sizes in bytes.

use crate::request::Op;
use std::cell::{Cell, RefCell};

/// The direction of a request, as disk statistics distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Reads.
    Read,
    /// Writes, with and without FUA.
    Write,
    /// Discards and write-zeroes.
    Discard,
    /// Flushes.
    Flush,
}

impl Direction {
    /// All of them.
    pub const ALL: [Direction; 4] =
        [Direction::Read, Direction::Write, Direction::Discard, Direction::Flush];

    /// The direction of an operation.
    pub fn of(op: &Op) -> Direction {
        match op {
            Op::Read(_) => Direction::Read,
            Op::Write { .. } => Direction::Write,
            Op::Discard { .. } | Op::WriteZeroes { .. } => Direction::Discard,
            Op::Flush => Direction::Flush,
        }
    }
}

/// Number of size classes: class 0 is for requests of up to 512 bytes, each further class for up to twice as
/// many, the last for everything larger than 16 MiB.
pub const CLASSES: usize = 17;

/// One kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
    /// Requests by size.
    pub sizes: [u64; CLASSES],
}

/// Counts of what nearly all requests are, reads and plain writes of one buffer, and the rest: to be added to without a
/// look at who else does.
#[derive(Debug, Default)]
pub struct Tally {
    reads: Common,
    writes: Common,
    rest: RefCell<Counts>,
}

#[derive(Debug, Default)]
struct Common {
    requests: Cell<u64>,
    sizes: [Cell<u64>; CLASSES],
    /// Not next to the number of requests: the compiler would add to both at once, which takes three times as long.
    bytes: Cell<u64>,
}

impl Common {
    #[inline(always)]
    fn add(&self, len: u64) {
        let more = |cell: &Cell<u64>, by: u64| cell.set(cell.get() + by);
        more(&self.requests, 1);
        more(&self.sizes[class_of(len)], 1);
        more(&self.bytes, len);
    }

    fn count(&self) -> Count {
        Count {
            requests: self.requests.get(),
            sizes: std::array::from_fn(|class| self.sizes[class].get()),
            bytes: self.bytes.get(),
        }
    }
}

impl Tally {
    /// Counts a read or a plain write of one buffer, as nearly all requests are; false, and nothing is counted, for all
    /// others.
    // In every request's way, several times: inlined it is not much more than a call would be.
    #[inline(always)]
    pub fn add_common(&self, op: &Op) -> bool {
        let (common, len) = match op {
            Op::Read(bufs) => match bufs.as_slice() {
                [buf] => (&self.reads, buf.len()),
                _ => return false,
            },
            Op::Write { bufs, fua: false } => match bufs.as_slice() {
                [buf] => (&self.writes, buf.len()),
                _ => return false,
            },
            _ => return false,
        };
        common.add(len as u64);
        true
    }

    /// Counts a request of `len` bytes.
    pub fn add(&self, op: &Op, len: u64) {
        self.rest.borrow_mut().add(op, len);
    }

    /// All that was counted.
    pub fn counts(&self) -> Counts {
        let mut all = *self.rest.borrow();
        all.reads.join(&self.reads.count());
        all.writes.join(&self.writes.count());
        all
    }
}

/// All kinds of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: Count,
    /// Writes, with and without FUA.
    pub writes: Count,
    /// Writes with FUA only.
    pub forced: Count,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: Count,
    /// Write-zeroes.
    pub zeroes: Count,
}

impl Count {
    /// Counts a request of `len` bytes.
    #[inline(always)]
    pub fn add(&mut self, len: u64) {
        self.requests += 1;
        self.bytes += len;
        self.sizes[class_of(len)] += 1;
    }

    /// Adds the counts of another.
    pub fn join(&mut self, other: &Count) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.sizes.iter_mut().zip(other.sizes).for_each(|(sum, more)| *sum += more);
    }

    /// The difference to `earlier`.
    pub fn since(&self, earlier: &Count) -> Count {
        Count {
            requests: self.requests.saturating_sub(earlier.requests),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            sizes: std::array::from_fn(|class| {
                self.sizes[class].saturating_sub(earlier.sizes[class])
            }),
        }
    }
}

impl Counts {
    /// Counts a request of `len` bytes.
    pub fn add(&mut self, op: &Op, len: u64) {
        match op {
            Op::Read(_) => self.reads.add(len),
            Op::Write { fua, .. } => {
                self.writes.add(len);
                if *fua {
                    self.forced.add(len);
                }
            }
            Op::Flush => self.flushes += 1,
            Op::Discard { .. } => self.discards.add(len),
            Op::WriteZeroes { .. } => self.zeroes.add(len),
        }
    }

    /// Adds the counts of another.
    pub fn join(&mut self, other: &Counts) {
        self.reads.join(&other.reads);
        self.writes.join(&other.writes);
        self.forced.join(&other.forced);
        self.flushes += other.flushes;
        self.discards.join(&other.discards);
        self.zeroes.join(&other.zeroes);
    }

    /// Requests of one direction.
    pub fn of(&self, direction: Direction) -> Count {
        match direction {
            Direction::Read => self.reads,
            Direction::Write => self.writes,
            Direction::Discard => {
                let mut both = self.discards;
                both.join(&self.zeroes);
                both
            }
            Direction::Flush => Count { requests: self.flushes, ..Count::default() },
        }
    }

    /// All requests.
    pub fn requests(&self) -> u64 {
        Direction::ALL.iter().map(|direction| self.of(*direction).requests).sum()
    }

    /// The difference to `earlier`.
    pub fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            reads: self.reads.since(&earlier.reads),
            writes: self.writes.since(&earlier.writes),
            forced: self.forced.since(&earlier.forced),
            flushes: self.flushes.saturating_sub(earlier.flushes),
            discards: self.discards.since(&earlier.discards),
            zeroes: self.zeroes.since(&earlier.zeroes),
        }
    }
}

/// The class of a size in bytes; below [`CLASSES`].
#[inline(always)]
fn class_of(len: u64) -> usize {
    // The bit length of the last byte's sector number: 0 for the first sector, 1 for the second, 2 for the third and fourth.
    let last_sector = len.saturating_sub(1) >> 9;
    // One bit more, so that there is a highest one.
    ((last_sector << 1 | 1).ilog2() as usize).min(CLASSES - 1)
}

/// The largest size of a class in bytes; `None` for the last, which has no bound.
pub fn class_limit(class: usize) -> Option<u64> {
    (class + 1 < CLASSES).then(|| 512 << class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fall_into_classes_of_powers_of_two() {
        for (len, class) in
            [(0, 0), (512, 0), (513, 1), (1024, 1), (4096, 3), (4 << 20, 13), (16 << 20, 15)]
        {
            assert_eq!(class_of(len), class, "{len}");
            assert!(class_limit(class).unwrap() >= len);
        }
        assert_eq!(class_of(u64::MAX / 2), CLASSES - 1);
        assert_eq!(class_limit(CLASSES - 1), None);
    }
}
