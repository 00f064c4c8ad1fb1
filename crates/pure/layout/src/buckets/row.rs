//! The distribution of the buckets of a further row: the bricks of the second, third and fourth copies.
//!
//! A bucket keeps its brick where it can, or takes over one that a row above has given up, which moves nothing. Bricks that
//! have too many give some up, evenly spaced; those that have too few get them, each bucket the brick that is furthest behind
//! its share, and of those the one that is together with the brick above it least often: when a brick is lost all
//! others make up for it. Where none that has too few may have a bucket, bricks pass buckets on until one can.

use super::limits::BUCKETS;
use super::quotas::{self, Sharer};
use super::spread::{self, Refuses};
use std::collections::{BTreeMap, VecDeque};

/// Takes the place of a brick where there is none.
pub(super) const NONE: usize = usize::MAX;
/// A brick that a bucket had before comes before all others.
const FREE: f64 = 1e9;

/// A row that is being made. Bricks are numbers below `weights.len()`.
pub(super) struct Making<'a> {
    /// The weight of each brick.
    pub weights: &'a [u64],
    /// The domain of each brick, a number below that of bricks.
    pub domains: &'a [usize],
    /// The rows above, each with a brick for each bucket, as they are now.
    pub above: &'a [Vec<usize>],
    /// The rows up to this one, as they were; [`NONE`] where a brick is gone or there was no row.
    pub before: &'a [Vec<usize>],
}

impl Making<'_> {
    /// The brick of each bucket; `None` when there are no more bricks than rows above.
    pub fn assign(&self) -> Option<Vec<usize>> {
        let row = self.above.len();
        if self.weights.len() <= row {
            return None;
        }
        let mut distinct = self.domains.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        // With too few domains it is enough that bricks differ.
        let each: Vec<usize> = (0..self.weights.len()).collect();
        let groups = if distinct.len() > row { self.domains } else { &each };
        let allows = |bucket: usize, brick: usize| {
            self.above.iter().all(|row| groups[row[bucket]] != groups[brick])
        };
        let mut work = Work {
            making: self,
            allows: &allows,
            owner: (0..BUCKETS).map(|bucket| self.kept(bucket, &allows)).collect(),
            has: vec![0; self.weights.len()],
            quotas: Vec::new(),
        };
        for &brick in work.owner.iter().filter(|&&brick| brick != NONE) {
            work.has[brick] += 1;
        }
        let sharers: Vec<Sharer> = (0..self.weights.len())
            .map(|brick| Sharer {
                weight: self.weights[brick],
                group: groups[brick],
                above: self.above.iter().flatten().filter(|&&other| other == brick).count(),
                kept: work.has[brick],
            })
            .collect();
        work.quotas = quotas::of_row(&sharers, row);
        let first = work.owner.clone();
        work.release();
        let left = work.hand_out();
        work.pass_on(left);
        // In a new row equal distances would always bring the same bricks together.
        let is_new = first.iter().all(|&brick| brick == NONE);
        Some(if is_new { work.owner } else { work.smooth(&first) })
    }

    /// The brick that a bucket can keep without a move.
    fn kept(&self, bucket: usize, allows: &dyn Fn(usize, usize) -> bool) -> usize {
        let had = self.before.iter().rev().map(|row| row[bucket]);
        let mut can = had.filter(|&brick| brick != NONE && allows(bucket, brick));
        can.next().unwrap_or(NONE)
    }

    fn had(&self, bucket: usize, brick: usize) -> bool {
        self.before.iter().any(|row| row[bucket] == brick)
    }
}

struct Work<'a> {
    making: &'a Making<'a>,
    allows: &'a dyn Fn(usize, usize) -> bool,
    /// The brick of each bucket, or [`NONE`].
    owner: Vec<usize>,
    /// Buckets of each brick.
    has: Vec<usize>,
    quotas: Vec<usize>,
}

impl Work<'_> {
    fn wanting(&self) -> Vec<usize> {
        (0..self.has.len()).filter(|&brick| self.has[brick] < self.quotas[brick]).collect()
    }

    /// Takes from bricks what they have above their quota: evenly spaced, of the buckets that a brick may have that has too
    /// few; others only where these are not enough.
    fn release(&mut self) {
        let wanting = self.wanting();
        let mut own: Vec<Vec<usize>> = vec![Vec::new(); self.has.len()];
        for (bucket, &brick) in self.owner.iter().enumerate() {
            if brick != NONE && self.has[brick] > self.quotas[brick] {
                own[brick].push(bucket);
            }
        }
        for (brick, own) in own.into_iter().enumerate() {
            let surplus = self.has[brick].saturating_sub(self.quotas[brick]);
            if surplus == 0 {
                continue;
            }
            let is_useful = |bucket: &usize| wanting.iter().any(|&to| (self.allows)(*bucket, to));
            let (useful, other): (Vec<_>, Vec<_>) = own.into_iter().partition(is_useful);
            let from_useful = surplus.min(useful.len());
            for (from, count) in [(useful, from_useful), (other, surplus - from_useful)] {
                for nr in 0..count {
                    self.owner[from[(2 * nr + 1) * from.len() / (2 * count)]] = NONE;
                }
            }
            self.has[brick] -= surplus;
        }
    }

    /// Gives buckets without a brick to those that have too few; gives those that none of them may have.
    fn hand_out(&mut self) -> Vec<usize> {
        let mut wanting = self.wanting();
        let mut passed = vec![0usize; self.has.len()];
        let mut left = Vec::new();
        // Buckets of each brick in the row above so far, and those of them with each brick in this row.
        let last = self.making.above.last();
        let mut above = vec![0usize; self.has.len()];
        let mut pairs: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for bucket in 0..BUCKETS {
            let mate = last.map_or(0, |row| row[bucket]);
            above[mate] += 1;
            if self.owner[bucket] == NONE {
                let behind = |brick: usize| {
                    let quota = self.quotas[brick] as f64 / BUCKETS as f64;
                    let lag = (bucket + 1) as f64 * quota - passed[brick] as f64;
                    let together = pairs.get(&(mate, brick)).copied().unwrap_or_default();
                    let apart = above[mate] as f64 * quota - together as f64;
                    let is_free = self.making.had(bucket, brick);
                    lag + apart / 2.0 + if is_free { FREE } else { 0.0 }
                };
                let mut best: Option<(f64, usize)> = None;
                for &brick in wanting.iter().filter(|&&brick| (self.allows)(bucket, brick)) {
                    let behind = behind(brick);
                    if best.is_none_or(|(most, _)| behind > most) {
                        best = Some((behind, brick));
                    }
                }
                let Some((_, brick)) = best else {
                    left.push(bucket);
                    continue;
                };
                self.owner[bucket] = brick;
                self.has[brick] += 1;
                if self.has[brick] == self.quotas[brick] {
                    wanting.retain(|&other| other != brick);
                }
            }
            let brick = self.owner[bucket];
            passed[brick] += 1;
            *pairs.entry((mate, brick)).or_default() += 1;
        }
        left
    }

    /// Gives a brick to each of these buckets, which none that has too few may have: another passes one of its own on.
    fn pass_on(&mut self, left: Vec<usize>) {
        // From these nothing leads to a brick that has too few.
        let mut dead = vec![false; self.has.len()];
        for bucket in left {
            // At first only by buckets that change anyway.
            let mut none = vec![false; self.has.len()];
            if !self.pass(bucket, false, &mut none) && !self.pass(bucket, true, &mut dead) {
                let bricks = 0..self.has.len();
                let above_quota = |brick: usize| {
                    self.has[brick] as f64 / self.making.weights[brick].max(1) as f64
                };
                let can = bricks.filter(|&brick| (self.allows)(bucket, brick));
                let best = can.min_by(|&one, &other| {
                    above_quota(one).total_cmp(&above_quota(other)).then(one.cmp(&other))
                });
                if let Some(brick) = best {
                    self.owner[bucket] = brick;
                    self.has[brick] += 1;
                }
            }
        }
    }

    /// Finds the shortest way on which bricks pass buckets on from `bucket` to one that has too few; `any`: also buckets
    /// that would not change. Bricks that it has looked at are `seen`.
    fn pass(&mut self, bucket: usize, any: bool, seen: &mut [bool]) -> bool {
        let count = self.has.len();
        let mut own: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (other, &brick) in self.owner.iter().enumerate() {
            if brick != NONE && (any || !self.making.had(other, brick)) {
                own[brick].push(other);
            }
        }
        // The bucket by which each brick was reached.
        let mut by = vec![NONE; count];
        let mut queue = VecDeque::from([bucket]);
        let mut unseen: Vec<usize> = (0..count).filter(|&brick| !seen[brick]).collect();
        while let Some(from) = queue.pop_front() {
            let mut reached = Vec::new();
            unseen.retain(|&brick| {
                let can = (self.allows)(from, brick);
                if can {
                    reached.push(brick);
                }
                !can
            });
            for brick in reached {
                seen[brick] = true;
                by[brick] = from;
                if self.has[brick] < self.quotas[brick] {
                    self.has[brick] += 1;
                    self.follow(bucket, brick, &by);
                    // Only a search that fails has seen what leads nowhere.
                    seen.iter_mut()
                        .zip(&by)
                        .filter(|(_, by)| **by != NONE)
                        .for_each(|(s, _)| *s = false);
                    return true;
                }
                queue.extend(std::mem::take(&mut own[brick]));
            }
        }
        false
    }

    /// Passes buckets on along the way that was found to `to`.
    fn follow(&mut self, first: usize, to: usize, by: &[usize]) {
        let mut to = to;
        loop {
            let bucket = by[to];
            let before = std::mem::replace(&mut self.owner[bucket], to);
            if bucket == first {
                return;
            }
            to = before;
        }
    }

    /// Makes the distances between the buckets of each brick more equal, where that moves no further bucket.
    fn smooth(self, first: &[usize]) -> Vec<usize> {
        // Stands for no brick.
        let none = self.has.len();
        let old: Vec<usize> = (0..BUCKETS)
            .map(|bucket| match self.owner[bucket] {
                owner if self.making.had(bucket, owner) => owner,
                _ if first[bucket] == NONE => none,
                _ => first[bucket],
            })
            .collect();
        let mut quotas = self.has;
        quotas.push(0);
        let allows = self.allows;
        let refuses: Refuses<'_> = &|bucket, brick| brick == none || !allows(bucket, brick);
        spread::smoothed(old, self.owner, quotas, refuses)
    }
}
