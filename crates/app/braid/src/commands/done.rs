//! The sentences that say what was done.

use crate::client::unexpected;
use crate::exit::FAILED;
use crate::output;
use anyhow::Result;
use braid_control::protocol::{Answer, MemberDone};
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

#[derive(Serialize)]
struct DoneToMembers<'a> {
    /// All sentences, for who wants no more.
    done: String,
    members: &'a [MemberDone],
    error: Option<&'a str>,
}

/// Prints what was done to each member, and what was refused then, which is a failure.
pub(super) fn say_members(answer: &Answer, json: bool) -> Result<ExitCode> {
    let Answer::Members { done, error } = answer else { return Err(unexpected(answer)) };
    if json {
        let sentences: Vec<&str> = done.iter().map(|one| one.done.as_str()).collect();
        let error = error.as_deref();
        output::json(&DoneToMembers { done: sentences.join("\n"), members: done, error })?;
    } else {
        done.iter().try_for_each(|one| output::line(&one.done))?;
        if done.is_empty() && error.is_none() {
            output::line("there is no such member: nothing was done")?;
        }
    }
    let Some(error) = error else { return Ok(ExitCode::SUCCESS) };
    output::note(format!("braid: {error}"));
    Ok(ExitCode::from(FAILED))
}
