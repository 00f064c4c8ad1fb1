//! The exit codes, and the kinds of error that have codes of their own.

use braid_control::protocol::{Code, Refusal};
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

/// A server has refused: exit code [`FAILED`], or [`UNREADABLE`] where it does not have the array.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.error)]
pub struct Refused(pub Refusal);

/// A refusal of that kind.
pub fn refused(code: Code, error: impl Into<String>) -> anyhow::Error {
    Refused(Refusal::new(code, error)).into()
}

/// The exit code of an error.
pub fn code_of(error: &anyhow::Error) -> ExitCode {
    let unreadable = match error.downcast_ref::<Refused>() {
        Some(Refused(refusal)) => refusal.code == Code::NoSuchArray,
        None => error.is::<Unreadable>() || error.is::<Ended>(),
    };
    ExitCode::from(if unreadable { UNREADABLE } else { FAILED })
}

/// A word for the kind of error, that programs can rely on: the server's, or one of those here.
pub fn word_of(error: &anyhow::Error) -> &'static str {
    match error.downcast_ref::<Refused>() {
        Some(Refused(refusal)) => refusal.code.word(),
        None if error.is::<Ended>() => "ending",
        None if error.is::<Unreadable>() => "unreadable",
        None => "failed",
    }
}
