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

/// The server ended before it looked at a request: exit code [`UNREADABLE`].
#[derive(Debug, thiserror::Error)]
#[error("no server is running with the control socket {0}: the one that was there has just ended")]
pub struct Ended(pub String);

/// The exit code of an error.
pub fn code_of(error: &anyhow::Error) -> ExitCode {
    match error.is::<Unreadable>() || error.is::<Ended>() {
        true => ExitCode::from(UNREADABLE),
        false => ExitCode::from(FAILED),
    }
}
