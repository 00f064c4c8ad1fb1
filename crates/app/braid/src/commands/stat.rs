//! `braid stat`: what a running array has done, and how; in all, or in each interval.

mod text;

use crate::cli::Stat as Options;
use crate::client::Client;
use crate::daemon::protocol::{Cache, Counters, MemberIo, Stat};
use crate::output;
use anyhow::Result;
use serde::Serialize;
use std::process::ExitCode;

pub fn run(options: &Options) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control)?;
    let mut before = client.stat(options.name.as_deref())?;
    let Some(interval) = options.interval else {
        if options.json {
            output::json(&Report::of(&before))?;
        } else {
            output::line(text::totals(&before))?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    // The array is the same one from here on, whatever else is started beside it.
    let uuid = before.uuid.clone();
    for round in 1u64.. {
        std::thread::sleep(interval);
        let now = client.stat(Some(&uuid))?;
        let done = since(&now, &before);
        before = now;
        let line = match options.json {
            true => serde_json::to_string(&Report::of(&done))?,
            false => text::rates(&done) + "\n",
        };
        let wanted = options.count.is_none_or(|count| round < count);
        if !output::line_if_read(line)? || !wanted {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What was done between two moments. What only says how things stand is as it was at the later one.
fn since(now: &Stat, before: &Stat) -> Stat {
    let (a, b) = (&now.counters, &before.counters);
    let counters = Counters {
        reads: a.reads.saturating_sub(b.reads),
        read_bytes: a.read_bytes.saturating_sub(b.read_bytes),
        writes: a.writes.saturating_sub(b.writes),
        written_bytes: a.written_bytes.saturating_sub(b.written_bytes),
        pieces: a.pieces.saturating_sub(b.pieces),
        batches: a.batches.saturating_sub(b.batches),
        lookups: a.lookups.saturating_sub(b.lookups),
        member_reads: a.member_reads.saturating_sub(b.member_reads),
        member_writes: a.member_writes.saturating_sub(b.member_writes),
        full_stripes: a.full_stripes.saturating_sub(b.full_stripes),
        read_modify_writes: a.read_modify_writes.saturating_sub(b.read_modify_writes),
        reconstruct_writes: a.reconstruct_writes.saturating_sub(b.reconstruct_writes),
        recovered_reads: a.recovered_reads.saturating_sub(b.recovered_reads),
        corrected_reads: a.corrected_reads.saturating_sub(b.corrected_reads),
    };
    let cache = Cache {
        hits: now.cache.hits.saturating_sub(before.cache.hits),
        misses: now.cache.misses.saturating_sub(before.cache.misses),
        evictions: now.cache.evictions.saturating_sub(before.cache.evictions),
        ..now.cache
    };
    let member = |member: &MemberIo| {
        let mut member = member.clone();
        // A member that is new since then has done all of it in between.
        if let Some(old) = before.members.iter().find(|old| old.number == member.number) {
            member.requests_in = member.requests_in.saturating_sub(old.requests_in);
            member.requests_out = member.requests_out.saturating_sub(old.requests_out);
            member.bytes = member.bytes.saturating_sub(old.bytes);
        }
        member
    };
    Stat {
        seconds: (now.seconds - before.seconds).max(0.0),
        counters,
        cache,
        members: now.members.iter().map(member).collect(),
        ..now.clone()
    }
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

/// Requests that went into the plugs for each that came out, over all members.
fn merged(stat: &Stat) -> Option<f64> {
    let sum = |of: fn(&MemberIo) -> u64| stat.members.iter().map(of).fold(0, u64::saturating_add);
    ratio(sum(|member| member.requests_in), sum(|member| member.requests_out))
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
