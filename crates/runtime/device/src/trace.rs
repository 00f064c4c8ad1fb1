//! A filter that counts: requests, bytes and sizes, per kind of operation.
//!
//! Invariant: it changes nothing, neither order nor time nor outcome.

use crate::completion::Completion;
use crate::device::{Device, DeviceInfo, Op, Request};
use std::cell::RefCell;
use std::rc::Rc;

/// Classes of sizes: class 0 holds what is up to 512 bytes, each further one twice as much, the
/// last everything larger than 4 MiB.
pub const CLASSES: usize = 15;

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
    fn add(&mut self, len: u64) {
        self.requests += 1;
        self.bytes += len;
        self.sizes[class_of(len)] += 1;
    }

    fn since(&self, earlier: &Count) -> Count {
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
    /// What came after `earlier` was taken.
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
fn class_of(len: u64) -> usize {
    let doublings = len.div_ceil(512).max(1).next_power_of_two().trailing_zeros();
    (doublings as usize).min(CLASSES - 1)
}

/// The largest size of a class in bytes; `None` for the last, which has no bound.
pub fn class_limit(class: usize) -> Option<u64> {
    (class + 1 < CLASSES).then(|| 512 << class)
}

/// A device whose requests are counted on their way.
pub struct Trace {
    inner: Rc<dyn Device>,
    counts: RefCell<Counts>,
}

impl Trace {
    /// Counts what goes to `inner`.
    pub fn new(inner: Rc<dyn Device>) -> Rc<Trace> {
        Rc::new(Trace { inner, counts: RefCell::default() })
    }

    /// What has been submitted so far.
    pub fn counts(&self) -> Counts {
        *self.counts.borrow()
    }
}

impl Device for Trace {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn submit(&self, request: Request, done: Completion) {
        {
            let len = request.len();
            let mut counts = self.counts.borrow_mut();
            match request.op {
                Op::Read(_) => counts.reads.add(len),
                Op::Write { fua, .. } => {
                    counts.writes.add(len);
                    if fua {
                        counts.forced.add(len);
                    }
                }
                Op::Flush => counts.flushes += 1,
                Op::Discard { .. } => counts.discards.add(len),
                Op::WriteZeroes { .. } => counts.zeroes.add(len),
            }
        }
        self.inner.submit(request, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ram::Ram;
    use crate::testing::{ask, fill, shard};

    #[test]
    fn sizes_fall_into_classes_of_powers_of_two() {
        for (len, class) in [(0, 0), (512, 0), (513, 1), (1024, 1), (4096, 3), (4 << 20, 13)] {
            assert_eq!(class_of(len), class, "{len}");
            assert!(class_limit(class).unwrap() >= len);
        }
        assert_eq!(class_of(u64::MAX / 2), CLASSES - 1);
        assert_eq!(class_limit(CLASSES - 1), None);
    }

    #[test]
    fn every_kind_is_counted_apart() {
        let shard = shard();
        let trace = Trace::new(Ram::new("ram", 1 << 20).device());
        let device: Rc<dyn Device> = Rc::clone(&trace) as Rc<dyn Device>;
        ask(&shard, &device, fill(&shard, 0, 8192, 1)).result.unwrap();
        let earlier = trace.counts();
        ask(&shard, &device, Request::read(0, shard.pool().get(4096))).result.unwrap();
        ask(&shard, &device, Request::flush()).result.unwrap();
        let buf = shard.pool().zeroed(512).freeze();
        ask(&shard, &device, Request::write(0, buf, true)).result.unwrap();
        let later = trace.counts().since(&earlier);
        assert_eq!((earlier.writes.requests, earlier.writes.bytes), (1, 8192));
        assert_eq!((later.reads.requests, later.reads.bytes, later.reads.sizes[3]), (1, 4096, 1));
        assert_eq!((later.writes.requests, later.forced.bytes, later.flushes), (1, 512, 1));
        assert_eq!(later.discards, Count::default());
    }
}
