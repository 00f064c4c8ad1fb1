//! The content of a volume's metadata store: the keys, and the records under them.
//!
//! | key | record | file |
//! |---|---|---|
//! | `V` | the volume | `volume_record` |
//! | `B` | the table of buckets (`braid_layout::buckets`) | – |
//! | `B` row | a further row of it, one byte: for copy 1, 2 or 3 | – |
//! | `b` brick | a brick | `brick_record` |
//! | `I` inode | attributes, and the target of a symbolic link | `inode` |
//! | `D` directory, name | an entry, by name | `entry` |
//! | `C` directory, cookie | the same entry, in the order of reading | `entry` |
//! | `P` inode, group | the extents of 64 stripes | `extent` |
//! | `H` inode, window | the checksums of 256 blocks | `sums` |
//! | `W` inode, region | blocks of 256 windows are being written over in place: their checksums may be of before; 1 byte, 1 | – |
//! | `X` inode, name | the value of an extended attribute | – |
//! | `O` inode | the file is to be trimmed to its size, or removed when it has no name | – |
//! | `A` brick, group | a bit for each of 32,768 blocks in use; absent: none | `space` |
//! | `S` brick, index | the number of blocks in use in each of 1,024 groups; absent: none | `space` |
//! | `J` | the job in progress | `job` |
//! | `N` snapshot | a snapshot of a folder | `snapshot` |
//! | `U` subvolume | a folder of which there can be snapshots | `snapshot` |
//! | `Z` key, 0, snapshot | the value that the record under a key `I`, `D`, `C`, `P`, `H` or `X` had before it changed | `snapshot` |
//! | `Q` project | what a project takes, and its limits; absent: nothing, and none | `project` |
//!
//! Numbers in keys are big-endian, so that keys are in the order of the numbers; numbers in records little-endian.
//! A block is 4096 bytes.

pub mod brick_record;
pub mod entry;
pub mod extent;
pub mod inode;
pub mod job;
pub mod keys;
pub mod project;
pub mod snapshot;
pub mod space;
pub mod sums;
#[cfg(test)]
mod tests;
pub mod volume_record;

/// Bytes of a block: the unit of extents and of free space.
pub const BLOCK: u64 = 4096;
/// Stands for "no brick" where a record has room for a brick's number.
pub const NO_BRICK: u16 = u16::MAX;

/// A damaged record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record of {what} in the volume's metadata is damaged: {why}")]
pub struct RecordError {
    /// The record, in words.
    pub what: String,
    /// The defect.
    pub why: &'static str,
}

impl RecordError {
    /// Free space of a brick is recorded twice, and the two disagree.
    pub fn damaged_space(brick: u16, group: u32) -> RecordError {
        RecordError::new(
            format!("free space of brick {brick}, group {group}"),
            "the bitmap and the count disagree; run: braid volume check --repair",
        )
    }

    /// The owners of a common extent are no owners.
    pub fn damaged_owners(brick: u16, start: u64) -> RecordError {
        RecordError::new(
            format!("the common extent at block {start} of brick {brick}"),
            "its owners cannot be read",
        )
    }

    /// An extent reaches beyond its brick's data area.
    pub fn damaged_extent(ino: u64, group: u64) -> RecordError {
        RecordError::new(
            format!("extents of file {ino}, group {group}"),
            "an extent beyond the end of its brick",
        )
    }

    /// The brick has more blocks than its device.
    pub fn damaged_brick(id: u16) -> RecordError {
        RecordError::new(format!("brick {id}"), "more blocks than its device has, or can have")
    }

    pub(crate) fn new(what: impl Into<String>, why: &'static str) -> RecordError {
        RecordError { what: what.into(), why }
    }
}
