//! What `braid check` and `braid repair` have in common: start, pause, cancel, wait, the count at the end, the report.

use super::done::say_done;
use crate::cli::Scrub;
use crate::client::{Client, unexpected};
use crate::exit::DEGRADED;
use crate::output::progress::Progress;
use crate::output::{self, found, report};
use anyhow::{Result, bail};
use braid_control::protocol::{Answer, Detail, Found, LastJob, Request, Scrubbed};
use std::process::ExitCode;

pub fn run(options: Scrub, repair: bool, parity_only: bool) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    let Scrub { name: array, wait, deed, between, json, .. } = options;
    if deed.last {
        return last(&mut client, array, json);
    }
    if deed.cancel {
        return say_done(&client.order(&Request::Cancel { array })?, json);
    }
    if deed.accept_doubt {
        return say_done(&client.order(&Request::AcceptDoubt { array })?, json);
    }
    if deed.pause || deed.resume {
        return say_done(&client.order(&Request::PauseScrub { array, paused: deed.pause })?, json);
    }
    if let Some(hours) = between {
        let name = client.detail(array.as_deref())?.name;
        let settings = vec![(hours.name, hours.value)];
        client.order(&Request::Set { array: name, settings, once: false })?;
    }
    let kind = if repair { "repair" } else { "check" };
    let runs = wait && client.detail(array.as_deref())?.job.is_some_and(|job| job.kind == kind);
    let request = Request::Scrub { array: array.clone(), repair, parity_only };
    let started = match runs {
        true => {
            output::note(format!("a {kind} is running already: this follows it"));
            String::new()
        }
        false => client.order(&request)?,
    };
    if !wait {
        return say_done(&started, json);
    }
    let mut progress = Progress::new(json);
    let (last, detail) = client.wait(array.as_deref(), &mut |job| progress.show(job))?;
    if let Some(done) = progress.finish() {
        output::note(done);
    }
    conclude(last, detail, json, repair)
}

/// Shows the report of the last one, and the one that is under way.
fn last(client: &mut Client, array: Option<String>, json: bool) -> Result<ExitCode> {
    let answer = client.ask(&Request::Scrubs { array })?;
    let Answer::Scrubs { array, under_way, last, in_doubt } = &answer else {
        return Err(unexpected(&answer));
    };
    if under_way.is_none() && last.is_none() && in_doubt.is_none() {
        bail!(
            "array {array} has not been checked on this machine, and nothing is in doubt on it; `braid check {array}` \
             checks it"
        );
    }
    if json {
        output::json_line(&answer)?;
    } else {
        let reports = last.iter().chain(under_way);
        for line in reports.flat_map(|report| report::lines(array, report)) {
            output::line(line)?;
        }
        for line in in_doubt.iter().flat_map(found::in_doubt) {
            output::line(line)?;
        }
    }
    let clean = last.as_ref().is_none_or(|report| report.is_clean());
    Ok(ExitCode::from(if clean { 0 } else { DEGRADED }))
}

fn conclude(last: Option<LastJob>, detail: Detail, json: bool, repair: bool) -> Result<ExitCode> {
    let asked = if repair { "repair" } else { "check" };
    if let Some(report) = &detail.scrub {
        bail!(
            "the {asked} of array {0} has not come to its end yet, it is {1} at {2:.1} %: `braid check {0} --last` says more",
            detail.name,
            report::state(report.state),
            report.percent()
        );
    }
    let Some(job) = last.clone().filter(|job| job.kind == asked && job.outcome == "done") else {
        let why =
            last.and_then(|job| job.error).unwrap_or_else(|| "it was interrupted".to_string());
        bail!("the {asked} of array {} did not come to its end: {why}", detail.name);
    };
    let sectors = job.mismatches;
    let (scrubbed, in_doubt) = (detail.scrubbed.clone(), detail.in_doubt.clone());
    let (lost, unmended) = scrubbed.as_ref().map_or((0, 0), |found| (found.lost, found.unmended));
    let (name, clean) = (detail.name.clone(), sectors == 0 && lost == 0 && unmended == 0);
    if json {
        output::json_line(&Answer::Idle { last, detail: Box::new(detail) })?;
    } else {
        let mended = repair && sectors > 0 && lost == 0 && unmended == 0;
        let corrected = if mended { ", corrected and read back" } else { "" };
        output::line(format!("{asked} of array {name}: {sectors} sectors mismatched{corrected}"))?;
        for line in scrubbed.iter().flat_map(found::lines) {
            output::line(format!("  {line}"))?;
        }
        for line in in_doubt.iter().flat_map(found::in_doubt) {
            output::line(format!("  {line}"))?;
        }
        if let Some(next) = advice(&name, repair, scrubbed.as_ref()) {
            output::line(next)?;
        }
    }
    if repair && (lost > 0 || unmended > 0) {
        bail!(
            "the repair of array {name} could not mend everything: {lost} bytes of members have nothing left to \
             compute them from, {unmended} were not taken; `braid detail {name}` lists where. What is lost is good \
             again once it is written, from a backup"
        );
    }
    Ok(ExitCode::from(if clean || repair { 0 } else { DEGRADED }))
}

/// What follows from the places that were found.
fn advice(name: &str, repair: bool, scrubbed: Option<&Scrubbed>) -> Option<String> {
    let places = &scrubbed?.places;
    let any = |found: Found| places.iter().any(|place| place.verdict == found);
    let mut said = Vec::new();
    if any(Found::Wrong) && !repair {
        said.push(format!(
            "`braid repair {name}` mends the members that are named, and those alone"
        ));
    }
    if any(Found::Unknown) && !repair {
        said.push(format!(
            "where nobody is named `braid repair {name}` makes parity match the data, or copies match the first: compare \
             those bytes with a backup before"
        ));
    }
    if any(Found::Lost) && !repair {
        said.push(
            "what nothing else has is good again once it is written, from a backup".to_string(),
        );
    }
    (!said.is_empty()).then(|| said.join("; "))
}
