//! Flushes of members, one at a time: for clients, and before anything is recorded that relies on what members have made
//! durable.
//!
//! A member that fails a flush, or is gone for a moment, has lost an unknown part of what it acknowledged, and its
//! next flush may succeed. So from the moment that such a failure is met the member is a *suspect*: what it
//! makes durable counts for nothing until the superblocks of the others say that it has failed, and it is not read
//! where others have the data: what it has been asked already counts as not answered.
//!
//! Invariant: a flush under the turn comes back only when no failure that was met before its end is unrecorded.

use crate::control::record::Record;
use crate::control::record::failing::Dropped;
use crate::control::record::members::{Member, Standing};
use crate::state::view::MemberNr;
use braid_device::{IoError, IoErrorKind, Request};
use braid_shard::plant::planted;
use braid_shard::sync::Share;

impl Record {
    /// Makes what was written to the members' data durable; a member that cannot is faulty, and recorded as
    /// that, like any other of which a failure is known. Gives the first error. The caller holds the turn and
    /// writes the superblocks afterwards.
    pub(crate) async fn flush_members(
        &self,
        turn: &Share,
        which: impl Fn(&Member) -> bool,
    ) -> Option<IoError> {
        let first = self.flush_some(|member| member.holds_data() && which(member)).await;
        self.record_suspects(turn).await;
        first
    }

    /// Flushes these members; those that fail are suspects when this comes back. Gives the first error.
    pub(crate) async fn flush_some(&self, which: impl Fn(&Member) -> bool) -> Option<IoError> {
        let alone = self.flushes.alone.take(1).await;
        self.flush_alone(alone, which).await
    }

    /// One flush of these members. Those that fail are suspects before any other flush begins. Gives
    /// the first error.
    pub(crate) async fn flush_alone(
        &self,
        _alone: Share,
        which: impl Fn(&Member) -> bool,
    ) -> Option<IoError> {
        let mut set = self.engine.sets.start();
        for member in self.roster.borrow().members.iter().filter(|member| which(member)) {
            // The engine's handle, since that is measured.
            let device = self.engine.members.device(member.nr);
            let device = device.unwrap_or_else(|| member.device.as_device());
            set.submit(member.nr, &*device, Request::flush());
        }
        let mut first = None;
        // One by one: that a member has failed is known while others still flush.
        while let Some((nr, outcome)) = set.next().await {
            match outcome.result {
                Err(error) if error.kind != IoErrorKind::Unsupported => {
                    first.get_or_insert(error);
                    if !self.is_taken(nr, error) {
                        self.flush_failed(nr, error);
                    }
                }
                _ => {}
            }
        }
        first
    }

    fn flush_failed(&self, nr: MemberNr, error: IoError) {
        if !self.geometry().level.has_redundancy() && planted("loss-told-to-none") {
            return;
        }
        let sentence = format!(
            "{} could not be flushed: {error}; some of what was written may be lost",
            self.member_name(nr)
        );
        self.flushes.note_failure(sentence);
        if self.geometry().level.has_redundancy() {
            if planted("flush-failure-ignored") {
                return;
            }
            // This member may have been the only source of blocks that are bad on the others.
            let roster = self.roster.borrow();
            let others = || roster.members.iter().filter(|m| m.nr != nr && !m.is_faulty());
            let sound = |slot| {
                let holds = |m: &Member| m.standing == Standing::InSync(slot);
                others().any(|member| holds(member) && member.bad.now.is_empty())
            };
            let any_bad = others().any(|member| !member.bad.now.is_empty());
            if any_bad && !self.geometries().survives(sound) {
                self.engine.home.reports.count_loss();
            }
            drop(roster);
            let why = format!("it could not be flushed: {error}");
            self.note_away(nr, error);
            self.suspect(nr, why.clone());
            if self.distrusted().contains(&nr) && !planted("suspect-still-read") {
                // Reads that it has got may come back with what it held before, and parity would be made of that.
                self.give_up(nr, &why);
            }
            return;
        }
        tracing::error!(
            "array {}: {}: it could not be flushed: {error}; writes that were acknowledged may be lost, and the \
             next flush of every client fails. Check the device, and what is on the array",
            self.name,
            self.member_name(nr)
        );
        self.engine.home.reports.count_loss();
    }

    // --- Suspects ------------------------------------------------------------------------------

    /// Member `nr` has failed: nothing that it makes durable counts from here on.
    pub(crate) fn suspect(&self, nr: MemberNr, why: String) {
        let redundant = self.geometry().level.has_redundancy();
        let there = self.roster.borrow().member(nr).is_some_and(|member| !member.is_faulty());
        if !redundant || !there || self.suspects.contains(nr) {
            return;
        }
        self.suspects.note(nr, why);
        if self.distrusted().contains(&nr) && !planted("suspect-still-read") {
            self.tell_suspects();
        }
    }

    /// Has the engines read no suspect, also while another failure is being recorded: it may hold older bytes than it
    /// acknowledged, and a job would take them for the array's.
    fn tell_suspects(&self) {
        let suspects = self.distrusted();
        self.engines.tell(move |engine| engine.members.distrust(&suspects));
    }

    /// Suspects that are not to be read. Of the last that has the data its word has to do.
    pub(crate) fn distrusted(&self) -> Vec<MemberNr> {
        let noted = self.suspects.noted();
        if noted.is_empty() {
            return noted;
        }
        self.roster.borrow().dispensable(&self.geometries(), noted.into_iter())
    }

    /// Records all failures that have been met. The caller holds the turn.
    pub(crate) async fn record_suspects(&self, turn: &Share) {
        if self.drop_suspects().await {
            self.record_dropped(turn).await;
        }
    }

    /// The change in the roster alone, like [`Record::drop_member`]. True when there was any.
    pub(crate) async fn drop_suspects(&self) -> bool {
        self.suspects.all_heard().await;
        let mut dropped = false;
        for (nr, why) in self.suspects.take() {
            dropped |= matches!(self.drop_member(nr, &why), Dropped::Faulty | Dropped::Broken);
        }
        dropped
    }
}
