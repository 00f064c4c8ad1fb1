//! Members that are filled to replace others: what the roster says of them.
//!
//! When a slot changes hands the roster says so before the superblocks do, for as long as their update takes. Should the new
//! member fail in that update, the old one has it again: it has got every write.

use crate::control::record::members::{HandingOver, Member, Roster, Standing};
use crate::state::view::MemberNr;
use braid_layout::Slot;
use braid_shard::plant::planted;

impl Roster {
    /// The member that is filled to replace the holder of `slot`.
    pub(crate) fn replacement_of(&self, slot: Slot) -> Option<&Member> {
        let fills = |member: &&Member| match member.standing {
            Standing::Replacing { slot: own, .. } => own == slot,
            _ => false,
        };
        self.members.iter().find(fills)
    }

    /// The name of a member that is being replaced, or is to be.
    pub(crate) fn being_replaced(&self) -> Option<&str> {
        let replaced = |member: &&Member| {
            let begun = |slot| member.want_replacement || self.replacement_of(slot).is_some();
            member.standing.slot().is_some_and(begun)
        };
        self.members.iter().find(replaced).map(|member| member.name.as_str())
    }

    /// The holder of `slot` is lost: its replacement, if it has one, is rebuilt in its place, from where it is. One that is
    /// whole already has the slot.
    pub(crate) fn promote_replacement(&mut self, slot: Slot) {
        let nr = self.replacement_of(slot).map(|member| member.nr);
        let Some(member) = nr.and_then(|nr| self.member_mut(nr)) else { return };
        if let Standing::Replacing { slot, recovered, checkpoint } = member.standing {
            let recovered = if planted("promoted-as-whole") { u64::MAX - 1 } else { recovered };
            member.standing = match checkpoint {
                u64::MAX => Standing::InSync(slot),
                _ => Standing::Rebuilding { slot, recovered, checkpoint, by_bitmap: false },
            };
        }
    }

    /// Replacements are filled anew from the start: they may differ from the members that they are to replace where no
    /// resync comes by.
    pub(crate) fn restart_replacements(&mut self) {
        for member in &mut self.members {
            if let Standing::Replacing { recovered, checkpoint, .. } = &mut member.standing {
                (*recovered, *checkpoint) = (0, 0);
            }
        }
    }

    /// Replacement `nr`, which is whole, gets its slot with the next update of the superblocks, and the member that has it is
    /// faulty then: that one's number. `None`: it is no replacement.
    pub(crate) fn hand_over(&mut self, nr: MemberNr) -> Option<MemberNr> {
        let Standing::Replacing { slot, .. } = self.member(nr)?.standing else { return None };
        let why = format!("{} has replaced it", self.member(nr)?.name);
        let from = self.holder(slot)?.nr;
        self.member_mut(from)?.standing = Standing::Faulty(why);
        self.member_mut(nr)?.standing = Standing::InSync(slot);
        self.handing_over = Some(HandingOver { slot, from, to: nr });
        Some(from)
    }

    /// The update is made. Tells that the slot has changed hands.
    pub(crate) fn handed_over(&mut self) -> bool {
        self.handing_over.take().is_some()
    }

    /// Member `nr` is lost: where it was about to get a slot, that is still the old member's.
    pub(crate) fn take_back_from(&mut self, nr: MemberNr) {
        let Some(HandingOver { slot, from, to }) = self.handing_over.filter(|over| over.to == nr)
        else {
            return;
        };
        self.handing_over = None;
        if let Some(member) = self.member_mut(from) {
            member.standing = Standing::InSync(slot);
        }
        if let Some(member) = self.member_mut(to) {
            member.standing = Standing::Replacing { slot, recovered: 0, checkpoint: 0 };
        }
    }

    /// The standing of a member as far as the superblocks have it.
    pub(crate) fn recorded_standing(&self, member: &Member) -> Standing {
        match self.handing_over {
            Some(HandingOver { slot, from, .. }) if from == member.nr => Standing::InSync(slot),
            Some(HandingOver { slot, to, .. }) if to == member.nr => {
                Standing::Replacing { slot, recovered: u64::MAX - 1, checkpoint: u64::MAX }
            }
            _ => member.standing.clone(),
        }
    }

    /// The member that has `slot` as far as the superblocks have it.
    pub(crate) fn recorded_holder(&self, slot: Slot) -> Option<MemberNr> {
        let mut members = self.members.iter();
        let holds = |member: &&Member| self.recorded_standing(member).slot() == Some(slot);
        members.find(holds).map(|member| member.nr)
    }

    /// The member that is to be filled: a replacement that was begun, or else a spare where some member is to be replaced.
    pub(crate) fn replacement_due(&self) -> Option<MemberNr> {
        let begun = |member: &&Member| matches!(member.standing, Standing::Replacing { .. });
        if let Some(member) = self.members.iter().find(begun) {
            return Some(member.nr);
        }
        let wanting =
            |member: &&Member| member.want_replacement && self.replaceable(member).is_some();
        let mut wanting = self.members.iter().filter(wanting);
        wanting.find_map(|member| self.spare_for(member.nr))
    }

    /// The slot that spare `nr` is to be filled for.
    pub(crate) fn slot_to_replace(&self, nr: MemberNr) -> Option<Slot> {
        let wanting = self.members.iter().filter(|member| member.want_replacement);
        let mut meant = wanting.filter(|member| self.spare_for(member.nr) == Some(nr));
        meant.find_map(|member| self.replaceable(member))
    }

    /// The spare that is to replace member `old`: the one that was named, else the first that is meant for no other.
    fn spare_for(&self, old: MemberNr) -> Option<MemberNr> {
        let spares = || self.members.iter().filter(|member| member.standing == Standing::Spare);
        let named = spares().find(|spare| spare.replaces == Some(old));
        // Of a spare that is named for a member which is gone nobody makes use before that.
        let free = |spare: &&Member| spare.replaces.is_none_or(|nr| self.member(nr).is_none());
        named.or_else(|| spares().find(free)).map(|member| member.nr)
    }

    /// The slot of a member that can be replaced.
    fn replaceable(&self, member: &Member) -> Option<Slot> {
        let Standing::InSync(slot) = member.standing else { return None };
        let free = self.replacement_of(slot).is_none();
        (free && self.shared.version.has_recovery_offset()).then_some(slot)
    }
}
