//! Members that fail: recorded in the surviving superblocks before anybody may rely on it.

use crate::control::record::Record;
use crate::control::record::members::Standing;
use crate::state::reports::Report;
use crate::state::view::MemberNr;
use braid_device::meter::Metered;
use braid_device::{IoError, IoErrorKind};
use braid_shard::plant::planted;
use braid_shard::sync::Share;
use std::rc::Rc;

/// The outcome of a member's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// It is faulty now.
    Faulty,
    /// It was already, or is no member any more.
    Already,
    /// The array cannot do without it: it stays a member, and the array takes no more writes.
    Broken,
    /// The level has no redundancy: errors stay errors of single requests.
    Kept,
}

impl Record {
    /// An engine says that member `nr` gave `error`, for which it is about to be failed.
    pub(crate) fn hear_of(&self, nr: MemberNr, error: IoError, report: Report) {
        if !self.is_taken(nr, error) {
            self.note_away(nr, error);
            self.suspect(nr, error.to_string());
        }
        drop(report);
        self.suspects.heard();
    }

    /// Member `nr` is about to be failed for `error`. What comes after it was given up says nothing about its device.
    pub(crate) fn note_away(&self, nr: MemberNr, error: IoError) {
        if let Some(member) = self.roster.borrow_mut().member_mut(nr)
            && member.given_up.is_none()
            && !member.is_faulty()
        {
            member.away |= error.kind == IoErrorKind::Gone;
        }
    }

    pub(crate) async fn fail_nr(&self, nr: MemberNr, why: &str) -> Dropped {
        self.suspect(nr, why.to_string());
        self.fail_nr_unless_needed(nr, why, false).await
    }

    /// With `only_if_spared` a member that the data depends on is left as it is.
    pub(crate) async fn fail_nr_unless_needed(
        &self,
        nr: MemberNr,
        why: &str,
        only_if_spared: bool,
    ) -> Dropped {
        let turn = self.turn().await;
        if only_if_spared && !self.roster.borrow().survives_without(&self.geometries(), nr) {
            return Dropped::Broken;
        }
        let dropped = self.drop_member(nr, why);
        match dropped {
            Dropped::Faulty => {
                // The planted bug forgets the second line of the invariant in `control`.
                if !planted("failure-unrecorded") {
                    self.write_superblocks(&turn).await;
                }
                // Only now: a write that leaves the member out may be acknowledged at once.
                self.send_view().await;
            }
            Dropped::Broken => self.send_view().await,
            Dropped::Already | Dropped::Kept => {}
        }
        drop(turn);
        if matches!(dropped, Dropped::Faulty | Dropped::Broken) {
            self.members_changed();
        }
        dropped
    }

    /// Records the failures that are known, and waits for whoever is recording others.
    pub(crate) async fn record_failures(&self) {
        let turn = self.turn().await;
        self.record_suspects(&turn).await;
    }

    /// Records members that were dropped from the roster: the superblocks first, then the view, since a write that leaves
    /// a member out may be acknowledged as soon as the engines have it. The caller holds the turn.
    pub(crate) async fn record_dropped(&self, turn: &Share) {
        self.write_superblocks(turn).await;
        self.send_view().await;
        self.members_changed();
    }

    /// The change in the roster alone: the caller holds the turn, and [records](Record::record_dropped) it.
    pub(crate) fn drop_member(&self, nr: MemberNr, why: &str) -> Dropped {
        if self.lost().is_some() {
            // Whatever a member answers now, it is another host's to judge.
            return Dropped::Broken;
        }
        if !self.geometry().level.has_redundancy() {
            return Dropped::Kept;
        }
        self.suspects.remove(nr);
        let mut roster = self.roster.borrow_mut();
        roster.take_back_from(nr);
        // A stop keeps the last source of any block: nobody waits any more for an array that takes writes.
        let kept = self.end.has_begun() && roster.is_only_source(&self.geometries(), nr, &[]);
        let survives = roster.survives_without(&self.geometries(), nr);
        let Some(member) = roster.member_mut(nr) else { return Dropped::Already };
        let spared = survives && !kept && !member.needed;
        if member.is_faulty() {
            return Dropped::Already;
        }
        // Requests failed by giving the member up are a consequence; keep the original reason.
        let given_up = member.given_up.clone();
        let why = given_up.as_deref().unwrap_or(why);
        let (name, array) = (member.name.clone(), &self.name);
        if !spared {
            if !roster.broken {
                tracing::error!(
                    "array {array}: {name}: {why}; the array cannot do without what it holds, writes are refused"
                );
            }
            roster.broken = true;
            return Dropped::Broken;
        }
        let was = std::mem::replace(&mut member.standing, Standing::Faulty(why.to_string()));
        member.given_up = Some(why.to_string());
        let held = was.slot();
        let device = Rc::clone(&member.device);
        if let Some(slot) = held {
            roster.promote_replacement(slot);
        }
        self.suspects.set_recording(true);
        tracing::warn!("array {array}: {name} is faulty: {why}");
        drop(roster);
        self.give_up_devices(nr, Some(device));
        Dropped::Faulty
    }

    /// From now on member `nr` gets no requests and counts as lost; recording it is for the caller.
    pub(crate) fn give_up(&self, nr: MemberNr, why: &str) {
        let device = {
            let mut roster = self.roster.borrow_mut();
            let Some(member) = roster.member_mut(nr) else { return };
            member.given_up.get_or_insert_with(|| why.to_string());
            Rc::clone(&member.device)
        };
        self.give_up_devices(nr, Some(device));
    }

    /// Ends the requests to member `nr` on all shards.
    pub(crate) fn give_up_devices(&self, nr: MemberNr, own: Option<Rc<Metered>>) {
        if let Some(own) = own {
            own.give_up();
        }
        // Not waited for: what comes in between is as if the device had answered a moment later.
        self.engines.tell(move |engine| engine.members.give_up(nr));
    }

    /// Metadata of a member found no space because the array is being stopped: the member has not failed, and the
    /// array is not clean.
    pub(crate) fn is_unfinished(&self, error: IoError) -> bool {
        let unfinished = self.end.has_begun() && error.kind == IoErrorKind::NoSpace;
        if unfinished {
            self.engine.home.reports.note_unfinished();
        }
        unfinished
    }
}
