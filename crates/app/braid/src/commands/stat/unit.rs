//! Counts and bytes, in all or in a second, and how they are written.

use crate::output::size;

/// What counts are divided by.
pub(super) enum Unit {
    /// By nothing.
    All,
    /// By so many seconds.
    Second(f64),
}

impl Unit {
    pub(super) fn count(&self, count: u64) -> String {
        match self {
            Unit::All => count.to_string(),
            Unit::Second(seconds) => decimal(count as f64 / seconds.max(f64::MIN_POSITIVE)),
        }
    }

    pub(super) fn bytes(&self, bytes: u64) -> String {
        match self {
            Unit::All => size::human(bytes),
            Unit::Second(seconds) => size::rate(bytes as f64 / seconds.max(f64::MIN_POSITIVE)),
        }
    }
}

/// `2.5:1`; nothing where nothing came out.
pub(super) fn times(ratio: Option<f64>) -> String {
    ratio.map_or_else(String::new, |ratio| format!("{}:1", decimal(ratio)))
}

/// Two digits behind the point where they say something.
pub(super) fn decimal(value: f64) -> String {
    if value >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}
