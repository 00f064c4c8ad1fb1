//! The figures of a load on several mounts that are measured in turn.

use super::mounts::Mounted;
use braid_load::{Slice, Spread, by_turns};
use std::path::Path;

/// What one load has done on one mount.
#[derive(Clone, Debug)]
pub struct Figures {
    /// What was done, and how long it took.
    pub slice: Slice,
    /// Processor time of the process that answers, in seconds, its share of the kernel's included; `None`: it is the
    /// kernel alone.
    pub server: Option<f64>,
}

/// What is measured on each mount, and one round of it.
pub trait Load {
    /// Runs the load once in the mount at `dir`.
    fn run(&self, dir: &Path) -> anyhow::Result<Slice>;
}

/// Figures of each mount, a round each.
pub fn in_turn(
    load: &impl Load,
    mounts: &[&Mounted],
    rounds: usize,
) -> anyhow::Result<Vec<Vec<Figures>>> {
    by_turns(&mut mounts.to_vec(), rounds, |mount| {
        let before = mount.processor_seconds()?;
        let slice = load.run(&mount.dir)?;
        let after = mount.processor_seconds()?;
        let server = after.zip(before).map(|(after, before)| after - before);
        Ok(Figures { slice, server })
    })
}

/// How much faster the first is, round by round.
pub fn faster(first: &[Figures], second: &[Figures]) -> Spread {
    let rate = |one: &Figures| one.slice.requests as f64 / one.slice.seconds.max(1e-9);
    Spread::of(first.iter().zip(second).map(|(first, second)| rate(first) / rate(second)))
}

/// The server's microseconds for `each` of what was done.
pub fn server_us(figures: &[Figures], each: impl Fn(&Slice) -> f64) -> Option<Spread> {
    let of = |one: &Figures| Some(one.server? * 1e6 / each(&one.slice).max(1e-9));
    let all: Option<Vec<f64>> = figures.iter().map(of).collect();
    all.map(Spread::of)
}
