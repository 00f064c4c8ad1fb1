//! The assembly of a single array, of whatever members are there: what superblocks say before it, what it may have to be
//! forced to, and what follows from it.

use super::Run;
use crate::checkers::{job_resumes, md_can_assemble};
use crate::device::SimOpener;
use crate::images::{self, MdChoice};
use crate::machine::{Machine, Step};
use crate::member::Member;
use crate::waiting::{Over, wait};
use crate::world::World;
use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::error::AssembleError;
use braid_array::options::AssembleOptions;
use std::rc::Rc;
use std::sync::Arc;

impl Run {
    /// Members of array `nr` that can be opened and have a superblock.
    pub(super) fn present(&self, nr: usize) -> Vec<Rc<Member>> {
        let mut leaves = self.leaves_of(nr);
        leaves.retain(|leaf| !leaf.is_gone() && images::superblock(&self.world, leaf).is_some());
        leaves
    }

    /// See the module's documentation.
    pub(super) fn assemble_alone(&mut self) -> Result<(), Over> {
        self.crash_in_assemble()?;
        let mut present = self.present(self.top());
        let choice = self.look_at_images(&present)?;
        let machine = self.next_machine();
        self.damaged_are_given(&machine, &mut present)?;
        let array = self.force_what_must_be(&machine, &mut present, &choice)?;
        self.begin_life(machine, vec![Some(array)])?;
        self.lost_lists_are_named(&present)?;
        let fit = |member: &Rc<Member>| !member.is_weak() && !member.was_bad.get();
        let all_fit = self.world.members.borrow().iter().all(fit);
        if !self.promises.excused && !self.promises.forced && all_fit {
            self.oracle.begin_steady();
        }
        if self.lives > 1 {
            let status = self.top_status()?;
            if self.promises.holes.all_logged && status.resynced.is_some() {
                let text = "it is resynced, and had a log of every write";
                return self.fail("log_saves_resync", text.to_string());
            }
            if !self.promises.excused {
                job_resumes::look(&self.world, &choice, &status);
            }
            if status.resynced.is_none() && status.degraded == 0 && !self.promises.forced {
                self.redundancy_holds();
            }
        }
        Ok(())
    }

    /// Assembles the array, by force where it is dirty and degraded, and without members of long ago where it ran apart.
    pub(super) fn force_what_must_be(
        &mut self,
        machine: &Machine,
        present: &mut Vec<Rc<Member>>,
        choice: &MdChoice,
    ) -> Result<Arc<Array>, Over> {
        let (mut options, mut newer_only) = (self.plan.arrays[self.top()].assemble.clone(), false);
        loop {
            match self.try_assembly(machine, present, &options)? {
                Ok(array) => return Ok(array),
                Err(AssembleError::DirtyDegraded { .. }) if self.promises.holes.all_logged => {
                    let text = "it is dirty and degraded, and has a log of every write";
                    return self.fail("log_saves_force", text.to_string());
                }
                Err(AssembleError::DirtyDegraded { .. }) if !options.force => {
                    options.force = true;
                    let layout = self.layout(self.top());
                    self.promises.force(&layout, self.plan.scenario.block);
                    self.world.trace(|| "dirty and degraded: forced".to_string());
                }
                // Nobody is left of those whom an old member knew: people keep the side that is newer.
                Err(AssembleError::RanApart { .. }) if !newer_only => {
                    newer_only = true;
                    self.world.trace(|| "members of long ago are left out".to_string());
                    present.retain(|member| {
                        images::superblock(&self.world, member)
                            .is_some_and(|sb| sb.events + 1 >= choice.freshest.events)
                    });
                }
                // More is missing than the level survives: refusing is right, and the end.
                Err(_) if self.promises.excused => return Err(Over),
                Err(error) => return self.fail("assembles", error.to_string()),
            }
        }
    }

    /// Carries out one assembly.
    pub(super) fn try_assembly(
        &self,
        machine: &Machine,
        members: &[Rc<Member>],
        options: &AssembleOptions,
    ) -> Result<Result<Arc<Array>, AssembleError>, Over> {
        let openers = members.iter().map(|member| SimOpener::of(&self.world, member.kind.index));
        let openers = openers.chain(self.present_journal()).collect();
        let (context, given) = (machine.context.clone(), options.clone());
        self.world.moving.set(self.is_replayed());
        let later = machine.begin(async move { assemble(&context, openers, given).await });
        let assembled = wait(machine, "an assembly", &later);
        if self.world.moving.replace(false) {
            self.world.owners.borrow_mut().clear();
        }
        assembled
    }

    /// Now and then power fails, or the process ends, while the array is assembled or has just been.
    fn crash_in_assemble(&mut self) -> Result<(), Over> {
        if !self.mishaps.chance(12) {
            return Ok(());
        }
        let steps = self.mishaps.rng.log_range(1..400);
        let mut left = steps;
        self.doomed_assembly(30, |_, machine| {
            left -= 1;
            machine.step() != Step::Stuck && left > 0
        })
    }

    /// The array is assembled, and `goes_on` for as long as that says so. Then power fails, or the process is killed in so
    /// many of 100 runs with mishaps.
    pub(super) fn doomed_assembly(
        &mut self,
        killed_percent: u64,
        mut goes_on: impl FnMut(&World, &Machine) -> bool,
    ) -> Result<(), Over> {
        let present = self.present(self.top());
        // A member that is gone may be rebuilt before the crash: what the write hole has taken with it is taken now.
        self.look_at_images(&present)?;
        let machine = Machine::start(&self.world, self.plan.scenario.shards);
        self.world.moving.set(self.is_replayed());
        let later = machine.begin(self.assemble_one(&machine, &[], self.top()));
        while goes_on(&self.world, &machine) {}
        let killed = self.is_killed(killed_percent);
        self.world.moving.set(false);
        self.world.owners.borrow_mut().clear();
        self.world.trace(|| "CRASH during assembly".to_string());
        if killed {
            self.world.kill()
        } else {
            self.world.power_cut()
        }
        later.borrow_mut().take();
        drop(machine);
        let open = if killed { self.oracle.kill() } else { self.oracle.crash() };
        let layout = self.layout(self.top());
        self.promises.holes.crash(&layout, self.plan.scenario.block, &open);
        self.world.missed.borrow_mut().clear();
        self.learn_from_images();
        self.goes_on()
    }

    // --- Superblocks ---------------------------------------------------------------------------

    /// Superblocks between two lives; also what the write hole takes with the members that are missing.
    pub(super) fn look_at_images(&mut self, present: &[Rc<Member>]) -> Result<MdChoice, Over> {
        let layout = self.layout(self.top());
        let must_start = !self.promises.excused;
        let choice = md_can_assemble::look(&self.world, &layout, present, must_start);
        self.goes_on()?;
        let Some(choice) = choice else { return Err(Over) };
        for slot in 0..layout.slots() {
            if !choice.in_sync.iter().any(|(held, _)| *held == slot) {
                self.lose(slot);
            }
        }
        for (slot, member) in &choice.in_sync {
            let recorded = images::recorded_bad(&self.world, member);
            self.lose_parts(*slot, member.unreadable().into_iter().chain(recorded));
        }
        self.note_lost_superblock(&choice);
        self.note_stale_liar(&choice);
        Ok(choice)
    }

    /// Whoever relies on superblocks that a liar has lost may find anything: it is stale and nobody was to lose it, no
    /// other knows better, or what it had recorded as bad is not.
    fn note_lost_superblock(&self, choice: &MdChoice) {
        let lost = |liar: &&Rc<Member>| {
            let data = liar.data.borrow();
            liar.lied.borrow().iter().any(|bytes| bytes.start < data.start || data.end < bytes.end)
        };
        let members = self.world.members.borrow();
        let mut liars = members.iter().filter(lost);
        let log = self.plan.arrays[self.top()].create.bad_block_log;
        let relied_on = |liar: &Rc<Member>| {
            let in_place = choice.in_sync.iter().any(|(_, member)| Rc::ptr_eq(member, liar));
            let others =
                |slot| choice.in_sync.iter().any(|(held, m)| *held == slot && !Rc::ptr_eq(m, liar));
            !in_place || log || !self.layout(self.top()).survives(others)
        };
        if liars.any(relied_on) {
            self.world.lost_by_superblock.set(true);
        }
    }

    /// A member whose superblocks were never durable, though it said so, is stale after a power cut: one more is lost than
    /// was chosen to be, and what another cannot give has gone with it.
    fn note_stale_liar(&mut self, choice: &MdChoice) {
        let lied = |liar: &&Rc<Member>| {
            let counts = choice.in_sync.iter().any(|(_, member)| Rc::ptr_eq(member, liar));
            liar.kind.lies && !liar.is_gone() && !counts
        };
        let members = self.world.members.borrow().clone();
        let Some(liar) = members.iter().find(lied) else { return };
        let layout = self.layout(self.top());
        let held = |slot: &usize| choice.in_sync.iter().any(|(held, _)| held == slot);
        let slot = match images::superblock(&self.world, liar) {
            Some(own) => choice.freshest.role_of(own.dev_number).slot().map(usize::from),
            // Not even its first superblock is there: it is the one that nobody else holds.
            None => (0..layout.slots()).find(|slot| !held(slot)),
        };
        let Some(slot) = slot else { return };
        let sound = |slot| choice.in_sync.iter().any(|(held, m)| *held == slot && !m.is_weak());
        let beside = |other| other == slot || sound(other);
        if !layout.survives(sound) && layout.survives(beside) {
            self.world.trace(|| format!("{} lied and is stale: blocks may be lost", liar.name()));
            self.promises.lost_with_a_liar = true;
        }
    }

    /// A member that counts as in sync has lost its cache, and nobody is left who knows: what it had acknowledged and was not
    /// flushed may be gone, as when power fails.
    pub(super) fn one_in_sync_forgot(&self) -> bool {
        let members = self.world.members.borrow().clone();
        let forgot = |member: &Rc<Member>| member.forgot.get();
        images::md_choice(&self.world, &members)
            .is_some_and(|choice| choice.in_sync.iter().any(|(_, member)| forgot(member)))
    }
}
