//! The 256 fixed bytes of a superblock as they stand on disk, and the checksum over all of it.
//!
//! Does not interpret them: fields that share bytes are byte arrays here.

use zerocopy::byteorder::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(super) const MAGIC: u32 = 0xa92b_4efc;
pub(super) const MAJOR: u32 = 1;
/// Bytes before the role table.
pub(super) const FIXED: usize = 256;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Raw {
    pub magic: U32,
    pub major: U32,
    pub feature_map: U32,
    pub pad0: U32,
    pub set_uuid: [u8; 16],
    pub set_name: [u8; 32],
    pub ctime: U64,
    pub level: I32,
    pub layout: U32,
    pub size: U64,
    pub chunk_sectors: U32,
    pub raid_disks: U32,
    /// Bitmap offset, or PPL offset and size.
    pub bitmap: [u8; 4],
    pub reshape: RawReshape,
    pub new_offset: [u8; 4],
    pub data_offset: U64,
    pub data_size: U64,
    pub super_offset: U64,
    /// Recovery offset, or journal tail.
    pub recovery: [u8; 8],
    pub dev_number: U32,
    pub cnt_corrected_read: U32,
    pub device_uuid: [u8; 16],
    pub devflags: u8,
    pub bblog_shift: u8,
    pub bblog_size: U16,
    pub bblog_offset: I32,
    pub utime: U64,
    pub events: U64,
    pub resync_offset: U64,
    pub checksum: U32,
    pub max_dev: U32,
    pub logical_block_size: U32,
    pub pad3: [u8; 28],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawReshape {
    pub new_level: I32,
    pub position: U64,
    pub delta_disks: I32,
    pub new_layout: U32,
    pub new_chunk_sectors: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawPpl {
    pub offset: zerocopy::byteorder::little_endian::I16,
    pub size: U16,
}

const _: () = {
    assert!(size_of::<Raw>() == FIXED);
    assert!(size_of::<RawReshape>() == 24);
    assert!(size_of::<RawPpl>() == 4);
    assert!(std::mem::offset_of!(Raw, ctime) == 64);
    assert!(std::mem::offset_of!(Raw, bitmap) == 96);
    assert!(std::mem::offset_of!(Raw, reshape) == 100);
    assert!(std::mem::offset_of!(Raw, new_offset) == 124);
    assert!(std::mem::offset_of!(Raw, recovery) == 152);
    assert!(std::mem::offset_of!(Raw, device_uuid) == 168);
    assert!(std::mem::offset_of!(Raw, bblog_offset) == 188);
    assert!(std::mem::offset_of!(Raw, checksum) == CHECKSUM_AT);
    assert!(std::mem::offset_of!(Raw, logical_block_size) == 224);
};

const CHECKSUM_AT: usize = 216;

/// The checksum over a superblock of `256 + 2 * max_dev` bytes, its own field taken as zero: the 64-bit
/// sum of all little-endian words, plus the half word that may be left over, folded once to 32 bits
/// (Linux `md.c`, calc_sb_1_csum).
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    let mut sum = 0u64;
    let mut words = bytes.chunks_exact(4);
    for (index, word) in words.by_ref().enumerate() {
        if index != CHECKSUM_AT / 4 {
            // `chunks_exact(4)` yields four bytes.
            sum += u64::from(u32::from_le_bytes(word.try_into().unwrap_or_default()));
        }
    }
    if let &[low, high] = words.remainder() {
        sum += u64::from(u16::from_le_bytes([low, high]));
    }
    (sum as u32).wrapping_add((sum >> 32) as u32)
}
