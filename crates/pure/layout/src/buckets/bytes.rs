//! The stored form of the table: little-endian; version (u16, 1), number of bricks n (u16), n brick ids (u16, ascending),
//! then for each bucket the index of its brick among those, in one byte if n is at most 256, else in two.

use super::{BUCKETS, Buckets, BucketsError, MAX_BRICKS};

const VERSION: u16 = 1;
/// With more bricks a bucket takes two bytes.
const NARROW: usize = 256;

impl Buckets {
    /// The table as bytes: a little more than 16 KiB with up to 256 bricks, else at most a little more than 40 KiB.
    pub fn to_bytes(&self) -> Vec<u8> {
        let count = self.shares.len();
        let mut bytes = Vec::with_capacity(4 + 2 * count + 2 * BUCKETS);
        bytes.extend(VERSION.to_le_bytes());
        // At most MAX_BRICKS.
        bytes.extend((count as u16).to_le_bytes());
        bytes.extend(self.shares.iter().flat_map(|(id, _)| id.to_le_bytes()));
        for brick in &self.table {
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
        let damaged = |what, found, must| BucketsError::Damaged { what, found, must };
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
        Ok(Buckets { table, shares })
    }
}
