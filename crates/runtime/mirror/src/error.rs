//! Errors of opening a mirror and of changing its legs. Requests to it as a device fail with errors of devices.

use braid_device::{IoError, IoErrorKind};

/// A mirror could not be opened, or its legs not be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// The regions hold no mirror, or what they hold cannot be used.
    #[error("{0}")]
    Damaged(String),
    /// A region failed, or the request does not fit the mirror as it is.
    #[error("{0}")]
    Failed(String),
}

/// A region failed while `doing` was done.
pub(crate) fn failed(doing: &str, error: &IoError) -> MirrorError {
    MirrorError::Failed(format!("{doing} the region: {error}"))
}

/// The error of a read for which no leg has what was written: a medium error with the number by which file systems of
/// Linux say that a checksum does not match (`EFSBADCRC`).
pub(crate) const DAMAGE: IoError = IoError { kind: IoErrorKind::Medium, errno: libc::EBADMSG };

/// True for the error of a read for which no leg has what was written. Other medium errors are those of devices.
pub fn is_damage(error: &IoError) -> bool {
    *error == DAMAGE
}
