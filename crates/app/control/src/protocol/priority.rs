//! The importance of what is said.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The importance of a line, as syslog and the journal number it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// Data is in danger.
    Critical = 2,
    /// Something failed.
    Error = 3,
    /// Something should be looked at.
    Warning = 4,
    /// Worth a line.
    Notice = 5,
    /// For who looks closely.
    Info = 6,
    /// For developers.
    Debug = 7,
}
