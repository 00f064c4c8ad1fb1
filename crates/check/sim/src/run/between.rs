//! What lies between two lives: the images say who holds which slot, members come back, and go.

use super::Run;
use super::counting::{When, in_sync_at_rest};
use super::rest::AtRest;
use super::standing::{Held, Rebuilding, member_name};
use crate::checkers::job_resumes;
use crate::images::{self, Choice};
use crate::member::Member;
use crate::waiting::Over;
use braid_array::status::ArrayStatus;
use std::rc::Rc;

impl Run {
    /// Looks at what is there of a stack, of which these arrays will count, then lets members come back, or go.
    pub(super) fn between_lives_of_a_stack(
        &mut self,
        statuses: &[Option<ArrayStatus>],
        counts: Vec<bool>,
        when: When,
    ) -> Result<(), Over> {
        let rest = AtRest::look(&self.world, &self.plan.arrays, &self.layouts(), &counts);
        if self.world.failure().is_none() {
            rest.copies_hold_acknowledged(&self.world, &self.layouts(), &mut self.oracle);
        }
        self.nobody_holds_a_slot();
        let leaf = |held: Held| match held {
            Held::Leaf(index) => Some(self.world.member(index)),
            Held::Array(_) => None,
        };
        rest.arrays.iter().flatten().for_each(|one| learn(&one.choice, leaf));
        // One is not found any more, where all that counted counts without it.
        let missing = self.one_to_miss(statuses, &counts, when);
        self.some_are_there_again();
        if let Some(leaf) = missing {
            self.is_not_found(&leaf);
        }
        self.standing.expected = counts;
        let named = |choice: &Choice<Held>| -> Rebuilding {
            let name = |held: &Held| match held {
                Held::Leaf(index) => self.world.member(*index).name().to_string(),
                Held::Array(nr) => member_name(*nr),
            };
            let rebuilding = choice.rebuilding.iter();
            rebuilding.map(|(slot, held, at)| (*slot, name(held), *at)).collect()
        };
        self.standing.dirty_degraded =
            (0..rest.arrays.len()).map(|nr| self.is_dirty_and_degraded(&rest, nr)).collect();
        self.standing.rebuilding =
            rest.arrays.iter().map(|one| one.as_ref().map(|one| named(&one.choice))).collect();
        self.goes_on()
    }

    /// A member may have been too slow for a stop, and failed, while a resync had not ended: an array with parity is not
    /// started then unless somebody insists (md: `md_run`, "cannot start dirty degraded array").
    fn is_dirty_and_degraded(&self, rest: &AtRest, nr: usize) -> bool {
        let Some(Some(one)) = rest.arrays.get(nr) else { return false };
        let parity = self.plan.arrays[nr].create.level.is_parity();
        let whole = one.choice.in_sync.len() == self.layout(nr).slots();
        parity && !whole && !one.choice.freshest.is_clean()
    }

    /// Now and then a leaf that a stack can do without.
    fn one_to_miss(
        &self,
        statuses: &[Option<ArrayStatus>],
        counts: &[bool],
        when: When,
    ) -> Option<Rc<Member>> {
        if !self.rng.percent(15) {
            return None;
        }
        let members = self.world.members.borrow();
        let leaf = self.rng.pick(&members);
        let without = Held::Leaf(leaf.kind.index);
        let still = self.counting(statuses, Some(without), when);
        let quiet = self.standing.synced[leaf.kind.array]
            || !self.above(leaf.kind.array).any(|above| self.redundant(above));
        // One of the same array that is older may come back, or is there, and would be all there is of it then: only
        // whoever insists starts that.
        let alone = self.has_older_leaf(leaf.kind.array);
        let last = self.may_be_listed_elsewhere(without);
        (still == counts && quiet && !alone && !last).then(|| Rc::clone(leaf))
    }

    /// Array `nr` has a leaf that may come back, or is there, as it was long ago: were the others gone, it would be all that
    /// there is.
    pub(super) fn has_older_leaf(&self, nr: usize) -> bool {
        let members = self.world.members.borrow();
        let mut own = members.iter().filter(|member| member.kind.array == nr);
        own.any(|member| member.is_gone() || self.takes_itself_for_current(member))
    }

    /// The array has gone on without this member, which does not know.
    fn takes_itself_for_current(&self, member: &Member) -> bool {
        let left = !member.in_sync.get() || member.dropped.get() || member.out.get();
        left && images::superblock(&self.world, member).is_some_and(|sb| {
            sb.recovery_offset.is_none() && sb.role_of(sb.dev_number).slot().is_some()
        })
    }

    /// The same for a single array.
    pub(super) fn between_lives_of_one(&mut self) -> Result<(), Over> {
        self.promises.flushes_fail = false;
        self.world.members.borrow().iter().for_each(|member| member.forgot.set(false));
        self.left_out_are_untouched();
        self.world.missed.borrow_mut().clear();
        self.damage_bitmaps();
        self.metadata_is_there_again();
        self.learn_from_images();
        self.some_are_there_again();
        // A member that is away does not get what is flushed, and without the journal nobody can record that it is away.
        if self.rng.percent(15)
            && !self.promises.journal_fails
            && let Some(member) = self.some_working()
            && self.survives(&member, in_sync_at_rest)
        {
            self.is_not_found(&member);
        }
        // The message of a start without the journal is looked at by itself.
        if !self.promises.journal_fails {
            self.metadata_is_damaged();
        }
        self.goes_on()
    }

    /// Takes from the images which members hold slots: what was sent to them last may be lost.
    pub(super) fn learn_from_images(&self) {
        let members = self.world.members.borrow().clone();
        let choice = images::md_choice(&self.world, &members);
        self.nobody_holds_a_slot();
        if let Some(choice) = choice {
            learn(&choice, Some);
        }
    }

    fn nobody_holds_a_slot(&self) {
        for member in self.world.members.borrow().iter() {
            member.slot.set(None);
            member.in_sync.set(false);
        }
    }

    fn some_are_there_again(&self) {
        for member in self.world.members.borrow().iter() {
            if member.is_gone() && (self.promises.excused || self.rng.percent(50)) {
                self.world.trace(|| format!("{} is there again", member.name()));
                member.set_gone(false);
            }
            member.out.set(member.is_gone() || self.is_unknown(member));
        }
    }

    pub(super) fn is_not_found(&self, member: &Member) {
        self.world.trace(|| format!("{} is not found any more", member.name()));
        member.set_gone(true);
        member.out.set(true);
    }

    /// Arrays of a stack run again: who was being rebuilt goes on being so.
    pub(super) fn jobs_resume(&mut self) -> Result<(), Over> {
        let statuses = self.statuses()?;
        for (rebuilding, status) in self.standing.rebuilding.iter().zip(&statuses) {
            if let (Some(rebuilding), Some(status)) = (rebuilding, status) {
                job_resumes::compare(&self.world, rebuilding, status);
            }
        }
        Ok(())
    }

    /// Now and then bitmaps are damaged, or out of date, when a single array is assembled: one or all.
    fn damage_bitmaps(&self) {
        if !self.plan.arrays[self.top()].has_bitmap() || !self.rng.percent(8) {
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
}

/// Whoever md would start an array with holds its slot.
fn learn<T: Clone>(choice: &Choice<T>, leaf: impl Fn(T) -> Option<Rc<Member>>) {
    for (slot, held) in &choice.in_sync {
        if let Some(leaf) = leaf(held.clone()) {
            leaf.slot.set(Some(*slot));
            leaf.in_sync.set(true);
        }
    }
    for (slot, held, _) in &choice.rebuilding {
        if let Some(leaf) = leaf(held.clone()) {
            leaf.slot.set(Some(*slot));
        }
    }
}
