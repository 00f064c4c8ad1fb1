//! Why bytes are not a brick's superblock that can be used, and what to do.

use super::{Area, VolumeNameError};

/// Why bytes are not a brick's superblock that can be used.
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
    /// Something else, or nothing, is there.
    #[error("no brick superblock at byte {at}: the device is not a brick of a volume")]
    NotABrick {
        /// Byte offset read.
        at: u64,
    },
    /// The magic is right and the checksum is not.
    #[error(
        "brick superblock at byte {at}: the checksum is {stored:#010x} and should be {computed:#010x}; \
         this copy is damaged, and where the other one is too, so is the brick"
    )]
    Checksum {
        /// Byte offset read.
        at: u64,
        /// The checksum stored.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// A version that is not known.
    #[error(
        "brick superblock at byte {at}: version {found}, and this braid knows 1; use the newer braid that wrote it"
    )]
    Version {
        /// Byte offset read.
        at: u64,
        /// The checksum stored.
        found: u32,
    },
    /// Incompatible features that are not known.
    #[error(
        "brick superblock at byte {at}: incompatible features {bits:#x}, unknown here; use the newer braid that wrote it"
    )]
    Features {
        /// Byte offset read.
        at: u64,
        /// The bits.
        bits: u64,
    },
    /// A field with a value that cannot be.
    #[error(
        "brick superblock at byte {at}: {field} is {found}, which must be {must}; \
         the checksum is right, so a program wrote it so: report it, and leave the brick as it is"
    )]
    Field {
        /// Byte offset read.
        at: u64,
        /// Which one.
        field: &'static str,
        /// The value found.
        found: u64,
        /// The accepted values.
        must: &'static str,
    },
    /// A volume's name that cannot be.
    #[error("brick superblock at byte {at}: {source}")]
    Name {
        /// Byte offset read.
        at: u64,
        /// Why.
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
    /// An area that is not within the brick, or not in whole blocks.
    #[error(
        "brick superblock at byte {at}: the {area} area has {len} bytes from {offset} on, which must be whole blocks of 4096 \
         bytes between the two superblocks of a brick of {brick_size}; report it, and leave the brick as it is"
    )]
    Outside {
        /// Byte offset read.
        at: u64,
        /// `metadata` or `data`.
        area: &'static str,
        /// Where it begins.
        offset: u64,
        /// Its bytes.
        len: u64,
        /// The brick's size.
        brick_size: u64,
    },
    /// The two areas share bytes.
    #[error(
        "brick superblock at byte {at}: the metadata ({} bytes from {}) and the data ({} bytes from {}) overlap; \
         report it, and leave the brick as it is", metadata.len, metadata.offset, data.len, data.offset
    )]
    Overlap {
        /// Byte offset read.
        at: u64,
        /// The one.
        metadata: Area,
        /// The other.
        data: Area,
    },
    /// The start was overwritten by something else; the second copy is left.
    #[error(
        "the start of the device holds something else, and at byte {second_at} is the second superblock of brick {brick_id} \
         of volume {volume:?}: if it still is that brick, overwrite the first 4096 bytes with zeros; if not, overwrite the \
         4096 bytes at {second_at}"
    )]
    Overwritten {
        /// Where the second copy is.
        second_at: u64,
        /// Which brick it says.
        brick_id: u16,
        /// The name of its volume.
        volume: String,
    },
    /// The two copies are of different bricks.
    #[error(
        "the superblock at byte 0 is of brick {first} and the one at byte {second_at} of brick {second}: the making of a \
         brick was interrupted, or one is left over; make the brick again, or overwrite the copy that is wrong with zeros"
    )]
    TwoBricks {
        /// The uuid at the start.
        first: uuid::Uuid,
        /// Where the second copy is.
        second_at: u64,
        /// The uuid there.
        second: uuid::Uuid,
    },
}
