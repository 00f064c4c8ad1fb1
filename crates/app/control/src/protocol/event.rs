//! Events of arrays, as they are told and sent: their importance, and who gets a mail.

use super::detail::Detail;
use super::priority::Priority;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

/// Events that mdadm sends a mail for, and ours that are as bad.
const MAILED: &[&str] = &[
    "Fail",
    "FailSpare",
    "DegradedArray",
    "SparesMissing",
    "TestMessage",
    "ArrayFailed",
    "JobFailed",
    "LostToHost",
    "MismatchFound",
    "SmartWarning",
    "WaitingForSpace",
];

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

impl Event {
    /// An event of an array; its member and text.
    pub fn of(detail: &Detail, event: &str, member: Option<&str>, text: String) -> Event {
        let priority = match event {
            "Fail" | "DegradedArray" | "ArrayFailed" | "LostToHost" => Priority::Critical,
            "FailSpare" | "MemberSlow" | "SparesMissing" | "JobFailed" | "MismatchFound"
            | "WaitingForSpace" | "SmartWarning" => Priority::Warning,
            "ClientConnected" | "ClientGone" => Priority::Info,
            _ => Priority::Notice,
        };
        Event {
            event: event.to_string(),
            array: detail.name.clone(),
            uuid: detail.uuid.clone(),
            member: member.map(str::to_string),
            text,
            state: detail.state.clone(),
            time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            priority,
        }
    }

    /// Somebody gets a mail.
    pub fn is_mailed(&self) -> bool {
        MAILED.contains(&self.event.as_str())
    }

    /// One line for a log.
    pub fn line(&self) -> String {
        format!("{}: {}", self.event, self.text)
    }
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
