//! Canaries: each planted bug is looked for until a run finds it, and the table of how long that took.

use crate::plants::{PLANTS, Plant};
use crate::seeds::{Kind, Seed, each, journaled};
use crate::verdict::{Report, Verdict};
use anyhow::{Context, Result, bail};
use braid_shard::plant;
use std::fmt::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Seeds within which every planted bug must be found.
const SEEDS_MAX: u64 = 2000;
/// The median of the seeds that it takes must be below this.
const MEDIAN_MAX: u64 = 100;

/// How a search for a planted bug ended.
struct Found {
    plant: &'static Plant,
    /// Seeds that it took, and the checker that saw it; `None`: no run failed.
    by: Option<(u64, Report)>,
    /// Some run came by it.
    reached: bool,
}

impl Found {
    fn checker(&self) -> &'static str {
        match self.by.as_ref().map(|(_, report)| &report.verdict) {
            Some(Verdict::Failed(failure)) => failure.checker,
            _ if self.reached => "nothing",
            _ => "nothing: no run came by it",
        }
    }

    fn seeds(&self) -> String {
        self.by.as_ref().map_or("–".to_string(), |(seeds, _)| seeds.to_string())
    }
}

/// Looks for all planted bugs, or for the one named `only`, from seed `first` on. The table in `write` gets the row of each
/// as soon as it is known, and keeps the rows of others.
///
/// # Errors
/// A build without planted bugs, no bug of that name, or bugs that are found too late or not at all.
pub fn canaries(only: Option<&str>, first: u64, write: Option<&Path>) -> Result<()> {
    if !cfg!(feature = "plants") {
        bail!(
            "no bugs are planted in this build; run: cargo run --profile checked -p braid-sim --features plants -- canaries"
        );
    }
    let chosen: Vec<&Plant> =
        PLANTS.iter().filter(|plant| only.is_none_or(|only| only == plant.name)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = PLANTS.iter().map(|plant| plant.name).collect();
        bail!("no planted bug has that name; there are: {}", names.join(", "));
    }
    let (mut rows, mut found) = (known_rows(write), Vec::new());
    for plant in chosen {
        let one = search(plant, first);
        println!(
            "{:<28} {:<8} {:>5} {}",
            plant.name,
            plant.kind.plural(),
            one.seeds(),
            one.checker()
        );
        if let (Some(_), Some((_, Report { verdict: Verdict::Failed(failure), .. }))) =
            (only, &one.by)
        {
            println!("  {}", failure.text);
        }
        rows.retain(|row| row.name != plant.name);
        rows.push(Row {
            name: plant.name.to_string(),
            seeds: one.by.as_ref().map(|(seeds, _)| *seeds),
            by: one.checker().to_string(),
        });
        found.push(one);
        if let Some(path) = write {
            std::fs::write(path, table(&rows))
                .with_context(|| format!("writing {}", path.display()))?;
        }
    }
    let lost: Vec<&str> =
        found.iter().filter(|one| one.by.is_none()).map(|one| one.plant.name).collect();
    if !lost.is_empty() {
        bail!("not found within {SEEDS_MAX} seeds: {}", lost.join(", "));
    }
    match median(&rows) {
        Some(median) if only.is_none() && median >= MEDIAN_MAX => {
            bail!("the median is {median} seeds; it must be below {MEDIAN_MAX}")
        }
        _ => Ok(()),
    }
}

fn search(planted: &'static Plant, first: u64) -> Found {
    let numbers = first..first.saturating_add(SEEDS_MAX);
    let seeds: Vec<Seed> = match planted.kind {
        Kind::Journaled => journaled(first, SEEDS_MAX),
        kind => numbers.map(|seed| Seed { seed, kind, plain: false }).collect(),
    };
    let by: Mutex<Option<(u64, Report)>> = Mutex::new(None);
    let reached = AtomicBool::new(false);
    let plant_it = || plant::select(Some(planted.name));
    each(&seeds, plant_it, |seed, report| {
        reached.fetch_or(plant::reached(), Ordering::Relaxed);
        let took = seeds.iter().position(|one| *one == seed).map_or(u64::MAX, |nr| nr as u64 + 1);
        let mut by = by.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if matches!(report.verdict, Verdict::Failed(_))
            && by.as_ref().is_none_or(|(known, _)| took < *known)
        {
            *by = Some((took, report.clone()));
        }
        by.is_none()
    });
    let by = by.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    Found { plant: planted, by, reached: reached.into_inner() }
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    name: String,
    /// Seeds that it took; `None`: it was not found.
    seeds: Option<u64>,
    /// The checker that saw it.
    by: String,
}

/// The rows of a table that is there; none where there is none.
fn known_rows(path: Option<&Path>) -> Vec<Row> {
    let text = path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    text.lines().filter_map(known_row).collect()
}

fn known_row(line: &str) -> Option<Row> {
    let cells: Vec<&str> = line.strip_prefix("| `")?.strip_suffix("` |")?.split(" | ").collect();
    let [name, _, _, _, seeds, by] = cells.as_slice() else { return None };
    Some(Row {
        name: name.strip_suffix('`')?.to_string(),
        seeds: seeds.parse().ok(),
        by: by.strip_prefix('`')?.to_string(),
    })
}

/// The seeds that half of the bugs took at most; `None` when more were not found.
fn median(rows: &[Row]) -> Option<u64> {
    let mut seeds: Vec<u64> = rows.iter().map(|row| row.seeds.unwrap_or(u64::MAX)).collect();
    seeds.sort_unstable();
    seeds.get(seeds.len().saturating_sub(1) / 2).copied().filter(|seeds| *seeds != u64::MAX)
}

/// The table for people, in the order of the plants; rows of bugs that are not planted any more go.
fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "# Planted bugs and the seeds that find them\n\n\
         Written by `make canaries`; do not edit. Each bug is planted in the engine, one at a time, and fresh seeds run\n\
         from 1 on until a checker fails. Every bug must be found within 2000 seeds, half of them within 100. One row is\n\
         made anew by `canaries --only NAME --write FILE`.\n\n\
         | bug | class | the engine | runs | seeds | found by |\n|---|---|---|---|---|---|\n",
    );
    let mut told = Vec::new();
    for Plant { name, class, does, kind } in PLANTS {
        let Some(row) = rows.iter().find(|row| row.name == *name) else { continue };
        let seeds = row.seeds.map_or("–".to_string(), |seeds| seeds.to_string());
        let (runs, by) = (kind.plural(), &row.by);
        // Writing to a string does not fail.
        let _ = writeln!(text, "| `{name}` | {class} | {does} | {runs} | {seeds} | `{by}` |");
        told.push(row.clone());
    }
    if let Some(median) = median(&told) {
        let _ = writeln!(text, "\n{} bugs, median {median} seeds.", told.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_keeps_the_rows_of_bugs_that_are_not_looked_for() {
        let row = |nr: usize, seeds| Row {
            name: PLANTS[nr].name.to_string(),
            seeds,
            by: "reads_return_acknowledged".to_string(),
        };
        // In the order of the plants, whatever the order in which they are found.
        let text = table(&[row(3, None), row(0, Some(17)), row(1, Some(4))]);
        let read: Vec<Row> = text.lines().filter_map(known_row).collect();
        assert_eq!(read, [row(0, Some(17)), row(1, Some(4)), row(3, None)]);
        assert!(text.ends_with("3 bugs, median 17 seeds.\n"), "{text}");
        let gone = Row { name: "not-planted-any-more".to_string(), ..row(0, Some(1)) };
        assert_eq!(table(&[gone, row(0, Some(17))]), table(&[row(0, Some(17))]));
    }
}
