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

use crate::service::{self, Priority};
use anyhow::{Context, Result};
use serde::Serialize;
use std::io::{ErrorKind, Write};

/// `slot 2`, or `slots 0, 2`.
pub fn slots(numbers: &[usize]) -> String {
    let word = if numbers.len() == 1 { "slot" } else { "slots" };
    let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
    format!("{word} {}", numbers.join(", "))
}

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
    let warning = text.as_ref().starts_with("warning: ");
    tell(if warning { Priority::Warning } else { Priority::Notice }, text);
}

/// Says something of that priority, on standard error.
pub fn tell(priority: Priority, text: impl AsRef<str>) {
    let line = service::line(priority, text.as_ref(), service::is_journal());
    // Nobody is there to be told when standard error is closed.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// A number of things: "1 member", "2 members".
pub fn count(number: usize, thing: &str) -> String {
    match number {
        1 => format!("1 {thing}"),
        many => format!("{many} {thing}s"),
    }
}

/// An error with its causes, each said once: some messages have that of their cause in them.
pub fn said(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let cause = anyhow::anyhow!("no room").context("making x: no room; delete something");
        assert_eq!(said(&cause), "making x: no room; delete something");
        let cause = anyhow::anyhow!("no room").context("making x").context("starting");
        assert_eq!(said(&cause), "starting: making x: no room");
    }
}
