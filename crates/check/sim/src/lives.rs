//! Ends and beginnings: stops, crashes, what lies between two lives, and assembly.

use crate::checkers::{job_resumes, md_can_assemble, memory_bounded};
use crate::client::Client;
use crate::images::{self, MdChoice};
use crate::machine::{Machine, Step};
use crate::member::Member;
use crate::rng::Rng;
use crate::run::{Life, Run};
use crate::steps::{SECOND, Steps, ends_like_a_crash};
use crate::waiting::{Over, PATIENCE};
use braid_array::error::AssembleError;
use braid_device::{Device, Target};
use std::rc::Rc;

impl Run {
    pub(crate) fn stop(&mut self) -> Result<(), Over> {
        self.world.trace(|| "stop".to_string());
        self.stopping = Some(self.world.now());
        let control = self.control()?;
        let since = self.world.now();
        let later = self.life()?.machine.begin(async move { control.stop().await });
        let left = self.wait("the stop", &later)?;
        // A member that answers nothing for a second and cannot be spared is not waited for: what is under way ends as in a
        // crash, and the stop says so.
        // Nor is what a member has lost with a failed flush, and no other has.
        let told = self.flushes_fail || self.world.now() > since + SECOND;
        let cut_short = ends_like_a_crash(&left) && told;
        let broken = self.excused || cut_short;
        self.drain()?;
        self.stopping = None;
        if !broken {
            let now = self.oracle.tick();
            self.oracle.end_flush(now);
        }
        if let Some(Life { client, array, machine }) = self.life.take() {
            self.requests += client.ended;
            drop((client, array));
            self.world.wake_hung();
            // Tasks that sleep find out when they wake.
            let patience = self.world.now() + PATIENCE;
            while machine.step() != Step::Stuck && self.world.now() < patience {}
            memory_bounded::at_rest(&machine);
            // A stop is a promise: what was written is durable, and power may fail.
            self.world.power_cut();
        }
        let open = self.oracle.crash();
        if broken {
            self.holes.crash(&self.layout, self.scenario.block, &open);
            self.oracle.settled = !self.scenario.create.level.has_redundancy();
        }
        self.between_lives()
    }

    pub(crate) fn crash(&mut self) -> Result<(), Over> {
        let killed = self.mishaps.kills(25, &self.world);
        self.world.trace(|| if killed { "KILLED" } else { "CRASH" }.to_string());
        self.crashes += 1;
        if let Some(Life { client, array, machine }) = self.life.take() {
            self.requests += client.ended;
            if killed {
                self.world.kill()
            } else {
                self.world.power_cut()
            }
            drop((client, array));
            drop(machine);
        }
        let kept = killed && !self.one_in_sync_forgot();
        let open = if kept { self.oracle.kill() } else { self.oracle.crash() };
        self.world.trace(|| format!("{} blocks are open", open.len()));
        self.holes.crash(&self.layout, self.scenario.block, &open);
        self.oracle.settled = !self.scenario.create.level.has_redundancy();
        self.between_lives()
    }

    /// A member that counts as in sync has lost its cache, and nobody is left who knows: what it had acknowledged and was not
    /// flushed may be gone, as when power fails.
    fn one_in_sync_forgot(&self) -> bool {
        let members = self.world.members.borrow().clone();
        let forgot = |member: &Rc<Member>| member.forgot.get();
        images::md_choice(&self.world, &members)
            .is_some_and(|choice| choice.in_sync.iter().any(|(_, member)| forgot(member)))
    }

    fn between_lives(&mut self) -> Result<(), Over> {
        self.flushes_fail = false;
        self.world.members.borrow().iter().for_each(|member| member.forgot.set(false));
        self.left_out_are_untouched();
        self.world.missed.borrow_mut().clear();
        self.members_between_lives();
        match self.world.failure() {
            Some(_) => Err(Over),
            None => Ok(()),
        }
    }

    /// Members that can be opened and have a superblock.
    pub(crate) fn present(&self) -> Vec<Rc<Member>> {
        let members = self.world.members.borrow();
        let there = |member: &&Rc<Member>| {
            !member.is_gone() && images::superblock(&self.world, member).is_some()
        };
        members.iter().filter(there).cloned().collect()
    }

    /// Assembles the array of whatever members are there.
    pub(crate) fn assemble(&mut self) -> Result<(), Over> {
        self.crash_in_assemble()?;
        let mut present = self.present();
        let choice = self.look_at_images(&present)?;
        self.world.owners.borrow_mut().clear();
        self.world.moving.set(false);
        let machine = Machine::start(&self.world, self.scenario.shards);
        let (mut options, mut newer_only) = (self.scenario.assemble.clone(), false);
        self.damaged_are_given(&machine, &mut present)?;
        let result = loop {
            match self.try_assembly(&machine, &present, &options)? {
                Err(AssembleError::DirtyDegraded { .. }) if !options.force => {
                    options.force = true;
                    self.forced = true;
                    if !self.synced {
                        self.holes.open_all(&self.layout, self.scenario.block);
                    }
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
                result => break result,
            }
        };
        let array = match result {
            Ok(array) => array,
            // More is missing than the level survives: refusing is right, and the end.
            Err(_) if self.excused => return Err(Over),
            Err(error) => return self.fail("assembles", error.to_string()),
        };
        self.lives += 1;
        let mut devices: Vec<Rc<dyn Device>> = Vec::new();
        for shard in &machine.shards {
            match array.open(shard) {
                Ok(device) => devices.push(device),
                Err(error) => return self.fail("assembles", error.to_string()),
            }
        }
        let mut client = Client::new(Rng::new(self.world.seed, 16 + self.lives), devices);
        if !self.scenario.create.level.has_redundancy() {
            client.must_be_told(self.world.failed_flushes.get());
        }
        self.life = Some(Life { client, array, machine });
        self.lost_lists_are_named(&present)?;
        let fit = |member: &Rc<Member>| !member.is_weak() && !member.was_bad.get();
        if !self.excused && !self.forced && self.world.members.borrow().iter().all(fit) {
            self.oracle.begin_steady();
        }
        if self.lives > 1 {
            let status = self.status()?;
            if !self.excused {
                job_resumes::look(&self.world, &choice, &status);
            }
            if status.resynced.is_none() && status.degraded == 0 && !self.forced {
                self.redundancy_holds();
            }
        }
        Ok(())
    }

    /// Superblocks between two lives; also what the write hole takes with the members that are missing.
    pub(crate) fn look_at_images(&mut self, present: &[Rc<Member>]) -> Result<MdChoice, Over> {
        let choice = md_can_assemble::look(&self.world, &self.layout, present, !self.excused);
        if self.world.failure().is_some() {
            return Err(Over);
        }
        let Some(choice) = choice else { return Err(Over) };
        for slot in 0..self.layout.slots() {
            if !choice.in_sync.iter().any(|(held, _)| *held == slot) {
                self.holes.lose(&self.layout, slot, &mut self.oracle);
            }
        }
        for (slot, member) in &choice.in_sync {
            let recorded = images::recorded_bad(&self.world, member);
            for bad in member.unreadable().into_iter().chain(recorded) {
                self.holes.lose_part(&self.layout, *slot, bad, &mut self.oracle);
            }
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
        let relied_on = |liar: &Rc<Member>| {
            let in_place = choice.in_sync.iter().any(|(_, member)| Rc::ptr_eq(member, liar));
            let others =
                |slot| choice.in_sync.iter().any(|(held, m)| *held == slot && !Rc::ptr_eq(m, liar));
            !in_place || self.scenario.create.bad_block_log || !self.layout.survives(others)
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
        let held = |slot: &usize| choice.in_sync.iter().any(|(held, _)| held == slot);
        let slot = match images::superblock(&self.world, liar) {
            Some(own) => choice.freshest.role_of(own.dev_number).slot().map(usize::from),
            // Not even its first superblock is there: it is the one that nobody else holds.
            None => (0..self.layout.slots()).find(|slot| !held(slot)),
        };
        let Some(slot) = slot else { return };
        let sound = |slot| choice.in_sync.iter().any(|(held, m)| *held == slot && !m.is_weak());
        let beside = |other| other == slot || sound(other);
        if !self.layout.survives(sound) && self.layout.survives(beside) {
            self.world.trace(|| format!("{} lied and is stale: blocks may be lost", liar.name()));
            self.lost_with_a_liar = true;
        }
    }
}
