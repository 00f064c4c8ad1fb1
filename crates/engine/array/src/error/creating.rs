//! Why an array is not created.

use braid_device::{IoError, OpenError};
use braid_format::placement::PlacementError;
use braid_format::superblock::NameError;
use braid_layout::{LayoutError, Level};

/// Why an array was not created. Nothing was written unless the variant says so.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CreateError {
    /// A device did not open.
    #[error("creating the array: {0}")]
    Open(#[from] OpenError),
    /// The number of members is not that of slots and spares.
    #[error(
        "creating the array: {given} members were given for {raid_disks} slots and {spares} spares; \
         give {} (\"missing\" for a slot that stays empty)",
        raid_disks + spares
    )]
    MemberCount {
        /// Members given, with those that are missing.
        given: usize,
        /// Slots asked for.
        raid_disks: usize,
        /// Spares asked for.
        spares: usize,
    },
    /// The same device twice.
    #[error("creating the array: {name} was given twice; give each device once")]
    Twice {
        /// The device.
        name: String,
    },
    /// Too many members are missing for the level.
    #[error(
        "creating the array: {missing} of {raid_disks} members are \"missing\", which {level} does not survive; \
         give more of them"
    )]
    TooManyMissing {
        /// Number of slots without a member.
        missing: usize,
        /// Slots.
        raid_disks: usize,
        /// The level.
        level: Level,
    },
    /// A spare for a level that has no use for one.
    #[error("creating the array: {level} has no redundancy and no use for spares; leave them out")]
    UselessSpares {
        /// The level.
        level: Level,
    },
    /// A size or offset that is no multiple of the members' blocks.
    #[error(
        "creating the array: {what} of {bytes} bytes is no multiple of {block}, the block of {name}; choose one that is"
    )]
    NotAligned {
        /// Name of the size or offset.
        what: &'static str,
        /// Its value.
        bytes: u64,
        /// The block, in bytes.
        block: u32,
        /// The member that has it.
        name: String,
    },
    /// More members than a superblock can list.
    #[error(
        "creating the array: {given} members were given and a superblock lists at most {max}; give fewer"
    )]
    TooManyMembers {
        /// Members given.
        given: usize,
        /// The most that works.
        max: usize,
    },
    /// A bitmap for a level that has no use for one.
    #[error(
        "creating the array: {level} has no redundancy that a bitmap could say where to resync; leave it out"
    )]
    UselessBitmap {
        /// The level.
        level: Level,
    },
    /// A partial parity log at a level that keeps none.
    #[error(
        "creating the array: {level} keeps no partial parity log, only raid5 does; use another consistency policy"
    )]
    UselessPpl {
        /// The level.
        level: Level,
    },
    /// A partial parity log and a bitmap.
    #[error(
        "creating the array: it cannot have both a bitmap and a partial parity log; leave out one of them"
    )]
    PplAndBitmap,
    /// A write journal at a level that has no use for one, or beside something that does the same.
    #[error("creating the array: {why}; leave out the write journal, or that")]
    UselessJournal {
        /// The reason.
        why: String,
    },
    /// The device for the write journal is too small.
    #[error(
        "creating the array: {name} has room for a journal of {have} bytes, and one stripe of this array takes {need} of it; \
         give a larger device"
    )]
    JournalTooSmall {
        /// The device.
        name: String,
        /// Bytes that the journal would have.
        have: u64,
        /// Bytes that it must have.
        need: u64,
    },
    /// The chunk of the bitmap asked for is too large.
    #[error("creating the array: a bitmap chunk of {bytes} bytes is too large; give at most 2 GiB")]
    BitmapChunk {
        /// Bytes asked for.
        bytes: u64,
    },
    /// The chunk asked for is larger than a superblock can say.
    #[error("creating the array: a chunk of {bytes} bytes is too large; give at most 1 GiB")]
    ChunkTooLarge {
        /// Bytes asked for.
        bytes: u64,
    },
    /// The name cannot be stored.
    #[error("creating the array: {0}")]
    Name(#[from] NameError),
    /// The parts do not fit on the members. Members count in the order given, from 0.
    #[error("{source}{}", names(.members))]
    Placement {
        /// The value that does not fit.
        source: PlacementError,
        /// The members that are there, in order.
        members: Vec<String>,
    },
    /// The level cannot have this shape.
    #[error("creating the array: {0}")]
    Layout(#[from] LayoutError),
    /// A superblock could not be read or written; other members may have got theirs already.
    #[error(
        "creating the array: {doing} {name}: {error}; nothing is running, replace that device and create again"
    )]
    Io {
        /// Reading or writing what.
        doing: &'static str,
        /// The member.
        name: String,
        /// The device's error.
        error: IoError,
    },
}

fn names(members: &[String]) -> String {
    let list: Vec<String> =
        members.iter().enumerate().map(|(index, name)| format!("{index} is {name}")).collect();
    format!(" (members: {})", list.join(", "))
}
