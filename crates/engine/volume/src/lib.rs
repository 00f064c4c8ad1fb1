//! Logical volumes of files over many bricks.
//!
//! A [`Volume`] lives on one shard, which owns all of it: names, attributes, extents of stripes, free space. Metadata
//! changes in memory and goes to a transactional store in batches; data goes straight to the bricks.
//!
//! It is made of parts, each a folder or a file with a state of its own that no other reaches. Calls go down:
//!
//! ```text
//!   Volume: the FileSystem, and requests about the volume as a whole
//!      │              │               │                │
//!    check          mover        membership            │      a check; jobs; bricks that come and go
//!      │              │               │                │
//!      └──────────────┴── files ──────┴────────────────┤      the bytes of files
//!                           │                          │
//!                       namespace ─────────────────────┤      names, attributes, files in memory
//!                           │                          │
//!                        commit ── extents, sums ──────┘      durable after the data; where stripes lie; checksums
//!                           │         │
//!                       transactions  │                       what has changed since the last commit
//!                           │         │
//!                         Store     Device
//! ```
//!
//! | module | subject |
//! |---|---|
//! | `volume`, `filesystem` | the volume as a whole; as a file system |
//! | `assemble/` | bricks become a volume: superblocks, what belongs together |
//! | `salvage/` | what can be read of bricks in any state, without a mount |
//! | `create`, `mount`, `parts` | the first records of a volume; its parts are made and joined; the lower ones of them |
//! | `grow`, `take_back` | the metadata region becomes larger; a brick that was lost is used again |
//! | `check/` | what is wrong, also while files change |
//! | `mover/`, `membership` | stripes that go elsewhere; bricks that come and go |
//! | `files/` | the bytes of files |
//! | `namespace/` | the tree of names; files in memory |
//! | `commit` | changes become durable, after the data that they name |
//! | `extents/` | where stripes lie: recorded extents, free space, bricks |
//! | `sums/` | checksums of blocks: what a brick gives is what was written |
//! | `transactions/` | changes of metadata between two commits |
//! | `record` | the volume's own record |
//! | `snapshots/`, `subvolumes/` | what snapshots see, and what is saved for them; how they are taken and removed |
//! | `copies` | how many copies files are to have |
//! | `projects`, `quota` | what the files of a project take, and may take; limits of folders |
//! | `leases/` | files that are read on other shards |
//! | `file_counts` | reads and writes of files since the mount |
//! | `watch/` | changes that a check is told of |
//! | `stripes`, `locks`, `gate`, `pace`, `progress`, `status`, `error` | what several parts use |
//!
//! Where something below has to make something above act, the one above leaves a function there when the parts are joined
//! (`mount`): bricks tell files of lost writes, files that lost their last name are queued for the task that removes them,
//! and a search for room asks for free space to be put together.
//!
//! Invariants: an extent in a durable transaction names blocks that were written and flushed before it; blocks that were freed
//! are not written to before the transaction that freed them is durable; everything between two awaits is in one
//! transaction.
//!
//! This crate does not know if devices, store and clock are real, nor FUSE.

#![forbid(unsafe_code)]

pub mod assemble;
mod check;
mod commit;
mod copies;
mod create;
mod error;
mod extents;
mod file_counts;
mod files;
mod filesystem;
mod gate;
mod grow;
mod leases;
mod membership;
mod mount;
mod mover;
mod namespace;
mod pace;
mod parts;
mod progress;
mod projects;
mod quota;
mod record;
pub mod salvage;
mod snapshots;
mod status;
mod stripes;
mod subvolumes;
mod sums;
mod take_back;
#[cfg(test)]
mod tests;
mod transactions;
mod volume;
mod watch;

pub use check::{CheckEnd, CheckReport, Lost};
pub use create::{Format, NewBrick, domains_of, first_records};
pub use error::VolumeError;
pub use extents::{Brick, BrickCounts, NoteLost, Space};
pub use file_counts::{FileCounts, Requests};
pub use files::Moved;
pub use grow::grow_metadata;
pub use leases::{LeaseReader, OpenBrick};
pub use membership::{BrickBack, BrickToAdd, Gone};
pub use mount::{BrickDevice, MountOf, noted_nowhere};
pub use mover::NewJob;
pub use namespace::Clock;
pub use progress::{JobState, JobStatus};
pub use quota::{Limits, ProjectStatus};
pub use status::{BrickStatus, VolumeStatus};
pub use stripes::Geometry;
pub use subvolumes::SnapshotStatus;
pub use take_back::take_back;
pub use volume::Volume;
