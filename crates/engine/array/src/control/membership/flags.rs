//! Flags of members, changed while the array runs: write-mostly and failfast.

use crate::control::commands;
use crate::control::membership::Membership;
use crate::error::ControlError;
use crate::options::MemberSelector;
use crate::state::flags::MemberFlags;

impl Membership {
    /// Changes the flags of a member; they are in its superblock when this comes back, and all shards know.
    ///
    /// # Errors
    /// No such member, a faulty one, or an array that may not be written.
    pub async fn set_flags(
        &self,
        member: &MemberSelector,
        change: impl FnOnce(&mut MemberFlags),
    ) -> Result<(), ControlError> {
        let doing = "changing a member's flags";
        let nr = commands::select(&self.record, doing, member)?;
        commands::needs_working(&self.record, doing)?;
        let turn = self.record.turn().await;
        {
            let mut roster = self.record.roster.borrow_mut();
            let found = roster.member_mut(nr).filter(|member| !member.is_faulty());
            let Some(member) = found else {
                drop(roster);
                let array = self.record.name.clone();
                let member = self.record.member_name(nr);
                return Err(ControlError::FaultyMember { doing, array, member });
            };
            let mut flags = MemberFlags::of(&member.superblock);
            change(&mut flags);
            let devflags = flags.within(member.superblock.devflags);
            if devflags == member.superblock.devflags {
                return Ok(());
            }
            member.superblock.devflags = devflags;
        }
        self.record.write_superblocks(&turn).await;
        self.record.send_view().await;
        Ok(())
    }
}
