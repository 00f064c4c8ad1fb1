//! Checksums of blocks, and the table that they are kept in.
//!
//! The table is a run of sectors of [`SECTOR`] bytes, [`PER_SECTOR`] sums each, little-endian, and then the sector's own
//! sum. A sector reaches a disk as a whole or not at all, so after a power failure each one is old or new, never
//! a mixture. All sums are CRC-32C; each covers the number of its block or sector as well, so that a misdirected write
//! is detected.

use crate::region::BLOCK;
use crc_fast::{CrcAlgorithm::Crc32Iscsi, Digest};

/// Bytes that are written atomically.
pub(crate) const SECTOR: usize = 512;

/// Sums in a sector of the table.
pub(crate) const PER_SECTOR: usize = SECTOR / 4 - 1;

/// Sums in a block of the table.
pub(crate) const PER_BLOCK: usize = PER_SECTOR * (BLOCK / SECTOR);

/// The sum of a block whose content is unknown: it was never written, or its sector of the table was lost.
pub(crate) const UNKNOWN: u32 = 0;

/// The sum of `bytes` at place `number`; never [`UNKNOWN`].
pub(crate) fn sum(number: u64, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new(Crc32Iscsi);
    digest.update(&number.to_le_bytes());
    digest.update(bytes);
    // A checksum of 32 bits in 64.
    (digest.finalize() as u32).max(1)
}

/// Writes the sum of a sector's first bytes, as number `number`, into its last four.
pub(crate) fn seal(number: u64, sector: &mut [u8]) {
    if let Some((bytes, end)) = sector.split_last_chunk_mut::<4>() {
        *end = sum(number, bytes).to_le_bytes();
    }
}

/// True when [`seal`] has sealed the bytes and they have not changed since.
pub(crate) fn is_sealed(number: u64, sector: &[u8]) -> bool {
    sector
        .split_last_chunk::<4>()
        .is_some_and(|(bytes, end)| *end == sum(number, bytes).to_le_bytes())
}

/// Blocks of table that `blocks` sums take.
pub(crate) fn table_blocks(blocks: u64) -> u64 {
    blocks.div_ceil(PER_BLOCK as u64)
}

/// The sums of all blocks, in memory.
pub(crate) struct Sums {
    sums: Vec<u32>,
}

impl Sums {
    /// For `blocks` blocks, all unknown.
    pub(crate) fn new(blocks: u64) -> Sums {
        Sums { sums: vec![UNKNOWN; blocks as usize] }
    }

    /// For `blocks` blocks from now on, where that is more; those that come are unknown. Gives how many blocks the table
    /// had before.
    pub(crate) fn grow(&mut self, blocks: u64) -> u64 {
        let before = table_blocks(self.sums.len() as u64);
        let len = self.sums.len().max(blocks as usize);
        self.sums.resize(len, UNKNOWN);
        before
    }

    /// The sum of a block; unknown beyond the end.
    pub(crate) fn get(&self, block: u64) -> u32 {
        self.sums.get(block as usize).copied().unwrap_or(UNKNOWN)
    }

    /// Records the new content of a block.
    pub(crate) fn set(&mut self, block: u64, bytes: &[u8]) {
        if let Some(place) = self.sums.get_mut(block as usize) {
            *place = sum(block, bytes);
        }
    }

    /// True when a block has these bytes, as far as is known.
    pub(crate) fn agrees(&self, block: u64, bytes: &[u8]) -> bool {
        let known = self.get(block);
        known == UNKNOWN || known == sum(block, bytes)
    }

    /// The block of the table that has this block's sum.
    pub(crate) fn place(block: u64) -> u64 {
        block / PER_BLOCK as u64
    }

    /// Block `number` of the table.
    pub(crate) fn table_block(&self, number: u64) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK];
        let first_sector = number * (BLOCK / SECTOR) as u64;
        for (sector, out) in (first_sector..).zip(bytes.chunks_exact_mut(SECTOR)) {
            for (n, place) in out.chunks_exact_mut(4).take(PER_SECTOR).enumerate() {
                place.copy_from_slice(
                    &self.get(sector * PER_SECTOR as u64 + n as u64).to_le_bytes(),
                );
            }
            seal(sector, out);
        }
        bytes
    }

    /// Loads block `number` of a table. Returns its damaged sectors, by their number in the table; the sums in
    /// them stay unchanged.
    pub(crate) fn load(&mut self, number: u64, bytes: &[u8]) -> Vec<u64> {
        let first_sector = number * (BLOCK / SECTOR) as u64;
        let mut damaged = Vec::new();
        for (sector, stored) in (first_sector..).zip(bytes.chunks_exact(SECTOR)) {
            let first = (sector * PER_SECTOR as u64) as usize;
            let Some(places) = self.sums.get_mut(first..) else { break };
            if places.is_empty() {
                break;
            }
            if !is_sealed(sector, stored) {
                damaged.push(sector);
                continue;
            }
            for (place, value) in places.iter_mut().zip(stored.chunks_exact(4).take(PER_SECTOR)) {
                *place = value.try_into().map_or(UNKNOWN, u32::from_le_bytes);
            }
        }
        damaged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_back_and_a_damaged_sector_is_noticed() {
        let blocks = PER_BLOCK as u64 + 300;
        let mut sums = Sums::new(blocks);
        for block in [0, 1, 126, 127, 500, PER_BLOCK as u64, blocks - 1] {
            sums.set(block, &block.to_le_bytes());
        }
        let mut again = Sums::new(blocks);
        for number in 0..table_blocks(blocks) {
            assert_eq!(again.load(number, &sums.table_block(number)), []);
        }
        assert_eq!(again.sums, sums.sums);
        let mut bytes = sums.table_block(0);
        bytes[SECTOR] ^= 1;
        let mut damaged = Sums::new(blocks);
        assert_eq!(damaged.load(0, &bytes), [1]);
        assert_eq!((damaged.get(126), damaged.get(127)), (sums.get(126), UNKNOWN));
        // A misplaced block of the table must not be accepted.
        assert_eq!(damaged.load(0, &sums.table_block(1)).len(), BLOCK / SECTOR);
    }

    #[test]
    fn a_block_at_a_wrong_place_does_not_agree() {
        let mut sums = Sums::new(10);
        sums.set(3, b"content");
        assert!(sums.agrees(3, b"content") && !sums.agrees(3, b"contend"));
        sums.set(4, b"other");
        assert!(!sums.agrees(4, b"content"));
        assert!(sums.agrees(5, b"whatever"));
    }
}
