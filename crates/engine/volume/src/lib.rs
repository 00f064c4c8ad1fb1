//! Logical volumes of files over many bricks.
//!
//! A [`Volume`] lives on one shard, which owns all of it: names, attributes, places of stripes, free space. Metadata
//! changes in memory and goes to a transactional store in batches; data goes straight to the bricks.
//!
//! ```text
//!   FileSystem: lookup, make, rename, read, write …          jobs: balance, remove, flush, migrate …
//!        │                      │                                         │
//!      names ──────────────── inode, places ──────────────────────────── data: read, write, moving
//!        │                      │                                         │
//!   transaction ── commit ── space ──────────────────────────────────── brick
//!        │                                                                │
//!      Store                                                            Device
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `assemble/` | bricks become a volume: superblocks, what belongs together |
//! | `create`, `mount` | the first records of a volume; bringing it up |
//! | `filesystem` | the volume as a file system |
//! | `names/` | the tree of names |
//! | `data/` | the bytes of files |
//! | `inode`, `places`, `locks` | a file in memory |
//! | `brick`, `space` | a device and its free blocks |
//! | `transaction`, `commit` | changes of metadata, and how they become durable |
//! | `orphans` | files that are to be removed |
//! | `jobs/` | stripes that go elsewhere, bricks that come and go |
//! | `check/`, `status` | what is wrong, what there is |
//! | `grow` | the metadata region becomes larger |
//! | `gate` | changes wait while somebody needs the volume to stay as it is |
//!
//! Invariants: a place in a durable transaction names blocks that were written and flushed before it; blocks that were freed
//! are not written to before the transaction that freed them is durable; everything between two awaits is in one
//! transaction.
//!
//! What this crate does not know: whether devices, store and clock are real; FUSE.

#![forbid(unsafe_code)]

pub mod assemble;
mod brick;
mod check;
mod commit;
mod create;
mod data;
mod error;
mod filesystem;
mod gate;
mod grow;
mod inode;
mod jobs;
mod locks;
mod mount;
mod names;
mod orphans;
mod places;
mod space;
mod status;
#[cfg(test)]
mod tests;
mod transaction;
mod volume;

pub use brick::{Brick, BrickCounts};
pub use check::{CheckReport, Lost};
pub use create::{NewBrick, first_records};
pub use data::{Geometry, Moved};
pub use error::VolumeError;
pub use grow::grow_metadata;
pub use jobs::{BrickToAdd, CheckEnd, JobState, JobStatus, NewJob};
pub use mount::{BrickDevice, MountOf, NoteLost, noted_nowhere};
pub use status::{BrickStatus, VolumeStatus};
pub use volume::{Clock, Volume};
