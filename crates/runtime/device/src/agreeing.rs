//! Bytes that are known by their checksum, looked for among all that a device can make of what lies below it.

use braid_shard::BufMut;
use std::future::{Future, ready};
use std::pin::Pin;

/// Bytes that are looked for.
#[derive(Clone, Copy, Debug)]
pub struct Sought {
    /// The first of them.
    pub offset: u64,
    /// Their number, a multiple of the device's logical block.
    pub len: usize,
    /// Their checksum.
    pub sum: u32,
    /// What computes it.
    pub sum_of: fn(&[u8]) -> u32,
}

/// Finds them, perhaps after a while.
pub type FindAgreeing = Pin<Box<dyn Future<Output = Option<BufMut>>>>;

impl Sought {
    /// These bytes are what is looked for.
    #[must_use]
    pub fn is(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.len && (self.sum_of)(bytes) == self.sum
    }

    /// The same at another place.
    #[must_use]
    pub fn at(self, offset: u64) -> Sought {
        Sought { offset, ..self }
    }

    /// The answer of whoever has nothing but what a read gives.
    #[must_use]
    pub fn nowhere() -> FindAgreeing {
        Box::pin(ready(None))
    }
}
