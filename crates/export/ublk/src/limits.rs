//! The resources that all devices may use together.

/// Bytes below which a shard has no room for a largest request.
const SHARD_MEMORY_MIN: u64 = 8 << 20;
/// Bytes of the largest request.
const REQUEST_BYTES: u32 = 4 << 20;

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of payload in memory; each shard has its part, and at least 8 MiB.
    pub memory: u64,
    /// Bytes of the largest request: a multiple of 4 KiB, at most 32 MiB.
    pub request_bytes: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { memory: 256 << 20, request_bytes: REQUEST_BYTES }
    }
}

impl Limits {
    pub(crate) fn memory_of_a_shard(&self, shards: usize) -> u64 {
        (self.memory / shards.max(1) as u64).max(SHARD_MEMORY_MIN)
    }
}
