//! What was measured, ratios first: as text for people, as data for `--json`.

use crate::machine::Machine;
use crate::measure::{Measured, Spread};
use serde::Serialize;
use std::fmt;

/// A quotient of two byte rates, taken round by round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// What is divided.
    pub of: String,
    /// What it is divided by.
    pub by: String,
    /// The quotient.
    pub ratio: Spread,
}

/// The absolute figures of one contender: true today, on this machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Absolute {
    /// Its name.
    pub name: String,
    /// Requests per second.
    pub iops: Spread,
    /// Requests per second, round by round.
    pub rounds: Vec<f64>,
    /// Bytes per second.
    pub bytes_per_second: Spread,
    /// Half of the requests took at most so many microseconds.
    pub p50_us: Option<f64>,
    /// 99 of 100 requests took at most so many microseconds.
    pub p99_us: Option<f64>,
}

/// One load, measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The load in one line.
    pub load: String,
    /// What it was measured on.
    pub machine: Machine,
    /// Rounds that medians are of.
    pub rounds: usize,
    /// Seconds are processor time of the shards, not the wall clock's.
    pub processor_time: bool,
    /// Seconds are those of modelled members; the engine takes none.
    pub virtual_time: bool,
    /// The quotients.
    pub ratios: Vec<Ratio>,
    /// The figures.
    pub absolutes: Vec<Absolute>,
    /// What a reader should know: one sentence each.
    pub notes: Vec<String>,
}

impl Report {
    /// Of a load whose figures are elsewhere, measured on this machine in no rounds.
    #[must_use]
    pub fn without_figures(load: String) -> Report {
        Report {
            load,
            machine: Machine::here(),
            rounds: 0,
            processor_time: false,
            virtual_time: false,
            ratios: Vec::new(),
            absolutes: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl Absolute {
    /// Of what was measured.
    pub fn of(measured: &Measured) -> Absolute {
        let latency = measured.latency();
        let quantile = |q: f64| latency.as_ref().map(|all| all.value_at_quantile(q) as f64 / 1e3);
        Absolute {
            name: measured.name.clone(),
            iops: measured.iops(),
            rounds: measured.iops_by_round().collect(),
            bytes_per_second: measured.bytes_per_second(),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
        }
    }
}

/// The first in proportion to each of the others: to what their rate is worth, where that is known.
fn ratios(measured: &[Measured]) -> Vec<Ratio> {
    let Some((first, others)) = measured.split_first() else { return Vec::new() };
    let ratio = |other: &Measured| {
        let worth = other.worth?;
        // As it is, or what an ideal array would make of it.
        let by = if worth == 1.0 { other.name.clone() } else { format!("{} ideal", other.name) };
        Some(Ratio { of: first.name.clone(), by, ratio: first.ratio(other, worth) })
    };
    others.iter().filter_map(ratio).collect()
}

impl Report {
    /// Of what was measured in turn, the first in proportion to each of the others, with `rounds` as they
    /// were asked for; seconds are those of the wall clock.
    pub fn of(load: String, rounds: usize, measured: &[Measured], notes: Vec<String>) -> Report {
        Report {
            load,
            machine: Machine::here(),
            rounds: rounds.max(1),
            processor_time: false,
            virtual_time: false,
            ratios: ratios(measured),
            absolutes: measured.iter().map(Absolute::of).collect(),
            notes,
        }
    }

    /// The median of the quotient of `of` by `by`.
    pub fn ratio(&self, of: &str, by: &str) -> Option<Spread> {
        self.ratios.iter().find(|ratio| ratio.of == of && ratio.by == by).map(|found| found.ratio)
    }

    /// The figures of `name`.
    pub fn absolute(&self, name: &str) -> Option<&Absolute> {
        self.absolutes.iter().find(|absolute| absolute.name == name)
    }
}

/// A rate such as `1.23` GB/s in MB/s (10^6 bytes), with as many digits as mean something.
pub fn megabytes(bytes_per_second: f64) -> String {
    significant(bytes_per_second / 1e6)
}

/// `value` with three digits, or all of them before the point.
pub fn significant(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Requests per second as `123k`.
pub fn thousands(per_second: f64) -> String {
    if per_second >= 10_000.0 {
        format!("{}k", significant(per_second / 1e3))
    } else {
        significant(per_second)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.load)?;
        writeln!(f, "{}", self.machine)?;
        let clock = match (self.processor_time, self.virtual_time) {
            (true, _) => "second of processor time",
            (_, true) => "second of the members' time",
            _ => "second",
        };
        writeln!(f, "median (min–max) of {} rounds, per {clock}\n", self.rounds)?;
        for Ratio { of, by, ratio } in &self.ratios {
            let name = format!("{of} ÷ {by}");
            writeln!(f, "  {name:24} {:.2} ({:.2}–{:.2})", ratio.median, ratio.min, ratio.max)?;
        }
        if !self.ratios.is_empty() {
            writeln!(f)?;
        }
        for absolute in &self.absolutes {
            let (rate, iops) = (absolute.bytes_per_second, absolute.iops);
            let rates = format!(
                "{} MB/s ({}–{})",
                megabytes(rate.median),
                megabytes(rate.min),
                megabytes(rate.max),
            );
            write!(f, "  {:10} {:>9} IOPS   {rates}", absolute.name, thousands(iops.median))?;
            if let (Some(p50), Some(p99)) = (absolute.p50_us, absolute.p99_us) {
                write!(f, "   p50 {} µs, p99 {} µs", significant(p50), significant(p99))?;
            }
            writeln!(f)?;
        }
        for note in &self.notes {
            writeln!(f, "  note: {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Slice;

    #[test]
    fn ratios_are_printed_before_absolutes() {
        let slices = |bytes| vec![Slice { requests: 5, bytes, seconds: 1.0, latency: None }];
        let measured = Measured { name: "array".into(), worth: None, slices: slices(2_000_000) };
        let spread = measured
            .ratio(&Measured { name: "bare".into(), worth: None, slices: slices(4_000_000) }, 1.0);
        let report = Report {
            load: "a load".into(),
            machine: Machine::here(),
            rounds: 1,
            processor_time: true,
            virtual_time: false,
            ratios: vec![Ratio { of: "array".into(), by: "bare".into(), ratio: spread }],
            absolutes: vec![Absolute::of(&measured)],
            notes: vec!["a note".into()],
        };
        let text = report.to_string();
        let ratio = text.find("array ÷ bare").unwrap();
        assert!(text[ratio..].contains("0.50 (0.50–0.50)"));
        assert!(ratio < text.find("2.00 MB/s").unwrap());
        assert!(text.contains("processor time") && text.contains("note: a note"));
        assert_eq!(report.ratio("array", "bare").unwrap().median, 0.5);
    }

    #[test]
    fn numbers_have_the_digits_that_mean_something() {
        assert_eq!((thousands(123_456.0), thousands(999.4)), ("123k".into(), "999".into()));
        assert_eq!((megabytes(12_345_678.0), significant(0.123)), ("12.3".into(), "0.12".into()));
    }
}
