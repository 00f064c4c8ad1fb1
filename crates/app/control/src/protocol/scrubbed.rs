//! What a check or repair found, as it is sent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A check or repair from its beginning on, over all its interruptions, as it is kept and sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScrubReport {
    /// What became of it.
    pub state: ScrubState,
    /// Why it waits, or has failed.
    pub why: Option<String>,
    /// A repair that makes parity match the data, and other copies the first, whoever is wrong.
    pub parity_only: bool,
    /// When it was asked for.
    pub started: u64,
    /// When it was last seen to go on.
    pub updated: u64,
    /// When it ended.
    pub ended: Option<u64>,
    /// Where it began: a byte of each component, of the array at levels 1 and 10.
    pub from: u64,
    /// All from there to here has been gone through.
    pub position: u64,
    /// Where it ends.
    pub until: u64,
    /// Sectors that did not match.
    pub mismatches: u64,
    /// Bytes in which members were found wrong, by their names.
    pub wrong: BTreeMap<String, u64>,
    /// The findings, place by place.
    pub found: Scrubbed,
}

impl ScrubReport {
    /// The part of its range that it has gone through, in percent.
    pub fn percent(&self) -> f64 {
        let (done, all) =
            (self.position.saturating_sub(self.from), self.until.saturating_sub(self.from));
        if all == 0 { 0.0 } else { done as f64 * 100.0 / all as f64 }
    }

    /// It has found nothing that is wrong, or has mended all of it.
    pub fn is_clean(&self) -> bool {
        let left = self.found.lost > 0 || self.found.unmended > 0;
        !left && (self.mismatches == 0 || self.found.kind == "repair")
    }
}

/// The end of a check or repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScrubState {
    /// It is under way.
    Running,
    /// It goes on by itself: when its hours come, when another job has ended, or after a restart.
    Waiting,
    /// It goes on when somebody says so.
    Paused,
    /// It came to its end.
    Done,
    /// Somebody has ended it.
    Cancelled,
    /// It could not go on.
    Failed,
}

/// The check or repair of an array that ended last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Scrubbed {
    /// check or repair.
    pub kind: String,
    /// The first places, in the order of the array.
    pub places: Vec<FoundPlace>,
    /// Places that are not listed.
    pub more: u64,
    /// Bytes of members that could be mended and were not.
    pub unmended: u64,
    /// Bytes of members that nothing is left of.
    pub lost: u64,
}

/// Places that may hold something wrong since their array was started by force: the write hole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InDoubt {
    /// The first places; all of the array where nothing says which.
    pub places: Vec<FoundPlace>,
    /// Places that are not listed.
    pub more: u64,
}

/// One place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FoundPlace {
    /// Array byte.
    pub offset: u64,
    /// Bytes of the array that are concerned: all of the stripe's where a parity block is, or any may be.
    pub length: u64,
    /// Component byte of the members.
    pub component_offset: u64,
    /// Bytes of each component.
    pub component_length: u64,
    /// What was found.
    pub verdict: Found,
    /// The members that it was found of, where they are known.
    pub members: Vec<String>,
    /// It was written again and read back as it should be.
    pub mended: bool,
}

/// What was found at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Found {
    /// The member holds something else than all others agree on.
    Wrong,
    /// It does not match, and nothing tells who is wrong.
    Unknown,
    /// More than one member is wrong.
    Several,
    /// The members could not be read; the others have what they held.
    Unreadable,
    /// The members could not be read, and the others are not enough.
    Lost,
    /// The members of these slots were missing when the array was started by force, and power had failed during a write.
    InDoubt,
}
