//! Reads and writes of files since the mount, of all shards that answer them.

use braid_shard::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// Requests of one direction.
#[derive(Debug, Default)]
struct Counted {
    requests: AtomicU64,
    bytes: AtomicU64,
    nanos: AtomicU64,
}

impl Counted {
    fn add(&self, bytes: u64, took: Nanos) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.nanos.fetch_add(took, Ordering::Relaxed);
    }

    fn get(&self) -> Requests {
        Requests {
            requests: self.requests.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            nanos: self.nanos.load(Ordering::Relaxed),
        }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct FileCounts {
    reads: Counted,
    writes: Counted,
}

/// What was asked of files in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Requests that were answered well.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The time that they took, added up.
    pub nanos: u64,
}

impl FileCounts {
    /// A read of so many bytes took so long.
    pub(crate) fn read(&self, bytes: u64, took: Nanos) {
        self.reads.add(bytes, took);
    }

    /// The same of a write.
    pub(crate) fn written(&self, bytes: u64, took: Nanos) {
        self.writes.add(bytes, took);
    }

    /// Reads and writes.
    pub fn get(&self) -> (Requests, Requests) {
        (self.reads.get(), self.writes.get())
    }
}
