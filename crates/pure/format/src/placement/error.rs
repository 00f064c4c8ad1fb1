//! The reasons for which an array, or a bitmap, cannot be placed on its members.

use crate::superblock::Version;

/// The reason why an array cannot be placed on its members.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// No member was given.
    #[error("placing the array: no member given; name at least one")]
    NoMember,
    /// A member has no room for data.
    #[error(
        "placing the array: member {member} has {have} sectors and needs more than {need} \
         for metadata and {unit} for data; use a larger member or a smaller chunk"
    )]
    MemberTooSmall {
        /// Its place in the request.
        member: usize,
        /// Its sectors.
        have: u64,
        /// Sectors that are needed beside the data.
        need: u64,
        /// The least that is of use for data, in sectors.
        unit: u64,
    },
    /// A member is larger than sectors can be counted in md's signed 64-bit sizes.
    #[error(
        "placing the array: member {member} claims {have} sectors, which no device has; check the device"
    )]
    MemberTooLarge {
        /// Its place in the request.
        member: usize,
        /// Its sectors.
        have: u64,
    },
    /// The size asked for is more than a member has.
    #[error(
        "placing the array: a size of {want} sectors per member was asked for and member {member} has {have}; \
         ask for less or leave the size out"
    )]
    SizeTooLarge {
        /// Its place in the request.
        member: usize,
        /// Sectors asked for.
        want: u64,
        /// Sectors it has for data.
        have: u64,
    },
    /// More members than the superblocks can list.
    #[error(
        "placing the array: {have} members and metadata {version} lists at most {most}; use fewer, or metadata 1.2"
    )]
    TooManyMembers {
        /// Members given.
        have: usize,
        /// Metadata version.
        version: Version,
        /// Members that it lists.
        most: usize,
    },
    /// More of each member than metadata 0.90 can use.
    #[error(
        "placing the array: {want} sectors of each member and metadata 0.90 uses at most {most} (4 TiB); \
         use metadata 1.2, or ask for a smaller size"
    )]
    V0Size {
        /// Sectors that would be used.
        want: u64,
        /// Sectors that can be.
        most: u64,
    },
    /// The size asked for is no chunk.
    #[error(
        "placing the array: a size of {want} sectors per member is less than a chunk of {chunk} sectors; ask for more"
    )]
    SizeTooSmall {
        /// Sectors asked for.
        want: u64,
        /// The chunk in sectors.
        chunk: u32,
    },
    /// The data offset asked for leaves no room for the metadata, or cannot be had.
    #[error(
        "placing the array: a data offset of {want} sectors {why}; use {least} or more, or leave it out"
    )]
    DataOffset {
        /// Sectors asked for.
        want: u64,
        /// The defect.
        why: &'static str,
        /// The least that works.
        least: u64,
    },
    /// The metadata version has no field for what was asked for.
    #[error(
        "placing the array: metadata {version} has no {what}; use metadata 1.2, or leave it out"
    )]
    Version {
        /// Metadata version.
        version: Version,
        /// The feature that is missing.
        what: &'static str,
    },
    /// The level keeps no bitmap or PPL.
    #[error("placing the array: level {level} can have no {what}; leave it out")]
    Consistency {
        /// The level.
        level: i32,
        /// A bitmap, or a PPL.
        what: &'static str,
    },
    /// The bitmap chunk asked for is impossible.
    #[error(
        "placing the array: a bitmap chunk of {want} bytes is not possible; \
         it must be a power of two from {least} to 2147483648"
    )]
    BitmapChunk {
        /// Bytes asked for.
        want: u64,
        /// The least that fits.
        least: u64,
    },
    /// The array is too large for a bitmap on members of this size.
    #[error(
        "placing the array: there is no room for a bitmap; use larger members or leave the bitmap out"
    )]
    NoBitmapRoom,
    /// There is no room for a partial parity log.
    #[error(
        "placing a partial parity log: there is no room for it between superblock and data; keep the policy resync, or \
         use members whose data starts further on"
    )]
    NoPplRoom,
}
