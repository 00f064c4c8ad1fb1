//! Members that are slow for long: failed where that is asked for (`max_member_latency`), and the array can do without them.
//!
//! A disk that retries inside, or a path that drops packets, answers everything in the end, and the whole array is as slow as
//! it is. Looks are a while apart: at each, a member is slow if its requests since the last one took more than the setting
//! says on average, and more than [`TIMES`] what those of the other members took. Whatever slows all of them (too many
//! requests, a controller that they share) fails none.
//!
//! Does not know requests: the meters of all shards are read.

use crate::control::in_effect::InEffect;
use crate::control::record::Record;
use crate::control::record::failing::Dropped;
use crate::control::record::members::{Member, Standing};
use crate::engine::Engine;
use crate::state::view::MemberNr;
use braid_shard::Nanos;
use std::cell::Cell;
use std::rc::Rc;

const MILLISECOND: Nanos = 1_000_000;
/// Between two looks, in nanoseconds.
const LOOK_EVERY: Nanos = 10_000 * MILLISECOND;
/// A member that is slow in so many looks in a row is slow for long: a minute.
const LOOKS: u32 = 6;
/// Fewer requests than that since the last look say nothing about a member.
const REQUESTS_MIN: u64 = 10;
/// A member is slow if it takes so many times as long as the others do on average.
const TIMES: u64 = 2;

/// The completed requests to one member, and their latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Completed {
    requests: u64,
    nanos: Nanos,
}

impl Completed {
    fn add(&mut self, other: Completed) {
        self.requests = self.requests.saturating_add(other.requests);
        self.nanos = self.nanos.saturating_add(other.nanos);
    }

    fn since(self, before: Completed) -> Completed {
        match self.requests.checked_sub(before.requests) {
            Some(requests) => {
                Completed { requests, nanos: self.nanos.saturating_sub(before.nanos) }
            }
            // Its device was opened again meanwhile, and counts from the beginning.
            None => self,
        }
    }

    /// The mean latency, where the requests are enough to say one.
    fn mean(self) -> Option<Nanos> {
        (self.requests >= REQUESTS_MIN).then(|| self.nanos / self.requests)
    }
}

/// One member as it was seen so far.
#[derive(Clone, Copy, Debug)]
struct Seen {
    nr: MemberNr,
    completed: Completed,
    /// Looks in a row in which it was slow.
    slow: u32,
    mean: Nanos,
}

/// All that was seen.
#[derive(Default)]
struct Looks {
    seen: Vec<Seen>,
}

impl Looks {
    /// Takes in what the meters say now.
    fn look(&mut self, now: &[(MemberNr, Completed)], limit: Nanos) {
        let before = std::mem::take(&mut self.seen);
        let known = |nr: MemberNr| before.iter().find(|seen| seen.nr == nr);
        let since: Vec<(MemberNr, Completed)> = now
            .iter()
            .map(|(nr, completed)| {
                let old = known(*nr).map_or(Completed::default(), |seen| seen.completed);
                (*nr, completed.since(old))
            })
            .collect();
        for (nr, completed) in now {
            let mut seen = known(*nr).copied().unwrap_or(Seen {
                nr: *nr,
                completed: *completed,
                slow: 0,
                mean: 0,
            });
            seen.completed = *completed;
            let mut others = Completed::default();
            since.iter().filter(|(other, _)| other != nr).for_each(|(_, other)| others.add(*other));
            let own = since.iter().find(|(other, _)| other == nr).and_then(|(_, own)| own.mean());
            // A member that was asked nothing is as slow or fast as it was.
            if let (Some(own), Some(others)) = (own, others.mean()) {
                let is_slow = own > limit && own > others.saturating_mul(TIMES);
                (seen.slow, seen.mean) = (if is_slow { seen.slow + 1 } else { 0 }, own);
            }
            self.seen.push(seen);
        }
    }

    /// The members that are slow for long, the slowest first, and their mean latencies.
    fn slow(&self) -> Vec<(MemberNr, Nanos)> {
        let mut slow: Vec<_> = self.seen.iter().filter(|seen| seen.slow >= LOOKS).collect();
        slow.sort_by_key(|seen| std::cmp::Reverse(seen.mean));
        slow.into_iter().map(|seen| (seen.nr, seen.mean)).collect()
    }

    /// The member is not looked at as one that is slow any more, until it is once more.
    fn forget(&mut self, nr: MemberNr) {
        self.seen.iter_mut().filter(|seen| seen.nr == nr).for_each(|seen| seen.slow = 0);
    }
}

/// The watch over slow members of an array.
pub(super) struct SlowMembers {
    record: Rc<Record>,
    in_effect: Rc<InEffect>,
    watched: Cell<bool>,
}

impl SlowMembers {
    pub(super) fn new(record: &Rc<Record>, in_effect: &Rc<InEffect>) -> Rc<SlowMembers> {
        let (record, in_effect) = (Rc::clone(record), Rc::clone(in_effect));
        Rc::new(SlowMembers { record, in_effect, watched: Cell::new(false) })
    }

    /// Looks at the members now and then, as long as the setting asks for it, unless that goes on already.
    pub(super) fn watch(self: &Rc<Self>) {
        let wanted = self.in_effect.settings.get().max_member_latency.is_some();
        if !wanted || self.record.read_only || self.watched.replace(true) {
            return;
        }
        let own = Rc::clone(self);
        self.record.shard.spawn(async move {
            let mut looks = Looks::default();
            loop {
                own.record.shard.sleep(LOOK_EVERY).await;
                let limit = own.in_effect.settings.get().max_member_latency;
                let Some(limit) = limit.filter(|_| !own.record.end.has_begun()) else { break };
                let limit = u64::from(limit).saturating_mul(MILLISECOND);
                looks.look(&own.completed().await, limit);
                // One at a time: without it the others may be as fast as they should be.
                if let Some((nr, mean)) = looks.slow().first() {
                    own.fail_slow(*nr, *mean).await;
                    looks.forget(*nr);
                }
            }
            own.watched.set(false);
        });
    }

    async fn completed(&self) -> Vec<(MemberNr, Completed)> {
        let engines = self.record.engines.ask(|engine: &Engine| engine.members.completed()).await;
        let mut all: Vec<(MemberNr, Completed)> = {
            let roster = self.record.roster.borrow();
            // One that is being filled has more to do than the others.
            let in_sync = |member: &&Member| matches!(member.standing, Standing::InSync(_));
            let serving = roster.members.iter().filter(in_sync);
            serving.map(|member| (member.nr, Completed::default())).collect()
        };
        for (nr, requests, nanos) in engines.into_iter().flatten().flatten() {
            if let Some((_, sum)) = all.iter_mut().find(|(known, _)| *known == nr) {
                sum.add(Completed { requests, nanos });
            }
        }
        all
    }

    async fn fail_slow(&self, nr: MemberNr, mean: Nanos) {
        let (seconds, limit) = (
            u64::from(LOOKS) * LOOK_EVERY / 1_000_000_000,
            self.in_effect.settings.get().max_member_latency.unwrap_or_default(),
        );
        let millis = mean as f64 / MILLISECOND as f64;
        let why = format!(
            "its requests take {millis:.1} ms on average for {seconds} s, and those of the others less than half of that \
             (max_member_latency={limit})"
        );
        let spared = self.record.roster.borrow().spares(&self.record.geometries(), nr, &[]);
        if !spared || self.record.fail_nr_unless_needed(nr, &why, true).await == Dropped::Broken {
            let (array, member) = (&self.record.name, self.record.member_name(nr));
            tracing::warn!("array {array}: {member} stays, since the data depends on it: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Nanos = 20 * MILLISECOND;

    /// Meters after looks in which the members answered this many requests each, at these latencies in milliseconds.
    fn looked(looks: &[[(u64, u64); 3]]) -> Looks {
        let mut all = Looks::default();
        let mut sums = [Completed::default(); 3];
        for look in looks {
            for (sum, (requests, millis)) in sums.iter_mut().zip(look) {
                let nanos = requests * millis * MILLISECOND;
                sum.add(Completed { requests: *requests, nanos });
            }
            let now: Vec<_> = (0..).zip(sums).collect();
            all.look(&now, LIMIT);
        }
        all
    }

    fn slow(looks: &[[(u64, u64); 3]]) -> Vec<MemberNr> {
        looked(looks).slow().into_iter().map(|(nr, _)| nr).collect()
    }

    #[test]
    fn a_member_is_slow_when_it_is_in_six_looks_in_a_row_and_the_others_are_not() {
        let one = [(100, 5), (100, 50), (100, 5)];
        assert_eq!(slow(&[one; 5]), []);
        assert_eq!(slow(&[one; 6]), [1]);
        let well = [(100, 5), (100, 6), (100, 5)];
        assert_eq!(slow(&[one, one, one, well, one, one, one]), []);
        // All are.
        assert_eq!(slow(&[[(100, 40), (100, 50), (100, 45)]; 9]), []);
        // Twice as slow as the others, but fast enough.
        assert_eq!(slow(&[[(100, 5), (100, 19), (100, 5)]; 9]), []);
        // The slowest of two comes first.
        let two = [(1000, 5), (100, 60), (100, 90)];
        assert_eq!(slow(&[two; 6]), [2, 1]);
    }

    #[test]
    fn looks_without_requests_say_nothing() {
        let one = [(100, 5), (100, 50), (100, 5)];
        let none = [(3, 5), (3, 5), (3, 5)];
        assert_eq!(slow(&[one, one, one, none, none, one, one, one]), [1]);
        let mut all = looked(&[one; 6]);
        all.forget(1);
        assert_eq!(all.slow(), []);
    }

    #[test]
    fn a_device_that_was_opened_again_counts_from_the_beginning() {
        let before = Completed { requests: 100, nanos: 500 };
        let now = Completed { requests: 20, nanos: 60 };
        assert_eq!(now.since(before), now);
        assert_eq!(now.mean(), Some(3));
        assert_eq!(Completed { requests: 9, nanos: 60 }.mean(), None);
    }
}
