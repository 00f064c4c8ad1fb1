//! The stored form of a row of the table: little-endian; version (u16, 1), number of bricks n (u16), n brick ids (u16, ascending),
//! then for each bucket the index of its brick among those, in one byte if n is at most 256, else in two. A further row for
//! which there are too few bricks has no bricks and no buckets.

use super::{BUCKETS, Buckets, BucketsError, MAX_BRICKS, ROWS_MAX};
use std::collections::BTreeMap;

const VERSION: u16 = 1;
/// With more bricks a bucket takes two bytes.
const NARROW: usize = 256;

impl Buckets {
    /// Row 0 as bytes: a little more than 16 KiB with up to 256 bricks, else at most a little more than 40 KiB.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes_of(&self.table)
    }

    /// A further row as bytes; `None`: there is no such row.
    pub fn row_to_bytes(&self, row: usize) -> Option<Vec<u8>> {
        let row = self.further.get(row.checked_sub(1)?)?;
        match row.is_empty() {
            true => Some([VERSION.to_le_bytes(), [0, 0]].concat()),
            false => Some(self.bytes_of(row)),
        }
    }

    fn bytes_of(&self, row: &[u16]) -> Vec<u8> {
        let count = self.shares.len();
        let mut bytes = Vec::with_capacity(4 + 2 * count + 2 * BUCKETS);
        bytes.extend(VERSION.to_le_bytes());
        // At most MAX_BRICKS.
        bytes.extend((count as u16).to_le_bytes());
        bytes.extend(self.shares.iter().flat_map(|(id, _)| id.to_le_bytes()));
        for brick in row {
            let index = self.shares.partition_point(|(id, _)| id < brick) as u16;
            let [low, high] = index.to_le_bytes();
            bytes.push(low);
            if count > NARROW {
                bytes.push(high);
            }
        }
        bytes
    }

    /// Parses the result of [`Buckets::to_bytes`].
    ///
    /// # Errors
    /// When the bytes are not a table: wrong version or length, no or too many bricks, ids that do not ascend,
    /// a bucket without a brick.
    pub fn from_bytes(bytes: &[u8]) -> Result<Buckets, BucketsError> {
        let (table, shares) = parse(bytes)?;
        Ok(Buckets { table, shares, further: Vec::new(), labels: BTreeMap::new() })
    }

    /// Parses the result of [`Buckets::row_to_bytes`] as the next row of the table.
    ///
    /// # Errors
    /// Those of [`Buckets::from_bytes`]; when the table has all rows already, the bricks are not those of the table, or a
    /// bucket has the brick of a row above.
    pub fn read_row(&mut self, bytes: &[u8]) -> Result<(), BucketsError> {
        if self.rows() == ROWS_MAX {
            return Err(damaged("the number of rows", ROWS_MAX + 1, "4 at most"));
        }
        if bytes.get(2..4) == Some(&[0, 0]) && bytes.len() == 4 {
            self.further.push(Vec::new());
            return Ok(());
        }
        let (row, shares) = parse(bytes)?;
        let has = |count: usize| damaged("the number of bricks of a row", count, "that of row 0");
        if !shares.iter().map(|(id, _)| id).eq(self.shares.iter().map(|(id, _)| id)) {
            return Err(has(shares.len()));
        }
        for above in [&self.table].into_iter().chain(&self.further) {
            if above.is_empty() {
                return Err(damaged("a row's length", row.len(), "0, as that of the row above"));
            }
            if let Some((brick, _)) = row.iter().zip(above).find(|(one, other)| one == other) {
                return Err(damaged(
                    "a bucket's brick",
                    usize::from(*brick),
                    "one in one row only",
                ));
            }
        }
        self.further.push(row);
        Ok(())
    }
}

fn damaged(what: &'static str, found: usize, must: &'static str) -> BucketsError {
    BucketsError::Damaged { what, found, must }
}

/// Bricks by ascending id, with the number of their buckets.
type Shares = Vec<(u16, usize)>;

/// The bricks of a row's buckets, and its bricks.
fn parse(bytes: &[u8]) -> Result<(Vec<u16>, Shares), BucketsError> {
    let word = |at: usize| {
        let pair = bytes.get(at..at.checked_add(2)?)?;
        Some(usize::from(u16::from_le_bytes(pair.try_into().ok()?)))
    };
    let short = || damaged("its length", bytes.len(), "that of all buckets");
    let version = word(0).ok_or_else(short)?;
    if version != usize::from(VERSION) {
        return Err(damaged("its version", version, "1"));
    }
    let count = word(2).ok_or_else(short)?;
    if !(1..=MAX_BRICKS).contains(&count) {
        return Err(damaged("the number of bricks", count, "1 to 4096"));
    }
    let width = if count > NARROW { 2 } else { 1 };
    let head = 4 + 2 * count;
    if bytes.len() != head + width * BUCKETS {
        return Err(short());
    }
    let mut shares: Vec<(u16, usize)> = Vec::with_capacity(count);
    for at in 0..count {
        let id = word(4 + 2 * at).ok_or_else(short)?;
        if shares.last().is_some_and(|&(last, _)| usize::from(last) >= id) {
            return Err(damaged("a brick id", id, "above the one before"));
        }
        // Not truncated: a word has 16 bits.
        shares.push((id as u16, 0));
    }
    let mut table = Vec::with_capacity(BUCKETS);
    for bucket in bytes.get(head..).unwrap_or_default().chunks_exact(width) {
        let index = bucket.iter().rev().fold(0, |index, &byte| index << 8 | usize::from(byte));
        let Some((id, share)) = shares.get_mut(index) else {
            return Err(damaged("a bucket's brick", index, "below the number of bricks"));
        };
        *share += 1;
        table.push(*id);
    }
    Ok((table, shares))
}
