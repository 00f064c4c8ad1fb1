//! The extents of a file's stripes. One record holds those of up to 64 stripes, 16 bytes each; holes at its end are left
//! out:
//!
//! ```text
//! start u64 | written u32 | blocks u16 | brick u16
//! ```
//! `start` counts blocks of the brick's data area. The extent holds the first `blocks` blocks of the stripe; `blocks`
//! is 0 for a hole. Its bit 15 says that the extent is common: other stripes may have it, too. Bit n of `written` says that sub-block n of the stripe has been written; others read as zero. A
//! sub-block is a 32nd of a stripe, and at least a block.
//!
//! A stripe of which there are copies has an extent for each, of its own length. Copy n is recorded as another stripe: n stands
//! in the number's upper four bits. A sub-block is written if any copy has its bit; a copy that does not have it
//! then has missed a write.

use super::{BLOCK, RecordError};

/// Stripes of one record.
pub const PER_GROUP: u64 = 64;
/// Bytes of one extent.
pub const EXTENT_LEN: usize = 16;
/// Copies that a stripe can have.
pub const COPIES_MAX: u8 = 4;
/// The copy stands in the bits of a stripe's number from this one on. The largest file has fewer than 2^50 stripes.
const COPY_SHIFT: u32 = 60;
/// Set in `blocks` of an extent that is common.
const COMMON: u16 = 1 << 15;
/// Smallest and largest stripe, in bytes: 16 KiB to 64 MiB, so that `blocks` fits, with a bit left.
pub const STRIPE_RANGE: std::ops::RangeInclusive<u64> = 16 << 10..=64 << 20;

/// The extent of one stripe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// First block, of the brick's data area.
    pub start: u64,
    /// Granules that have been written.
    pub written: u32,
    /// Blocks; 0: a hole, the other fields are 0 too.
    pub blocks: u16,
    /// The brick's number.
    pub brick: u16,
    /// Other stripes may have it, too: the owners of a common extent have records, by its [place](Extent::place).
    pub common: bool,
}

/// Where an extent begins: the brick, and the block of its data area.
pub type Place = (u16, u64);

impl Extent {
    /// No extent.
    pub const HOLE: Extent = Extent { start: 0, written: 0, blocks: 0, brick: 0, common: false };

    /// Where it begins.
    pub fn place(&self) -> Place {
        (self.brick, self.start)
    }

    /// True when the stripe has no extent.
    pub fn is_hole(&self) -> bool {
        self.blocks == 0
    }
}

/// The number under which copy `copy` of a stripe is recorded, which is given without one; from 0 on.
pub fn of_copy(stripe: u64, copy: u8) -> u64 {
    stripe | u64::from(copy) << COPY_SHIFT
}

/// The copy that such a number is about.
pub fn copy_of(number: u64) -> u8 {
    // Four bits are left.
    (number >> COPY_SHIFT) as u8
}

/// The stripe that such a number is about: the number of its copy 0.
pub fn stripe_of(number: u64) -> u64 {
    number & ((1 << COPY_SHIFT) - 1)
}

/// The first group of extents of copy `copy`, where group 0 is the first of copy 0.
pub fn groups_of_copy(copy: u8) -> u64 {
    of_copy(0, copy) / PER_GROUP
}

/// Bytes of a sub-block of a volume whose stripes have `stripe` bytes, a power of two.
pub fn sub_block(stripe: u64) -> u64 {
    (stripe / 32).max(BLOCK)
}

/// The record of `extents`; `None` when all are holes, since such a group has no record.
pub fn encode(extents: &[Extent]) -> Option<Vec<u8>> {
    let count = extents.iter().rposition(|extent| !extent.is_hole())? + 1;
    let mut bytes = Vec::with_capacity(count * EXTENT_LEN);
    for extent in &extents[..count] {
        bytes.extend_from_slice(&extent.start.to_le_bytes());
        bytes.extend_from_slice(&extent.written.to_le_bytes());
        let flag = if extent.common { COMMON } else { 0 };
        bytes.extend_from_slice(&(extent.blocks | flag).to_le_bytes());
        bytes.extend_from_slice(&extent.brick.to_le_bytes());
    }
    Some(bytes)
}

/// Reads the record of group `group` of file `ino`, of a volume whose stripes have `stripe` bytes.
///
/// # Errors
/// When its length is wrong, or an extent is larger than a stripe.
pub fn parse(
    ino: u64,
    group: u64,
    stripe: u64,
    bytes: &[u8],
) -> Result<[Extent; PER_GROUP as usize], RecordError> {
    let wrong = |why| RecordError::new(format!("extents of file {ino}, group {group}"), why);
    let (rows, []) = bytes.as_chunks::<EXTENT_LEN>() else {
        return Err(wrong("not a whole number of extents"));
    };
    if rows.len() > PER_GROUP as usize {
        return Err(wrong("too long"));
    }
    let Some(first) = group.checked_mul(PER_GROUP) else {
        return Err(wrong("beyond the largest file"));
    };
    if copy_of(first) >= COPIES_MAX {
        return Err(wrong("no such copy"));
    }
    let end = stripe_of(first).checked_add(PER_GROUP);
    if end.and_then(|end| end.checked_mul(stripe)).is_none() {
        return Err(wrong("beyond the largest file"));
    }
    let mut extents = [Extent::HOLE; PER_GROUP as usize];
    for (extent, row) in extents.iter_mut().zip(rows) {
        let [s0, s1, s2, s3, s4, s5, s6, s7, w0, w1, w2, w3, n0, n1, b0, b1] = *row;
        let blocks = u16::from_le_bytes([n0, n1]);
        let found = Extent {
            start: u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
            written: u32::from_le_bytes([w0, w1, w2, w3]),
            blocks: blocks & !COMMON,
            brick: u16::from_le_bytes([b0, b1]),
            common: blocks & COMMON != 0,
        };
        if u64::from(found.blocks) * BLOCK > stripe {
            return Err(wrong("an extent larger than a stripe"));
        }
        if found.is_hole() && found != Extent::HOLE {
            return Err(wrong("a hole with an extent"));
        }
        *extent = found;
    }
    Ok(extents)
}
