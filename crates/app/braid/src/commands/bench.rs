//! `braid bench`: the load generator of `braid-load` behind options.
//!
//! Owns the options and the refusal to overwrite members that hold something.

use crate::cli::{Bench, Seconds, Way};
use crate::discover::look;
use crate::members::parse_one;
use crate::output;
use anyhow::{Result, bail};
use braid_array::options::CreateBitmap;
use braid_device::spec::{MemberSpec, show_size};
use braid_layout::layout_number;
use braid_load::{Beside, Clock, Length, Options, Over, Pattern, Report, run as run_load};
use std::io::IsTerminal;
use std::process::ExitCode;

/// The loads that are run when none is named: large ones in order, small ones anywhere.
const USUAL: [(Pattern, u64); 4] = [
    (Pattern::Read, 1 << 20),
    (Pattern::Write, 1 << 20),
    (Pattern::RandRead, 4096),
    (Pattern::RandWrite, 4096),
];

pub fn run(bench: Bench) -> Result<ExitCode> {
    let members = members(&bench)?;
    if !bench.force {
        refuse_occupied(&members)?;
    }
    let mut reports: Vec<Report> = Vec::new();
    let loads = loads(&bench);
    let all = loads.len();
    for (nr, (pattern, block)) in loads.into_iter().enumerate() {
        if !bench.json && std::io::stderr().is_terminal() {
            let block = show_size(block);
            output::note(format!("measuring {pattern} of {block}, {} of {all}", nr + 1));
        }
        let report = run_load(&options(&bench, members.clone(), pattern, block)?)?;
        if !bench.json {
            output::line(report.to_string())?;
        }
        reports.push(report);
    }
    if bench.json {
        output::json(&reports)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The members: those given, or the one given as often as asked for.
fn members(bench: &Bench) -> Result<Vec<MemberSpec>> {
    let given = bench.members.as_slice();
    match (given, bench.raid_devices) {
        ([only], Some(count)) if count != 1 => {
            if matches!(only, MemberSpec::Path(_)) {
                bail!(
                    "{only} cannot stand for {count} members: give each file or device with --member"
                );
            }
            Ok(vec![only.clone(); count])
        }
        ([only @ (MemberSpec::Ram(_) | MemberSpec::Model(_))], None) => {
            Ok(vec![only.clone(); bench.level.min_slots().max(4)])
        }
        (_, Some(count)) if count != given.len() => {
            bail!("--raid-devices is {count} and {} members were given", given.len())
        }
        _ => Ok(given.to_vec()),
    }
}

fn refuse_occupied(members: &[MemberSpec]) -> Result<()> {
    for member in members {
        let found = look(&parse_one(&member.to_string())?)?;
        if !found.is_free() {
            bail!(
                "the load would overwrite {}: {}; if that is not needed any more: --force",
                found.name,
                found.lines().join("; ")
            );
        }
    }
    Ok(())
}

fn loads(bench: &Bench) -> Vec<(Pattern, u64)> {
    match (bench.pattern.as_slice(), bench.block.as_slice()) {
        ([], []) => USUAL.to_vec(),
        ([], blocks) => each(&[Pattern::Read, Pattern::Write], blocks),
        (patterns, []) => each(patterns, &[64 << 10]),
        (patterns, blocks) => each(patterns, blocks),
    }
}

fn each(patterns: &[Pattern], blocks: &[u64]) -> Vec<(Pattern, u64)> {
    patterns.iter().flat_map(|pattern| blocks.iter().map(move |block| (*pattern, *block))).collect()
}

fn options(
    bench: &Bench,
    members: Vec<MemberSpec>,
    pattern: Pattern,
    block: u64,
) -> Result<Options> {
    let layout =
        bench.layout.as_deref().map(|name| layout_number(bench.level, name)).transpose()?;
    if block > 1 << 30 {
        bail!("a block of {} is more than a request carries; give at most 1G", show_size(block));
    }
    let compared = !bench.alone;
    Ok(Options {
        layout,
        chunk: bench.chunk,
        ppl: bench.ppl,
        bitmap: if bench.bitmap {
            CreateBitmap::Internal { chunk: bench.bitmap_chunk }
        } else {
            CreateBitmap::None
        },
        failed: bench.failed,
        depth: bench.depth,
        shards: bench.shards,
        length: match (bench.bytes, bench.requests) {
            (Some(bytes), _) => Length::Bytes(bytes),
            (None, Some(requests)) => Length::Requests(requests),
            (None, None) => Length::Seconds(bench.seconds),
        },
        // The parser holds it to 1000 at most.
        rounds: bench.rounds as usize,
        seed: bench.seed,
        fua: bench.fua,
        flush_every: bench.flush_every,
        over: match bench.over {
            Way::Engine => Over::Engine,
            Way::Nbd => Over::Nbd,
        },
        clock: match bench.clock {
            Seconds::Auto => Clock::Auto,
            Seconds::Wall => Clock::Wall,
            Seconds::Processor => Clock::Processor,
        },
        latency: bench.latency,
        beside: Beside { raw: compared, bare: compared, device: compared },
        ..Options::new(bench.level, members, pattern, block)
    })
}
