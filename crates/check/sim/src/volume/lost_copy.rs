//! At the end of a run in which one brick fails: it takes along what was just written over, and power fails before the checksums of
//! that are recorded. The brick is there again, before that or at the next mount, with what it had before, which agrees with the
//! checksums that are recorded; only the mark says that another copy counts.
//!
//! Nothing is excused for it. It comes last, so that what a run does before is what it was before there was this.

use super::call::What;
use super::run::{VolumeRun, uuid_of};
use crate::machine::Step;
use crate::waiting::{Over, wait};
use std::rc::Rc;

/// Writes that the brick takes, at most.
const WRITES: u64 = 6;
/// The longest of them, in bytes.
const WRITE_MAX: u64 = 128 << 10;
/// The time that the brick has to get what it has lost, in nanoseconds: less than it takes for an intent to go.
const BACK_NANOS: u64 = 2_000_000_000;

impl VolumeRun {
    /// Has the brick that fails lose writes that are made durable then, and power fail. The volume was just mounted.
    pub(super) fn lose_a_copy(&mut self) -> Result<(), Over> {
        let Some(victim) = self.victim() else { return Ok(()) };
        let member = self.world.member(victim);
        if member.is_gone() && !member.has_left() {
            member.heal();
            member.set_gone(false);
            self.stop()?;
            self.mount()?;
        }
        let bricks = self.life()?.volume.bricks();
        let is_there = bricks.iter().any(|brick| brick.uuid == uuid_of(victim) && brick.is_there());
        if !is_there || self.has_weak_bricks() || self.is_in_doubt() {
            return Ok(());
        }
        let mut written = Vec::new();
        for _ in 0..1 + self.aimed_rng.range(0..WRITES) {
            let Some(id) = self.some_file(|node| node.size > 0)? else { return Ok(()) };
            let Some(model) = &self.model else { return Err(Over) };
            let Some(version) = model.next_version() else { return Ok(()) };
            let size = model.now.nodes.get(&id).map_or(0, |node| node.size);
            let offset = self.aimed_rng.range(0..size);
            let len = self.aimed_rng.log_range(4096..WRITE_MAX).min(size - offset) as usize;
            self.ask(id, What::Write(offset, len, version))?;
            written.push(id);
        }
        self.victim_dies()?;
        for id in written {
            self.ask(id, What::Fsync(self.aimed_rng.percent(50)))?;
        }
        if self.aimed_rng.percent(50) {
            self.take_victim_back()?;
            let until = self.world.now() + BACK_NANOS;
            while self.world.now() < until && self.step()? != Step::Stuck {}
            let volume = Rc::clone(&self.life()?.volume);
            let later = self.life()?.machine.begin(async move { volume.sync_all().await });
            // It may fail as any flush may.
            let _ = wait(&self.life()?.machine, "a sync", &later)?;
        }
        self.cut_power()?;
        let member = self.world.member(victim);
        member.heal();
        member.set_gone(member.has_left());
        self.mount()?;
        self.compare()
    }

    /// The brick that fails is gone, with some of what it has not made durable.
    fn victim_dies(&mut self) -> Result<(), Over> {
        let Some(victim) = self.victim() else { return Ok(()) };
        let member = self.world.member(victim);
        member.die(&self.aimed_rng);
        self.lost_some.set(true);
        self.faults += 1;
        let text = format!("{} is gone", member.name());
        self.world.trace(|| text.clone());
        let life = self.life()?;
        life.client.history.note(&[], text);
        life.client.may_fail = Some(false);
        life.client.unharmed = None;
        Ok(())
    }
}
