//! Mishaps of stacks beyond failing leaves: caches that are lost with a failed flush, leaves that hang, or are slow
//! and answer after they were failed, and several leaves that are lost one soon after the other; often a crash follows.
//!
//! As in `crate::mishaps` all is drawn from a stream of its own, plain runs have none of it, and nothing happens that
//! the stack does not survive.

use super::rest::Held;
use super::{StackRun, plan::Below};
use crate::member::Member;
use crate::rng::Rng;
use crate::steps::Steps;
use crate::waiting::Over;
use std::rc::Rc;

impl StackRun {
    /// Something that `faults` does not know happens under load.
    pub(super) fn mishap_under_load(&mut self) -> Result<(), Over> {
        match self.mishaps.rng.range(0..10) {
            0..4 => self.flushes_fail(),
            4..6 => self.hangs(),
            6..8 => self.slow_and_failed(),
            _ => self.lost_one_after_another(),
        }
    }

    /// A leaf that works and that the stack can do without now; `redundant`: so can its own array's level.
    fn one_to_lose(&mut self, redundant: bool) -> Result<Option<Rc<Member>>, Over> {
        let members = self.world.members.borrow().clone();
        let fits = |m: &&Rc<Member>| {
            let works = m.slot.get().is_some() && !m.out.get() && !m.is_weak();
            works && (!redundant || self.redundant(m.kind.array))
        };
        let fit: Vec<_> = members.iter().filter(fits).collect();
        let Some(leaf) = fit.get(self.mishaps.rng.below(fit.len())) else { return Ok(None) };
        Ok(self.may_lose(Held::Leaf(leaf.kind.index))?.then(|| Rc::clone(leaf)))
    }

    fn some_steps(&mut self, most: u64) -> Result<(), Over> {
        for _ in 0..self.mishaps.rng.log_range(1..most) {
            self.step()?;
        }
        Ok(())
    }

    /// Flushes of a leaf fail, once or for ever; often there are flushes at once, and a crash before everybody knows.
    ///
    /// Not with bad-block logs: what one member has lost and others have recorded as bad is nowhere, and is told to each
    /// client by a flush that fails.
    fn flushes_fail(&mut self) -> Result<(), Over> {
        if self.plan.arrays.iter().any(|array| array.create.bad_block_log) {
            return self.slow_and_failed();
        }
        let Some(leaf) = self.one_to_lose(false)? else { return Ok(()) };
        let times = if self.mishaps.rng.percent(30) { u32::MAX } else { 1 };
        self.world.trace(|| format!("flushes of {} fail ({times})", leaf.name()));
        self.faults += 1;
        // Where its own array cannot do without it the one above learns of the loss with its next flush.
        leaf.shows_loss.set(leaf.drops_pages.get() && self.others_are_whole(&leaf));
        leaf.fail_flushes(times);
        for _ in 0..self.mishaps.rng.range(0..4) {
            if let Some(life) = self.life.as_mut() {
                life.client.flush(&life.machine, &mut self.oracle);
            }
            self.some_steps(8)?;
        }
        if self.mishaps.rng.percent(40) {
            self.some_steps(200)?;
            self.next_life(true)?;
        }
        Ok(())
    }

    /// In half of all runs: the level of the leaf's own array is redundant, and nothing is known of the others in it.
    fn others_are_whole(&self, leaf: &Member) -> bool {
        let whole = |other: &Rc<Member>| {
            let held = other.slot.get().is_some();
            !held || (other.in_sync.get() && !other.out.get() && !other.is_weak())
        };
        let members = self.world.members.borrow();
        let mut others = members.iter().filter(|other| {
            other.kind.array == leaf.kind.array && other.kind.index != leaf.kind.index
        });
        let run = Rng::new(self.world.seed, 57).percent(50);
        run && self.redundant(leaf.kind.array) && others.all(whole)
    }

    /// A leaf does not answer any more, until it is given up or failed.
    fn hangs(&mut self) -> Result<(), Over> {
        let Some(leaf) = self.one_to_lose(true)? else { return Ok(()) };
        self.world.trace(|| format!("{} hangs", leaf.name()));
        self.faults += 1;
        leaf.hung.set(true);
        self.some_steps(200)?;
        if self.mishaps.rng.percent(50) {
            self.fail_leaf(&leaf)?;
        }
        Ok(())
    }

    /// A leaf becomes slow and is failed by command, so that it answers afterwards.
    fn slow_and_failed(&mut self) -> Result<(), Over> {
        let Some(leaf) = self.one_to_lose(true)? else { return Ok(()) };
        let times = self.mishaps.rng.log_range(20..500);
        self.world.trace(|| format!("{} is {times} times as slow", leaf.name()));
        self.faults += 1;
        leaf.slowness.set(times);
        self.some_steps(100)?;
        let failed = self.fail_leaf(&leaf);
        leaf.slowness.set(1);
        failed
    }

    fn fail_leaf(&mut self, leaf: &Rc<Member>) -> Result<(), Over> {
        let name = leaf.name().to_string();
        self.world.trace(|| format!("fail {name}"));
        if self.command_fail(leaf.kind.array, name)? {
            leaf.out.set(true);
        }
        Ok(())
    }

    /// Leaves are gone one soon after the other, as far as the stack survives that, with what they had cached; then,
    /// often, power fails.
    fn lost_one_after_another(&mut self) -> Result<(), Over> {
        for _ in 0..2 + self.mishaps.rng.range(0..3) {
            let Some(leaf) = self.one_to_lose(false)? else { continue };
            self.world.trace(|| format!("{} is gone", leaf.name()));
            self.faults += 1;
            leaf.set_gone(true);
            leaf.power_cut(&self.world.rng, Vec::new());
            leaf.out.set(true);
            self.some_steps(60)?;
        }
        if self.mishaps.rng.percent(50) { self.next_life(true) } else { Ok(()) }
    }

    /// Leaves of array `nr` that hang answer, and have ended what they were asked.
    pub(super) fn wake_leaves_of(&mut self, nr: usize) -> Result<(), Over> {
        let Below::Leaves(leaves) = self.plan.arrays[nr].below.clone() else { return Ok(()) };
        let leaves: Vec<_> = leaves.iter().map(|index| self.world.member(*index)).collect();
        if leaves.iter().any(|leaf| leaf.hung.get()) {
            self.world.wake_hung();
            let owed = |run: &StackRun| leaves.iter().any(|leaf| run.world.owed_by(leaf) > 0);
            // Work that goes on meanwhile submits more to the leaves in use.
            for _ in 0..10_000 {
                if !owed(self) {
                    break;
                }
                self.step()?;
            }
        }
        Ok(())
    }
}
