//! Somebody changes settings while requests are under way.

use crate::run::Run;
use crate::settings::draw;
use crate::steps::Steps;
use crate::waiting::Over;
use braid_array::error::ControlError;

impl Run {
    /// Draws other settings, and sets them.
    pub(crate) fn settings_change(&mut self) -> Result<(), Over> {
        let scenario = &self.scenario;
        let chunk = scenario.create.chunk_size.unwrap_or(0);
        let level = scenario.create.level;
        let settings = draw(&self.settings_rng, level, chunk, scenario.block, scenario.shards);
        self.world.trace(|| format!("set {settings:?}"));
        let control = self.control()?;
        // Units change hands somewhere within the command.
        self.world.moving.set(true);
        let later = self.life()?.machine.begin(async move {
            let result = control.set(settings).await;
            (result, control.settings())
        });
        let (result, now) = self.wait("the command to change settings", &later)?;
        self.world.moving.set(false);
        self.world.owners.borrow_mut().clear();
        let before = self.scenario.assemble.settings;
        self.scenario.assemble.settings = now;
        match result {
            Ok(()) if now == settings => Ok(()),
            Err(ControlError::SettingDuring { .. } | ControlError::Stopping { .. })
                if now == before =>
            {
                Ok(())
            }
            other => self.fail(
                "settings_are_taken_or_refused",
                format!("{settings:?} were set over {before:?}: {other:?}, and are now {now:?}"),
            ),
        }
    }
}
