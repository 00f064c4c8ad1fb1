//! Snapshots: which there are, and what is saved for them.
//!
//! | file | subject |
//! |---|---|
//! | `list` | the snapshots and subvolumes, and which of them see a file |
//! | `save` | values that a commit is about to change are saved |
//!
//! Records are read as they were in `transactions/view.rs`; extents that snapshots have are in `extents/versions.rs`; how snapshots
//! are taken and removed is in `subvolumes/`.

mod list;
mod save;

pub use list::{Recorded, Snapshots};
