//! The command line: which seeds to run, and what is printed of them.

use crate::rng::mix;
use crate::run::{Report, Verdict, run};
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

/// The deterministic simulator: the RAID engine on simulated members, all choices from one seed.
#[derive(Parser)]
#[command(name = "braid-sim", version, about)]
pub struct Cli {
    /// Run this seed alone
    #[arg(long)]
    seed: Option<u64>,
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
    },
    /// Run the seeds that failed once (seeds.txt)
    Saved,
    /// Say how many seeds it takes to find the bug that was planted into this build
    Canary {
        /// The first seed
        #[arg(long, default_value_t = 1)]
        first: u64,
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
        (Some(seed), _) => one(seed, cli.verbose),
        (None, Some(Command::Run { seeds, first, keep_going })) => {
            let first = first.unwrap_or_else(fresh);
            println!("first seed {first}");
            many(&(first..first.saturating_add(seeds)).collect::<Vec<_>>(), keep_going)
        }
        (None, Some(Command::Saved)) => many(&saved()?, true),
        (None, Some(Command::Canary { first })) => canary(first),
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

fn saved() -> Result<Vec<u64>> {
    let lines = SAVED.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines
        .map(|line| {
            let seed = line.split_whitespace().next().unwrap_or(line);
            seed.parse().with_context(|| format!("reading seeds.txt: {line:?} begins with no seed"))
        })
        .collect()
}

fn print_failure(seed: u64, report: &Report) {
    let Verdict::Failed(failure) = &report.verdict else { return };
    println!("seed {seed} FAILED: {}", failure.checker);
    println!("  {}", failure.text);
    println!("  {}", report.scenario);
    println!("  replay: cargo run --profile checked -p braid-sim -- --seed {seed} --verbose");
}

fn one(seed: u64, verbose: bool) -> Result<()> {
    let report = run(seed, verbose);
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
    failed: Vec<u64>,
    requests: u64,
    crashes: u64,
    faults: u64,
    re_added: u64,
    bitmap_changes: u64,
    liars: u64,
    liars_seen: u64,
}

impl Totals {
    fn add(&mut self, seed: u64, report: &Report) {
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

fn many(seeds: &[u64], keep_going: bool) -> Result<()> {
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
    println!("{ran} seeds in {seconds:.1} s: {:.1} seeds/s", ran as f64 / seconds.max(1e-9));
    println!("{} passed, {} failed", totals.passed, totals.failed.len());
    if totals.failed.is_empty() { Ok(()) } else { bail!("failed: {:?}", totals.failed) }
}

/// Runs `seeds` side by side; `done` gets each report and says whether to go on.
fn each(seeds: &[u64], done: impl Fn(u64, &Report) -> bool + Sync) {
    let (next, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed) as usize;
                    let Some(seed) = seeds.get(at) else { return };
                    if !done(*seed, &run(*seed, false)) {
                        enough.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

fn canary(first: u64) -> Result<()> {
    let found: Mutex<Option<(u64, Report)>> = Mutex::new(None);
    let seeds: Vec<u64> = (first..first.saturating_add(CANARY_SEEDS)).collect();
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
            println!("found after {} seeds by {}", seed - first + 1, failure.checker);
            println!("  {}", failure.text);
            Ok(())
        }
        None => bail!("not found within {CANARY_SEEDS} seeds"),
    }
}

/// The planted bugs, as features of this crate.
const PLANTS: [&str; 6] = [
    "plant-parity-segment",
    "plant-unrecorded-failure",
    "plant-read-past-recovery",
    "plant-bit-after-data",
    "plant-stale-line",
    "plant-unrecorded-bad-block",
];

fn canaries() -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string());
    for plant in PLANTS {
        println!("{plant}:");
        let status = std::process::Command::new(&cargo)
            .args(["run", "--quiet", "--profile", "checked", "-p", "braid-sim"])
            .args(["--features", plant, "--", "canary"])
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
