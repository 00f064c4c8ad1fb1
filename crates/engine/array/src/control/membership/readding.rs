//! Members that were away and come back: brought up to date by the bitmap, where it knows what they lack.
//!
//! The rules are md's (`md.c`: super_1_validate of a member that joins a running array with a bitmap)
//! and one of mdadm's at assembly: who takes members of the running array for lost ran apart from it,
//! and has data of its own.
//!
//! Invariant: between the bitmap that the member is given and its first superblock as a member again,
//! no page of the bitmap is written that it does not get.

use crate::control::commands;
use crate::control::membership::Membership;
use crate::control::record::bad_list::Bad;
use crate::control::record::members::{Member, NewMember, Standing};
use crate::error::{ControlError, ExamineError};
use crate::metadata::component::used_size;
use crate::metadata::superblock::read_superblock;
use crate::state::view::MemberNr;
use braid_device::Opener;
use braid_device::meter::Metered;
use braid_format::superblock::{Role, Superblock};
use braid_layout::Slot;
use braid_shard::sync::Share;
use std::rc::Rc;
use std::sync::Arc;

const DOING: &str = "re-adding a member";

impl Membership {
    /// Takes a member back that was away: what was written meanwhile, by the bitmap, is copied to it.
    ///
    /// # Errors
    /// A device that does not open or is no former member, or whose lacks are not known (any more):
    /// [`ControlError::CannotReAdd`]. Nothing was written then.
    pub async fn re_add(&self, opener: Arc<dyn Opener>) -> Result<MemberNr, ControlError> {
        let (device, old) = self.former(&opener, None).await?;
        let turn = self.record.turn().await;
        let (old, slot) = self.still_former(&opener, &device, old, None).await?;
        self.take_back(turn, opener, device, old, slot).await
    }

    /// [Takes back](Membership::re_add) the faulty member `nr`, whose device had gone and is there again as `opener`: it
    /// gives up its place among the faulty ones when nothing else stands against it.
    ///
    /// # Errors
    /// As [`Membership::re_add`]; `nr` is no faulty member, or another device than `opener`.
    pub async fn come_back(
        &self,
        nr: MemberNr,
        opener: Arc<dyn Opener>,
    ) -> Result<MemberNr, ControlError> {
        let (device, old) = self.former(&opener, Some(nr)).await?;
        let turn = self.record.turn().await;
        let (old, slot) = self.still_former(&opener, &device, old, Some(nr)).await?;
        self.leave_roster(nr);
        self.record.engines.close_member(nr).await;
        self.take_back(turn, opener, device, old, slot).await
    }

    /// The device of a former member, and the superblock that says which one it was. `away`: it may still be among the
    /// faulty ones, under this number.
    async fn former(
        &self,
        opener: &Arc<dyn Opener>,
        away: Option<MemberNr>,
    ) -> Result<(Rc<Metered>, Superblock), ControlError> {
        let name = opener.name();
        let device = self.open_candidate(&**opener, DOING).await?;
        let old = self.superblock_of_former(name, &device).await?;
        self.check_not_another(name, &old, away)?;
        self.check_blocks(name, &device)?;
        Ok((device, old))
    }

    /// The same under the turn, with the slot that it can take: somebody else may have added it, or the array been stopped,
    /// while this waited.
    async fn still_former(
        &self,
        opener: &Arc<dyn Opener>,
        device: &Rc<Metered>,
        old: Superblock,
        away: Option<MemberNr>,
    ) -> Result<(Superblock, Slot), ControlError> {
        let name = opener.name();
        commands::needs_working(&self.record, DOING)?;
        let Some(old) = self.as_of_now(name, device, Some(old)).await? else {
            return Err(self.cannot(name, "it has no superblock".to_string()));
        };
        self.check_not_another(name, &old, away)?;
        let slot = self.former_slot(&old).map_err(|why| self.cannot(name, why))?;
        Ok((old, slot))
    }

    /// No member has its name or its superblock, but for the faulty one `away`, which has both.
    fn check_not_another(
        &self,
        name: &str,
        old: &Superblock,
        away: Option<MemberNr>,
    ) -> Result<(), ControlError> {
        let Some(nr) = away else { return self.check_not_a_member(name, Some(old), false) };
        let ids = |superblock: &Superblock| (superblock.set_uuid, superblock.device_uuid);
        let roster = self.record.roster.borrow();
        let known = roster.member(nr).filter(|member| member.is_faulty() && member.name == name);
        match known {
            Some(member) if ids(old) == ids(&member.superblock) => {}
            Some(_) => {
                let why = "what is there now is not the member that was lost".to_string();
                return Err(self.cannot(name, why));
            }
            None => {
                let why = "it is no faulty member any more".to_string();
                return Err(self.cannot(name, why));
            }
        }
        let mut others = roster.members.iter().filter(|member| member.nr != nr);
        let same = others.find(|known| known.name == name || old.is_twin_of(&known.superblock));
        match same {
            Some(known) => Err(ControlError::AlreadyMember {
                array: self.record.name.clone(),
                member: name.to_string(),
                other: known.name.clone(),
            }),
            None => Ok(()),
        }
    }

    /// The superblock that says which member it was.
    pub(super) async fn superblock_of_former(
        &self,
        name: &str,
        device: &Rc<Metered>,
    ) -> Result<Superblock, ControlError> {
        match read_superblock(&self.record.shard, &device.as_device(), name).await {
            Ok(Some(old)) => Ok(old),
            Ok(None) => Err(self.cannot(name, "it has no superblock".to_string())),
            Err(source @ ExamineError::Superblock { .. }) => {
                Err(self.cannot(name, source.to_string()))
            }
            Err(source) => Err(ControlError::Examine { array: self.record.name.clone(), source }),
        }
    }

    pub(super) fn cannot(&self, member: &str, why: String) -> ControlError {
        ControlError::CannotReAdd {
            array: self.record.name.clone(),
            member: member.to_string(),
            why,
        }
    }

    /// The slot that a former member can take again, lacking only what bits are set for; else why not.
    pub(crate) fn former_slot(&self, old: &Superblock) -> Result<Slot, String> {
        let Some(bitmap) = self.record.bitmap() else {
            return Err("the array has no bitmap that would say what it lacks".to_string());
        };
        let roster = self.record.roster.borrow();
        let shared = &roster.shared;
        let Role::Slot(slot) = old.own_role() else {
            return Err("it held no slot when it was last written".to_string());
        };
        let slot = Slot::from(slot);
        if let Some(holder) = roster.holder(slot) {
            return Err(format!("its slot {slot} belongs to {} by now", holder.name));
        }
        let shape = |sb: &Superblock| {
            let layout = (sb.level, sb.layout, sb.chunk_sectors, sb.raid_disks, used_size(sb));
            (
                layout,
                sb.version,
                sb.bitmap_offset,
                sb.reshape.is_some(),
                sb.data_size >= shared.size,
            )
        };
        if shape(old) != shape(shared) {
            return Err("its superblock describes an array of another shape".to_string());
        }
        if old.replacement || old.bad_blocks {
            return Err("it was a replacement, or has bad blocks recorded".to_string());
        }
        if old.recovery_offset.is_some() && !old.recovery_by_bitmap {
            return Err("it was being rebuilt when it left".to_string());
        }
        let cleared = bitmap.keeper.borrow().superblock.events_cleared;
        if old.events < cleared {
            return Err(format!(
                "it has seen {} updates, and bits were cleared after {cleared}: what it lacks is not known",
                old.events
            ));
        }
        let stranger = roster.members.iter().find(|member| match member.standing {
            Standing::InSync(held) => {
                old.role_of(member.superblock.dev_number).slot().map(Slot::from) != Some(held)
            }
            _ => false,
        });
        match stranger {
            Some(member) => Err(format!(
                "it does not know {} as a member in its slot, so it may have run apart from this array",
                member.name
            )),
            None if old.events > shared.events => {
                Err("it has seen more updates than this array: it ran apart from it".to_string())
            }
            None => Ok(slot),
        }
    }

    /// Makes a former member one again. [`Membership::former_slot`] has given `slot` under this turn.
    pub(crate) async fn take_back(
        &self,
        turn: Share,
        opener: Arc<dyn Opener>,
        device: Rc<Metered>,
        old: Superblock,
        slot: Slot,
    ) -> Result<MemberNr, ControlError> {
        let name = opener.name().to_string();
        let mut member = {
            let mut roster = self.record.roster.borrow_mut();
            let taken = |number| {
                let mut numbers = roster.members.iter().map(|m| m.superblock.dev_number);
                numbers.any(|known| known == number)
            };
            let own = old.dev_number;
            let dev_number = if taken(own) { roster.free_dev_number() } else { own };
            roster.make_room_for(dev_number).map_err(|why| self.cannot(&name, why))?;
            let nr = roster.next_nr;
            roster.next_nr += 1;
            let superblock = Superblock {
                dev_number,
                set_name: roster.shared.set_name,
                ctime: roster.shared.ctime,
                ..old
            };
            let standing =
                Standing::Rebuilding { slot, recovered: 0, checkpoint: 0, by_bitmap: true };
            let bad = Bad::default();
            Member::new(NewMember { nr, opener, device, superblock, standing, bad })
        };
        if !self.record.current_bitmap.has_room(&member.device.as_device(), &member.superblock) {
            return Err(self.cannot(&name, "it has no room for the array's bitmap".to_string()));
        }
        self.reserve(&mut member).await?;
        let reservation = member.reservation.clone();
        self.left(reservation, self.enter_former(turn, member, slot).await).await
    }

    async fn enter_former(
        &self,
        turn: Share,
        member: Member,
        slot: Slot,
    ) -> Result<MemberNr, ControlError> {
        let (nr, name) = (member.nr, member.name.clone());
        if let Err(source) = self.record.engines.open_member(nr, &member.opener).await {
            self.record.engines.close_member(nr).await;
            return Err(ControlError::Open { array: self.record.name.clone(), source });
        }
        let pen =
            match self.bitmap.give_bitmap(&member.device.as_device(), &member.superblock).await {
                Ok(pen) => pen,
                Err(error) => {
                    self.record.engines.close_member(nr).await;
                    let doing = "writing the bitmap of";
                    return Err(ControlError::Io {
                        array: self.record.name.clone(),
                        doing,
                        member: name,
                        error,
                    });
                }
            };
        self.unanswered.enter(member);
        drop(pen);
        self.record.write_superblocks(&turn).await;
        self.check_taken(nr, &name).await?;
        // Before the first window: from here on all writes go to the member too.
        self.record.send_view().await;
        drop(turn);
        tracing::info!("array {}: {name} is back in slot {slot}", self.record.name);
        self.record.members_changed();
        Ok(nr)
    }

    /// Lets a member go again that did not take its first superblock.
    pub(crate) async fn check_taken(&self, nr: MemberNr, name: &str) -> Result<(), ControlError> {
        let fault =
            self.record.roster.borrow().member(nr).and_then(|member| match &member.standing {
                Standing::Faulty(why) => Some(why.clone()),
                _ => None,
            });
        let Some(why) = fault else { return Ok(()) };
        self.record.roster.borrow_mut().members.retain(|member| member.nr != nr);
        self.record.engines.close_member(nr).await;
        Err(commands::unfit(&self.record, name, format!("{why}; check the device")))
    }
}
