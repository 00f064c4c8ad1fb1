//! The command line: which seeds to run, and what is printed of them.

use crate::exhaust::{self, Point, Protection};
use crate::seeds::{Kind, Seed, each, fresh_number, journaled, saved, side_by_side};
use crate::verdict::{Counts, Report, Verdict};
use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

/// The deterministic simulator: the RAID engine on simulated members, all choices from one seed.
#[derive(Parser)]
#[command(name = "braid-sim", version, about)]
pub struct Cli {
    /// Run this seed alone
    #[arg(long)]
    seed: Option<u64>,
    /// With --seed: the run is that of a stack, arrays of arrays; seeds are drawn anew for those
    #[arg(long, requires = "seed")]
    stacked: bool,
    /// With --seed: the run is that of a volume of files
    #[arg(long, requires = "seed", conflicts_with = "stacked")]
    volume: bool,
    /// With --seed: the run is that of a volume of files of which the calls that came last are made, too
    #[arg(long, requires = "seed", conflicts_with_all = ["stacked", "volume"])]
    calls: bool,
    /// With --seed: the run is that of a volume of files that have copies
    #[arg(long, requires = "seed", conflicts_with_all = ["stacked", "volume", "calls"])]
    copies: bool,
    /// With --seed: the run is that of a volume of files of which snapshots are taken
    #[arg(long, requires = "seed", conflicts_with_all = ["stacked", "volume", "calls", "copies"])]
    snapshots: bool,
    /// With --seed: the run is that of a volume of files of which ranges are copied to others
    #[arg(long, requires = "seed", conflicts_with_all = ["stacked", "volume", "calls", "copies", "snapshots"])]
    common: bool,
    /// With --seed: the run is that of an array that gets other levels and shapes
    #[arg(long, requires = "seed", conflicts_with_all = ["stacked", "volume"])]
    levels: bool,
    /// With --seed: the run is that of an array that grows
    #[arg(long, requires = "seed", conflicts_with_all = ["stacked", "volume", "levels"])]
    growing: bool,
    /// With --seed: every power cut of a short history
    #[arg(long, requires = "seed", conflicts_with_all = ["stacked", "volume", "levels", "growing"])]
    short: bool,
    /// With --seed: an array or a stack has no mishaps and to a volume nothing is done on purpose, as in runs from before
    /// there was any of that
    #[arg(long, requires = "seed")]
    plain: bool,
    /// With --seed: print every request, completion, fault and command
    #[arg(long, requires = "seed")]
    verbose: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run fresh seeds; print the first that fails, and how to replay it
    Run {
        /// How many
        #[arg(long, default_value_t = 500)]
        seeds: u64,
        /// The first; from the clock when it is left out
        #[arg(long)]
        first: Option<u64>,
        /// Go on after a failure, and list all
        #[arg(long)]
        keep_going: bool,
        /// Run single arrays; without any of these options seeds are of all kinds
        #[arg(long)]
        arrays: bool,
        /// Run stacks: arrays of arrays
        #[arg(long, alias = "stacked")]
        stacks: bool,
        /// Run volumes of files
        #[arg(long, alias = "volume")]
        volumes: bool,
        /// Run volumes of files, of each of which the calls that came last are made, too
        #[arg(long)]
        calls: bool,
        /// Run volumes of files that have copies
        #[arg(long)]
        copies: bool,
        /// Run volumes of files of which snapshots are taken
        #[arg(long)]
        snapshots: bool,
        /// Run volumes of files of which ranges are copied to others
        #[arg(long)]
        common: bool,
        /// Run single arrays that get other levels and shapes, and meet little else.
        #[arg(long)]
        levels: bool,
        /// Run single arrays that grow, and meet little else.
        #[arg(long)]
        growing: bool,
        /// Run single arrays that have a write journal
        #[arg(long = "journaled", conflicts_with_all = ["arrays", "stacks", "volumes", "calls", "copies", "snapshots", "common", "levels", "growing"])]
        with_journal: bool,
    },
    /// Run the seeds that failed once (seeds.txt)
    Saved,
    /// Cut the power at every write of short histories, until there were so many cuts
    Exhaust {
        /// Power cuts
        #[arg(long, default_value_t = 20_000, value_name = "N")]
        points: u64,
        /// The number of the first history
        #[arg(long, default_value_t = 0)]
        first: u64,
        /// Histories of this kind alone
        #[arg(long, value_enum)]
        only: Option<Protection>,
        /// Write the table there, in Markdown
        #[arg(long, value_name = "FILE")]
        write: Option<PathBuf>,
        /// Carry out this cut of history --first alone: after so many changes
        #[arg(long, requires = "only", value_name = "CHANGES")]
        cut: Option<u64>,
        /// With --cut: what gets through of that which is under way
        #[arg(long, requires = "cut", default_value_t = 0, value_name = "NUMBER")]
        way: u64,
        /// With --cut: cut the start after that, too
        #[arg(long, requires = "cut", value_name = "CHANGES")]
        cut_again: Option<u64>,
        /// With --cut: the member of this slot is missing afterwards
        #[arg(long, requires = "cut", value_name = "SLOT")]
        lost: Option<usize>,
        /// With --cut: print every request, completion and command
        #[arg(long, requires = "cut")]
        verbose: bool,
    },
    /// Plant each bug of the table in the engine and say how many seeds it takes to find it (a build with `--features
    /// plants`)
    Canaries {
        /// Plant this bug alone
        #[arg(long, value_name = "NAME")]
        only: Option<String>,
        /// The first seed
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// Write what is found to the table there, in Markdown, which keeps its other rows
        #[arg(long, value_name = "FILE")]
        write: Option<PathBuf>,
    },
}

/// Does what was asked.
///
/// # Errors
/// When a seed fails, or a planted bug is not found.
pub fn main(cli: Cli) -> Result<()> {
    match (cli.seed, cli.command) {
        (Some(seed), _) => {
            let asked = [
                (cli.stacked, Kind::Stack),
                (cli.volume, Kind::Volume),
                (cli.calls, Kind::Calls),
                (cli.copies, Kind::Copies),
                (cli.snapshots, Kind::Snapshots),
                (cli.common, Kind::Common),
                (cli.short, Kind::Short),
                (cli.levels, Kind::Levels),
                (cli.growing, Kind::Growing),
            ];
            let kind = asked.into_iter().find(|(asked, _)| *asked);
            let kind = kind.map_or(Kind::Array, |(_, kind)| kind);
            one(Seed { seed, kind, plain: cli.plain }, cli.verbose)
        }
        (
            None,
            Some(Command::Run {
                seeds,
                first,
                keep_going,
                arrays,
                stacks,
                volumes,
                calls,
                copies,
                snapshots,
                common,
                levels,
                growing,
                with_journal,
            }),
        ) => {
            let first = first.unwrap_or_else(fresh_number);
            println!("first seed {first}");
            if with_journal {
                return many(&journaled(first, seeds), keep_going);
            }
            let seeds = first..first.saturating_add(seeds);
            let asked = [
                (arrays, Kind::Array),
                (stacks, Kind::Stack),
                (volumes, Kind::Volume),
                (volumes || calls, Kind::Calls),
                (volumes || copies, Kind::Copies),
                (volumes || snapshots, Kind::Snapshots),
                (volumes || common, Kind::Common),
                (levels, Kind::Levels),
                (growing, Kind::Growing),
            ];
            let kinds: Vec<Kind> =
                asked.into_iter().filter(|(asked, _)| *asked).map(|(_, kind)| kind).collect();
            many(&seeds.map(|seed| Seed::fresh(seed, &kinds)).collect::<Vec<_>>(), keep_going)
        }
        (None, Some(Command::Saved)) => many(&saved()?, true),
        (
            None,
            Some(Command::Exhaust {
                first,
                only,
                cut: Some(cut),
                way,
                cut_again,
                lost,
                verbose,
                ..
            }),
        ) => {
            let protection = only.unwrap_or(Protection::Resync);
            exhaust::one(Point { protection, history: first, cut, way, cut_again, lost }, verbose)
        }
        (None, Some(Command::Exhaust { points, first, only, write, .. })) => {
            let kinds = only.map_or(Protection::ALL.to_vec(), |only| vec![only]);
            exhaust::exhaust(&kinds, (first, points), side_by_side(), write.as_deref())
        }
        (None, Some(Command::Canaries { only, first, write })) => {
            crate::canaries::canaries(only.as_deref(), first, write.as_deref())
        }
        (None, None) => {
            bail!("what shall be run? see --help: a seed (--seed N), or `run --seeds N`")
        }
    }
}

fn print_failure(seed: Seed, report: &Report) {
    let Verdict::Failed(failure) = &report.verdict else { return };
    println!("seed {seed} FAILED: {}", failure.checker);
    println!("  {}", failure.text);
    println!("  {}", report.scenario);
    println!("  replay: cargo run --profile checked -p braid-sim -- --seed {seed} --verbose");
}

fn one(seed: Seed, verbose: bool) -> Result<()> {
    let report = seed.run(verbose);
    match &report.verdict {
        Verdict::Passed => println!(
            "seed {seed} passed: {} requests, {} crashes, {} faults; {}",
            report.did.requests, report.did.crashes, report.did.faults, report.scenario
        ),
        Verdict::Outside(failure) => println!(
            "seed {seed}: outside of every promise, since a member lied about flushes; seen by {}: {}",
            failure.checker, failure.text
        ),
        Verdict::Failed(_) => {
            print_failure(seed, &report);
            bail!("seed {seed} failed");
        }
    }
    Ok(())
}

#[derive(Default)]
struct Totals {
    passed: u64,
    failed: Vec<Seed>,
    stacks: u64,
    volumes: u64,
    did: Counts,
    liars: u64,
    liars_seen: u64,
}

impl Totals {
    fn add(&mut self, seed: Seed, report: &Report) {
        self.stacks += u64::from(seed.kind == Kind::Stack);
        self.volumes += u64::from(matches!(
            seed.kind,
            Kind::Volume | Kind::Calls | Kind::Copies | Kind::Snapshots
        ));
        self.did.add(&report.did);
        self.liars += u64::from(report.lies);
        match report.verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Outside(_) => {
                self.passed += 1;
                self.liars_seen += 1;
            }
            Verdict::Failed(_) => self.failed.push(seed),
        }
    }
}

fn many(seeds: &[Seed], keep_going: bool) -> Result<()> {
    let start = Instant::now();
    let totals = Mutex::new(Totals::default());
    each(
        seeds,
        || (),
        |seed, report| {
            let mut totals = totals.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            print_failure(seed, report);
            totals.add(seed, report);
            keep_going || totals.failed.is_empty()
        },
    );
    let totals = totals.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} requests, {} crashes, {} faults, {} members re-added, {} to be replaced, {} bitmaps added or removed, {} arrays given another shape, {} another level, {} components made larger; {} runs with a member that lied about flushes: the loss was seen in {}",
        totals.did.requests,
        totals.did.crashes,
        totals.did.faults,
        totals.did.re_added,
        totals.did.replacements,
        totals.did.bitmap_changes,
        totals.did.reshapes,
        totals.did.level_changes,
        totals.did.resizes,
        totals.liars,
        totals.liars_seen
    );
    let ran = totals.passed + totals.failed.len() as u64;
    println!(
        "{ran} seeds ({} of them stacks, {} volumes) in {seconds:.1} s: {:.1} seeds/s",
        totals.stacks,
        totals.volumes,
        ran as f64 / seconds.max(1e-9)
    );
    println!("{} passed, {} failed", totals.passed, totals.failed.len());
    if totals.failed.is_empty() {
        Ok(())
    } else {
        let failed: Vec<String> = totals.failed.iter().map(Seed::to_string).collect();
        bail!("failed: {}", failed.join(", "))
    }
}
