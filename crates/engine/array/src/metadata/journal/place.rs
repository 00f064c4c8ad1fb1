//! Where the ring of a new journal device lies, and how large it has to be.

use crate::metadata::journal::Begun;
use crate::metadata::journal::ring::Ring;
use braid_device::IoError;
use braid_format::journal::{BLOCK, BLOCK_SECTORS, Meta, Seed, ring_sectors};
use braid_format::placement::MemberPlace;
use braid_format::superblock::{Version, candidates};
use braid_shard::Shard;

/// Sectors that the superblock and the room behind it have at the start of a device: of a large one, and of a small one.
const BEFORE: [u64; 2] = [2048, 64];
/// Slots that an array with a journal may have: the payloads of a row of blocks stand in one meta block.
pub(crate) const SLOTS_MAX: usize = 200;

/// Blocks that the ring of an array must have with chunks of so many bytes and so many slots: a stripe, the meta blocks for
/// it, and an empty one.
pub(crate) fn blocks_needed(chunk: u64, slots: usize) -> u64 {
    let rows = chunk.div_ceil(BLOCK as u64);
    rows * (slots as u64 + 1) + 2
}

/// The places of the superblock and of the ring on a device of so many sectors. `None`: version 0.90, or no room at all.
pub(crate) fn journal_place(version: Version, sectors: u64) -> Option<MemberPlace> {
    let found = candidates(sectors).into_iter().find(|(known, _)| *known == version);
    let (_, super_offset) = found.filter(|_| version != Version::V0_90)?;
    let (data_offset, end) = match version.data_follows() {
        true => (BEFORE.into_iter().find(|before| sectors > 8 * before)?, sectors),
        false => (0, super_offset),
    };
    let data_size = ring_sectors(end.checked_sub(data_offset)?);
    (data_size > BLOCK_SECTORS).then_some(MemberPlace { data_offset, data_size, super_offset })
}

/// Makes the log of a new journal: an empty meta block at the start of the ring. `any` is the number that it begins with.
///
/// # Errors
/// The device does not take it.
pub(crate) async fn begin_log(
    shard: &Shard,
    ring: &Ring,
    set_uuid: &[u8; 16],
    any: u64,
) -> Result<Begun, IoError> {
    let begun = Begun { position: 0, seq: any & u64::from(u32::MAX) };
    let block = Meta::empty(begun.seq, 0).to_bytes(Seed::of(set_uuid)).unwrap_or([0; BLOCK]);
    ring.write(shard, 0, shard.pool().copy_of(&block).freeze()).await?;
    Ok(begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_takes_what_the_superblock_leaves() {
        let place = |version, sectors| {
            journal_place(version, sectors).map(|p| (p.super_offset, p.data_offset, p.data_size))
        };
        assert_eq!(place(Version::V1_2, 131_072), Some((8, 2048, 129_024)));
        assert_eq!(place(Version::V1_1, 4096), Some((0, 64, 4032)));
        assert_eq!(place(Version::V1_0, 131_079), Some((131_056, 0, 131_056)));
        assert_eq!((place(Version::V0_90, 131_072), place(Version::V1_2, 512)), (None, None));
        assert_eq!(blocks_needed(64 << 10, 4), 16 * 5 + 2);
    }
}
