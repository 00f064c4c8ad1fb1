//! The sentence that says what was done.

use crate::output;
use anyhow::Result;
use serde::Serialize;
use std::process::ExitCode;

#[derive(Serialize)]
struct Done<'a> {
    done: &'a str,
}

/// Prints the sentence that says what was done.
pub(super) fn say_done(text: &str, json: bool) -> Result<ExitCode> {
    if json {
        output::json(&Done { done: text })?
    } else {
        output::line(text)?
    }
    Ok(ExitCode::SUCCESS)
}
