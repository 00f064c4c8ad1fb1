//! The place of a write-intent bitmap, and the bytes that one of its bits covers, which decide on its size.

use super::error::PlacementError;

/// Sectors behind a 0.90 superblock, in the same 64 KiB, that a bitmap may take.
pub const V0_BITMAP_ROOM: u64 = 120;
/// Bytes that one bit of a bitmap covers unless asked for otherwise.
const BITMAP_CHUNK: u64 = 64 << 20;
/// Smallest bitmap chunk in bytes.
const BITMAP_CHUNK_MIN: u64 = 4096;

/// The bitmap's numbers.
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

/// Bytes for each bit of a bitmap: what is wanted, else 64 MiB, or the least that `fits`.
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
