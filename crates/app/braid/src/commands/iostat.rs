//! `braid iostat`: what arrays and members are asked and how they bear it, in the columns of `iostat -x`
//! (sysstat 12), as a tree. A member's row is of what it was asked after merging; what was merged away is `rrqm`. Of volumes and
//! their bricks less is counted: `volumes`.

mod columns;
mod volumes;

use self::columns::{Columns, Line, text};
use self::volumes::Seen;
use super::layers::{ask, rows};
use crate::cli::Iostat as Options;
use crate::client::Client;
use crate::exit::Refused;
use crate::output;
use anyhow::{Context, Result, anyhow};
use braid_control::protocol::{Code, MemberIo, Stat};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

pub fn run(options: &Options) -> Result<ExitCode> {
    let reports = options.reports().map_err(|why| anyhow!("iostat: {why}"))?;
    let mut client = Client::connect(&options.control.path())?;
    let mut before = Report::first(&mut client, reports.name)?;
    let Some(interval) = reports.interval else {
        before.show(options.json)?;
        return Ok(ExitCode::SUCCESS);
    };
    let interrupted = signals()?;
    let mut there = before.show(options.json)?;
    let mut shown = 1u64;
    while there && reports.count.is_none_or(|count| shown < count) {
        match interrupted.recv_timeout(interval) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
        let now = before.again(&mut client)?;
        there = now.since(&before).show(options.json)?;
        before = now;
        shown += 1;
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells when the user has had enough.
fn signals() -> Result<Receiver<()>> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("taking over signals")?;
    let (send, receive) = mpsc::channel();
    std::thread::Builder::new()
        .name("signals".to_string())
        .spawn(move || signals.forever().try_for_each(|_| send.send(())))
        .context("starting the thread that waits for signals")?;
    Ok(receive)
}

/// What all have done, or what they did in an interval.
struct Report {
    arrays: Vec<Stat>,
    volumes: Vec<Seen>,
}

impl Report {
    /// Of the array or the volume of that name; without one, of all arrays that are not below another, and all volumes.
    fn first(client: &mut Client, name: Option<&str>) -> Result<Report> {
        let volumes = match name {
            Some(_) => Vec::new(),
            None => volumes::all(client)?,
        };
        match ask(client, name) {
            Ok(arrays) => Ok(Report { arrays, volumes }),
            Err(error) if is_no_array(&error) => {
                let volumes = match name {
                    Some(name) => volumes::named(client, name).into_iter().collect(),
                    None => volumes,
                };
                // The server said which arrays and volumes there are.
                if volumes.is_empty() {
                    Err(error)
                } else {
                    Ok(Report { arrays: Vec::new(), volumes })
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Of the same ones, whatever else is started beside them.
    fn again(&self, client: &mut Client) -> Result<Report> {
        let arrays = self.arrays.iter().map(|stat| client.stat(Some(&stat.uuid)));
        let arrays = arrays.collect::<Result<_>>()?;
        let volumes = self.volumes.iter().map(|seen| seen.again(client));
        Ok(Report { arrays, volumes: volumes.collect::<Result<_>>()? })
    }

    fn since(&self, before: &Report) -> Report {
        let arrays = self.arrays.iter().zip(&before.arrays).map(|(now, before)| now.since(before));
        let volumes = self.volumes.iter().zip(&before.volumes);
        Report {
            arrays: arrays.collect(),
            volumes: volumes.map(|(now, before)| now.since(before)).collect(),
        }
    }

    /// False when the reader went away.
    fn show(&self, json: bool) -> Result<bool> {
        if json {
            let array = self.arrays.first().map(|stat| stat.seconds);
            let seconds = array.or(self.volumes.first().map(Seen::seconds)).unwrap_or(0.0);
            let arrays = self.arrays.iter().map(array_branch).collect();
            let volumes = self.volumes.iter().map(Seen::branch).collect();
            let report = ReportJson { seconds, arrays, volumes };
            return output::line_if_read(serde_json::to_string(&report).context("making JSON")?);
        }
        let mut lines: Vec<Line> = self.arrays.iter().flat_map(lines_of).collect();
        lines.extend(self.volumes.iter().flat_map(Seen::lines));
        output::line_if_read(text(&lines))
    }
}

fn is_no_array(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|Refused(why)| why.code == Code::NoSuchArray)
}

/// One report.
#[derive(Serialize)]
struct ReportJson<'a> {
    seconds: f64,
    arrays: Vec<Branch<'a>>,
    volumes: Vec<volumes::Branch<'a>>,
}

/// An array or a member, and what is below it.
#[derive(Serialize)]
struct Branch<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slot: Option<usize>,
    state: &'a str,
    #[serde(flatten)]
    columns: Option<Columns>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    members: Vec<Branch<'a>>,
}

fn array_branch(stat: &Stat) -> Branch<'_> {
    Branch {
        name: &stat.name,
        level: Some(&stat.level),
        slot: None,
        state: &stat.state,
        columns: Some(Columns::of(&stat.io, stat.seconds)),
        members: stat.members.iter().map(|below| member(below, stat.seconds)).collect(),
    }
}

fn member(member: &MemberIo, seconds: f64) -> Branch<'_> {
    let array = member.array.as_deref().map(array_branch);
    Branch {
        name: &member.name,
        level: array.as_ref().and_then(|array| array.level),
        slot: member.slot,
        state: &member.state,
        columns: member.io.as_ref().map(|io| Columns::of(io, seconds)),
        members: array.map_or_else(Vec::new, |array| array.members),
    }
}

fn lines_of(stat: &Stat) -> Vec<Line> {
    let line = |row: super::layers::Row<'_>| Line {
        columns: row.what.io().map(|io| Columns::of(io, stat.seconds)),
        label: row.label,
    };
    rows(stat).into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_control::protocol::samples;

    #[test]
    fn rows_stand_below_each_other_as_in_iostat() {
        let text = text(&lines_of(&samples::stack()));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6);
        let width = lines[0].chars().count();
        assert!(lines.iter().all(|line| line.chars().count() == width), "{text}");
        let cells = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<_>>();
        assert_eq!(cells(lines[0])[..4], ["Device", "r/s", "rkB/s", "rrqm/s"]);
        let mirror = cells(lines[2]);
        assert_eq!(mirror[..2], ["├─", "array:m0[0]"]);
        assert_eq!(mirror[3..9], ["16.00", "1024.00", "16.00", "50.00", "1.00", "64.00"]);
        assert!(lines[5].starts_with("└─ ram:1M[1]") && lines[5].ends_with('-'));
    }

    #[test]
    fn the_json_is_a_tree_with_the_same_names() {
        let stack = samples::stack();
        let json = serde_json::to_value(array_branch(&stack)).unwrap();
        assert_eq!((&json["name"], &json["r/s"]), (&"top".into(), &64.0.into()));
        let below = &json["members"][0];
        assert_eq!((&below["level"], &below["slot"]), (&"raid1".into(), &0.into()));
        assert_eq!((&below["members"][1]["name"], &below["%rrqm"]), (&"b".into(), &50.0.into()));
        assert_eq!(json["members"][1].get("r/s"), None);
    }
}
