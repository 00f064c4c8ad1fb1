//! With which settings each array is started: what is kept for it, and before that what was asked for.

use crate::daemon::grouping::Group;
use crate::output;
use crate::settings::kept::Kept;
use crate::settings::{ArraySettings, Assignment, fit};
use anyhow::{Context, Result};

/// See the module's documentation.
pub struct Wanted<'a> {
    /// What is kept.
    pub kept: &'a Kept,
    /// What was asked for on the command line.
    pub asked: &'a [Assignment],
    /// Shards of this process.
    pub shards: u16,
    /// Bytes that the caches of an array may take.
    pub memory_max: u64,
}

impl Wanted<'_> {
    /// The settings of an array. What is kept was right on another day, perhaps for another machine: where it
    /// does not suit, it is auto, with a warning. What was asked for must suit.
    ///
    /// # Errors
    /// What was asked for does not suit the array.
    pub fn of(&self, group: &Group) -> Result<ArraySettings> {
        let (mut settings, damaged) = self.kept.load(&group.uuid);
        let warn = |what: &str| output::note(format!("warning: array {}: {what}", group.name));
        damaged.iter().for_each(|what| warn(what));
        let geometry = fit::assembled(group.superblocks(), group.logical_block);
        if let Some(geometry) = &geometry {
            let (suited, refused) = settings.path.suited(geometry, self.shards, self.memory_max);
            settings.path = suited;
            for why in refused {
                warn(&format!("what is kept does not suit it any more: {why}; that is \"auto\""));
            }
        }
        let doing = || format!("serving array {}", group.name);
        let settings = settings.with(self.asked).with_context(doing)?;
        settings.check().with_context(doing)?;
        if let Some(geometry) = &geometry {
            settings.path.check(geometry, self.shards, self.memory_max).with_context(doing)?;
        }
        Ok(settings)
    }
}
