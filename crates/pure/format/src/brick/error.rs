//! The errors of reading a brick's superblock, each with what to do next.

use super::{Area, VolumeNameError};

/// The reason why a brick's superblock cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BrickError {
    /// Fewer bytes than a superblock has.
    #[error(
        "reading the brick superblock at byte {at}: {have} bytes given and 4096 needed; \
         the device is too small for a brick, or has been cut short"
    )]
    TooShort {
        /// Byte offset read.
        at: u64,
        /// Bytes given.
        have: usize,
    },
    /// Neither copy could be read from the device.
    #[error(
        "reading the brick superblock: neither copy could be read; look for errors of the device in the system's log"
    )]
    Unreadable,
    /// There is no brick superblock at this offset.
    #[error("no brick superblock at byte {at}: the device is not a brick of a volume")]
    NotABrick {
        /// Byte offset read.
        at: u64,
    },
    /// The magic is right and the checksum is not.
    #[error(
        "brick superblock at byte {at}: the checksum is {stored:#010x} and should be {computed:#010x}; \
         this copy is damaged; if the other one is damaged too, the brick cannot be used"
    )]
    Checksum {
        /// Byte offset read.
        at: u64,
        /// The checksum stored.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// A version that is not supported.
    #[error(
        "brick superblock at byte {at}: version {found} is not supported, only 1; use the newer braid that wrote it"
    )]
    Version {
        /// Byte offset read.
        at: u64,
        /// The version found.
        found: u32,
    },
    /// Incompatible features that are not known.
    #[error(
        "brick superblock at byte {at}: incompatible features {bits:#x} are not supported; use the newer braid that wrote it"
    )]
    Features {
        /// Byte offset read.
        at: u64,
        /// The bits.
        bits: u64,
    },
    /// A field with an impossible value.
    #[error(
        "brick superblock at byte {at}: {field} is {found}, which must be {must}; \
         the checksum is right, so a program wrote this value: report it, and do not change the brick"
    )]
    Field {
        /// Byte offset read.
        at: u64,
        /// The field.
        field: &'static str,
        /// The value found.
        found: u64,
        /// The accepted values.
        must: &'static str,
    },
    /// An invalid volume name.
    #[error("brick superblock at byte {at}: {source}")]
    Name {
        /// Byte offset read.
        at: u64,
        /// The defect of the name.
        source: VolumeNameError,
    },
    /// The device is smaller than the brick.
    #[error(
        "brick superblock at byte {at}: the brick has {need} bytes and the device {have}; \
         it has been cut short or is the wrong device: restore its size"
    )]
    CutShort {
        /// Byte offset read.
        at: u64,
        /// The brick's size.
        need: u64,
        /// The device's size.
        have: u64,
    },
    /// An area that reaches out of the brick, or is not in whole blocks.
    #[error(
        "brick superblock at byte {at}: the {area} area has {len} bytes from {offset} on, which must be whole blocks of 4096 \
         bytes between the two superblocks of a brick of {brick_size}; report it, and do not change the brick"
    )]
    Outside {
        /// Byte offset read.
        at: u64,
        /// `metadata` or `data`.
        area: &'static str,
        /// First byte of the area.
        offset: u64,
        /// Its bytes.
        len: u64,
        /// The brick's size.
        brick_size: u64,
    },
    /// Two areas overlap.
    #[error(
        "brick superblock at byte {at}: the metadata ({} bytes from {}) and the data ({} bytes from {}) overlap; \
         report it, and do not change the brick", metadata.len, metadata.offset, data.len, data.offset
    )]
    Overlap {
        /// Byte offset read.
        at: u64,
        /// The area of the metadata region.
        metadata: Area,
        /// The area that it overlaps.
        data: Area,
    },
    /// The start of the device was overwritten by something else; only the second copy is left.
    #[error(
        "the start of the device is no brick superblock, but at byte {second_at} there is the second superblock of brick \
         {brick_id} of volume {volume:?}: if the device is still that brick, overwrite its first 4096 bytes with zeros; if \
         not, overwrite the 4096 bytes at {second_at}"
    )]
    Overwritten {
        /// Byte offset of the second copy.
        second_at: u64,
        /// The id of the brick in the second copy.
        brick_id: u16,
        /// The name of its volume.
        volume: String,
    },
    /// The two copies are of different bricks.
    #[error(
        "the superblock at byte 0 is of brick {first} and the one at byte {second_at} of brick {second}: creating a \
         brick was interrupted, or a copy is left over from an earlier brick; create the brick again, or overwrite the stale \
         copy with zeros"
    )]
    TwoBricks {
        /// The uuid in the first copy.
        first: uuid::Uuid,
        /// Byte offset of the second copy.
        second_at: u64,
        /// The uuid in the second copy.
        second: uuid::Uuid,
    },
}
