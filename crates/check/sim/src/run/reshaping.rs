//! A single array with parity is given more members, or another shape, while requests go on: power fails meanwhile, once or several times, or a
//! member fails.
//!
//! Where the data lies is left to the engine: requests say what may be read, before, meanwhile and after every crash, and parity is
//! looked at in the end, under the new shape.

use super::chances::Chances;
use super::counting::in_sync_at_rest;
use super::{Life, Run};
use crate::images;
use crate::member::Member;
use crate::rng::Extra;
use crate::waiting::{Over, SECOND};
use braid_array::control::reshaping::WantedShape;
use braid_array::error::ControlError;
use braid_array::options::SyncSpeed;
use braid_array::status::MemberState;
use braid_format::superblock::Superblock;
use braid_layout::Layout;
use std::rc::Rc;

/// No stripe is larger, in bytes of the array.
const WIDEST_STRIPE: u64 = 16 * (64 << 10);

/// The choices that a reshape is drawn from.
pub(super) type Of = fn(&Chances) -> &Extra;

impl Run {
    /// An array that can be reshaped without anybody to blame for what is lost then.
    pub(super) fn can_be_reshaped(&self) -> bool {
        // A window that a liar has lost has lost both places that held it, and nothing says which blocks those were.
        let lies = self.world.members.borrow().iter().any(|member| member.kind.lies);
        let parity = matches!(&*self.layout(self.top()), Layout::Parity(_));
        parity && !self.promises.excused && !lies
    }

    /// A whole array is given some of its spares.
    pub(super) fn members_are_added(&mut self) -> Result<(), Over> {
        if !self.can_be_reshaped() {
            return Ok(());
        }
        // As in md the shape is not changed beside a journal.
        if self.plan.scenario.journal.is_some() {
            return Ok(());
        }
        self.gets_more_members()
    }

    /// The same of an array that can be reshaped.
    pub(super) fn gets_more_members(&mut self) -> Result<(), Over> {
        self.drain()?;
        self.wait_for_jobs()?;
        // One spare too few is added first.
        for _ in 0..2 {
            let status = self.top_status()?;
            let spare = status.members.iter().any(|member| member.state == MemberState::Spare);
            if status.degraded > 0 || !spare {
                self.mend(self.top())?;
                self.wait_for_jobs()?;
            }
        }
        if !self.is_whole()? {
            return Ok(());
        }
        let status = self.top_status()?;
        let waits = |state: MemberState| state == MemberState::Spare;
        let spares = status.members.iter().filter(|member| waits(member.state)).count();
        if spares == 0 {
            return Ok(());
        }
        self.oracle.end_steady();
        let disks = status.raid_disks + 1 + self.chances.reshaping.rng.below(spares);
        let wanted = WantedShape { raid_disks: Some(disks), ..WantedShape::default() };
        let Some(speed) = self.begins(wanted, |chances| &chances.reshaping)? else {
            return Ok(());
        };
        self.under_faults(speed, |chances| &chances.reshaping)?;
        self.reshaped(|chances| &chances.reshaping)
    }

    /// A reshape begins; gives its greatest speed. `None`: it is refused.
    pub(super) fn begins(&mut self, wanted: WantedShape, of: Of) -> Result<Option<u64>, Over> {
        let control = self.top_control()?;
        let slow = *of(&self.chances).rng.pick(&[16, 128, 1024, u64::MAX]);
        let set = control.jobs().set_sync_speed(0, slow);
        if let Err(error) = set {
            return self.fail("requests_succeed", error.to_string());
        }
        self.world.trace(|| format!("{wanted:?} is wanted"));
        self.world.reshaping.set(true);
        let later = self.life()?.machine.begin(async move { control.reshape(wanted, false).await });
        match self.wait("the command to change the shape", &later)? {
            Ok(_) => {}
            // No room beside the data, or a spare that is too weak for it.
            Err(error @ (ControlError::Shape { .. } | ControlError::Io { .. })) => {
                self.world.trace(|| error.to_string());
                self.world.reshaping.set(false);
                self.world.owners.borrow_mut().clear();
                return Ok(None);
            }
            Err(error) => return self.fail("requests_succeed", error.to_string()),
        }
        self.did.reshapes += 1;
        Ok(Some(slow))
    }

    /// Power fails once or several times, or a member fails, while the array is used.
    pub(super) fn under_faults(&mut self, speed: u64, of: Of) -> Result<(), Over> {
        if of(&self.chances).chance(50) {
            for _ in 0..1 + of(&self.chances).rng.below(4) {
                self.quiet_round()?;
                self.time_passes(of(&self.chances).rng.log_range(1_000..3 * SECOND))?;
                self.power_fails(speed)?;
            }
        } else {
            self.quiet_round()?;
            self.time_passes(of(&self.chances).rng.log_range(1_000..3 * SECOND))?;
            if let Some(leaf) = self.some_working()
                && of(&self.chances).chance(60)
                && self.others_are_sound(&leaf)
            {
                self.fail_leaf(&leaf)?;
                self.quiet_round()?;
            }
        }
        Ok(())
    }

    /// No member that holds a slot, of whichever shape, lacks blocks that this one may be needed for.
    pub(super) fn others_are_sound(&self, leaf: &Member) -> bool {
        let members = self.world.members.borrow();
        let mut others = members.iter().filter(|member| member.kind.index != leaf.kind.index);
        others.all(|member| member.slot.get().is_none() || member.out.get() || !member.is_weak())
    }

    /// The reshape comes to its end, and all of the array is used.
    pub(super) fn reshaped(&mut self, of: Of) -> Result<(), Over> {
        if let Err(error) = self.top_control()?.jobs().set_sync_speed(0, u64::MAX) {
            return self.fail("requests_succeed", error.to_string());
        }
        self.quiet_round()?;
        self.wait_for_jobs()?;
        let status = self.top_status()?;
        if status.reshape.is_some() {
            let text =
                format!("a reshape ends, and has not come to its end: {:?}", status.last_job);
            return self.fail("requests_succeed", text);
        }
        let layout = self.layout_of_images()?;
        self.world.reshaping.set(false);
        self.world.owners.borrow_mut().clear();
        // All parity is made anew, and rows have other numbers.
        self.promises.holes.close();
        self.oracle.grow(layout.array_size());
        self.has_layout(Rc::new(layout));
        self.open_anew()?;
        self.quiet_round()?;
        self.read_everything()?;
        if of(&self.chances).chance(50) {
            self.wait_for_jobs()?;
            self.next_life(false)?;
        }
        Ok(())
    }

    /// The layout that the superblocks describe.
    pub(super) fn layout_of_images(&mut self) -> Result<Layout, Over> {
        let raid_disks = self.top_status()?.raid_disks as u32;
        let members = self.world.members.borrow().clone();
        // One that failed in the middle still says how it was then.
        let holds = |m: &&Rc<Member>| in_sync_at_rest(m).is_some() && !m.is_gone();
        let found = members.iter().filter(holds);
        let superblocks = found.filter_map(|member| images::superblock(&self.world, member));
        let superblocks: Vec<Superblock> =
            superblocks.map(|sb| Superblock { raid_disks, ..sb }).collect();
        match images::layout(&superblocks) {
            Some(layout) => Ok(layout),
            None => self.fail("md_can_assemble", "the superblocks describe no array".to_string()),
        }
    }

    /// Lets time pass, with what is under way.
    pub(super) fn time_passes(&mut self, nanos: u64) -> Result<(), Over> {
        let until = self.world.now() + nanos;
        while self.world.now() < until && self.step()? != crate::machine::Step::Stuck {}
        Ok(())
    }

    /// Power fails, and all members are there again.
    fn power_fails(&mut self, speed: u64) -> Result<(), Over> {
        let open = self.power_is_cut()?;
        self.starts_again(speed, &open)
    }

    /// Power fails; gives the blocks that were being written.
    pub(super) fn power_is_cut(&mut self) -> Result<Vec<u64>, Over> {
        self.world.trace(|| "CRASH in a reshape".to_string());
        self.did.crashes += 1;
        self.note_whether_logged()?;
        if let Some(Life { client, arrays, machine }) = self.life.take() {
            self.did.requests += client.ended;
            self.world.power_cut();
            drop((client, arrays));
            drop(machine);
        }
        let open = self.oracle.crash();
        self.oracle.settled = false;
        self.world.missed.borrow_mut().clear();
        self.learn_from_images();
        Ok(open)
    }

    /// The next life, in which jobs are no faster than `speed`; `open`: blocks that were being written.
    pub(super) fn starts_again(&mut self, speed: u64, open: &[u64]) -> Result<(), Over> {
        let top = self.top();
        self.plan.arrays[top].assemble.sync_speed = SyncSpeed { min_kib: 0, max_kib: speed };
        self.assemble()?;
        if self.promises.forced {
            // The write hole: what shares a stripe with these, in either shape, may be anything.
            let near = WIDEST_STRIPE / self.plan.scenario.block;
            for block in open {
                let end = (block + near).min(self.oracle.len());
                (block.saturating_sub(near)..end).for_each(|block| self.oracle.forget(block));
            }
        }
        self.quiet_round()
    }
}
