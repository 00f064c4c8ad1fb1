//! "Active" in the superblocks before the first write, "clean" when writes have paused.
//!
//! As md: an array that was stopped while "active" is resynced. An idle array is marked clean after
//! the safe-mode delay, so only a stop in the middle of work costs a resync.

use crate::control::Control;
use crate::engine::Engine;
use braid_shard::plant::planted;
use std::rc::Rc;

impl Control {
    /// An engine wants to write: true when the superblocks say "active" and all engines know, false when nothing may
    /// be written.
    pub(crate) async fn activate(&self) -> bool {
        let turn = self.record.turn().await;
        if !self.may_activate() {
            return false;
        }
        let was_dirty = std::mem::replace(&mut self.record.roster.borrow_mut().dirty, true);
        if !was_dirty && !planted("active-unrecorded") {
            self.record.write_superblocks(&turn).await;
            self.record.changed.notify_all();
        }
        if !self.may_activate() {
            return false;
        }
        self.record.engines.ask(|engine: &Engine| engine.consistency.set_active()).await;
        true
    }

    fn may_activate(&self) -> bool {
        let redundant = self.record.geometry().level.has_redundancy();
        redundant
            && !self.record.end.has_begun()
            && !self.record.read_only
            && !self.record.roster.borrow().broken
            && !self.record.roster.borrow().lacks_journal()
    }

    /// Marks the array clean whenever it has been idle for the safe-mode delay.
    pub(crate) async fn safe_mode(self: Rc<Self>) {
        loop {
            let dirty =
                || (self.record.end.has_begun() || self.record.roster.borrow().dirty).then_some(());
            self.record.changed.wait_for(dirty).await;
            self.record.shard.sleep(self.in_effect.safe_mode_delay).await;
            if self.record.end.has_begun() {
                return;
            }
            self.clean_if_idle().await;
        }
    }

    async fn clean_if_idle(self: &Rc<Self>) {
        let turn = self.record.turn().await;
        {
            let roster = self.record.roster.borrow();
            if self.record.end.has_begun() || roster.broken || !roster.dirty {
                return;
            }
        }
        let agreed = self
            .record
            .engines
            .ask(|engine: &Engine| engine.consistency.try_deactivate(true))
            .await;
        if agreed.contains(&Some(false)) {
            // Those that agreed may write again at once; setting it where it is set does no harm.
            self.record.engines.ask(|engine: &Engine| engine.consistency.set_active()).await;
            return;
        }
        self.mark_clean(&turn).await;
        let cooling = Rc::clone(self);
        self.record.shard.spawn(async move { cooling.cool_down().await });
    }

    /// Records that all writes have ended. The caller holds the turn, and no engine is active.
    ///
    /// An array without redundancy is always clean, and nothing is written, as in md: a member that is away
    /// for a moment would be left behind by it, and be refused for ever.
    pub(crate) async fn mark_clean(&self, turn: &braid_shard::sync::Share) {
        let resynced = self.record.roster.borrow().resynced;
        if !planted("clean-unflushed") {
            self.record.flush_members(turn, |_| true).await;
        }
        if !self.record.geometry().level.has_redundancy() {
            return;
        }
        {
            let mut roster = self.record.roster.borrow_mut();
            // With a journal it moves when the log was drained.
            if roster.journal().is_none() {
                roster.resync_checkpoint = resynced;
            }
            roster.dirty = false;
        }
        self.record.write_superblocks(turn).await;
        self.record.changed.notify_all();
    }
}
