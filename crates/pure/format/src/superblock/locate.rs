//! Where a member's superblock stands, and which one counts when a device seems to have several.

use super::{Superblock, SuperblockError};
use std::fmt;
use std::str::FromStr;

/// The version: where on the member the superblock stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// 1.0: 8 to 12 KiB before the end.
    V1_0,
    /// 1.1: at the start.
    V1_1,
    /// 1.2: 4 KiB from the start.
    V1_2,
}

/// The text names no version that is supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("metadata version {text:?} is not supported; use 1.0, 1.1 or 1.2 (1.2 is the usual one)")]
pub struct VersionError {
    /// What was given.
    pub text: String,
}

impl Version {
    /// All versions in the order in which mdadm tries them.
    pub const ALL: [Version; 3] = [Version::V1_0, Version::V1_1, Version::V1_2];

    /// Data stands behind the superblock (1.1 and 1.2), not before it (1.0).
    pub fn data_follows(self) -> bool {
        self != Version::V1_0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
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
            "1.0" => Ok(Version::V1_0),
            "1.1" => Ok(Version::V1_1),
            // mdadm takes "1" and "default" for its default.
            "1.2" | "1" | "default" => Ok(Version::V1_2),
            _ => Err(VersionError { text: text.to_owned() }),
        }
    }
}

/// Sector of the superblock on a member of `dev_sectors`; `None` when the member is too small to hold
/// one there (24 sectors for any version).
pub fn location(version: Version, dev_sectors: u64) -> Option<u64> {
    if dev_sectors < 24 {
        return None;
    }
    Some(match version {
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
/// ctime, the first of equals; `None` when no place has the magic number.
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
                if best.as_ref().is_none_or(|b| b.ctime < found.ctime) {
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
