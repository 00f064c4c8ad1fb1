//! Members that come: those that are faulty are removed, leaves are added or taken back by the bitmap, and arrays that an
//! array above is without are given to it as they are, or made anew.

use super::Run;
use super::plan::Below;
use super::standing::member_name;
use crate::device::SimOpener;
use crate::images;
use crate::machine::Step;
use crate::member::Member;
use crate::waiting::Over;
use braid_array::error::{ControlError, ExamineError};
use braid_array::options::MemberSelector;
use braid_array::stacking::ArrayMember;
use braid_array::status::{ArrayStatus, MemberState};
use braid_device::Opener;
use braid_format::superblock::{Role, Superblock};
use std::rc::Rc;
use std::sync::Arc;

/// Members that answer again have ended what they were asked after so many steps.
const ANSWERED: usize = 10_000;

impl Run {
    /// Between two rounds: where a single array has a bitmap a member that was away is often back soon.
    pub(super) fn mend_between_rounds(&mut self) -> Result<(), Over> {
        let (nr, odds) = (self.top(), self.plan.odds.mended_between_rounds);
        if !self.plan.is_alone() {
            return if self.rng.percent(odds) { self.mend_something() } else { Ok(()) };
        }
        let wanted = self.plan.arrays[nr].has_bitmap() && self.rng.percent(odds);
        if wanted && self.top_status()?.degraded > 0 { self.mend(nr) } else { Ok(()) }
    }

    /// Gives some array a member for a slot that has none.
    pub(super) fn mend_something(&mut self) -> Result<(), Over> {
        let nr = self.some_array(&self.rng);
        self.mend(nr)
    }

    /// Removes a faulty member of array `nr`, if there is one, and adds one that is not in it.
    pub(super) fn mend(&mut self, nr: usize) -> Result<(), Over> {
        if self.plan.is_alone() && (!self.redundant(nr) || self.promises.excused) {
            return Ok(());
        }
        self.oracle.end_steady();
        let Some(status) = self.status(nr)?.filter(|_| self.redundant(nr)) else { return Ok(()) };
        if !self.plan.is_alone() && !self.counts_now(nr)? {
            return Ok(());
        }
        self.remove_faulty(nr, &status)?;
        let Some(status) = self.status(nr)? else { return Ok(()) };
        match self.plan.arrays[nr].below.clone() {
            Below::Arrays(arrays) => self.add_an_array(nr, &arrays, &status),
            Below::Leaves(_) => {
                let Some(leaf) = self.free_leaf(nr, &status, None) else { return Ok(()) };
                let stays_away = self.plan.odds.stays_away;
                if stays_away > 0 && leaf.is_gone() && self.rng.percent(stays_away) {
                    return Ok(());
                }
                self.bring(&leaf, &status)
            }
        }
    }

    /// Removes a member that is faulty, if there is one.
    pub(super) fn remove_faulty(&mut self, nr: usize, status: &ArrayStatus) -> Result<(), Over> {
        let faulty = status.members.iter().find(|member| member.state == MemberState::Faulty);
        let (Some(faulty), Some(control)) = (faulty, self.control(nr)?) else { return Ok(()) };
        let a = self.a(nr);
        self.world.trace(|| format!("{a}remove {}", faulty.name));
        let selector = MemberSelector::Nr(faulty.nr);
        let later = self
            .life()?
            .machine
            .begin(async move { control.membership().remove_as(&selector, false).await });
        match self.wait("the command to remove a member", &later)? {
            Ok(unmarked) => self.has_retired(&faulty.name, unmarked),
            Err(ControlError::NotRecorded { .. }) => {
                self.wait_until_recorded(nr, &faulty.name, None)
            }
            Err(error) if !self.promises.excused => {
                self.fail("requests_succeed", error.to_string())
            }
            Err(_) => Ok(()),
        }
    }

    /// A faulty member has been removed: its own superblock does not say any more that it holds its slot, unless the command
    /// has given the reason why it could not be written.
    pub(super) fn has_retired(&mut self, name: &str, unmarked: Option<String>) -> Result<(), Over> {
        if unmarked.is_some() {
            return Ok(());
        }
        let leaf = self.world.members.borrow().iter().find(|leaf| leaf.name() == name).cloned();
        let Some(leaf) = leaf else { return Ok(()) };
        let holds_its_slot = |sb: &Superblock| {
            let marked = !sb.version.has_recovery_offset() || sb.recovery_offset.is_some();
            matches!(sb.own_role(), Role::Slot(_)) && !marked
        };
        if images::superblock_alone(&self.world, &leaf).is_some_and(|sb| holds_its_slot(&sb)) {
            let text =
                format!("{name} was removed, and its superblock says that it holds its slot");
            return self.fail("retired_are_marked", text);
        }
        Ok(())
    }

    /// A leaf that is meant for array `nr` and not in it, other than `except`.
    pub(super) fn free_leaf(
        &self,
        nr: usize,
        status: &ArrayStatus,
        except: Option<&Rc<Member>>,
    ) -> Option<Rc<Member>> {
        let leaves = self.leaves_of(nr);
        // A member with larger blocks than the array's present members have is refused.
        let least = leaves.iter().map(|leaf| leaf.kind.info.logical_block).min();
        let free = leaves.iter().find(|leaf| {
            Some(leaf.kind.info.logical_block) == least
                && status.members.iter().all(|known| known.name != leaf.name())
                && except.is_none_or(|except| !Rc::ptr_eq(except, leaf))
        });
        free.cloned()
    }

    /// The members that are meant for array `nr`; none for an array of arrays.
    pub(super) fn leaves_of(&self, nr: usize) -> Vec<Rc<Member>> {
        match &self.plan.arrays[nr].below {
            Below::Leaves(leaves) => leaves.iter().map(|index| self.world.member(*index)).collect(),
            Below::Arrays(_) => Vec::new(),
        }
    }

    /// Adds a leaf that is not in its array, or has it taken back by the bitmap.
    pub(super) fn bring(&mut self, leaf: &Rc<Member>, status: &ArrayStatus) -> Result<(), Over> {
        let nr = leaf.kind.array;
        self.left_out_no_more(leaf);
        leaf.set_gone(false);
        if self.plan.is_alone() {
            self.wake(std::slice::from_ref(leaf))?;
        } else {
            self.wake_leaves_of(nr)?;
        }
        leaf.heal();
        if self.mishaps.chance(self.plan.odds.was_without_power) {
            // It was away, and its cache with it.
            leaf.lose_power(&self.world.rng);
        }
        leaf.slot.set(None);
        leaf.in_sync.set(false);
        leaf.out.set(false);
        let opener = SimOpener::of(&self.world, leaf.kind.index);
        // A single array is asked also when somebody has removed its bitmap meanwhile.
        let has_bitmap = match self.plan.is_alone() {
            true => self.plan.arrays[nr].has_bitmap(),
            false => status.bitmap.is_some(),
        };
        if has_bitmap && self.rng.percent(75) {
            leaf.trust();
            if self.re_add(nr, Arc::clone(&opener))? {
                return Ok(());
            }
        }
        leaf.mark_stale();
        self.add(nr, opener)
    }

    /// Leaves of array `nr` that hang answer, and have ended what they were asked.
    pub(super) fn wake_leaves_of(&mut self, nr: usize) -> Result<(), Over> {
        self.wake(&self.leaves_of(nr))
    }

    /// When one of these hangs all that hang answer, and these have ended what they were asked.
    fn wake(&mut self, leaves: &[Rc<Member>]) -> Result<(), Over> {
        if !leaves.iter().any(|leaf| leaf.hung.get()) {
            return Ok(());
        }
        self.world.wake_hung();
        // Work that goes on meanwhile submits more to the leaves in use.
        for _ in 0..ANSWERED {
            let owed = leaves.iter().any(|leaf| self.world.owed_by(leaf) > 0);
            if !owed || self.step()? == Step::Stuck {
                break;
            }
        }
        Ok(())
    }

    // --- Arrays of stacks ----------------------------------------------------------------------

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
            Below::Leaves(_) => {
                self.wake_leaves_of(nr)?;
                self.leaves_of(nr).iter().for_each(|leaf| leaf.replace(&self.world.rng));
            }
        }
        self.standing.blank.insert(nr);
        // What it starts with is nobody's: redundancy must be made to match.
        self.plan.arrays[nr].create.assume_clean = false;
        self.standing.synced[nr] = false;
        let life = self.life.as_ref().ok_or(Over)?;
        let later = life.machine.begin(self.create_one(&life.machine, &life.arrays, nr));
        if let Err(error) = self.wait("create", &later)? {
            return self.fail("assembles", format!("create: {error}"));
        }
        let life = self.life.as_ref().ok_or(Over)?;
        let later = life.machine.begin(self.assemble_one(&life.machine, &life.arrays, nr));
        match self.wait("assemble", &later)? {
            Ok(array) => self.life()?.arrays[nr] = Some(array),
            Err(error) => return self.fail("assembles", format!("a{nr}: {error}")),
        }
        self.spares_are_stale(nr);
        self.world.owners.borrow_mut().clear();
        Ok(())
    }

    // --- Commands ------------------------------------------------------------------------------

    fn add(&mut self, nr: usize, opener: Arc<dyn Opener>) -> Result<(), Over> {
        if self.add_or_not(nr, opener)? || self.promises.excused {
            return Ok(());
        }
        let text = format!("{}a member gives no superblock", self.a(nr));
        self.fail("requests_succeed", text)
    }

    /// False when nothing can be read where its superblock would stand.
    fn add_or_not(&mut self, nr: usize, opener: Arc<dyn Opener>) -> Result<bool, Over> {
        let Some(control) = self.control(nr)? else { return Ok(true) };
        let (a, name) = (self.a(nr), opener.name().to_string());
        self.world.trace(|| format!("{a}add {name}"));
        let later =
            self.life()?.machine.begin(async move { control.membership().add(opener, true).await });
        match self.wait("the command to add a member", &later)? {
            Ok(_) => {
                self.standing.blank.retain(|nr| member_name(*nr) != name);
                Ok(true)
            }
            // Too small for where data starts on the members that are left; or it was given up and has not ended what it
            // was asked before.
            Err(ControlError::Unfit { .. } | ControlError::UnderWay { .. }) => Ok(true),
            Err(ControlError::Examine { source: ExamineError::Read { .. }, .. }) => Ok(false),
            Err(_) if self.promises.excused => Ok(true),
            Err(error) => self.fail("requests_succeed", error.to_string()),
        }
    }

    /// Asks for a member to be taken back by the bitmap. False when it was refused: the bitmap does not say what it lacks.
    fn re_add(&mut self, nr: usize, opener: Arc<dyn Opener>) -> Result<bool, Over> {
        let Some(control) = self.control(nr)? else { return Ok(true) };
        let (a, name) = (self.a(nr), opener.name().to_string());
        self.world.trace(|| format!("{a}re-add {name}"));
        let later =
            self.life()?.machine.begin(async move { control.membership().re_add(opener).await });
        match self.wait("the command to re-add a member", &later)? {
            Ok(_) => {
                self.did.re_added += 1;
                Ok(true)
            }
            Err(ControlError::CannotReAdd { why, .. }) => {
                self.world.trace(|| format!("not re-added: {why}"));
                Ok(false)
            }
            Err(ControlError::Unfit { .. } | ControlError::UnderWay { .. }) => Ok(false),
            // It has lost what it said was durable, and has the superblock of an earlier array again.
            Err(ControlError::OtherArray { .. }) if self.plan.scenario.lies => Ok(false),
            Err(_) if self.promises.excused => Ok(true),
            Err(error) => self.fail("requests_succeed", error.to_string()),
        }
    }
}
