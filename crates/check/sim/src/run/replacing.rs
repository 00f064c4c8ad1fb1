//! Members of a single array that are replaced while they serve, by a spare that is there or one that is added for it.
//!
//! The end of it is left to the rounds that follow: either member may fail meanwhile, or the power.

use super::Run;
use crate::waiting::{Over, SECOND};
use braid_array::error::ControlError;
use braid_array::options::MemberSelector;
use braid_array::status::{ArrayStatus, MemberState, MemberStatus};
use braid_format::superblock::Version;

impl Run {
    /// Has some member replaced, where none is missing.
    pub(super) fn replace_a_member(&mut self) -> Result<(), Over> {
        let nr = self.top();
        if !self.redundant(nr) || self.promises.excused {
            return Ok(());
        }
        self.oracle.end_steady();
        let status = self.top_status()?;
        if status.version == Version::V0_90 || status.degraded > 0 {
            return Ok(());
        }
        self.remove_faulty(nr, &status)?;
        let mut status = self.top_status()?;
        if !has_spare(&status)
            && let Some(leaf) = self.free_leaf(nr, &status, None)
        {
            self.bring(&leaf, &status)?;
            status = self.top_status()?;
        }
        let in_sync = |member: &&MemberStatus| member.state == MemberState::InSync;
        let olds: Vec<&MemberStatus> = status.members.iter().filter(in_sync).collect();
        if olds.is_empty() || !has_spare(&status) {
            return Ok(());
        }
        let old = olds[self.chances.replaced.rng.below(olds.len())];
        let (selector, control) = (MemberSelector::Nr(old.nr), self.top_control()?);
        self.world.trace(|| format!("replace {}", old.name));
        let later = self
            .life()?
            .machine
            .begin(async move { control.membership().replace(&selector, None).await });
        match self.wait("the command to replace a member", &later)? {
            Ok(()) => self.did.replacements += 1,
            // It has failed meanwhile, or is being replaced already.
            Err(ControlError::CannotReplace { .. } | ControlError::NoSuchMember { .. }) => {}
            Err(error) => self.is_excused(nr, error)?,
        }
        Ok(())
    }

    /// Members are replaced so slowly that the array ends in the middle, as a rule with requests under way, and goes on with
    /// it: what was being written is on one of the two, or on both.
    pub(super) fn replacements_are_cut_short(&mut self) -> Result<(), Over> {
        for _ in 0..1 + self.chances.replaced.rng.below(4) {
            if !self.redundant(self.top()) || self.promises.excused {
                return Ok(());
            }
            self.drain()?;
            self.mend(self.top())?;
            self.wait_for_jobs()?;
            self.replacement_is_cut_short()?;
        }
        Ok(())
    }

    fn replacement_is_cut_short(&mut self) -> Result<(), Over> {
        let slow = *self.chances.replaced.rng.pick(&[16, 128, 1024]);
        if let Err(error) = self.top_control()?.jobs().set_sync_speed(0, slow) {
            return self.fail("requests_succeed", error.to_string());
        }
        self.replace_a_member()?;
        for _ in 0..1 + self.chances.replaced.rng.below(3) {
            self.time_passes(self.chances.replaced.rng.log_range(1_000_000..8 * SECOND))?;
            // Where it has come to is recorded then, and it goes on from there.
            if self.chances.replaced.rng.percent(70) {
                self.top_control()?.jobs().cancel_job();
            }
            self.quiet_round()?;
        }
        // Where the new member has all of it already.
        let early = (self.oracle.len() / 8).max(1);
        for _ in 0..self.chances.replaced.rng.below(8) {
            let start = self.chances.replaced.rng.range(0..early);
            let end = (start + self.chances.replaced.rng.log_range(1..64)).min(self.oracle.len());
            self.write(start..end, false)?;
        }
        self.run_on(self.chances.replaced.rng.range(0..40))?;
        self.next_life(self.chances.replaced.chance(75))?;
        self.quiet_round()?;
        self.wait_for_jobs()
    }
}

fn has_spare(status: &ArrayStatus) -> bool {
    status.members.iter().any(|member| member.state == MemberState::Spare)
}
