//! The columns of `iostat -x` (sysstat 12), and the table that they make.

use braid_control::protocol::{Flow, Io};
use serde::Serialize;

/// The columns of one row; `None` where that is not measured. kB are 1024 bytes, times milliseconds.
#[derive(Debug, PartialEq, Serialize)]
pub struct Columns {
    #[serde(rename = "r/s")]
    pub r: f64,
    #[serde(rename = "rkB/s")]
    pub r_kb: f64,
    #[serde(rename = "rrqm/s")]
    pub r_merged: Option<f64>,
    #[serde(rename = "%rrqm")]
    pub r_merged_percent: Option<f64>,
    #[serde(rename = "r_await")]
    pub r_await: Option<f64>,
    #[serde(rename = "rareq-sz")]
    pub r_size: f64,
    #[serde(rename = "w/s")]
    pub w: f64,
    #[serde(rename = "wkB/s")]
    pub w_kb: f64,
    #[serde(rename = "wrqm/s")]
    pub w_merged: Option<f64>,
    #[serde(rename = "%wrqm")]
    pub w_merged_percent: Option<f64>,
    #[serde(rename = "w_await")]
    pub w_await: Option<f64>,
    #[serde(rename = "wareq-sz")]
    pub w_size: f64,
    /// Discards and write-zeroes; in JSON only.
    #[serde(rename = "d/s")]
    pub d: Option<f64>,
    #[serde(rename = "dkB/s")]
    pub d_kb: Option<f64>,
    #[serde(rename = "d_await")]
    pub d_await: Option<f64>,
    #[serde(rename = "f/s")]
    pub f: Option<f64>,
    #[serde(rename = "f_await")]
    pub f_await: Option<f64>,
    #[serde(rename = "aqu-sz")]
    pub queue: Option<f64>,
    #[serde(rename = "%util")]
    pub util: Option<f64>,
}

impl Columns {
    /// Of what was asked in so many seconds.
    pub fn of(io: &Io, seconds: f64) -> Columns {
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
            r_merged: Some(rate(io.read.merged)),
            r_merged_percent: Some(percent(&io.read)),
            r_await: wait(&io.read),
            r_size: size(&io.read),
            w: rate(io.write.requests),
            w_kb: kib(io.write.bytes),
            w_merged: Some(rate(io.write.merged)),
            w_merged_percent: Some(percent(&io.write)),
            w_await: wait(&io.write),
            w_size: size(&io.write),
            d: Some(rate(io.discard.requests)),
            d_kb: Some(kib(io.discard.bytes)),
            d_await: wait(&io.discard),
            f: Some(rate(io.flush.requests)),
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
            self.r_merged,
            self.r_merged_percent,
            self.r_await,
            Some(self.r_size),
            Some(self.w),
            Some(self.w_kb),
            self.w_merged,
            self.w_merged_percent,
            self.w_await,
            Some(self.w_size),
            self.f,
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

/// A row: its name, with the tree's lines before it, and what it says.
pub struct Line {
    /// The name.
    pub label: String,
    /// What it says; `None`: nobody counts it.
    pub columns: Option<Columns>,
}

/// One table for all, and an empty line.
pub fn text(lines: &[Line]) -> String {
    let widths = lines.iter().map(|line| line.label.chars().count());
    let width = widths.max().unwrap_or(0).max("Device".len());
    let mut text = format!("{:<width$}", "Device");
    for (head, width) in HEADS {
        text.push_str(&format!(" {head:>width$}"));
    }
    text.push('\n');
    for Line { label, columns } in lines {
        text.push_str(&format!("{label:<width$}"));
        let cells = columns.as_ref().map_or([None; HEADS.len()], Columns::cells);
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
        assert_eq!((columns.r, columns.r_kb, columns.r_merged), (50.0, 400.0, Some(150.0)));
        assert_eq!((columns.r_merged_percent, columns.r_size), (Some(75.0), 8.0));
        assert_eq!((columns.r_await, columns.w_await), (Some(5.0), Some(0.0)));
        assert_eq!((columns.queue, columns.util), (Some(0.25), Some(25.0)));
        let idle = Columns::of(&Io::default(), 0.0);
        assert_eq!((idle.r, idle.r_size, idle.queue), (0.0, 0.0, None));
        let busy = Io { timed: true, busy_ns: 9_000_000_000, ..Io::default() };
        assert_eq!(Columns::of(&busy, 1.0).util, Some(100.0));
    }
}
