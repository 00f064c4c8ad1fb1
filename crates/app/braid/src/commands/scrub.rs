//! What `braid check` and `braid repair` have in common: start, cancel, wait, the count at the end.

use super::say_done;
use crate::cli::Scrub;
use crate::client::Client;
use crate::daemon::protocol::{Answer, Detail, LastJob, Request};
use crate::exit::DEGRADED;
use crate::output;
use crate::output::progress::Progress;
use anyhow::{Result, bail};
use std::process::ExitCode;

pub fn run(options: Scrub, repair: bool) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control)?;
    let Scrub { name: array, wait, cancel, json, .. } = options;
    if cancel {
        return say_done(&client.order(&Request::Cancel { array })?, json);
    }
    let started = client.order(&Request::Scrub { array: array.clone(), repair })?;
    if !wait {
        return say_done(&started, json);
    }
    let mut progress = Progress::new(json);
    let (last, detail) = client.wait(array.as_deref(), &mut |job| progress.show(job))?;
    progress.finish();
    conclude(last, detail, json, repair)
}

fn conclude(last: Option<LastJob>, detail: Detail, json: bool, repair: bool) -> Result<ExitCode> {
    let asked = if repair { "repair" } else { "check" };
    let Some(job) = last.clone().filter(|job| job.kind == asked && job.outcome == "done") else {
        let why =
            last.and_then(|job| job.error).unwrap_or_else(|| "it was interrupted".to_string());
        bail!("the {asked} of array {} did not come to its end: {why}", detail.name);
    };
    let found = job.mismatches;
    if json {
        output::json_line(&Answer::Idle { last, detail: Box::new(detail) })?;
    } else {
        let corrected = if repair && found > 0 { ", corrected" } else { "" };
        output::line(format!(
            "{asked} of array {}: {found} sectors mismatched{corrected}",
            detail.name
        ))?;
    }
    Ok(ExitCode::from(if found > 0 && !repair { DEGRADED } else { 0 }))
}
