//! Events as they are made: their importance, and who gets a mail.

use crate::output::time;
use crate::protocol::{Detail, Event};
use crate::service::Priority;

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
            time: time::now(),
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
