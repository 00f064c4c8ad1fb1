//! What a check or repair found, as it is sent.

use serde::{Deserialize, Serialize};

/// The check or repair of an array that ended last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// One place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}
