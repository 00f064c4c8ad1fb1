//! Events of arrays, as they are told and sent.

use super::priority::Priority;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that has happened to an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Its name: mdadm's where mdadm has it.
    pub event: String,
    /// The array.
    pub array: String,
    /// Its UUID.
    pub uuid: String,
    /// The member, where it is one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// A sentence.
    pub text: String,
    /// The array's state in words.
    pub state: String,
    /// Seconds since 1970.
    pub time: u64,
    /// Its importance.
    pub priority: Priority,
}

/// One of those that the server keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Numbered {
    /// One more than that of the event before.
    pub number: u64,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}
