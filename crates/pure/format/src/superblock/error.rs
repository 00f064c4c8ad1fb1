//! Why bytes are not a usable superblock: the field, what was found in it, and what to do.

use super::Features;

/// Why bytes are not a usable superblock.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// Fewer bytes than the structure needs.
    #[error(
        "reading the md superblock at sector {at}: {have} bytes given and {need} needed; read {need} bytes there, \
         or the member has been cut short"
    )]
    TooShort {
        /// Sector read.
        at: u64,
        /// Bytes given.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// There is no 1.x superblock at this place.
    #[error(
        "no md superblock at sector {at} (magic is {found:#010x}); the device is no member, or of another version"
    )]
    NoMagic {
        /// Sector read.
        at: u64,
        /// What stands where the magic number should.
        found: u32,
    },
    /// The magic number is right and the major version is not 1.
    #[error(
        "md superblock at sector {at}: major version is {found} and only 1 is supported; use mdadm for this member"
    )]
    Major {
        /// Sector read.
        at: u64,
        /// Version found.
        found: u32,
    },
    /// The role table cannot fit.
    #[error(
        "md superblock at sector {at}: max_dev is {found}, more than the 1920 that fit; \
         the superblock is damaged, examine the other members"
    )]
    MaxDev {
        /// Sector read.
        at: u64,
        /// Entries found.
        found: u32,
    },
    /// Stored and computed checksum differ.
    #[error(
        "md superblock at sector {at}: checksum is {stored:#010x} and should be {computed:#010x}; \
         the superblock is damaged, leave this member out and add it again once the array runs"
    )]
    Checksum {
        /// Sector read.
        at: u64,
        /// What is stored.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// The superblock says that it belongs to another place.
    #[error(
        "md superblock at sector {at}: super_offset says sector {stored}; \
         it belongs to a larger or smaller device (a partition, a disk that was resized) or is stale: check which device is the member"
    )]
    WrongPlace {
        /// Sector read.
        at: u64,
        /// Sector stored.
        stored: u64,
    },
    /// Feature bits nobody knows here.
    #[error(
        "md superblock at sector {at}: feature_map has unknown bits {bits:#x}; \
         the array needs a newer version: use the program that made it"
    )]
    UnknownFeature {
        /// Sector read.
        at: u64,
        /// The unknown bits.
        bits: u32,
    },
    /// Feature bits that exclude each other.
    #[error(
        "md superblock at sector {at}: features {first} and {second} exclude each other; \
         the superblock is damaged, examine the other members"
    )]
    FeatureConflict {
        /// Sector read.
        at: u64,
        /// One.
        first: Features,
        /// The other.
        second: Features,
    },
    /// RAID0_LAYOUT on another level.
    #[error(
        "md superblock at sector {at}: feature RAID0_LAYOUT is set and the level is {level}; \
         the superblock is damaged, examine the other members"
    )]
    Raid0Layout {
        /// Sector read.
        at: u64,
        /// The level found.
        level: i32,
    },
    /// Padding that must be zero is not.
    #[error(
        "md superblock at sector {at}: the reserved bytes at +{field} are not zero; a newer kernel made it \
         (an array with its own logical block size?) or it is damaged: use the program that made it"
    )]
    Reserved {
        /// Sector read.
        at: u64,
        /// Byte offset of the field.
        field: usize,
    },
    /// data_size below the smallest possible.
    #[error(
        "md superblock at sector {at}: data_size is {found} sectors and at least 10 are needed; the superblock is damaged, examine the other members"
    )]
    DataSize {
        /// Sector read.
        at: u64,
        /// Sectors found.
        found: u64,
    },
    /// The data would begin inside the superblock.
    #[error(
        "md superblock at sector {at}: {field} puts the data at sector {data}, before the end of the superblock at {end}; \
         the superblock is damaged, examine the other members"
    )]
    DataOverSuperblock {
        /// Sector read.
        at: u64,
        /// data_offset, or new_offset.
        field: &'static str,
        /// Where the data would begin; negative or beyond 64 bits when damaged.
        data: i128,
        /// First sector behind the superblock.
        end: u64,
    },
    /// The data would end beyond the room there is.
    #[error(
        "md superblock at sector {at}: data_offset {data_offset} and data_size {data_size} need {need} sectors \
         and the member has {have} for them; it has been cut short or is the wrong device: restore its size"
    )]
    DataBeyondMember {
        /// Sector read.
        at: u64,
        /// Start of the data.
        data_offset: u64,
        /// Sectors of data.
        data_size: u64,
        /// Sectors needed up to the end of the data.
        need: u128,
        /// Sectors up to the end of the member, or to the superblock of version 1.0.
        have: u64,
    },
    /// The bad-block log is larger than the page it may have.
    #[error(
        "md superblock at sector {at}: bblog_size is {found} sectors and at most 8 are allowed; the superblock is damaged, examine the other members"
    )]
    BadBlockLogSize {
        /// Sector read.
        at: u64,
        /// Sectors found.
        found: u16,
    },
}
