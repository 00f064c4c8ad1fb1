//! The placement of a partial parity log that is added to an existing array, as `mdadm --grow --consistency-policy=ppl` of
//! mdadm 4.2 does it: in the free space between superblock, bad-block log and data.

use super::error::PlacementError;
use crate::superblock::{Ppl, Superblock, Version};

/// Sectors reserved for the superblock of 1.1 and 1.2.
const SUPERBLOCK: u64 = 8;
/// Sectors of a header.
const HEADER: u64 = 8;
/// Sectors that a log takes where there is room for as many: a ring of several units.
const RING: u64 = 2048;
/// Sectors of partial parity that a log has room for otherwise, at least, where there is room for as many.
const PARTIAL: u64 = 256;

/// Places a log beside what `member` holds.
///
/// # Errors
/// A version that knows no log, or no room for a header and a block.
pub fn place_added_ppl(member: &Superblock) -> Result<Ppl, PlacementError> {
    let (offset, room) = match member.version {
        Version::V0_90 => {
            let what = "partial parity log";
            return Err(PlacementError::Version { version: member.version, what });
        }
        Version::V1_0 => {
            let data_end = member.data_offset.saturating_add(member.data_size);
            let gap =
                member.super_offset.saturating_sub(data_end).min(i16::MIN.unsigned_abs().into());
            let log = u64::from(member.bblog_offset.min(0).unsigned_abs());
            (-(gap as i64), gap.saturating_sub(log))
        }
        Version::V1_1 | Version::V1_2 => {
            let end = match u64::try_from(member.bblog_offset) {
                Ok(log) if log > 0 => log,
                _ => member.data_offset.saturating_sub(member.super_offset),
            };
            (SUPERBLOCK as i64, end.saturating_sub(SUPERBLOCK))
        }
    };
    let wanted = match room {
        RING.. => RING,
        _ => HEADER + u64::from(member.chunk_sectors).max(PARTIAL),
    };
    let size = room.min(wanted).min(u16::MAX.into());
    if size < HEADER + 8 {
        return Err(PlacementError::NoPplRoom);
    }
    // Both were cut to what fits.
    Ok(Ppl { offset: offset as i16, size: size as u16, multiple: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(version: Version, super_offset: u64, data_offset: u64) -> Superblock {
        let data_size = 100_000;
        let base = Superblock::empty(version);
        Superblock { super_offset, data_offset, data_size, chunk_sectors: 1024, ..base }
    }

    #[test]
    fn it_stands_behind_the_superblock_and_before_bad_block_log_and_data() {
        let wide = member(Version::V1_2, 8, 4096);
        let ppl = Ppl { offset: 8, size: 2048, multiple: false };
        assert_eq!(place_added_ppl(&wide), Ok(ppl));
        let logged = Superblock { bblog_offset: 264, bblog_size: 8, ..wide };
        assert_eq!(place_added_ppl(&logged), Ok(Ppl { size: 256, ..ppl }));
        let narrow = member(Version::V1_1, 0, 23);
        assert_eq!(place_added_ppl(&narrow), Err(PlacementError::NoPplRoom));
        let small = Superblock { chunk_sectors: 128, ..member(Version::V1_2, 8, 1024) };
        assert_eq!(place_added_ppl(&small), Ok(Ppl { size: 264, ..ppl }));
    }

    #[test]
    fn in_1_0_it_stands_between_the_data_and_the_superblock() {
        let wide =
            Superblock { bblog_offset: -8, bblog_size: 8, ..member(Version::V1_0, 103_000, 0) };
        let ppl = Ppl { offset: -3000, size: 2048, multiple: false };
        assert_eq!(place_added_ppl(&wide), Ok(ppl));
        assert!(place_added_ppl(&member(Version::V0_90, 103_000, 0)).is_err());
    }
}
