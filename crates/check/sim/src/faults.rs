//! What happens to an array while it runs: members fail, blocks become unreadable, people give commands.
//!
//! Counts what the level can still lose: a member that is gone, out, stale, being rebuilt, with
//! unreadable blocks or about to fail a write counts as lost as a whole. Within that budget no request may
//! fail; scenarios that go beyond it say so, and then errors are right and wrong data is not.

use crate::device::SimOpener;
use crate::images;
use crate::machine::Step;
use crate::member::Member;
use crate::run::Run;
use crate::steps::Steps;
use crate::waiting::Over;
use braid_array::error::ControlError;
use braid_array::options::MemberSelector;
use braid_array::status::{ArrayStatus, MemberState};
use std::rc::Rc;

impl Run {
    /// The level goes on without `without` beside everything that is lost or weak already. `whole`
    /// gives the slot of a member that is wholly in sync.
    pub(crate) fn may_lose(
        &self,
        without: &Member,
        whole: impl Fn(&Member) -> Option<usize>,
    ) -> bool {
        let members = self.world.members.borrow();
        let sound = |slot| {
            members.iter().any(|member| {
                whole(member) == Some(slot)
                    && member.kind.index != without.kind.index
                    && !member.out.get()
                    && !member.is_weak()
            })
        };
        self.scenario.create.level.has_redundancy() && self.layout.survives(sound)
    }

    /// The slot of a member that the array itself says is in sync. Until its recovery has ended the
    /// shards need not know yet.
    pub(crate) fn whole_in(status: &ArrayStatus, member: &Member) -> Option<usize> {
        let known = status.members.iter().find(|known| known.name == member.name())?;
        let recovering = status.job.as_ref().is_some_and(|job| job.member == Some(known.nr));
        (known.state == MemberState::InSync && !recovering).then_some(known.slot).flatten()
    }

    /// A member that holds a slot and works, as far as anybody knows.
    fn some_working(&self) -> Option<Rc<Member>> {
        let members = self.world.members.borrow();
        let working: Vec<_> = members
            .iter()
            .filter(|member| member.slot.get().is_some() && !member.out.get() && !member.is_weak())
            .collect();
        (!working.is_empty()).then(|| Rc::clone(working[self.rng.below(working.len())]))
    }

    /// Something fails, or somebody gives a command.
    pub(crate) fn something_happens(&mut self) -> Result<(), Over> {
        self.oracle.end_steady();
        if self.mishaps.chance(25) {
            return self.mishap_under_load();
        }
        if self.scenario.bitmap_changes && self.rng.percent(30) {
            return self.change_the_bitmap();
        }
        match self.rng.range(0..20) {
            0..11 => self.a_member_fails(),
            11..15 => self.add_a_member(),
            15..17 => self.start_a_scrub(),
            _ => self.a_spare_fails(),
        }
    }

    fn a_member_fails(&mut self) -> Result<(), Over> {
        let status = self.status()?;
        let Some(member) = self.some_working() else { return Ok(()) };
        if !self.may_lose(&member, |member| Run::whole_in(&status, member)) {
            if !self.scenario.beyond {
                return Ok(());
            }
            self.world.trace(|| "beyond what the level survives".to_string());
            self.excused = true;
            // A member that hangs is waited for as long as the data depends on it: it answers in the end.
            self.world.wake_hung();
        }
        self.faults += 1;
        let slot = member.slot.get().unwrap_or(0);
        let name = member.name().to_string();
        match self.rng.range(0..10) {
            0..3 => {
                self.world.trace(|| format!("{name} is gone"));
                member.set_gone(true);
                if self.scenario.has_bitmap() && self.rng.percent(50) {
                    // What it had not made durable is lost, though the others go on.
                    member.power_cut(&self.world.rng, Vec::new());
                }
                member.out.set(true);
                self.holes.lose(&self.layout, slot, &mut self.oracle);
            }
            3..6 if self.scenario.create.bad_block_log && self.rng.percent(60) => {
                self.blocks_go_bad(&member, Some(slot));
            }
            3..6 => {
                let writes = self.rng.log_range(1..40) as u32;
                self.world.trace(|| format!("{name} will fail a write in {writes}"));
                member.fail_write_in(Some(writes));
                self.holes.lose(&self.layout, slot, &mut self.oracle);
            }
            6..8 => {
                let data = member.data.borrow().clone();
                let blocks = (data.end - data.start) / member.kind.tear;
                let hot = (self.scenario.hot / member.kind.tear).clamp(1, blocks.max(1));
                let room = if self.rng.percent(70) { hot } else { blocks };
                let first = self.rng.range(0..room) * member.kind.tear;
                let count = self.rng.log_range(1..17);
                self.world.trace(|| format!("{name} cannot read {count} blocks at {first}"));
                member.make_unreadable(first, count);
                for bad in member.unreadable() {
                    self.holes.lose_part(&self.layout, slot, bad, &mut self.oracle);
                }
            }
            _ => self.fail_by_command(&member)?,
        }
        Ok(())
    }

    /// Blocks of a member take no write any more.
    fn blocks_go_bad(&mut self, member: &Member, slot: Option<usize>) {
        let data = member.data.borrow().clone();
        let blocks = (data.end - data.start) / member.kind.tear;
        let hot = (self.scenario.hot / member.kind.tear).clamp(1, blocks.max(1));
        let unreadable = self.rng.percent(40);
        for _ in 0..self.rng.log_range(1..8) {
            let room = if self.rng.percent(80) { hot } else { blocks };
            let first = self.rng.range(0..room) * member.kind.tear;
            let count = self.rng.log_range(1..40);
            let name = member.name();
            self.world.trace(|| format!("{name} takes no write of {count} blocks at {first}"));
            member.make_defective(first, count, unreadable);
        }
        let Some(slot) = slot else { return };
        for bad in member.unreadable() {
            self.holes.lose_part(&self.layout, slot, bad, &mut self.oracle);
        }
    }

    pub(crate) fn fail_by_command(&mut self, member: &Rc<Member>) -> Result<(), Over> {
        if !self.scenario.create.level.has_redundancy() {
            return Ok(());
        }
        let name = member.name().to_string();
        self.world.trace(|| format!("fail {name}"));
        self.holes.lose(&self.layout, member.slot.get().unwrap_or(0), &mut self.oracle);
        let control = self.control()?;
        let selector = MemberSelector::Name(name.clone());
        let later =
            self.life()?.machine.begin(async move { control.membership().fail(&selector).await });
        match self.wait("the command to fail a member", &later)? {
            Ok(()) => member.out.set(true),
            Err(ControlError::NotRecorded { .. }) => {
                self.wait_until_recorded(&name, Some(MemberState::Faulty), |run| {
                    run.status().map(Some)
                })?;
                member.out.set(true);
            }
            Err(_) => {}
        }
        Ok(())
    }

    fn a_spare_fails(&mut self) -> Result<(), Over> {
        let members = self.world.members.borrow().clone();
        let spares: Vec<_> =
            members.iter().filter(|m| !m.in_sync.get() && !m.out.get() && !m.is_gone()).collect();
        if spares.is_empty() || self.rng.percent(50) {
            return Ok(());
        }
        self.faults += 1;
        let spare = self.rng.pick(&spares);
        if self.scenario.create.bad_block_log && spare.has_log.get() && self.rng.percent(50) {
            let spare = Rc::clone(spare);
            self.blocks_go_bad(&spare, spare.slot.get());
            return Ok(());
        }
        self.world.trace(|| format!("{} is gone, a spare or being rebuilt", spare.name()));
        spare.set_gone(true);
        spare.out.set(true);
        Ok(())
    }

    /// Removes a member that is faulty, if there is one, and adds one that is not in the array.
    pub(crate) fn add_a_member(&mut self) -> Result<(), Over> {
        if !self.scenario.create.level.has_redundancy() || self.excused {
            return Ok(());
        }
        self.oracle.end_steady();
        self.remove_faulty()?;
        let Some(member) = self.free_member(None)? else { return Ok(()) };
        if member.is_gone() && self.rng.percent(50) {
            return Ok(());
        }
        self.bring(&member)
    }

    /// Removes a member that is faulty, if there is one.
    pub(crate) fn remove_faulty(&mut self) -> Result<(), Over> {
        let status = self.status()?;
        let faulty = status.members.iter().find(|member| member.state == MemberState::Faulty);
        if let Some(faulty) = faulty {
            let (control, selector) = (self.control()?, MemberSelector::Nr(faulty.nr));
            self.world.trace(|| format!("remove {}", faulty.name));
            let later = self
                .life()?
                .machine
                .begin(async move { control.membership().remove(&selector).await });
            match self.wait("the command to remove a member", &later)? {
                Err(ControlError::NotRecorded { .. }) => {
                    self.wait_until_recorded(&faulty.name, None, |run| run.status().map(Some))?;
                }
                Err(error) if !self.excused => {
                    return self.fail("requests_succeed", error.to_string());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A member that is not in the array, other than `except`.
    pub(crate) fn free_member(
        &mut self,
        except: Option<&Rc<Member>>,
    ) -> Result<Option<Rc<Member>>, Over> {
        let status = self.status()?;
        let members = self.world.members.borrow().clone();
        // A member with larger blocks than the array's present members have is refused.
        let least = members.iter().map(|member| member.kind.info.logical_block).min();
        let free = members.iter().find(|member| {
            Some(member.kind.info.logical_block) == least
                && status.members.iter().all(|known| known.name != member.name())
                && except.is_none_or(|except| !Rc::ptr_eq(except, member))
        });
        Ok(free.cloned())
    }

    /// Adds a member that is not in the array, or has it taken back by the bitmap.
    pub(crate) fn bring(&mut self, member: &Rc<Member>) -> Result<(), Over> {
        self.left_out_no_more(member);
        member.set_gone(false);
        if member.hung.get() {
            self.world.wake_hung();
            while self.world.owed_by(member) > 0 && self.step()? != Step::Stuck {}
        }
        member.heal();
        if self.mishaps.chance(50) {
            // It was away, and its cache with it.
            member.lose_power(&self.world.rng);
        }
        member.slot.set(None);
        member.in_sync.set(false);
        member.out.set(false);
        if self.scenario.has_bitmap() && self.rng.percent(75) && self.re_add(member)? {
            return Ok(());
        }
        self.world.trace(|| format!("add {}", member.name()));
        member.mark_stale();
        let (control, opener) = (self.control()?, SimOpener::of(&self.world, member.kind.index));
        let later =
            self.life()?.machine.begin(async move { control.membership().add(opener, true).await });
        match self.wait("the command to add a member", &later)? {
            // Too small for where data starts on the members that are left; or it was given up and has not ended what it
            // was asked before.
            Err(ControlError::Unfit { .. } | ControlError::UnderWay { .. }) => Ok(()),
            Err(error) if !self.excused => self.fail("requests_succeed", error.to_string()),
            _ => Ok(()),
        }
    }

    /// Asks for a member to be taken back by the bitmap. False when it was refused: the bitmap does not say
    /// what it lacks.
    fn re_add(&mut self, member: &Rc<Member>) -> Result<bool, Over> {
        self.world.trace(|| format!("re-add {}", member.name()));
        member.trust();
        let (control, opener) = (self.control()?, SimOpener::of(&self.world, member.kind.index));
        let later =
            self.life()?.machine.begin(async move { control.membership().re_add(opener).await });
        match self.wait("the command to re-add a member", &later)? {
            Ok(_) => {
                self.re_added += 1;
                Ok(true)
            }
            Err(ControlError::CannotReAdd { why, .. }) => {
                self.world.trace(|| format!("not re-added: {why}"));
                Ok(false)
            }
            Err(ControlError::Unfit { .. } | ControlError::UnderWay { .. }) => Ok(false),
            Err(error) if !self.excused => self.fail("requests_succeed", error.to_string()),
            Err(_) => Ok(true),
        }
    }

    /// The array is given a bitmap, or loses the one that it has; a crash may come before that is done.
    fn change_the_bitmap(&mut self) -> Result<(), Over> {
        let (control, adds) = (self.control()?, self.status()?.bitmap.is_none());
        let chunk = *self.rng.pick(&[4096, 16 << 10, 64 << 10, 1 << 20]);
        self.world.trace(|| if adds { "add a bitmap" } else { "remove the bitmap" }.to_string());
        let later = self.life()?.machine.begin(async move {
            match adds {
                true => control.bitmap().add(Some(chunk)).await.map(drop),
                false => control.bitmap().remove().await,
            }
        });
        if self.rng.percent(40) {
            return Ok(());
        }
        match self.wait("the command to change the bitmap", &later)? {
            Ok(()) => {
                self.bitmap_changes += 1;
                Ok(())
            }
            // No room, a resync that goes on, a member that is about to fail.
            Err(ControlError::Bitmap { .. } | ControlError::Io { .. }) => Ok(()),
            Err(error) if !self.excused => self.fail("requests_succeed", error.to_string()),
            Err(_) => Ok(()),
        }
    }

    /// Now and then bitmaps are damaged, or out of date, when the array is assembled: one or all.
    fn damage_bitmaps(&self) {
        if !self.scenario.has_bitmap() || !self.rng.percent(8) {
            return;
        }
        let (all, how) = (self.rng.percent(60), self.rng.range(0..4));
        let members = self.world.members.borrow();
        for member in members.iter() {
            let at = images::superblock(&self.world, member).and_then(|sb| sb.bitmap_sector());
            let Some(at) = at.map(|sector| sector * 512) else { continue };
            let (field, bytes): (u64, &[u8]) = match how {
                0 => (0, &[0; 4]),        // no magic
                1 => (24, &[0; 8]),       // events of long ago
                2 => (48, &[2, 0, 0, 0]), // stale
                _ => (52, &[3, 0, 0, 0]), // an impossible chunk
            };
            member.rot(at + field, bytes);
            self.world.trace(|| format!("the bitmap of {} is damaged ({how})", member.name()));
            if !all {
                return;
            }
        }
    }

    fn start_a_scrub(&mut self) -> Result<(), Over> {
        let control = self.control()?;
        let repair = self.rng.percent(50);
        self.world.trace(|| if repair { "repair" } else { "check" }.to_string());
        // Refused while another job runs.
        let _ = if repair { control.jobs().start_repair() } else { control.jobs().start_check() };
        Ok(())
    }

    /// Takes from the images which members hold slots: what was sent to them last may be lost.
    pub(crate) fn learn_from_images(&self) {
        let members = self.world.members.borrow().clone();
        let choice = images::md_choice(&self.world, &members);
        for member in &members {
            member.slot.set(None);
            member.in_sync.set(false);
        }
        if let Some(choice) = choice {
            for (slot, member) in &choice.in_sync {
                member.slot.set(Some(*slot));
                member.in_sync.set(true);
            }
            for (slot, member, _) in &choice.rebuilding {
                member.slot.set(Some(*slot));
            }
        }
    }

    /// Members come back, or go, while nothing runs.
    pub(crate) fn members_between_lives(&mut self) {
        self.damage_bitmaps();
        self.metadata_is_there_again();
        self.learn_from_images();
        let members = self.world.members.borrow().clone();
        for member in &members {
            if member.is_gone() && (self.excused || self.rng.percent(50)) {
                self.world.trace(|| format!("{} is there again", member.name()));
                member.set_gone(false);
            }
            member.out.set(member.is_gone() || self.is_unknown(member));
        }
        if self.rng.percent(15)
            && let Some(member) = self.some_working()
            && self.may_lose(&member, |m| m.slot.get().filter(|_| m.in_sync.get()))
        {
            self.world.trace(|| format!("{} is not found any more", member.name()));
            member.set_gone(true);
            member.out.set(true);
        }
        self.metadata_is_damaged();
    }
}
