//! A single array gets another level without anything being moved, and perhaps a third: power fails meanwhile or afterwards, new
//! slots are given members, and one of the others fails.
//!
//! Whatever the instant, the superblocks name one of the two levels, and at either all that was acknowledged is there.

use super::Run;
use super::reshaping::Of;
use crate::images;
use crate::waiting::Over;
use braid_array::control::levels::WantedLevel;
use braid_array::error::ControlError;
use braid_array::options::MemberSelector;
use braid_array::status::ArrayStatus;
use braid_format::superblock::Superblock;
use braid_layout::{Layout, Level};
use std::rc::Rc;

/// md's number of the layout of level 10 that has two copies side by side.
const NEAR_2: u32 = 0x102;
/// Beside 10, which leads to 0 alone, and which is come to from there alone.
const LEVELS: [Level; 5] = [Level::Raid0, Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6];

impl Run {
    /// An array that may change its level, with nobody to blame for what is lost then.
    pub(super) fn can_change_its_level(&self) -> bool {
        let lies = self.world.members.borrow().iter().any(|member| member.kind.lies);
        let layout = self.layout(self.top());
        let known = !matches!(&*layout, Layout::Linear(_));
        let journal = self.plan.scenario.journal.is_some();
        // A flush that fails at a level without redundancy fails that request, and one that has a slot without a member stops.
        let flushes = self.promises.flushes_fail;
        known && !journal && !self.promises.excused && !self.promises.forced && !lies && !flushes
    }

    /// One or several changes of the level.
    pub(super) fn level_changes(&mut self) -> Result<(), Over> {
        for _ in 0..1 + self.chances.levels.rng.below(3) {
            let of: Of = |chances| &chances.levels;
            if !self.can_change_its_level() || !self.one_level_change(of, None)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// A change to `wish`, or to any; false when there is none to be had.
    pub(super) fn one_level_change(&mut self, of: Of, wish: Option<Level>) -> Result<bool, Over> {
        let top = self.top();
        self.drain()?;
        self.oracle.end_steady();
        if self.redundant(top) {
            self.wait_for_jobs()?;
            if self.top_status()?.degraded > 0 {
                self.mend(top)?;
            }
            if !self.is_whole()? {
                return Ok(false);
            }
        }
        let mut before = self.top_status()?;
        let whole = self.layout(top).array_size();
        // Few arrays can.
        let apart = self.parity_is_apart();
        let level = match before.level {
            _ if wish == Some(Level::Raid10) => Level::Raid10,
            Level::Raid10 if before.layout != NEAR_2 || before.raid_disks % 2 != 0 => {
                return Ok(false);
            }
            Level::Raid10 => Level::Raid0,
            Level::Raid0 if of(&self.chances).chance(40) => Level::Raid10,
            _ if apart && (wish.is_some() || of(&self.chances).chance(40)) => Level::Raid0,
            _ => *of(&self.chances).rng.pick(&LEVELS),
        };
        if level == Level::Raid0 && apart {
            before = self.without_parity(before)?;
        } else if before.level == Level::Raid10 {
            before = self.without_bitmap_and_spares(before)?;
        }
        // Not all lead anywhere without moving data.
        let mut planned = None;
        let mut wanted = WantedLevel { level, chunk_size: None, layout: None, raid_disks: None };
        for _ in 0..4 {
            // More copies, or fewer.
            wanted.raid_disks = (before.level == Level::Raid1 && wanted.level == Level::Raid1)
                .then(|| of(&self.chances).rng.range(2..5) as usize);
            let control = self.top_control()?;
            let later =
                self.life()?.machine.begin(async move { control.change_level(wanted, true).await });
            match self.wait("the question about another level", &later)? {
                Ok(would) => planned = Some(would),
                Err(error @ ControlError::Shape { .. }) => self.world.trace(|| error.to_string()),
                Err(error) => return self.fail("requests_succeed", error.to_string()),
            }
            if planned.is_some() || wish.is_some() {
                break;
            }
            wanted.level = *of(&self.chances).rng.pick(&LEVELS);
        }
        let Some(planned) = planned else { return Ok(false) };
        let level = wanted.level;
        for _ in 0..of(&self.chances).rng.range(0..12) {
            let scenario = &self.plan.scenario;
            let life = self.life.as_mut().ok_or(Over)?;
            life.client.send_random(&life.machine, scenario, &mut self.oracle);
        }
        self.world.trace(|| format!("{} to {level}: {planned:?}", before.level));
        self.world.reshaping.set(true);
        let control = self.top_control()?;
        let later =
            self.life()?.machine.begin(async move { control.change_level(wanted, false).await });
        self.did.level_changes += 1;
        // Where it is asked for, chances are that the change itself is cut short.
        if of(&self.chances).chance(if wish.is_some() { 85 } else { 50 }) {
            for _ in 0..of(&self.chances).rng.log_range(1..400) {
                if later.borrow().is_some() {
                    break;
                }
                self.step()?;
            }
            self.crash()?;
            self.learn_level()?;
            self.assemble()?;
        } else {
            match self.wait("the command to change the level", &later)? {
                Ok(_) => self.learn_level()?,
                Err(error) => return self.fail("requests_succeed", error.to_string()),
            }
            let now = self.top_status()?;
            let slots = (now.raid_disks, planned.raid_disks.1);
            if now.level != level || now.layout != planned.layout.1 || slots.0 != slots.1 {
                let text = format!(
                    "it is {} {} of {} after {planned:?}",
                    now.level, now.layout, now.raid_disks
                );
                return self.fail("requests_succeed", text);
            }
            self.quiet_round()?;
            if level == Level::Raid0 || of(&self.chances).chance(50) {
                self.next_life(of(&self.chances).chance(70))?;
            }
        }
        self.world.reshaping.set(false);
        self.world.owners.borrow_mut().clear();
        let now = self.top_status()?;
        // An array that shows less of it does so until it is stopped.
        if ![before.array_size, whole].contains(&now.array_size) {
            let text = format!("{} bytes, and {whole} before: {now:?}", now.array_size);
            return self.fail("sizes_are_kept", text);
        }
        self.quiet_round()?;
        self.read_everything()?;
        self.its_redundancy_is_used(of)?;
        Ok(true)
    }

    /// New slots get members, and one of the others fails.
    pub(super) fn its_redundancy_is_used(&mut self, of: Of) -> Result<(), Over> {
        let top = self.top();
        if !self.redundant(top) {
            return Ok(());
        }
        self.drain()?;
        self.wait_for_jobs()?;
        while self.top_status()?.degraded > 0 {
            let before = self.top_status()?.degraded;
            self.mend(top)?;
            self.wait_for_jobs()?;
            if self.top_status()?.degraded >= before {
                break;
            }
        }
        if self.is_whole()?
            && of(&self.chances).chance(40)
            && let Some(leaf) = self.some_working()
        {
            self.fail_leaf(&leaf)?;
            self.quiet_round()?;
            self.read_everything()?;
        }
        Ok(())
    }

    /// Parity has the last slot to itself.
    fn parity_is_apart(&self) -> bool {
        match &*self.layout(self.top()) {
            Layout::Parity(parity) => {
                parity.parity_count() == 1 && parity.only_parity(parity.slots() - 1)
            }
            _ => false,
        }
    }

    /// The member that has parity goes, and all that wait to be needed; and a bitmap.
    fn without_parity(&mut self, status: ArrayStatus) -> Result<ArrayStatus, Over> {
        let last = status.raid_disks - 1;
        // Spares first: they would take its place.
        let status = self.without_bitmap_and_spares(status)?;
        let members = self.world.members.borrow().clone();
        let holds = |slot| members.iter().find(|m| m.slot.get() == slot && !m.out.get()).cloned();
        let Some(holder) = holds(Some(last)) else { return Ok(status) };
        self.is_removed(holder.name(), true)?;
        holder.out.set(true);
        self.lose(last);
        self.top_status()
    }

    /// Level 0 has neither.
    fn without_bitmap_and_spares(&mut self, status: ArrayStatus) -> Result<ArrayStatus, Over> {
        if status.bitmap.is_some() {
            let control = self.top_control()?;
            let later = self.life()?.machine.begin(async move { control.bitmap().remove().await });
            if let Err(error) = self.wait("the command to remove a bitmap", &later)? {
                return self.fail("requests_succeed", error.to_string());
            }
        }
        for member in &status.members {
            if !self.holds_data(&member.name) {
                self.is_removed(&member.name, false)?;
            }
        }
        self.top_status()
    }

    fn holds_data(&self, name: &str) -> bool {
        let members = self.world.members.borrow();
        members.iter().any(|member| member.name() == name && member.slot.get().is_some())
    }

    fn is_removed(&mut self, name: &str, fails: bool) -> Result<(), Over> {
        self.world.trace(|| format!("remove {name}"));
        let (control, selector) = (self.top_control()?, MemberSelector::Name(name.to_string()));
        let later = self.life()?.machine.begin(async move {
            if fails {
                control.membership().fail(&selector).await?;
            }
            control.membership().remove_as(&selector, false).await
        });
        match self.wait("the command to remove a member", &later)? {
            Ok(unmarked) if fails => self.has_retired(name, unmarked),
            Ok(_) => Ok(()),
            Err(ControlError::NotRecorded { .. }) => {
                self.wait_until_recorded(self.top(), name, None)
            }
            Err(error) => self.fail("requests_succeed", error.to_string()),
        }
    }

    /// The level and layout that the freshest superblock names are those of the array from now on.
    pub(super) fn learn_level(&mut self) -> Result<(), Over> {
        let members = self.world.members.borrow().clone();
        let Some(choice) = images::md_choice(&self.world, &members) else {
            return self.fail("md_can_assemble", "no member has a superblock".to_string());
        };
        let freshest = choice.freshest;
        let held = choice.in_sync.iter().filter_map(|(_, member)| {
            let own = images::superblock(&self.world, member)?;
            Some(Superblock {
                roles: freshest.roles.clone(),
                level: freshest.level,
                layout: freshest.layout,
                chunk_sectors: freshest.chunk_sectors,
                raid_disks: freshest.raid_disks,
                size: freshest.size,
                ..own
            })
        });
        let held: Vec<Superblock> = held.collect();
        let (Some(layout), Some(level)) = (images::layout(&held), Level::from_md(freshest.level))
        else {
            return self.fail("md_can_assemble", "the superblocks describe no array".to_string());
        };
        let top = self.top();
        let slots = self.layout(top).slots();
        if level == Level::Raid1 && slots != freshest.raid_disks as usize {
            self.learn_from_images();
        }
        if level != self.plan.arrays[top].create.level {
            self.plan.arrays[top].create.level = level;
            // Without redundancy nothing could differ.
            self.promises.synced = true;
            // Slots may have other numbers, and second copies have left.
            self.learn_from_images();
            for member in members.iter().filter(|member| member.slot.get().is_none()) {
                member.out.set(true);
            }
        }
        self.has_layout(Rc::new(layout));
        Ok(())
    }
}
