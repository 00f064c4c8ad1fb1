//! Seeds: which kind of run each one is, and how a run of it is carried out.

use crate::rng::{Rng, mix};
use crate::run::plan::Plan;
use crate::scenario::Scenario;
use crate::verdict::{Counts, Report, Verdict};
use crate::volume::Scope;
use crate::world::Failure;
use anyhow::{Context, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Seeds that failed once, with what each of them found.
const SAVED: &str = include_str!("../seeds.txt");
/// Of 100 fresh seeds, how many are volumes, and how many of the others stacks.
const VOLUMES: u64 = 15;
const STACKS: u64 = 15;
/// Of 100 volumes, how many draw all calls.
const CALLS: u64 = 60;
/// Of 100 volumes, in how many snapshots are taken.
const SNAPSHOTS: u64 = 20;
/// Of 100 of these, in how many ranges of files are copied to others, too.
const COMMON: u64 = 50;
/// Of 100 volumes, in how many files have copies.
const COPIES: u64 = 30;
/// Of 100 single arrays, how many are about other levels and shapes.
const LEVELS: u64 = 10;
/// Of 100 that are left, how many are about arrays that grow.
const GROWING: u64 = 5;

/// What a run is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One array.
    Array,
    /// Arrays of arrays.
    Stack,
    /// A volume of files.
    Volume,
    /// A volume of files of which the calls that came last are made, too (`crate::volume`).
    Calls,
    /// The same of files that have copies.
    Copies,
    /// The same of files of which snapshots are taken.
    Snapshots,
    /// The same where ranges of files are copied to others, which may have extents in common then.
    Common,
    /// One array that gets other levels and shapes, and meets little else.
    Levels,
    /// One array that grows, and meets little else.
    Growing,
    /// One array with a write journal: the runs of single arrays that draw one.
    Journaled,
    /// One array in a short history, with every power cut that there can be (`crate::exhaust`).
    Short,
}

impl Kind {
    /// How tables name runs of it.
    pub fn plural(self) -> &'static str {
        match self {
            Kind::Array => "arrays",
            Kind::Stack => "stacks",
            Kind::Volume => "volumes",
            Kind::Calls => "volumes with all calls",
            Kind::Copies => "volumes with copies",
            Kind::Snapshots => "volumes with snapshots",
            Kind::Common => "volumes with common extents",
            Kind::Levels => "changes of the level",
            Kind::Growing => "growing arrays",
            Kind::Journaled => "arrays with a journal",
            Kind::Short => "short histories",
        }
    }
}

/// What to run: the same number gives one run of a single array, another of a stack, a third of a volume, and many of a
/// short history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub struct Seed {
    /// The number.
    pub seed: u64,
    /// What the run is of.
    pub kind: Kind,
    /// The run of an array or a stack is without mishaps, and that of a volume does nothing on purpose: as all were before.
    pub plain: bool,
}

impl Seed {
    /// A seed that nothing has been said about: of the only kind of `kinds`, or of one of them by chance.
    pub fn fresh(seed: u64, kinds: &[Kind]) -> Seed {
        // Streams of their own.
        let drawn = if Rng::new(seed, 8).percent(VOLUMES) {
            Kind::Volume
        } else if Rng::new(seed, 7).percent(STACKS) {
            Kind::Stack
        } else if Rng::new(seed, 10).percent(LEVELS) {
            Kind::Levels
        } else if Rng::new(seed, 1016).percent(GROWING) {
            Kind::Growing
        } else {
            Kind::Array
        };
        let kind = match kinds {
            [first, ..] if !kinds.contains(&drawn) => *first,
            _ => drawn,
        };
        let is_asked = |kind| kinds.is_empty() || kinds.contains(&kind);
        let kind = match kind {
            Kind::Volume
                if is_asked(Kind::Common)
                    && Rng::new(seed, 1019).percent(SNAPSHOTS)
                    && Rng::new(seed, 1020).percent(COMMON) =>
            {
                Kind::Common
            }
            Kind::Volume
                if is_asked(Kind::Snapshots) && Rng::new(seed, 1019).percent(SNAPSHOTS) =>
            {
                Kind::Snapshots
            }
            Kind::Volume if is_asked(Kind::Copies) && Rng::new(seed, 1018).percent(COPIES) => {
                Kind::Copies
            }
            Kind::Volume if is_asked(Kind::Calls) && Rng::new(seed, 1017).percent(CALLS) => {
                Kind::Calls
            }
            kind => kind,
        };
        Seed { seed, kind, plain: false }
    }

    /// Carries out the run. A panic fails it like anything else.
    pub fn run(self, verbose: bool) -> Report {
        let run = || match self.kind {
            Kind::Array | Kind::Journaled => {
                crate::run::run(Plan::alone(Scenario::of(self.seed)), self.plain, verbose)
            }
            Kind::Stack => crate::run::run(Plan::stack(self.seed), self.plain, verbose),
            Kind::Volume | Kind::Calls | Kind::Copies | Kind::Snapshots | Kind::Common => {
                let scope = match (self.plain, self.kind) {
                    (true, _) => Scope::Plain,
                    (false, Kind::Calls) => Scope::Calls,
                    (false, Kind::Copies) => Scope::Copies,
                    (false, Kind::Snapshots) => Scope::Snapshots,
                    (false, Kind::Common) => Scope::Common,
                    (false, _) => Scope::Aimed,
                };
                let mut report = crate::volume::run(self.seed, scope, verbose);
                if !self.plain
                    && report.verdict == Verdict::Passed
                    && let Some(failure) = crate::volume::holders::run(self.seed, verbose)
                {
                    report.verdict = Verdict::Failed(failure);
                }
                report
            }
            Kind::Levels => crate::run::changing::run(self.seed, verbose),
            Kind::Growing => crate::run::growing::run(self.seed, verbose),
            Kind::Short => crate::exhaust::run(self.seed, verbose),
        };
        catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|panic| Report::failed(Failure::of_panic(&*panic)))
    }
}

impl std::fmt::Display for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let option = match self.kind {
            Kind::Array | Kind::Journaled if self.plain => " --plain",
            Kind::Array | Kind::Journaled => "",
            Kind::Stack if self.plain => " --stacked --plain",
            Kind::Stack => " --stacked",
            Kind::Volume if self.plain => " --volume --plain",
            Kind::Volume => " --volume",
            Kind::Calls => " --calls",
            Kind::Copies => " --copies",
            Kind::Snapshots => " --snapshots",
            Kind::Common => " --common",
            Kind::Levels => " --levels",
            Kind::Growing => " --growing",
            Kind::Short => " --short",
        };
        write!(f, "{}{option}", self.seed)
    }
}

/// `count` seeds of single arrays with a write journal, from `first` on.
pub fn journaled(first: u64, count: u64) -> Vec<Seed> {
    let has_one = |seed: &u64| Scenario::of(*seed).journal.is_some();
    let seeds = (first..).filter(has_one).take(count as usize);
    seeds.map(|seed| Seed { seed, kind: Kind::Journaled, plain: false }).collect()
}

/// Runs that go on side by side: as many as this machine has processors.
pub fn side_by_side() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}

/// A number that was probably never run: short enough to be read out.
pub fn fresh_number() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    mix(since as u64 ^ u64::from(std::process::id()) << 48) % 1_000_000_000_000
}

/// The seeds of seeds.txt.
///
/// # Errors
/// A line that begins with no seed.
pub fn saved() -> Result<Vec<Seed>> {
    let lines = SAVED.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines
        .map(|line| {
            let of = |word: &str, kind| Some((kind, line.strip_prefix(word)?));
            let plain = line.starts_with("plain ");
            let (kind, rest) = of("stacked ", Kind::Stack)
                .or_else(|| of("volume ", Kind::Volume))
                .or_else(|| of("calls ", Kind::Calls))
                .or_else(|| of("copies ", Kind::Copies))
                .or_else(|| of("snapshots ", Kind::Snapshots))
                .or_else(|| of("common ", Kind::Common))
                .or_else(|| of("levels ", Kind::Levels))
                .or_else(|| of("growing ", Kind::Growing))
                .or_else(|| of("plain stacked ", Kind::Stack))
                .or_else(|| of("plain volume ", Kind::Volume))
                .or_else(|| of("plain ", Kind::Array))
                .unwrap_or((Kind::Array, line));
            let seed = rest.split_whitespace().next().unwrap_or(rest).parse();
            let seed =
                seed.with_context(|| format!("reading seeds.txt: {line:?} begins with no seed"))?;
            Ok(Seed { seed, kind, plain })
        })
        .collect()
}

/// Runs `seeds` side by side, those that come first first, after `prepare` on each thread; `done` gets each report and
/// says whether to go on. Whatever was begun by then is ended and told, so that the first seed of all that fail is among
/// those told.
pub fn each(
    seeds: &[Seed],
    prepare: impl Fn() + Sync,
    done: impl Fn(Seed, &Report) -> bool + Sync,
) {
    let (next, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..side_by_side() {
            scope.spawn(|| {
                prepare();
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

impl Report {
    /// Of a run of which nothing but its failure is known.
    fn failed(failure: Failure) -> Report {
        Report {
            verdict: Verdict::Failed(failure),
            scenario: String::new(),
            did: Counts::default(),
            lies: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_saved_seed_is_a_number() {
        assert!(!saved().unwrap().is_empty());
    }

    #[test]
    fn fresh_seeds_are_of_the_kinds_that_were_asked_for() {
        let two = [Kind::Array, Kind::Volume];
        let kinds = |asked: &[Kind]| {
            (0..200)
                .map(|seed| Seed::fresh(seed, asked).kind)
                .collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(kinds(&[]).len(), 9);
        assert_eq!(kinds(&[Kind::Volume, Kind::Calls]).len(), 2);
        assert_eq!(kinds(&two), two.into_iter().collect());
        assert_eq!(kinds(&[Kind::Stack]), [Kind::Stack].into_iter().collect());
    }
}
