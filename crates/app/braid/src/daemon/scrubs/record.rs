//! The record of an array's checks and repairs, and of what is in doubt on it, between two runs of the server: `UUID.scrub` in the state directory, since md
//! has no place for it on the members.
//!
//! Invariants: the file is replaced as a whole or not at all, also in a crash; whatever stands in it, the array is served.

use crate::settings::kept::Kept;
use anyhow::Result;
use braid_control::protocol::{InDoubt, ScrubReport};
use braid_format::uuid_text;
use serde::{Deserialize, Serialize};

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The one that is under way: it runs, waits or is paused.
    pub(super) under_way: Option<ScrubReport>,
    /// The last one that has ended.
    pub(super) last: Option<ScrubReport>,
    /// The places that may be wrong since a start by force, until somebody says that it is right.
    #[serde(default)]
    pub(super) in_doubt: Option<InDoubt>,
}

impl Record {
    /// What is kept for an array, and what is wrong with it: nothing is known then.
    pub(super) fn load(kept: &Kept, uuid: &[u8; 16]) -> (Record, Option<String>) {
        let file = file_name(uuid);
        match kept.read(&file) {
            Ok(None) => (Record::default(), None),
            Ok(Some(text)) => match serde_json::from_str(&text) {
                Ok(record) => (record, None),
                Err(error) => (Record::default(), Some(format!("{file} makes no sense: {error}"))),
            },
            Err(error) => (Record::default(), Some(format!("{file} cannot be read: {error}"))),
        }
    }

    /// Keeps it.
    ///
    /// # Errors
    /// When the file cannot be written. It holds what it held, then.
    pub(super) fn store(&self, kept: &Kept, uuid: &[u8; 16], array: &str) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        kept.replace(&file_name(uuid), &text, &format!("keeping the checks of array {array}"))
    }
}

fn file_name(uuid: &[u8; 16]) -> String {
    format!("{}.scrub", uuid_text::format(uuid))
}
