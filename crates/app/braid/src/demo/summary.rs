//! The table at the end: what was done, how fast, and in proportion to the disk below.

use crate::output::{size, table};
use std::time::Duration;

/// See the module's documentation. Rates are in bytes per second.
#[derive(Default)]
pub struct Summary {
    /// The rate of the same files copied straight to the disk below.
    pub raw_write: f64,
    /// The rate of reading them from there.
    pub raw_read: f64,
    /// The rate of writing one file in order, in large requests.
    pub disk_write: f64,
    /// The rate of reading it.
    pub disk_read: f64,
    rows: Vec<Row>,
}

struct Row {
    what: String,
    bytes: u64,
    time: Duration,
    raw: f64,
}

impl Summary {
    /// Adds something that was done; `raw` is the rate to compare it with.
    pub fn row(&mut self, what: &str, bytes: u64, time: Duration, raw: f64) {
        self.rows.push(Row { what: what.to_string(), bytes, time, raw });
    }

    /// The table.
    pub fn text(&self, total: Duration) -> String {
        let mut table = table::table(&["What", "Data", "Time", "Rate", "Disk below", "Ratio"]);
        for row in &self.rows {
            let rate = row.bytes as f64 / row.time.as_secs_f64().max(1e-9);
            table.add_row([
                row.what.clone(),
                size::human(row.bytes),
                format!("{:.1} s", row.time.as_secs_f64()),
                size::rate(rate),
                size::rate(row.raw),
                format!("{:.2}", rate / row.raw.max(1e-9)),
            ]);
        }
        table::align_right(&mut table, &[1, 2, 3, 4, 5]);
        format!(
            "\n{}\n\n  A member was lost and no byte changed; 0 mismatches. All of it took {:.0} s; nothing is left behind.\n  \
             Disk below, in this run: for files, the same ones copied to and read from a folder beside the\n  \
             members; for rebuild and check, one file in order. All members share that one disk: a RAID5 of\n  \
             four writes at least 4/3 of what it is given, and a rebuild reads three members to write one.",
            table::text(&table),
            total.as_secs_f64()
        )
    }
}
