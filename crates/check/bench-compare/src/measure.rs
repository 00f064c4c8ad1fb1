//! Measuring two things in turn, so that what disturbs the machine disturbs both.
//!
//! Owns the rounds and the statistics. Does not know what is measured.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The median, least and greatest of some values.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Spread {
    /// The middle value (the upper of two).
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Of at least one value.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { median: values[values.len() / 2], min: values[0], max: values[values.len() - 1] }
    }
}

/// Seconds per call of two rivals, and the ratio of their speeds round by round.
pub struct Pair {
    /// Speed of the first divided by the speed of the second, of each round.
    pub ratio: Spread,
    /// Seconds per call of the first.
    pub first: Spread,
    /// Seconds per call of the second.
    pub second: Spread,
}

/// Runs `first` and `second` in turn, `rounds` times each. Each is given a number of passes to make and
/// returns the time they took; one pass is `calls` calls. The number of passes is chosen so that a round
/// takes about `target`.
pub fn in_turn(
    rounds: usize,
    calls: usize,
    target: Duration,
    mut first: impl FnMut(usize) -> Duration,
    mut second: impl FnMut(usize) -> Duration,
) -> Pair {
    let mut passes = 1;
    loop {
        let took = first(passes).max(second(passes));
        if took >= target {
            break;
        }
        passes = (passes * 2)
            .max((passes as f64 * target.as_secs_f64() / took.as_secs_f64().max(1e-9)) as usize);
        passes = passes.min(1 << 24);
    }
    let per_call = |took: Duration| took.as_secs_f64() / (passes * calls) as f64;
    let (mut ratios, mut firsts, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        // A B B A: neither profits from always being the second.
        let (a, b) = if round % 2 == 0 {
            let a = first(passes);
            (a, second(passes))
        } else {
            let b = second(passes);
            (first(passes), b)
        };
        ratios.push(b.as_secs_f64() / a.as_secs_f64());
        firsts.push(per_call(a));
        seconds.push(per_call(b));
    }
    Pair { ratio: Spread::of(ratios), first: Spread::of(firsts), second: Spread::of(seconds) }
}

/// The processor time of this thread that `passes` runs of `work` take. Unlike the clock on the wall it
/// leaves out when the machine ran something else in between; nothing measured here sleeps.
pub fn time(passes: usize, mut work: impl FnMut()) -> Duration {
    let start = now();
    for _ in 0..passes {
        work();
    }
    now() - start
}

fn now() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    // A thread's processor time is never negative, its nanoseconds are below 10^9.
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
