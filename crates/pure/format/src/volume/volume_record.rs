//! The record of the volume itself: 128 bytes.

use super::extent::STRIPE_RANGE;
use super::{NO_BRICK, RecordError};
use uuid::Uuid;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The layout of keys and records that this describes.
pub const VERSION: u32 = 1;
/// The same, with records of projects. Who does not count what projects take must not write to the volume.
pub const VERSION_COUNTED: u32 = 2;
/// The same with an octet of features: who does not know one must not write to the volume.
pub const VERSION_FEATURES: u32 = 3;
/// There are records of projects.
const COUNTED: u8 = 1;
/// There are checksums of data.
const CHECKSUMS: u8 = 2;

/// Some stripes have copies.
const COPIES: u8 = 4;
/// There are snapshots, or were.
const SNAPSHOTS: u8 = 8;
/// There are common extents, or were.
const COMMON: u8 = 16;

/// All features that this braid knows.
const KNOWN: u8 = COUNTED | CHECKSUMS | COPIES | SNAPSHOTS | COMMON;

/// The volume's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// The uuid in the superblocks of all its bricks.
    pub uuid: Uuid,
    /// Bytes of a stripe, a power of two.
    pub stripe: u64,
    /// The next file number; it and all above are unused.
    pub next_ino: u64,
    /// The number that the next brick gets; numbers are not used again.
    pub next_brick: u16,
    /// The brick that takes new stripes first.
    pub proxy: Option<u16>,
    /// Weights or bricks have changed and stripes have not been moved yet.
    pub unbalanced: bool,
    /// There are records of projects, which is another version.
    pub counted: bool,
    /// Blocks of files have checksums.
    pub checksums: bool,
    /// Files may have copies.
    pub copies: bool,
    /// Some copies miss something, or are not there.
    pub incomplete: bool,
    /// There are snapshots, or were: there may be saved values.
    pub snapshots: bool,
    /// There are common extents, or were: an extent may have several owners.
    pub common: bool,
    /// The number that the last snapshot got; numbers are not used again.
    pub last_snapshot: u32,
    /// The number that the last subvolume got.
    pub last_subvolume: u16,
    /// Blocks that only snapshots have.
    pub snapshot_blocks: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    uuid: [u8; 16],
    version: U32,
    next_brick: U16,
    proxy: U16,
    stripe: U64,
    next_ino: U64,
    unbalanced: u8,
    features: u8,
    incomplete: u8,
    padding: u8,
    last_snapshot: U32,
    snapshot_blocks: U64,
    last_subvolume: U16,
    reserved: [u8; 70],
}

const _: () = assert!(size_of::<Raw>() == 128);

impl VolumeRecord {
    /// The record.
    pub fn encode(&self) -> Vec<u8> {
        let flags = [
            (self.counted, COUNTED),
            (self.checksums, CHECKSUMS),
            (self.copies, COPIES),
            (self.snapshots, SNAPSHOTS),
            (self.common, COMMON),
        ];
        let set = flags.iter().filter(|(is_set, _)| *is_set);
        let features = set.fold(0, |all, (_, flag)| all | flag);
        let version = match features {
            0 => VERSION,
            COUNTED => VERSION_COUNTED,
            _ => VERSION_FEATURES,
        };
        let raw = Raw {
            uuid: *self.uuid.as_bytes(),
            version: version.into(),
            next_brick: self.next_brick.into(),
            proxy: self.proxy.unwrap_or(NO_BRICK).into(),
            stripe: self.stripe.into(),
            next_ino: self.next_ino.into(),
            unbalanced: self.unbalanced.into(),
            features: if version == VERSION_FEATURES { features } else { 0 },
            incomplete: self.incomplete.into(),
            padding: 0,
            last_snapshot: self.last_snapshot.into(),
            snapshot_blocks: self.snapshot_blocks.into(),
            last_subvolume: self.last_subvolume.into(),
            reserved: [0; 70],
        };
        raw.as_bytes().to_vec()
    }

    /// Reads the record.
    ///
    /// # Errors
    /// When its length is wrong, the version is a later one, or the stripe size is impossible.
    pub fn parse(bytes: &[u8]) -> Result<VolumeRecord, RecordError> {
        let wrong = |why| RecordError::new("the volume", why);
        let raw = Raw::read_from_bytes(bytes).map_err(|_| wrong("wrong length"))?;
        let features = match raw.version.get() {
            VERSION => 0,
            VERSION_COUNTED => COUNTED,
            VERSION_FEATURES if raw.features & !KNOWN == 0 => raw.features,
            _ => return Err(wrong("written by a later braid, or no such version")),
        };
        let stripe = raw.stripe.get();
        if !stripe.is_power_of_two() || !STRIPE_RANGE.contains(&stripe) {
            return Err(wrong("no such stripe"));
        }
        Ok(VolumeRecord {
            uuid: Uuid::from_bytes(raw.uuid),
            stripe,
            next_ino: raw.next_ino.get(),
            next_brick: raw.next_brick.get(),
            proxy: Some(raw.proxy.get()).filter(|brick| *brick != NO_BRICK),
            unbalanced: raw.unbalanced != 0,
            counted: features & COUNTED != 0,
            checksums: features & CHECKSUMS != 0,
            copies: features & COPIES != 0,
            incomplete: raw.incomplete != 0,
            snapshots: features & SNAPSHOTS != 0,
            common: features & COMMON != 0,
            last_snapshot: raw.last_snapshot.get(),
            last_subvolume: raw.last_subvolume.get(),
            snapshot_blocks: raw.snapshot_blocks.get(),
        })
    }
}
