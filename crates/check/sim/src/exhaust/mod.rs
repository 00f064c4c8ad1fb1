//! Every instant of short histories at which power can fail: an array of a few stripes, three writes, and a cut at each
//! write and flush of a member, when it is submitted and when it has completed; at some of them a second cut, at each
//! write and flush of the start that follows, and at all of them a start with each member missing that the level can
//! do without.
//!
//! | file | subject |
//! |---|---|
//! | `case` | the arrays, and what is asked of them |
//!
//! Owns no history: `run::cut_short` carries them out.

mod case;

pub use case::{Case, Protection};

use crate::run::cut_short::{Reached, Short, run_short};
use crate::verdict::{Counts, Report, Verdict};
use crate::world::Failure;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Ways in which what is under way at a cut gets through, of each cut.
const WAYS: u64 = 3;
/// Between two lines that say how far it has come.
const TOLD_EVERY: Duration = Duration::from_secs(30);
/// After every so many cuts there is one with second cuts.
const SECOND_CUTS: u64 = 7;

/// One power cut, or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// See [`Protection`].
    pub protection: Protection,
    /// The number of the history.
    pub history: u64,
    /// See [`Short::cut`].
    pub cut: u64,
    /// See [`Short::way`].
    pub way: u64,
    /// See [`Short::cut_again`].
    pub cut_again: Option<u64>,
    /// See [`Short::lost`].
    pub lost: Option<usize>,
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Point { protection, history, cut, way, cut_again, lost } = self;
        write!(f, "--only {} --first {history} --cut {cut} --way {way}", protection.name())?;
        if let Some(again) = cut_again {
            write!(f, " --cut-again {again}")?;
        }
        lost.map_or(Ok(()), |slot| write!(f, " --lost {slot}"))
    }
}

/// What was gone through.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    histories: u64,
    cuts: u64,
    second_cuts: u64,
    degraded: u64,
    wrong: u64,
}

#[derive(Default)]
struct Totals {
    done: BTreeMap<Protection, Done>,
    failed: Vec<(Point, Failure)>,
    told: Duration,
}

impl Point {
    /// Carries it out: how far it came, and what was found wrong. A panic is a finding.
    pub fn run(&self, case: &Case, verbose: bool) -> (Reached, Option<Failure>) {
        let short = Short {
            failed: case.failed.clone(),
            requests: case.requests.clone(),
            fresh: case.fresh,
            wanted: case.wanted,
            cut: self.cut,
            way: self.way,
            cut_again: self.cut_again,
            lost: self.lost,
        };
        let ran = catch_unwind(AssertUnwindSafe(|| run_short(case.plan(), &short, verbose)));
        match ran {
            Ok((report, reached)) => match report.verdict {
                Verdict::Failed(found) | Verdict::Outside(found) => (reached, Some(found)),
                Verdict::Passed => (reached, None),
            },
            Err(panic) => (Reached::All, Some(Failure::of_panic(&*panic))),
        }
    }
}

/// Goes through histories of `kinds` in turn, from number `first` on, `side_by_side` at once, until there were `points` cuts;
/// writes the table to `write`, anew whenever it says how far it has come.
///
/// # Errors
/// When something was lost, or the table cannot be written.
pub fn exhaust(
    kinds: &[Protection],
    (first, points): (u64, u64),
    side_by_side: usize,
    write: Option<&Path>,
) -> Result<()> {
    let start = Instant::now();
    let (next, reached) = (AtomicU64::new(0), AtomicU64::new(0));
    let (enough, totals) = (AtomicBool::new(false), Mutex::new(Totals::default()));
    std::thread::scope(|scope| {
        for _ in 0..side_by_side {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) && reached.load(Ordering::Relaxed) < points {
                    let nr = next.fetch_add(1, Ordering::Relaxed);
                    let protection = kinds[(nr % kinds.len() as u64) as usize];
                    let case = Case::of(protection, first + nr / kinds.len() as u64);
                    let (mut done, failed) = every_cut(&case);
                    done.wrong = u64::from(failed.is_some());
                    reached.fetch_add(done.cuts + done.second_cuts, Ordering::Relaxed);
                    if let Some((point, why)) = &failed {
                        println!(
                            "FAILED {}: {}\n  {}\n  replay: braid-sim exhaust {point} --verbose",
                            why.checker,
                            why.text,
                            case.describe()
                        );
                        enough.store(true, Ordering::Relaxed);
                    }
                    let mut totals = totals.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    totals.done.entry(protection).or_default().add(&done);
                    totals.failed.extend(failed);
                    if let Some(error) = totals.tell(start.elapsed(), write) {
                        eprintln!("{error:#}");
                        enough.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let totals = totals.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let table = table(&totals.done);
    print!("{table}");
    println!("{:.0} s", start.elapsed().as_secs_f64());
    if let Some((point, _)) = totals.failed.first() {
        bail!("failed: {point}");
    }
    write.map_or(Ok(()), |path| put(path, &table))
}

fn put(path: &Path, table: &str) -> Result<()> {
    std::fs::write(path, page(table)).with_context(|| format!("writing {}", path.display()))
}

impl Totals {
    /// Says how far it has come, when that is due; nothing is written once something was lost.
    fn tell(&mut self, elapsed: Duration, write: Option<&Path>) -> Option<anyhow::Error> {
        if elapsed < self.told + TOLD_EVERY || !self.failed.is_empty() {
            return None;
        }
        self.told = elapsed;
        let points: u64 = self.done.values().map(|done| done.cuts + done.second_cuts).sum();
        let rate = points as f64 / elapsed.as_secs_f64();
        eprintln!("{points} cuts in {:.0} s: {rate:.0} a second", elapsed.as_secs_f64());
        write.and_then(|path| put(path, &table(&self.done)).err())
    }
}

/// Carries out one cut, and tells.
///
/// # Errors
/// When something was lost.
pub fn one(point: Point, verbose: bool) -> Result<()> {
    let case = Case::of(point.protection, point.history);
    println!("{}", case.describe());
    let (reached, failed) = point.run(&case, verbose);
    println!("reached: {reached:?}");
    match failed {
        Some(why) => bail!("{}: {}", why.checker, why.text),
        None => Ok(()),
    }
}

/// All cuts of the history with this number, of all kinds in turn.
pub fn run(number: u64, verbose: bool) -> Report {
    let kinds = Protection::ALL.len() as u64;
    let case = Case::of(Protection::ALL[(number % kinds) as usize], number / kinds);
    let scenario = case.describe();
    if verbose {
        println!("short history {number}: {scenario}");
    }
    let (done, failed) = every_cut(&case);
    let crashes = done.cuts + done.second_cuts;
    let verdict = failed.map_or(Verdict::Passed, |(point, why)| {
        let (checker, text) = (why.checker, format!("{}; exhaust {point}", why.text));
        Verdict::Failed(Failure { checker, text })
    });
    Report { verdict, scenario, did: Counts { crashes, ..Counts::default() }, lies: false }
}

/// All cuts of one history, up to the first after which something was wrong.
fn every_cut(case: &Case) -> (Done, Option<(Point, Failure)>) {
    let mut done = Done { histories: 1, ..Done::default() };
    let Case { protection, history, .. } = *case;
    let may_lose = case.may_lose();
    for cut in 0.. {
        // Each way with all members, and one way with each of them missing.
        let lost = may_lose.iter().map(|slot| (0, Some(*slot)));
        for (way, lost) in (0..WAYS).map(|way| (way, None)).chain(lost) {
            let point = Point { protection, history, cut, way, cut_again: None, lost };
            let (reached, failed) = point.run(case, false);
            if let Some(why) = failed {
                return (done, Some((point, why)));
            }
            if reached == Reached::End {
                return (done, None);
            }
            done.cuts += 1;
            done.degraded += u64::from(lost.is_some() || !case.failed.is_empty());
        }
        if cut % SECOND_CUTS != history % SECOND_CUTS {
            continue;
        }
        for again in 0.. {
            let cut_again = Some(again);
            let point = Point { protection, history, cut, way: 0, cut_again, lost: None };
            let (reached, failed) = point.run(case, false);
            if let Some(why) = failed {
                return (done, Some((point, why)));
            }
            if reached != Reached::All {
                break;
            }
            done.second_cuts += 1;
        }
    }
    (done, None)
}

impl Done {
    fn add(&mut self, other: &Done) {
        self.histories += other.histories;
        self.cuts += other.cuts;
        self.second_cuts += other.second_cuts;
        self.degraded += other.degraded;
        self.wrong += other.wrong;
    }
}

fn table(done: &BTreeMap<Protection, Done>) -> String {
    let mut text = String::from(
        "| policy, or what goes on | histories | power cuts | of them degraded | cuts of the start after one | wrong |\n|---|---|---|---|---|---|\n",
    );
    let mut all = Done::default();
    // Writing to a string does not fail.
    for (protection, done) in done {
        all.add(done);
        let Done { histories, cuts, second_cuts, degraded, wrong } = done;
        let name = protection.name();
        let _ = writeln!(
            text,
            "| `{name}` | {histories} | {cuts} | {degraded} | {second_cuts} | {wrong} |"
        );
    }
    let Done { histories, cuts, second_cuts, degraded, wrong } = all;
    let _ = writeln!(text, "| all | {histories} | {cuts} | {degraded} | {second_cuts} | {wrong} |");
    text
}

fn page(table: &str) -> String {
    format!(
        "# Power cuts at every write of short histories\n\n\
         Written by `braid-sim exhaust --write`; do not edit. Arrays of two to five members and four stripes, three writes with\n\
         flushes among them; power is cut at each write and flush that a member gets, and when it has completed it; of what is\n\
         under way any part gets through. Then the array is started, also with each member missing, mended, checked and read.\n\n\
         {table}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cut_of_one_history_of_each_kind_is_survived() {
        for protection in Protection::ALL {
            let (done, failed) = every_cut(&Case::of(protection, 0));
            assert_eq!(failed, None);
            assert!(done.cuts > 20 && done.second_cuts > 20, "{protection:?}: {done:?}");
        }
    }
}
