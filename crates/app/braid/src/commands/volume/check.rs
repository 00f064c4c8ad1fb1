//! `braid volume check`: what the server found when it compared metadata and bricks.

use super::asking::{about, ask, connect, order, unexpected, volume_name, with_server};
use super::follow;
use crate::cli::Control;
use crate::cli::volume::{Check, Follow};
use crate::client::{Client, member_arguments};
use crate::commands::done::say_done;
use crate::exit::DEGRADED;
use crate::output::progress::Progress;
use crate::output::{self, size};
use anyhow::{Result, bail};
use braid_control::protocol::Answer;
use braid_control::protocol::volume::{
    CheckDetail, LostDetail, VolumeAnswer, VolumeJob, VolumeRequest,
};
use std::process::ExitCode;

/// Ranges that are shown of each file.
const RANGES_MAX: usize = 8;

pub fn run(options: Check) -> Result<ExitCode> {
    if options.offline {
        return offline(&options);
    }
    let Check { name, repair, last, follow, control, .. } = &options;
    let job = (!last).then_some(VolumeJob::Check { repair: *repair });
    run_and_show(name.as_deref(), job, *repair, follow, control)
}

/// Starts a check or a scrub, follows it, and shows what it found; without `job`, what the last one found.
///
/// # Errors
/// The refusal of the server; when there was none.
pub fn run_and_show(
    name: Option<&str>,
    job: Option<VolumeJob>,
    repair: bool,
    follow: &Follow,
    control: &Control,
) -> Result<ExitCode> {
    let mut client = connect(control)?;
    let (volume, json) = (only_or_named(&mut client, name)?, follow.json);
    if let Some(job) = job {
        let start = VolumeRequest::Start { volume: volume.clone(), job };
        let started = order(&mut client, start)?;
        if follow.detach {
            return say_done(&started, json);
        }
        follow::until_end(&mut client, Some(&volume), true, json)?;
    }
    let answer = ask(&mut client, VolumeRequest::LastCheck { volume })?;
    let VolumeAnswer::Check { report } = answer else { return Err(unexpected(answer)) };
    show(&report, repair, json)
}

/// Checks a volume that is not mounted.
fn offline(options: &Check) -> Result<ExitCode> {
    let Some(name) = &options.name else {
        bail!(
            "checking a volume that is not mounted: name it, `braid volume list` shows those that are known"
        )
    };
    let bricks: Vec<String> = member_arguments(&options.bricks, &[])?;
    let json = options.follow.json;
    let request =
        VolumeRequest::CheckUnmounted { volume: volume_name(name), bricks, repair: options.repair };
    let answer = with_server(&options.control, (&options.state, &[]), |client| {
        let mut progress = Progress::new(json);
        let answer =
            client.ask_with_progress(&about(request.clone()), &mut |job| progress.show(job));
        if let Some(done) = progress.finish() {
            output::note(done);
        }
        answer
    })?;
    match answer {
        Answer::Volume { volume: VolumeAnswer::Check { report } } => {
            show(&report, options.repair, json)
        }
        other => Err(crate::client::unexpected(&other)),
    }
}

fn show(report: &CheckDetail, repair: bool, json: bool) -> Result<ExitCode> {
    if json {
        output::json_line(report)?;
    } else {
        output::line(text(report, repair))?;
    }
    let left =
        report.found > report.repaired || !report.lost.is_empty() || !report.rotten.is_empty();
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
    lines.extend(report.lost.iter().map(|lost| format!("lost: {}", ranges_of(lost))));
    lines.extend(report.rotten.iter().map(|rotten| format!("rotten: {}", ranges_of(rotten))));
    lines.extend(report.mended.iter().map(|mended| format!("mended: {}", ranges_of(mended))));
    if report.scrub {
        lines.push(scrubbed(report));
        return lines.join("\n");
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
    let lacking = match report.lacking {
        0 => String::new(),
        stripes => {
            let have = if stripes == 1 { "has" } else { "have" };
            let stripes = number(stripes, "stripe", "stripes");
            format!(", {stripes} {have} fewer copies than asked")
        }
    };
    let lost = match report.lost.len() {
        0 => String::new(),
        files => format!("parts of {} are lost, ", output::count(files, "file")),
    };
    lines.push(format!(
        "volume {}: {}, {}, {} ({}) checked: {lost}{problems}{leaked}{lacking}",
        report.name,
        number(report.files, "file", "files"),
        number(report.directories, "directory", "directories"),
        number(report.stripes, "stripe", "stripes"),
        size::human(report.bytes)
    ));
    lines.join("\n")
}

fn ranges_of(parts: &LostDetail) -> String {
    let shown = parts.ranges.iter().take(RANGES_MAX);
    let ranges: Vec<String> = shown.map(|(first, len)| format!("{first}+{len}")).collect();
    let more = match parts.ranges.len().saturating_sub(RANGES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more ranges"),
    };
    format!("{}: bytes {}{more}", parts.file, ranges.join(", "))
}

/// The last line of a scrub's report.
fn scrubbed(report: &CheckDetail) -> String {
    let mut found = Vec::new();
    if !report.rotten.is_empty() {
        found.push(format!(
            "parts of {} are not as written",
            output::count(report.rotten.len(), "file")
        ));
    }
    if !report.lost.is_empty() {
        found.push(format!("parts of {} cannot be read", output::count(report.lost.len(), "file")));
    }
    if report.found > 0 {
        found.push(format!("{} other problems", report.found));
    }
    if !report.mended.is_empty() {
        let files = output::count(report.mended.len(), "file");
        found.push(format!("parts of {files} were mended from other copies"));
    } else if found.is_empty() {
        found.push("all is as it was written".to_string());
    }
    if report.sealed > 0 {
        found.push(format!("{} had no checksum and have one now", size::human(report.sealed)));
    }
    let read = size::human(report.bytes);
    format!(
        "volume {}: {read} of {} read: {}",
        report.name,
        number(report.files, "file", "files"),
        found.join(", ")
    )
}

fn number(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
