//! Which arrays count, and what they can still lose.
//!
//! A member that is gone, out, stale, being rebuilt, with unreadable blocks or about to fail a write counts as lost as a
//! whole. Within what its level survives no request to a single array may fail; scenarios that go beyond it say so, and
//! then errors are right and wrong data is not.
//!
//! What is promised of a stack is what its arrays promise by themselves, so faults keep to this:
//! - An array *counts* as long as its level survives what is lost or weak below it. The top always counts.
//! - An array with parity that has lost something refuses to start after a crash, or with a resync that had not
//!   ended (nothing forces it here), so then it does not count; crashes and stops come only when the top does. Nor do they come when such
//!   an array would compute, from parity that may not match, blocks that it cannot read.
//! - Until an array's redundancy has been made to match, what it gives may turn from one version into
//!   another when a member fails. An array above that keeps redundancy would not know; so nothing is made
//!   to fail there until then.

use super::Run;
use super::plan::Below;
use super::standing::{Held, member_name};
use crate::member::Member;
use crate::waiting::Over;
use braid_array::status::{ArrayState, ArrayStatus, MemberState};
use std::rc::Rc;

/// When it is that arrays count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Now,
    AfterStop,
    AfterCrash,
}

impl When {
    /// The array's redundancy may not match then.
    fn finds_dirty(self, status: &ArrayStatus) -> bool {
        match self {
            When::Now => false,
            When::AfterStop => status.resynced.is_some(),
            When::AfterCrash => true,
        }
    }
}

/// The slot of the member of this name that the array itself says is in sync. Until its recovery has ended the shards need
/// not know yet.
pub(super) fn in_sync(status: &ArrayStatus, name: &str) -> Option<usize> {
    let known = status.members.iter().find(|known| known.name == name)?;
    let filled = status.job.as_ref().is_some_and(|job| job.member == Some(known.nr));
    (known.state == MemberState::InSync && !filled).then_some(known.slot).flatten()
}

/// The slot of a member in sync by the images, when nothing runs.
pub(super) fn in_sync_at_rest(member: &Member) -> Option<usize> {
    // One that another has replaced may still say of itself that it is.
    member.slot.get().filter(|_| member.in_sync.get() && !member.dropped.get())
}

impl Run {
    /// Notes what each array's redundancy has come to, and where arrays stand in those above them.
    pub(super) fn look_around(&mut self) -> Result<(), Over> {
        let statuses = self.statuses()?;
        let mut matches = false;
        for (nr, status) in statuses.iter().enumerate() {
            let Some(status) = status else { continue };
            matches = status.resynced.is_none() && status.degraded == 0;
            self.standing.synced[nr] |= matches;
            let Below::Arrays(below) = &self.plan.arrays[nr].below else { continue };
            for lower in below {
                let name = member_name(*lower);
                let member = status.members.iter().find(|member| member.name == name);
                let above = member.and_then(|m| Some((nr, m.slot?, m.data_offset)));
                self.links.borrow_mut().0[*lower].above = above;
            }
        }
        if self.plan.is_alone() {
            if matches && !self.promises.forced {
                self.redundancy_holds();
            }
            return Ok(());
        }
        let synced = |nr: usize| self.standing.synced[nr] || !self.redundant(nr);
        if (0..self.plan.arrays.len()).all(synced) {
            self.oracle.settle();
        }
        Ok(())
    }

    /// Redundancy of a single array matches data everywhere from now on.
    pub(super) fn redundancy_holds(&mut self) {
        self.world.trace(|| "redundancy holds".to_string());
        self.promises.redundancy_holds(&mut self.oracle);
    }

    // --- A single array ------------------------------------------------------------------------

    /// A single array goes on without `without` beside everything that is lost or weak already. `whole` gives the slot of
    /// a member that is wholly in sync.
    pub(super) fn survives(
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
        self.redundant(self.top()) && self.layout(self.top()).survives(sound)
    }

    /// [`Run::survives`], by what the array says.
    pub(super) fn survives_now(&self, status: &ArrayStatus, without: &Member) -> bool {
        let about_to_change = self.about_to_change(status, without);
        let sound = |slot: &usize| !about_to_change.contains(slot);
        self.survives(without, |member| in_sync(status, member.name()).filter(sound))
    }

    /// Slots that may soon have been given to this member, or to one that is weak: it is or may become their replacement.
    fn about_to_change(&self, status: &ArrayStatus, without: &Member) -> Vec<usize> {
        let members = self.world.members.borrow();
        let lacking = |name: &str| {
            let known = members.iter().find(|member| member.name() == name);
            known.is_none_or(|m| m.kind.index == without.kind.index || m.out.get() || m.is_weak())
        };
        let lacking: Vec<_> = status.members.iter().filter(|m| lacking(&m.name)).collect();
        let replacing = lacking.iter().filter_map(|member| match member.state {
            MemberState::Replacing { .. } => member.slot,
            _ => None,
        });
        let spare = lacking.iter().any(|member| member.state == MemberState::Spare);
        let wanting = status.members.iter().filter(|member| spare && member.want_replacement);
        replacing.chain(wanting.filter_map(|member| member.slot)).collect()
    }

    // --- Any run -------------------------------------------------------------------------------

    /// What a single array says of its members, asked before one of them is chosen. A stack is asked when one has been.
    pub(super) fn ask_first(&mut self) -> Result<Option<ArrayStatus>, Over> {
        if self.plan.is_alone() { self.top_status().map(Some) } else { Ok(None) }
    }

    /// Nothing is asked of the arrays that they do not promise when this leaf is lost or weak; `asked` as
    /// [`Run::ask_first`] gave it.
    pub(super) fn may_lose_leaf(
        &mut self,
        leaf: &Member,
        asked: &Option<ArrayStatus>,
    ) -> Result<bool, Over> {
        match asked {
            Some(status) => Ok(self.survives_now(status, leaf)),
            None => self.may_lose(Held::Leaf(leaf.kind.index)),
        }
    }

    // --- Stacks --------------------------------------------------------------------------------

    /// Which arrays count, without `without`: now, or at the next start.
    pub(super) fn counting(
        &self,
        statuses: &[Option<ArrayStatus>],
        without: Option<Held>,
        when: When,
    ) -> Vec<bool> {
        let mut counts = Vec::new();
        for (nr, plan) in self.plan.arrays.iter().enumerate() {
            let Some(status) = &statuses[nr] else {
                counts.push(false);
                continue;
            };
            let layout = self.layout(nr);
            let sound = |held: Held, name: &str| {
                let fit = match held {
                    Held::Leaf(index) => {
                        let leaf = self.world.member(index);
                        !leaf.out.get() && !leaf.is_weak()
                    }
                    Held::Array(lower) => counts.get(lower).copied().unwrap_or(false),
                };
                in_sync(status, name).filter(|_| fit && Some(held) != without)
            };
            let slots: Vec<usize> = match &plan.below {
                Below::Leaves(leaves) => leaves
                    .iter()
                    .filter_map(|index| sound(Held::Leaf(*index), self.world.member(*index).name()))
                    .collect(),
                Below::Arrays(arrays) => arrays
                    .iter()
                    .filter_map(|nr| sound(Held::Array(*nr), &member_name(*nr)))
                    .collect(),
            };
            let whole = slots.len() == layout.slots();
            // One that has lost too much stays so until it is started again, whatever was rebuilt meanwhile.
            let failed = status.state.contains(&ArrayState::Failed) && when == When::Now;
            let survives = !failed && layout.survives(|slot| slots.contains(&slot));
            let refuses = when.finds_dirty(status) && plan.create.level.is_parity();
            counts.push(survives && (whole || !refuses));
        }
        counts
    }

    /// Some array with parity would start although it may not match, and compute from it what a leaf below
    /// does not give, or what its own log lists as bad although it was written meanwhile (a log is cleared
    /// some time after the write, as in md): the write hole.
    pub(super) fn has_hole(&self, statuses: &[Option<ArrayStatus>], when: When) -> bool {
        let members = self.world.members.borrow();
        members.iter().filter(|leaf| !leaf.out.get()).any(|leaf| {
            [leaf.kind.array].into_iter().chain(self.above(leaf.kind.array)).any(|nr| {
                let create = &self.plan.arrays[nr].create;
                let dirty = statuses[nr].as_ref().is_some_and(|status| when.finds_dirty(status));
                let bad = leaf.was_bad.get() || leaf.has_failed_a_write.get();
                let listed = bad && create.bad_block_log;
                dirty && create.level.is_parity() && (leaf.is_weak() || listed)
            })
        })
    }

    /// Some array of arrays above `what` may have listed blocks of another of its members as bad, since a leaf there did not
    /// give or take them: for those `what` may be all that is left.
    pub(super) fn may_be_listed_elsewhere(&self, what: Held) -> bool {
        let (mut through, mut above) = match what {
            Held::Leaf(index) => {
                let nr = self.world.member(index).kind.array;
                (nr, self.plan.arrays[nr].above)
            }
            Held::Array(nr) => (nr, self.plan.arrays[nr].above),
        };
        while let Some(nr) = above {
            let members = self.world.members.borrow();
            let bad = |leaf: &Member| leaf.was_bad.get() || leaf.has_failed_a_write.get();
            let is_below = |leaf: &Member, array: usize| {
                leaf.kind.array == array || self.above(leaf.kind.array).any(|nr| nr == array)
            };
            let mut others =
                members.iter().filter(|leaf| is_below(leaf, nr) && !is_below(leaf, through));
            if self.plan.arrays[nr].create.bad_block_log && others.any(|leaf| bad(leaf)) {
                return true;
            }
            (through, above) = (nr, self.plan.arrays[nr].above);
        }
        false
    }

    pub(super) fn counts_now(&mut self, nr: usize) -> Result<bool, Over> {
        let statuses = self.statuses()?;
        Ok(self.counting(&statuses, None, When::Now)[nr])
    }

    /// Nothing is asked of the stack that it does not promise when `what` is lost or weak.
    pub(super) fn may_lose(&mut self, what: Held) -> Result<bool, Over> {
        self.look_around()?;
        let statuses = self.statuses()?;
        let counts = self.counting(&statuses, Some(what), When::Now);
        if !counts[self.top()] || self.may_be_listed_elsewhere(what) {
            return Ok(false);
        }
        let mut hit = match what {
            Held::Leaf(index) => Some(self.world.member(index).kind.array),
            Held::Array(nr) => self.plan.arrays[nr].above,
        };
        while let Some(nr) = hit {
            let parity = self.plan.arrays[nr].create.level.is_parity();
            let redundancy_above = self.above(nr).any(|above| self.redundant(above));
            let unsynced = self.redundant(nr) && !self.standing.synced[nr];
            if unsynced && (parity || redundancy_above) {
                return Ok(false);
            }
            hit = if counts[nr] { None } else { self.plan.arrays[nr].above };
        }
        Ok(true)
    }

    /// Has leaves answer that hang and that some array of a stack cannot do without: it waits for them for as long as they
    /// do. True when there were any.
    pub(super) fn wake_the_needed(&mut self) -> Result<bool, Over> {
        if self.plan.is_alone() {
            return Ok(false);
        }
        let statuses = self.statuses()?;
        let members = self.world.members.borrow().clone();
        let needed = |leaf: &&Rc<Member>| {
            let counts = self.counting(&statuses, Some(Held::Leaf(leaf.kind.index)), When::Now);
            leaf.hung.get() && !counts[leaf.kind.array]
        };
        let needed = members.iter().find(needed).map(|leaf| leaf.kind.array);
        if let Some(nr) = needed {
            self.wake_leaves_of(nr)?;
        }
        Ok(needed.is_some())
    }
}
