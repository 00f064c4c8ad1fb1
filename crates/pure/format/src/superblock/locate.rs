//! Where a member's superblock stands, and which one counts when a device seems to have several.

use super::v0::V0_DISKS;
use super::{MAX_ROLES, Superblock, SuperblockError, time_seconds};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// The version of the metadata: how the superblock is laid out and where on the member it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// 0.90: at the start of the last whole 64 KiB.
    V0_90,
    /// 1.0: 8 to 12 KiB before the end.
    V1_0,
    /// 1.1: at the start.
    V1_1,
    /// 1.2: 4 KiB from the start.
    V1_2,
}

/// The text names no version that is supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "metadata version {text:?} is not supported; use 0.90, 1.0, 1.1 or 1.2 (1.2 is the usual one)"
)]
pub struct VersionError {
    /// The name given.
    pub text: String,
}

impl Version {
    /// All versions in the order in which mdadm tries them.
    pub const ALL: [Version; 4] = [Version::V0_90, Version::V1_0, Version::V1_1, Version::V1_2];

    /// Data stands behind the superblock (1.1 and 1.2), not before it (0.90 and 1.0).
    pub fn data_follows(self) -> bool {
        matches!(self, Version::V1_1 | Version::V1_2)
    }

    /// Number of members that a superblock can list, spares and failed ones included: 27 in 0.90, else 1920.
    pub fn max_members(self) -> usize {
        if self == Version::V0_90 { V0_DISKS } else { MAX_ROLES }
    }

    /// True if the progress of a rebuild can be stored. It cannot in 0.90: there a member that is being rebuilt
    /// has the role of a spare in every superblock until it is in sync, and starts anew after a stop.
    pub fn has_recovery_offset(self) -> bool {
        self != Version::V0_90
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Version::V0_90 => "0.90",
            Version::V1_0 => "1.0",
            Version::V1_1 => "1.1",
            Version::V1_2 => "1.2",
        })
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Version, VersionError> {
        match text {
            "0.90" | "0" => Ok(Version::V0_90),
            "1.0" => Ok(Version::V1_0),
            "1.1" => Ok(Version::V1_1),
            // mdadm takes "1" and "default" for its default.
            "1.2" | "1" | "default" => Ok(Version::V1_2),
            _ => Err(VersionError { text: text.to_owned() }),
        }
    }
}

/// Sectors of the 64 KiB that 0.90 puts its superblock at the start of.
const V0_UNIT: u64 = 128;

/// Sector of the superblock on a member of `dev_sectors`; `None` when the member is too small to hold
/// one there (24 sectors; for 0.90 256, so that something is left for data).
pub fn location(version: Version, dev_sectors: u64) -> Option<u64> {
    let least = if version == Version::V0_90 { 2 * V0_UNIT } else { 24 };
    if dev_sectors < least {
        return None;
    }
    Some(match version {
        Version::V0_90 => (dev_sectors & !(V0_UNIT - 1)) - V0_UNIT,
        Version::V1_0 => (dev_sectors - 16) & !7,
        Version::V1_1 => 0,
        Version::V1_2 => 8,
    })
}

/// The places at which a member of `dev_sectors` may have a superblock, in the order of [`Version::ALL`];
/// none when it is too small.
pub fn candidates(dev_sectors: u64) -> Vec<(Version, u64)> {
    Version::ALL.into_iter().filter_map(|m| Some((m, location(m, dev_sectors)?))).collect()
}

/// Decides from what was parsed at each of [`candidates`]: of several superblocks the one with the newest
/// ctime in seconds (0.90 has no finer ones), the first of equals; `None` when no place has the magic number.
///
/// # Errors
/// No valid superblock, and at least one place with a damaged or unsupported one: that one's error.
pub fn choose(
    parsed: impl IntoIterator<Item = Result<Superblock, SuperblockError>>,
) -> Result<Option<Superblock>, SuperblockError> {
    let mut best: Option<Superblock> = None;
    let mut damaged = None;
    for result in parsed {
        match result {
            Ok(found) => {
                if best.as_ref().is_none_or(|b| time_seconds(b.ctime) < time_seconds(found.ctime)) {
                    best = Some(found);
                }
            }
            Err(SuperblockError::NoMagic { .. }) => {}
            Err(error) => {
                damaged.get_or_insert(error);
            }
        }
    }
    match (best, damaged) {
        (Some(best), _) => Ok(Some(best)),
        (None, Some(error)) => Err(error),
        (None, None) => Ok(None),
    }
}

/// The partition that a 0.90 superblock on a whole device could as well belong to: one whose last whole
/// 64 KiB are the device's. 0.90 does not say which of the two is the member, so a user must; with 1.x
/// `super_offset` tells. `partitions` in sectors of the device, as [`crate::signature::partitions`] gives
/// them.
///
/// A device without such a partition is a member as a whole.
pub fn v0_shared_with(dev_sectors: u64, partitions: &[Range<u64>]) -> Option<Range<u64>> {
    let whole = location(Version::V0_90, dev_sectors)?;
    let shared = |part: &&Range<u64>| {
        let inside = location(Version::V0_90, part.end.saturating_sub(part.start));
        inside.and_then(|at| part.start.checked_add(at)) == Some(whole)
    };
    partitions.iter().find(shared).cloned()
}
