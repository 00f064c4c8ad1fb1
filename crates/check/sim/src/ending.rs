//! The last round: everything is repaired, checked, read back and stopped, and the images are compared
//! with what they should hold.

use crate::checkers::parity_matches_data;
use crate::images;
use crate::run::Run;
use crate::steps::Steps;
use crate::waiting::Over;
use braid_array::status::{ArrayStatus, JobOutcome};
use braid_layout::Layout;
use std::ops::Range;
use std::rc::Rc;

impl Run {
    /// Ends the run.
    pub(crate) fn ending(&mut self) -> Result<(), Over> {
        self.world.trace(|| "the end begins".to_string());
        self.drain()?;
        let members = self.world.members.borrow().clone();
        for member in &members {
            member.fail_write_in(None);
        }
        let redundant = self.scenario.create.level.has_redundancy();
        if redundant && !self.excused {
            self.wait_for_jobs()?;
            if self.status()?.degraded > 0 && self.rng.percent(80) {
                self.add_a_member()?;
                self.wait_for_jobs()?;
            }
            self.scrub()?;
        }
        self.read_everything()?;
        let degraded = redundant && self.status()?.degraded > 0;
        self.stop()?;
        let present: Vec<_> = members.iter().filter(|m| !m.is_gone()).cloned().collect();
        if redundant
            && !self.excused
            && !self.forced
            && let Some(choice) = images::md_choice(&self.world, &present)
        {
            if !choice.freshest.is_clean() {
                let text = "after a clean stop the superblocks say that it was none".to_string();
                return self.fail("assembles", text);
            }
            parity_matches_data::look(&self.world, &self.layout, &choice);
        }
        if self.world.failure().is_some() {
            return Err(Over);
        }
        if !degraded && self.rng.percent(20) {
            self.assemble()?;
            self.read_everything()?;
            self.stop()?;
        }
        Ok(())
    }

    fn scrub(&mut self) -> Result<(), Over> {
        let whole = self.status()?.degraded == 0;
        if self.forced || !self.holes.is_empty() {
            self.scrub_once(true)?;
            if whole {
                self.redundancy_holds();
            }
        }
        // A repair, or the jobs before, may have met unreadable blocks and mended them.
        let status = self.scrub_once(false)?;
        if status.mismatch_cnt != 0 && !self.forced {
            self.compare_places_with_lies(&status);
            let text = format!("a check counts {} sectors that differ", status.mismatch_cnt);
            return self.fail("check_finds_nothing", text);
        }
        if whole && self.rng.percent(30) { self.rot() } else { Ok(()) }
    }

    /// A check has found places that differ, and what liars have lost is perhaps in none of their rows.
    fn compare_places_with_lies(&self, status: &ArrayStatus) {
        let (Some(lost), Some(found)) = (self.world.lost_with_lies(), &status.scrubbed) else {
            return;
        };
        // The copies of level 10 are at different offsets.
        if matches!(*self.layout, Layout::Raid10(_)) {
            return;
        }
        let touched = |at: &Range<u64>| {
            lost.iter().any(|(_, lost)| lost.start < at.end && at.start < lost.end)
        };
        if found.findings.places.iter().any(|place| !touched(&place.component)) {
            self.world.beside_lies.set(true);
        }
    }

    pub(crate) fn scrub_once(&mut self, repair: bool) -> Result<ArrayStatus, Over> {
        let control = self.control()?;
        let started =
            if repair { control.jobs().start_repair() } else { control.jobs().start_check() };
        if let Err(error) = started {
            return self.fail("requests_succeed", error.to_string());
        }
        self.wait_for_jobs()?;
        let status = self.status()?;
        match status.last_job.as_ref().map(|job| &job.outcome) {
            Some(JobOutcome::Done) => Ok(status),
            other => self.fail("requests_succeed", format!("a check or repair ended: {other:?}")),
        }
    }

    /// Some bytes of one member change; a check must count that. Then they change back.
    fn rot(&mut self) -> Result<(), Over> {
        let members = self.world.members.borrow().clone();
        let holders: Vec<_> =
            members.iter().filter(|m| m.in_sync.get() && !m.out.get() && !m.is_weak()).collect();
        // A check leaves out what is recorded as bad.
        if holders.is_empty() || members.iter().any(|member| member.scarred.get()) {
            return Ok(());
        }
        let member = Rc::clone(holders[self.rng.below(holders.len())]);
        let used = self.layout.used_size(member.slot.get().unwrap_or(0));
        let at = self.rng.range(0..used / 512) * 512;
        if images::unit_range(&self.layout, member.slot.get(), at).is_none() {
            return Ok(());
        }
        let start = member.data.borrow().start + at;
        let right = member.image(start..start + 512);
        let wrong: Vec<u8> = right.iter().map(|byte| byte ^ 0x5a).collect();
        self.world.trace(|| format!("{} rots at component byte {at}", member.name()));
        member.rot(start, &wrong);
        let status = self.scrub_once(false)?;
        let named = match &*self.layout {
            Layout::Parity(parity) => parity.parity_count() == 2,
            Layout::Mirror(mirror) => mirror.slots() > 2,
            Layout::Raid10(raid10) => raid10.copy_count() > 2,
            _ => false,
        };
        if named && status.degraded == 0 && self.mishaps.chance(60) {
            // The others say which member is wrong: a repair mends that one.
            let status = self.scrub_once(true)?;
            if status.degraded == 0 && member.image(start..start + 512) != right {
                let text = format!(
                    "{} has rotten at component byte {at}; a repair does not mend it",
                    member.name()
                );
                return self.fail("repair_mends_rot", text);
            }
        }
        member.rot(start, &right);
        // One that fails fast at a block that it cannot read leaves nothing to compare with.
        if status.mismatch_cnt == 0 && status.degraded == 0 {
            let text = format!(
                "{} has rotten at component byte {at}; a check sees nothing",
                member.name()
            );
            return self.fail("check_finds_rot", text);
        }
        Ok(())
    }
}
