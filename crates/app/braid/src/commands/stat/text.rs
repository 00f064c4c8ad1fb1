//! The tables of `stat`.

use super::layers;
use super::ratio::ratio;
use super::unit::{Unit, decimal};
use crate::output::{size, table, time};
use braid_control::protocol::Stat;

/// All of it since the array was started; with histograms of sizes, if asked for.
pub(super) fn totals(stat: &Stat, sizes: bool) -> String {
    let head = format!("{}, since its start {} ago:", stat.name, time::span(stat.seconds as u64));
    Figures { stat, unit: Unit::All }.text(&head, sizes)
}

/// The rates of an interval.
pub(super) fn rates(stat: &Stat, sizes: bool) -> String {
    let head = format!("{}, per second of {:.1} s:", stat.name, stat.seconds);
    Figures { stat, unit: Unit::Second(stat.seconds) }.text(&head, sizes)
}

struct Figures<'a> {
    stat: &'a Stat,
    unit: Unit,
}

impl Figures<'_> {
    fn text(&self, head: &str, sizes: bool) -> String {
        let mut parts = vec![head.to_string(), self.requests(), self.writes()];
        parts.push(layers::table(self.stat, &self.unit));
        if sizes {
            parts.push(layers::sizes(self.stat, &self.unit));
        }
        parts.join("\n\n")
    }

    fn requests(&self) -> String {
        let counters = &self.stat.counters;
        let mut table = table::table(&["", "Requests", "Bytes", "Bytes each"]);
        for (name, requests, bytes) in [
            ("Reads", counters.reads, counters.read_bytes),
            ("Writes", counters.writes, counters.written_bytes),
        ] {
            let each = bytes.checked_div(requests).map_or_else(String::new, size::human);
            table.add_row([
                name.to_string(),
                self.unit.count(requests),
                self.unit.bytes(bytes),
                each,
            ]);
        }
        table::align_right(&mut table, &[1, 2, 3]);
        table::text(&table)
    }

    /// How writes were carried out, and what reads needed beyond a plain one.
    fn writes(&self) -> String {
        let (counters, cache) = (&self.stat.counters, &self.stat.cache);
        let each = |count| each(count, counters.writes, "a write");
        let wanted = cache.hits.saturating_add(cache.misses);
        let rate = ratio(cache.hits, wanted)
            .map_or_else(String::new, |rate| format!("{:.1} % found", rate * 100.0));
        let held = format!("of {}, {}", cache.capacity, size::human(cache.bytes));
        let mut table = table::table(&["How writes are carried out", "Count", ""]);
        for (name, count, remark) in [
            ("Pieces, one for each stripe", counters.pieces, each(counters.pieces)),
            ("Batches of pieces", counters.batches, batches(self.stat)),
            ("Look-ups of stripes", counters.lookups, each(counters.lookups)),
            ("Full stripes", counters.full_stripes, String::new()),
            ("Read-modify-writes", counters.read_modify_writes, String::new()),
            ("Reconstruct-writes", counters.reconstruct_writes, String::new()),
            ("Reads of members", counters.member_reads, each(counters.member_reads)),
            ("Writes of members", counters.member_writes, each(counters.member_writes)),
            ("Blocks found in the cache", cache.hits, rate),
            ("Blocks not found there", cache.misses, String::new()),
            ("Lines let go", cache.evictions, String::new()),
            ("Reads recovered", counters.recovered_reads, String::new()),
            ("Reads corrected", counters.corrected_reads, String::new()),
        ] {
            table.add_row([name.to_string(), self.unit.count(count), remark]);
        }
        // How things stand is no rate.
        table.add_row(["Lines in the cache".to_string(), cache.lines.to_string(), held]);
        table.add_row(["Shards".to_string(), self.stat.shards.to_string(), String::new()]);
        table::align_right(&mut table, &[1]);
        table::text(&table)
    }
}

fn batches(stat: &Stat) -> String {
    let pieces = ratio(stat.counters.pieces, stat.counters.batches);
    pieces.map_or_else(String::new, |pieces| format!("{} in each", decimal(pieces)))
}

fn each(count: u64, of: u64, what: &str) -> String {
    ratio(count, of).map_or_else(String::new, |each| format!("{} {what}", decimal(each)))
}
