//! `braid examine --assemble`: what each array would start with, who is stale and by how much, and what has to be said for it
//! to start. Devices are opened to be read only.

use crate::daemon::grouping::{Group, group_what_is_there};
use crate::exit::{DEGRADED, FAILED};
use crate::members::parse_distinct;
use crate::on_shard;
use crate::output::{self, table, time};
use anyhow::{Context, Result, bail};
use braid_array::assemble::outlook::{Outlook, Prospect, outlook};
use braid_format::uuid_text;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// One array, for scripts.
#[derive(Serialize)]
struct Report {
    name: String,
    uuid: String,
    level: Option<String>,
    raid_devices: usize,
    clean: bool,
    events: u64,
    updated: u64,
    missing: Vec<usize>,
    /// starts, by-force or no
    verdict: &'static str,
    problem: Option<String>,
    members: Vec<Row>,
}

/// One member.
#[derive(Serialize)]
struct Row {
    member: String,
    slot: Option<usize>,
    events: u64,
    events_behind: u64,
    updated: u64,
    seconds_behind: u64,
    part: String,
    taken_by_force: bool,
}

pub(super) fn run(paths: &[PathBuf], json: bool) -> Result<ExitCode> {
    let texts: Vec<String> = paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let (members, twice) = parse_distinct(&texts)?;
    let shards = on_shard::start_shards(1)?;
    let home = shards.remotes().first().context("a shard was started")?.clone();
    let (groups, notes) = group_what_is_there(&home, &members)?;
    for note in twice.iter().chain(&notes) {
        output::note(format!("note: {note}"));
    }
    if groups.is_empty() {
        bail!("none of what was given is a member of an array that can be read");
    }
    let (mut worst, mut reports) = (0, Vec::new());
    for group in &groups {
        let (openers, degraded) = (group.openers.clone(), group.is_as_it_was_left());
        let remotes = shards.remotes().to_vec();
        let found = on_shard::run(&home, move |shard| async move {
            outlook(&on_shard::context(&shard, &remotes), openers, degraded).await
        })?;
        let outlook = match found {
            Ok(outlook) => outlook,
            Err(error) => {
                worst = worst.max(FAILED);
                output::note(format!("braid: {error}"));
                continue;
            }
        };
        worst = worst.max(match (&outlook.problem, outlook.by_force) {
            (None, _) => 0,
            (Some(_), true) => DEGRADED,
            (Some(_), false) => FAILED,
        });
        if json {
            reports.push(report(group, &outlook));
        } else {
            output::line(text(&outlook))?;
        }
    }
    if json {
        output::json(&reports)?;
    }
    Ok(ExitCode::from(worst))
}

fn report(group: &Group, outlook: &Outlook) -> Report {
    let row = |member: &Prospect| Row {
        member: member.name.clone(),
        slot: member.slot,
        events: member.events,
        events_behind: member.behind,
        updated: member.updated,
        seconds_behind: outlook.updated.saturating_sub(member.updated),
        part: member.part.clone(),
        taken_by_force: member.by_force,
    };
    Report {
        name: group.recorded().escaped(),
        uuid: uuid_text::format(&group.uuid),
        level: outlook.level.map(|level| level.to_string()),
        raid_devices: outlook.raid_disks,
        clean: outlook.clean,
        events: outlook.events,
        updated: outlook.updated,
        missing: outlook.missing.clone(),
        verdict: match (&outlook.problem, outlook.by_force) {
            (None, _) => "starts",
            (Some(_), true) => "by-force",
            (Some(_), false) => "no",
        },
        problem: outlook.problem.clone(),
        members: outlook.members.iter().map(row).collect(),
    }
}

fn text(outlook: &Outlook) -> String {
    let level =
        outlook.level.map_or_else(|| "an unknown level".to_string(), |level| level.to_string());
    let state = if outlook.clean { "clean" } else { "not stopped cleanly" };
    let mut lines = vec![format!(
        "array {}: {level}, {} members, {state}, {} updates, the last {}",
        outlook.title,
        outlook.raid_disks,
        outlook.events,
        time::local(outlook.updated)
    )];
    let mut rows = table::table(&["member", "slot", "updates", "last written", "part"]);
    for member in &outlook.members {
        let slot = member.slot.map_or_else(|| "-".to_string(), |slot| slot.to_string());
        let (updates, written) = match member.behind {
            0 => (member.events.to_string(), time::local(member.updated)),
            behind => (
                format!("{} ({behind} fewer)", member.events),
                format!("{} ({} before)", time::local(member.updated), member.age(outlook.updated)),
            ),
        };
        rows.add_row([member.name.clone(), slot, updates, written, member.part.clone()]);
    }
    lines.push(table::text(&rows));
    if !outlook.missing.is_empty() {
        lines.push(format!("  missing: {}", output::slots(&outlook.missing)));
    }
    let given: Vec<&str> = outlook.members.iter().map(|member| member.name.as_str()).collect();
    let given = given.join(" ");
    let last = match (&outlook.problem, outlook.by_force) {
        (None, _) => format!("  it starts: braid serve {given} --nbd unix:PATH"),
        (Some(problem), true) => format!(
            "  it does not start by itself: {problem}\n  by force it does; look at it without writing first: braid serve \
             --read-only --force {given} --nbd unix:PATH"
        ),
        (Some(problem), false) => format!("  it does not start, also not by force: {problem}"),
    };
    lines.push(last);
    lines.join("\n")
}
