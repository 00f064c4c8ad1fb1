//! `braid stat`: what a running array has done, and how; in all, or in each interval.

mod layers;
mod ratio;
mod text;
mod unit;

use self::ratio::ratio;
use crate::cli::Stat as Options;
use crate::client::Client;
use crate::commands::layers::ask;
use crate::output;
use anyhow::Result;
use braid_control::protocol::{MemberIo, Stat};
use serde::Serialize;
use std::process::ExitCode;

pub fn run(options: &Options) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    let mut before = ask(&mut client, options.name.as_deref())?;
    let Some(interval) = options.interval else {
        show_totals(&before, options)?;
        return Ok(ExitCode::SUCCESS);
    };
    for round in 1u64.. {
        std::thread::sleep(interval);
        // The arrays are the same ones from here on, whatever else is started beside them.
        let now = before.iter().map(|stat| client.stat(Some(&stat.uuid)));
        let now = now.collect::<Result<Vec<_>>>()?;
        let mut there = true;
        for (now, before) in now.iter().zip(&before) {
            let done = now.since(before);
            let line = match options.json {
                true => serde_json::to_string(&Report::of(&done))?,
                false => text::rates(&done, options.sizes) + "\n",
            };
            there = there && output::line_if_read(line)?;
        }
        before = now;
        if !there || options.count.is_some_and(|count| round >= count) {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show_totals(stats: &[Stat], options: &Options) -> Result<()> {
    if options.json {
        let reports: Vec<_> = stats.iter().map(Report::of).collect();
        return match reports.as_slice() {
            [only] => output::json(only),
            all => output::json(&all),
        };
    }
    let text: Vec<_> = stats.iter().map(|stat| text::totals(stat, options.sizes)).collect();
    output::line(text.join("\n\n"))
}

/// The figures, and what follows from them; `None` where nothing was counted that it could follow from.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    stat: &'a Stat,
    pieces_per_batch: Option<f64>,
    lookups_per_write: Option<f64>,
    member_reads_per_write: Option<f64>,
    member_writes_per_write: Option<f64>,
    cache_hit_rate: Option<f64>,
    reads_avoided: u64,
    merge_ratio: Option<f64>,
    per_second: PerSecond,
}

#[derive(Serialize)]
struct PerSecond {
    reads: Option<f64>,
    read_bytes: Option<f64>,
    writes: Option<f64>,
    written_bytes: Option<f64>,
}

impl Report<'_> {
    fn of(stat: &Stat) -> Report<'_> {
        let (counters, cache) = (&stat.counters, &stat.cache);
        let per_second = |count: u64| (stat.seconds > 0.0).then(|| count as f64 / stat.seconds);
        Report {
            pieces_per_batch: ratio(counters.pieces, counters.batches),
            lookups_per_write: ratio(counters.lookups, counters.writes),
            member_reads_per_write: ratio(counters.member_reads, counters.writes),
            member_writes_per_write: ratio(counters.member_writes, counters.writes),
            cache_hit_rate: ratio(cache.hits, cache.hits.saturating_add(cache.misses)),
            reads_avoided: cache.hits,
            merge_ratio: merged(stat),
            per_second: PerSecond {
                reads: per_second(counters.reads),
                read_bytes: per_second(counters.read_bytes),
                writes: per_second(counters.writes),
                written_bytes: per_second(counters.written_bytes),
            },
            stat,
        }
    }
}

/// Requests to members for each that was left after merging.
fn merged(stat: &Stat) -> Option<f64> {
    let sum = |of: fn(&MemberIo) -> u64| stat.members.iter().map(of).fold(0, u64::saturating_add);
    ratio(sum(|member| member.requests_in), sum(|member| member.requests_out))
}
