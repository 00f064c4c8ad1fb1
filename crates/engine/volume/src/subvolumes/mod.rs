//! Folders of which there are snapshots: how they become subvolumes, how snapshots are taken and removed.
//!
//! | file | subject |
//! |---|---|
//! | `mark` | a folder becomes a subvolume |
//! | `take` | a snapshot is taken, and shown |
//! | `remove` | a snapshot is removed: what only it has is freed |

mod mark;
mod remove;
mod take;

pub use take::SnapshotStatus;
