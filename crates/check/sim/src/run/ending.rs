//! The last round: everything is mended, checked, read back and stopped, and the images are compared with what they
//! should hold.

use super::Run;
use super::counting::{When, in_sync_at_rest};
use super::rest::AtRest;
use crate::checkers::parity_matches_data;
use crate::images;
use crate::machine::Step;
use crate::member::Member;
use crate::waiting::{Over, SECOND};
use braid_array::state::findings::{Finding, Verdict};
use braid_array::status::{ArrayStatus, MemberState};
use braid_layout::Layout;
use braid_shard::Nanos;
use std::ops::Range;
use std::rc::Rc;

/// After so long without requests arrays have marked themselves clean and cleared their bitmaps.
const AT_REST: Nanos = 60 * SECOND;

impl Run {
    /// Ends the run.
    pub(super) fn ending(&mut self) -> Result<(), Over> {
        self.world.trace(|| "the end begins".to_string());
        self.drain()?;
        self.world.members.borrow().iter().for_each(|member| member.fail_write_in(None));
        let (top, alone) = (self.top(), self.plan.is_alone());
        if !alone || self.redundant(top) && !self.promises.excused {
            self.mend_and_check()?;
        }
        self.read_everything()?;
        if !alone {
            return self.stop_and_compare_all();
        }
        let degraded = self.redundant(top) && self.top_status()?.degraded > 0;
        self.stop_and_compare()?;
        if !degraded && self.rng.percent(20) {
            self.assemble()?;
            self.read_everything()?;
            self.stop()?;
        }
        Ok(())
    }

    fn mend_and_check(&mut self) -> Result<(), Over> {
        self.wait_for_jobs()?;
        let mut mended = !self.plan.is_alone();
        for nr in 0..self.plan.arrays.len() {
            if self.status(nr)?.is_some_and(|status| status.degraded > 0) && self.rng.percent(80) {
                self.mend(nr)?;
                mended = true;
            }
        }
        if mended {
            self.wait_for_jobs()?;
        }
        (0..self.plan.arrays.len()).try_for_each(|nr| self.scrub(nr))
    }

    fn stop_and_compare(&mut self) -> Result<(), Over> {
        let members = self.world.members.borrow().clone();
        self.stop()?;
        let present: Vec<_> = members.iter().filter(|m| !m.is_gone()).cloned().collect();
        let trusted = self.redundant(self.top()) && !self.promises.excused && !self.promises.forced;
        if trusted && let Some(choice) = images::md_choice(&self.world, &present) {
            if !choice.freshest.is_clean() {
                let text = "after a clean stop the superblocks say that it was none".to_string();
                return self.fail("assembles", text);
            }
            parity_matches_data::look(&self.world, &self.layout(self.top()), &choice);
        }
        self.goes_on()
    }

    fn stop_and_compare_all(&mut self) -> Result<(), Over> {
        let statuses = self.statuses()?;
        let counts = self.counting(&statuses, None, When::Now);
        self.stop()?;
        let layouts = self.layouts();
        let rest = AtRest::look(&self.world, &self.plan.arrays, &layouts, &counts);
        self.goes_on()?;
        rest.copies_hold_acknowledged(&self.world, &layouts, &mut self.oracle);
        for (nr, layout) in layouts.iter().enumerate() {
            let Some(Some(resting)) = rest.arrays.get(nr) else { continue };
            let pending = statuses[nr].as_ref().is_some_and(|status| status.resynced.is_some());
            if !resting.choice.freshest.is_clean() && !pending {
                let text =
                    format!("after a clean stop the superblocks of a{nr} say that it was none");
                return self.fail("assembles", text);
            }
            if self.redundant(nr) {
                rest.redundancy_matches(&self.world, layout, nr);
            }
        }
        self.goes_on()
    }

    /// A check of array `nr` finds nothing, unless something rots. An array of a stack that does not count is not checked.
    fn scrub(&mut self, nr: usize) -> Result<(), Over> {
        let mut whole = None;
        if self.plan.is_alone() {
            whole = Some(self.top_status()?.degraded == 0);
            self.repair_what_was_forced(nr, whole == Some(true))?;
        } else {
            let statuses = self.statuses()?;
            if !self.redundant(nr) || !self.counting(&statuses, None, When::Now)[nr] {
                return Ok(());
            }
        }
        // A repair, or the jobs before, may have met unreadable blocks and mended them.
        let Some(status) = self.scrub_once(nr, false)? else { return Ok(()) };
        if status.mismatch_cnt != 0 && !self.promises.forced {
            self.compare_places_with_lies(&status);
            let (a, count) = (self.a(nr), status.mismatch_cnt);
            self.world.trace(|| format!("found: {:?}", status.scrubbed));
            let text = format!("{a}a check counts {count} sectors that differ");
            return self.fail("check_finds_nothing", text);
        }
        let whole = whole.unwrap_or(status.degraded == 0);
        if whole && self.rng.percent(30) { self.rot(nr) } else { Ok(()) }
    }

    fn repair_what_was_forced(&mut self, nr: usize, whole: bool) -> Result<(), Over> {
        if self.promises.forced || !self.promises.holes.is_empty() {
            self.scrub_once(nr, true)?;
            if whole {
                self.redundancy_holds();
            }
        }
        Ok(())
    }

    /// A check of a single array has found places that differ, and what liars have lost is perhaps in none of their rows.
    fn compare_places_with_lies(&self, status: &ArrayStatus) {
        let (Some(lost), Some(found)) = (self.world.lost_with_lies(), &status.scrubbed) else {
            return;
        };
        // The copies of level 10 are at different offsets.
        if !self.plan.is_alone() || matches!(*self.layout(self.top()), Layout::Raid10(_)) {
            return;
        }
        let touched = |at: &Range<u64>| {
            lost.iter().any(|(_, lost)| lost.start < at.end && at.start < lost.end)
        };
        let differs = |place: &&Finding| place.verdict != Verdict::Unreadable;
        if found.findings.places.iter().filter(differs).any(|place| !touched(&place.component)) {
            self.world.beside_lies.set(true);
        }
    }

    /// Some bytes of a leaf of array `nr` change; a check must count that. Then they change back.
    fn rot(&mut self, nr: usize) -> Result<(), Over> {
        let (leaves, layout) = (self.leaves_of(nr), self.layout(nr));
        if leaves.is_empty() {
            return Ok(());
        }
        let sound = self.in_sync_leaves(nr, &leaves)?;
        // A check leaves out what is recorded as bad.
        if sound.is_empty() || leaves.iter().any(|member| member.scarred.get()) {
            return Ok(());
        }
        let leaf = Rc::clone(sound[self.rng.below(sound.len())]);
        let used = layout.used_size(leaf.slot.get().unwrap_or(0));
        let at = self.rng.range(0..used / 512) * 512;
        if images::unit_range(&layout, leaf.slot.get(), at).is_none() {
            return Ok(());
        }
        let (name, start) = (leaf.name(), leaf.data.borrow().start + at);
        let right = leaf.image(start..start + 512);
        let wrong: Vec<u8> = right.iter().map(|byte| byte ^ 0x5a).collect();
        self.world.trace(|| format!("{name} rots at component byte {at}"));
        leaf.rot(start, &wrong);
        let Some(status) = self.scrub_once(nr, false)? else {
            leaf.rot(start, &right);
            return Ok(());
        };
        if tells_which(&layout) && status.degraded == 0 {
            let repairs = self.mishaps.chance(self.plan.odds.rot_is_repaired);
            // The others say which member is wrong: a repair mends that one.
            let after = if repairs { self.scrub_once(nr, true)? } else { None };
            let whole = after.is_some_and(|status| status.degraded == 0);
            if whole && leaf.image(start..start + 512) != right {
                let text =
                    format!("{name} has rotten at component byte {at}; a repair does not mend it");
                return self.fail("repair_mends_rot", text);
            }
        }
        leaf.rot(start, &right);
        // One that fails fast at a block that it cannot read leaves nothing to compare with.
        if status.mismatch_cnt == 0 && status.degraded == 0 {
            let text = format!("{name} has rotten at component byte {at}; a check sees nothing");
            return self.fail("check_finds_rot", text);
        }
        Ok(())
    }

    /// Those of the leaves of array `nr` that are in sync and work; of a stack when the arrays above have come to rest.
    fn in_sync_leaves<'a>(
        &mut self,
        nr: usize,
        leaves: &'a [Rc<Member>],
    ) -> Result<Vec<&'a Rc<Member>>, Over> {
        let works = |m: &&Rc<Member>| !m.out.get() && !m.is_weak();
        let working = leaves.iter().filter(works);
        if self.plan.is_alone() {
            return Ok(working.filter(|m| in_sync_at_rest(m).is_some()).collect());
        }
        let Some(status) = self.status(nr)? else { return Ok(Vec::new()) };
        // One that the array has dropped and replaced holds its slot for itself alone.
        let held = |leaf: &&Rc<Member>| {
            let known = status.members.iter().find(|known| known.name == leaf.name());
            known.is_some_and(|known| known.state == MemberState::InSync)
        };
        let sound = leaves.iter().filter(works).filter(held).collect();
        // What the arrays above write of their own would mend it.
        let rest = self.world.now() + AT_REST;
        while self.world.now() < rest && self.step()? != Step::Stuck {}
        Ok(sound)
    }
}

/// Of copies, or data and parity, that differ in one member's block, the others say which it is.
fn tells_which(layout: &Layout) -> bool {
    match layout {
        Layout::Parity(parity) => parity.parity_count() == 2,
        Layout::Mirror(mirror) => mirror.slots() > 2,
        Layout::Raid10(raid10) => raid10.copy_count() > 2,
        _ => false,
    }
}
