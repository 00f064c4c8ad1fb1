//! The distribution of the buckets of a further row: the bricks of the second, third and fourth copies.
//!
//! A bucket keeps its brick where it can, or takes over one that a row above has given up, which moves nothing. Bricks that
//! have too many give some up, evenly spaced; those that have too few get them, each bucket the brick that is furthest behind
//! its share, and of those the one that is together with the brick above it least often: when a brick is lost all
//! others make up for it. Where none that has too few may have a bucket, bricks pass buckets on until one can.

use super::limits::{BUCKETS, ROWS_MAX};
use super::quotas::{self, Sharer};
use super::spread::{self, Refuses};
use std::collections::{BTreeMap, HashMap, VecDeque};

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
        let taken: Vec<[usize; ROWS_MAX]> =
            (0..BUCKETS).map(|bucket| of_rows(self.above, |row| groups[row[bucket]])).collect();
        let had: Vec<[usize; ROWS_MAX]> =
            (0..BUCKETS).map(|bucket| of_rows(self.before, |row| row[bucket])).collect();
        let allows = |bucket: usize, brick: usize| !taken[bucket].contains(&groups[brick]);
        let mut work = Work {
            making: self,
            allows: &allows,
            had: &had,
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
}

/// One thing of each of these rows; [`NONE`] where there are no more rows.
fn of_rows(rows: &[Vec<usize>], of: impl Fn(&Vec<usize>) -> usize) -> [usize; ROWS_MAX] {
    let mut all = [NONE; ROWS_MAX];
    for (place, row) in all.iter_mut().zip(rows) {
        *place = of(row);
    }
    all
}

struct Work<'a, A> {
    making: &'a Making<'a>,
    allows: A,
    /// The bricks that each bucket had in the rows before.
    had: &'a [[usize; ROWS_MAX]],
    /// The brick of each bucket, or [`NONE`].
    owner: Vec<usize>,
    /// Buckets of each brick.
    has: Vec<usize>,
    quotas: Vec<usize>,
}

/// The buckets of each brick, ascending: all of them, or those that it did not have before.
struct Own {
    of: Vec<Vec<usize>>,
    any: bool,
    /// By two bricks: no bucket of the first below this one may go to the second.
    passable: HashMap<(usize, usize), usize>,
}

impl Own {
    fn new<A: Fn(usize, usize) -> bool>(work: &Work<'_, A>, any: bool) -> Own {
        let of = vec![Vec::new(); work.has.len()];
        let mut own = Own { of, any, passable: HashMap::new() };
        for (bucket, &brick) in work.owner.iter().enumerate() {
            if brick != NONE && own.lists(work, bucket, brick) {
                own.of[brick].push(bucket);
            }
        }
        own
    }

    fn lists<A: Fn(usize, usize) -> bool>(
        &self,
        work: &Work<'_, A>,
        bucket: usize,
        brick: usize,
    ) -> bool {
        self.any || !work.had(bucket, brick)
    }

    /// A bucket has gone from brick `from`, or from none, to brick `to`.
    fn moved<A: Fn(usize, usize) -> bool>(
        &mut self,
        work: &Work<'_, A>,
        bucket: usize,
        (from, to): (usize, usize),
    ) {
        if let Some(list) = self.of.get_mut(from)
            && let Ok(at) = list.binary_search(&bucket)
        {
            list.remove(at);
        }
        if self.lists(work, bucket, to)
            && let Err(at) = self.of[to].binary_search(&bucket)
        {
            self.of[to].insert(at, bucket);
            for other in (0..self.of.len()).filter(|&other| (work.allows)(bucket, other)) {
                if let Some(first) = self.passable.get_mut(&(to, other)) {
                    *first = bucket.min(*first);
                }
            }
        }
    }

    /// The first bucket of brick `from` that brick `to` may have.
    fn first<A: Fn(usize, usize) -> bool>(
        &mut self,
        work: &Work<'_, A>,
        (from, to): (usize, usize),
    ) -> Option<usize> {
        let own = &self.of[from];
        let first = self.passable.entry((from, to)).or_default();
        let begin = own.partition_point(|bucket| bucket < first);
        let found = own[begin..].iter().copied().find(|&bucket| (work.allows)(bucket, to));
        *first = found.unwrap_or(BUCKETS);
        found
    }
}

impl<A: Fn(usize, usize) -> bool> Work<'_, A> {
    fn had(&self, bucket: usize, brick: usize) -> bool {
        self.had[bucket].contains(&brick)
    }

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
                    let is_free = self.had(bucket, brick);
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
        if left.is_empty() {
            return;
        }
        let (mut new, mut all) = (Own::new(self, false), Own::new(self, true));
        // From these nothing leads to a brick that has too few: by buckets that change anyway, by any.
        let mut dead_by_new = vec![false; self.has.len()];
        let mut dead = vec![false; self.has.len()];
        for bucket in left {
            // At first only by buckets that change anyway.
            let mut moved = self.pass(bucket, &mut new, &mut dead_by_new);
            if moved.is_empty() {
                moved = self.pass(bucket, &mut all, &mut dead);
                // All that `bucket` leads to is dead; of another bucket that a brick gets that is not known.
                if moved.iter().any(|(other, (_, to))| *other != bucket && dead_by_new[*to]) {
                    dead_by_new.fill(false);
                }
            }
            if moved.is_empty() {
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
                    moved.push((bucket, (NONE, brick)));
                }
            }
            for (bucket, way) in moved {
                new.moved(self, bucket, way);
                all.moved(self, bucket, way);
            }
        }
    }

    /// Finds the shortest way on which bricks pass buckets of their `own` on from `bucket` to one that has too few, and goes it: gives
    /// each bucket with the bricks that it went from and to, none where there is no way. Bricks that it has looked at are `seen`.
    fn pass(
        &mut self,
        bucket: usize,
        own: &mut Own,
        seen: &mut [bool],
    ) -> Vec<(usize, (usize, usize))> {
        let count = self.has.len();
        // The bucket by which each brick was reached.
        let mut by = vec![NONE; count];
        let mut unseen: Vec<usize> = (0..count).filter(|&brick| !seen[brick]).collect();
        // The bricks whose buckets come next.
        let mut queue = VecDeque::new();
        let may = |brick: &usize| (self.allows)(bucket, *brick);
        let mut reached: Vec<(usize, usize)> =
            unseen.iter().copied().filter(may).map(|brick| (bucket, brick)).collect();
        loop {
            for &(from, brick) in &reached {
                seen[brick] = true;
                by[brick] = from;
                if self.has[brick] < self.quotas[brick] {
                    self.has[brick] += 1;
                    // Only a search that fails has seen what leads nowhere.
                    seen.iter_mut()
                        .zip(&by)
                        .filter(|(_, by)| **by != NONE)
                        .for_each(|(s, _)| *s = false);
                    return self.follow(bucket, brick, &by);
                }
                queue.push_back(brick);
            }
            unseen.retain(|&brick| !seen[brick]);
            let Some(next) = queue.pop_front() else { return Vec::new() };
            let first = |brick: &usize| Some((own.first(self, (next, *brick))?, *brick));
            reached = unseen.iter().filter_map(first).collect();
            reached.sort_unstable();
        }
    }

    /// Passes buckets on along the way that was found to `to`.
    fn follow(&mut self, first: usize, to: usize, by: &[usize]) -> Vec<(usize, (usize, usize))> {
        let (mut to, mut moved) = (to, Vec::new());
        loop {
            let bucket = by[to];
            let before = std::mem::replace(&mut self.owner[bucket], to);
            moved.push((bucket, (before, to)));
            if bucket == first {
                return moved;
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
                owner if self.had(bucket, owner) => owner,
                _ if first[bucket] == NONE => none,
                _ => first[bucket],
            })
            .collect();
        let mut quotas = self.has;
        quotas.push(0);
        let allows = &self.allows;
        let refuses: Refuses<'_> = &|bucket, brick| brick == none || !allows(bucket, brick);
        spread::smoothed(old, self.owner, quotas, refuses)
    }
}
