//! A lease: the places and checksums of a window of a file.

use braid_filesystem::Ino;
use braid_format::volume::BLOCK;
use braid_format::volume::sums::UNKNOWN;
use braid_shard::version::Seen;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;

/// Bytes of a window: a lease is about one window of a file.
pub const LEASED: u64 = 8 << 20;

/// The lease of one window of a file.
#[derive(Debug)]
pub struct WindowLease {
    /// The file.
    pub ino: Ino,
    /// The number of the window.
    pub window: u64,
    /// Bytes of the file.
    pub size: u64,
    /// Where the bytes are, in the order of the file, from the start of the window to its end or that of the file's last block.
    pub parts: Vec<Part>,
    /// The checksum of each block of these; empty where the volume has none.
    pub sums: Vec<u32>,
    /// The bricks that parts name.
    pub bricks: Vec<LeasedBrick>,
    /// The number of the bricks when the lease was given: they are opened anew when it changes.
    pub of_bricks: u64,
    /// The numbers that must be as they were.
    pub versions: [Seen; 4],
}

/// A part of a window that lies in one piece.
#[derive(Clone, Debug)]
pub struct Part {
    /// The bytes of the file.
    pub bytes: Range<u64>,
    /// Which of the bricks it is on, and the first byte there; `None`: zeroes.
    pub place: Option<(u16, u64)>,
}

/// A brick that a lease names.
#[derive(Clone, Debug)]
pub struct LeasedBrick {
    /// Which it is.
    pub uuid: Uuid,
    /// Where its reads are counted.
    pub taken: Arc<Taken>,
}

/// Counts of what other shards have read of a brick.
#[derive(Debug, Default)]
pub struct Taken {
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl Taken {
    /// A read of so many bytes.
    pub fn add(&self, bytes: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Reads, and bytes of them.
    pub fn get(&self) -> (u64, u64) {
        (self.reads.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

impl WindowLease {
    /// All that it says is so.
    pub fn is_current(&self) -> bool {
        self.versions.iter().all(Seen::is_current)
    }

    /// The checksum of a block, counted from the start of the file.
    pub fn sum(&self, block: u64) -> u32 {
        let first = self.window * (LEASED / BLOCK);
        self.sums.get((block - first) as usize).copied().unwrap_or(UNKNOWN)
    }

    /// The parts of `bytes`, which lie in the window.
    pub fn parts_of(&self, bytes: Range<u64>) -> impl Iterator<Item = Part> + '_ {
        let from = self.parts.partition_point(|part| part.bytes.end <= bytes.start);
        let parts = self.parts.get(from..).unwrap_or_default().iter();
        let end = bytes.end;
        parts.take_while(move |part| part.bytes.start < end).map(move |part| {
            let cut = part.bytes.start.max(bytes.start)..part.bytes.end.min(bytes.end);
            let skipped = cut.start - part.bytes.start;
            Part { place: part.place.map(|(brick, offset)| (brick, offset + skipped)), bytes: cut }
        })
    }
}
