//! The tables of `stat`.

use super::{merged, ratio};
use crate::daemon::protocol::Stat;
use crate::output::{size, table, time};

/// All of it since the array was started.
pub(super) fn totals(stat: &Stat) -> String {
    let head = format!("{}, since its start {} ago:", stat.name, time::span(stat.seconds as u64));
    Figures { stat, seconds: None }.text(&head)
}

/// The rates of an interval.
pub(super) fn rates(stat: &Stat) -> String {
    let head = format!("{}, per second of {:.1} s:", stat.name, stat.seconds);
    Figures { stat, seconds: Some(stat.seconds) }.text(&head)
}

struct Figures<'a> {
    stat: &'a Stat,
    /// Divide by these.
    seconds: Option<f64>,
}

impl Figures<'_> {
    fn text(&self, head: &str) -> String {
        [head.to_string(), self.requests(), self.writes(), self.members()].join("\n\n")
    }

    fn count(&self, count: u64) -> String {
        match self.seconds {
            None => count.to_string(),
            Some(seconds) => decimal(count as f64 / seconds.max(f64::MIN_POSITIVE)),
        }
    }

    fn bytes(&self, bytes: u64) -> String {
        match self.seconds {
            None => size::human(bytes),
            Some(seconds) => size::rate(bytes as f64 / seconds.max(f64::MIN_POSITIVE)),
        }
    }

    fn requests(&self) -> String {
        let counters = &self.stat.counters;
        let mut table = table::table(&["", "Requests", "Bytes", "Bytes each"]);
        for (name, requests, bytes) in [
            ("Reads", counters.reads, counters.read_bytes),
            ("Writes", counters.writes, counters.written_bytes),
        ] {
            let each = bytes.checked_div(requests).map_or_else(String::new, size::human);
            table.add_row([name.to_string(), self.count(requests), self.bytes(bytes), each]);
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
            table.add_row([name.to_string(), self.count(count), remark]);
        }
        // How things stand is no rate.
        table.add_row(["Lines in the cache".to_string(), cache.lines.to_string(), held]);
        table.add_row(["Shards".to_string(), self.stat.shards.to_string(), String::new()]);
        table::align_right(&mut table, &[1]);
        table::text(&table)
    }

    fn members(&self) -> String {
        let heads = ["Slot", "Member", "State", "Requests in", "out", "Merged", "Bytes"];
        let mut table = table::table(&heads);
        for member in &self.stat.members {
            table.add_row([
                member.slot.map_or_else(|| "-".to_string(), |slot| slot.to_string()),
                member.name.clone(),
                member.state.clone(),
                self.count(member.requests_in),
                self.count(member.requests_out),
                times(ratio(member.requests_in, member.requests_out)),
                self.bytes(member.bytes),
            ]);
        }
        if self.stat.members.len() > 1 {
            let blank = String::new;
            let all = times(merged(self.stat));
            table.add_row([blank(), "all".to_string(), blank(), blank(), blank(), all, blank()]);
        }
        table::align_right(&mut table, &[0, 3, 4, 5, 6]);
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

/// `2.5:1`; nothing where nothing came out.
fn times(ratio: Option<f64>) -> String {
    ratio.map_or_else(String::new, |ratio| format!("{}:1", decimal(ratio)))
}

/// Two digits behind the point where they say something.
fn decimal(value: f64) -> String {
    if value >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}
