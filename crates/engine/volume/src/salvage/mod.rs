//! Reading of a volume whose bricks are in any state: some missing, some of an earlier time, metadata that is damaged.
//! Writes nothing to the bricks.
//!
//! | file | subject |
//! |---|---|
//! | `open` | the copy of the metadata that is read |
//! | `read` | records, and the extents of files |
//! | `snapshots` | records as a snapshot shows them |
//! | `stripe` | the bytes of a stripe |
//! | `sums` | the checksums of its blocks |
//!
//! It does not know mounts, placement or free space: a file is its attributes, its extents and what the bricks hold there.

mod open;
mod read;
mod snapshots;
mod stripe;
mod sums;

pub use open::{SalvageError, open};
pub use read::{LostRange, Records, Salvage};
pub use snapshots::SnapshotOf;
