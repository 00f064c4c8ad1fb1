//! The number of buckets that each brick is to have in a further row.
//!
//! Up to each row together the bricks are to have buckets in proportion to their weights. No brick, or no domain where rows
//! go to distinct domains, can have more than one copy of a bucket: what the largest would have above that goes to the
//! others, in proportion to their weights.

use super::limits::BUCKETS;
use std::cmp::Reverse;

/// Halvings of an interval after which a `f64` does not change any more.
const HALVINGS: usize = 200;
/// Less than this is what sums of `f64` are wrong by.
const NOISE: f64 = 1e-6;

/// A brick, as a row sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sharer {
    /// Its weight.
    pub weight: u64,
    /// Bricks of the same group have no bucket in common; below the number of bricks.
    pub group: usize,
    /// Its buckets in the rows above.
    pub above: usize,
    /// The buckets that it could keep in this row.
    pub kept: usize,
}

impl Sharer {
    /// Buckets up to this row, at so many for each unit of weight.
    fn at(&self, level: f64) -> f64 {
        (self.weight as f64 * level).max(self.above as f64)
    }
}

/// The buckets of each brick in row number `row`. Their sum is [`BUCKETS`]. Of two numbers next to what is exact a brick gets the
/// one that is nearer to what it could keep.
pub(super) fn of_row(bricks: &[Sharer], row: usize) -> Vec<usize> {
    let groups = bricks.iter().map(|brick| brick.group + 1).max().unwrap_or(0);
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); groups];
    for (at, brick) in bricks.iter().enumerate() {
        members[brick.group].push(at);
    }
    let exact = exact(bricks, &members, row);
    let part: Vec<f64> =
        bricks.iter().zip(&exact).map(|(brick, exact)| exact - brick.above as f64).collect();
    let mut quotas: Vec<usize> = part.iter().map(|part| (part + NOISE).max(0.0) as usize).collect();
    let mut left = BUCKETS.saturating_sub(quotas.iter().sum());
    let mut room: Vec<usize> = members
        .iter()
        .map(|group| {
            let taken: usize = group.iter().map(|&at| bricks[at].above + quotas[at]).sum();
            BUCKETS.saturating_sub(taken)
        })
        .collect();
    let mut order: Vec<usize> = (0..bricks.len()).collect();
    order.sort_by_key(|&at| {
        let remainder = ((part[at] - quotas[at] as f64) / NOISE) as i64;
        (Reverse(bricks[at].kept > quotas[at]), Reverse(remainder), at)
    });
    while left > 0 {
        let before = left;
        for &at in &order {
            let room = &mut room[bricks[at].group];
            if left > 0 && *room > 0 {
                *room -= 1;
                left -= 1;
                quotas[at] += 1;
            }
        }
        if left == before {
            break;
        }
    }
    quotas
}

/// The buckets of each brick up to this row, were they no whole numbers.
fn exact(bricks: &[Sharer], members: &[Vec<usize>], row: usize) -> Vec<f64> {
    let most = BUCKETS as f64;
    let sum = |group: &[usize], level: f64| group.iter().map(|&at| bricks[at].at(level)).sum();
    let lightest = bricks.iter().map(|brick| brick.weight.max(1)).min().unwrap_or(1);
    // Each brick alone has all buckets then.
    let highest = (row + 1) as f64 * most / lightest as f64;
    let all =
        |level: f64| -> f64 { members.iter().map(|group| f64::min(most, sum(group, level))).sum() };
    let level = lowest(highest, |level| all(level) >= (row + 1) as f64 * most - NOISE);
    let mut exact = vec![0.0; bricks.len()];
    for group in members {
        let all: f64 = sum(group, level);
        let own = match all > most {
            true => lowest(level, |level| sum(group, level) >= most),
            false => level,
        };
        for &at in group {
            exact[at] = bricks[at].at(own);
        }
    }
    exact
}

/// The lowest level up to `highest` that is enough.
fn lowest(highest: f64, is_enough: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, highest);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if middle <= low || middle >= high {
            break;
        }
        if is_enough(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}
