//! Situations of a single array that chance alone seldom hits, made on purpose: a crash right after the first answer
//! that a failing member could have spoilt, or between a bit and its data; a flush while a rebuild goes on that a stop has
//! interrupted; blocks that cannot be read beside rows that a crash has left open; members that fail in a resync, or
//! come back when others had their place meanwhile; parity that is repaired between two writes of one block.
//!
//! Nothing is excused for it: the rules, and what the level survives, are those of every other run. Choices come from a
//! stream of their own; plain runs have none of it.

use super::Run;
use super::counting::{in_sync, in_sync_at_rest};
use crate::images;
use crate::machine::Step;
use crate::member::Member;
use crate::waiting::Over;
use braid_array::options::SyncSpeed;
use braid_array::status::{ArrayStatus, JobKind};
use braid_layout::{Layout, Level};
use braid_shard::Nanos;
use std::ops::Range;
use std::rc::Rc;

/// Jobs that are to take long get so many KiB per second.
const SLOW: SyncSpeed = SyncSpeed { min_kib: 100, max_kib: 400 };
const MILLISECOND: Nanos = 1_000_000;

impl Run {
    /// After a round, now and then.
    pub(super) fn something_aimed(&mut self) -> Result<(), Over> {
        let aims = self.chances.aimed.chance(50);
        if !aims || self.promises.excused || !self.redundant(self.top()) {
            return Ok(());
        }
        self.oracle.end_steady();
        let plan = &self.plan.arrays[self.top()];
        let (level, has_bitmap) = (plan.create.level, plan.has_bitmap());
        let parity = level.is_parity();
        match self.chances.aimed.rng.range(0..8) {
            0 => self.crash_beside_a_failing_write(),
            1 | 2 if has_bitmap => match self.chances.aimed.rng.percent(70) {
                true => self.crash_between_bit_and_data(),
                false => self.comes_back_after_another(),
            },
            3 => self.flush_in_a_later_life_of_a_rebuild(),
            4 if parity => self.unreadable_beside_open_rows(),
            5 if parity => self.repair_between_writes(),
            6 if level == Level::Raid6 => self.fails_in_a_resync(),
            7 => self.missing_after_fua(),
            _ => self.crash_beside_a_failing_write(),
        }
    }

    // --- Pieces ----------------------------------------------------------------------------------

    /// A member that works and that the level can do without now.
    fn spare_one(&mut self) -> Result<Option<(Rc<Member>, usize)>, Over> {
        let status = self.top_status()?;
        let mut fit = self.working();
        fit.retain(|member| self.survives_now(&status, member));
        let one = fit.get(self.chances.aimed.rng.below(fit.len()));
        Ok(one.and_then(|member| Some((Rc::clone(member), member.slot.get()?))))
    }

    /// Blocks of the part of the array that most requests go to, or of any.
    fn some_blocks(&self, anywhere: bool) -> Range<u64> {
        let rng = &self.chances.aimed.rng;
        let room = if anywhere { self.oracle.len() } else { self.hot_blocks() };
        let start = rng.range(0..room);
        start..(start + rng.log_range(1..33)).min(self.oracle.len())
    }

    /// Removes a member that is faulty, if there is one.
    fn remove_a_faulty_one(&mut self) -> Result<(), Over> {
        let status = self.top_status()?;
        self.remove_faulty(self.top(), &status)
    }

    fn rest_until_bits_are_clear(&mut self) -> Result<(), Over> {
        let sleep = self.plan.arrays[self.top()].assemble.bitmap_daemon_sleep_ms.unwrap_or(5000);
        self.rest(4 * sleep * MILLISECOND)
    }

    /// The next life's jobs, and those of this one, take long, or as long as they did.
    fn slow_jobs(&mut self, slow: bool) -> Result<(), Over> {
        let speed = if slow { SLOW } else { self.plan.scenario.assemble.sync_speed };
        let top = self.top();
        self.plan.arrays[top].assemble.sync_speed = speed;
        if self.life.is_some() {
            // A running array takes these limits.
            let _ = self.top_control()?.jobs().set_sync_speed(speed.min_kib, speed.max_kib);
        }
        Ok(())
    }

    /// Power fails while some writes are under way; gives what they wrote.
    fn crash_under_writes(&mut self, anywhere: bool) -> Result<Vec<Range<u64>>, Over> {
        let mut written = Vec::new();
        for _ in 0..1 + self.chances.aimed.rng.range(0..6) {
            let blocks = self.some_blocks(anywhere);
            self.write(blocks.clone(), false)?;
            written.push(blocks);
        }
        self.run_on(self.chances.aimed.rng.log_range(1..60))?;
        self.crash()?;
        Ok(written)
    }

    /// A check counts nothing once jobs are done and nobody is missing.
    fn check_again(&mut self) -> Result<(), Over> {
        self.drain()?;
        self.wait_for_jobs()?;
        let status = self.top_status()?;
        if self.promises.excused
            || self.promises.forced
            || status.degraded > 0
            || !self.promises.holes.is_empty()
        {
            return Ok(());
        }
        let status = self.scrub_top(false)?;
        if status.mismatch_cnt != 0 && status.degraded == 0 {
            let text = format!("a check counts {} sectors that differ", status.mismatch_cnt);
            return self.fail("check_finds_nothing", text);
        }
        Ok(())
    }

    // --- Situations ------------------------------------------------------------------------------

    /// Writes of a member fail, and power right after a request has been answered that it took part in.
    fn crash_beside_a_failing_write(&mut self) -> Result<(), Over> {
        self.drain()?;
        let Some((member, slot)) = self.spare_one()? else { return Ok(()) };
        let after = self.chances.aimed.rng.range(0..3) as u32;
        self.world.trace(|| format!("{} will fail a write in {after}", member.name()));
        self.did.faults += 1;
        member.fail_write_in(Some(after));
        self.lose(slot);
        for _ in 0..1 + self.chances.aimed.rng.range(0..4) {
            let blocks = self.some_blocks(false);
            self.write(blocks, self.chances.aimed.rng.percent(50))?;
        }
        let answered = self.life()?.client.ended;
        for _ in 0..2000 {
            let news = self.life()?.client.ended > answered;
            if news && member.out.get() || self.step()? == Step::Stuck {
                break;
            }
        }
        self.run_on(self.chances.aimed.rng.range(0..4))?;
        self.crash()?;
        self.assemble()?;
        self.read_again()
    }

    /// With all bits cleared, power fails while a write is under way.
    fn crash_between_bit_and_data(&mut self) -> Result<(), Over> {
        self.drain()?;
        self.wait_for_jobs()?;
        self.rest_until_bits_are_clear()?;
        let blocks = self.some_blocks(true);
        self.write(blocks, self.chances.aimed.rng.percent(30))?;
        let submissions = self.world.submissions.get() + self.chances.aimed.rng.log_range(1..40);
        while self.world.submissions.get() < submissions && self.life()?.client.waiting() > 0 {
            self.step()?;
        }
        self.run_on(self.chances.aimed.rng.range(0..4))?;
        self.crash()?;
        self.assemble()?;
        self.check_again()
    }

    /// A member fails, another gets its place, bits are cleared; then that one fails, and the first comes back.
    fn comes_back_after_another(&mut self) -> Result<(), Over> {
        if !self.is_whole()? {
            return Ok(());
        }
        let Some((member, slot)) = self.spare_one()? else { return Ok(()) };
        self.did.faults += 1;
        self.fail_leaf(&member)?;
        self.remove_a_faulty_one()?;
        self.wait_for_jobs()?;
        if self.top_status()?.degraded > 0 {
            let status = self.top_status()?;
            let other = self.free_leaf(self.top(), &status, Some(&member));
            let Some(other) = other else { return Ok(()) };
            self.bring(&other, &status)?;
            self.wait_for_jobs()?;
        }
        self.quiet_round()?;
        self.drain()?;
        self.rest_until_bits_are_clear()?;
        let status = self.top_status()?;
        let members = self.world.members.borrow().clone();
        let holds = |m: &&Rc<Member>| in_sync(&status, m.name()) == Some(slot) && !m.is_weak();
        let Some(holder) = members.iter().find(holds) else { return Ok(()) };
        if !self.survives_now(&status, holder) {
            return Ok(());
        }
        self.fail_leaf(holder)?;
        self.remove_a_faulty_one()?;
        let status = self.top_status()?;
        if status.members.iter().any(|known| known.name == member.name()) {
            // Another that had failed earlier was removed instead.
            return Ok(());
        }
        self.bring(&member, &status)?;
        self.check_again()
    }

    /// A rebuild goes on after a stop; what is written and flushed meanwhile, power fails then.
    fn flush_in_a_later_life_of_a_rebuild(&mut self) -> Result<(), Over> {
        self.drain()?;
        self.wait_for_jobs()?;
        self.slow_jobs(true)?;
        let result = self.flush_while_rebuilding();
        self.slow_jobs(false)?;
        result?;
        self.check_again()
    }

    fn flush_while_rebuilding(&mut self) -> Result<(), Over> {
        if self.top_status()?.degraded == 0 {
            let Some((member, _)) = self.spare_one()? else { return Ok(()) };
            self.did.faults += 1;
            self.fail_leaf(&member)?;
        }
        self.mend(self.top())?;
        let recovers = |status: &ArrayStatus| {
            status.job.as_ref().is_some_and(|job| job.kind == JobKind::Recover)
        };
        let time = self.chances.aimed.rng.log_range(50..2000) * MILLISECOND;
        self.rest(time)?;
        if !recovers(&self.top_status()?) {
            return Ok(());
        }
        self.stop()?;
        self.assemble()?;
        for _ in 0..1 + self.chances.aimed.rng.range(0..6) {
            let blocks = self.some_blocks(false);
            self.write(blocks, false)?;
        }
        self.drain()?;
        self.flush()?;
        self.drain()?;
        self.run_on(self.chances.aimed.rng.range(0..4))?;
        self.crash()?;
        self.assemble()?;
        self.read_again()
    }

    /// Right after a crash, before the resync comes by, blocks cannot be read that share a chunk with rows whose parity
    /// may not match.
    fn unreadable_beside_open_rows(&mut self) -> Result<(), Over> {
        self.drain()?;
        self.wait_for_jobs()?;
        self.slow_jobs(true)?;
        let written = self.crash_under_writes(true)?;
        self.assemble()?;
        let result = self.unreadable_beside(&written);
        self.slow_jobs(false)?;
        result
    }

    fn unreadable_beside(&mut self, written: &[Range<u64>]) -> Result<(), Over> {
        let (layout, size) = (self.layout(self.top()), self.plan.scenario.block);
        let Layout::Parity(parity) = &*layout else { return Ok(()) };
        let rows = parity.chunk_size() / size;
        for blocks in written {
            let (stripe, k, _) = parity.locate(blocks.start * size);
            let slot = parity.data_slot(stripe, k);
            let status = self.top_status()?;
            let members = self.world.members.borrow().clone();
            let holds = |m: &&Rc<Member>| in_sync(&status, m.name()) == Some(slot);
            let Some(member) = members.iter().find(holds) else { continue };
            if member.is_weak() || !self.survives_now(&status, member) {
                continue;
            }
            let row = self.chances.aimed.rng.range(0..rows);
            let at = parity.member_offset(stripe) + row * size;
            self.world.trace(|| format!("{} cannot read a block at {at}", member.name()));
            self.did.faults += 1;
            member.make_unreadable(at, 1);
            self.lose_parts(slot, member.unreadable());
            let first = parity.array_offset(stripe, k, 0) / size;
            self.read(first..first + rows)?;
            self.drain()?;
        }
        Ok(())
    }

    /// A block is written whose parity has rotten, which spreads that; a repair mends it; and the block is written again.
    fn repair_between_writes(&mut self) -> Result<(), Over> {
        let layout = self.layout(self.top());
        let Layout::Parity(parity) = &*layout else { return Ok(()) };
        if !self.is_whole()? {
            return Ok(());
        }
        let q = self.chances.aimed.rng.percent(50);
        let blocks: Vec<u64> = (0..1 + self.chances.aimed.rng.range(0..8))
            .map(|_| self.some_blocks(false).start)
            .collect();
        blocks.iter().for_each(|block| self.rot_parity(parity, *block, q));
        self.did.faults += 1;
        for repairs in [true, false] {
            for block in &blocks {
                for _ in 0..1 + self.chances.aimed.rng.range(0..2) {
                    self.write(*block..*block + 1, false)?;
                    self.drain()?;
                }
            }
            if repairs {
                self.world.trace(|| "repair".to_string());
                self.scrub_top(true)?;
            }
        }
        self.check_again()
    }

    /// A member fails while a window of the resync after a crash is open where writes were under way: all members are
    /// slow from the assembly on until then.
    fn fails_in_a_resync(&mut self) -> Result<(), Over> {
        self.drain()?;
        self.wait_for_jobs()?;
        let anywhere = self.chances.aimed.rng.percent(50);
        self.crash_under_writes(anywhere)?;
        self.slow_members(self.chances.aimed.rng.log_range(1..500));
        self.assemble()?;
        self.run_on(self.chances.aimed.rng.log_range(1..80))?;
        let lost = self.lose_in_a_resync();
        self.slow_members(1);
        lost?;
        self.wait_for_jobs()?;
        if self.top_status()?.degraded > 0 {
            self.mend(self.top())?;
        }
        self.check_again()
    }

    fn lose_in_a_resync(&mut self) -> Result<(), Over> {
        let Some((member, slot)) = self.spare_one()? else { return Ok(()) };
        self.did.faults += 1;
        if self.chances.aimed.rng.percent(50) {
            return self.fail_leaf(&member);
        }
        self.world.trace(|| format!("{} is gone", member.name()));
        member.set_gone(true);
        member.out.set(true);
        self.lose(slot);
        Ok(())
    }

    /// Every request takes so many times as long.
    fn slow_members(&self, times: u64) {
        self.world.members.borrow().iter().for_each(|member| member.slowness.set(times));
    }

    /// Power fails after a write with FUA, and a member is not found any more.
    fn missing_after_fua(&mut self) -> Result<(), Over> {
        self.drain()?;
        let mut written = Vec::new();
        for _ in 0..1 + self.chances.aimed.rng.range(0..4) {
            let blocks = self.some_blocks(false);
            self.write(blocks.clone(), true)?;
            written.push(blocks);
        }
        self.drain()?;
        self.crash()?;
        let members = self.world.members.borrow().clone();
        let fits = |m: &&Rc<Member>| {
            in_sync_at_rest(m).is_some()
                && !m.out.get()
                && !m.is_weak()
                && self.survives(m, in_sync_at_rest)
        };
        let fit: Vec<_> = members.iter().filter(fits).collect();
        if let Some(member) = fit.get(self.chances.aimed.rng.below(fit.len()))
            && images::superblock(&self.world, member).is_some()
        {
            self.is_not_found(member);
        }
        self.assemble()?;
        for blocks in written {
            self.read(blocks)?;
        }
        self.drain()
    }
}
