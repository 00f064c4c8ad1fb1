//! Everything that an operation has begun when the kill comes.

use anyhow::Result;
use std::thread::JoinHandle;

/// Everything that an operation has begun.
#[derive(Default)]
pub struct Begun {
    /// Commands that are given one after the other until one fails; it gives how many succeeded.
    pub commands: Option<JoinHandle<Result<usize>>>,
    /// Snapshots that are there, or that may be after the commands, in their order.
    pub snapshots: Vec<Shown>,
    /// Blocks of a brick that are garbled.
    pub rotten: Vec<Rotten>,
}

/// A snapshot, and files that it shows.
pub struct Shown {
    pub name: String,
    pub files: Vec<u64>,
}

/// A block that was garbled, and what it held.
pub struct Rotten {
    pub at: u64,
    pub was: Vec<u8>,
}
