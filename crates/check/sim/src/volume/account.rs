//! Every block is accounted for: when nothing is under way and all is recorded, a brick has in memory as many blocks in
//! use as places name, and no others are held back.

use super::ledger;
use super::run::VolumeRun;
use crate::waiting::{Over, wait};
use std::rc::Rc;

/// How often it is looked again when something went on in the background.
const LOOKS: u32 = 20;

impl VolumeRun {
    /// Compares the free space of every brick with the records. Nothing may be under way.
    pub(super) fn account(&mut self) -> Result<(), Over> {
        if !self.plan.aimed || self.plan.faults > 0 {
            return Ok(());
        }
        let mut found = None;
        for _ in 0..LOOKS {
            self.drain()?;
            let life = self.life()?;
            let volume = Rc::clone(&life.volume);
            let later = life.machine.begin(async move { volume.sync_all().await });
            if let Err(errno) = wait(&life.machine, "a sync", &later)? {
                return self.fail("answers_are_right", format!("a sync gave {errno:?}"));
            }
            found = self.first_difference()?;
            if found.is_none() {
                return Ok(());
            }
            // Files that were removed are trimmed behind everybody's back.
            for _ in 0..200 {
                self.life()?.machine.step();
            }
        }
        self.told("every_block_is_accounted_for", &found.unwrap_or_default())
    }

    fn first_difference(&mut self) -> Result<Option<String>, Over> {
        let life = self.life()?;
        let ledger = match ledger::read(&life.metadata()) {
            Ok(ledger) => ledger,
            Err(why) => return self.fail("metadata_agrees", why),
        };
        for brick in life.volume.bricks() {
            let named = ledger.used.get(&brick.id).copied().unwrap_or(0);
            let (used, busy) = (brick.space.used(), brick.space.used() + brick.space.settling());
            if (used, busy) != (named, named) {
                let id = brick.id;
                return Ok(Some(format!(
                    "brick {id}: files have {named} blocks, {used} are in use and {busy} not free"
                )));
            }
        }
        Ok(None)
    }
}
