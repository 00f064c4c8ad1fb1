//! The write-intent bitmap: which parts of the array may be written right now, on disk before they are.
//!
//! ```text
//!  write ─► intent (its shard): bit armed? ─ yes: counted, written
//!                    │ no: asked for, all of a turn together
//!                    ▼
//!           keeper (home): bit set, pages written to every member, durable ─► armed on that shard
//!                    ▲
//!           every daemon_sleep: shards give up bits without writes; members flushed; bits cleared
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `intent` | one shard's bits: counts of writes, which bits it may write under |
//! | `keeper` | the bits of the array, on the home shard; what may be cleared |
//! | `load` | reading members' bitmaps at assembly, and judging them |
//! | `ranges` | set bits as the byte ranges that a job goes through |
//!
//! Control (`control/bitmap.rs`) decides who writes pages, and when.
//!
//! A byte of a bitmap is a component byte at levels 4, 5 and 6 and an array byte at levels 1 and 10,
//! as in md.
//!
//! Invariant: a data write begins only when the bits over it are durable on all members that hold a
//! slot; a bit is cleared only when the writes under it have ended and are durable on all slots.

pub(crate) mod intent;
pub(crate) mod keeper;
pub(crate) mod load;
pub(crate) mod ranges;

use std::ops::Range;

/// Most bits that are kept: four times what mdadm's largest area holds. Bounds memory to some 20
/// bytes for each bit and shard.
pub(crate) const BITS_MAX: u64 = 1 << 22;

/// Which bitmap of a running array: one may be removed and another added.
pub(crate) type BitmapNr = u64;
/// The bitmap that an array is assembled with.
pub(crate) const FIRST_BITMAP: BitmapNr = 1;

/// The mapping of bytes to bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes for each bit are 2 to this.
    shift: u32,
    /// Number of bits.
    bits: u32,
}

impl Shape {
    /// `chunk_bytes` is a power of two; `bits` at most [`BITS_MAX`], more are cut off.
    pub(crate) fn new(chunk_bytes: u32, bits: u64) -> Shape {
        Shape { shift: chunk_bytes.trailing_zeros(), bits: bits.min(BITS_MAX) as u32 }
    }

    pub(crate) fn bits(self) -> u32 {
        self.bits
    }

    /// The bits over bytes `range`, which is not empty.
    #[inline]
    pub(crate) fn over(self, range: &Range<u64>) -> Range<u32> {
        // Cut to `bits`, which is a u32.
        let first = (range.start >> self.shift).min(self.bits.into()) as u32;
        let last = (range.end.saturating_sub(1) >> self.shift).saturating_add(1);
        first..last.min(self.bits.into()) as u32
    }

    /// The bytes under a bit; the last bit may reach beyond the array.
    pub(crate) fn bytes(self, bit: u32) -> Range<u64> {
        let start = u64::from(bit) << self.shift;
        start..start + (1 << self.shift)
    }
}
