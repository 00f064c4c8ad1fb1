//! The judgement of a figure in a table of volumes, and the measurements and the ratio that it rests on.

use crate::tables::{Row, spread};
use braid_load::{Measured, Ratio, Report, Slice, Spread, megabytes};

/// A demand in words: met or not.
pub fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "**not met**" }
}

/// A ratio of two figures that a report names.
pub fn ratio(of: &str, by: &str, ratio: Spread) -> Ratio {
    Ratio { of: of.to_owned(), by: by.to_owned(), ratio }
}

/// A candidate that took so many seconds in each round for `bytes` bytes.
pub fn measured(name: &str, bytes: u64, seconds: impl IntoIterator<Item = f64>) -> Measured {
    let slice = |seconds| Slice { requests: 1, bytes, seconds, latency: None };
    let slices = seconds.into_iter().map(slice).collect();
    Measured { name: name.to_owned(), worth: None, slices }
}

/// A row about two candidates that took turns: their rates in the order given, and the share, over the pairs of rounds, that
/// `both[of]` has of the other's rate, of which `least` is demanded. With each name the seconds of its rounds.
pub fn compared(
    (load, on): (&str, &str),
    bytes: u64,
    both: [(&str, &[f64]); 2],
    of: usize,
    least: f64,
) -> Row {
    let by = 1 - of;
    let share = Spread::of(both[by].1.iter().zip(both[of].1).map(|(by, of)| by / of));
    let rate = |all: &[f64]| Spread::of(all.iter().map(|one| bytes as f64 / one)).median;
    let cells = vec![
        load.to_owned(),
        megabytes(rate(both[0].1)),
        megabytes(rate(both[1].1)),
        spread(Some(share)),
        format!("≥ {least:.2} {}", verdict(share.median >= least)),
    ];
    let all = both.map(|(name, seconds)| measured(name, bytes, seconds.iter().copied()));
    let mut report = Report::of(format!("{load}, {on}"), both[0].1.len(), &all, Vec::new());
    report.ratios = vec![ratio(both[of].0, both[by].0, share)];
    Row { load: on.to_owned(), cells, report }
}
