//! The last round: every layer is mended, checked, read back and stopped, and what every array holds is
//! compared with what it should hold.

use super::rest::AtRest;
use super::{StackRun, When, plan::Below};
use crate::machine::Step;
use crate::member::Member;
use crate::steps::Steps;
use crate::waiting::Over;
use braid_array::status::{ArrayStatus, JobOutcome, MemberState};
use braid_shard::Nanos;
use std::rc::Rc;

/// After so long without requests arrays have marked themselves clean and cleared their bitmaps.
const AT_REST: Nanos = 60_000_000_000;

impl StackRun {
    pub(super) fn ending(&mut self) -> Result<(), Over> {
        self.world.trace(|| "the end begins".to_string());
        self.drain()?;
        for member in self.world.members.borrow().iter() {
            member.fail_write_in(None);
        }
        self.wait_for_jobs()?;
        for nr in 0..self.plan.arrays.len() {
            if self.status(nr)?.is_some_and(|status| status.degraded > 0) && self.rng.percent(80) {
                self.mend(nr)?;
            }
        }
        self.wait_for_jobs()?;
        for nr in 0..self.plan.arrays.len() {
            self.scrub(nr)?;
        }
        self.read_everything()?;
        let statuses = self.statuses()?;
        let counts = self.counting(&statuses, None, When::Now);
        self.stop()?;
        let layouts = self.layouts();
        let rest = AtRest::look(&self.world, &self.plan.arrays, &layouts, &counts);
        if self.world.failure().is_some() {
            return Err(Over);
        }
        rest.copies_hold_acknowledged(&self.world, &layouts, &mut self.oracle);
        for (nr, layout) in layouts.iter().enumerate() {
            let Some(Some(resting)) = rest.arrays.get(nr) else { continue };
            let pending = statuses[nr].as_ref().is_some_and(|status| status.resynced.is_some());
            if !resting.choice.freshest.is_clean() && !pending {
                let text =
                    format!("after a clean stop the superblocks of a{nr} say that it was none");
                return self.fail("assembles", text);
            }
            if let (Some(layout), true) = (layout, self.redundant(nr)) {
                rest.redundancy_matches(&self.world, layout, nr);
            }
        }
        if self.world.failure().is_some() { Err(Over) } else { Ok(()) }
    }

    /// A check of array `nr` finds nothing, unless something rots.
    fn scrub(&mut self, nr: usize) -> Result<(), Over> {
        let statuses = self.statuses()?;
        if !self.redundant(nr) || !self.counting(&statuses, None, When::Now)[nr] {
            return Ok(());
        }
        let Some(status) = self.scrub_once(nr)? else { return Ok(()) };
        if status.mismatch_cnt != 0 {
            let text =
                format!("a check of a{nr} counts {} sectors that differ", status.mismatch_cnt);
            return self.fail("check_finds_nothing", text);
        }
        if status.degraded == 0 && self.rng.percent(30) { self.rot(nr) } else { Ok(()) }
    }

    fn scrub_once(&mut self, nr: usize) -> Result<Option<ArrayStatus>, Over> {
        let Some(control) = self.control(nr) else { return Ok(None) };
        if let Err(error) = control.jobs().start_check() {
            return self.fail("requests_succeed", error.to_string());
        }
        self.wait_for_jobs()?;
        let status = self.status(nr)?;
        match status.as_ref().and_then(|status| status.last_job.as_ref()).map(|job| &job.outcome) {
            Some(JobOutcome::Done) => Ok(status),
            other => self.fail("requests_succeed", format!("a check of a{nr} ended: {other:?}")),
        }
    }

    /// Some bytes of a leaf of array `nr` change; a check must count that. Then they change back.
    fn rot(&mut self, nr: usize) -> Result<(), Over> {
        let Below::Leaves(leaves) = self.plan.arrays[nr].below.clone() else { return Ok(()) };
        let leaves: Vec<_> = leaves.iter().map(|index| self.world.member(*index)).collect();
        let Some(layout) = self.layout(nr) else { return Ok(()) };
        let Some(status) = self.status(nr)? else { return Ok(()) };
        // One that the array has dropped and replaced holds its slot for itself alone.
        let held = |leaf: &Rc<Member>| {
            let known = status.members.iter().find(|known| known.name == leaf.name());
            known.is_some_and(|known| known.state == MemberState::InSync)
        };
        let sound: Vec<_> =
            leaves.iter().filter(|m| held(m) && !m.out.get() && !m.is_weak()).collect();
        // The arrays above come to rest: what they write of their own would mend it.
        let rest = self.world.now() + AT_REST;
        while self.world.now() < rest && self.step()? != Step::Stuck {}
        // A check leaves out what is recorded as bad.
        if sound.is_empty() || leaves.iter().any(|member| member.scarred.get()) {
            return Ok(());
        }
        let leaf = Rc::clone(sound[self.rng.below(sound.len())]);
        let used = layout.used_size(leaf.slot.get().unwrap_or(0));
        let at = self.rng.range(0..used / 512) * 512;
        if crate::images::unit_range(&layout, leaf.slot.get(), at).is_none() {
            return Ok(());
        }
        let start = leaf.data.borrow().start + at;
        let right = leaf.image(start..start + 512);
        let wrong: Vec<u8> = right.iter().map(|byte| byte ^ 0x5a).collect();
        self.world.trace(|| format!("{} rots at component byte {at}", leaf.name()));
        leaf.rot(start, &wrong);
        let status = self.scrub_once(nr)?;
        leaf.rot(start, &right);
        if status.is_some_and(|status| status.mismatch_cnt == 0 && status.degraded == 0) {
            let text =
                format!("{} has rotten at component byte {at}; a check sees nothing", leaf.name());
            return self.fail("check_finds_rot", text);
        }
        Ok(())
    }
}
