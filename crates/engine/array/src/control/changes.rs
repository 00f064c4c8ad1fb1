//! Members added as spares, and spares and faulty members removed, while the array runs.

use crate::control::Control;
use crate::control::record::bad_list::Bad;
use crate::control::record::failing::Dropped;
use crate::control::record::members::{Member, NewMember, Standing};
use crate::error::{ControlError, ExamineError};
use crate::metadata::superblock::{read_superblock, remove_other_superblocks, sectors};
use crate::options::MemberSelector;
use crate::state::apart;
use crate::state::flags::MemberFlags;
use crate::state::view::MemberNr;
use braid_device::meter::Metered;
use braid_device::{Device, Opener};
use braid_format::SECTOR;
use braid_format::placement::{Consistency, MemberPlace, PlacementError, Request, place};
use braid_format::superblock::{Superblock, Version, time_seconds};
use braid_format::uuid_text;
use std::rc::Rc;
use std::sync::Arc;

const SECTOR_BYTES: u64 = SECTOR as u64;

/// The role that an added device got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// Its number.
    pub nr: MemberNr,
    /// It was a member before and took its slot again.
    pub re_added: bool,
}

const BY_COMMAND: &str = "it was failed by command";

impl Control {
    /// Marks a member faulty, as if it had failed, and starts to fill a spare if there is one.
    ///
    /// # Errors
    /// No such member, a level without redundancy, or the last member that the data depends on.
    pub async fn fail(self: &Rc<Self>, member: &MemberSelector) -> Result<(), ControlError> {
        let doing = "failing a member";
        let nr = self.record.select(doing, member)?;
        self.record.needs_redundancy(doing)?;
        if !self.record.roster.borrow().survives_without(&self.record.geometry(), nr) {
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

    /// Removes a member that is faulty or a spare: its device is closed on all shards. Its
    /// superblock stays as it is.
    ///
    /// # Errors
    /// No such member, or one that is in use.
    pub async fn remove(self: &Rc<Self>, member: &MemberSelector) -> Result<(), ControlError> {
        let doing = "removing a member";
        let nr = self.record.select(doing, member)?;
        self.record.needs_redundancy(doing)?;
        if self.record.end.has_begun() {
            return Err(ControlError::Stopping { doing, array: self.record.name.clone() });
        }
        let control = Rc::clone(self);
        match self.for_a_moment(async move { control.remove_nr(nr).await }).await {
            Some(removed) => removed,
            None => Err(self.not_recorded(doing, nr).await),
        }
    }

    async fn remove_nr(self: Rc<Self>, nr: MemberNr) -> Result<(), ControlError> {
        let turn = self.record.turn().await;
        let mut given_up = None;
        {
            let mut roster = self.record.roster.borrow_mut();
            let in_use = roster.member(nr).and_then(|member| match member.standing {
                Standing::InSync(slot) => Some(format!("in sync in slot {slot}")),
                Standing::Rebuilding { slot, .. } => Some(format!("being rebuilt in slot {slot}")),
                Standing::Spare | Standing::Faulty(_) => None,
            });
            if let Some(state) = in_use {
                let member = roster.member(nr).map(|m| m.name.clone()).unwrap_or_default();
                let array = self.record.name.clone();
                return Err(ControlError::NotRemovable { array, member, state });
            }
            if let Some(member) = roster.member(nr) {
                // Operations that began under an earlier view end with an error, and write nothing to it any more.
                given_up = Some(Rc::clone(&member.device));
            }
            roster.members.retain(|member| member.nr != nr);
        }
        self.record.give_up_devices(nr, given_up);
        self.record.write_superblocks(&turn).await;
        drop(turn);
        self.record.close_everywhere(nr).await;
        self.record.changed.notify_all();
        Ok(())
    }

    /// Adds a device as a spare; where a slot is empty its recovery starts at once. What the device
    /// held is lost. As with mdadm, a former member of which the bitmap says what it lacks is taken back
    /// instead ([`Control::re_add`]), unless there is `force`.
    ///
    /// # Errors
    /// A device that does not open, is too small, is a member already, or (without `force`) belongs
    /// to another array, or to a half of this one that ran apart.
    pub async fn add(
        self: &Rc<Self>,
        opener: Arc<dyn Opener>,
        force: bool,
    ) -> Result<Added, ControlError> {
        self.add_with(opener, force, MemberFlags::default()).await
    }

    /// [`Control::add`], with flags; those that a former member has it keeps besides.
    ///
    /// # Errors
    /// As [`Control::add`].
    pub async fn add_with(
        self: &Rc<Self>,
        opener: Arc<dyn Opener>,
        force: bool,
        flags: MemberFlags,
    ) -> Result<Added, ControlError> {
        let doing = "adding a member";
        let name = opener.name().to_string();
        let device = self.open_candidate(&*opener, doing)?;
        self.unanswered.check_owes_nothing(doing, &name).await?;
        let old = match read_superblock(&self.record.shard, &device.as_device(), &name).await {
            Ok(old) => old,
            // With `force` a damaged superblock is overwritten.
            Err(ExamineError::Superblock { .. }) if force => None,
            Err(source) => {
                return Err(ControlError::Examine { array: self.record.name.clone(), source });
            }
        };
        self.check_not_a_member(&name, old.as_ref(), force)?;
        self.check_blocks(&name, &device)?;

        let turn = self.record.turn().await;
        // Somebody else may have added it, or the array been stopped, while this waited.
        self.record.needs_working(doing)?;
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
        let nr = member.nr;
        self.check_room_for_bitmap(&member)?;
        self.prepare_device(&member).await?;
        if let Err(source) = self.record.open_everywhere(nr, &member.opener).await {
            self.record.close_everywhere(nr).await;
            return Err(ControlError::Open { array: self.record.name.clone(), source });
        }
        self.unanswered.enter(member);
        self.record.write_superblocks(&turn).await;
        self.check_taken(nr, &name).await?;
        drop(turn);
        self.record.members_changed();
        Ok(Added { nr, re_added: false })
    }

    /// Opens a device that is to become a member, when the array can take one.
    pub(crate) fn open_candidate(
        &self,
        opener: &dyn Opener,
        doing: &'static str,
    ) -> Result<Rc<Metered>, ControlError> {
        self.record.needs_redundancy(doing)?;
        self.record.needs_working(doing)?;
        let device = opener
            .open(&self.record.shard)
            .map_err(|source| ControlError::Open { array: self.record.name.clone(), source })?;
        let device = Metered::new(&self.record.shard, device);
        self.unanswered.give_up_when_overdue(&device);
        Ok(device)
    }

    /// The superblock of a candidate under the turn. In 0.90 only the event count tells a member from one
    /// that has its number by now, so it must be read while none is written; others say so themselves.
    pub(crate) async fn as_of_now(
        &self,
        name: &str,
        device: &Rc<Metered>,
        old: Option<Superblock>,
    ) -> Result<Option<Superblock>, ControlError> {
        if old.as_ref().is_none_or(|old| old.version != Version::V0_90) {
            return Ok(old);
        }
        let read = read_superblock(&self.record.shard, &device.as_device(), name).await;
        read.map_err(|source| ControlError::Examine { array: self.record.name.clone(), source })
    }

    pub(crate) fn check_not_a_member(
        &self,
        name: &str,
        old: Option<&Superblock>,
        force: bool,
    ) -> Result<(), ControlError> {
        let (array, member) = (self.record.name.clone(), name.to_string());
        let roster = self.record.roster.borrow();
        let same = roster.members.iter().find(|known| {
            known.name == name || old.is_some_and(|old| old.is_twin_of(&known.superblock))
        });
        if let Some(known) = same {
            return Err(ControlError::AlreadyMember { array, member, other: known.name.clone() });
        }
        match old {
            Some(old) if old.set_uuid != roster.shared.set_uuid && !force => {
                let other =
                    format!("{} ({})", old.set_name.escaped(), uuid_text::format(&old.set_uuid));
                Err(ControlError::OtherArray { array, member, other })
            }
            _ => Ok(()),
        }
    }

    /// Refuses a member of another half of this array, which may hold data that is nowhere else.
    fn check_not_apart(&self, name: &str, old: &Superblock) -> Result<(), ControlError> {
        let roster = self.record.roster.borrow();
        let holders = roster.members.iter().filter(|member| member.standing.slot().is_some());
        if !holders.into_iter().any(|member| apart::ran_apart(&member.superblock, old)) {
            return Ok(());
        }
        Err(ControlError::RanApart {
            array: self.record.name.clone(),
            member: name.to_string(),
            events: old.events,
            updated: apart::utc(time_seconds(old.utime)),
        })
    }

    pub(crate) fn check_blocks(
        &self,
        name: &str,
        device: &Rc<Metered>,
    ) -> Result<(), ControlError> {
        let (block, most) = (device.info().logical_block, self.record.geometry().logical_block);
        if block <= most {
            return Ok(());
        }
        Err(self.record.unfit(
            name,
            format!(
                "it has blocks of {block} bytes and the array takes requests of {most}; use a device with blocks of \
                 at most {most} bytes"
            ),
        ))
    }

    /// Where mdadm would put the parts of a new member; with less room before the data when the
    /// device would else be too small.
    fn place_new_member(
        &self,
        name: &str,
        device: &Rc<Metered>,
    ) -> Result<MemberPlace, ControlError> {
        let roster = self.record.roster.borrow();
        let shared = &roster.shared;
        let mut request = Request {
            level: shared.level,
            layout: shared.layout,
            version: shared.version,
            chunk_sectors: shared.chunk_sectors,
            raid_disks: shared.raid_disks,
            members: vec![sectors(device.info())],
            consistency: Consistency::Resync,
            size: Some(shared.size),
            data_offset: None,
        };
        let usual = place(&request);
        let placed = match usual {
            Err(PlacementError::SizeTooLarge { .. } | PlacementError::MemberTooSmall { .. })
                if shared.version.data_follows() =>
            {
                let others = roster.members.iter().map(|member| member.superblock.data_offset);
                request.data_offset = others.min();
                place(&request)
            }
            other => other,
        };
        let fit = placed.map_err(|error| match error {
            PlacementError::SizeTooLarge { want, have, .. } => format!(
                "it has {} bytes for data and the array uses {} of each member; use a larger device",
                have.saturating_mul(SECTOR_BYTES),
                want.saturating_mul(SECTOR_BYTES)
            ),
            other => other.to_string(),
        });
        let fit = fit.and_then(|placement| {
            let place = placement.members.first().copied();
            place.ok_or_else(|| "it has no room for data; use a larger device".to_string())
        });
        fit.map_err(|why| self.record.unfit(name, why))
    }

    fn new_member(
        &self,
        opener: Arc<dyn Opener>,
        device: Rc<Metered>,
        at: MemberPlace,
    ) -> Result<Member, ControlError> {
        let mut roster = self.record.roster.borrow_mut();
        let dev_number = roster.free_dev_number();
        roster.make_room_for(dev_number).map_err(|why| self.record.unfit(opener.name(), why))?;
        let nr = roster.next_nr;
        roster.next_nr += 1;
        let mut superblock = Superblock {
            data_offset: at.data_offset,
            data_size: at.data_size,
            super_offset: at.super_offset,
            dev_number,
            device_uuid: (self.record.ctx.new_uuid)(),
            devflags: 0,
            cnt_corrected_read: 0,
            recovery_offset: None,
            bad_blocks: false,
            ..roster.shared.clone()
        };
        // The members' data may start elsewhere than that of the member whose numbers these are.
        let log = superblock.bblog_sector().map(|at| at + u64::from(superblock.bblog_size));
        if superblock.version.data_follows() && log.is_some_and(|end| end > at.data_offset) {
            superblock.bblog_offset = 0;
            superblock.bblog_size = 0;
        }
        let (standing, bad) = (Standing::Spare, Bad::default());
        Ok(Member::new(NewMember { nr, opener, device, superblock, standing, bad }))
    }

    /// Removes superblocks of earlier arrays.
    async fn prepare_device(&self, member: &Member) -> Result<(), ControlError> {
        remove_other_superblocks(
            &self.record.shard,
            &member.device.as_device(),
            member.superblock.version,
        )
        .await
        .map_err(|error| ControlError::Io {
            array: self.record.name.clone(),
            doing: "removing an old superblock from",
            member: member.name.clone(),
            error,
        })
    }

    fn check_room_for_bitmap(&self, member: &Member) -> Result<(), ControlError> {
        if self.record.has_room_for_bitmap(&member.device.as_device(), &member.superblock) {
            return Ok(());
        }
        let why = "it has no room for the array's bitmap before its data; use a larger device";
        Err(self.record.unfit(&member.name, why.to_string()))
    }
}
