//! The snapshots of a run: those that there are, and those that are on their way.

use super::Tick;
use super::meta::Id;
use super::model::Model;
use crate::machine::Later;
use braid_volume::{SnapshotStatus, VolumeError};

/// A snapshot that was taken.
pub(super) struct Taken {
    pub(super) name: String,
    pub(super) folder: Id,
    /// Its number.
    pub(super) id: u32,
    pub(super) shows: Model,
    /// It was looked into, and is known exactly.
    pub(super) seen: bool,
}

/// One that is being taken.
pub(super) struct Taking {
    pub(super) name: String,
    pub(super) folder: Id,
    /// When it was asked for.
    pub(super) since: Tick,
    /// Nothing else goes on: what it shows.
    pub(super) alone: Option<Model>,
    pub(super) later: Later<Result<SnapshotStatus, VolumeError>>,
}

/// One that is being removed.
pub(super) struct Going {
    pub(super) taken: Taken,
    pub(super) later: Later<Result<(), VolumeError>>,
}

/// The snapshots of a run.
#[derive(Default)]
pub(super) struct Snapshots {
    pub(super) taken: Vec<Taken>,
    pub(super) taking: Option<Taking>,
    pub(super) going: Option<Going>,
    /// Those that were being taken, or removed, when power failed: they may be there, or not.
    pub(super) in_doubt: Vec<Taken>,
    pub(super) count: u32,
}
