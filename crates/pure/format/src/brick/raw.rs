//! The byte layout of a brick's superblock, and its checksum. Little-endian. Does not interpret the fields.

use super::areas::{Area, MAX_GROWN};
use crate::crc;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first bytes of every copy. The control characters reveal a copy that was damaged by a transfer in text mode, as in the
/// PNG signature.
pub const MAGIC: [u8; 16] = *b"braid brick\r\n\x1a\n\0";
/// The version of the format.
pub const VERSION: u32 = 1;
/// Bytes of one copy.
pub const SUPERBLOCK_LEN: usize = 4096;
/// The most runs of ids that a superblock holds.
pub const MAX_RUNS: usize = 64;
/// The most bricks that can be missing at a time.
pub const MAX_AWAY: usize = 128;
/// The most bricks that hold the metadata and are told.
pub const MAX_HOLDERS: usize = 3;
/// Bytes behind the last field.
pub(super) const RESERVED: usize = SUPERBLOCK_LEN - 2792;

/// Consecutive ids of bricks.
#[derive(
    Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub(super) struct RawRun {
    pub first: U16,
    pub count: U16,
}

/// A brick that was missing.
#[derive(
    Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub(super) struct RawAway {
    pub generation: U64,
    pub brick_id: U16,
    pub pad: [u8; 6],
}

/// A range of bytes.
#[derive(
    Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub(super) struct RawArea {
    pub offset: U64,
    pub len: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Raw {
    pub magic: [u8; 16],
    pub version: U32,
    pub checksum: U32,
    pub features_incompatible: U64,
    pub features_compatible: U64,
    pub volume_uuid: [u8; 16],
    pub brick_uuid: [u8; 16],
    pub volume_name: [u8; 64],
    pub brick_id: U16,
    pub brick_count: U16,
    pub state: U16,
    pub metadata_state: U16,
    pub weight: U64,
    pub generation: U64,
    pub brick_size: U64,
    pub stripe_size: U32,
    pub volume_state: U32,
    pub metadata_offset: U64,
    pub metadata_len: U64,
    pub metadata_generation: U64,
    pub data_offset: U64,
    pub data_len: U64,
    pub created: U64,
    pub updated: U64,
    pub runs: U16,
    pub aways: U16,
    pub growths: U16,
    pub pad: U16,
    pub brick_ids: [RawRun; MAX_RUNS],
    pub away: [RawAway; MAX_AWAY],
    pub metadata_grown: [RawArea; MAX_GROWN],
    pub holders: U16,
    pub holder_ids: [U16; MAX_HOLDERS],
    pub reserved: [u8; RESERVED],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Raw>() == SUPERBLOCK_LEN);
    assert!(offset_of!(Raw, checksum) == CHECKSUM_AT);
    assert!(offset_of!(Raw, volume_uuid) == 40);
    assert!(offset_of!(Raw, volume_name) == 72);
    assert!(offset_of!(Raw, brick_id) == 136);
    assert!(offset_of!(Raw, weight) == 144);
    assert!(offset_of!(Raw, stripe_size) == 168);
    assert!(offset_of!(Raw, metadata_offset) == 176);
    assert!(offset_of!(Raw, data_offset) == 200);
    assert!(offset_of!(Raw, created) == 216);
    assert!(offset_of!(Raw, runs) == 232);
    assert!(offset_of!(Raw, brick_ids) == 240);
    assert!(offset_of!(Raw, away) == 496);
    assert!(offset_of!(Raw, growths) == 236);
    assert!(offset_of!(Raw, metadata_grown) == 2544);
    assert!(offset_of!(Raw, holders) == 2784);
    assert!(offset_of!(Raw, reserved) == 2792);
};

const CHECKSUM_AT: usize = 20;

impl Raw {
    /// CRC32C of all 4096 bytes, the checksum's own taken as zeros.
    pub(super) fn computed(&self) -> u32 {
        let bytes = self.as_bytes();
        // Both places are within the 4096 bytes.
        let head = bytes.get(..CHECKSUM_AT).unwrap_or_default();
        let tail = bytes.get(CHECKSUM_AT + 4..).unwrap_or_default();
        let register = [head, &[0; 4], tail].into_iter().fold(u32::MAX, crc::register);
        !register
    }
}

pub(super) fn grown_to_raw(grown: &[Area]) -> ([RawArea; MAX_GROWN], u16) {
    let mut raw = [RawArea::default(); MAX_GROWN];
    for (place, area) in raw.iter_mut().zip(grown) {
        *place = RawArea { offset: area.offset.into(), len: area.len.into() };
    }
    (raw, grown.len().min(MAX_GROWN) as u16)
}

/// `None` if there are more than fit, an area is empty, or bytes that must be zero are not.
pub(super) fn grown_of_raw(raw: &[RawArea; MAX_GROWN], len: u16) -> Option<Vec<Area>> {
    let (used, rest) = raw.split_at_checked(len.into())?;
    let of = |raw: &RawArea| Area { offset: raw.offset.get(), len: raw.len.get() };
    let zeros = rest.iter().all(|area| *area == RawArea::default());
    let full = used.iter().all(|area| area.len.get() > 0);
    (zeros && full).then(|| used.iter().map(of).collect())
}

pub(super) fn holders_to_raw(ids: &[u16]) -> ([U16; MAX_HOLDERS], u16) {
    let mut raw = [U16::default(); MAX_HOLDERS];
    for (place, id) in raw.iter_mut().zip(ids) {
        *place = (*id).into();
    }
    (raw, ids.len().min(MAX_HOLDERS) as u16)
}

/// `None` if they are neither none nor [`MAX_HOLDERS`], do not ascend, or bytes that must be zero are not.
pub(super) fn holders_of_raw(raw: &[U16; MAX_HOLDERS], len: u16) -> Option<Vec<u16>> {
    let ids: Vec<u16> = raw.iter().map(|id| id.get()).collect();
    match usize::from(len) {
        0 if ids.iter().all(|id| *id == 0) => Some(Vec::new()),
        MAX_HOLDERS if ids.is_sorted_by(|one, two| one < two) => Some(ids),
        _ => None,
    }
}
