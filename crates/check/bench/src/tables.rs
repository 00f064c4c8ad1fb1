//! What a table is: rows of a quotient, what is demanded of it, and the absolutes behind it.
//!
//! Does not measure. Owns how long measuring may take.

use crate::plot::Plot;
use braid_device::spec::MemberSpec;
use braid_layout::Level;
use braid_load::{Length, Options, Pattern, Report, Spread};
use serde::Serialize;
use std::path::PathBuf;

/// Bytes of a member in memory: far more than any cache holds.
const MEMBER: u64 = 256 << 20;

/// How much may be spent.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Slices too short for more than a first look.
    pub quick: bool,
    /// Where members that are files shall lie.
    pub disk: Option<PathBuf>,
}

impl Effort {
    /// Seconds of each contender in all rounds.
    pub fn seconds(&self) -> f64 {
        if self.quick { 0.25 } else { 1.5 }
    }

    /// A load on `count` members in memory with 64 KiB chunks.
    pub fn on_memory(&self, level: Level, count: usize, pattern: Pattern, block: u64) -> Options {
        let member = MemberSpec::Ram(if self.quick { MEMBER / 4 } else { MEMBER });
        Options {
            length: Length::Seconds(self.seconds()),
            ..Options::new(level, vec![member; count], pattern, block)
        }
    }
}

/// What this machine has not, and a table cannot be measured without: the table is left out.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Missing(pub String);

/// One line.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The load, short.
    pub load: String,
    /// Cells, as many as the table has headings after the first.
    pub cells: Vec<String>,
    /// Everything that was measured.
    pub report: Report,
}

/// One table.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// The heading above it.
    pub title: String,
    /// What it shows and how it was measured, in sentences.
    pub about: String,
    /// Headings of the columns.
    pub headings: Vec<&'static str>,
    /// The lines.
    pub rows: Vec<Row>,
    /// Curves.
    pub plots: Vec<Plot>,
}

/// `0.93 (0.91–0.97)`.
pub fn spread(value: Option<Spread>) -> String {
    match value {
        Some(Spread { median, min, max }) => format!("{median:.2} ({min:.2}–{max:.2})"),
        None => "–".to_owned(),
    }
}

/// Whether a demand is met: `≥ 0.80 ✓`.
pub fn demand(least: f64, value: Option<Spread>) -> String {
    let met = value.is_some_and(|value| value.median >= least);
    format!("≥ {least:.2} {}", if met { "met" } else { "not met" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demand_is_met_by_the_median() {
        let value = Spread { median: 0.8, min: 0.1, max: 2.0 };
        assert_eq!(demand(0.8, Some(value)), "≥ 0.80 met");
        assert_eq!(demand(0.81, Some(value)), "≥ 0.81 not met");
        assert_eq!(demand(0.1, None), "≥ 0.10 not met");
        assert_eq!(spread(Some(value)), "0.80 (0.10–2.00)");
    }
}
