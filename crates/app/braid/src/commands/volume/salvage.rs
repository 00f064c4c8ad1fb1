//! `braid volume salvage`: what was copied, and what is lost.

use super::asking::mounted;
use crate::cli::volume::Salvage;
use crate::exit::DEGRADED;
use crate::output::{self, size};
use crate::volumes::salvaging::{self, Outcome};
use anyhow::Result;
use std::process::ExitCode;

/// Lines about what is lost that are shown; all are in the file.
const SHOWN: usize = 20;

pub fn run(options: &Salvage) -> Result<ExitCode> {
    // The locks of bricks say that they are in use; this says by what, and of bricks without locks as well.
    let mounted = mounted(&options.control).unwrap_or_else(|error| {
        output::note(format!("note: what is mounted here is not known: {error:#}"));
        Vec::new()
    });
    let outcome = salvaging::salvage(&options.bricks, &options.into, options.snapshots, &mounted)?;
    if options.json {
        output::json_line(&outcome)?;
    } else {
        output::line(text(&outcome, &options.into.display().to_string()))?;
    }
    Ok(ExitCode::from(if outcome.lost.is_empty() { 0 } else { DEGRADED }))
}

fn text(outcome: &Outcome, into: &str) -> String {
    let mut lines: Vec<String> = outcome.notes.iter().map(|note| format!("note: {note}")).collect();
    lines.extend(outcome.lost.iter().take(SHOWN).cloned());
    if let more @ 1.. = outcome.lost.len().saturating_sub(SHOWN) {
        lines.push(format!("and {more} more: see {into}/lost.txt"));
    }
    let lost = match outcome.lost.len() {
        0 => "nothing is lost".to_string(),
        lines => format!("{} about what is lost", output::count(lines, "line")),
    };
    let rotten = match outcome.rotten.len() {
        0 => String::new(),
        files => format!(", of them {files} not as written"),
    };
    let snapshots = match outcome.snapshots {
        0 => String::new(),
        snapshots => format!(" of it and of {}", output::count(snapshots, "snapshot")),
    };
    lines.push(format!(
        "volume {}: {} whole ({}){snapshots}, {} incomplete{rotten}, {} without a name; {lost}",
        outcome.name,
        output::count(outcome.files, "file"),
        size::human(outcome.bytes),
        outcome.incomplete,
        outcome.nameless,
    ));
    lines.join("\n")
}
