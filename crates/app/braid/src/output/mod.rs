//! How results are shown: text on standard output that survives a closed pipe, tables, sizes, times,
//! progress.

pub mod found;
pub mod progress;
pub mod report;
pub mod size;
pub mod table;
pub mod time;
pub mod tree;
pub mod words;

use anyhow::{Context, Result};
use serde::Serialize;
use std::io::{ErrorKind, Write};

/// Writes a line to standard output at once. A reader that went away is no error.
///
/// # Errors
/// When standard output cannot be written, such as on a full disk.
pub fn line(text: impl AsRef<str>) -> Result<()> {
    line_if_read(text).map(|_| ())
}

/// The same; false when the reader went away, so that whoever writes without end may end.
///
/// # Errors
/// When standard output cannot be written, such as on a full disk.
pub fn line_if_read(text: impl AsRef<str>) -> Result<bool> {
    let mut out = std::io::stdout().lock();
    let written = out
        .write_all(text.as_ref().as_bytes())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true).context("writing to standard output"),
    }
}

/// Writes a value as JSON: over several lines for people to read too.
///
/// # Errors
/// When standard output cannot be written.
pub fn json(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string_pretty(value).context("making JSON")?)
}

/// Writes a value as one line of JSON.
///
/// # Errors
/// When standard output cannot be written.
pub fn json_line(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string(value).context("making JSON")?)
}

/// Says something beside the result, on standard error.
pub fn note(text: impl AsRef<str>) {
    // Nobody is there to be told when standard error is closed.
    let _ = writeln!(std::io::stderr().lock(), "{}", text.as_ref());
}
