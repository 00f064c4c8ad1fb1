//! The command line: which seeds to run, and what is printed of them.

use crate::rng::Rng;
use crate::rng::mix;
use crate::run::{Report, Verdict};
use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Seeds that failed once, with what each of them found.
const SAVED: &str = include_str!("../seeds.txt");
/// Runs that go on side by side.
const THREADS: u64 = 2;
/// Seeds within which every planted bug must be found.
const CANARY_SEEDS: u64 = 1000;
/// Of 100 fresh seeds, how many are stacks.
const STACKS: u64 = 15;

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
        /// Stacks only; otherwise some seeds are stacks
        #[arg(long)]
        stacked: bool,
    },
    /// Run the seeds that failed once (seeds.txt)
    Saved,
    /// Say how many seeds it takes to find the bug that was planted into this build
    Canary {
        /// The first seed
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// In stacks only
        #[arg(long)]
        stacked: bool,
    },
    /// Build with each planted bug in turn and say how many seeds it takes to find it
    Canaries,
}

/// Does what was asked.
///
/// # Errors
/// When a seed fails, or a planted bug is not found.
pub fn main(cli: Cli) -> Result<()> {
    match (cli.seed, cli.command) {
        (Some(seed), _) => one(Seed { seed, stacked: cli.stacked }, cli.verbose),
        (None, Some(Command::Run { seeds, first, keep_going, stacked })) => {
            let first = first.unwrap_or_else(fresh);
            println!("first seed {first}");
            let seeds = first..first.saturating_add(seeds);
            many(&seeds.map(|seed| Seed::fresh(seed, stacked)).collect::<Vec<_>>(), keep_going)
        }
        (None, Some(Command::Saved)) => many(&saved()?, true),
        (None, Some(Command::Canary { first, stacked })) => canary(first, stacked),
        (None, Some(Command::Canaries)) => canaries(),
        (None, None) => {
            bail!("what shall be run? see --help: a seed (--seed N), or `run --seeds N`")
        }
    }
}

/// A seed that was probably never run: short enough to be read out.
fn fresh() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    mix(since as u64 ^ u64::from(std::process::id()) << 48) % 1_000_000_000_000
}

/// What to run: the same seed gives one run of a single array and another of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
struct Seed {
    seed: u64,
    stacked: bool,
}

impl Seed {
    /// A seed that nothing has been said about: a stack with `stacked`, else by chance.
    fn fresh(seed: u64, stacked: bool) -> Seed {
        // A stream of its own.
        let stacked = stacked || Rng::new(seed, 7).percent(STACKS);
        Seed { seed, stacked }
    }

    fn run(self, verbose: bool) -> Report {
        match self.stacked {
            true => crate::stack::run(self.seed, verbose),
            false => crate::run::run(self.seed, verbose),
        }
    }
}

impl std::fmt::Display for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.seed, if self.stacked { " --stacked" } else { "" })
    }
}

fn saved() -> Result<Vec<Seed>> {
    let lines = SAVED.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines
        .map(|line| {
            let (stacked, rest) = match line.strip_prefix("stacked ") {
                Some(rest) => (true, rest),
                None => (false, line),
            };
            let seed = rest.split_whitespace().next().unwrap_or(rest).parse();
            let seed =
                seed.with_context(|| format!("reading seeds.txt: {line:?} begins with no seed"))?;
            Ok(Seed { seed, stacked })
        })
        .collect()
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
            report.requests, report.crashes, report.faults, report.scenario
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
    requests: u64,
    crashes: u64,
    faults: u64,
    re_added: u64,
    bitmap_changes: u64,
    liars: u64,
    liars_seen: u64,
}

impl Totals {
    fn add(&mut self, seed: Seed, report: &Report) {
        self.stacks += u64::from(seed.stacked);
        self.requests += report.requests;
        self.crashes += report.crashes;
        self.faults += report.faults;
        self.re_added += report.re_added;
        self.bitmap_changes += report.bitmap_changes;
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
    each(seeds, |seed, report| {
        let mut totals = totals.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        print_failure(seed, report);
        totals.add(seed, report);
        keep_going || totals.failed.is_empty()
    });
    let totals = totals.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} requests, {} crashes, {} faults, {} members re-added, {} bitmaps added or removed; {} runs with a member that lied about flushes: the loss was seen in {}",
        totals.requests,
        totals.crashes,
        totals.faults,
        totals.re_added,
        totals.bitmap_changes,
        totals.liars,
        totals.liars_seen
    );
    let ran = totals.passed + totals.failed.len() as u64;
    println!(
        "{ran} seeds ({} of them stacks) in {seconds:.1} s: {:.1} seeds/s",
        totals.stacks,
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

/// Runs `seeds` side by side; `done` gets each report and says whether to go on.
fn each(seeds: &[Seed], done: impl Fn(Seed, &Report) -> bool + Sync) {
    let (next, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed) as usize;
                    let Some(seed) = seeds.get(at) else { return };
                    if !done(*seed, &seed.run(false)) {
                        enough.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

fn canary(first: u64, stacked: bool) -> Result<()> {
    let found: Mutex<Option<(Seed, Report)>> = Mutex::new(None);
    let seeds = first..first.saturating_add(CANARY_SEEDS);
    let seeds: Vec<Seed> = seeds.map(|seed| Seed::fresh(seed, stacked)).collect();
    each(&seeds, |seed, report| {
        let mut found = found.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if matches!(report.verdict, Verdict::Failed(_))
            && found.as_ref().is_none_or(|(known, _)| seed < *known)
        {
            *found = Some((seed, report.clone()));
        }
        found.is_none()
    });
    match found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        Some((seed, report)) => {
            let Verdict::Failed(failure) = report.verdict else { return Ok(()) };
            println!("found after {} seeds by {}", seed.seed - first + 1, failure.checker);
            println!("  {}", failure.text);
            Ok(())
        }
        None => bail!("not found within {CANARY_SEEDS} seeds"),
    }
}

/// The planted bugs, as features of this crate.
const PLANTS: [&str; 7] = [
    "plant-parity-segment",
    "plant-unrecorded-failure",
    "plant-read-past-recovery",
    "plant-bit-after-data",
    "plant-stale-line",
    "plant-unrecorded-bad-block",
    "plant-lost-array",
];

fn canaries() -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string());
    for plant in PLANTS {
        println!("{plant}:");
        let status = std::process::Command::new(&cargo)
            .args(["run", "--quiet", "--profile", "checked", "-p", "braid-sim"])
            .args(["--features", plant, "--", "canary"])
            // Only arrays that are members say that they have lost too much.
            .args((plant == "plant-lost-array").then_some("--stacked"))
            .status()
            .with_context(|| format!("running {cargo} for {plant}; is cargo in the PATH?"))?;
        if !status.success() {
            bail!("{plant} was not found: the simulator has become blind to it");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_saved_seed_is_a_number() {
        assert!(!saved().unwrap().is_empty());
    }
}
