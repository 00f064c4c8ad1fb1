//! What befalls single arrays between rounds, and after a crash: parity that rots under load and is repaired, members that
//! come back as they were long ago, blocks that cannot be read while parity is not in sync, and crashes of arrays whose
//! job has just ended and that are idle. Drawn as in `mishaps`.

use super::Run;
use super::counting::in_sync_at_rest;
use crate::images;
use crate::waiting::Over;
use braid_array::status::JobOutcome;
use braid_format::superblock::Superblock;
use braid_layout::{Layout, Parity};
use std::rc::Rc;

impl Run {
    pub(super) fn mishap_between_rounds(&mut self) -> Result<(), Over> {
        self.oracle.end_steady();
        match self.mishaps.rng.range(0..10) {
            0..3 => self.rot_and_repair(),
            3..6 => self.comes_back_as_it_was(),
            6..8 => self.flushes_fail(),
            _ => self.idle_and_crash(),
        }
    }

    /// The next life has begun.
    pub(super) fn after_a_crash(&mut self) -> Result<(), Over> {
        if self.plan.is_alone() {
            self.blocks_fade()?;
            return self.read_again();
        }
        let jobs = self.plan.odds.jobs_after_crash;
        if self.rng.percent(jobs) { self.wait_for_jobs() } else { Ok(()) }
    }

    /// Redundancy holds, no member is missing or weak.
    pub(super) fn is_whole(&mut self) -> Result<bool, Over> {
        if !self.redundant(self.top()) || self.promises.excused || self.promises.forced {
            return Ok(false);
        }
        self.drain()?;
        self.wait_for_jobs()?;
        let status = self.top_status()?;
        let members = self.world.members.borrow();
        let fit = |slot| {
            let mut holders = members.iter().filter(|m| in_sync_at_rest(m) == Some(slot));
            holders.any(|member| !member.out.get() && !member.is_weak() && !member.was_bad.get())
        };
        let holders = (0..self.layout(self.top()).slots()).all(fit);
        let jobs_done = status.job.is_none() && status.resynced.is_none();
        Ok(holders && jobs_done && status.degraded == 0 && self.promises.holes.is_empty())
    }

    /// P, or with `q` Q where there is one, of the row of a block rots on a member in sync.
    pub(super) fn rot_parity(&self, parity: &Parity, block: u64, q: bool) {
        let (stripe, _, within) = parity.locate(block * self.plan.scenario.block);
        let map = parity.map_stripe(stripe);
        let slot = map.q_slot().filter(|_| q).unwrap_or(map.p_slot());
        let members = self.world.members.borrow();
        let mut holders = members.iter().filter(|m| in_sync_at_rest(m) == Some(slot));
        let Some(member) = holders.next() else { return };
        let at = parity.member_offset(stripe) + within;
        let start = member.data.borrow().start + at;
        let wrong: Vec<u8> =
            member.image(start..start + 512).iter().map(|byte| byte ^ 0x5a).collect();
        self.world.trace(|| format!("{} rots at component byte {at}", member.name()));
        member.rot(start, &wrong);
    }

    /// Parity rots under load. A repair mends it, with requests under way; afterwards it is right and stays so.
    fn rot_and_repair(&mut self) -> Result<(), Over> {
        let layout = self.layout(self.top());
        let Layout::Parity(parity) = &*layout else { return Ok(()) };
        if !self.is_whole()? {
            return Ok(());
        }
        let blocks = self.hot_blocks();
        let q = self.mishaps.rng.percent(50);
        for _ in 0..1 + self.mishaps.rng.range(0..12) {
            self.rot_parity(parity, self.mishaps.rng.range(0..blocks), q);
        }
        self.did.faults += 1;
        self.quiet_round()?;
        self.world.trace(|| "repair".to_string());
        if let Err(error) = self.top_control()?.jobs().start_repair() {
            return self.fail("requests_succeed", error.to_string());
        }
        self.quiet_round()?;
        self.drain()?;
        self.wait_for_jobs()?;
        let outcome = self.top_status()?.last_job.map(|job| job.outcome);
        if outcome != Some(JobOutcome::Done) {
            return self.fail("requests_succeed", format!("a repair ended: {outcome:?}"));
        }
        self.quiet_round()?;
        self.drain()?;
        let status = self.scrub_top(false)?;
        if status.mismatch_cnt != 0 {
            let text = format!("after a repair a check counts {} sectors", status.mismatch_cnt);
            return self.fail("check_finds_nothing", text);
        }
        Ok(())
    }

    /// A member holds what it held some updates of the superblocks ago, as after a restored snapshot: it is stale.
    fn comes_back_as_it_was(&mut self) -> Result<(), Over> {
        if !self.is_whole()? {
            return Ok(());
        }
        let time = self.mishaps.rng.log_range(1_000..400_000_000);
        self.rest(time)?;
        let Some(member) = self.one_to_lose(true)? else { return Ok(()) };
        let Some(slot) = member.slot.get() else { return Ok(()) };
        // While the array is active, writes that the snapshot lacks may be of the same update as it.
        let then = images::superblock(&self.world, &member).filter(Superblock::is_clean);
        let Some(then) = then.map(|sb| sb.events) else { return Ok(()) };
        let snapshot = member.snapshot();
        self.quiet_round()?;
        let time = self.mishaps.rng.log_range(1_000..4_000_000_000);
        self.rest(time)?;
        if self.mishaps.rng.percent(50) {
            self.stop()?
        } else {
            self.crash()?
        }
        // Of the others: the last update may be on this member alone, and goes with what it holds now.
        let mut others = self.world.members.borrow().clone();
        others.retain(|other| !Rc::ptr_eq(other, &member));
        let freshest = images::md_choice(&self.world, &others).map(|choice| choice.freshest.events);
        let old = freshest.is_some_and(|freshest| freshest > then + 1);
        // A crash opens the write hole; parity levels do not promise to lose a member then.
        if old && self.promises.holes.is_empty() && self.survives(&member, in_sync_at_rest) {
            self.world.trace(|| format!("{} is as it was {then} updates on", member.name()));
            self.did.faults += 1;
            member.restore(&snapshot);
            member.mark_stale();
            member.in_sync.set(false);
            member.slot.set(None);
            self.lose(slot);
            self.assemble()?;
            return self.mend(self.top());
        }
        self.assemble()
    }

    /// The array has done its jobs and has nothing to do when power fails, or the process ends.
    pub(super) fn idle_and_crash(&mut self) -> Result<(), Over> {
        self.drain()?;
        self.wait_for_jobs()?;
        let time = self.mishaps.rng.log_range(1_000..3_000_000_000);
        self.rest(time)?;
        self.next_life(true)
    }

    /// After a crash, while parity is not in sync yet, a member cannot read some blocks: mending them must leave alone what
    /// can be read beside them.
    fn blocks_fade(&mut self) -> Result<(), Over> {
        let layout = self.layout(self.top());
        let Layout::Parity(parity) = &*layout else { return Ok(()) };
        if self.promises.excused || !self.chances.fading.chance(50) {
            return Ok(());
        }
        let status = self.top_status()?;
        let working = self.working();
        let Some(member) = working.get(self.chances.fading.rng.below(working.len())) else {
            return Ok(());
        };
        let slot = member.slot.get().unwrap_or(0);
        if !self.survives_now(&status, member) {
            return Ok(());
        }
        self.oracle.end_steady();
        self.did.faults += 1;
        let (hot, size) = (self.hot_blocks(), self.plan.scenario.block);
        for _ in 0..2 + self.chances.fading.rng.range(0..8) {
            let block = self.chances.fading.rng.range(0..hot);
            let (stripe, _, within) = parity.locate(block * size);
            let at = parity.member_offset(stripe) + within;
            self.world.trace(|| format!("{} cannot read one block at {at}", member.name()));
            member.make_unreadable(at, 1);
        }
        self.lose_parts(slot, member.unreadable());
        let chunk = parity.chunk_size() / size;
        for _ in 0..8 {
            let start = self.chances.fading.rng.range(0..hot) / chunk * chunk;
            let blocks = start..(start + 4 * chunk).min(self.oracle.len());
            self.read(blocks)?;
        }
        self.drain()
    }

    /// Reads blocks again and again: before a resync has come by, too, each is what it was read as at first.
    pub(super) fn read_again(&mut self) -> Result<(), Over> {
        if !self.mishaps.chance(60) {
            return Ok(());
        }
        let blocks = self.hot_blocks();
        let starts: Vec<u64> = (0..8).map(|_| self.mishaps.rng.range(0..blocks)).collect();
        for _ in 0..3 {
            for start in &starts {
                let end = (start + 8).min(self.oracle.len());
                self.read(*start..end)?;
            }
            self.drain()?;
        }
        Ok(())
    }
}
