//! The checksums of a file's blocks. One record holds those of a window of 256 consecutive blocks, 4 bytes each; at its end
//! those that are not known are left out.
//!
//! A checksum is the CRC32C (polynomial 1edc6f41) of the 4096 bytes of a block, as they are on the brick; 1 stands for 0, and
//! 0 says that the checksum is not known. It belongs to the block of the file, wherever that lies. One of a block that was never
//! written says nothing.

use super::{BLOCK, RecordError};
use crate::crc::checksum;

/// Blocks of one window: 1 MiB of a file.
pub const PER_WINDOW: u64 = 256;
/// Windows of one region, which is marked as a whole while blocks of it are written over.
pub const PER_REGION: u64 = 256;
/// Stands for a checksum that is not known.
pub const UNKNOWN: u32 = 0;

/// The checksum of a block of [`BLOCK`] bytes.
pub fn sum_of(block: &[u8]) -> u32 {
    debug_assert_eq!(block.len() as u64, BLOCK);
    checksum(block).max(1)
}

/// The record of a window; `None` when nothing is known, since such a window has no record.
pub fn encode(sums: &[u32]) -> Option<Vec<u8>> {
    let count = sums.iter().rposition(|sum| *sum != UNKNOWN)? + 1;
    Some(sums.iter().take(count).flat_map(|sum| sum.to_le_bytes()).collect())
}

/// Reads the record of window `window` of file `ino`: the checksums of its first blocks.
///
/// # Errors
/// When its length is wrong.
pub fn parse(ino: u64, window: u64, bytes: &[u8]) -> Result<Vec<u32>, RecordError> {
    let wrong = |why| RecordError::new(format!("checksums of file {ino}, window {window}"), why);
    let (sums, []) = bytes.as_chunks::<4>() else {
        return Err(wrong("not a whole number of checksums"));
    };
    if sums.len() as u64 > PER_WINDOW {
        return Err(wrong("too long"));
    }
    Ok(sums.iter().map(|sum| u32::from_le_bytes(*sum)).collect())
}

/// The mark of a region, of 256 windows of a file: an octet, then the bricks, two bytes each. Such a region has blocks that are being
/// written over in place (octet 1), or only copies that miss something (octet 2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntentRecord {
    /// Blocks are being written over: after a crash their checksums may be of before, and copies may differ.
    pub written_over: bool,
    /// The bricks whose copies of the region have lost something, and are not to be trusted.
    pub stale: Vec<u16>,
}

impl IntentRecord {
    /// The record; `None` when there is nothing to be said.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let kind = match (self.written_over, self.stale.is_empty()) {
            (true, _) => 1,
            (false, false) => 2,
            (false, true) => return None,
        };
        let mut bytes = vec![kind];
        bytes.extend(self.stale.iter().flat_map(|brick| brick.to_le_bytes()));
        Some(bytes)
    }

    /// Reads the record of region `region` of file `ino`.
    ///
    /// # Errors
    /// When its length is wrong, or there is no such kind.
    pub fn parse(ino: u64, region: u64, bytes: &[u8]) -> Result<IntentRecord, RecordError> {
        let wrong = |why| RecordError::new(format!("the mark of file {ino}, region {region}"), why);
        let (kind, bricks) = bytes.split_first().ok_or_else(|| wrong("empty"))?;
        let (bricks, []) = bricks.as_chunks::<2>() else {
            return Err(wrong("not a whole number of bricks"));
        };
        let stale = bricks.iter().map(|brick| u16::from_le_bytes(*brick)).collect();
        match kind {
            1 | 2 => Ok(IntentRecord { written_over: *kind == 1, stale }),
            _ => Err(wrong("no such kind")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_read_as_written_and_ends_with_the_last_that_is_known() {
        let sums = [7, UNKNOWN, u32::MAX, UNKNOWN];
        let bytes = encode(&sums).expect("some are known");
        assert_eq!(bytes.len(), 12);
        assert_eq!(parse(1, 0, &bytes), Ok(sums[..3].to_vec()));
        assert_eq!(encode(&[UNKNOWN; 9]), None);
        assert!(parse(1, 0, &bytes[..7]).is_err());
        assert!(parse(1, 0, &[1; 1028]).is_err());
    }

    #[test]
    fn a_mark_is_read_as_written() {
        for written_over in [true, false] {
            for stale in [vec![], vec![3, 4095]] {
                let mark = IntentRecord { written_over, stale };
                match mark.encode() {
                    Some(bytes) => assert_eq!(IntentRecord::parse(1, 2, &bytes), Ok(mark)),
                    None => assert_eq!(mark, IntentRecord::default()),
                }
            }
        }
        for damaged in [&[][..], &[3], &[1, 2]] {
            assert!(IntentRecord::parse(1, 2, damaged).is_err());
        }
    }

    #[test]
    fn no_block_has_the_sum_that_says_unknown() {
        // As published for 32 bytes of zeros: the register of CRC32C.
        assert_eq!(checksum(&[0; 32]), 0x8a91_36aa);
        assert_ne!(sum_of(&[0; BLOCK as usize]), UNKNOWN);
    }
}
