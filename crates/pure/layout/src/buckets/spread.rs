//! The distribution of the buckets to the bricks.
//!
//! The order of a new table is an earliest-deadline-first schedule: a brick with `q` of `n` buckets must get its k-th
//! one between buckets `k·n/q` and `(k+1)·n/q`, and each bucket goes to the eligible brick with the earliest
//! deadline. The shares add up to one, so every deadline is met.
//!
//! A change of weights releases buckets, evenly spaced and from the bricks that are furthest ahead of their shares, and
//! gives them to those that are furthest behind. Then pairs of nearby buckets are exchanged as long as that makes the
//! distances between the buckets of each brick more equal and reassigns no further bucket.

use super::error::BucketsError;
use super::limits::{BUCKETS, MAX_BRICKS};
use super::sums::Sums;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Upper bound of the passes over the pairs. Over 320 changes of up to four rows, 16 took 1.6 times as long, and brought windows of 64
/// buckets from 0.642, 1.217, 1.382 and 1.438 (row 0 to 3, root mean square) buckets off their shares to 0.640, 1.147, 1.290
/// and 1.409.
const PASSES: usize = 3;
/// Upper bound of the changed buckets on either side that a changed one may be exchanged with; twice as many as there
/// are bricks are enough.
const NEAR: usize = 12;
/// Number of buckets of the old brick, on either side, that are candidates for an exchange.
const KEPT: usize = 4;

/// Brick ids, ascending, with their numbers of buckets by the largest remainder method. Among equal remainders one that has
/// more buckets in `held`, which is by ascending id, goes first: it would give one away else.
pub(super) fn quotas(
    weights: &[(u16, u64)],
    held: &[(u16, usize)],
) -> Result<Vec<(u16, usize)>, BucketsError> {
    if weights.is_empty() {
        return Err(BucketsError::NoBricks);
    }
    if weights.len() > MAX_BRICKS {
        return Err(BucketsError::TooManyBricks { bricks: weights.len() });
    }
    let mut sorted = weights.to_vec();
    sorted.sort_unstable();
    let mut sum = 0u128;
    let mut last = None;
    for &(brick, weight) in &sorted {
        if last == Some(brick) {
            return Err(BucketsError::Twice { brick });
        }
        if weight == 0 {
            return Err(BucketsError::NoWeight { brick });
        }
        sum += u128::from(weight);
        last = Some(brick);
    }
    let exact = |weight: u64| u128::from(weight) * BUCKETS as u128;
    // At most BUCKETS, since a weight is at most the sum.
    let mut quotas: Vec<(u16, usize)> =
        sorted.iter().map(|&(brick, weight)| (brick, (exact(weight) / sum) as usize)).collect();
    let given: usize = quotas.iter().map(|&(_, quota)| quota).sum();
    let mut by_remainder: Vec<usize> = (0..sorted.len()).collect();
    let has_more = |at: usize| {
        quotas.get(at).is_some_and(|&(brick, quota)| {
            let found = held.binary_search_by_key(&brick, |&(id, _)| id);
            found.is_ok_and(|at| held.get(at).is_some_and(|&(_, count)| count > quota))
        })
    };
    by_remainder.sort_by_key(|&at| {
        let remainder = sorted.get(at).map(|&(_, weight)| exact(weight) % sum);
        (Reverse(remainder), Reverse(has_more(at)))
    });
    // Fewer buckets than bricks are left, because each remainder is below one.
    for at in by_remainder.into_iter().take(BUCKETS - given) {
        if let Some((_, quota)) = quotas.get_mut(at) {
            *quota += 1;
        }
    }
    Ok(quotas)
}

/// A sequence in which each `k` occurs `counts[k]` times, distributed as evenly as possible.
pub(super) fn interleave(counts: &[usize]) -> Vec<usize> {
    let total: usize = counts.iter().sum();
    let mut from: Vec<Vec<usize>> = vec![Vec::new(); total];
    for (k, &count) in counts.iter().enumerate() {
        if count > 0
            && let Some(now) = from.first_mut()
        {
            now.push(k);
        }
    }
    let mut done = vec![0; counts.len()];
    let mut ready = BinaryHeap::new();
    let mut order = Vec::with_capacity(total);
    for at in 0..total {
        for k in std::mem::take(&mut from[at]) {
            ready.push(Reverse((((done[k] + 1) * total).div_ceil(counts[k]), k)));
        }
        // Not empty: at most `at` entries were taken so far, and more have become eligible.
        let Some(Reverse((_, k))) = ready.pop() else { break };
        order.push(k);
        done[k] += 1;
        if done[k] < counts[k] {
            // Due in the past only if its share is all buckets.
            from[(done[k] * total / counts[k]).max(at + 1)].push(k);
        }
    }
    order
}

/// Changes the table from the bricks of `now` to those of `then`, both by ascending id; returns how many
/// buckets changed.
pub(super) fn reassign(table: &mut [u16], now: &[(u16, usize)], then: &[(u16, usize)]) -> usize {
    let mut ids: Vec<u16> = now.iter().chain(then).map(|&(id, _)| id).collect();
    ids.sort_unstable();
    ids.dedup();
    let place = |id: u16| ids.partition_point(|&other| other < id);
    let mut quotas = vec![0; ids.len()];
    for &(id, quota) in then {
        quotas[place(id)] = quota;
    }
    let old: Vec<usize> = table.iter().map(|&id| place(id)).collect();
    let mut work = Work::new(old, quotas);
    let changed = work.release();
    work.hand_out(&changed);
    work.smooth();
    for (bucket, &owner) in table.iter_mut().zip(&work.owner) {
        *bucket = ids[owner];
    }
    changed.len()
}

/// True when a bucket cannot have a brick.
pub(super) type Refuses<'a> = &'a dyn Fn(usize, usize) -> bool;

/// A row in which buckets that have changed from `old` to `owner` are exchanged as far as that makes distances more equal, changes
/// no further bucket and nobody `refuses`. Bricks are numbers below `quotas.len()`.
pub(super) fn smoothed(
    old: Vec<usize>,
    owner: Vec<usize>,
    quotas: Vec<usize>,
    refuses: Refuses<'_>,
) -> Vec<usize> {
    let mut work = Work { old, refuses, ..Work::new(owner, quotas) };
    work.smooth();
    work.owner
}

/// A table that is being changed. Bricks are numbers below `quotas.len()` here.
struct Work<'a> {
    /// The brick of each bucket before the change.
    old: Vec<usize>,
    /// The brick of each bucket now.
    owner: Vec<usize>,
    quotas: Vec<usize>,
    /// The buckets of each brick, ascending.
    buckets: Vec<Vec<usize>>,
    /// The index of each bucket among those of its brick.
    rank: Vec<usize>,
    /// The gains of moving the buckets of each brick, computed for each pass of [`Work::smooth`].
    moves: Vec<Moves>,
    refuses: Refuses<'a>,
}

impl Work<'_> {
    fn new(old: Vec<usize>, quotas: Vec<usize>) -> Work<'static> {
        let mut buckets = vec![Vec::new(); quotas.len()];
        let mut rank = vec![0; old.len()];
        for (bucket, &brick) in old.iter().enumerate() {
            rank[bucket] = buckets[brick].len();
            buckets[brick].push(bucket);
        }
        let refuses: Refuses<'_> = &|_, _| false;
        Work { owner: old.clone(), old, quotas, buckets, rank, moves: Vec::new(), refuses }
    }

    /// The buckets, ascending, that bricks above their quota give up: evenly spaced, and each from the brick
    /// that is furthest ahead of its share at that point.
    fn release(&mut self) -> Vec<usize> {
        let surplus =
            |(buckets, &quota): (&Vec<usize>, &usize)| buckets.len().saturating_sub(quota);
        let mut left: Vec<usize> = self.buckets.iter().zip(&self.quotas).map(surplus).collect();
        let total: usize = left.iter().sum();
        let mut released = vec![false; BUCKETS];
        let mut taken = vec![0; left.len()];
        for nr in 0..total {
            let ideal = (2 * nr + 1) * BUCKETS / (2 * total);
            let gap = BUCKETS.div_ceil(total);
            let lead = |bucket: usize| {
                let brick = self.old[bucket];
                let has =
                    ((self.rank[bucket] + 1) * BUCKETS) as i64 - (taken[brick] * BUCKETS) as i64;
                let lead = has - ((bucket + 1) * self.quotas[brick]) as i64;
                // A distance of a whole gap from the ideal position counts as much as one bucket of lead.
                let away = (bucket.abs_diff(ideal) * 128 / gap) as i64;
                (lead - away * away, Reverse(bucket))
            };
            // The search widens until it finds a brick that still has buckets to give up.
            let mut reach = gap;
            let best = loop {
                let near = ideal.saturating_sub(reach)..(ideal + reach + 1).min(BUCKETS);
                let free = |&bucket: &usize| !released[bucket] && left[self.old[bucket]] > 0;
                let best = near.filter(free).max_by_key(|&bucket| lead(bucket));
                if best.is_some() || reach > BUCKETS {
                    break best;
                }
                reach *= 2;
            };
            let Some(bucket) = best else { break };
            released[bucket] = true;
            taken[self.old[bucket]] += 1;
            left[self.old[bucket]] -= 1;
        }
        (0..BUCKETS).filter(|&bucket| released[bucket]).collect()
    }

    /// Gives each of these buckets to the brick that is furthest behind its share at that point.
    fn hand_out(&mut self, changed: &[usize]) {
        let mut wanting: Vec<(usize, usize)> = self
            .quotas
            .iter()
            .zip(&self.buckets)
            .enumerate()
            .filter(|(_, (quota, buckets))| **quota > buckets.len())
            .map(|(brick, (quota, buckets))| (brick, quota - buckets.len()))
            .collect();
        let mut given = vec![0; self.quotas.len()];
        for &bucket in changed {
            let lag = |&(brick, _): &(usize, usize)| {
                let own = self.buckets[brick].partition_point(|&other| other < bucket);
                let has = (own + given[brick]) * BUCKETS;
                ((bucket + 1) * self.quotas[brick]) as i64 - has as i64
            };
            // The first of those furthest behind. There is one, because as many buckets are wanted as were released.
            let most = (0..wanting.len()).max_by_key(|&at| (lag(&wanting[at]), Reverse(at)));
            let Some(at) = most else { break };
            let (brick, wants) = wanting[at];
            given[brick] += 1;
            self.owner[bucket] = brick;
            if wants == 1 {
                wanting.remove(at);
            } else {
                wanting[at].1 = wants - 1;
            }
        }
        self.buckets.iter_mut().for_each(Vec::clear);
        for (bucket, &brick) in self.owner.iter().enumerate() {
            self.rank[bucket] = self.buckets[brick].len();
            self.buckets[brick].push(bucket);
        }
    }

    /// Exchanges nearby buckets as long as that makes the distances within a brick more equal.
    fn smooth(&mut self) {
        let mut first = None;
        // If nothing near a bucket has changed, its best exchange was made in the previous pass.
        let mut stirred = vec![true; BUCKETS];
        for _ in 0..PASSES {
            self.moves = (0..self.quotas.len()).map(|brick| self.moves_of(brick)).collect();
            let mut changed: Vec<usize> =
                (0..BUCKETS).filter(|&at| self.owner[at] != self.old[at]).collect();
            let last = std::mem::replace(&mut stirred, vec![false; BUCKETS]);
            let reach = changed.len().min(NEAR);
            let mut sum = 0;
            for nr in 0..changed.len() {
                let one = changed[nr];
                if !last[one] && !stirred[one] {
                    continue;
                }
                let best = self
                    .candidates(&changed, nr)
                    .filter_map(|other| Some((self.gain(one, other)?, other)))
                    .max_by_key(|&(gain, other)| (gain, Reverse(one.abs_diff(other))));
                if let Some((gain, other)) = best
                    && gain > 0
                {
                    self.exchange(one, other);
                    if self.owner[one] == self.old[one] {
                        changed[nr] = other;
                    }
                    for &near in
                        &changed[nr.saturating_sub(reach)..(nr + reach + 1).min(changed.len())]
                    {
                        stirred[near] = true;
                    }
                    sum += gain;
                }
            }
            // Further passes would gain too little for their time.
            if sum <= *first.get_or_insert(sum) / 32 {
                return;
            }
        }
    }

    /// Candidates for an exchange: other changed buckets, and buckets that the old brick has kept.
    fn candidates<'a>(
        &'a self,
        changed: &'a [usize],
        nr: usize,
    ) -> impl Iterator<Item = usize> + 'a {
        let near = NEAR.min(2 * self.quotas.len());
        let others = nr.saturating_sub(near)..(nr + near + 1).min(changed.len());
        let one = changed[nr];
        let own = &self.buckets[self.old[one]];
        let behind = own.partition_point(|&bucket| bucket < one);
        let kept = behind.saturating_sub(KEPT)..(behind + KEPT).min(own.len());
        others.map(|at| changed[at]).chain(kept.map(|at| own[at]))
    }

    /// The gain of exchanging two buckets; `None` if that is not allowed.
    fn gain(&self, one: usize, other: usize) -> Option<i64> {
        let (u, v) = (self.owner[one], self.owner[other]);
        if u == v || (self.refuses)(one, v) || (self.refuses)(other, u) {
            return None;
        }
        let changes = |a: usize, b: usize| {
            usize::from(self.old[one] != a) + usize::from(self.old[other] != b)
        };
        if changes(v, u) > changes(u, v) {
            return None;
        }
        Some(self.worth(one, other) + self.worth(other, one))
    }

    /// The amount by which the error of the brick of `from` decreases when it gives that bucket for `to`.
    fn worth(&self, from: usize, to: usize) -> i64 {
        let brick = self.owner[from];
        let (own, rank, moves) = (&self.buckets[brick], self.rank[from], &self.moves[brick]);
        let behind = below(own, rank, to);
        // The ranks of the buckets between the two change by one.
        let (moved, then) = if to > from {
            (moves.down.of(rank + 1..behind), behind - 1)
        } else {
            (moves.up.of(behind..rank), behind)
        };
        let places = &moves.places;
        let gain = places.error(rank as i64, from) + moved - places.error(then as i64, to);
        // A brick that has buckets has a quota. Those of a brick with few stand for longer.
        gain * 8 / places.quota.max(1)
    }

    fn moves_of(&self, brick: usize) -> Moves {
        let quota = self.quotas[brick] as i64;
        let places = Places { quota, phase: self.phase(brick) };
        let own = || (0..).zip(&self.buckets[brick]);
        let down = own().map(|(rank, &bucket)| places.down(rank, bucket)).collect();
        let up = own().map(|(rank, &bucket)| places.up(rank, bucket)).collect();
        Moves { down: Sums::new(down), up: Sums::new(up), places }
    }

    /// The offset of the brick's buckets, on average.
    fn phase(&self, brick: usize) -> i64 {
        let own = &self.buckets[brick];
        let places = Places { quota: self.quotas[brick] as i64, phase: 0 };
        let sum: i64 = (0..).zip(own).map(|(rank, &bucket)| places.offset(rank, bucket)).sum();
        sum / (own.len().max(1)) as i64
    }

    fn exchange(&mut self, one: usize, other: usize) {
        let (u, v) = (self.owner[one], self.owner[other]);
        // The first replacement gives the second one's bucket another rank.
        let (of_one, of_other) = (self.rank[one], self.rank[other]);
        self.replace(u, of_one, other);
        self.replace(v, of_other, one);
        self.owner.swap(one, other);
    }

    fn replace(&mut self, brick: usize, rank: usize, to: usize) {
        let own = &mut self.buckets[brick];
        let from = own[rank];
        let (low, high) = if to > from {
            (rank, own.partition_point(|&bucket| bucket < to))
        } else {
            (own.partition_point(|&bucket| bucket < to), rank + 1)
        };
        own[rank] = to;
        let moved = &mut own[low..high];
        if to > from {
            moved.rotate_left(1)
        } else {
            moved.rotate_right(1)
        }
        let moves = &mut self.moves[brick];
        for (rank, &bucket) in (low..).zip(moved.iter()) {
            self.rank[bucket] = rank;
            moves.down.set(rank, moves.places.down(rank as i64, bucket));
            moves.up.set(rank, moves.places.up(rank as i64, bucket));
        }
    }
}

/// The number of ascending `buckets` that are less than `bucket`. The search begins at place `near`, and takes few steps
/// where the answer is not far from there.
fn below(buckets: &[usize], near: usize, bucket: usize) -> usize {
    let less = |at: usize| buckets.get(at).is_some_and(|&other| other < bucket);
    let mut step = 1;
    let (low, high) = if less(near) {
        while less(near + step) {
            step *= 2;
        }
        (near + step / 2, near + step)
    } else {
        while step <= near && !less(near - step) {
            step *= 2;
        }
        (near.saturating_sub(step), near - step / 2)
    };
    let high = high.min(buckets.len());
    let within = buckets.get(low..high).unwrap_or(&[]);
    low + within.partition_point(|&other| other < bucket)
}

/// The gain of moving buckets of one brick by one rank.
struct Moves {
    places: Places,
    /// By rank: by how much the error of that bucket gets less when its rank does.
    down: Sums,
    /// The same when it moves up.
    up: Sums,
}

/// Where the buckets of one brick would be at equal distances.
struct Places {
    /// Buckets of the brick.
    quota: i64,
    /// The offset that all of them may have.
    phase: i64,
}

impl Places {
    /// The distance of a bucket from its place at equal spacing: in parts of the brick's distance,
    /// to the fourth power (few large errors are worse than many small ones), for as long as it lasts.
    fn error(&self, rank: i64, bucket: usize) -> i64 {
        let error = (self.offset(rank, bucket) - self.phase) * 64 / BUCKETS as i64;
        let square = error.clamp(-0x800, 0x800).pow(2);
        square * square
    }

    fn down(&self, rank: i64, bucket: usize) -> i64 {
        self.error(rank, bucket) - self.error(rank - 1, bucket)
    }

    fn up(&self, rank: i64, bucket: usize) -> i64 {
        self.error(rank, bucket) - self.error(rank + 1, bucket)
    }

    /// Distance from the place of this rank, were the first one at 0, times the quota.
    fn offset(&self, rank: i64, bucket: usize) -> i64 {
        bucket as i64 * self.quota - rank * BUCKETS as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_found_from_wherever_the_search_begins() {
        for len in 0..40 {
            let buckets: Vec<usize> = (0..len).map(|at| at * 3 + 1).collect();
            for near in 0..len.max(1) {
                for bucket in 0..3 * len + 3 {
                    let all = buckets.partition_point(|&other| other < bucket);
                    assert_eq!(below(&buckets, near, bucket), all, "{len} {near} {bucket}");
                }
            }
        }
    }
}
