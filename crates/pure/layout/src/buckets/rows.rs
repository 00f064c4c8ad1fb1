//! Rows of a table: for each bucket another brick for each further copy of its stripes.
//!
//! Row 0 is the table itself. Rows 1 to 3 are made when they are first asked for, and follow each change of weights. The bricks
//! of a bucket are distinct; they are in distinct domains in each row up to the number of domains. Up to any row together the
//! bricks have buckets in proportion to their weights, as far as that allows.
//!
//! A change moves the fewest copies, over all rows together: the bricks of a bucket count as a set, so that one that
//! goes from one row to another moves nothing.

use super::row::{Making, NONE};
use super::{BUCKETS, Buckets, BucketsError, ROWS_MAX, bucket};
use std::collections::BTreeMap;

/// Passes over the rows after a change, at most.
const PASSES_MAX: usize = 8;
/// Copies that a further pass moves over rows that are nearly at rest, at most.
const AT_REST: usize = BUCKETS / 100;

/// The copies in these rows that were in none of those `before`.
fn moved(before: &[Vec<usize>], rows: &[Vec<usize>]) -> usize {
    let is_new =
        |row: &Vec<usize>, bucket: usize| before.iter().all(|before| before[bucket] != row[bucket]);
    rows.iter().map(|row| (0..BUCKETS).filter(|&bucket| is_new(row, bucket)).count()).sum()
}

/// Rows `now` are worth the moves from `before`: they follow another row 0, bricks have other numbers of buckets, or fewer bricks of
/// a bucket are together in a domain. `domains` has a number for each brick's.
fn is_better(before: &[Vec<usize>], now: &[Vec<usize>], domains: &[usize]) -> bool {
    let counts = |rows: &[Vec<usize>]| {
        let mut counts = vec![vec![0; domains.len()]; rows.len()];
        for (row, counts) in rows.iter().zip(&mut counts) {
            for &brick in row.iter().filter(|brick| **brick != NONE) {
                counts[brick] += 1;
            }
        }
        counts
    };
    let together = |rows: &[Vec<usize>]| -> usize {
        let of = |bucket: usize, row: usize| domains.get(rows[row][bucket]);
        let is_with_one_above =
            |bucket: usize, row: usize| (0..row).any(|above| of(bucket, above) == of(bucket, row));
        let in_row = |row| (0..BUCKETS).filter(move |&bucket| is_with_one_above(bucket, row));
        (1..rows.len()).map(|row| in_row(row).count()).sum()
    };
    before[0] != now[0] || counts(before) != counts(now) || together(now) < together(before)
}

impl Buckets {
    /// The number of rows: 1 to [`ROWS_MAX`].
    pub fn rows(&self) -> usize {
        1 + self.further.len()
    }

    /// The brick for copy `copy` of stripe number `stripe` of file `ino`. `None`: the table has no such row, or no more bricks
    /// than that.
    pub fn brick_of_copy(&self, ino: u64, stripe: u64, copy: usize) -> Option<u16> {
        match copy.checked_sub(1) {
            None => Some(self.brick_of(ino, stripe)),
            Some(row) => self.further.get(row)?.get(bucket(ino, stripe)).copied(),
        }
    }

    /// Says which domain a brick is in. Bricks that have the same label are in the same domain; one whose label is empty is
    /// in a domain of its own. Rows follow at the next [`assign`](Buckets::assign) or [`make_rows`](Buckets::make_rows).
    pub fn set_domain(&mut self, brick: u16, label: &str) {
        match label {
            "" => self.labels.remove(&brick),
            label => self.labels.insert(brick, label.to_owned()),
        };
    }

    /// True when two bricks are in the same domain, as one is with itself.
    pub fn are_together(&self, one: u16, other: u16) -> bool {
        one == other
            || (self.labels.contains_key(&one) && self.labels.get(&one) == self.labels.get(&other))
    }

    /// Makes the table have at least `rows` rows, at most [`ROWS_MAX`], and lets those that it has follow these weights and
    /// the domains. Row 0 stays as it is. Returns how many copies belong elsewhere than before, for rows that there were.
    ///
    /// # Errors
    /// Those of [`Buckets::new`]; when the bricks are others than those of row 0.
    pub fn make_rows(
        &mut self,
        rows: usize,
        weights: &[(u16, u64)],
    ) -> Result<usize, BucketsError> {
        let quotas = super::spread::quotas(weights, &self.shares)?;
        if !quotas.iter().map(|(id, _)| id).eq(self.shares.iter().map(|(id, _)| id)) {
            return Err(BucketsError::OtherBricks);
        }
        let table = self.table.clone();
        let had = self.further.len();
        self.further.resize(rows.clamp(self.rows(), ROWS_MAX) - 1, Vec::new());
        Ok(self.follow(&table, weights, had))
    }

    /// Makes the further rows follow row 0, which was `before`. Of the copies in it and in the next `had` rows, gives the number of
    /// those that belong elsewhere now.
    pub(super) fn follow(&mut self, before: &[u16], weights: &[(u16, u64)], had: usize) -> usize {
        let weight_of: BTreeMap<u16, u64> = weights.iter().copied().collect();
        let ids: Vec<u16> = weight_of.keys().copied().collect();
        let place = |id: &u16| ids.binary_search(id).unwrap_or(NONE);
        let places = |row: &[u16]| match row.is_empty() {
            true => vec![NONE; BUCKETS],
            false => row.iter().map(place).collect(),
        };
        let weights: Vec<u64> = weight_of.values().copied().collect();
        let domains = self.domains_of(&ids);
        let mut old: Vec<Vec<usize>> = vec![places(before)];
        old.extend(self.further.iter().map(|row| places(row)));
        let table = places(&self.table);
        let make = |before: &[Vec<usize>]| {
            let mut above = vec![table.clone()];
            for row in 1..self.rows() {
                let making = Making {
                    weights: &weights,
                    domains: &domains,
                    above: &above,
                    before: &before[..=row],
                };
                match making.assign() {
                    Some(made) => above.push(made),
                    None => break,
                }
            }
            above
        };
        // A row that is made after others may leave them something to do. What stays then would move when nothing changes; and so would
        // copies that only change places.
        let mut above = old.clone();
        for pass in 0..PASSES_MAX {
            let made = make(&above);
            let is_whole = made.len() == self.rows();
            let stays = is_whole
                && (pass > 0 && moved(&above, &made) <= AT_REST
                    || !is_better(&above, &made, &domains));
            if !stays {
                above = made;
            }
            if stays || !is_whole {
                break;
            }
        }
        for (row, further) in self.further.iter_mut().enumerate() {
            *further = match above.get(row + 1) {
                Some(made) => made.iter().map(|&at| ids[at]).collect(),
                None => Vec::new(),
            };
        }
        moved(&old[..=had], &above[..above.len().min(had + 1)])
    }

    /// A number for the domain of each brick.
    fn domains_of(&self, ids: &[u16]) -> Vec<usize> {
        let mut first: BTreeMap<&str, usize> = BTreeMap::new();
        let number = |(at, id): (usize, &u16)| match self.labels.get(id) {
            Some(label) => *first.entry(label.as_str()).or_insert(at),
            None => at,
        };
        ids.iter().enumerate().map(number).collect()
    }
}
