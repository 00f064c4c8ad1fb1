//! Members added as spares, failed by command and removed, while the array runs.
//!
//! | file | subject |
//! |---|---|
//! | `checks` | commands over several members, checked before the first of them is changed |
//! | `candidate` | a device that is to become a member: may it, and where do its parts lie |
//! | `readding` | former members taken back |
//! | `journals` | a device added as the write journal |
//! | `replace` | members that are to be replaced |
//! | `spares` | spares that go to another array |
//! | `former` | members for which the array has no place any more |
//! | `flags` | write-mostly and failfast, set and cleared |
//! | `moment` | commands that do not wait for long |

mod candidate;
mod checks;
mod flags;
pub(crate) mod former;
mod journals;
mod moment;
mod readding;
mod replace;
mod spares;

use crate::control::bitmap::WriteIntent;
use crate::control::commands;
use crate::control::journal::WriteJournal;
use crate::control::ppl::PartialParity;
use crate::control::record::Record;
use crate::control::record::failing::Dropped;
use crate::control::record::members::Member;
use crate::control::record::retiring::Left;
use crate::control::unanswered::Unanswered;
use crate::error::ControlError;
use crate::metadata::reservations::Held;
use crate::options::MemberSelector;
use crate::state::flags::MemberFlags;
use crate::state::view::MemberNr;
use braid_device::Opener;
use braid_shard::sync::Share;
use std::rc::Rc;
use std::sync::Arc;

/// The role that an added device got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// Its number.
    pub nr: MemberNr,
    /// It was a member before and took its slot again.
    pub re_added: bool,
}

const BY_COMMAND: &str = "it was failed by command";

/// The commands that change the members of one array.
pub struct Membership {
    record: Rc<Record>,
    bitmap: Rc<WriteIntent>,
    ppl: Rc<PartialParity>,
    journal: Rc<WriteJournal>,
    unanswered: Rc<Unanswered>,
}

impl Membership {
    pub(super) fn new(
        record: &Rc<Record>,
        bitmap: &Rc<WriteIntent>,
        (ppl, journal): (&Rc<PartialParity>, &Rc<WriteJournal>),
        unanswered: &Rc<Unanswered>,
    ) -> Rc<Membership> {
        Rc::new(Membership {
            record: Rc::clone(record),
            bitmap: Rc::clone(bitmap),
            ppl: Rc::clone(ppl),
            journal: Rc::clone(journal),
            unanswered: Rc::clone(unanswered),
        })
    }

    /// Marks a member faulty, as if it had failed, and starts to fill a spare if there is one.
    ///
    /// # Errors
    /// No such member, a level without redundancy, or the last member that the data depends on.
    pub async fn fail(&self, member: &MemberSelector) -> Result<(), ControlError> {
        let doing = "failing a member";
        let nr = commands::select(&self.record, doing, member)?;
        commands::needs_redundancy(&self.record, doing)?;
        if !self.record.roster.borrow().survives_without(&self.record.geometries(), nr) {
            return Err(self.last_redundancy(nr));
        }
        // At once: whoever holds the turn may be waiting for this member.
        self.record.give_up(nr, BY_COMMAND);
        let record = Rc::clone(&self.record);
        let recorded = self.for_a_moment(async move { record.fail_nr(nr, BY_COMMAND).await });
        match recorded.await {
            Some(Dropped::Broken) => Err(self.last_redundancy(nr)),
            Some(_) => Ok(()),
            None => Err(self.not_recorded(doing, nr).await),
        }
    }

    fn last_redundancy(&self, nr: MemberNr) -> ControlError {
        ControlError::LastRedundancy {
            array: self.record.name.clone(),
            member: self.record.member_name(nr),
        }
    }

    /// Removes a member that is faulty or a spare: its device is closed on all shards. Its own superblock then says that
    /// it is not in sync any more, where that can be written, so that nobody starts it as an array of its own; it can still
    /// be [re-added](Membership::re_add).
    ///
    /// # Errors
    /// No such member, or one that is in use.
    pub async fn remove(self: &Rc<Self>, member: &MemberSelector) -> Result<(), ControlError> {
        self.remove_as(member, false).await.map(drop)
    }

    /// [`Membership::remove`]; with `keep` its superblock is left as it is. Gives why it could not be written, if it could
    /// not.
    ///
    /// # Errors
    /// As [`Membership::remove`].
    pub async fn remove_as(
        self: &Rc<Self>,
        member: &MemberSelector,
        keep: bool,
    ) -> Result<Option<String>, ControlError> {
        let doing = "removing a member";
        let nr = commands::select(&self.record, doing, member)?;
        commands::needs_redundancy(&self.record, doing)?;
        if self.record.end.has_begun() {
            return Err(ControlError::Stopping { doing, array: self.record.name.clone() });
        }
        let former = self.record.roster.borrow().member(nr).map(|member| {
            (Arc::clone(&member.opener), member.superblock.clone(), member.is_faulty())
        });
        let reservation = self.reservation_of(nr);
        let own = Rc::clone(self);
        match self.for_a_moment(async move { own.remove_nr(nr).await }).await {
            Some(removed) => removed?,
            None => return Err(self.not_recorded(doing, nr).await),
        }
        let unmarked = match former {
            Some((opener, superblock, true)) if !keep => {
                match self.unanswered.owed(opener.name()).await {
                    0 => self.record.retire(&*opener, &superblock, Left::Removed).await.err(),
                    // It would be waited for, or the mark be overtaken by what it still has.
                    owed => Some(format!("it has not ended {owed} requests yet")),
                }
            }
            // A spare says of itself that it holds nothing.
            _ => None,
        };
        if let Some(disk) = reservation {
            disk.leave().await;
        }
        Ok(unmarked)
    }

    fn reservation_of(&self, nr: MemberNr) -> Option<Held> {
        self.record.roster.borrow().member(nr)?.reservation.clone()
    }

    async fn remove_nr(self: Rc<Self>, nr: MemberNr) -> Result<(), ControlError> {
        self.remove_if(nr, |own| own.check_removable(nr)).await
    }

    /// Removes a member when nothing stands against it under the turn.
    async fn remove_if(
        &self,
        nr: MemberNr,
        check: impl Fn(&Membership) -> Result<(), ControlError>,
    ) -> Result<(), ControlError> {
        let turn = self.record.turn().await;
        check(self)?;
        self.leave_roster(nr);
        self.record.write_superblocks(&turn).await;
        drop(turn);
        self.record.engines.close_member(nr).await;
        self.record.changed.notify_all();
        Ok(())
    }

    /// Member `nr` is none any more. The caller holds the turn, records that and closes the device.
    fn leave_roster(&self, nr: MemberNr) {
        let mut roster = self.record.roster.borrow_mut();
        // Operations that began under an earlier view end with an error, and write nothing to it any more.
        let given_up = roster.member(nr).map(|member| Rc::clone(&member.device));
        roster.members.retain(|member| member.nr != nr);
        drop(roster);
        self.record.give_up_devices(nr, given_up);
    }

    /// Adds a device as a spare; where a slot is empty its recovery starts at once. What the device
    /// held is lost. As with mdadm, a former member of which the bitmap says what it lacks is taken back
    /// instead ([`Membership::re_add`]), unless there is `force`.
    ///
    /// # Errors
    /// A device that does not open, is too small, is a member already, or (without `force`) belongs
    /// to another array, or to a half of this one that ran apart.
    pub async fn add(&self, opener: Arc<dyn Opener>, force: bool) -> Result<Added, ControlError> {
        self.add_with(opener, force, MemberFlags::default()).await
    }

    /// [`Membership::add`], with flags; those that a former member has it keeps besides.
    ///
    /// # Errors
    /// As [`Membership::add`].
    pub async fn add_with(
        &self,
        opener: Arc<dyn Opener>,
        force: bool,
        flags: MemberFlags,
    ) -> Result<Added, ControlError> {
        let doing = "adding a member";
        let name = opener.name().to_string();
        let device = self.open_candidate(&*opener, doing).await?;
        let old = self.superblock_of(&name, &device, force).await?;
        self.check_not_a_member(&name, old.as_ref(), force)?;
        self.check_blocks(&name, &device)?;

        let turn = self.record.turn().await;
        // Somebody else may have added it, or the array been stopped, while this waited.
        commands::needs_working(&self.record, doing)?;
        let old = self.as_of_now(&name, &device, old).await?;
        self.check_not_a_member(&name, old.as_ref(), force)?;
        if !force && let Some(mut old) = old {
            if let Ok(slot) = self.former_slot(&old) {
                old.devflags |= flags.within(0);
                let nr = self.take_back(turn, opener, device, old, slot).await?;
                return Ok(Added { nr, re_added: true });
            }
            self.check_not_apart(&name, &old)?;
        }
        let at = self.place_new_member(&name, &device)?;
        let mut member = self.new_member(opener, device, at)?;
        member.superblock.devflags = flags.within(0);
        self.check_room_for_bitmap(&member)?;
        self.check_room_for_log(&member)?;
        self.reserve(&mut member).await?;
        let reservation = member.reservation.clone();
        self.left(reservation, self.enter_new(turn, member).await).await
    }

    async fn enter_new(&self, turn: Share, member: Member) -> Result<Added, ControlError> {
        let (nr, name) = (member.nr, member.name.clone());
        self.prepare_device(&member).await?;
        if let Err(source) = self.record.engines.open_member(nr, &member.opener).await {
            self.record.engines.close_member(nr).await;
            return Err(ControlError::Open { array: self.record.name.clone(), source });
        }
        self.unanswered.enter(member);
        self.record.write_superblocks(&turn).await;
        self.check_taken(nr, &name).await?;
        drop(turn);
        self.record.members_changed();
        Ok(Added { nr, re_added: false })
    }
}
