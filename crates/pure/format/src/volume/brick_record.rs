//! The record of a brick in the volume's metadata: 64 bytes.

use super::RecordError;
use uuid::Uuid;
use zerocopy::byteorder::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The use of a brick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BrickState {
    /// It takes new stripes.
    Data,
    /// Its stripes are being moved to others; then it is detached.
    Removing,
    /// It takes all new stripes first, and is flushed to the others.
    Proxy,
    /// It takes no stripes of files, only metadata.
    MetadataOnly,
    /// It is missing for good: the data on it is lost.
    Lost,
}

impl BrickState {
    const ALL: [BrickState; 5] = [
        BrickState::Data,
        BrickState::Removing,
        BrickState::Proxy,
        BrickState::MetadataOnly,
        BrickState::Lost,
    ];

    /// The number on disk, from 1.
    pub fn number(self) -> u8 {
        // Five variants: the position fits.
        BrickState::ALL.iter().position(|state| *state == self).map_or(0, |at| at as u8 + 1)
    }

    /// The state that a number on disk stands for.
    pub fn from_number(number: u8) -> Option<BrickState> {
        BrickState::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// A brick's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrickRecord {
    /// The uuid in the brick's superblock.
    pub uuid: Uuid,
    /// The use of the brick.
    pub state: BrickState,
    /// Its weight in the placement.
    pub weight: u64,
    /// Blocks of its data area.
    pub blocks: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    uuid: [u8; 16],
    weight: U64,
    blocks: U64,
    state: u8,
    reserved: [u8; 31],
}

const _: () = assert!(size_of::<Raw>() == 64);

impl BrickRecord {
    /// The record.
    pub fn encode(&self) -> Vec<u8> {
        let raw = Raw {
            uuid: *self.uuid.as_bytes(),
            weight: self.weight.into(),
            blocks: self.blocks.into(),
            state: self.state.number(),
            reserved: [0; 31],
        };
        raw.as_bytes().to_vec()
    }

    /// Reads the record of brick `id`.
    ///
    /// # Errors
    /// When its length is wrong or its state unknown.
    pub fn parse(id: u16, bytes: &[u8]) -> Result<BrickRecord, RecordError> {
        let wrong = |why| RecordError::new(format!("brick {id}"), why);
        let raw = Raw::read_from_bytes(bytes).map_err(|_| wrong("wrong length"))?;
        let state = BrickState::from_number(raw.state).ok_or_else(|| wrong("no such state"))?;
        Ok(BrickRecord {
            uuid: Uuid::from_bytes(raw.uuid),
            state,
            weight: raw.weight.get(),
            blocks: raw.blocks.get(),
        })
    }
}
