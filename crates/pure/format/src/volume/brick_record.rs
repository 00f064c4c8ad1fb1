//! The record of a brick in the volume's metadata: 64 bytes. A domain is a label, UTF-8 without control characters, padded with
//! zeros.

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

/// The most bytes of a brick's domain.
pub const DOMAIN_MAX: usize = 16;

/// True for what can be the label of a domain.
pub fn is_domain(label: &str) -> bool {
    label.len() <= DOMAIN_MAX && !label.chars().any(char::is_control)
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
    /// Its domain, a label of those that may be lost together: bricks of the same domain do not share the copies of a stripe, as far as there are others. At most
    /// [`DOMAIN_MAX`] bytes; empty: its own.
    pub domain: String,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    uuid: [u8; 16],
    weight: U64,
    blocks: U64,
    state: u8,
    domain: [u8; DOMAIN_MAX],
    reserved: [u8; 15],
}

const _: () = assert!(size_of::<Raw>() == 64);

impl BrickRecord {
    /// The record.
    pub fn encode(&self) -> Vec<u8> {
        let mut domain = [0; DOMAIN_MAX];
        let len = self.domain.len().min(DOMAIN_MAX);
        domain[..len].copy_from_slice(&self.domain.as_bytes()[..len]);
        let raw = Raw {
            uuid: *self.uuid.as_bytes(),
            weight: self.weight.into(),
            blocks: self.blocks.into(),
            state: self.state.number(),
            domain,
            reserved: [0; 15],
        };
        raw.as_bytes().to_vec()
    }

    /// Reads the record of brick `id`.
    ///
    /// # Errors
    /// When its length is wrong, its state unknown or its domain no label.
    pub fn parse(id: u16, bytes: &[u8]) -> Result<BrickRecord, RecordError> {
        let wrong = |why| RecordError::new(format!("brick {id}"), why);
        let raw = Raw::read_from_bytes(bytes).map_err(|_| wrong("wrong length"))?;
        let state = BrickState::from_number(raw.state).ok_or_else(|| wrong("no such state"))?;
        let len = raw.domain.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let domain = std::str::from_utf8(&raw.domain[..len]).ok().filter(|label| is_domain(label));
        let domain = domain.ok_or_else(|| wrong("its domain is no label"))?;
        Ok(BrickRecord {
            uuid: Uuid::from_bytes(raw.uuid),
            state,
            weight: raw.weight.get(),
            blocks: raw.blocks.get(),
            domain: domain.to_owned(),
        })
    }
}
