//! The bad-block log of a member: ranges that cannot be read there and must be read from other members.
//!
//! Owns the format of the log, and does no I/O. Sectors are counted from the start of the member, so the data offset is
//! already included.
//!
//! Invariant: what [`encode`] writes covers every sector of every range it was given, and [`parse`] reads
//! it back.
//!
//! Source of the format: Linux `drivers/md/md.c` (super_1_load, super_1_sync).

use crate::SECTOR;
use std::ops::Range;

/// Longest entry that is written, in units of `1 << shift` sectors.
const ENTRY_MAX: u64 = 512;
/// Low bits of an entry that are its length.
const LENGTH_BITS: u32 = 10;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;
/// Marks the end of the list; also fills the rest of the log.
const END: u64 = u64::MAX;
const ENTRY_LEN: usize = 8;

/// An error in reading or writing a bad-block log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBlocksError {
    /// An entry names no sector.
    #[error(
        "bad-block log: entry {index} ({entry:#018x}) has length 0; the log is damaged, \
         so what is lost on this member is unknown: leave the member out and rebuild it"
    )]
    ZeroLength {
        /// Number of the entry, from 0.
        index: usize,
        /// The entry.
        entry: u64,
    },
    /// An entry points beyond any device.
    #[error(
        "bad-block log: entry {index} ({entry:#018x}, shift {shift}) lies beyond the largest possible sector; \
         the log is damaged: leave the member out and rebuild it"
    )]
    Beyond {
        /// Number of the entry, from 0.
        index: usize,
        /// The entry.
        entry: u64,
        /// bblog_shift.
        shift: u8,
    },
    /// The ranges do not fit the log.
    #[error(
        "bad-block log: {need} entries are needed and the log holds {room}; \
         the member has too many bad blocks and must be failed"
    )]
    Full {
        /// Entries needed.
        need: usize,
        /// Entries that fit.
        room: usize,
    },
    /// A range cannot be expressed in an entry.
    #[error(
        "bad-block log: sectors {start}..{end} with shift {shift} cannot be expressed (54 bits of start); the member must be failed"
    )]
    Unwritable {
        /// First sector.
        start: u64,
        /// Sector after the last.
        end: u64,
        /// bblog_shift.
        shift: u8,
    },
}

/// Reads a log: `bytes` are its `bblog_size` sectors, `shift` is bblog_shift. The ranges of member sectors
/// come in the order found; they may overlap. A partial entry at the end of `bytes` is ignored.
///
/// # Errors
/// An entry of length 0, or one beyond 2^64 sectors.
pub fn parse(bytes: &[u8], shift: u8) -> Result<Vec<Range<u64>>, BadBlocksError> {
    let mut ranges = Vec::new();
    for (index, entry) in bytes.chunks_exact(ENTRY_LEN).enumerate() {
        // `chunks_exact` yields eight bytes.
        let entry = u64::from_le_bytes(entry.try_into().unwrap_or_default());
        if entry == END {
            break;
        }
        let length = entry & LENGTH_MASK;
        if length == 0 {
            return Err(BadBlocksError::ZeroLength { index, entry });
        }
        let first = entry >> LENGTH_BITS;
        let start = scale(first, shift);
        let end = scale(first + length, shift);
        let (Some(start), Some(end)) = (start, end) else {
            return Err(BadBlocksError::Beyond { index, entry, shift });
        };
        ranges.push(start..end);
    }
    Ok(ranges)
}

/// `units << shift`, when it fits.
fn scale(units: u64, shift: u8) -> Option<u64> {
    1u64.checked_shl(shift.into()).and_then(|unit| units.checked_mul(unit))
}

/// Writes a log of `log_sectors` sectors that covers `ranges`: sorted, merged, split into entries of at most
/// 512 units, each range widened to whole units of `1 << shift` sectors. Empty ranges are left out.
///
/// # Errors
/// More entries than fit, or a range whose start needs more than 54 bits.
pub fn encode(
    ranges: &[Range<u64>],
    shift: u8,
    log_sectors: u16,
) -> Result<Vec<u8>, BadBlocksError> {
    let len = usize::from(log_sectors) * SECTOR;
    let room = len / ENTRY_LEN;
    let mut entries = Vec::new();
    let mut need = 0usize;
    for (first, end) in whole_units(ranges, shift)? {
        let count = (end - first).div_ceil(ENTRY_MAX);
        need = need.saturating_add(usize::try_from(count).unwrap_or(usize::MAX));
        if need > room {
            // Count the rest, so that the error says how many entries are needed.
            continue;
        }
        let mut at = first;
        while at < end {
            let length = ENTRY_MAX.min(end - at);
            entries.push(at << LENGTH_BITS | length);
            at += length;
        }
    }
    if need > room {
        return Err(BadBlocksError::Full { need, room });
    }
    let mut bytes: Vec<u8> = entries.into_iter().flat_map(u64::to_le_bytes).collect();
    bytes.resize(len, 0xff);
    Ok(bytes)
}

/// The ranges as merged, sorted, non-empty (first, end) in units.
fn whole_units(ranges: &[Range<u64>], shift: u8) -> Result<Vec<(u64, u64)>, BadBlocksError> {
    let mut units = Vec::with_capacity(ranges.len());
    for range in ranges.iter().filter(|range| !range.is_empty()) {
        let fail = || BadBlocksError::Unwritable { start: range.start, end: range.end, shift };
        let unit = 1u64.checked_shl(shift.into()).ok_or_else(fail)?;
        let (first, end) = (range.start / unit, range.end.div_ceil(unit));
        // An entry has 54 bits for its start, and every entry of the range starts below `end`.
        if end > 1 << (u64::BITS - LENGTH_BITS) {
            return Err(fail());
        }
        units.push((first, end));
    }
    units.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(units.len());
    for (first, end) in units {
        match merged.last_mut() {
            Some(last) if first <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((first, end)),
        }
    }
    Ok(merged)
}

#[cfg(test)]
// Lists of one range are meant here.
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_entry_is_start_times_1024_plus_length() {
        let bytes = encode(&[2348..2356], 0, 8).unwrap();
        assert_eq!(bytes.len(), 4096);
        assert_eq!(bytes[..8], (2348u64 << 10 | 8).to_le_bytes());
        assert!(bytes[8..].iter().all(|&b| b == 0xff));
    }

    #[test]
    fn long_ranges_are_split_and_touching_ones_merged() {
        let bytes = encode(&[600..1000, 0..600], 0, 8).unwrap();
        assert_eq!(parse(&bytes, 0).unwrap(), [0..512, 512..1000]);
    }

    #[test]
    fn a_shift_widens_to_whole_units() {
        let bytes = encode(&[9..17], 3, 8).unwrap();
        assert_eq!(parse(&bytes, 3).unwrap(), [8..24]);
    }

    #[test]
    fn a_log_that_is_full_says_how_much_is_missing() {
        let ranges: Vec<_> = (0..65u64).map(|i| i * 10..i * 10 + 1).collect();
        assert_eq!(encode(&ranges, 0, 1), Err(BadBlocksError::Full { need: 65, room: 64 }));
        assert!(encode(&ranges[..64], 0, 1).is_ok());
        let all = encode(&[0..1 << 54], 0, 8);
        assert_eq!(all, Err(BadBlocksError::Full { need: 1 << 45, room: 512 }));
    }

    #[test]
    fn zeros_are_no_list() {
        assert!(matches!(parse(&[0; 512], 0), Err(BadBlocksError::ZeroLength { index: 0, .. })));
    }

    #[test]
    fn a_start_of_more_than_54_bits_is_refused() {
        assert!(matches!(
            encode(&[1 << 54..(1 << 54) + 1], 0, 8),
            Err(BadBlocksError::Unwritable { .. })
        ));
        assert!(encode(&[1 << 54..(1 << 54) + 1], 1, 8).is_ok());
        let last = (1 << 54) - 1;
        let bytes = encode(&[last..1 << 54], 0, 1).unwrap();
        assert_eq!(parse(&bytes, 0).unwrap(), [last..1 << 54]);
    }

    proptest! {
        #[test]
        fn what_is_written_covers_exactly_the_units_of_the_ranges(
            ranges in prop::collection::vec((0u64..4000, 1u64..900).prop_map(|(s, l)| s..s + l), 0..20),
            shift in 0u8..4,
        ) {
            let read = parse(&encode(&ranges, shift, 8).unwrap(), shift).unwrap();
            for sector in 0u64..5000 {
                let unit = sector >> shift << shift;
                let want = ranges.iter().any(|r| r.start < unit + (1 << shift) && unit < r.end);
                prop_assert_eq!(read.iter().any(|r| r.contains(&sector)), want, "sector {}", sector);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..600), shift: u8) {
            let _ = parse(&bytes, shift);
        }

        #[test]
        fn no_ranges_make_it_panic(ranges in prop::collection::vec(any::<Range<u64>>(), 0..9), shift: u8) {
            let _ = encode(&ranges, shift, 8);
        }
    }
}
