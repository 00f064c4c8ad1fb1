//! Flushes of members, one at a time: for clients of all shards together, and before anything is recorded that
//! relies on what members have made durable.
//!
//! A member that fails a flush, or is gone for a moment, has lost an unknown part of what it acknowledged, and its
//! next flush may succeed. So from the moment that such a failure is met the member is a *suspect*: what it
//! makes durable counts for nothing until the superblocks of the others say that it has failed, and it is not read
//! where others have the data: what it has been asked already counts as not answered. Flushes that come while one is
//! under way share the next.
//!
//! Invariant: a flush is answered with success, and a flush under the turn comes back, only when no failure that
//! was met before its end is unrecorded.

use crate::control::record::Record;
use crate::control::record::failing::Dropped;
use crate::control::record::members::{Member, Standing};
use crate::engine::home::{FlushAnswer, Flushed};
use crate::state::view::MemberNr;
use braid_device::{IoError, IoErrorKind, Request};
use braid_shard::plant::planted;
use braid_shard::sync::Share;
use std::rc::Rc;

fn holds_data(member: &Member) -> bool {
    matches!(member.standing, Standing::InSync(_) | Standing::Rebuilding { .. })
}

impl Record {
    /// A client of some shard wants the array to be flushed; `answer` is called when that has been tried and what failed
    /// is recorded.
    pub(crate) fn flush_for_client(self: Rc<Self>, answer: FlushAnswer) {
        self.flushes.waiting.borrow_mut().push(answer);
        if !self.flushes.busy.replace(true) {
            self.shard.clone().spawn(async move { self.flush_for_clients().await });
        }
    }

    async fn flush_for_clients(self: Rc<Self>) {
        loop {
            let alone = self.flushes.alone.take(1).await;
            // Whoever comes from here on may have had writes completed that this flush does not cover.
            let waiting = self.flushes.waiting.take();
            if waiting.is_empty() {
                self.flushes.busy.set(false);
                return;
            }
            let which = |member: &Member| {
                let rebuilt = matches!(member.standing, Standing::Rebuilding { .. });
                holds_data(member) && !(rebuilt && planted("flush-leaves-out-rebuilt"))
            };
            let first = self.flush_alone(alone, which).await;
            if self.is_unrecorded() && !planted("flushed-before-record") {
                let turn = self.turn().await;
                self.record_suspects(&turn).await;
            }
            let broken = self.roster.borrow().broken;
            let redundant = self.geometry().level.has_redundancy();
            let error = match first {
                Some(error) if broken => Some(error),
                Some(error) if !redundant && !planted("loss-told-to-none") => Some(error),
                // With too many members lost, the unflushed writes of this one exist nowhere else.
                None if broken && !planted("flush-of-too-degraded") => {
                    Some(IoError::new(IoErrorKind::Lost))
                }
                // The redundancy of the others still holds what the failed member lost, or it is counted as a loss.
                _ => None,
            };
            let losses = self.engine.reports.losses();
            for answer in waiting {
                answer(Flushed { error, losses });
            }
        }
    }

    /// Makes what was written to the members' data durable; a member that cannot is faulty, and recorded as
    /// that, like any other of which a failure is known. Gives the first error. The caller holds the turn and
    /// writes the superblocks afterwards.
    pub(crate) async fn flush_members(
        &self,
        turn: &Share,
        which: impl Fn(&Member) -> bool,
    ) -> Option<IoError> {
        let first = self.flush_some(|member| holds_data(member) && which(member)).await;
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
    async fn flush_alone(&self, _alone: Share, which: impl Fn(&Member) -> bool) -> Option<IoError> {
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
                    self.flush_failed(nr, error);
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
        *self.flushes.failure.borrow_mut() = Some(sentence);
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
            if any_bad && !self.geometry().survives(sound) {
                self.engine.reports.count_loss();
            }
            drop(roster);
            let why = format!("it could not be flushed: {error}");
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
        self.engine.reports.count_loss();
    }

    // --- Suspects ------------------------------------------------------------------------------

    /// Member `nr` has failed: nothing that it makes durable counts from here on.
    pub(crate) fn suspect(&self, nr: MemberNr, why: String) {
        let redundant = self.geometry().level.has_redundancy();
        let there = self.roster.borrow().member(nr).is_some_and(|member| !member.is_faulty());
        if !redundant || !there || self.is_suspect(nr) {
            return;
        }
        self.suspects.noted.borrow_mut().push((nr, why));
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
        let noted = self.suspects.noted.borrow();
        if noted.is_empty() {
            return Vec::new();
        }
        self.roster.borrow().dispensable(&self.geometry(), noted.iter().map(|(nr, _)| *nr))
    }

    /// Member `nr` is being dropped, under the turn.
    pub(crate) fn no_suspect_any_more(&self, nr: MemberNr) {
        self.suspects.noted.borrow_mut().retain(|(known, _)| *known != nr);
    }

    /// A report of an engine has arrived, and is noted.
    pub(crate) fn heard(&self) {
        self.suspects.heard.notify_all();
    }

    /// Some failure has been met and is not in the superblocks.
    fn is_unrecorded(&self) -> bool {
        self.suspects.unrecorded.get() || self.any_suspect()
    }

    /// Some failure has been met that nobody has begun to record.
    pub(crate) fn any_suspect(&self) -> bool {
        self.engine.reports.any_on_the_way() || !self.suspects.noted.borrow().is_empty()
    }

    /// Records all failures that have been met. The caller holds the turn.
    pub(crate) async fn record_suspects(&self, turn: &Share) {
        if self.drop_suspects().await {
            self.record_dropped(turn).await;
        }
    }

    /// Waits until failures that engines report now are noted, which happens without a turn.
    pub(crate) async fn all_reports_heard(&self) {
        let heard = || (!self.engine.reports.any_on_the_way()).then_some(());
        self.suspects.heard.wait_for(heard).await;
    }

    /// Member `nr` has failed, and that is not recorded yet.
    pub(crate) fn is_suspect(&self, nr: MemberNr) -> bool {
        self.suspects.noted.borrow().iter().any(|(noted, _)| *noted == nr)
    }

    /// The change in the roster alone, like [`Record::drop_member`]. True when there was any.
    pub(crate) async fn drop_suspects(&self) -> bool {
        self.all_reports_heard().await;
        let mut dropped = false;
        for (nr, why) in self.suspects.noted.take() {
            dropped |= matches!(self.drop_member(nr, &why), Dropped::Faulty | Dropped::Broken);
        }
        dropped
    }
}
