//! Spares that another array needs more: looked at, and given away.

use crate::control::commands;
use crate::control::membership::Membership;
use crate::control::record::members::Standing;
use crate::error::ControlError;
use crate::options::MemberSelector;
use crate::state::view::MemberNr;
use braid_device::Opener;
use std::rc::Rc;
use std::sync::Arc;

const DOING: &str = "giving a spare to another array";

impl Membership {
    /// The device of a spare that the array can do without: it is whole, and not on its way to another shape.
    ///
    /// # Errors
    /// No such member, no spare, or the array needs it.
    pub fn spare(&self, member: &MemberSelector) -> Result<Arc<dyn Opener>, ControlError> {
        self.to_spare(commands::select(&self.record, DOING, member)?)
    }

    /// Removes a spare that the array can do without, and gives its device. When it returns the superblocks of all members
    /// say that the spare has left, and nobody here writes to it any more. Its own superblock stays as it is: that of a spare,
    /// which this array would take back.
    ///
    /// # Errors
    /// As [`Membership::spare`]; or too many members have failed for it to be recorded.
    pub async fn give_spare(
        self: &Rc<Self>,
        member: &MemberSelector,
    ) -> Result<Arc<dyn Opener>, ControlError> {
        commands::needs_working(&self.record, DOING)?;
        let nr = commands::select(&self.record, DOING, member)?;
        let opener = self.to_spare(nr)?;
        let own = Rc::clone(self);
        let given = self
            .for_a_moment(async move { own.remove_if(nr, |own| own.to_spare(nr).map(drop)).await });
        match given.await {
            Some(given) => given?,
            None => return Err(self.not_recorded(DOING, nr).await),
        }
        if self.record.roster.borrow().broken {
            return Err(ControlError::Failed { doing: DOING, array: self.record.name.clone() });
        }
        let owed = self.unanswered.owed(opener.name()).await;
        if owed > 0 {
            let why = format!("it has not ended {owed} requests yet");
            return Err(commands::unfit(&self.record, opener.name(), why));
        }
        Ok(opener)
    }

    fn to_spare(&self, nr: MemberNr) -> Result<Arc<dyn Opener>, ControlError> {
        commands::needs_redundancy(&self.record, DOING)?;
        let slots = self.record.widest().slots();
        let roster = self.record.roster.borrow();
        let needed = roster.shared.reshape.is_some()
            || roster.degraded(slots) > 0
            || roster.being_replaced().is_some();
        let spare = roster.member(nr).filter(|member| {
            member.standing == Standing::Spare && member.given_up.is_none() && !needed
        });
        spare.map(|member| Arc::clone(&member.opener)).ok_or_else(|| {
            let name = roster.member(nr).map_or_else(|| nr.to_string(), |m| m.name.clone());
            let state = "needed here".to_string();
            ControlError::NotRemovable { array: self.record.name.clone(), member: name, state }
        })
    }
}
