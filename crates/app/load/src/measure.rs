//! Several things measured in turn in one run, so that what disturbs the machine disturbs all.
//!
//! Owns the rounds and their statistics. Does not know what is measured. Round after round every
//! contender runs for one slice; every other round goes backwards, so that none profits from its
//! place. A first round warms up and is thrown away.

use crate::error::LoadError;
use hdrhistogram::Histogram;
use serde::Serialize;

/// How long a slice is, per shard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Until {
    /// So many nanoseconds on the wall clock.
    Nanos(u64),
    /// So many requests.
    Requests(u64),
}

/// What one slice has done.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// Requests completed, flushes not counted.
    pub requests: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Seconds that it took, by the clock that the contenders share.
    pub seconds: f64,
    /// Times from submission to completion in nanoseconds, when asked for.
    pub latency: Option<Histogram<u64>>,
}

/// Something that can be measured for a while.
pub trait Contender {
    /// How tables name it.
    fn name(&self) -> &str;

    /// Bytes of the array's load that each of its bytes is worth at best: below 1 for members by
    /// themselves, which must carry more than the payload. `None` when that is not known.
    fn worth(&self) -> Option<f64> {
        Some(1.0)
    }

    /// Runs for one slice.
    ///
    /// # Errors
    /// When a request fails or what carries it is gone.
    fn slice(&mut self, until: Until) -> Result<Slice, LoadError>;
}

/// The median, least and greatest of the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value (the upper of two).
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Of `values`; zeroes when there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or_default();
        Spread { median: at(values.len() / 2), min: at(0), max: at(values.len().saturating_sub(1)) }
    }

    /// All three times `factor`.
    pub fn times(self, factor: f64) -> Spread {
        Spread { median: self.median * factor, min: self.min * factor, max: self.max * factor }
    }
}

/// The slices of one contender, a round each.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Its name.
    pub name: String,
    /// See [`Contender::worth`].
    pub worth: Option<f64>,
    /// One slice per round, in order.
    pub slices: Vec<Slice>,
}

impl Measured {
    /// Bytes per second, round by round.
    pub fn rates(&self) -> impl Iterator<Item = f64> {
        self.slices.iter().map(|slice| slice.bytes as f64 / slice.seconds.max(1e-9))
    }

    /// Requests per second, round by round.
    pub fn iops_by_round(&self) -> impl Iterator<Item = f64> {
        self.slices.iter().map(|slice| slice.requests as f64 / slice.seconds.max(1e-9))
    }

    /// Requests per second.
    pub fn iops(&self) -> Spread {
        Spread::of(self.iops_by_round())
    }

    /// Bytes per second.
    pub fn bytes_per_second(&self) -> Spread {
        Spread::of(self.rates())
    }

    /// Byte rate divided by `other`'s times `factor`, round by round.
    pub fn ratio(&self, other: &Measured, factor: f64) -> Spread {
        Spread::of(self.rates().zip(other.rates()).map(|(own, other)| own / (other * factor)))
    }

    /// All latencies of all rounds.
    pub fn latency(&self) -> Option<Histogram<u64>> {
        let mut all: Option<Histogram<u64>> = None;
        for histogram in self.slices.iter().filter_map(|slice| slice.latency.as_ref()) {
            match &mut all {
                // Fails only for values out of the sum's range; both were made alike.
                Some(sum) => sum.add(histogram).ok()?,
                None => all = Some(histogram.clone()),
            }
        }
        all
    }
}

/// Runs a slice of each of `contenders` in turn, `rounds` times after a first round that warms up and does not count; every other
/// round goes backwards. Gives the slices of each contender, a round each.
///
/// # Errors
/// The first error of any of them.
pub fn by_turns<C, T, E>(
    contenders: &mut [C],
    rounds: usize,
    mut slice: impl FnMut(&mut C) -> Result<T, E>,
) -> Result<Vec<Vec<T>>, E> {
    let mut slices: Vec<Vec<T>> = contenders.iter().map(|_| Vec::new()).collect();
    for round in 0..=rounds {
        let mut order: Vec<(&mut C, &mut Vec<T>)> =
            contenders.iter_mut().zip(&mut slices).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for (contender, slices) in order {
            let slice = slice(contender)?;
            if round > 0 {
                slices.push(slice);
            }
        }
    }
    Ok(slices)
}

/// Measures all `contenders` [in turn](by_turns), `rounds` times (at least once) after a warm-up.
///
/// # Errors
/// The first error of any of them.
pub fn in_turn(
    contenders: &mut [&mut dyn Contender],
    rounds: usize,
    until: Until,
) -> Result<Vec<Measured>, LoadError> {
    let slices = by_turns(contenders, rounds.max(1), |contender| contender.slice(until))?;
    let measured = |(contender, slices): (&&mut dyn Contender, Vec<Slice>)| Measured {
        name: contender.name().to_owned(),
        worth: contender.worth(),
        slices,
    };
    Ok(contenders.iter().zip(slices).map(measured).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    struct Scripted {
        name: &'static str,
        bytes: u64,
        log: Rc<RefCell<String>>,
    }

    impl Contender for Scripted {
        fn name(&self) -> &str {
            self.name
        }

        fn slice(&mut self, _: Until) -> Result<Slice, LoadError> {
            self.log.borrow_mut().push_str(self.name);
            self.bytes += 1;
            Ok(Slice { requests: 1, bytes: self.bytes, seconds: 1.0, latency: None })
        }
    }

    #[test]
    fn rounds_alternate_and_the_first_does_not_count() {
        let log = Rc::new(RefCell::new(String::new()));
        let mut a = Scripted { name: "a", bytes: 0, log: Rc::clone(&log) };
        let mut b = Scripted { name: "b", bytes: 10, log: Rc::clone(&log) };
        let measured = in_turn(&mut [&mut a, &mut b], 3, Until::Requests(1)).unwrap();
        assert_eq!(*log.borrow(), "abbaabba");
        assert_eq!(measured[0].bytes_per_second(), Spread { median: 3.0, min: 2.0, max: 4.0 });
        let ratio = measured[0].ratio(&measured[1], 0.5);
        assert_eq!(ratio.median, 3.0 / (13.0 * 0.5));
    }

    #[test]
    fn the_spread_of_nothing_is_zero() {
        assert_eq!(Spread::of([]), Spread { median: 0.0, min: 0.0, max: 0.0 });
        assert_eq!(Spread::of([2.0, 1.0]), Spread { median: 2.0, min: 1.0, max: 2.0 });
    }
}
