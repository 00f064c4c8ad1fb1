//! Members that fail: recorded in the surviving superblocks before anybody may rely on it.

use crate::control::Control;
use crate::control::members::Standing;
use crate::error::ControlError;
use crate::options::MemberSelector;
use crate::state::reports::Report;
use crate::state::view::MemberNr;
use braid_device::IoError;
use braid_shard::plant::planted;
use braid_shard::sync::Share;
use std::rc::Rc;

const BY_COMMAND: &str = "it was failed by command";

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

impl Control {
    /// An engine says that member `nr` gave `error`, for which it is about to be failed.
    pub(crate) fn hear_of(&self, nr: MemberNr, error: IoError, report: Report) {
        self.suspect(nr, error.to_string());
        drop(report);
        self.heard();
    }

    /// Marks a member faulty, as if it had failed, and starts to fill a spare if there is one.
    ///
    /// # Errors
    /// No such member, a level without redundancy, or the last member that the data depends on.
    pub async fn fail(self: &Rc<Self>, member: &MemberSelector) -> Result<(), ControlError> {
        let doing = "failing a member";
        let nr = self.select(doing, member)?;
        self.needs_redundancy(doing)?;
        if !self.roster.borrow().survives_without(&self.geometry(), nr) {
            return Err(self.last_redundancy(nr));
        }
        // At once: whoever holds the turn may be waiting for this member.
        self.give_up(nr, BY_COMMAND);
        let control = Rc::clone(self);
        let recorded = self.for_a_moment(async move { control.fail_nr(nr, BY_COMMAND).await });
        match recorded.await {
            Some(Dropped::Broken) => Err(self.last_redundancy(nr)),
            Some(_) => Ok(()),
            None => Err(self.not_recorded(doing, nr).await),
        }
    }

    fn last_redundancy(&self, nr: MemberNr) -> ControlError {
        ControlError::LastRedundancy { array: self.name.clone(), member: self.member_name(nr) }
    }

    pub(crate) async fn fail_nr(self: &Rc<Self>, nr: MemberNr, why: &str) -> Dropped {
        self.suspect(nr, why.to_string());
        self.fail_nr_unless_needed(nr, why, false).await
    }

    /// With `only_if_spared` a member that the data depends on is left as it is.
    pub(super) async fn fail_nr_unless_needed(
        self: &Rc<Self>,
        nr: MemberNr,
        why: &str,
        only_if_spared: bool,
    ) -> Dropped {
        let turn = self.turn().await;
        if only_if_spared && !self.roster.borrow().survives_without(&self.geometry(), nr) {
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

    /// The change in the roster alone: the caller holds the turn, and [records](Control::record_dropped) it.
    pub(crate) fn drop_member(&self, nr: MemberNr, why: &str) -> Dropped {
        if !self.geometry().level.has_redundancy() {
            return Dropped::Kept;
        }
        self.no_suspect_any_more(nr);
        let mut roster = self.roster.borrow_mut();
        // A stop keeps the last source of any block: nobody waits any more for an array that takes writes.
        let kept = self.end.has_begun() && roster.is_only_source(&self.geometry(), nr, &[]);
        let survives = roster.survives_without(&self.geometry(), nr);
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
        member.standing = Standing::Faulty(why.to_string());
        member.given_up = Some(why.to_string());
        let device = Rc::clone(&member.device);
        self.suspects.unrecorded.set(true);
        tracing::warn!("array {array}: {name} is faulty: {why}");
        drop(roster);
        self.give_up_devices(nr, Some(device));
        Dropped::Faulty
    }
}
