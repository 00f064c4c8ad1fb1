//! An array that is about to be started.

use crate::daemon::grouping::Group;
use crate::hosts::Guard;
use crate::settings::ArraySettings;
use braid_array::options::AssembleOptions;

/// See the module's documentation.
pub struct Start {
    /// Its members.
    pub group: Group,
    /// The settings that it is started with.
    pub settings: ArraySettings,
    /// Bytes that its caches may take.
    pub memory_max: u64,
    /// The means that keep other hosts off it.
    pub guard: Guard,
}

impl Start {
    /// The options that the engine gets.
    pub fn options(&self) -> AssembleOptions {
        let options = AssembleOptions {
            name: Some(self.group.name.clone()),
            uuid: Some(self.group.uuid),
            settings: self.settings.path,
            sync_speed: self.settings.sync_speed(),
            sync_range: self.settings.sync_range(),
            memory_max: self.memory_max,
            ..AssembleOptions::default()
        };
        self.guard.applied(options, &self.group.openers)
    }
}
