//! An event.

use crate::output::time;
use crate::protocol::Detail;
use crate::service::Priority;
use serde::Serialize;

/// Something that has happened to an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Its name: mdadm's where mdadm has it.
    pub event: String,
    /// The array.
    pub array: String,
    /// Its UUID.
    pub uuid: String,
    /// The member, where it is one's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// A sentence.
    pub text: String,
    /// The array's state in words.
    pub state: String,
    /// Seconds since 1970.
    pub time: u64,
    /// Its importance.
    #[serde(skip)]
    pub priority: Priority,
    /// Somebody gets a mail.
    #[serde(skip)]
    pub mailed: bool,
}

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

impl Event {
    /// An event of an array; its member and text.
    pub fn of(detail: &Detail, event: &str, member: Option<&str>, text: String) -> Event {
        let priority = match event {
            "Fail" | "DegradedArray" | "ArrayFailed" | "LostToHost" => Priority::Critical,
            "FailSpare" | "SparesMissing" | "JobFailed" | "MismatchFound" | "WaitingForSpace"
            | "SmartWarning" => Priority::Warning,
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
            time: time::now(),
            priority,
            mailed: MAILED.contains(&event),
        }
    }

    /// One line for a log.
    pub fn line(&self) -> String {
        format!("{}: {}", self.event, self.text)
    }
}
