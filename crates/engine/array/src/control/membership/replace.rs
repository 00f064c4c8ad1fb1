//! Members that are to be replaced by command: the job of `control/jobs/replacing` does it.

use crate::control::commands;
use crate::control::membership::Membership;
use crate::control::record::members::Standing;
use crate::error::ControlError;
use crate::options::MemberSelector;
use crate::state::view::MemberNr;

impl Membership {
    /// Has a member replaced by a spare while it goes on to serve: by `with`, or by whichever there is, or will be.
    ///
    /// # Errors
    /// No such member, one that is not in sync, is being replaced already, or cannot be replaced with its version of the
    /// metadata; `with` is no spare.
    pub async fn replace(
        &self,
        member: &MemberSelector,
        with: Option<&MemberSelector>,
    ) -> Result<(), ControlError> {
        self.check_replace(member, with)?;
        let turn = self.record.turn().await;
        // Things may have changed since they were checked.
        let (old, with) = self.check_replace(member, with)?;
        {
            let mut roster = self.record.roster.borrow_mut();
            if let Some(member) = roster.member_mut(old) {
                member.want_replacement = true;
            }
            if let Some(member) = with.and_then(|with| roster.member_mut(with)) {
                member.replaces = Some(old);
            }
        }
        drop(turn);
        self.record.members_changed();
        Ok(())
    }

    /// Checks that a member can be replaced.
    ///
    /// # Errors
    /// As [`Membership::replace`].
    pub fn check_replace(
        &self,
        member: &MemberSelector,
        with: Option<&MemberSelector>,
    ) -> Result<(MemberNr, Option<MemberNr>), ControlError> {
        let doing = "replacing a member";
        commands::needs_redundancy(&self.record, doing)?;
        commands::needs_working(&self.record, doing)?;
        let old = commands::select(&self.record, doing, member)?;
        let with = with.map(|with| commands::select(&self.record, doing, with)).transpose()?;
        let roster = self.record.roster.borrow();
        let name = |nr: MemberNr| {
            roster.member(nr).map_or_else(|| format!("member {nr}"), |member| member.name.clone())
        };
        let slot = roster.member(old).and_then(|member| match member.standing {
            Standing::InSync(slot) => Some(slot),
            _ => None,
        });
        let other = slot.and_then(|slot| roster.replacement_of(slot));
        let why = match (slot, with.and_then(|with| roster.member(with))) {
            _ if !roster.shared.version.has_recovery_offset() => {
                "superblocks of version 0.90 have no place for a replacement; fail it, and a spare is rebuilt".to_string()
            }
            _ if roster.shared.reshape.is_some() => commands::not_done_yet(&self.record, "a reshape"),
            (None, _) if roster.journal().is_some_and(|journal| journal.nr == old) => {
                "it is the journal, of which nothing is copied; fail and remove it, and add another with --journal"
                    .to_string()
            }
            (None, _) => {
                "it is not in sync, so there is nothing to copy; a spare takes its place once it is removed".to_string()
            }
            _ if other.is_some_and(|other| Some(other.nr) != with) => {
                format!("{} is about to replace it", other.map(|other| other.name.as_str()).unwrap_or_default())
            }
            (_, Some(with)) if with.standing != Standing::Spare => {
                format!("{} is no spare", with.name)
            }
            (_, Some(with)) => {
                self.check_room_for_bitmap(with)?;
                self.check_room_for_log(with)?;
                return Ok((old, Some(with.nr)));
            }
            _ => return Ok((old, None)),
        };
        Err(ControlError::CannotReplace { array: self.record.name.clone(), member: name(old), why })
    }
}
