//! Placement of the stripes of a volume's files over its bricks: a table of [`BUCKETS`] buckets, which are assigned
//! to bricks in proportion to weights.
//!
//! The table decides where a new stripe goes, and which distribution counts as balanced. The position of each existing
//! stripe is recorded elsewhere, so a change of the table loses no data. A brick is known here by its id and weight only,
//! not by its content or free space.
//!
//! Consecutive stripes of a file are in consecutive buckets, and consecutive buckets alternate among the bricks
//! as evenly as their weights allow, so that a sequential read of a file keeps all bricks busy. A new table
//! is an exact schedule: up to any bucket, the number of a brick's buckets differs from its share by less than one.
//! After a change of weights [`Buckets::assign`] comes as close to that as the minimum number of changes allows.
//!
//! Files that have several copies have a brick for each of them: a table has up to [`ROWS_MAX`] rows (see
//! [`Buckets::make_rows`]).
//!
//! Invariant: a table has [`BUCKETS`] buckets, each assigned to a brick of the table, and to another in each further row;
//! the same calls give the same table.

mod bytes;
mod error;
mod limits;
mod quotas;
mod row;
mod rows;
#[cfg(test)]
mod rows_tests;
mod spread;
mod sums;
#[cfg(test)]
mod tests;

pub use error::BucketsError;
pub use limits::{BUCKETS, MAX_BRICKS, ROWS_MAX};

use std::collections::BTreeMap;

/// 2^64 divided by the golden ratio. However many multiples of it are taken modulo 2^64, they are distributed as
/// evenly as multiples of one number can be (Weyl's sequence).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// The upper 14 bits of 64 are the number of a bucket.
const TO_BUCKET: u32 = u64::BITS - BUCKETS.trailing_zeros();
/// Number of table entries that are tried for another brick before the bricks are tried in order.
const TRIES: u64 = 64;

/// The table: the brick of each bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Brick ids, [`BUCKETS`] of them.
    table: Vec<u16>,
    /// Every brick by ascending id, with its number of buckets. A brick whose weight is too small for a bucket
    /// is listed with zero.
    shares: Vec<(u16, usize)>,
    /// The bricks of each bucket's further copies, [`BUCKETS`] of them in each row; none in rows for which there are too few
    /// bricks.
    further: Vec<Vec<u16>>,
    /// The domains of bricks that are in one with others.
    labels: BTreeMap<u16, String>,
}

impl Buckets {
    /// A table for bricks with these ids and weights, in any order and any unit. Quotas follow the largest
    /// remainder method (among equal remainders the lowest id goes first), so each brick is within one bucket of its exact
    /// share. A brick whose weight is far below a 16384th of the sum may have no bucket: it gets stripes
    /// only by [`Buckets::next_other`], when every other brick is full.
    ///
    /// # Errors
    /// No brick, more than [`MAX_BRICKS`], an id twice, a weight of 0.
    pub fn new(weights: &[(u16, u64)]) -> Result<Buckets, BucketsError> {
        let quotas = spread::quotas(weights, &[])?;
        let counts: Vec<usize> = quotas.iter().map(|&(_, count)| count).collect();
        let ids = |index: usize| quotas.get(index).map_or(0, |&(id, _)| id);
        let table = spread::interleave(&counts).into_iter().map(ids).collect();
        Ok(Buckets { table, shares: quotas, further: Vec::new(), labels: BTreeMap::new() })
    }

    /// Changes the table to new weights with the fewest possible reassignments: their number is the sum by which
    /// the quotas of the growing bricks grow. Bricks may be
    /// added, removed or have another weight. Further rows follow. Returns how many copies of buckets changed; with one row
    /// that is how many buckets did. The quotas are those of [`Buckets::new`], but that among equal remainders a brick which
    /// would give a bucket away else goes first.
    ///
    /// # Errors
    /// Those of [`Buckets::new`]; the table is not changed then.
    pub fn assign(&mut self, weights: &[(u16, u64)]) -> Result<usize, BucketsError> {
        let quotas = spread::quotas(weights, &self.shares)?;
        let before = self.table.clone();
        let changed = spread::reassign(&mut self.table, &self.shares, &quotas);
        self.shares = quotas;
        match self.further.len() {
            0 => Ok(changed),
            had => Ok(self.follow(&before, weights, had)),
        }
    }

    /// Brick `new` gets the place of brick `old` in each bucket, which moves nothing between the others; `old` is none of the
    /// table's any more. The weights of [`assign`](Buckets::assign) are to name it from then on. Nothing happens where the table
    /// has no `old`, or has `new`.
    pub fn substitute(&mut self, old: u16, new: u16) {
        let place = |id: u16| self.shares.binary_search_by_key(&id, |&(id, _)| id);
        let (Ok(at), Err(_)) = (place(old), place(new)) else { return };
        if let Some((id, _)) = self.shares.get_mut(at) {
            *id = new;
        }
        self.shares.sort_unstable();
        for id in self.table.iter_mut().chain(self.further.iter_mut().flatten()) {
            if *id == old {
                *id = new;
            }
        }
    }

    /// The brick for stripe number `stripe` of file `ino`. The first buckets of files with consecutive numbers
    /// are distributed evenly over the table.
    pub fn brick_of(&self, ino: u64, stripe: u64) -> u16 {
        self.at(bucket(ino, stripe))
    }

    /// Another brick for a stripe whose own brick cannot be used (full, missing). Over many stripes, the bricks for which
    /// `is_usable` is true are chosen in proportion to their buckets; the choice is the same whenever the same bricks are
    /// usable. A brick without buckets is chosen only if no other is usable. `None` if none is. `is_usable` may be called
    /// several times for a brick.
    pub fn next_other(
        &self,
        ino: u64,
        stripe: u64,
        mut is_usable: impl FnMut(u16) -> bool,
    ) -> Option<u16> {
        let own = bucket(ino, stripe) as u64;
        // The neighbours of a brick's buckets often all belong to one other brick, so entries all over the table are
        // tried instead.
        let buckets = (0..TRIES).map(|nr| start(own + nr * BUCKETS as u64 + 1));
        for bucket in buckets {
            let brick = self.at(bucket);
            if is_usable(brick) {
                return Some(brick);
            }
        }
        let first = own as usize % self.shares.len().max(1);
        let bricks = self.shares.iter().cycle().skip(first).take(self.shares.len());
        let (some, none): (Vec<_>, Vec<_>) = bricks.partition(|(_, share)| *share > 0);
        some.into_iter().chain(none).map(|&(brick, _)| brick).find(|&brick| is_usable(brick))
    }

    /// Number of the brick's buckets; 0 for a brick that is not in the table.
    pub fn share(&self, brick: u16) -> usize {
        let found = self.shares.binary_search_by_key(&brick, |&(id, _)| id);
        found.ok().and_then(|at| self.shares.get(at)).map_or(0, |&(_, share)| share)
    }

    /// Every brick of the table, by ascending id, with its number of buckets.
    pub fn bricks(&self) -> impl ExactSizeIterator<Item = (u16, usize)> + '_ {
        self.shares.iter().copied()
    }

    fn at(&self, bucket: usize) -> u16 {
        // Never the default: the table has an entry for every bucket.
        self.table.get(bucket % BUCKETS).copied().unwrap_or_default()
    }
}

/// The bucket of a file's stripe.
fn bucket(ino: u64, stripe: u64) -> usize {
    // Both are below 2^14.
    (start(ino) + (stripe % BUCKETS as u64) as usize) % BUCKETS
}

fn start(nr: u64) -> usize {
    (nr.wrapping_mul(GOLDEN) >> TO_BUCKET) as usize
}
