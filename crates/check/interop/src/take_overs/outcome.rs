//! A run of take-overs, and the figures of one.

use super::door::Door;
use anyhow::{Result, bail};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The pause that clients should not notice.
pub(super) const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The run.
pub struct Options {
    /// The program.
    pub braid: PathBuf,
    /// An empty folder.
    pub work: PathBuf,
    /// Take-overs at each door.
    pub times: u32,
    /// Decides what is written where.
    pub seed: u64,
    /// This program, for doors that need another kernel.
    pub own: PathBuf,
}

/// One door was as it must be: each request was answered, none with an error, and each read gave what was written.
pub struct Outcome {
    pub(super) door: Door,
    pub(super) pauses: Vec<Duration>,
    /// Times that devices were too slow, so that the server went on and was asked again.
    pub(super) refusals: u32,
    pub(super) requests: u64,
    pub(super) compared: u64,
    /// It was so in an emulated machine.
    pub(super) in_guest: bool,
}

impl Outcome {
    /// The figures as text that [`of_figures`](Outcome::of_figures) reads.
    #[must_use]
    pub fn figures(&self) -> String {
        let pauses = self.pauses.iter().map(|pause| format!(" {}", pause.as_nanos()));
        let pauses: String = pauses.collect();
        format!("{} {} {}{pauses}\n", self.refusals, self.requests, self.compared)
    }

    pub(super) fn of_figures(door: Door, text: &str) -> Result<Outcome> {
        let numbers = text.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        let [refusals, requests, compared, pauses @ ..] = numbers.as_slice() else {
            bail!("too few numbers: {text:?}");
        };
        let pauses = pauses.iter().copied().map(Duration::from_nanos).collect();
        let (refusals, requests, compared) = (u32::try_from(*refusals)?, *requests, *compared);
        Ok(Outcome { door, pauses, refusals, requests, compared, in_guest: false })
    }

    pub(super) fn name(&self) -> String {
        let name = self.door.names().0;
        if self.in_guest { format!("{name}, emulated") } else { name.to_owned() }
    }

    /// The longest pause.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.pauses.iter().copied().max().unwrap_or_default()
    }

    pub(super) fn median(&self) -> Duration {
        let mut all = self.pauses.clone();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or_default()
    }

    fn long_ones(&self) -> usize {
        self.pauses.iter().filter(|pause| **pause > PAUSE_MAX).count()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{}: {} take-overs ({} asked for again), {} requests, {} MiB compared, 0 errors; pauses: median {} ms, longest {} ms, {} over {} ms",
            self.name(),
            self.pauses.len(),
            self.refusals,
            self.requests,
            self.compared >> 20,
            self.median().as_millis(),
            self.longest().as_millis(),
            self.long_ones(),
            PAUSE_MAX.as_millis()
        )
    }
}
