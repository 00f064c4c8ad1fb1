//! Why a volume could not be made, mounted or changed.

use braid_filesystem::Errno;
use braid_format::volume::RecordError;
use braid_kv::StoreError;
use braid_layout::buckets::BucketsError;

/// Errors of what is done to a volume as a whole.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The metadata store failed.
    #[error("reading or writing the volume's metadata: {0}")]
    Store(#[from] StoreError),
    /// A record is damaged.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The store holds no volume.
    #[error("the metadata bricks hold no volume: it was not made completely; make it again")]
    Empty,
    /// The stripe cannot be.
    #[error("a stripe of {0} bytes: give a power of two from 16K to 64M")]
    Stripe(u64),
    /// Bricks or weights cannot be.
    #[error("sharing stripes out to the bricks: {0}")]
    Buckets(#[from] BucketsError),
    /// A request on a file failed on the way.
    #[error("{doing}: {errno}")]
    File {
        /// The action that failed.
        doing: &'static str,
        /// Why it failed.
        errno: Errno,
    },
    /// Another job is under way.
    #[error("{running} is under way; wait for it, or cancel it, before another operation")]
    Busy {
        /// The job that runs.
        running: &'static str,
    },
    /// No brick has that number.
    #[error("the volume has no brick {0}; see: braid volume status")]
    NoSuchBrick(u16),
    /// The operation does not fit the brick or the volume as it is.
    #[error("{0}")]
    Refused(String),
}

impl From<crate::extents::SpaceError> for VolumeError {
    fn from(error: crate::extents::SpaceError) -> VolumeError {
        match error {
            crate::extents::SpaceError::Store(error) => error.into(),
            crate::extents::SpaceError::Record(error) => error.into(),
        }
    }
}
