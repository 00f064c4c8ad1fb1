//! A device added as the write journal.

use crate::control::commands;
use crate::control::membership::{Added, Membership};
use crate::control::record::members::Member;
use crate::error::ControlError;
use braid_device::Opener;
use braid_device::meter::Metered;
use braid_shard::plant::planted;
use braid_shard::sync::Share;
use std::rc::Rc;
use std::sync::Arc;

impl Membership {
    /// Adds a device as the write journal of an array that has lost its own, which can be written again from then on, or
    /// of one that has none. What the device held is lost.
    ///
    /// # Errors
    /// As [`Membership::add`]; an array that has a journal, or cannot have one.
    pub async fn add_journal(
        &self,
        opener: Arc<dyn Opener>,
        force: bool,
    ) -> Result<Added, ControlError> {
        let device = self.open_journal(&*opener, force).await?;
        // Writes that have not been logged end.
        self.record.engines.hold_requests().await;
        let added = self.put_journal(opener, device, force).await;
        self.record.engines.end_hold().await;
        self.record.members_changed();
        added
    }

    /// Checks that a device can be added as the journal: nothing is written to it.
    ///
    /// # Errors
    /// As [`Membership::add_journal`].
    pub async fn check_add_journal(
        &self,
        opener: &dyn Opener,
        force: bool,
    ) -> Result<(), ControlError> {
        self.open_journal(opener, force).await.map(drop)
    }

    async fn open_journal(
        &self,
        opener: &dyn Opener,
        force: bool,
    ) -> Result<Rc<Metered>, ControlError> {
        let name = opener.name();
        let device = self.open_candidate(opener, "adding a journal").await?;
        let old = self.superblock_of(name, &device, force).await?;
        self.check_not_a_member(name, old.as_ref(), force)?;
        if let Some(old) = old.filter(|_| !force) {
            self.check_not_apart(name, &old)?;
        }
        // Its ring is written in blocks of its own, so larger ones than those of the array do.
        self.journal.place(name, &device)?;
        Ok(device)
    }

    async fn put_journal(
        &self,
        opener: Arc<dyn Opener>,
        device: Rc<Metered>,
        force: bool,
    ) -> Result<Added, ControlError> {
        let name = opener.name().to_string();
        let turn = self.record.turn().await;
        commands::needs_working(&self.record, "adding a journal")?;
        let old = self.superblock_of(&name, &device, force).await?;
        self.check_not_a_member(&name, old.as_ref(), force)?;
        let at = self.journal.place(&name, &device)?;
        let mut member = self.new_member(opener, device, at)?;
        self.reserve(&mut member).await?;
        let reservation = member.reservation.clone();
        self.left(reservation, self.enter_journal(turn, member).await).await
    }

    async fn enter_journal(&self, turn: Share, mut member: Member) -> Result<Added, ControlError> {
        let (nr, name) = (member.nr, member.name.clone());
        self.prepare_device(&member).await?;
        let begun = self.journal.prepare(&mut member).await?;
        if let Err(source) = self.record.engines.open_member(nr, &member.opener).await {
            self.record.engines.close_member(nr).await;
            return Err(ControlError::Open { array: self.record.name.clone(), source });
        }
        // With a journal the superblocks say that a crash leaves nothing to be resynced; what was written before it came is in
        // no log, and may be in caches.
        if !planted("journal-added-unflushed") {
            self.record.flush_members(&turn, |_| true).await;
        }
        let had_one = self.record.roster.borrow().shared.journal;
        self.unanswered.enter(member);
        self.journal.note();
        self.record.write_superblocks(&turn).await;
        if let Err(error) = self.check_taken(nr, &name).await {
            if !had_one {
                self.journal.forget();
                self.record.write_superblocks(&turn).await;
                self.record.send_view().await;
            }
            return Err(error);
        }
        self.journal.open(begun).await;
        drop(turn);
        tracing::info!("array {}: {name} is its journal now", self.record.name);
        Ok(Added { nr, re_added: false })
    }
}
