//! `braid iostat`: what arrays and members are asked and how they bear it, in the columns of `iostat -x`
//! (sysstat 12), as a tree. A member's row is of what it was asked after merging; what was merged away is `rrqm`.

use super::layers::{Row, ask, rows};
use crate::cli::Iostat as Options;
use crate::client::Client;
use crate::output;
use anyhow::{Context, Result, anyhow};
use braid_control::protocol::{Flow, Io, MemberIo, Stat};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

pub fn run(options: &Options) -> Result<ExitCode> {
    let reports = options.reports().map_err(|why| anyhow!("iostat: {why}"))?;
    let mut client = Client::connect(&options.control.path())?;
    let mut before = ask(&mut client, reports.array)?;
    let Some(interval) = reports.interval else {
        show(&before, options.json)?;
        return Ok(ExitCode::SUCCESS);
    };
    let interrupted = signals()?;
    let mut there = show(&before, options.json)?;
    let mut shown = 1u64;
    while there && reports.count.is_none_or(|count| shown < count) {
        match interrupted.recv_timeout(interval) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
        // The arrays are the same ones from here on, whatever else is started beside them.
        let now = before.iter().map(|stat| client.stat(Some(&stat.uuid)));
        let now = now.collect::<Result<Vec<_>>>()?;
        let done: Vec<Stat> =
            now.iter().zip(&before).map(|(now, before)| now.since(before)).collect();
        there = show(&done, options.json)?;
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

/// False when the reader went away.
fn show(stats: &[Stat], json: bool) -> Result<bool> {
    if json {
        let seconds = stats.first().map_or(0.0, |stat| stat.seconds);
        let report = Report { seconds, arrays: stats.iter().map(array).collect() };
        return output::line_if_read(serde_json::to_string(&report).context("making JSON")?);
    }
    output::line_if_read(text(stats))
}

/// One report.
#[derive(Serialize)]
struct Report<'a> {
    seconds: f64,
    arrays: Vec<Branch<'a>>,
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

fn array(stat: &Stat) -> Branch<'_> {
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
    let array = member.array.as_deref().map(array);
    Branch {
        name: &member.name,
        level: array.as_ref().and_then(|array| array.level),
        slot: member.slot,
        state: &member.state,
        columns: member.io.as_ref().map(|io| Columns::of(io, seconds)),
        members: array.map_or_else(Vec::new, |array| array.members),
    }
}

/// The columns of one row; `None` where no time is taken. kB are 1024 bytes, times milliseconds.
#[derive(Debug, PartialEq, Serialize)]
struct Columns {
    #[serde(rename = "r/s")]
    r: f64,
    #[serde(rename = "rkB/s")]
    r_kb: f64,
    #[serde(rename = "rrqm/s")]
    r_merged: f64,
    #[serde(rename = "%rrqm")]
    r_merged_percent: f64,
    #[serde(rename = "r_await")]
    r_await: Option<f64>,
    #[serde(rename = "rareq-sz")]
    r_size: f64,
    #[serde(rename = "w/s")]
    w: f64,
    #[serde(rename = "wkB/s")]
    w_kb: f64,
    #[serde(rename = "wrqm/s")]
    w_merged: f64,
    #[serde(rename = "%wrqm")]
    w_merged_percent: f64,
    #[serde(rename = "w_await")]
    w_await: Option<f64>,
    #[serde(rename = "wareq-sz")]
    w_size: f64,
    /// Discards and write-zeroes; in JSON only.
    #[serde(rename = "d/s")]
    d: f64,
    #[serde(rename = "dkB/s")]
    d_kb: f64,
    #[serde(rename = "d_await")]
    d_await: Option<f64>,
    #[serde(rename = "f/s")]
    f: f64,
    #[serde(rename = "f_await")]
    f_await: Option<f64>,
    #[serde(rename = "aqu-sz")]
    queue: Option<f64>,
    #[serde(rename = "%util")]
    util: Option<f64>,
}

impl Columns {
    fn of(io: &Io, seconds: f64) -> Columns {
        let seconds = seconds.max(1e-9);
        let rate = |count: u64| count as f64 / seconds;
        let kib = |bytes: u64| bytes as f64 / 1024.0 / seconds;
        let percent = |flow: &Flow| match flow.requests_in() {
            0 => 0.0,
            all => flow.merged as f64 * 100.0 / all as f64,
        };
        let size = |flow: &Flow| match flow.requests {
            0 => 0.0,
            requests => flow.bytes as f64 / 1024.0 / requests as f64,
        };
        let wait = |flow: &Flow| {
            let mean = flow.latency.as_ref().map_or(0.0, |latency| {
                latency.total_ns as f64 / 1e6 / latency.requests.max(1) as f64
            });
            io.timed.then_some(mean)
        };
        // Shards may be busy at the same time; a device is not more than busy.
        let busy = (io.busy_ns as f64 / 1e7 / seconds).min(100.0);
        Columns {
            r: rate(io.read.requests),
            r_kb: kib(io.read.bytes),
            r_merged: rate(io.read.merged),
            r_merged_percent: percent(&io.read),
            r_await: wait(&io.read),
            r_size: size(&io.read),
            w: rate(io.write.requests),
            w_kb: kib(io.write.bytes),
            w_merged: rate(io.write.merged),
            w_merged_percent: percent(&io.write),
            w_await: wait(&io.write),
            w_size: size(&io.write),
            d: rate(io.discard.requests),
            d_kb: kib(io.discard.bytes),
            d_await: wait(&io.discard),
            f: rate(io.flush.requests),
            f_await: wait(&io.flush),
            queue: io.timed.then(|| io.total_ns() as f64 / 1e9 / seconds),
            util: io.timed.then_some(busy),
        }
    }

    /// In the order of [`HEADS`].
    fn cells(&self) -> [Option<f64>; HEADS.len()] {
        [
            Some(self.r),
            Some(self.r_kb),
            Some(self.r_merged),
            Some(self.r_merged_percent),
            self.r_await,
            Some(self.r_size),
            Some(self.w),
            Some(self.w_kb),
            Some(self.w_merged),
            Some(self.w_merged_percent),
            self.w_await,
            Some(self.w_size),
            Some(self.f),
            self.f_await,
            self.queue,
            self.util,
        ]
    }
}

/// Heads of the columns and their least widths.
const HEADS: [(&str, usize); 16] = [
    ("r/s", 8),
    ("rkB/s", 9),
    ("rrqm/s", 8),
    ("%rrqm", 6),
    ("r_await", 7),
    ("rareq-sz", 8),
    ("w/s", 8),
    ("wkB/s", 9),
    ("wrqm/s", 8),
    ("%wrqm", 6),
    ("w_await", 7),
    ("wareq-sz", 8),
    ("f/s", 8),
    ("f_await", 7),
    ("aqu-sz", 7),
    ("%util", 6),
];

/// One table for all arrays, and an empty line.
fn text(stats: &[Stat]) -> String {
    let all: Vec<(Row<'_>, f64)> = stats
        .iter()
        .flat_map(|stat| rows(stat).into_iter().map(|row| (row, stat.seconds)))
        .collect();
    let widths = all.iter().map(|(row, _)| row.label.chars().count());
    let width = widths.max().unwrap_or(0).max("Device".len());
    let mut text = format!("{:<width$}", "Device");
    for (head, width) in HEADS {
        text.push_str(&format!(" {head:>width$}"));
    }
    text.push('\n');
    for (row, seconds) in all {
        text.push_str(&format!("{:<width$}", row.label));
        let columns = row.what.io().map(|io| Columns::of(io, seconds));
        let cells = columns.map_or([None; HEADS.len()], |columns| columns.cells());
        for ((_, width), cell) in HEADS.iter().zip(cells) {
            match cell {
                Some(cell) => text.push_str(&format!(" {cell:>width$.2}")),
                None => text.push_str(&format!(" {:>width$}", "-")),
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_control::protocol::samples;

    #[test]
    fn columns_are_those_that_a_hand_would_compute() {
        // In 2 s 100 reads of 8 KiB after 300 were merged away, each 5 ms; busy for half a second.
        let read = samples::flow(100, 300, 100 * 8192, 5_000_000);
        let columns = Columns::of(&samples::io(read, Flow::default()), 2.0);
        assert_eq!((columns.r, columns.r_kb, columns.r_merged), (50.0, 400.0, 150.0));
        assert_eq!((columns.r_merged_percent, columns.r_size), (75.0, 8.0));
        assert_eq!((columns.r_await, columns.w_await), (Some(5.0), Some(0.0)));
        assert_eq!((columns.queue, columns.util), (Some(0.25), Some(25.0)));
        let idle = Columns::of(&Io::default(), 0.0);
        assert_eq!((idle.r, idle.r_size, idle.queue), (0.0, 0.0, None));
        let busy = Io { timed: true, busy_ns: 9_000_000_000, ..Io::default() };
        assert_eq!(Columns::of(&busy, 1.0).util, Some(100.0));
    }

    #[test]
    fn rows_stand_below_each_other_as_in_iostat() {
        let text = text(&[samples::stack()]);
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
        let json = serde_json::to_value(array(&stack)).unwrap();
        assert_eq!((&json["name"], &json["r/s"]), (&"top".into(), &64.0.into()));
        let below = &json["members"][0];
        assert_eq!((&below["level"], &below["slot"]), (&"raid1".into(), &0.into()));
        assert_eq!((&below["members"][1]["name"], &below["%rrqm"]), (&"b".into(), &50.0.into()));
        assert_eq!(json["members"][1].get("r/s"), None);
    }
}
