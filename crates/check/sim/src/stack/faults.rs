//! What happens to a stack while it runs: leaves fail, arrays are failed or stopped as members, people give
//! commands at every layer. Nothing happens that the stack as a whole does not survive.

use super::plan::Below;
use super::rest::Held;
use super::{StackRun, When, member_name};
use crate::checkers::memory_bounded;
use crate::device::SimOpener;
use crate::machine::Later;
use crate::member::Member;
use crate::settings;
use crate::steps::Steps;
use crate::waiting::Over;
use braid_array::error::{ControlError, ExamineError};
use braid_array::options::{CreateBitmap, MemberSelector};
use braid_array::stacking::ArrayMember;
use braid_array::status::{ArrayStatus, MemberState};
use braid_device::Opener;
use std::rc::Rc;
use std::sync::Arc;

impl StackRun {
    pub(super) fn round(&mut self) -> Result<(), Over> {
        let requests = self.rng.range(1..self.plan.scenario.requests + 1);
        let mut sent = 0;
        while sent < requests {
            let depth = 1 + self.rng.range(0..self.plan.scenario.depth) as usize;
            let scenario = &self.plan.scenario;
            if let Some(life) = self.life.as_mut()
                && life.client.waiting() < depth
            {
                sent += 1;
                life.client.send_random(&life.machine, scenario, &mut self.oracle);
                // Each layer has a budget of its own.
                let layers = self.plan.arrays.len() + 1;
                memory_bounded::running(&life.machine, (layers * life.client.waiting()) << 20);
                if self.rng.range(0..1000) < self.plan.scenario.faults {
                    self.something_happens()?;
                }
                if self.settings_rng.range(0..1000) < self.plan.scenario.changes {
                    self.settings_change()?;
                }
            }
            self.step()?;
        }
        if self.rng.percent(50) { self.drain() } else { Ok(()) }
    }

    fn something_happens(&mut self) -> Result<(), Over> {
        if self.mishaps.chance(30) {
            return self.mishap_under_load();
        }
        if self.plan.scenario.bitmap_changes && self.rng.percent(20) {
            return self.change_a_bitmap();
        }
        match self.rng.range(0..20) {
            0..9 => self.a_leaf_fails(),
            9..11 => self.an_array_fails(),
            11..15 => self.mend_something(),
            15..17 => self.start_a_scrub(),
            _ => self.a_spare_fails(),
        }
    }

    fn some_array(&self) -> usize {
        self.rng.below(self.plan.arrays.len())
    }

    fn a_leaf_fails(&mut self) -> Result<(), Over> {
        let members = self.world.members.borrow().clone();
        let works = |m: &Rc<Member>| m.slot.get().is_some() && !m.out.get() && !m.is_weak();
        let working: Vec<Rc<Member>> = members.iter().filter(|m| works(m)).cloned().collect();
        if working.is_empty() {
            return Ok(());
        }
        let leaf = Rc::clone(self.rng.pick(&working));
        if !self.may_lose(Held::Leaf(leaf.kind.index))? {
            return Ok(());
        }
        self.faults += 1;
        let plan = &self.plan.arrays[leaf.kind.array].create;
        let (has_log, has_bitmap) = (plan.bad_block_log, plan.bitmap != CreateBitmap::None);
        let name = leaf.name().to_string();
        match self.rng.range(0..10) {
            0..3 => {
                self.world.trace(|| format!("{name} is gone"));
                leaf.set_gone(true);
                if has_bitmap && self.rng.percent(50) {
                    // What it had not made durable is lost, though the others go on.
                    leaf.power_cut(&self.world.rng, Vec::new());
                }
                leaf.out.set(true);
            }
            3..6 if has_log && self.rng.percent(60) => self.blocks_go_bad(&leaf),
            3..6 => {
                let writes = self.rng.log_range(1..40) as u32;
                self.world.trace(|| format!("{name} will fail a write in {writes}"));
                leaf.fail_write_in(Some(writes));
            }
            6..8 => {
                let (first, count) = (self.some_block(&leaf), self.rng.log_range(1..17));
                self.world.trace(|| format!("{name} cannot read {count} blocks at {first}"));
                leaf.make_unreadable(first, count);
            }
            _ if self.redundant(leaf.kind.array) => {
                self.world.trace(|| format!("fail {name}"));
                if self.command_fail(leaf.kind.array, name)? {
                    leaf.out.set(true);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A component byte, most often where most requests go.
    fn some_block(&self, leaf: &Member) -> u64 {
        let data = leaf.data.borrow().clone();
        let blocks = ((data.end - data.start) / leaf.kind.tear).max(1);
        let hot = (self.plan.scenario.hot / leaf.kind.tear).clamp(1, blocks);
        let room = if self.rng.percent(70) { hot } else { blocks };
        self.rng.range(0..room) * leaf.kind.tear
    }

    fn blocks_go_bad(&mut self, leaf: &Member) {
        let unreadable = self.rng.percent(40);
        for _ in 0..self.rng.log_range(1..8) {
            let (first, count) = (self.some_block(leaf), self.rng.log_range(1..40));
            let name = leaf.name();
            self.world.trace(|| format!("{name} takes no write of {count} blocks at {first}"));
            leaf.make_defective(first, count, unreadable);
        }
    }

    pub(super) fn command_fail(&mut self, nr: usize, name: String) -> Result<bool, Over> {
        let Some(control) = self.control(nr) else { return Ok(false) };
        let selector = MemberSelector::Name(name.clone());
        let later =
            self.life()?.machine.begin(async move { control.membership().fail(&selector).await });
        match self.wait("the command to fail a member", &later)? {
            Err(ControlError::NotRecorded { .. }) => {
                // The array has given it up, and does not go back on that.
                let members = self.world.members.borrow().clone();
                members.iter().filter(|m| m.name() == name).for_each(|m| m.out.set(true));
                self.wait_until_recorded(&name, Some(MemberState::Faulty), |run| run.status(nr))?;
                Ok(true)
            }
            failed => Ok(failed.is_ok()),
        }
    }

    /// An array is failed in the one above it, or stopped under it.
    fn an_array_fails(&mut self) -> Result<(), Over> {
        let nr = self.some_array();
        let Some(above) = self.plan.arrays[nr].above.filter(|above| self.redundant(*above)) else {
            return Ok(());
        };
        if !self.may_lose(Held::Array(nr))? {
            return Ok(());
        }
        self.faults += 1;
        if self.rng.percent(50) {
            self.world.trace(|| format!("fail array:a{nr}"));
            self.command_fail(above, member_name(nr))?;
            return Ok(());
        }
        self.world.trace(|| format!("stop a{nr} below a{above}"));
        self.stop_one(nr)?;
        self.life()?.arrays[nr] = None;
        Ok(())
    }

    fn a_spare_fails(&mut self) -> Result<(), Over> {
        let members = self.world.members.borrow().clone();
        let fits = |m: &Rc<Member>| !m.in_sync.get() && !m.out.get() && !m.is_gone();
        let spares: Vec<Rc<Member>> = members.iter().filter(|m| fits(m)).cloned().collect();
        if spares.is_empty() || self.rng.percent(50) {
            return Ok(());
        }
        self.faults += 1;
        let spare = Rc::clone(self.rng.pick(&spares));
        self.world.trace(|| format!("{} is gone, a spare or being rebuilt", spare.name()));
        spare.set_gone(true);
        spare.out.set(true);
        Ok(())
    }

    fn start_a_scrub(&mut self) -> Result<(), Over> {
        let (nr, repair) = (self.some_array(), self.rng.percent(50));
        if let Some(control) = self.control(nr) {
            self.world.trace(|| format!("{} a{nr}", if repair { "repair" } else { "check" }));
            // Refused while another job runs, or without redundancy.
            let _ =
                if repair { control.jobs().start_repair() } else { control.jobs().start_check() };
        }
        Ok(())
    }

    fn change_a_bitmap(&mut self) -> Result<(), Over> {
        let nr = self.some_array();
        let Some(status) = self.status(nr)?.filter(|_| self.redundant(nr)) else { return Ok(()) };
        let Some(control) = self.control(nr) else { return Ok(()) };
        let (adds, chunk) = (status.bitmap.is_none(), *self.rng.pick(&[4096, 16 << 10, 1 << 20]));
        self.world.trace(|| format!("{} a bitmap: a{nr}", if adds { "add" } else { "remove" }));
        let later = self.life()?.machine.begin(async move {
            match adds {
                true => control.bitmap().add(Some(chunk)).await.map(drop),
                false => control.bitmap().remove().await,
            }
        });
        if self.rng.percent(40) {
            return Ok(());
        }
        match self.wait("the command to change a bitmap", &later)? {
            Ok(()) => self.bitmap_changes += 1,
            // No room, a resync that goes on, a member that is about to fail.
            Err(ControlError::Bitmap { .. } | ControlError::Io { .. }) => {}
            // One that has lost too much already, within what the one above it survives.
            Err(_) if !self.counts_now(nr)? => {}
            Err(error) => return self.fail("requests_succeed", error.to_string()),
        }
        Ok(())
    }

    fn settings_change(&mut self) -> Result<(), Over> {
        let nr = self.settings_rng.below(self.plan.arrays.len());
        let Some(control) = self.control(nr) else { return Ok(()) };
        let (create, scenario) = (&self.plan.arrays[nr].create, &self.plan.scenario);
        let chunk = create.chunk_size.unwrap_or(0);
        let (rng, level) = (&self.settings_rng, create.level);
        let settings = settings::draw(rng, level, chunk, scenario.block, scenario.shards);
        self.world.trace(|| format!("a{nr}: set {settings:?}"));
        // Units change hands somewhere within the command.
        self.world.moving.set(true);
        let later = self.life()?.machine.begin(async move {
            let _ = control.set(settings).await;
            control.settings()
        });
        let now = self.wait("the command to change settings", &later)?;
        self.world.moving.set(false);
        self.world.owners.borrow_mut().clear();
        self.plan.arrays[nr].assemble.settings = now;
        Ok(())
    }

    pub(super) fn counts_now(&mut self, nr: usize) -> Result<bool, Over> {
        let statuses = self.statuses()?;
        Ok(self.counting(&statuses, None, When::Now)[nr])
    }

    // --- Members that come ---------------------------------------------------------------------

    /// Gives some array a member for a slot that has none.
    pub(super) fn mend_something(&mut self) -> Result<(), Over> {
        let nr = self.some_array();
        self.mend(nr)
    }

    /// Removes a faulty member of array `nr`, if there is one, and adds one that is not in it.
    pub(super) fn mend(&mut self, nr: usize) -> Result<(), Over> {
        let Some(status) = self.status(nr)?.filter(|_| self.redundant(nr)) else { return Ok(()) };
        if !self.counts_now(nr)? {
            return Ok(());
        }
        let faulty = status.members.iter().find(|member| member.state == MemberState::Faulty);
        if let (Some(faulty), Some(control)) = (faulty, self.control(nr)) {
            self.world.trace(|| format!("a{nr}: remove {}", faulty.name));
            let selector = MemberSelector::Nr(faulty.nr);
            let later = self
                .life()?
                .machine
                .begin(async move { control.membership().remove(&selector).await });
            match self.wait("the command to remove a member", &later)? {
                Ok(()) => {}
                Err(ControlError::NotRecorded { .. }) => {
                    self.wait_until_recorded(&faulty.name, None, |run| run.status(nr))?;
                }
                Err(error) => return self.fail("requests_succeed", error.to_string()),
            }
        }
        let Some(status) = self.status(nr)? else { return Ok(()) };
        match self.plan.arrays[nr].below.clone() {
            Below::Leaves(leaves) => self.add_a_leaf(nr, &leaves, &status),
            Below::Arrays(arrays) => self.add_an_array(nr, &arrays, &status),
        }
    }

    fn add_a_leaf(
        &mut self,
        nr: usize,
        leaves: &[usize],
        status: &ArrayStatus,
    ) -> Result<(), Over> {
        let known = |leaf: &Member| status.members.iter().any(|m| m.name == leaf.name());
        let free = leaves.iter().map(|index| self.world.member(*index)).find(|leaf| !known(leaf));
        let Some(leaf) = free else { return Ok(()) };
        leaf.set_gone(false);
        self.wake_leaves_of(nr)?;
        leaf.heal();
        leaf.slot.set(None);
        leaf.in_sync.set(false);
        leaf.out.set(false);
        let opener = SimOpener::of(&self.world, leaf.kind.index);
        if status.bitmap.is_some() && self.rng.percent(75) {
            leaf.trust();
            if self.re_add(nr, Arc::clone(&opener))? {
                return Ok(());
            }
        }
        leaf.mark_stale();
        self.add(nr, opener)
    }

    /// An array that is not in the one above it: the same with what is there of it, or made anew.
    fn add_an_array(
        &mut self,
        nr: usize,
        arrays: &[usize],
        status: &ArrayStatus,
    ) -> Result<(), Over> {
        let known = |lower: usize| status.members.iter().any(|m| m.name == member_name(lower));
        let Some(lower) = arrays.iter().copied().find(|lower| !known(*lower)) else {
            return Ok(());
        };
        let as_it_is = self.counts_now(lower)? && self.rng.percent(60);
        if !as_it_is {
            self.make_anew(lower)?;
        }
        let Some(array) = self.life()?.arrays[lower].clone() else { return Ok(()) };
        let opener: Arc<dyn Opener> = Arc::new(ArrayMember::new(array));
        if as_it_is
            && status.bitmap.is_some()
            && self.rng.percent(50)
            && self.re_add(nr, Arc::clone(&opener))?
        {
            return self.look_around();
        }
        if !self.add_or_not(nr, opener)? {
            // What it has lost for good is where its superblock stands.
            self.make_anew(lower)?;
            let Some(array) = self.life()?.arrays[lower].clone() else { return Ok(()) };
            self.add(nr, Arc::new(ArrayMember::new(array)))?;
        }
        self.look_around()
    }

    /// Array `nr` is created of other devices, and runs.
    fn make_anew(&mut self, nr: usize) -> Result<(), Over> {
        self.world.trace(|| format!("a{nr} is made anew"));
        self.stop_one(nr)?;
        self.life()?.arrays[nr] = None;
        match self.plan.arrays[nr].below.clone() {
            Below::Arrays(below) => below.into_iter().try_for_each(|nr| self.make_anew(nr))?,
            Below::Leaves(leaves) => {
                self.wake_leaves_of(nr)?;
                for index in leaves {
                    let leaf = self.world.member(index);
                    leaf.replace(&self.world.rng);
                }
            }
        }
        self.blank.insert(nr);
        // What it starts with is nobody's: redundancy must be made to match.
        self.plan.arrays[nr].create.assume_clean = false;
        self.synced[nr] = false;
        let life = self.life.as_ref().ok_or(Over)?;
        let later = life.machine.begin(self.create_one(&life.machine, &life.arrays, nr));
        if let Err(error) = self.wait("create", &later)? {
            return self.fail("assembles", format!("create: {error}"));
        }
        let life = self.life.as_ref().ok_or(Over)?;
        let later: Later<_> =
            life.machine.begin(self.assemble_one(&life.machine, &life.arrays, nr));
        match self.wait("assemble", &later)? {
            Ok(array) => self.life()?.arrays[nr] = Some(array),
            Err(error) => return self.fail("assembles", format!("a{nr}: {error}")),
        }
        if let Below::Leaves(leaves) = &self.plan.arrays[nr].below {
            let leaves = leaves.iter().map(|index| self.world.member(*index));
            for spare in leaves.filter(|leaf| leaf.slot.get().is_none()) {
                spare.mark_stale();
            }
        }
        self.world.owners.borrow_mut().clear();
        Ok(())
    }

    fn add(&mut self, nr: usize, opener: Arc<dyn Opener>) -> Result<(), Over> {
        match self.add_or_not(nr, opener)? {
            true => Ok(()),
            false => self.fail("requests_succeed", format!("a{nr}: a member gives no superblock")),
        }
    }

    /// False when nothing can be read where its superblock would stand.
    fn add_or_not(&mut self, nr: usize, opener: Arc<dyn Opener>) -> Result<bool, Over> {
        let Some(control) = self.control(nr) else { return Ok(true) };
        let name = opener.name().to_string();
        self.world.trace(|| format!("a{nr}: add {name}"));
        let later =
            self.life()?.machine.begin(async move { control.membership().add(opener, true).await });
        match self.wait("the command to add a member", &later)? {
            Ok(_) => {
                self.blank.retain(|nr| member_name(*nr) != name);
                Ok(true)
            }
            // It may have been given up, and not have ended what it was asked before.
            Err(ControlError::Unfit { .. } | ControlError::UnderWay { .. }) => Ok(true),
            Err(ControlError::Examine { source: ExamineError::Read { .. }, .. }) => Ok(false),
            Err(error) => self.fail("requests_succeed", error.to_string()),
        }
    }

    /// False when it was refused: the bitmap does not say what it lacks.
    fn re_add(&mut self, nr: usize, opener: Arc<dyn Opener>) -> Result<bool, Over> {
        let Some(control) = self.control(nr) else { return Ok(true) };
        self.world.trace(|| format!("a{nr}: re-add {}", opener.name()));
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
            Err(error) => self.fail("requests_succeed", error.to_string()),
        }
    }
}
