//! The offset and size of a write-intent bitmap, and the choice of its chunk (the bytes that one bit covers).

use super::error::PlacementError;

/// Sectors behind a 0.90 superblock, in the same 64 KiB, that a bitmap may take.
pub const V0_BITMAP_ROOM: u64 = 120;
/// Bytes that one bit of a bitmap covers unless asked for otherwise.
const BITMAP_CHUNK: u64 = 64 << 20;
/// Smallest bitmap chunk in bytes.
const BITMAP_CHUNK_MIN: u64 = 4096;

/// The offset and size of a bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitmapPlace {
    /// Sectors from the superblock.
    pub offset: i32,
    /// Sectors of its area, in whole 4 KiB.
    pub sectors: u64,
    /// Bytes that one bit covers.
    pub chunk_bytes: u32,
    /// Sectors that the bitmap covers in all.
    pub sync_size: u64,
}

/// Chooses the bitmap chunk in bytes: `want` if given, else 64 MiB, or the smallest that `fits` if that is larger.
///
/// # Errors
/// A `want` that is no power of two or does not fit; no chunk that fits.
pub fn bitmap_chunk(want: Option<u32>, fits: impl Fn(u64) -> bool) -> Result<u32, PlacementError> {
    let mut least = BITMAP_CHUNK_MIN;
    while !fits(least) && least <= u64::from(u32::MAX) {
        least *= 2;
    }
    let chunk = match want {
        None => least.max(BITMAP_CHUNK),
        Some(want) if want.is_power_of_two() && u64::from(want) >= least => want.into(),
        Some(want) => return Err(PlacementError::BitmapChunk { want: want.into(), least }),
    };
    u32::try_from(chunk).map_err(|_| PlacementError::NoBitmapRoom)
}
