//! What befalls arrays under load beyond failing members: caches that are lost with a failed flush, members that hang, or
//! are slow and answer after they were failed, and leaves of stacks that are lost one soon after the other; often a crash
//! follows. `lost_flushes` and `between_rounds` have what befalls single arrays alone.
//!
//! All is drawn from a stream of its own. A run that is *plain* has none of it: seeds that failed before there were
//! mishaps stay the runs that they were.
//!
//! Does not go beyond what the level survives: whoever is hit counts as lost as a whole, as in `faults`. But for the failed
//! flushes of levels without redundancy, after which clients know what may be lost.

use super::Run;
use super::standing::Held;
use crate::member::Member;
use crate::rng::Rng;
use crate::waiting::{Over, SECOND};
use braid_shard::Nanos;
use std::rc::Rc;

/// A command takes effect at once when it takes no longer: other members may be slow, too.
const AT_ONCE: Nanos = 60 * SECOND;

impl Run {
    /// Something that `faults` does not know happens under load.
    pub(super) fn mishap_under_load(&mut self) -> Result<(), Over> {
        let [flushes, hangs, slow] = self.plan.odds.mishaps;
        match self.mishaps.rng.range(0..10) {
            drawn if drawn < flushes => self.flushes_fail(),
            drawn if drawn < hangs => self.hangs(),
            drawn if drawn < slow => self.slow_and_failed(),
            _ => self.lost_one_after_another(),
        }
    }

    /// A member that works and that the arrays can do without now; `redundant`: so can its own array's level.
    pub(super) fn one_to_lose(&mut self, redundant: bool) -> Result<Option<Rc<Member>>, Over> {
        if self.plan.is_alone() {
            return self.one_to_lose_alone();
        }
        let mut fit = self.working();
        fit.retain(|leaf| !redundant || self.redundant(leaf.kind.array));
        let Some(leaf) = fit.get(self.mishaps.rng.below(fit.len())) else { return Ok(None) };
        Ok(self.may_lose(Held::Leaf(leaf.kind.index))?.then(|| Rc::clone(leaf)))
    }

    fn one_to_lose_alone(&mut self) -> Result<Option<Rc<Member>>, Over> {
        if !self.redundant(self.top()) || self.promises.excused {
            return Ok(None);
        }
        let status = self.top_status()?;
        let mut working = self.working();
        self.mishaps.rng.shuffle(&mut working);
        let found = working.into_iter().next();
        Ok(found.filter(|member| self.survives_now(&status, member)))
    }

    /// Up to so many steps, less one.
    pub(super) fn some_steps(&mut self, most: u64) -> Result<(), Over> {
        for _ in 0..self.mishaps.rng.log_range(1..most) {
            self.step()?;
        }
        Ok(())
    }

    /// Flushes of a member fail, once or for ever; often there are flushes at once, and a crash before everybody knows.
    ///
    /// Not with bad-block logs: what one member has lost and others have recorded as bad is nowhere, and is told to
    /// each client by a flush that fails.
    pub(super) fn flushes_fail(&mut self) -> Result<(), Over> {
        if self.plan.arrays.iter().any(|array| array.create.bad_block_log) {
            return self.slow_and_failed();
        }
        if self.plan.is_alone() {
            return self.flushes_of_one_or_two_fail();
        }
        let Some(leaf) = self.one_to_lose(false)? else { return Ok(()) };
        let times = self.times_that_flushes_fail();
        // Where its own array cannot do without it the one above learns of the loss with its next flush.
        leaf.shows_loss.set(leaf.drops_pages.get() && self.others_are_whole(&leaf));
        self.fail_flushes(&leaf, times);
        for _ in 0..self.mishaps.rng.range(0..4) {
            self.flush()?;
            self.some_steps(8)?;
        }
        if self.mishaps.rng.percent(40) {
            self.some_steps(200)?;
            self.next_life(true)?;
        }
        Ok(())
    }

    pub(super) fn times_that_flushes_fail(&self) -> u32 {
        if self.mishaps.rng.percent(30) { u32::MAX } else { 1 }
    }

    /// The next flushes of this member fail.
    pub(super) fn fail_flushes(&mut self, member: &Member, times: u32) {
        self.world.trace(|| format!("flushes of {} fail ({times})", member.name()));
        self.did.faults += 1;
        member.fail_flushes(times);
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
        let run = Rng::new(self.world.seed, super::SHOWS_LOSS).percent(50);
        run && self.redundant(leaf.kind.array) && others.all(whole)
    }

    /// A member does not answer any more. Failing it takes effect at once; otherwise it is given up when its time is over.
    fn hangs(&mut self) -> Result<(), Over> {
        let Some(member) = self.one_to_lose(true)? else { return Ok(()) };
        let slot = member.slot.get();
        self.world.trace(|| format!("{} hangs", member.name()));
        self.did.faults += 1;
        member.hung.set(true);
        slot.into_iter().for_each(|slot| self.lose(slot));
        self.some_steps(200)?;
        if !self.plan.odds.hanging_is_failed.contains(&self.mishaps.rng.range(0..100)) {
            return Ok(());
        }
        let since = self.world.now();
        self.fail_leaf(&member)?;
        let took = self.world.now() - since;
        if took > AT_ONCE {
            let text = format!("{} hangs, and failing it took {took} ns", member.name());
            return self.fail("nothing_waits_for_ever", text);
        }
        Ok(())
    }

    /// A member becomes slow and is failed by command, so that it answers afterwards.
    pub(super) fn slow_and_failed(&mut self) -> Result<(), Over> {
        let Some(member) = self.one_to_lose(true)? else { return Ok(()) };
        let (slot, times) = (member.slot.get(), self.mishaps.rng.log_range(20..500));
        self.world.trace(|| format!("{} is {times} times as slow", member.name()));
        self.did.faults += 1;
        member.slowness.set(times);
        slot.into_iter().for_each(|slot| self.lose(slot));
        self.some_steps(100)?;
        let failed = self.fail_leaf(&member);
        member.slowness.set(1);
        failed
    }

    /// Leaves of a stack are gone one soon after the other, as far as it survives that, with what they had cached; then,
    /// often, power fails.
    fn lost_one_after_another(&mut self) -> Result<(), Over> {
        for _ in 0..2 + self.mishaps.rng.range(0..3) {
            let Some(leaf) = self.one_to_lose(false)? else { continue };
            self.world.trace(|| format!("{} is gone", leaf.name()));
            self.did.faults += 1;
            leaf.set_gone(true);
            leaf.power_cut(&self.world.rng, Vec::new());
            leaf.out.set(true);
            self.some_steps(60)?;
        }
        if self.mishaps.rng.percent(50) { self.next_life(true) } else { Ok(()) }
    }
}
