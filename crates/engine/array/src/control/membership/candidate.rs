//! A device that is to become a member: whether it may, and where the parts of a member lie on it.

use crate::control::commands;
use crate::control::membership::Membership;
use crate::control::record::bad_list::Bad;
use crate::control::record::members::{Member, NewMember, Standing};
use crate::error::{ControlError, ExamineError};
use crate::metadata::reservations::{Held, Taking};
use crate::metadata::superblock::{read_superblock, remove_other_superblocks, sectors};
use crate::state::apart;
use braid_device::meter::Metered;
use braid_device::{Device, Opener};
use braid_format::SECTOR;
use braid_format::placement::{Consistency, MemberPlace, PlacementError, Request, place};
use braid_format::superblock::{Superblock, Version, time_seconds};
use braid_format::uuid_text;
use std::rc::Rc;
use std::sync::Arc;

const SECTOR_BYTES: u64 = SECTOR as u64;

impl Membership {
    /// Opens a device that is to become a member, when the array can take one and the device has ended what it was asked
    /// before.
    pub(super) async fn open_candidate(
        &self,
        opener: &dyn Opener,
        doing: &'static str,
    ) -> Result<Rc<Metered>, ControlError> {
        commands::needs_redundancy(&self.record, doing)?;
        commands::needs_working(&self.record, doing)?;
        if self.record.roster.borrow().shared.reshape.is_some() {
            let array = self.record.name.clone();
            let why = commands::not_done_yet(&self.record, "a reshape");
            return Err(ControlError::Shape { doing, array, why });
        }
        self.record.marks_are_written().await;
        let device = opener
            .open(&self.record.shard)
            .map_err(|source| ControlError::Open { array: self.record.name.clone(), source })?;
        let device = Metered::new(&self.record.shard, device);
        self.unanswered.give_up_when_overdue(&device);
        self.unanswered.check_owes_nothing(doing, opener.name()).await?;
        Ok(device)
    }

    /// The superblock of a candidate. With `force` a damaged one counts as none, and is overwritten.
    pub(super) async fn superblock_of(
        &self,
        name: &str,
        device: &Rc<Metered>,
        force: bool,
    ) -> Result<Option<Superblock>, ControlError> {
        match read_superblock(&self.record.shard, &device.as_device(), name).await {
            Ok(old) => Ok(old),
            Err(ExamineError::Superblock { .. }) if force => Ok(None),
            Err(source) => Err(ControlError::Examine { array: self.record.name.clone(), source }),
        }
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
    pub(super) fn check_not_apart(&self, name: &str, old: &Superblock) -> Result<(), ControlError> {
        let roster = self.record.roster.borrow();
        let holders = roster.members.iter().filter(|member| member.holds_data());
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
        Err(commands::unfit(
            &self.record,
            name,
            format!(
                "it has blocks of {block} bytes and the array takes requests of {most}; use a device with blocks of \
                 at most {most} bytes"
            ),
        ))
    }

    /// Where mdadm would put the parts of a new member; with less room before the data when the
    /// device would else be too small.
    pub(super) fn place_new_member(
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
            consistency: match shared.ppl {
                Some(_) => Consistency::Ppl,
                None => Consistency::Resync,
            },
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
        fit.map_err(|why| commands::unfit(&self.record, name, why))
    }

    pub(super) fn new_member(
        &self,
        opener: Arc<dyn Opener>,
        device: Rc<Metered>,
        at: MemberPlace,
    ) -> Result<Member, ControlError> {
        let mut roster = self.record.roster.borrow_mut();
        let dev_number = roster.free_dev_number();
        roster
            .make_room_for(dev_number)
            .map_err(|why| commands::unfit(&self.record, opener.name(), why))?;
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
            journal_tail: 0,
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

    /// Reserves the disk of a device that is about to become a member, where those of the array are. When it becomes none,
    /// [`left`](Membership::left) has to follow.
    pub(super) async fn reserve(&self, member: &mut Member) -> Result<(), ControlError> {
        let Some(reserving) = &self.record.reserving else { return Ok(()) };
        match reserving.take(&member.name, &member.device.as_device()).await {
            Taking::Held(disk) => member.reservation = Some(disk),
            Taking::Unable(why) => tracing::info!(
                "array {}: {} is not reserved for this host: {why}; its heartbeat alone keeps other hosts off",
                self.record.name,
                member.name
            ),
            Taking::Elsewhere => {
                let why = "it is reserved for another host; stop what uses it there first, or end the reservation \
                           (blkpr, sg_persist --clear, nvme resv-acquire)";
                return Err(commands::unfit(&self.record, &member.name, why.to_string()));
            }
        }
        Ok(())
    }

    /// Other hosts may write to a disk again that has become no member, or is none any more.
    pub(super) async fn left<T, E>(
        &self,
        reservation: Option<Held>,
        entered: Result<T, E>,
    ) -> Result<T, E> {
        if let (Err(_), Some(disk)) = (&entered, reservation) {
            disk.leave().await;
        }
        entered
    }

    /// Removes superblocks of earlier arrays.
    pub(super) async fn prepare_device(&self, member: &Member) -> Result<(), ControlError> {
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

    pub(super) fn check_room_for_log(&self, member: &Member) -> Result<(), ControlError> {
        if !self.ppl.is_there() || self.ppl.has_room(&*member.device, &member.superblock) {
            return Ok(());
        }
        let why = "it has no room for the array's partial parity log; use a larger device";
        Err(commands::unfit(&self.record, &member.name, why.to_string()))
    }

    pub(super) fn check_room_for_bitmap(&self, member: &Member) -> Result<(), ControlError> {
        if self.record.current_bitmap.has_room(&member.device.as_device(), &member.superblock) {
            return Ok(());
        }
        let why = "it has no room for the array's bitmap before its data; use a larger device";
        Err(commands::unfit(&self.record, &member.name, why.to_string()))
    }
}
