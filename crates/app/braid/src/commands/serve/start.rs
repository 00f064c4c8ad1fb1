//! An array that is about to be started.

use crate::daemon::grouping::Group;
use crate::hosts::{self, Heartbeat};
use crate::settings::ArraySettings;
use braid_array::options::AssembleOptions;

/// See the module's documentation.
pub(super) struct Start {
    pub(super) group: Group,
    pub(super) settings: ArraySettings,
    /// Bytes that its caches may take.
    pub(super) memory_max: u64,
    /// Decides if it has a heartbeat.
    pub(super) heartbeat: Heartbeat,
}

impl Start {
    pub(super) fn options(&self) -> AssembleOptions {
        AssembleOptions {
            name: Some(self.group.name.clone()),
            uuid: Some(self.group.uuid),
            settings: self.settings.path,
            sync_speed: self.settings.sync_speed(),
            sync_range: self.settings.sync_range(),
            memory_max: self.memory_max,
            heartbeat_ms: hosts::beat_every(self.heartbeat, &self.group.openers),
            host: hosts::this(),
            ..AssembleOptions::default()
        }
    }
}
