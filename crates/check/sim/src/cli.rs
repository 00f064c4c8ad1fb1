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
/// Of 100 fresh seeds, how many are volumes, and how many of the others stacks.
const VOLUMES: u64 = 15;
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
    /// With --seed: the run is that of a volume of files
    #[arg(long, requires = "seed", conflicts_with = "stacked")]
    volume: bool,
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
        /// Volumes only; otherwise some seeds are volumes
        #[arg(long, conflicts_with = "stacked")]
        volumes: bool,
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
        /// In volumes only
        #[arg(long, conflicts_with = "stacked")]
        volumes: bool,
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
        (Some(seed), _) => {
            let kind = Kind::only(cli.stacked, cli.volume).unwrap_or(Kind::Array);
            one(Seed { seed, kind }, cli.verbose)
        }
        (None, Some(Command::Run { seeds, first, keep_going, stacked, volumes })) => {
            let first = first.unwrap_or_else(fresh);
            println!("first seed {first}");
            let seeds = first..first.saturating_add(seeds);
            let only = Kind::only(stacked, volumes);
            many(&seeds.map(|seed| Seed::fresh(seed, only)).collect::<Vec<_>>(), keep_going)
        }
        (None, Some(Command::Saved)) => many(&saved()?, true),
        (None, Some(Command::Canary { first, stacked, volumes })) => {
            canary(first, Kind::only(stacked, volumes))
        }
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

/// What a run is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Kind {
    /// One array.
    Array,
    /// Arrays of arrays.
    Stack,
    /// A volume of files.
    Volume,
}

impl Kind {
    /// What was asked for, if it was.
    fn only(stacked: bool, volume: bool) -> Option<Kind> {
        match (stacked, volume) {
            (true, _) => Some(Kind::Stack),
            (_, true) => Some(Kind::Volume),
            _ => None,
        }
    }
}

/// What to run: the same seed gives one run of a single array, another of a stack, and a third of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
struct Seed {
    seed: u64,
    kind: Kind,
}

impl Seed {
    /// A seed that nothing has been said about: of the kind `only`, else of one by chance.
    fn fresh(seed: u64, only: Option<Kind>) -> Seed {
        // Streams of their own.
        let kind = only.unwrap_or_else(|| {
            let volume = Rng::new(seed, 8).percent(VOLUMES);
            let stacked = Rng::new(seed, 7).percent(STACKS);
            Kind::only(stacked && !volume, volume).unwrap_or(Kind::Array)
        });
        Seed { seed, kind }
    }

    fn run(self, verbose: bool) -> Report {
        match self.kind {
            Kind::Array => crate::run::run(self.seed, verbose),
            Kind::Stack => crate::stack::run(self.seed, verbose),
            Kind::Volume => crate::volume::run(self.seed, verbose),
        }
    }
}

impl std::fmt::Display for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let option = match self.kind {
            Kind::Array => "",
            Kind::Stack => " --stacked",
            Kind::Volume => " --volume",
        };
        write!(f, "{}{option}", self.seed)
    }
}

fn saved() -> Result<Vec<Seed>> {
    let lines = SAVED.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines
        .map(|line| {
            let of = |word: &str, kind| Some((kind, line.strip_prefix(word)?));
            let (kind, rest) = of("stacked ", Kind::Stack)
                .or_else(|| of("volume ", Kind::Volume))
                .unwrap_or((Kind::Array, line));
            let seed = rest.split_whitespace().next().unwrap_or(rest).parse();
            let seed =
                seed.with_context(|| format!("reading seeds.txt: {line:?} begins with no seed"))?;
            Ok(Seed { seed, kind })
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
    volumes: u64,
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
        self.stacks += u64::from(seed.kind == Kind::Stack);
        self.volumes += u64::from(seed.kind == Kind::Volume);
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

fn canary(first: u64, only: Option<Kind>) -> Result<()> {
    let found: Mutex<Option<(Seed, Report)>> = Mutex::new(None);
    let seeds = first..first.saturating_add(CANARY_SEEDS);
    let seeds: Vec<Seed> = seeds.map(|seed| Seed::fresh(seed, only)).collect();
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

/// The planted bugs, as features of this crate, and in which kind of run they are looked for.
const PLANTS: [(&str, Option<&str>); 9] = [
    ("plant-parity-segment", None),
    ("plant-unrecorded-failure", None),
    ("plant-read-past-recovery", None),
    ("plant-bit-after-data", None),
    ("plant-stale-line", None),
    ("plant-unrecorded-bad-block", None),
    // Only arrays that are members say that they have lost too much.
    ("plant-lost-array", Some("--stacked")),
    ("plant-metadata-before-data", Some("--volumes")),
    ("plant-early-reuse", Some("--volumes")),
];

fn canaries() -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string());
    for (plant, only) in PLANTS {
        println!("{plant}:");
        let status = std::process::Command::new(&cargo)
            .args(["run", "--quiet", "--profile", "checked", "-p", "braid-sim"])
            .args(["--features", plant, "--", "canary"])
            .args(only)
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
