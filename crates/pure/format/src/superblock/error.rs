//! The errors of reading a superblock: each names the field, the value found in it, and what to do.

use super::features::Features;

/// The reason why a superblock cannot be used.
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
    /// There is no superblock at this place.
    #[error(
        "no md superblock at sector {at} (magic is {found:#010x}); the device is no member, or of another version"
    )]
    NoMagic {
        /// Sector read.
        at: u64,
        /// The number in place of the magic.
        found: u32,
    },
    /// The magic number is right, but superblocks of this major version are stored elsewhere.
    #[error(
        "md superblock at sector {at}: major version is {found}, which does not belong there (0 stands in the last \
         64 KiB, 1 elsewhere); it is stale or from a program that is newer: use mdadm for this member"
    )]
    Major {
        /// Sector read.
        at: u64,
        /// Version found.
        found: u32,
    },
    /// A superblock of version 0.90 from a machine with the other byte order.
    #[error(
        "md superblock at sector {at}: version 0.90 in big-endian words, made on a machine of the other byte order; \
         assemble the array there, or convert the superblocks with mdadm --assemble --update=byteorder"
    )]
    ByteSwapped {
        /// Sector read.
        at: u64,
    },
    /// Major version 0 with a minor version other than 90 and 91.
    #[error(
        "md superblock at sector {at}: version is 0.{found} and of the 0 series only 0.90 and 0.91 (0.90 in a \
         reshape) are supported; use mdadm for this member"
    )]
    V0Minor {
        /// Sector read.
        at: u64,
        /// Minor version found.
        found: u32,
    },
    /// A field with an impossible value.
    #[error(
        "md superblock at sector {at}: {field} is {found}, which must be {must}; \
         the superblock is damaged, examine the other members"
    )]
    Field {
        /// Sector read.
        at: u64,
        /// The field.
        field: &'static str,
        /// The value found.
        found: u64,
        /// The accepted values.
        must: &'static str,
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
        /// The checksum stored.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// The superblock records another location than the one it was read from.
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
    /// Feature bits that this program does not know.
    #[error(
        "md superblock at sector {at}: feature_map has {}, unknown here; \
         the array needs a newer version: use the program that made it", each_bit(*bits)
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
        /// Sector at which the data would begin; negative or beyond 64 bits when damaged.
        data: i128,
        /// First sector behind the superblock.
        end: u64,
    },
    /// The data would end beyond the space that the member has for it.
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
    /// The bad-block log is larger than the 4 KiB that it may have.
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

/// `bit 0x2000`, or `bits 0x2000, 0x8000`.
fn each_bit(bits: u32) -> String {
    let set: Vec<String> = (0..u32::BITS)
        .map(|at| bits & 1 << at)
        .filter(|bit| *bit != 0)
        .map(|bit| format!("{bit:#x}"))
        .collect();
    format!("bit{} {}", if set.len() == 1 { "" } else { "s" }, set.join(", "))
}
