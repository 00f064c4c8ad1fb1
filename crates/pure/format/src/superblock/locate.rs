//! The location of a member's superblock, and the choice between several that are found on one device.

use super::error::SuperblockError;
use super::fields::Superblock;
use super::time::time_seconds;
use super::version::Version;
use std::ops::Range;

/// Sectors of 64 KiB: a 0.90 superblock is at the start of the last whole such unit.
const V0_UNIT: u64 = 128;

/// Sector of the superblock on a member of `dev_sectors`; `None` when the member is too small to hold
/// one there (24 sectors; for 0.90 256, so that something is left for data).
pub fn location(version: Version, dev_sectors: u64) -> Option<u64> {
    let least = if version == Version::V0_90 { 2 * V0_UNIT } else { 24 };
    if dev_sectors < least {
        return None;
    }
    Some(match version {
        Version::V0_90 => (dev_sectors & !(V0_UNIT - 1)) - V0_UNIT,
        Version::V1_0 => (dev_sectors - 16) & !7,
        Version::V1_1 => 0,
        Version::V1_2 => 8,
    })
}

/// The places at which a member of `dev_sectors` may have a superblock, in the order of [`Version::ALL`];
/// none when it is too small.
pub fn candidates(dev_sectors: u64) -> Vec<(Version, u64)> {
    Version::ALL.into_iter().filter_map(|m| Some((m, location(m, dev_sectors)?))).collect()
}

/// Decides from what was parsed at each of [`candidates`]: of several superblocks the one with the newest
/// ctime in seconds (0.90 has no finer ones), the first of equals; `None` when no place has the magic number.
///
/// # Errors
/// No valid superblock, and at least one place with a damaged or unsupported one: that one's error.
pub fn choose(
    parsed: impl IntoIterator<Item = Result<Superblock, SuperblockError>>,
) -> Result<Option<Superblock>, SuperblockError> {
    let mut best: Option<Superblock> = None;
    let mut damaged = None;
    for result in parsed {
        match result {
            Ok(found) => {
                if best.as_ref().is_none_or(|b| time_seconds(b.ctime) < time_seconds(found.ctime)) {
                    best = Some(found);
                }
            }
            Err(SuperblockError::NoMagic { .. }) => {}
            Err(error) => {
                damaged.get_or_insert(error);
            }
        }
    }
    match (best, damaged) {
        (Some(best), _) => Ok(Some(best)),
        (None, Some(error)) => Err(error),
        (None, None) => Ok(None),
    }
}

/// The partition that a 0.90 superblock on a whole device could equally belong to: one whose last whole 64 KiB are also the
/// device's. 0.90 does not record which of the two is the member, so the user must choose; 1.x records it in
/// `super_offset`. `partitions` in sectors of the device, as [`crate::signature::partitions`] gives
/// them.
///
/// A device without such a partition is a member as a whole.
pub fn v0_shared_with(dev_sectors: u64, partitions: &[Range<u64>]) -> Option<Range<u64>> {
    let whole = location(Version::V0_90, dev_sectors)?;
    let shared = |part: &&Range<u64>| {
        let inside = location(Version::V0_90, part.end.saturating_sub(part.start));
        inside.and_then(|at| part.start.checked_add(at)) == Some(whole)
    };
    partitions.iter().find(shared).cloned()
}
