//! `braid volume check`: what the server found when it compared metadata and bricks.

use super::asking::{ask, connect, order, unexpected, volume_name};
use super::follow;
use crate::cli::volume::Check;
use crate::client::Client;
use crate::commands::done::say_done;
use crate::exit::DEGRADED;
use crate::output::{self, size};
use anyhow::Result;
use braid_control::protocol::volume::{CheckDetail, VolumeAnswer, VolumeJob, VolumeRequest};
use std::process::ExitCode;

/// Ranges that are shown of each file.
const RANGES_MAX: usize = 8;

pub fn run(options: Check) -> Result<ExitCode> {
    let mut client = connect(&options.control)?;
    let (volume, json) =
        (only_or_named(&mut client, options.name.as_deref())?, options.follow.json);
    if !options.last {
        let job = VolumeJob::Check { repair: options.repair };
        let start = VolumeRequest::Start { volume: volume.clone(), job };
        let started = order(&mut client, start)?;
        if options.follow.detach {
            return say_done(&started, json);
        }
        follow::until_end(&mut client, Some(&volume), true, json)?;
    }
    let answer = ask(&mut client, VolumeRequest::LastCheck { volume })?;
    let VolumeAnswer::Check { report } = answer else { return Err(unexpected(answer)) };
    if json {
        output::json_line(&report)?;
    } else {
        output::line(text(&report, options.repair))?;
    }
    let left = report.found > report.repaired || !report.lost.is_empty();
    Ok(ExitCode::from(if left { DEGRADED } else { 0 }))
}

/// The volume that was named, or the only one that is mounted.
fn only_or_named(client: &mut Client, named: Option<&str>) -> Result<String> {
    if let Some(named) = named {
        return Ok(volume_name(named));
    }
    match ask(client, VolumeRequest::Status { volume: None })? {
        VolumeAnswer::Status { status } => Ok(status.uuid),
        other => Err(unexpected(other)),
    }
}

fn text(report: &CheckDetail, repair: bool) -> String {
    let mut lines = report.problems.clone();
    let told = report.problems.len() as u64;
    if report.found > told {
        lines.push(format!("and {} more", report.found - told));
    }
    for lost in &report.lost {
        let shown = lost.ranges.iter().take(RANGES_MAX);
        let ranges: Vec<String> = shown.map(|(first, len)| format!("{first}+{len}")).collect();
        let more = match lost.ranges.len().saturating_sub(RANGES_MAX) {
            0 => String::new(),
            more => format!(" and {more} more ranges"),
        };
        lines.push(format!("lost: {}: bytes {}{more}", lost.file, ranges.join(", ")));
    }
    let problems = match (report.found, report.repaired) {
        (0, _) if !report.lost.is_empty() => "no other problem".to_string(),
        (0, _) => "no problems".to_string(),
        (found, repaired) if repair => format!("{found} problems, {repaired} corrected"),
        (found, _) => format!(
            "{found} problems; `braid volume check {} --repair` corrects what can be",
            report.name
        ),
    };
    let leaked = match report.leaked {
        0 => String::new(),
        leaked => format!(", {} in use by nobody", size::human(leaked)),
    };
    let lost = match report.lost.len() {
        0 => String::new(),
        files => format!("parts of {} are lost, ", output::count(files, "file")),
    };
    lines.push(format!(
        "volume {}: {} files, {} directories, {} stripes ({}) checked: {lost}{problems}{leaked}",
        report.name,
        report.files,
        report.directories,
        report.stripes,
        size::human(report.bytes)
    ));
    lines.join("\n")
}
