//! A row of a table whose steps are measured in the devices' time and on the wall clock.

use super::verdict::{ratio, verdict};
use crate::tables::Row;
use braid_load::{Measured, Report, Slice, Spread, megabytes};

/// A step on one of the clocks.
pub struct Timed {
    pub name: String,
    /// Bytes that rates are of.
    pub bytes: u64,
    pub seconds: f64,
    /// Rate in proportion to what the devices can do.
    pub share: f64,
    /// The least share that is demanded.
    pub least: Option<f64>,
    /// Bytes written in proportion to those that have to be.
    pub written: Option<f64>,
}

/// The row of a step: `model` in the devices' time, and step `at` of each round on the wall clock.
pub fn row(model: &Timed, rounds: &[Vec<Timed>], at: usize) -> Row {
    let wall: Vec<&Timed> = rounds.iter().filter_map(|round| round.get(at)).collect();
    let slice =
        |one: &Timed| Slice { requests: 1, bytes: one.bytes, seconds: one.seconds, latency: None };
    let measured = |name: &str, slices| Measured { name: name.to_owned(), worth: None, slices };
    let in_their_time = measured("devices' time", vec![slice(model)]);
    let on_the_clock = measured("wall clock", wall.iter().map(|one| slice(one)).collect());
    let share = Spread::of(wall.iter().map(|one| one.share));
    let written = wall.iter().copied().chain([model]).filter_map(|one| one.written);
    let written = written.reduce(f64::max);
    let dash = || "–".to_owned();
    let reached = share.median.min(model.share);
    let cells = vec![
        megabytes(in_their_time.bytes_per_second().median),
        format!("{:.3}", model.share),
        crate::tables::spread(Some(share)),
        model
            .least
            .map_or_else(dash, |least| format!("≥ {least:.2} {}", verdict(reached >= least))),
        written.map_or_else(dash, |written| format!("{written:.3}")),
        written.map_or_else(dash, |written| verdict(written <= 1.01).to_owned()),
    ];
    let all = [in_their_time, on_the_clock];
    let mut report = Report::of(model.name.clone(), rounds.len(), &all, Vec::new());
    report.ratios = vec![
        ratio("devices' time", "busiest device", Spread::of([model.share])),
        ratio("wall clock", "busiest device", share),
    ];
    report.ratios.extend(written.map(|written| ratio("written", "minimum", Spread::of([written]))));
    Row { load: model.name.clone(), cells, report }
}
