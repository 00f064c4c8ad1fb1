//! Members of a single array that are replaced while they serve, by a spare that is there or one that is added for it.
//!
//! What comes of it is left to the rounds that follow: either member may fail meanwhile, or the power.

use super::Run;
use crate::waiting::Over;
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
}

fn has_spare(status: &ArrayStatus) -> bool {
    status.members.iter().any(|member| member.state == MemberState::Spare)
}
