//! The exit codes, and the one kind of error that has a code of its own.

use std::process::ExitCode;

/// Degraded, or mismatches were found, where that was asked for.
pub const DEGRADED: u8 = 1;
/// Refused, failed, or not usable.
pub const FAILED: u8 = 2;
/// A device or a server could not be read.
pub const UNREADABLE: u8 = 4;

/// Something could not be read: exit code [`UNREADABLE`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

/// The exit code of an error.
pub fn code_of(error: &anyhow::Error) -> ExitCode {
    match error.downcast_ref::<Unreadable>() {
        Some(_) => ExitCode::from(UNREADABLE),
        None => ExitCode::from(FAILED),
    }
}
