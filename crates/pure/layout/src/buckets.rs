//! Placement of the stripes of a volume's files over its bricks: a table of [`BUCKETS`] buckets, each of them
//! a brick's, in proportion to weights.
//!
//! Says where a new stripe goes and what balanced means. Where a stripe is, is recorded elsewhere: a table that
//! changes loses nothing. Knows bricks by id and weight only, not what is on them or whether they are full.
//!
//! Consecutive stripes of a file are in consecutive buckets, and consecutive buckets alternate among the bricks
//! as evenly as their weights allow, so that who reads a file from its start keeps all bricks busy. A table made
//! anew is an exact schedule: up to any bucket each brick has its share of the buckets so far to within one.
//! After a change of weights [`Buckets::assign`] comes as near to it as the fewest possible changes allow.
//!
//! Invariant: a table holds [`BUCKETS`] buckets, each of them a brick's that the table knows; the same calls give
//! the same table.

mod bytes;
mod spread;
mod sums;
#[cfg(test)]
mod tests;

/// Number of buckets.
pub const BUCKETS: usize = 16384;
/// The most bricks that a table has: four buckets for each.
pub const MAX_BRICKS: usize = 4096;

/// 2^64 divided by the golden ratio: multiples of it, modulo 2^64, are spread as evenly as multiples of one
/// number can be, however many there are (Weyl's sequence).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// The upper 14 bits of 64 are the number of a bucket.
const TO_BUCKET: u32 = u64::BITS - BUCKETS.trailing_zeros();
/// Number of table entries tried for another brick before each brick is asked in order.
const TRIES: u64 = 64;

/// Why a table was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BucketsError {
    /// No brick to place anything on.
    #[error(
        "placing stripes: no brick is left to place them on; keep or add at least one data brick"
    )]
    NoBricks,
    /// More bricks than [`MAX_BRICKS`].
    #[error(
        "placing stripes: {bricks} bricks, and a volume has at most {MAX_BRICKS}; use arrays or larger devices as bricks"
    )]
    TooManyBricks {
        /// The number given.
        bricks: usize,
    },
    /// One id given twice.
    #[error(
        "placing stripes: brick {brick} is there twice; each brick of a volume needs an id of its own"
    )]
    Twice {
        /// The id.
        brick: u16,
    },
    /// A weight of zero.
    #[error(
        "placing stripes: the weight of brick {brick} is 0; give it one of at least 1, or remove the brick to take it out of use"
    )]
    NoWeight {
        /// The brick.
        brick: u16,
    },
    /// Stored bytes are not a table.
    #[error(
        "reading the table of buckets: {what} is {found}, which must be {must}; \
         the volume's metadata is damaged, check the volume"
    )]
    Damaged {
        /// Which number.
        what: &'static str,
        /// The value found.
        found: usize,
        /// The accepted values.
        must: &'static str,
    },
}

/// The table: which brick each bucket belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Brick ids, [`BUCKETS`] of them.
    table: Vec<u16>,
    /// Every brick by ascending id, with its number of buckets. A brick whose weight is too small for a bucket
    /// is here with none.
    shares: Vec<(u16, usize)>,
}

impl Buckets {
    /// A table for bricks with these ids and weights, in any order and of any unit. Quotas are by the largest
    /// remainder (among equal ones the lowest id goes first), so each brick is within one bucket of its exact
    /// share. A brick whose weight is far below a 16384th of the sum may have no bucket: it gets stripes
    /// only by [`Buckets::next_other`], when every other brick is full.
    ///
    /// # Errors
    /// No brick, more than [`MAX_BRICKS`], an id twice, a weight of 0.
    pub fn new(weights: &[(u16, u64)]) -> Result<Buckets, BucketsError> {
        let quotas = spread::quotas(weights)?;
        let counts: Vec<usize> = quotas.iter().map(|&(_, count)| count).collect();
        let ids = |place: usize| quotas.get(place).map_or(0, |&(id, _)| id);
        let table = spread::interleave(&counts).into_iter().map(ids).collect();
        Ok(Buckets { table, shares: quotas })
    }

    /// Gives each brick the buckets that are its due by the new weights, and takes the fewest from the others:
    /// as many change their brick as the quotas of the bricks that get more grow by, in sum. Bricks may be
    /// new, gone or of another weight. Returns how many buckets changed. The quotas are those of
    /// [`Buckets::new`].
    ///
    /// # Errors
    /// Those of [`Buckets::new`]; the table is then as it was.
    pub fn assign(&mut self, weights: &[(u16, u64)]) -> Result<usize, BucketsError> {
        let quotas = spread::quotas(weights)?;
        let changed = spread::reassign(&mut self.table, &self.shares, &quotas);
        self.shares = quotas;
        Ok(changed)
    }

    /// The brick for stripe number `stripe` of file `ino`. Files with consecutive numbers begin at places that
    /// are spread evenly over the table.
    pub fn brick_of(&self, ino: u64, stripe: u64) -> u16 {
        self.at(bucket(ino, stripe))
    }

    /// A usable brick for a stripe whose own brick is not usable (full, gone): those for which `is_usable`
    /// answers true, in proportion to their buckets, and the same one whenever the same bricks are usable.
    /// A brick without buckets is chosen when no other is usable. `None` when none is. A brick may be asked
    /// for several times.
    pub fn next_other(
        &self,
        ino: u64,
        stripe: u64,
        mut is_usable: impl FnMut(u16) -> bool,
    ) -> Option<u16> {
        let own = bucket(ino, stripe) as u64;
        // The neighbours of a brick's buckets are often all one brick's; places spread over the table are not.
        let places = (0..TRIES).map(|nr| start(own + nr * BUCKETS as u64 + 1));
        for place in places {
            let brick = self.at(place);
            if is_usable(brick) {
                return Some(brick);
            }
        }
        let first = own as usize % self.shares.len().max(1);
        let bricks = self.shares.iter().cycle().skip(first).take(self.shares.len());
        let (some, none): (Vec<_>, Vec<_>) = bricks.partition(|(_, share)| *share > 0);
        some.into_iter().chain(none).map(|&(brick, _)| brick).find(|&brick| is_usable(brick))
    }

    /// Number of the brick's buckets; 0 for one that the table does not know.
    pub fn share(&self, brick: u16) -> usize {
        let found = self.shares.binary_search_by_key(&brick, |&(id, _)| id);
        found.ok().and_then(|at| self.shares.get(at)).map_or(0, |&(_, share)| share)
    }

    /// Every brick that the table knows, by ascending id, with its number of buckets.
    pub fn bricks(&self) -> impl ExactSizeIterator<Item = (u16, usize)> + '_ {
        self.shares.iter().copied()
    }

    fn at(&self, bucket: usize) -> u16 {
        // The table has a place for every bucket.
        self.table.get(bucket % BUCKETS).copied().unwrap_or_default()
    }
}

/// The bucket of a file's stripe.
fn bucket(ino: u64, stripe: u64) -> usize {
    // Below 2^14 both.
    (start(ino) + (stripe % BUCKETS as u64) as usize) % BUCKETS
}

fn start(nr: u64) -> usize {
    (nr.wrapping_mul(GOLDEN) >> TO_BUCKET) as usize
}
