//! The rate of a job over the last seconds.

use braid_shard::Nanos;
use std::collections::VecDeque;

/// Nanoseconds between samples.
const SAMPLE_EVERY: Nanos = 500_000_000;
/// Samples kept: the rate is that of the last five seconds.
const SAMPLES: usize = 10;
const SECOND: u128 = 1_000_000_000;

/// Remembers how far a job was at some instants.
pub(crate) struct Meter {
    samples: VecDeque<(Nanos, u64)>,
}

impl Meter {
    /// A job that is at byte `done` at time `now`.
    pub(crate) fn new(now: Nanos, done: u64) -> Meter {
        Meter { samples: VecDeque::from([(now, done)]) }
    }

    /// The job has come to byte `done`.
    pub(crate) fn note(&mut self, now: Nanos, done: u64) {
        let due = self.samples.back().is_none_or(|(at, _)| now.saturating_sub(*at) >= SAMPLE_EVERY);
        if due {
            if self.samples.len() == SAMPLES {
                self.samples.pop_front();
            }
            self.samples.push_back((now, done));
        }
    }

    /// Bytes per second up to now; 0 when no time has passed.
    pub(crate) fn rate(&self, now: Nanos, done: u64) -> u64 {
        let Some((at, before)) = self.samples.front() else { return 0 };
        let elapsed = u128::from(now.saturating_sub(*at));
        let bytes = u128::from(done.saturating_sub(*before));
        u64::try_from((bytes * SECOND).checked_div(elapsed).unwrap_or(0)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_five_seconds() {
        let mut meter = Meter::new(0, 0);
        let half = SAMPLE_EVERY;
        // Ten seconds at 100 bytes per half second, then ten at 10.
        let mut done = 0;
        for step in 1..=40 {
            done += if step <= 20 { 100 } else { 10 };
            meter.note(step * half, done);
        }
        assert_eq!(meter.rate(40 * half, done), 20);
    }

    #[test]
    fn no_time_gives_no_rate() {
        assert_eq!(Meter::new(7, 0).rate(7, 1 << 40), 0);
    }
}
