//! A single array with parity gets another level and another shape by one command, in several steps: power fails in them and
//! between them, once or several times, or a member fails, and the command is given again.
//!
//! At any instant the superblocks name a shape between the first and the last, and in each all that was acknowledged is there.

use super::Run;
use super::reshaping::Of;
use crate::images;
use crate::rng::Extra;
use crate::waiting::{Over, SECOND};
use braid_array::control::steps::Steps;
use braid_array::control::steps::wanted::{WantedArray, WantedLayout};
use braid_array::error::ControlError;
use braid_array::status::{ArrayStatus, MemberState};
use braid_format::superblock::Superblock;
use braid_layout::Level;
use std::rc::Rc;

const CHUNKS: [u64; 3] = [4 << 10, 8 << 10, 16 << 10];
const LAYOUTS_5: [u32; 6] = [0, 1, 2, 3, 4, 5];
const LAYOUTS_6: [u32; 11] = [0, 1, 2, 3, 5, 8, 9, 10, 16, 18, 20];
/// So often the command is given again at most, for what a crash has left to be resynced first.
const AGAIN: usize = 8;

impl Run {
    /// One change in several steps, or more.
    pub(super) fn level_steps(&mut self) -> Result<(), Over> {
        let of: Of = |chances| &chances.steps;
        for _ in 0..1 + of(&self.chances).rng.below(2) {
            if !self.is_ready_for_steps(1 + of(&self.chances).rng.below(2))? {
                return Ok(());
            }
            let Some(wanted) = self.change_in_steps(of)? else { return Ok(()) };
            if !self.is_changed_in_steps(wanted, of)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// A whole array with parity, and spares as far as there are any to be had.
    pub(super) fn is_ready_for_steps(&mut self, spares: usize) -> Result<bool, Over> {
        if !self.can_change_its_level() || !self.can_be_reshaped() {
            return Ok(false);
        }
        self.drain()?;
        self.oracle.end_steady();
        self.wait_for_jobs()?;
        for _ in 0..spares {
            self.mend(self.top())?;
            self.wait_for_jobs()?;
        }
        self.is_whole()
    }

    /// A change that takes several steps, if the array can have one.
    fn change_in_steps(&mut self, of: Of) -> Result<Option<WantedArray>, Over> {
        let status = self.top_status()?;
        for _ in 0..8 {
            let wanted = random_change(of(&self.chances), &status);
            if self.would_take(wanted)?.is_some_and(|steps| steps.steps.len() > 1) {
                return Ok(Some(wanted));
            }
        }
        Ok(None)
    }

    /// The steps to what is wanted; `None`: it is refused.
    fn would_take(&mut self, wanted: WantedArray) -> Result<Option<Steps>, Over> {
        let control = self.top_control()?;
        let later =
            self.life()?.machine.begin(async move { control.change_to(wanted, true).await });
        match self.wait("the question about steps to another level", &later)? {
            Ok(would) => Ok(Some(would)),
            Err(error @ ControlError::Shape { .. }) => {
                self.world.trace(|| error.to_string());
                Ok(None)
            }
            Err(error) => self.fail("requests_succeed", error.to_string()),
        }
    }

    /// The array becomes what is wanted, with faults on the way. False when it does not, and nobody is to blame.
    pub(super) fn is_changed_in_steps(
        &mut self,
        wanted: WantedArray,
        of: Of,
    ) -> Result<bool, Over> {
        let Some(would) = self.would_take(wanted)? else { return Ok(false) };
        let slow = *of(&self.chances).rng.pick(&[64, 512, 4096, u64::MAX]);
        self.is_limited_to(slow)?;
        self.world.trace(|| format!("{wanted:?} is wanted: {would:?}"));
        self.world.reshaping.set(true);
        let begun = self.is_asked_for(wanted)?;
        self.did.level_changes += 1;
        if begun && of(&self.chances).chance(70) {
            for _ in 0..1 + of(&self.chances).rng.below(4) {
                self.quiet_round()?;
                self.time_passes(of(&self.chances).rng.log_range(1_000..4 * SECOND))?;
                self.power_fails_in_steps(slow)?;
                self.is_asked_for(wanted)?;
            }
        } else if begun {
            self.quiet_round()?;
            self.time_passes(of(&self.chances).rng.log_range(1_000..4 * SECOND))?;
            if let Some(leaf) = self.some_working()
                && self.others_are_sound(&leaf)
            {
                self.fail_leaf(&leaf)?;
                self.quiet_round()?;
            }
        }
        self.is_limited_to(u64::MAX)?;
        let reached = self.comes_to_the_end(wanted, &would)?;
        self.world.reshaping.set(false);
        self.world.owners.borrow_mut().clear();
        // All parity is made anew, and rows have other numbers.
        self.promises.holes.close();
        self.learns_shape()?;
        let layout = self.layout(self.top());
        self.oracle.grow(layout.array_size());
        self.open_anew()?;
        self.quiet_round()?;
        self.read_everything()?;
        if reached {
            self.its_redundancy_is_used(of)?;
        }
        Ok(reached)
    }

    fn is_limited_to(&mut self, kib: u64) -> Result<(), Over> {
        match self.top_control()?.jobs().set_sync_speed(0, kib) {
            Ok(()) => Ok(()),
            Err(error) => self.fail("requests_succeed", error.to_string()),
        }
    }

    /// The command is given; false when it is refused.
    fn is_asked_for(&mut self, wanted: WantedArray) -> Result<bool, Over> {
        let control = self.top_control()?;
        let later =
            self.life()?.machine.begin(async move { control.change_to(wanted, false).await });
        match self.wait("the command to change level and shape", &later)? {
            Ok(steps) => {
                self.world.trace(|| format!("under way: {:?}", steps.under_way));
                Ok(true)
            }
            Err(error @ (ControlError::Shape { .. } | ControlError::Io { .. })) => {
                self.world.trace(|| error.to_string());
                Ok(false)
            }
            Err(error) => self.fail("requests_succeed", error.to_string()),
        }
    }

    /// The command is given until there is nothing left to be done. False where members are lacking, or the rest is refused.
    fn comes_to_the_end(&mut self, wanted: WantedArray, would: &Steps) -> Result<bool, Over> {
        for _ in 0..AGAIN {
            self.quiet_round()?;
            self.drain()?;
            self.wait_for_jobs()?;
            let status = self.top_status()?;
            if status.degraded > 0 {
                self.mend(self.top())?;
                self.wait_for_jobs()?;
            }
            let status = self.top_status()?;
            let goal = (would.goal.level, would.goal.layout, would.goal.raid_disks);
            if status.reshape.is_none() && goal == (status.level, status.layout, status.raid_disks)
            {
                if status.following.is_some() {
                    let text = format!("it is {goal:?}, and goes on: {:?}", status.following);
                    return self.fail("requests_succeed", text);
                }
                return Ok(true);
            }
            // A crash has cut the way short; or a member is lacking, and then it waits for one.
            if status.following.is_none() && !self.is_asked_for(wanted)? {
                self.wait_for_jobs()?;
            }
        }
        let status = self.top_status()?;
        let (whole, forced) = (status.degraded == 0, self.promises.forced);
        if whole && !forced && !self.lacks_spares(would, &status) {
            let text = format!("it does not become {would:?}: {status:?}");
            return self.fail("requests_succeed", text);
        }
        // The reshape that is under way has ended: a job that waits for nobody has.
        Ok(false)
    }

    /// Spares that were to get slots are gone.
    fn lacks_spares(&self, would: &Steps, status: &ArrayStatus) -> bool {
        let there = status.members.iter().filter(|member| member.state != MemberState::Faulty);
        would.goal.raid_disks > there.count() || !status.stuck_jobs.is_empty()
    }

    /// Power fails, and all members are there again.
    fn power_fails_in_steps(&mut self, speed: u64) -> Result<(), Over> {
        let open = self.power_is_cut()?;
        self.learns_shape()?;
        self.starts_again(speed, &open)
    }

    /// The level and shape that the freshest superblock names, before a reshape that is under way.
    fn learns_shape(&mut self) -> Result<(), Over> {
        let members = self.world.members.borrow().clone();
        let Some(choice) = images::md_choice(&self.world, &members) else {
            return self.fail("md_can_assemble", "no member has a superblock".to_string());
        };
        let freshest = choice.freshest;
        let Some(reshape) = freshest.reshape else { return self.learn_level() };
        let held: Vec<Superblock> = choice
            .in_sync
            .iter()
            .filter_map(|(_, member)| images::superblock(&self.world, member))
            .map(|own| Superblock {
                level: freshest.level,
                layout: freshest.layout,
                chunk_sectors: freshest.chunk_sectors,
                raid_disks: freshest.raid_disks.saturating_add_signed(-reshape.delta_disks),
                size: freshest.size,
                ..own
            })
            .collect();
        let (Some(layout), Some(level)) = (images::layout(&held), Level::from_md(freshest.level))
        else {
            return self.fail("md_can_assemble", "the superblocks describe no array".to_string());
        };
        let top = self.top();
        self.plan.arrays[top].create.level = level;
        self.has_layout(Rc::new(layout));
        Ok(())
    }

    /// An array with parity becomes level 0, in as many steps as it takes.
    pub(super) fn level_0_at_last(&mut self) -> Result<(), Over> {
        let of: Of = |chances| &chances.level_0;
        let level = self.plan.arrays[self.top()].create.level;
        let spares = of(&self.chances).rng.below(2);
        if !level.is_parity() || !self.is_ready_for_steps(spares)? {
            return Ok(());
        }
        let chunk = of(&self.chances).chance(30).then(|| *of(&self.chances).rng.pick(&CHUNKS));
        let wanted = WantedArray {
            level: Level::Raid0,
            layout: WantedLayout::Any,
            chunk_size: chunk,
            raid_disks: None,
        };
        self.is_changed_in_steps(wanted, of).map(drop)
    }

    /// Level 10 becomes 0 and 0 becomes 10, one after the other, most of the time with power failing just then. Arrays of
    /// levels 4 and 5 become 0 first.
    pub(super) fn stripes_and_copies(&mut self) -> Result<(), Over> {
        let of: Of = |chances| &chances.copies;
        let level = self.plan.arrays[self.top()].create.level;
        if matches!(level, Level::Raid4 | Level::Raid5) {
            let wanted = WantedArray {
                level: Level::Raid4,
                layout: WantedLayout::Any,
                chunk_size: None,
                raid_disks: None,
            };
            if level == Level::Raid5
                && (!self.is_ready_for_steps(0)? || !self.is_changed_in_steps(wanted, of)?)
            {
                return Ok(());
            }
            if !self.can_change_its_level() || !self.one_level_change(of, Some(Level::Raid0))? {
                return Ok(());
            }
        }
        for _ in 0..2 + of(&self.chances).rng.below(3) {
            let to = match self.plan.arrays[self.top()].create.level {
                Level::Raid0 => Level::Raid10,
                Level::Raid10 => Level::Raid0,
                _ => return Ok(()),
            };
            if !self.can_change_its_level() || !self.one_level_change(of, Some(to))? {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn random_change(extra: &Extra, status: &ArrayStatus) -> WantedArray {
    let level =
        *extra.rng.pick(&[Level::Raid4, Level::Raid5, Level::Raid5, Level::Raid6, Level::Raid6]);
    let layout = match level {
        Level::Raid5 if extra.chance(60) => WantedLayout::Number(*extra.rng.pick(&LAYOUTS_5)),
        Level::Raid6 if extra.chance(70) => WantedLayout::Number(*extra.rng.pick(&LAYOUTS_6)),
        Level::Raid6 => WantedLayout::Normalise,
        _ => WantedLayout::Any,
    };
    let chunk = extra.chance(40);
    WantedArray {
        level,
        layout,
        chunk_size: chunk.then(|| *extra.rng.pick(&CHUNKS)),
        raid_disks: extra.chance(30).then_some(status.raid_disks + usize::from(extra.chance(50))),
    }
}
