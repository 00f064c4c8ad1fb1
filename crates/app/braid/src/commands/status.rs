//! `braid status`: one line for each array and volume, in the colour of its state on a terminal.

use crate::cli::Status;
use crate::client::{Client, unexpected};
use crate::output::{self, count, size};
use anyhow::Result;
use braid_control::protocol::volume::{ListedVolume, VolumeAnswer, VolumeRequest};
use braid_control::protocol::{Answer, Detail, Request};
use serde::Serialize;
use std::io::IsTerminal;
use std::process::ExitCode;

/// The state that something is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Health {
    Good,
    Degraded,
    Failed,
}

#[derive(Debug, Serialize)]
struct Line {
    name: String,
    kind: String,
    size: u64,
    health: Health,
    state: String,
}

pub fn run(options: &Status) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    let arrays = match client.ask(&Request::List)? {
        Answer::List { arrays } => arrays,
        other => return Err(unexpected(&other)),
    };
    // One that is stopped meanwhile has no line.
    let details = arrays.iter().filter_map(|array| client.detail(Some(&array.uuid)).ok());
    let mut lines: Vec<Line> = details.map(|detail| of_array(&detail)).collect();
    if let VolumeAnswer::List { volumes } = client.ask_volume(VolumeRequest::List)? {
        lines.extend(volumes.iter().map(of_volume));
    }
    let worst = lines.iter().map(|line| line.health).max().unwrap_or(Health::Good);
    if options.json {
        output::json(&lines)?;
    } else if lines.is_empty() {
        output::line("nothing is running: braid start MEMBER… starts an array")?;
    } else {
        let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        text(&lines, colours).iter().try_for_each(output::line)?;
    }
    Ok(ExitCode::from(if options.test { worst as u8 } else { 0 }))
}

fn of_array(detail: &Detail) -> Line {
    let health = match detail.exit_code() {
        0 => Health::Good,
        1 => Health::Degraded,
        _ => Health::Failed,
    };
    let mut state = detail.state.clone();
    // Members that it could not do without are not counted as lost: the superblocks are to say that it had them.
    if detail.failed {
        state.push_str(", too many members are lost");
    } else if detail.degraded > 0 {
        state.push_str(&format!(
            ", {} of {} in sync",
            detail.raid_devices - detail.degraded.min(detail.raid_devices),
            detail.raid_devices
        ));
    }
    if let Some(job) = &detail.job {
        state.push_str(&format!(", {} {:.0} %", job.kind, job.percent()));
        if let Some(left) = job.eta_seconds {
            state.push_str(&format!(", {} to go", output::time::span(left)));
        }
    }
    for member in detail.members.iter().filter(|member| member.waiting_for_space > 0) {
        state.push_str(&format!(", waiting for space for {}", member.name));
    }
    match detail.clients.len() {
        0 => {}
        clients => state.push_str(&format!(", {}", count(clients, "client"))),
    }
    Line {
        name: detail.name.clone(),
        kind: detail.level.clone(),
        size: detail.array_size,
        health,
        state,
    }
}

fn of_volume(volume: &ListedVolume) -> Line {
    let health = health_of(&volume.state);
    let mut state = volume.state.clone();
    if let Some(dir) = &volume.dir {
        let full = volume.used as f64 * 100.0 / volume.size.max(1) as f64;
        state.push_str(&format!(", {full:.0} % used, at {dir}"));
    }
    Line { name: volume.name.clone(), kind: "volume".to_string(), size: volume.size, health, state }
}

/// The worst of what the state of a volume says; jobs, and what they would do, are none.
fn health_of(state: &str) -> Health {
    let of_word = |word: &str| match word {
        "failed" => Health::Failed,
        // Copies that are missing, and the job that makes them.
        _ if word.starts_with("degraded") || word.starts_with("copies") => Health::Degraded,
        _ => Health::Good,
    };
    state.split(", ").map(of_word).max().unwrap_or(Health::Good)
}

fn text(lines: &[Line], colours: bool) -> Vec<String> {
    let widest = |of: fn(&Line) -> usize| lines.iter().map(of).max().unwrap_or(0);
    let name = widest(|line| line.name.chars().count());
    let kind = widest(|line| line.kind.len());
    let one = |line: &Line| {
        let size = size::human(line.size);
        let text = format!("{:name$}  {:kind$}  {size:>9}  {}", line.name, line.kind, line.state);
        let colour = match line.health {
            Health::Good => "32",
            Health::Degraded => "33",
            Health::Failed => "31",
        };
        if colours { format!("\x1b[{colour}m{text}\x1b[0m") } else { text }
    };
    lines.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_control::protocol::samples::detail;

    #[test]
    fn a_volume_is_degraded_when_bricks_or_copies_are_missing_and_not_when_stripes_lie_elsewhere() {
        for (state, health) in [
            ("clean", Health::Good),
            ("unbalanced", Health::Good),
            ("read-only, balance (stopped), scrub", Health::Good),
            ("degraded, 1 brick is missing", Health::Degraded),
            ("degraded, 2 bricks are missing, unbalanced", Health::Degraded),
            ("unbalanced, copies are missing", Health::Degraded),
            ("copies", Health::Degraded),
            ("failed, degraded, 1 brick is missing", Health::Failed),
        ] {
            assert_eq!(health_of(state), health, "{state}");
        }
    }

    #[test]
    fn each_array_has_a_line_in_the_colour_of_its_state() {
        let mut lost = detail("b", &["active sync", "faulty"]);
        (lost.degraded, lost.state) = (1, "clean, degraded".to_string());
        let lines = [of_array(&detail("data", &["active sync"; 2])), of_array(&lost)];
        let said = text(&lines, false);
        assert_eq!(
            said,
            [
                "data  raid5      1 GiB  clean",
                "b     raid5      1 GiB  clean, degraded, 1 of 2 in sync"
            ]
        );
        (lost.failed, lost.state) = (true, "clean, FAILED".to_string());
        let said = text(&[of_array(&lost)], false);
        assert_eq!(said, ["b  raid5      1 GiB  clean, FAILED, too many members are lost"]);
        let said = text(&lines, true);
        assert!(
            said[0].starts_with("\x1b[32mdata") && said[1].starts_with("\x1b[33mb"),
            "{said:?}"
        );
    }
}
