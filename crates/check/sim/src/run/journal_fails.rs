//! The device of a write journal fails, while the array runs or when it starts: writes and flushes of it fail, blocks of its log
//! cannot be read, it is gone or does not answer, and power fails meanwhile, in replays too.
//!
//! Without its journal an array is read-only: writes are refused, no member changes, and all that was acknowledged is read,
//! until it is given another journal, or a start is told to go on without. A device that comes back with its log brings back
//! all that the log had.
//!
//! Late in a run, and on single arrays.

use super::Run;
use super::counting::in_sync_at_rest;
use crate::device::SimOpener;
use crate::images;
use crate::machine::Step;
use crate::member::{Member, SECTOR};
use crate::waiting::Over;
use braid_array::error::{AssembleError, ControlError};
use braid_array::options::{AssembleOptions, MemberSelector};
use braid_array::status::{ArrayState, MemberState};
use braid_format::superblock::Role;
use std::ops::Range;
use std::rc::Rc;

/// The checker that finds fault here.
const CHECKER: &str = "read_only_without_journal";
/// Steps after which a device that answers again has ended what it was asked.
const ANSWERED: usize = 10_000;

/// A start of which something of the journal is lacking, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// It runs, with its journal.
    Whole,
    /// It is read-only.
    ReadOnly,
    /// It was refused.
    Refused,
}

impl Run {
    /// See the module's documentation.
    pub(super) fn the_journal_fails(&mut self) -> Result<(), Over> {
        let Some(journal) = self.world.journal.borrow().clone() else { return Ok(()) };
        for _ in 0..1 + self.chances.journal.rng.below(3) {
            if !self.has_a_journal_in_use()? {
                return Ok(());
            }
            self.did.faults += 1;
            match self.chances.journal.chance(60) {
                true => self.it_fails_under_load(&journal)?,
                false => self.it_fails_at_a_start(&journal)?,
            }
        }
        Ok(())
    }

    /// All that is written is logged, and nobody else is weak.
    fn has_a_journal_in_use(&mut self) -> Result<bool, Over> {
        self.oracle.end_steady();
        if self.plan.scenario.lies || self.promises.flushes_fail {
            return Ok(false);
        }
        self.drain()?;
        self.world.members.borrow().iter().for_each(|member| member.fail_write_in(None));
        if !self.redundant(self.top()) || self.promises.excused {
            return Ok(false);
        }
        self.wait_for_jobs()?;
        if self.top_status()?.degraded > 0 {
            self.mend(self.top())?;
            self.wait_for_jobs()?;
        }
        Ok(self.is_whole()? && self.top_control()?.journal().is_in_use())
    }

    // --- While the array runs ------------------------------------------------------------------

    fn it_fails_under_load(&mut self, journal: &Rc<Member>) -> Result<(), Over> {
        self.promises.journal_fails = true;
        self.its_device_fails(journal);
        for _ in 0..1 + self.chances.journal.rng.below(2) {
            self.quiet_round()?;
            if self.chances.journal.chance(20)
                && self.is_whole_but_for_the_journal()?
                && let Some(leaf) = self.some_working()
            {
                self.fail_leaf(&leaf)?;
            }
        }
        if self.chances.journal.chance(30) {
            self.run_on(self.chances.journal.rng.log_range(1..300))?;
            return self.the_next_start_is_without(journal, true);
        }
        self.drain()?;
        let read_only = self.is_read_only()?;
        if self.has_lost_it_running()? && !read_only {
            let text = "its journal has failed, and it is not read-only".to_string();
            return self.fail(CHECKER, text);
        }
        if !read_only {
            // Nobody has met the fault, or it has done no harm.
            self.its_device_is_sound(journal)?;
            self.promises.journal_fails = false;
            return self.quiet_round();
        }
        self.takes_no_write()?;
        self.read_everything()?;
        match self.chances.journal.rng.range(0..10) {
            0..4 => self.gets_another_journal(journal),
            drawn => self.the_next_start_is_without(journal, drawn < 7),
        }
    }

    fn its_device_fails(&mut self, journal: &Rc<Member>) {
        let rng = &self.chances.journal.rng;
        let fault = match rng.range(0..10) {
            0..5 => {
                let writes = rng.log_range(1..30) as u32;
                journal.fail_write_in(Some(writes));
                format!("fails a write in {writes}")
            }
            5 | 6 => {
                journal.set_gone(true);
                "is gone".to_string()
            }
            7 => {
                journal.die(&self.world.rng);
                "is without power".to_string()
            }
            8 => {
                journal.hung.set(true);
                "hangs".to_string()
            }
            _ => {
                journal.fail_flushes(u32::MAX);
                "fails flushes".to_string()
            }
        };
        self.world.trace(|| format!("the journal's device {fault}"));
    }

    /// As [`Run::is_whole`], when nothing can be waited for.
    fn is_whole_but_for_the_journal(&mut self) -> Result<bool, Over> {
        let status = self.top_status()?;
        let weak =
            self.world.members.borrow().iter().any(|m| m.slot.get().is_some() && m.is_weak());
        Ok(status.degraded == 0 && status.resynced.is_none() && !weak)
    }

    fn is_read_only(&mut self) -> Result<bool, Over> {
        Ok(self.top_status()?.state.contains(&ArrayState::ReadOnly))
    }

    /// The device answers, and everything on it can be read and written.
    fn its_device_is_sound(&mut self, journal: &Rc<Member>) -> Result<(), Over> {
        if journal.hung.get() {
            self.world.wake_hung();
            for _ in 0..ANSWERED {
                if self.world.owed_by(journal) == 0 || self.step()? == Step::Stuck {
                    break;
                }
            }
        }
        journal.heal();
        journal.set_gone(false);
        Ok(())
    }

    /// Writes are refused, flushes are not, and no member changes.
    fn takes_no_write(&mut self) -> Result<(), Over> {
        self.drain()?;
        let before = self.data_of_members();
        let blocks = self.oracle.len();
        let errors = self.life()?.client.errors;
        let count = 1 + self.chances.journal.rng.range(0..8);
        for nr in 0..count {
            let start = self.chances.journal.rng.range(0..blocks);
            let end = (start + self.chances.journal.rng.log_range(1..64)).min(blocks);
            let life = self.life.as_mut().ok_or(Over)?;
            life.client.write(&life.machine, &mut self.oracle, start..end, nr % 3 == 0);
        }
        self.drain()?;
        let refused = self.life()?.client.errors - errors;
        self.flush()?;
        self.drain()?;
        if refused != count {
            let text = format!("of {count} writes without the journal {refused} were refused");
            return self.fail(CHECKER, text);
        }
        if self.data_of_members() != before {
            return self.fail(CHECKER, "members change without the journal".to_string());
        }
        Ok(())
    }

    fn data_of_members(&self) -> Vec<Vec<u8>> {
        let members = self.world.members.borrow();
        let held = members.iter().filter(|member| member.slot.get().is_some());
        held.map(|member| member.image(member.data.borrow().clone())).collect()
    }

    /// Another device is its journal, or the same one anew: it can be written again.
    fn gets_another_journal(&mut self, journal: &Rc<Member>) -> Result<(), Over> {
        let name = journal.name().to_string();
        self.its_device_is_sound(journal)?;
        if self.top_status()?.members.iter().any(|member| member.name == name) {
            let (control, of) = (self.top_control()?, MemberSelector::Name(name.clone()));
            self.world.trace(|| format!("remove {name}"));
            let later = self
                .life()?
                .machine
                .begin(async move { control.membership().remove_as(&of, false).await });
            match self.wait("the command to remove the journal", &later)? {
                Ok(_) => {}
                Err(ControlError::NotRecorded { .. }) => {
                    self.wait_until_recorded(self.top(), &name, None)?;
                }
                Err(error) => return self.fail("requests_succeed", error.to_string()),
            }
        }
        if self.chances.journal.chance(50) {
            journal.replace(&self.world.rng);
        }
        if !self.is_read_only()? {
            // Whatever was written without one is in caches when it comes.
            self.quiet_round()?;
            self.drain()?;
        }
        self.world.trace(|| format!("add {name} as the journal"));
        let opener = SimOpener::of(&self.world, journal.kind.index);
        let control = self.top_control()?;
        let later = self
            .life()?
            .machine
            .begin(async move { control.membership().add_journal(opener, true).await });
        if self.chances.journal.chance(15) {
            self.run_on(self.chances.journal.rng.log_range(1..60))?;
            return self.the_next_start_is_without(journal, true);
        }
        if let Err(error) = self.wait("the command to add a journal", &later)? {
            return self.fail("requests_succeed", format!("add --journal: {error}"));
        }
        if self.is_read_only()? {
            let text = "it is read-only, and has got another journal".to_string();
            return self.fail(CHECKER, text);
        }
        self.promises.journal_fails = false;
        if self.chances.journal.chance(40) {
            self.next_life(true)?;
            self.wait_for_jobs()?;
            let status = self.scrub_top(false)?;
            if status.mismatch_cnt != 0 && !self.promises.forced {
                let text = format!("a check counts {} sectors that differ", status.mismatch_cnt);
                return self.fail("check_finds_nothing", text);
            }
        }
        self.quiet_round()?;
        self.drain()?;
        self.wait_for_jobs()?;
        if self.chances.journal.chance(50) {
            self.next_life(true)?;
        }
        self.read_everything()
    }

    // --- A start without it --------------------------------------------------------------------

    /// The array ends, and the device is there at the next start or is not.
    fn the_next_start_is_without(&mut self, journal: &Rc<Member>, crash: bool) -> Result<(), Over> {
        let lost = self.chances.journal.chance(50);
        self.promises.journal_is_lost = lost;
        if crash {
            self.crash()?
        } else {
            self.stop()?
        }
        self.is_there_at_rest(journal, !lost);
        self.starts_and_goes_on(journal)
    }

    /// Nothing runs: the device is there with what it held, or is gone.
    fn is_there_at_rest(&self, journal: &Rc<Member>, there: bool) {
        journal.heal();
        journal.set_gone(!there);
        self.world
            .trace(|| format!("the journal's device is {}there", if there { "" } else { "not " }));
    }

    /// The freshest superblock takes the device for the journal, and it missed one update at most.
    fn journal_counts(&self) -> bool {
        let (members, journal) = (self.world.members.borrow(), self.world.journal.borrow());
        let Some(journal) = journal.as_ref().filter(|journal| !journal.is_gone()) else {
            return false;
        };
        let Some(own) = images::superblock_alone(&self.world, journal) else { return false };
        let Some(choice) = images::md_choice(&self.world, &members) else { return false };
        let freshest = choice.freshest;
        freshest.journal
            && own.set_uuid == freshest.set_uuid
            && freshest.role_of(own.dev_number) == Role::Journal
            && own.own_role() == Role::Journal
            && own.events + 1 >= freshest.events
    }

    /// With its journal the array runs as after any other crash. Without, it is read-only; then it is told to go on.
    fn starts_and_goes_on(&mut self, journal: &Rc<Member>) -> Result<(), Over> {
        if self.journal_counts() {
            (self.promises.journal_fails, self.promises.journal_is_lost) = (false, false);
            self.assemble()?;
            return self.read_everything();
        }
        if !self.has_a_journal_by_the_images() {
            // The journal that it was to get came too late.
            (self.promises.journal_fails, self.promises.journal_is_lost) = (false, false);
            return self.assemble();
        }
        match self.starts_somehow()? {
            Start::Refused => {}
            Start::ReadOnly => self.rests_read_only(true)?,
            Start::Whole => {
                let text = "it starts for writing, and its journal is lost".to_string();
                return self.fail(CHECKER, text);
            }
        }
        self.goes_on_without()?;
        if self.chances.journal.chance(70) {
            self.its_device_is_sound(journal)?;
            self.promises.journal_fails = true;
            self.gets_another_journal(journal)?;
        }
        Ok(())
    }

    fn has_a_journal_by_the_images(&self) -> bool {
        let members = self.world.members.borrow();
        images::md_choice(&self.world, &members).is_some_and(|choice| choice.freshest.journal)
    }

    /// Begins a life, if the array can be assembled, without insisting on anything.
    fn starts_somehow(&mut self) -> Result<Start, Over> {
        let present = self.present(self.top());
        self.look_at_images(&present)?;
        let machine = self.next_machine();
        let options = self.plan.arrays[self.top()].assemble.clone();
        match self.try_assembly(&machine, &present, &options)? {
            Ok(array) => {
                self.begin_life(machine, vec![Some(array)])?;
                Ok(if self.is_read_only()? { Start::ReadOnly } else { Start::Whole })
            }
            Err(
                error @ (AssembleError::DirtyDegraded { .. }
                | AssembleError::Replay { .. }
                | AssembleError::RanApart { .. }),
            ) => {
                self.world.trace(|| error.to_string());
                Ok(Start::Refused)
            }
            Err(error) => self.fail("assembles", error.to_string()),
        }
    }

    /// A life without the journal: `readable`, unless what it lacks is needed in the place of a member. Then it stops.
    fn rests_read_only(&mut self, readable: bool) -> Result<(), Over> {
        let holes = (self.promises.holes.all_logged, self.promises.holes.journaled);
        let mut members = self.world.members.borrow().clone();
        // Others, which it has lost before, may have something in their caches.
        members.retain(|member| !member.is_gone() && in_sync_at_rest(member).is_some());
        let before: Vec<Vec<u8>> = members.iter().map(|member| member.snapshot()).collect();
        self.takes_no_write()?;
        if readable {
            self.read_everything()?;
        }
        let (control, index) =
            (self.top_control()?, self.world.journal.borrow().as_ref().map(|j| j.kind.index));
        if let Some(index) = index.filter(|index| !self.world.member(*index).is_gone()) {
            let opener = SimOpener::of(&self.world, index);
            let later = self
                .life()?
                .machine
                .begin(async move { control.membership().add_journal(opener, true).await });
            if self.wait("the command to add a journal", &later)?.is_ok() {
                let text = "a start without the journal takes another".to_string();
                return self.fail(CHECKER, text);
            }
        }
        self.stop()?;
        (self.promises.holes.all_logged, self.promises.holes.journaled) = holes;
        let same = members
            .iter()
            .zip(&before)
            .all(|(member, before)| member.is_gone() || member.snapshot() == *before);
        if !same {
            let text = "a start without the journal has written to a member".to_string();
            return self.fail(CHECKER, text);
        }
        Ok(())
    }

    /// Somebody insists: it runs without a journal, and all is resynced.
    fn goes_on_without(&mut self) -> Result<(), Over> {
        let mut present = self.present(self.top());
        let choice = self.look_at_images(&present)?;
        let layout = self.layout(self.top());
        if choice.in_sync.len() < layout.slots() {
            self.promises.force(&layout, self.plan.scenario.block);
        }
        self.world.trace(|| "it goes on without its journal: forced".to_string());
        let top = self.top();
        let before = self.plan.arrays[top].assemble.clone();
        self.plan.arrays[top].assemble = AssembleOptions { force: true, ..before.clone() };
        let machine = self.next_machine();
        let started = self.force_what_must_be(&machine, &mut present, &choice);
        self.plan.arrays[top].assemble = before;
        self.begin_life(machine, vec![Some(started?)])?;
        let status = self.top_status()?;
        if status.has_journal || status.state.contains(&ArrayState::ReadOnly) {
            let text = "it is read-only, and was told to go on without its journal".to_string();
            return self.fail(CHECKER, text);
        }
        let resync = status.resynced.is_some() || status.job.is_some() || status.last_job.is_some();
        if status.degraded == 0 && !resync {
            let text = "it goes on without its journal, and nothing is resynced".to_string();
            return self.fail(CHECKER, text);
        }
        (self.promises.journal_fails, self.promises.journal_is_lost) = (false, false);
        self.read_everything()?;
        self.quiet_round()?;
        self.drain()?;
        self.wait_for_jobs()
    }

    // --- A start with one that fails -----------------------------------------------------------

    /// A crash leaves a log, and something is wrong with its device at the starts after that.
    fn it_fails_at_a_start(&mut self, journal: &Rc<Member>) -> Result<(), Over> {
        self.quiet_round()?;
        self.run_on(self.chances.journal.rng.log_range(1..300))?;
        self.promises.journal_fails = true;
        self.crash()?;
        for _ in 0..1 + self.chances.journal.rng.below(4) {
            self.its_device_fails_at_rest(journal);
            if self.chances.journal.chance(50) {
                let mut left = self.chances.journal.rng.log_range(1..600);
                self.doomed_assembly(30, |_, machine| {
                    left -= 1;
                    machine.step() != Step::Stuck && left > 0
                })?;
            } else {
                self.starts_with_a_fault()?;
            }
            self.is_there_at_rest(journal, true);
        }
        self.starts_and_goes_on(journal)
    }

    fn its_device_fails_at_rest(&mut self, journal: &Rc<Member>) {
        let rng = &self.chances.journal.rng;
        let fault = match rng.range(0..10) {
            0 | 1 => {
                journal.set_gone(true);
                "is gone".to_string()
            }
            2..5 => {
                let log = self.its_log(journal);
                let (from, len) = (rng.range(log.clone()), rng.log_range(512..log.end - log.start));
                let end = (from + len).min(log.end);
                journal.make_unreadable_at(from..end);
                format!("cannot read bytes {from} to {end}")
            }
            5..8 => {
                let writes = rng.log_range(1..12) as u32 - 1;
                journal.fail_write_in(Some(writes));
                format!("fails a write in {writes}")
            }
            8 => {
                journal.fail_flushes(u32::MAX);
                "fails flushes".to_string()
            }
            _ => "is sound".to_string(),
        };
        self.world.trace(|| format!("the journal's device {fault}"));
    }

    /// The bytes of the device that its log has.
    fn its_log(&self, journal: &Rc<Member>) -> Range<u64> {
        let superblock = images::superblock_alone(&self.world, journal);
        superblock.map_or(0..0, |own| {
            let start = own.data_offset * SECTOR;
            start..start + own.data_size * SECTOR
        })
    }

    fn starts_with_a_fault(&mut self) -> Result<(), Over> {
        match self.starts_somehow()? {
            Start::Refused => Ok(()),
            Start::ReadOnly if self.has_lost_it_running()? => self.ends_at_once(),
            Start::ReadOnly => {
                let whole = self.top_status()?.degraded == 0;
                self.rests_read_only(whole)
            }
            Start::Whole => {
                self.quiet_round()?;
                self.ends_at_once()
            }
        }
    }

    /// The array started with its journal, and has lost it since.
    fn has_lost_it_running(&mut self) -> Result<bool, Over> {
        let Some(name) = self.world.journal.borrow().as_ref().map(|own| own.name().to_string())
        else {
            return Ok(false);
        };
        let status = self.top_status()?;
        Ok(status.members.iter().any(|m| m.name == name && m.state == MemberState::Faulty))
    }

    /// It is stopped, or power fails.
    fn ends_at_once(&mut self) -> Result<(), Over> {
        if self.chances.journal.chance(50) {
            self.drain()?;
            self.stop()
        } else {
            self.crash()
        }
    }
}
