//! What was counted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What clients have asked for and how it was done, since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// Requests read.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Requests written.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Pieces that writes were cut into, one for each stripe (parity levels).
    pub pieces: u64,
    /// Times that pieces of a stripe were carried out, one or several together.
    pub batches: u64,
    /// Look-ups of stripes.
    pub lookups: u64,
    /// Requests to members for writes: reads of what was missing.
    pub member_reads: u64,
    /// Requests to members for writes: data and parity, before plugs merge them.
    pub member_writes: u64,
    /// Segments written as full stripes.
    pub full_stripes: u64,
    /// Segments written by read-modify-write.
    pub read_modify_writes: u64,
    /// Segments written by reconstruct-write.
    pub reconstruct_writes: u64,
    /// Pieces of reads that were recovered from redundancy.
    pub recovered_reads: u64,
    /// Read errors that were mended by writing.
    pub corrected_reads: u64,
}
