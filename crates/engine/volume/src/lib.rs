//! Logical volumes of files over many bricks.
//!
//! A [`Volume`] lives on one shard, which owns all of it: names, attributes, extents of stripes, free space. Metadata
//! changes in memory and goes to a transactional store in batches; data goes straight to the bricks.
//!
//! ```text
//!   FileSystem: lookup, make, rename, read, write …          jobs: balance, remove, flush, migrate …
//!        │                      │                                         │
//!      names ──────────────── inode, extents ──────────────────────────── data: read, write, moving
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
//! | `names/`, `known_names` | the tree of names; those that are known without asking the store |
//! | `data/`, `stripes` | the bytes of files; how a range of them falls into stripes |
//! | `inode`, `extents`, `locks` | a file in memory |
//! | `brick`, `space` | a device and its free blocks |
//! | `transaction`, `transaction_nr`, `commit` | changes of metadata, and how they become durable |
//! | `orphans`, `removal` | files that are to be removed, and how they are |
//! | `jobs/` | stripes that go elsewhere, bricks that come and go |
//! | `check/`, `watch/`, `status` | what is wrong, also while files change; what there is |
//! | `under_way/` | the job and the check under way, as the volume holds them |
//! | `grow` | the metadata region becomes larger |
//! | `gate` | changes wait while somebody needs the volume to stay as it is |
//!
//! Invariants: an extent in a durable transaction names blocks that were written and flushed before it; blocks that were freed
//! are not written to before the transaction that freed them is durable; everything between two awaits is in one
//! transaction.
//!
//! This crate does not know if devices, store and clock are real, nor FUSE.

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
mod group;
mod grow;
mod inode;
mod jobs;
mod known_names;
mod locks;
mod mount;
mod names;
mod orphans;
mod removal;
mod space;
mod status;
mod stripes;
#[cfg(test)]
mod tests;
mod transaction;
mod transaction_nr;
mod under_way;
mod volume;
mod watch;

pub use brick::{Brick, BrickCounts};
pub use create::{NewBrick, first_records};
pub use data::Moved;
pub use error::VolumeError;
pub use grow::grow_metadata;
pub use jobs::BrickToAdd;
pub use mount::{BrickDevice, MountOf, noted_nowhere};
pub use status::{BrickStatus, VolumeStatus};
pub use stripes::Geometry;
pub use under_way::{CheckEnd, CheckReport, JobState, JobStatus, Lost, NewJob};
pub use volume::{Clock, NoteLost, Volume};
