//! Why a volume could not be made of bricks, or put together from them.

use crate::error::VolumeError;
use braid_device::IoError;
use braid_format::brick::{BrickError, MAX_AWAY, VolumeNameError};
use braid_kv::StoreError;
use std::fmt;
use uuid::Uuid;

/// Errors of bricks and their superblocks. Devices are named as they were opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// No brick was given.
    #[error("a volume needs at least one brick: name its devices")]
    NoBricks,
    /// More bricks than a volume can have.
    #[error(
        "{count} bricks, and a volume has at most {}; use arrays or larger devices as bricks",
        braid_layout::buckets::MAX_BRICKS
    )]
    TooManyBricks {
        /// The number that was given.
        count: usize,
    },
    /// A brick without weight.
    #[error(
        "{device}: a weight of 0 would give it no stripes; give it at least 1, or leave the brick out"
    )]
    WeightZero {
        /// The brick's device.
        device: String,
    },
    /// One device for two bricks, or two devices that hold one brick.
    #[error(
        "{one} and {two} are the same brick ({brick}): one is a copy of the other, or both names are of one device; \
         name the one that is in use, and keep the other away"
    )]
    Twice {
        /// The one.
        one: String,
        /// The other.
        two: String,
        /// The uuid of both.
        brick: Uuid,
    },
    /// One device was given twice.
    #[error("{device} is named twice; each brick of a volume is a device of its own")]
    NamedTwice {
        /// Which.
        device: String,
    },
    /// A brick that would hold too little.
    #[error(
        "{device}: {have} bytes are too small for a brick of this volume, which takes at least {need}; \
         give a larger device{hint}"
    )]
    TooSmall {
        /// The brick's device.
        device: String,
        /// Its bytes.
        have: u64,
        /// The bytes that it would need.
        need: u64,
        /// Another remedy.
        hint: &'static str,
    },
    /// No brick can hold the metadata.
    #[error(
        "no brick has room for metadata: {need} bytes with at least {data} of data beside them are needed, and the largest \
         ({device}) has {have}; give a larger brick, or less metadata (--metadata-size)"
    )]
    NoRoomForMetadata {
        /// The largest brick's device.
        device: String,
        /// Its bytes.
        have: u64,
        /// Bytes of the metadata region.
        need: u64,
        /// The least data.
        data: u64,
    },
    /// A metadata region that was asked for is too small.
    #[error("{bytes} bytes of metadata are too few: give at least {}M", braid_kv::REGION_MIN >> 20)]
    MetadataSize {
        /// The size that was asked for.
        bytes: u64,
    },
    /// The blocks of the device are larger than those of the format.
    #[error(
        "{device}: its logical blocks have {logical_block} bytes, and bricks take at most 4096"
    )]
    LogicalBlock {
        /// The brick's device.
        device: String,
        /// Bytes of its blocks.
        logical_block: u32,
    },
    /// The volume's name cannot be.
    #[error(transparent)]
    Name(#[from] VolumeNameError),
    /// A superblock could not be read or written.
    #[error("{device}: {doing} its brick superblock: {error}")]
    Io {
        /// The brick's device.
        device: String,
        /// `reading`, `writing` or `erasing`.
        doing: &'static str,
        /// The device's error.
        error: IoError,
    },
    /// There is no superblock.
    #[error("{device} is not a brick of a volume")]
    NotABrick {
        /// The device.
        device: String,
    },
    /// There is one that cannot be used.
    #[error("{device}: {error}")]
    Superblock {
        /// The brick's device.
        device: String,
        /// Why.
        error: BrickError,
    },
    /// Bricks of two volumes.
    #[error("{one}, and {two}; name the bricks of one volume only")]
    OtherVolume {
        /// One brick.
        one: Box<BrickOf>,
        /// Another.
        two: Box<BrickOf>,
    },
    /// The volume was not made completely.
    #[error(
        "volume {volume:?}: its making was interrupted, and it holds nothing; make it again on the same bricks"
    )]
    Unfinished {
        /// Its name.
        volume: String,
    },
    /// Two bricks with the same number.
    #[error(
        "{one} and {two} both say that they are brick {id} of volume {volume:?}, and are not the same; leave out the one \
         that was added last before an interruption"
    )]
    SameId {
        /// A device.
        one: String,
        /// Another.
        two: String,
        /// Their number.
        id: u16,
        /// Their volume.
        volume: String,
    },
    /// A brick that missed changes and is not as it was when it went.
    #[error(
        "{device}: brick {id} of volume {volume:?} is stale: it is of generation {generation}, and the others are of {newest}. \
         It is a copy, or was restored from an image, or was used apart from the others. Bring the right device; or \
         go on without it: leave it out and mount with --degraded"
    )]
    Stale {
        /// The brick's device.
        device: String,
        /// Its number.
        id: u16,
        /// Its volume.
        volume: String,
        /// Its generation.
        generation: u64,
        /// The newest generation found.
        newest: u64,
    },
    /// A brick that was away while the volume was changed.
    #[error(
        "{device}: brick {id} of volume {volume:?} was away while the volume was in use (it is of generation {generation}, the \
         others of {newest}). Nothing was written to it meanwhile, but what was under way when it went may be missing: \
         mount with --take-back to use it again and run: braid volume check; or go on without it with --degraded"
    )]
    WasAway {
        /// The brick's device.
        device: String,
        /// Its number.
        id: u16,
        /// Its volume.
        volume: String,
        /// Its generation.
        generation: u64,
        /// The newest generation found.
        newest: u64,
    },
    /// A device that is to be taken back is a brick of another volume.
    #[error(
        "{device} is a brick of volume {other:?} ({uuid}), not of {volume:?}: bring the device that was lost"
    )]
    NotOfVolume {
        /// The device.
        device: String,
        /// The volume that it is a brick of.
        other: String,
        /// And its uuid.
        uuid: Uuid,
        /// The volume that it was to be taken back into.
        volume: String,
    },
    /// A device that is to be taken back holds another brick.
    #[error(
        "{device} holds brick {found}, and brick {wanted} was lost: bring the device that was lost"
    )]
    Replaced {
        /// The device.
        device: String,
        /// The brick that it holds.
        found: Uuid,
        /// The brick that was lost.
        wanted: Uuid,
    },
    /// A brick that is to be taken back is there.
    #[error("{device}: brick {id} of volume {volume:?} is in use: nothing is to be taken back")]
    NotAway {
        /// The device.
        device: String,
        /// The brick's number.
        id: u16,
        /// Its volume.
        volume: String,
    },
    /// A brick that is to be taken back is none any more.
    #[error(
        "{device}: it was brick {id} of volume {volume:?}, and has been removed from it; `braid volume add` makes it a new \
         brick of it (--force overwrites what it holds)"
    )]
    Removed {
        /// The device.
        device: String,
        /// The brick's number.
        id: u16,
        /// Its volume.
        volume: String,
    },
    /// A brick that is to be taken back is not as it was when it went.
    #[error(
        "{device}: brick {id} of volume {volume:?} is not as it was when it was lost: it is of generation {generation}, and went \
         with {went}. It is a copy, or was restored from an image, or was used apart from the others. Bring the right \
         device, or remove the brick: braid volume remove"
    )]
    NotAsItWent {
        /// The device.
        device: String,
        /// The brick's number.
        id: u16,
        /// Its volume.
        volume: String,
        /// Its generation.
        generation: u64,
        /// The generation with which it went.
        went: u64,
    },
    /// Bricks are not there.
    #[error(
        "volume {volume:?}: of its {count} bricks, {bricks} missing; bring what is missing, or mount with --degraded: what lies on them \
         cannot be read then, and the rest can"
    )]
    Missing {
        /// Its name.
        volume: String,
        /// `brick 2 is` and the like.
        bricks: String,
        /// The number that the volume has.
        count: usize,
    },
    /// More are missing than can be kept track of.
    #[error(
        "volume {volume:?}: {missing} bricks are missing, and with more than {} it cannot be used without them; bring them",
        MAX_AWAY
    )]
    TooManyAway {
        /// Its name.
        volume: String,
        /// Their number.
        missing: usize,
    },
    /// No brick with current metadata is there.
    #[error(
        "volume {volume:?}: no brick with its current metadata is there; bring a brick that holds it ({missing})"
    )]
    NoMetadata {
        /// Its name.
        volume: String,
        /// Which bricks are missing.
        missing: String,
    },
    /// One of three bricks with the metadata is there.
    #[error(
        "volume {volume:?}: of the three bricks with its metadata only {here} current and there, and the others may have gone on \
         without it: bring {others}, one of which is enough. Where they are lost for good, mount with --degraded --minority: what \
         they took without this one is lost then"
    )]
    Minority {
        /// Its name.
        volume: String,
        /// `brick 2 is` and the like.
        here: String,
        /// `brick 1` or `bricks 1 and 4`.
        others: String,
    },
    /// The brick that is to go holds the only copy of the metadata.
    #[error(
        "{device} holds the volume's metadata, and no other brick has room for it; add a brick with room for metadata first"
    )]
    LastMetadata {
        /// The brick's device.
        device: String,
    },
    /// Superblocks and metadata disagree.
    #[error(
        "volume {volume:?}: superblocks and metadata disagree: {why}; leave the bricks as they are, and report it"
    )]
    Disagree {
        /// Its name.
        volume: String,
        /// How.
        why: String,
    },
    /// The volume has no such brick, or it is not there.
    #[error("the volume has no brick {0} that is there; see: braid volume status")]
    NoSuchBrick(u16),
    /// The last bricks that hold the metadata, or two of three, do not take a superblock.
    #[error(
        "volume {volume:?}: {bricks}, {} with its metadata, {}; nothing more is written to any brick, so that the \
         volume can be mounted when it is back: bring it back, then unmount the volume and mount it again",
        if *.of_three { "of three" } else { "the last" },
        why(*.error)
    )]
    NoHolder {
        /// Its name.
        volume: String,
        /// Their devices.
        bricks: String,
        /// They are two of three, and the third is there.
        of_three: bool,
        /// The error of one of them; `None` where it was to be noted as lost.
        error: Option<IoError>,
    },
    /// No superblock could be written any more.
    #[error("volume {volume:?}: no brick takes its superblock any more (the last: {last})")]
    AllGone {
        /// Its name.
        volume: String,
        /// The error of the last one.
        last: String,
    },
    /// The metadata store failed.
    #[error("volume metadata: {0}")]
    Store(#[from] StoreError),
    /// A metadata region cannot be used.
    #[error("{device}: its metadata region: {error}")]
    Region {
        /// The brick's device.
        device: String,
        /// Why.
        error: IoError,
    },
    /// First records, or records read.
    #[error(transparent)]
    Volume(#[from] VolumeError),
}

/// Which volume a brick is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrickOf {
    /// The brick's device.
    pub device: String,
    /// The volume's name.
    pub volume: String,
    /// And uuid.
    pub uuid: Uuid,
}

impl fmt::Display for BrickOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is a brick of volume {:?} ({})", self.device, self.volume, self.uuid)
    }
}

fn why(error: Option<IoError>) -> String {
    match error {
        Some(error) => format!("cannot be written to ({error})"),
        None => "has failed".to_string(),
    }
}

/// `brick 2 is` or `bricks 1, 4 and 7 are`.
pub(crate) fn are(ids: &[u16]) -> String {
    match ids {
        [one] => format!("brick {one} is"),
        _ => format!("{} are", names(ids)),
    }
}

/// `brick 2` or `bricks 1, 4 and 7`; `none` where there is none.
pub(crate) fn names(ids: &[u16]) -> String {
    let texts: Vec<String> = ids.iter().map(u16::to_string).collect();
    match texts.as_slice() {
        [] => "none".to_string(),
        [one] => format!("brick {one}"),
        [first @ .., last] => format!("bricks {} and {last}", first.join(", ")),
    }
}
