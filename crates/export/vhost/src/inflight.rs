//! Requests under way, tracked in memory that outlives the server ("Inflight I/O tracking").
//!
//! ```text
//!  queue 0                                   queue 1
//!  ┌────────────────────┬────────────────┐   ┌───────
//!  │ features      u64  │ descriptor 0   │   │
//!  │ version       u16  │  inflight  u8  │   │
//!  │ desc_num      u16  │  padding  5*u8 │   │
//!  │ last_batch    u16  │  next      u16 │   │
//!  │ used_idx      u16  │  counter   u64 │   │
//!  └────────────────────┴── … ───────────┘   └───────
//! ```
//!
//! A request's head is marked before it is carried out, and the mark is taken away after it is in the used ring. Whoever
//! takes over finds with the marks what was under way, in the order in which it had come.
//!
//! Invariant: at any instant at which this process may be killed, a request that the guest waits for is marked, or in the
//! used ring, or still available.

use crate::fault::Guard;
use crate::protocol::{InflightShape, QUEUES_MAX};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

const HEAD_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
const VERSION: u16 = 1;
const AT_VERSION: usize = 8;
const AT_DESC_NUM: usize = 10;
const AT_LAST_BATCH: usize = 12;
const AT_USED_IDX: usize = 14;
const AT_NEXT: usize = 6;
const AT_COUNTER: usize = 8;

/// Memory for tracking that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InflightError {
    /// Its shape does not fit its queues or its file.
    #[error(
        "{size} bytes for tracking {queues} queues of {queue_size} requests: too few, or not in their file"
    )]
    Shape {
        /// Bytes.
        size: u64,
        /// Queues.
        queues: u16,
        /// Descriptors of each.
        queue_size: u16,
    },
    /// The kernel refused.
    #[error("memory for tracking requests: {0}")]
    System(#[from] io::Error),
    /// The kernel does not map it.
    #[error("mapping the memory for tracking requests: {0}")]
    Map(String),
    /// An access outside of it.
    #[error("the memory for tracking requests has no descriptor {0}")]
    Descriptor(u16),
    /// Its file was made shorter.
    #[error("the memory for tracking requests is gone: its file was made shorter")]
    Gone,
    /// Too many are mapped in this process.
    #[error("there are too many guests: the memory of no further one can be watched")]
    Guards,
}

/// The mapping, and before it what must not outlive it.
struct Mapped {
    guard: Guard,
    map: MmapRegion<()>,
}

/// The memory of all queues.
#[derive(Clone)]
pub struct Inflight {
    region: Rc<Mapped>,
    shape: InflightShape,
}

fn stride(queue_size: u16) -> usize {
    (HEAD_BYTES + ENTRY_BYTES * usize::from(queue_size)).next_multiple_of(64)
}

impl Inflight {
    /// New memory for so many queues, and its file for the front end, which keeps it.
    ///
    /// # Errors
    /// When the kernel has none.
    pub fn create(queues: u16, queue_size: u16) -> Result<(InflightShape, OwnedFd), InflightError> {
        let bytes = (stride(queue_size) * usize::from(queues)).next_multiple_of(4096);
        let shape = InflightShape { size: bytes as u64, offset: 0, queues, queue_size };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("braid-inflight", flags).map_err(io::Error::from)?;
        ftruncate(&file, shape.size).map_err(io::Error::from)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).map_err(io::Error::from)?;
        Ok((shape, file))
    }

    /// Maps the memory that a front end has kept.
    ///
    /// # Errors
    /// A shape that does not fit, a file that cannot be mapped.
    pub fn map(shape: InflightShape, file: OwnedFd) -> Result<Inflight, InflightError> {
        let InflightShape { size, offset, queues, queue_size } = shape;
        let file = File::from(file);
        let needed = (stride(queue_size) * usize::from(queues)) as u64;
        let end =
            offset.checked_add(size).filter(|end| *end <= file.metadata().map_or(0, |f| f.len()));
        let fits = queues <= QUEUES_MAX && queue_size > 0 && needed <= size && end.is_some();
        if !fits {
            return Err(InflightError::Shape { size, queues, queue_size });
        }
        let map = MmapRegion::from_file(FileOffset::new(file, offset), needed as usize)
            .map_err(|error| InflightError::Map(error.to_string()))?;
        let guard = Guard::new(map.as_ptr(), map.size()).ok_or(InflightError::Guards)?;
        Ok(Inflight { region: Rc::new(Mapped { guard, map }), shape })
    }

    /// The part of one queue with that many descriptors; `None` when it has none here.
    #[must_use]
    pub fn queue(&self, queue: u16, size: u16) -> Option<Tracker> {
        let known = queue < self.shape.queues && size <= self.shape.queue_size;
        known.then(|| Tracker {
            region: Rc::clone(&self.region),
            at: stride(self.shape.queue_size) * usize::from(queue),
            size,
            counter: Cell::new(0),
        })
    }
}

/// The memory of one queue.
pub struct Tracker {
    region: Rc<Mapped>,
    at: usize,
    size: u16,
    counter: Cell<u64>,
}

/// The requests that an interrupted server has left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Heads of requests that were under way, in the order in which they had come.
    pub heads: Vec<u16>,
    /// There was a server before.
    pub known: bool,
}

impl Tracker {
    fn read<T: vm_memory::AtomicAccess>(&self, at: usize) -> Result<T, InflightError> {
        let slice = self.region.map.as_volatile_slice();
        let value = slice.load(self.at + at, Ordering::Acquire);
        match self.region.guard.is_broken() {
            true => Err(InflightError::Gone),
            false => value.map_err(|error| InflightError::Map(error.to_string())),
        }
    }

    fn write<T: vm_memory::AtomicAccess>(&self, at: usize, value: T) -> Result<(), InflightError> {
        let slice = self.region.map.as_volatile_slice();
        slice
            .store(value, self.at + at, Ordering::Release)
            .map_err(|error| InflightError::Map(error.to_string()))
    }

    fn entry(&self, head: u16) -> Result<usize, InflightError> {
        match head < self.size {
            true => Ok(HEAD_BYTES + ENTRY_BYTES * usize::from(head)),
            false => Err(InflightError::Descriptor(head)),
        }
    }

    /// Looks at what is there, given the index of the used ring, and completes what the last server had in hand.
    ///
    /// # Errors
    /// Content that cannot be: a head that there is not.
    pub fn open(&self, used: u16) -> Result<Left, InflightError> {
        if self.read::<u16>(AT_VERSION)? != VERSION {
            self.write(AT_DESC_NUM, self.size)?;
            self.write(AT_USED_IDX, used)?;
            self.write(AT_VERSION, VERSION)?;
            return Ok(Left::default());
        }
        if self.read::<u16>(AT_USED_IDX)? != used {
            // It was in the used ring, and its mark was not taken away yet. Requests are used one at a time.
            let last = self.read::<u16>(AT_LAST_BATCH)?;
            self.write(self.entry(last)?, 0u8)?;
            self.write(AT_USED_IDX, used)?;
        }
        let mut marked = Vec::new();
        for head in 0..self.size {
            let entry = self.entry(head)?;
            if self.read::<u8>(entry)? == 1 {
                marked.push((self.read::<u64>(entry + AT_COUNTER)?, head));
            }
        }
        marked.sort_unstable();
        self.counter.set(marked.last().map_or(0, |(counter, _)| counter.wrapping_add(1)));
        Ok(Left { heads: marked.into_iter().map(|(_, head)| head).collect(), known: true })
    }

    /// The request with this head is about to be carried out.
    ///
    /// # Errors
    /// A head that there is not.
    pub fn began(&self, head: u16) -> Result<(), InflightError> {
        let entry = self.entry(head)?;
        let counter = self.counter.replace(self.counter.get().wrapping_add(1));
        self.write(entry + AT_COUNTER, counter)?;
        self.write(entry, 1u8)
    }

    /// The request with this head is about to be put into the used ring.
    ///
    /// # Errors
    /// A head that there is not.
    pub fn ending(&self, head: u16) -> Result<(), InflightError> {
        let last = self.read::<u16>(AT_LAST_BATCH)?;
        self.write(self.entry(head)? + AT_NEXT, last)?;
        self.write(AT_LAST_BATCH, head)
    }

    /// It is there, and the used ring has this index.
    ///
    /// # Errors
    /// A head that there is not.
    pub fn ended(&self, head: u16, used: u16) -> Result<(), InflightError> {
        self.write(self.entry(head)?, 0u8)?;
        self.write(AT_USED_IDX, used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(shape: InflightShape, file: &OwnedFd) -> Inflight {
        Inflight::map(shape, file.try_clone().unwrap()).unwrap()
    }

    #[test]
    fn whoever_takes_over_finds_what_was_under_way_in_order() {
        let (shape, file) = Inflight::create(2, 8).unwrap();
        let tracker = map(shape, &file).queue(1, 8).unwrap();
        assert_eq!(tracker.open(100).unwrap(), Left::default());
        for head in [5, 2, 7, 0] {
            tracker.began(head).unwrap();
        }
        tracker.ending(2).unwrap();
        tracker.ended(2, 101).unwrap();
        let next = map(shape, &file).queue(1, 8).unwrap();
        assert_eq!(next.open(101).unwrap(), Left { heads: vec![5, 7, 0], known: true });
        // Those that come now are behind them.
        next.began(1).unwrap();
        let third = map(shape, &file).queue(1, 8).unwrap();
        assert_eq!(third.open(101).unwrap().heads, [5, 7, 0, 1]);
        let other = map(shape, &file).queue(0, 8).unwrap();
        assert_eq!(other.open(0).unwrap(), Left::default());
    }

    #[test]
    fn a_request_that_was_used_is_not_carried_out_again() {
        let (shape, file) = Inflight::create(1, 4).unwrap();
        let tracker = map(shape, &file).queue(0, 4).unwrap();
        tracker.open(0).unwrap();
        tracker.began(3).unwrap();
        tracker.began(1).unwrap();
        tracker.ending(3).unwrap();
        // Killed between the used ring and the mark.
        let next = map(shape, &file).queue(0, 4).unwrap();
        assert_eq!(next.open(1).unwrap().heads, [1]);
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let (shape, file) = Inflight::create(1, 128).unwrap();
        for bad in [
            InflightShape { size: shape.size * 2, ..shape },
            InflightShape { queues: 64, ..shape },
            InflightShape { queue_size: u16::MAX, ..shape },
            InflightShape { queue_size: 0, ..shape },
            InflightShape { offset: u64::MAX, ..shape },
        ] {
            assert!(Inflight::map(bad, file.try_clone().unwrap()).is_err(), "{bad:?}");
        }
        let tracker = map(shape, &file).queue(0, 128).unwrap();
        tracker.open(0).unwrap();
        assert!(tracker.began(128).is_err() && tracker.ended(500, 0).is_err());
        assert!(map(shape, &file).queue(1, 128).is_none());
    }
}
