//! Commands over several members: each member is checked before the first is changed.
//!
//! A check holds for the moment at which it is made: the command itself checks again under the turn.

use crate::control::commands;
use crate::control::membership::Membership;
use crate::control::record::members::Standing;
use crate::error::ControlError;
use crate::options::MemberSelector;
use crate::state::view::MemberNr;
use braid_device::Opener;

impl Membership {
    /// Checks that all of these members can be failed, one after the other.
    ///
    /// # Errors
    /// As [`Membership::fail`]; the array must be able to do without all of them together.
    pub fn check_fail(&self, members: &[MemberSelector]) -> Result<(), ControlError> {
        let doing = "failing a member";
        commands::needs_redundancy(&self.record, doing)?;
        let mut before: Vec<MemberNr> = Vec::new();
        for member in members {
            let nr = commands::select(&self.record, doing, member)?;
            let roster = self.record.roster.borrow();
            if !roster.survives_without_all(&self.record.geometries(), nr, &before) {
                drop(roster);
                return Err(self.last_redundancy(nr));
            }
            before.push(nr);
        }
        Ok(())
    }

    /// Checks that all of these members can be removed.
    ///
    /// # Errors
    /// As [`Membership::remove`].
    pub fn check_remove(&self, members: &[MemberSelector]) -> Result<(), ControlError> {
        let doing = "removing a member";
        commands::needs_redundancy(&self.record, doing)?;
        for member in members {
            self.check_removable(commands::select(&self.record, doing, member)?)?;
        }
        Ok(())
    }

    /// The member is faulty or a spare.
    pub(super) fn check_removable(&self, nr: MemberNr) -> Result<(), ControlError> {
        let roster = self.record.roster.borrow();
        let Some(member) = roster.member(nr) else { return Ok(()) };
        let state = match member.standing {
            Standing::InSync(slot) => format!("in sync in slot {slot}"),
            Standing::Rebuilding { slot, .. } => format!("being rebuilt in slot {slot}"),
            Standing::Journal => "in use as the journal".to_string(),
            Standing::Replacing { slot, .. } => {
                format!("being filled to replace the member of slot {slot}")
            }
            Standing::Spare | Standing::Faulty(_) => return Ok(()),
        };
        let (array, member) = (self.record.name.clone(), member.name.clone());
        Err(ControlError::NotRemovable { array, member, state })
    }

    /// Checks that a device can be added: nothing is written to it.
    ///
    /// # Errors
    /// As [`Membership::add`].
    pub async fn check_add(&self, opener: &dyn Opener, force: bool) -> Result<(), ControlError> {
        let doing = "adding a member";
        let name = opener.name();
        let device = self.open_candidate(opener, doing).await?;
        let old = self.superblock_of(name, &device, force).await?;
        self.check_not_a_member(name, old.as_ref(), force)?;
        self.check_blocks(name, &device)?;
        if let Some(old) = old.filter(|_| !force) {
            if self.former_slot(&old).is_ok() {
                return Ok(());
            }
            self.check_not_apart(name, &old)?;
        }
        self.place_new_member(name, &device).map(drop)
    }

    /// Checks that a device can be re-added: nothing is written to it.
    ///
    /// # Errors
    /// As [`Membership::re_add`].
    pub async fn check_re_add(&self, opener: &dyn Opener) -> Result<(), ControlError> {
        let name = opener.name();
        let device = self.open_candidate(opener, "re-adding a member").await?;
        let old = self.superblock_of_former(name, &device).await?;
        self.check_not_a_member(name, Some(&old), false)?;
        self.check_blocks(name, &device)?;
        self.former_slot(&old).map(drop).map_err(|why| self.cannot(name, why))
    }
}
