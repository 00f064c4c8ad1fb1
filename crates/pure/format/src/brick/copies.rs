//! The choice between a brick's two superblocks.
//!
//! They are written one after the other, and the device's cache is flushed after each, so that at any moment one of them
//! is complete.

use super::error::BrickError;
use super::superblock::BrickSuperblock;

/// One of the two superblocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Copy {
    /// The one at byte 0.
    First,
    /// The one at the end.
    Second,
}

/// The result of reading both copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The current superblock.
    pub superblock: BrickSuperblock,
    /// The copy it was read from.
    pub from: Copy,
    /// The other copy is older, damaged or unreadable, and must be written again.
    pub other_is_stale: bool,
    /// The defect of the other copy, if it is no superblock.
    pub other: Option<BrickError>,
}

/// Chooses the newer valid copy (the higher generation, then the later time): `first` is what was read at byte 0,
/// `second` what was read at `second_at`; `None` where it could not be read. On a device that
/// has grown the second copy is not at the end: compute its offset from the size in the first copy, if that can be read
/// ([`super::second_copy_at`]).
///
/// # Errors
/// - A version or feature of either copy that is not known. The other copy is then older than a change that this program
///   does not understand, so it must not be used either.
/// - [`BrickError::Overwritten`] if only the second copy is valid and the first 4096 bytes hold something else than a damaged
///   copy or zeros.
/// - [`BrickError::TwoBricks`] if the copies belong to different bricks.
/// - If neither is valid, the defect of the first copy; that of the second one if the first is no brick superblock or could
///   not be read.
pub fn choose(
    first: Option<&[u8]>,
    second: Option<(u64, &[u8])>,
    device_bytes: u64,
) -> Result<Chosen, BrickError> {
    let second_at = second.map_or(0, |(at, _)| at);
    let parse = |copy: Option<(u64, &[u8])>| match copy {
        Some((at, bytes)) => BrickSuperblock::parse(bytes, at, device_bytes),
        None => Err(BrickError::Unreadable),
    };
    let parsed = (parse(first.map(|bytes| (0, bytes))), parse(second));
    for error in [parsed.0.as_ref().err(), parsed.1.as_ref().err()].into_iter().flatten() {
        if matches!(error, BrickError::Version { .. } | BrickError::Features { .. }) {
            return Err(error.clone());
        }
    }
    match parsed {
        (Ok(one), Ok(two)) => {
            if (one.volume_uuid, one.brick_uuid) != (two.volume_uuid, two.brick_uuid) {
                return Err(BrickError::TwoBricks {
                    first: uuid::Uuid::from_bytes(one.brick_uuid),
                    second_at,
                    second: uuid::Uuid::from_bytes(two.brick_uuid),
                });
            }
            let other_is_stale = one != two;
            let age = |superblock: &BrickSuperblock| (superblock.generation, superblock.updated);
            let (superblock, from) =
                if age(&two) > age(&one) { (two, Copy::Second) } else { (one, Copy::First) };
            Ok(Chosen { superblock, from, other_is_stale, other: None })
        }
        (Ok(superblock), Err(error)) => {
            Ok(Chosen { superblock, from: Copy::First, other_is_stale: true, other: Some(error) })
        }
        (Err(error), Ok(superblock)) => {
            let zeros = first.is_none_or(|bytes| bytes.iter().all(|&byte| byte == 0));
            if matches!(error, BrickError::NotABrick { .. }) && !zeros {
                return Err(BrickError::Overwritten {
                    second_at,
                    brick_id: superblock.brick_id,
                    volume: superblock.volume_name.as_str().to_owned(),
                });
            }
            Ok(Chosen { superblock, from: Copy::Second, other_is_stale: true, other: Some(error) })
        }
        (Err(one), Err(two)) => {
            let says_more = |error: &BrickError| {
                !matches!(
                    error,
                    BrickError::NotABrick { .. }
                        | BrickError::Unreadable
                        | BrickError::TooShort { .. }
                )
            };
            Err(if says_more(&two) && !says_more(&one) { two } else { one })
        }
    }
}
