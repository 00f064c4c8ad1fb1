//! The versions of the metadata, and how many members each can list.

use std::fmt;
use std::str::FromStr;

/// Entries in the table of disks.
pub const V0_DISKS: usize = 27;
/// Entries in the largest role table that fits [`READ_LEN`](super::READ_LEN).
pub const MAX_ROLES: usize = 1920;

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
