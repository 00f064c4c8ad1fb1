//! `braid detail`: the state of a running array, in the words and order of mdadm.

use crate::cli;
use crate::client::{Client, unexpected};
use crate::daemon::protocol::{Answer, Detail, Request};
use crate::output::{self, size, time};
use anyhow::Result;
use std::process::ExitCode;

pub fn run(options: &cli::Detail) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control)?;
    let names = match &options.name {
        Some(name) => vec![name.clone()],
        None => match client.ask(&Request::List)? {
            Answer::List { arrays } => arrays.into_iter().map(|array| array.uuid).collect(),
            other => return Err(unexpected(&other)),
        },
    };
    let mut details = Vec::new();
    for name in &names {
        details.push(client.detail(Some(name))?);
    }
    if options.json {
        match (&options.name, details.first()) {
            (Some(_), Some(detail)) => output::json(detail)?,
            _ => output::json(&details)?,
        }
    } else {
        for detail in &details {
            output::line(text(detail))?;
        }
    }
    let worst = details.iter().map(Detail::exit_code).max().unwrap_or(0);
    Ok(ExitCode::from(if options.test { worst } else { 0 }))
}

fn count(detail: &Detail, states: &[&str]) -> usize {
    detail.members.iter().filter(|member| states.contains(&member.state.as_str())).count()
}

fn text(detail: &Detail) -> String {
    let mut lines = vec![format!("{}:", detail.name)];
    fields(detail, &mut lines);
    lines.push(String::new());
    lines.push("    Number   Major   Minor   RaidDevice State".to_string());
    for (slot, number) in detail.slots.iter().enumerate() {
        let member = detail.members.iter().find(|member| Some(member.number) == *number);
        lines.push(match member {
            Some(member) => member_line(member, &slot.to_string()),
            None => row("-", None, &slot.to_string(), "removed"),
        });
    }
    let without_slot: Vec<_> = detail
        .members
        .iter()
        .filter(|member| !detail.slots.contains(&Some(member.number)))
        .collect();
    if !without_slot.is_empty() {
        lines.push(String::new());
    }
    for member in without_slot {
        lines.push(member_line(member, "-"));
    }
    for line in &detail.left_out {
        lines.push(format!("    left out: {line}"));
    }
    lines.join("\n")
}

fn fields(detail: &Detail, lines: &mut Vec<String>) {
    let faulty = count(detail, &["faulty"]);
    let mut field = |name: &str, value: String| lines.push(format!("{name:>18} : {value}"));
    field("Version", detail.version.clone());
    field("Creation Time", time::local(detail.created));
    field("Raid Level", detail.level.clone());
    field("Array Size", size::mdadm(detail.array_size));
    if detail.component_size > 0 {
        field("Used Dev Size", size::mdadm(detail.component_size));
    }
    field("Raid Devices", detail.raid_devices.to_string());
    field("Total Devices", detail.members.len().to_string());
    field("Persistence", "Superblock is persistent".to_string());
    if detail.bitmap.is_some() {
        field("Intent Bitmap", "Internal".to_string());
    }
    field("Update Time", time::local(detail.updated));
    field("State", detail.state.clone());
    field("Active Devices", count(detail, &["active sync"]).to_string());
    field("Working Devices", (detail.members.len() - faulty).to_string());
    field("Failed Devices", faulty.to_string());
    field("Spare Devices", count(detail, &["spare", "rebuilding"]).to_string());
    if let Some(layout) = &detail.layout {
        field("Layout", layout.clone());
    }
    if detail.chunk_size > 0 {
        field("Chunk Size", size::chunk(detail.chunk_size));
    }
    let policy = match (&detail.bitmap, detail.redundant) {
        (Some(_), _) => "bitmap",
        (None, true) => "resync",
        (None, false) => "none",
    };
    field("Consistency Policy", policy.to_string());
    if let Some(job) = &detail.job {
        let name = match job.kind.as_str() {
            "recover" => "Rebuild Status",
            "check" => "Check Status",
            "repair" => "Repair Status",
            _ => "Resync Status",
        };
        let mut value =
            format!("{:.0}% complete, {}", job.percent().floor(), size::rate(job.rate as f64));
        if let Some(seconds) = job.eta_seconds {
            value.push_str(&format!(", {} to go", time::span(seconds)));
        }
        field(name, value);
    }
    if let Some(bitmap) = &detail.bitmap {
        let (dirty, bits, chunk) = (bitmap.dirty, bitmap.bits, size::chunk(bitmap.chunk));
        field("Bitmap", format!("{dirty} of {bits} bits dirty, {chunk} each"));
    }
    if detail.mismatch_count > 0 {
        field("Mismatches", format!("{} sectors at the last check", detail.mismatch_count));
    }
    field("Name", detail.full_name.clone());
    field("UUID", detail.uuid.clone());
    field("Events", detail.events.to_string());
    for export in &detail.exports {
        field("Export", export.clone());
    }
}

fn member_line(member: &crate::daemon::protocol::Member, slot: &str) -> String {
    let mut state = format!("{:<14} {}", member.state, member.name);
    if let Some(fault) = &member.fault {
        state.push_str(&format!(" ({fault})"));
    }
    row(&member.number.to_string(), member.device, slot, &state)
}

fn row(number: &str, device: Option<(u32, u32)>, slot: &str, state: &str) -> String {
    let (major, minor) = match device {
        Some((major, minor)) => (major.to_string(), minor.to_string()),
        None => ("-".to_string(), "-".to_string()),
    };
    format!("{number:>8} {major:>7} {minor:>7} {slot:>8}      {state}")
}
