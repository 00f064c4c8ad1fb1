//! Replacements: a member that serves is copied to another, which takes its slot in the end.
//!
//! From its first superblock as a replacement on the new member gets every write of its slot. When all is copied and
//! durable its superblock says that it is whole; then one update gives it the slot and makes the old member faulty, as in md.
//! In between both are whole, whichever superblocks a crash leaves.
//!
//! Should the old member fail, the new one is rebuilt in its place, from where it is.
//!
//! Invariant: a member loses its slot to its replacement only when that is whole and durable, and says so.

use crate::control::jobs::stuck::MayStick;
use crate::control::jobs::{Jobs, plan};
use crate::control::record::members::Standing;
use crate::control::record::retiring::Left;
use crate::engine::window::WindowKind;
use crate::jobs::JobEnd;
use crate::state::view::MemberNr;
use crate::status::JobKind;
use braid_device::{IoError, IoErrorKind};
use braid_layout::{Level, Slot};
use braid_shard::plant::planted;
use std::rc::Rc;
use std::sync::Arc;

impl Jobs {
    /// Fills member `nr` from the one that it is to replace; chooses that first where it is a spare.
    pub(super) async fn replace(self: &Rc<Self>, nr: MemberNr) {
        let Some((slot, recovered)) = self.assign_replacement(nr).await else { return };
        // As for a recovery: level 10 is gone through in the order of the array.
        let along_component = self.record.geometry().level != Level::Raid10;
        let from = if along_component { recovered } else { 0 };
        let window = WindowKind::Replace { slot };
        let job =
            self.new_job(plan(&self.record.geometry(), JobKind::Recover, window, Some(nr), from));
        tracing::info!(
            "array {}: the member of slot {slot} is copied to {}, which is to replace it",
            self.record.name,
            self.record.member_name(nr)
        );
        let end = match self.fill(&job, (nr, None), along_component).await {
            JobEnd::Done => self.finish_replacement(nr, slot).await,
            end => end,
        };
        // One that has failed, or is rebuilt by now because the old member has, has its turn as that.
        let failed = matches!(end, JobEnd::Failed(_)) && self.replacing(nr).is_some();
        self.end_job_or_wait(&job, end, (MayStick::Replacement, failed));
    }

    /// The slot that member `nr` is filled for, and the component bytes that it has already.
    fn replacing(&self, nr: MemberNr) -> Option<(Slot, u64)> {
        match self.record.roster.borrow().member(nr)?.standing {
            Standing::Replacing { slot, recovered, .. } => Some((slot, recovered)),
            _ => None,
        }
    }

    async fn assign_replacement(&self, nr: MemberNr) -> Option<(Slot, u64)> {
        let turn = self.record.turn().await;
        if let Some(known) = self.replacing(nr) {
            return Some(known);
        }
        self.record.roster.borrow().slot_to_replace(nr)?;
        let pen = self.prepare_spare(&turn, nr).await?;
        {
            let mut roster = self.record.roster.borrow_mut();
            let slot = roster.slot_to_replace(nr)?;
            let member = roster.member_mut(nr)?;
            member.standing = Standing::Replacing { slot, recovered: 0, checkpoint: 0 };
            member.replaces = None;
        }
        drop(pen);
        self.record.write_superblocks(&turn).await;
        // Before the first window: from here on all writes of the slot go to the new member too.
        self.record.send_view().await;
        self.replacing(nr)
    }

    /// Has the superblock of member `nr`, which was replaced, say so.
    fn retire(&self, nr: MemberNr) {
        let Some((opener, superblock)) = self
            .record
            .roster
            .borrow()
            .member(nr)
            .map(|member| (Arc::clone(&member.opener), member.superblock.clone()))
        else {
            return;
        };
        let record = Rc::clone(&self.record);
        self.record.shard.spawn(async move {
            if let Err(why) = record.retire(&*opener, &superblock, Left::Replaced).await {
                tracing::warn!(
                    "array {}: {} was replaced, and its superblock does not say so ({why}): erase it before the device \
                     is used elsewhere",
                    record.name,
                    opener.name()
                );
            }
        });
    }

    /// All is copied: the new member has the slot, and the old one is faulty.
    async fn finish_replacement(self: &Rc<Self>, nr: MemberNr, slot: Slot) -> JobEnd {
        let gone = JobEnd::Failed(IoError::new(IoErrorKind::Gone));
        self.journal.drain().await;
        let turn = self.record.turn().await;
        if !planted("replacement-unflushed") {
            self.record.flush_some(|member| member.nr == nr).await;
        }
        // The old member's failure, too, is recorded before it is given up.
        self.record.record_suspects(&turn).await;
        // The new member's word on itself does not depend on what the others say of it.
        match self.record.roster.borrow_mut().member_mut(nr).map(|member| &mut member.standing) {
            Some(Standing::Replacing { recovered, checkpoint, .. }) => {
                (*recovered, *checkpoint) = (u64::MAX - 1, u64::MAX);
            }
            _ => return gone,
        }
        self.record.write_superblocks(&turn).await;
        let old = {
            let mut roster = self.record.roster.borrow_mut();
            if roster.broken {
                return JobEnd::TOO_FEW;
            }
            // It may have failed meanwhile, or be rebuilt by now.
            let Some(old) = roster.hand_over(nr) else { return gone };
            // No view tells of it before the superblocks do.
            self.record.suspects.set_recording(true);
            old
        };
        self.record.write_superblocks(&turn).await;
        // A write that it did not take meanwhile counts as one of this update: only now is the old member given up.
        self.record.record_suspects(&turn).await;
        if !self.record.roster.borrow_mut().handed_over() {
            self.record.record_dropped(&turn).await;
            return gone;
        }
        if let Some(member) = self.record.roster.borrow_mut().member_mut(old) {
            member.want_replacement = false;
        }
        self.record.send_view().await;
        // No shard begins anything with the old member any more.
        let name = self.record.member_name(nr);
        self.record.give_up(old, &format!("{name} has replaced it"));
        drop(turn);
        tracing::info!("array {}: {name} has the slot {slot}", self.record.name);
        self.retire(old);
        self.record.members_changed();
        JobEnd::Done
    }
}
