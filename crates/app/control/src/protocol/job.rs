//! A job: of an array, or of a volume.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A job that is running.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    /// resync, recover, check or repair; of a volume: balance, remove, flush, migrate, defrag, check or repair.
    pub kind: String,
    /// Bytes done.
    pub done: u64,
    /// Bytes to do.
    pub total: u64,
    /// Bytes per second.
    pub rate: u64,
    /// Seconds to go; `None` while there is no rate.
    pub eta_seconds: Option<u64>,
    /// Sectors that did not match so far.
    pub mismatches: u64,
}

impl Job {
    /// How much is done, in percent.
    pub fn percent(&self) -> f64 {
        match self.total {
            0 => 100.0,
            total => self.done as f64 * 100.0 / total as f64,
        }
    }
}
