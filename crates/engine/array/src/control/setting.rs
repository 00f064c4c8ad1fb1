//! Settings of a running array: checked, then taken over by all shards while requests go on.

use crate::control::Control;
use crate::engine::Engine;
use crate::error::ControlError;
use crate::settings::Settings;
use std::rc::Rc;

/// Idle time after which half of the cache's memory is released, in nanoseconds.
const IDLE: u64 = 10_000_000_000;

impl Control {
    /// The settings in effect.
    pub fn settings(&self) -> Settings {
        self.in_effect.settings.get()
    }

    /// Sets `settings` on all shards while requests go on.
    ///
    /// # Errors
    /// When they do not suit the array, or would move stripes under a job that is running. Nothing
    /// has changed then.
    pub async fn set(&self, settings: Settings) -> Result<(), ControlError> {
        const DOING: &str = "changing settings";
        let array = || self.record.name.clone();
        if self.record.end.has_begun() {
            return Err(ControlError::Stopping { doing: DOING, array: array() });
        }
        let turn = self.in_effect.turn.take(1).await;
        let old = self.in_effect.settings.get();
        let there = self.record.engines.shards();
        let view = self.record.engine.view();
        for geometry in [view.geometries().whole(), view.geometries().before()] {
            settings
                .check(geometry, there, self.in_effect.memory_max)
                .map_err(|why| ControlError::Setting { array: array(), why })?;
        }
        let owners = settings.shards.unwrap_or(there);
        let moves = owners != self.record.geometry().owners();
        if (moves || old.stripe_size != settings.stripe_size)
            && let Some(job) = self.jobs.schedule.running()
        {
            return Err(ControlError::SettingDuring { array: array(), job });
        }
        if moves {
            self.move_stripes(owners, settings).await?;
        } else {
            self.record.engines.ask(move |engine: &Engine| engine.set(settings)).await;
        }
        self.in_effect.settings.set(settings);
        self.unanswered.limit_members();
        drop(turn);
        self.slow_members.watch();
        Ok(())
    }

    /// Gives the stripes to the first `owners` shards. Requests wait meanwhile: those under way end
    /// under the old owners.
    async fn move_stripes(&self, owners: u16, settings: Settings) -> Result<(), ControlError> {
        self.jobs
            .forbid()
            .map_err(|job| ControlError::SettingDuring { array: self.record.name.clone(), job })?;
        self.record.engines.hold_requests().await;
        self.record.engine.view().geometries().set_owners(owners);
        self.record.engines.ask(move |engine: &Engine| engine.set(settings)).await;
        self.record.engines.end_hold().await;
        self.jobs.allow();
        Ok(())
    }

    /// Memory is short: caches that size themselves give back half of what they have.
    pub async fn shrink_caches(&self) {
        self.record.engines.ask(|engine| engine.cache.shrink()).await;
    }

    /// The array has become idle: while it stays so, its caches give their memory back bit by bit.
    pub(crate) async fn cool_down(self: Rc<Self>) {
        if self.in_effect.cooling.replace(true) {
            return;
        }
        loop {
            self.record.shard.sleep(IDLE).await;
            if self.record.end.has_begun() || self.record.roster.borrow().dirty {
                break;
            }
            if !self.record.engines.ask(|engine| engine.cache.shrink()).await.contains(&Some(true))
            {
                break;
            }
        }
        self.in_effect.cooling.set(false);
    }
}
