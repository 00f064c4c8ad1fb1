//! Situations of a single array that chance alone seldom hits, made on purpose: a crash right after the first answer
//! that a failing member could have spoilt, or between a bit and its data; a flush while a rebuild goes on that a stop has
//! interrupted; blocks that cannot be read beside rows that a crash has left open; members that fail in a resync, or
//! come back when others had their place meanwhile; parity that is repaired between two writes of one block.
//!
//! Nothing is excused for it: the rules, and what the level survives, are those of every other run. Choices come from a
//! stream of their own; plain runs have none of it.

use crate::images;
use crate::machine::Step;
use crate::member::Member;
use crate::run::Run;
use crate::steps::Steps;
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
    pub(crate) fn something_aimed(&mut self) -> Result<(), Over> {
        let aims = self.aimed.chance(50);
        if !aims || self.excused || !self.scenario.create.level.has_redundancy() {
            return Ok(());
        }
        self.oracle.end_steady();
        let parity = self.scenario.create.level.is_parity();
        match self.aimed.rng.range(0..8) {
            0 => self.crash_beside_a_failing_write(),
            1 | 2 if self.scenario.has_bitmap() => match self.aimed.rng.percent(70) {
                true => self.crash_between_bit_and_data(),
                false => self.comes_back_after_another(),
            },
            3 => self.flush_in_a_later_life_of_a_rebuild(),
            4 if parity => self.unreadable_beside_open_rows(),
            5 if parity => self.repair_between_writes(),
            6 if self.scenario.create.level == Level::Raid6 => self.fails_in_a_resync(),
            7 => self.missing_after_fua(),
            _ => self.crash_beside_a_failing_write(),
        }
    }

    // --- Pieces ----------------------------------------------------------------------------------

    /// A member that works and that the level can do without now.
    fn spare_one(&mut self) -> Result<Option<(Rc<Member>, usize)>, Over> {
        let status = self.status()?;
        let members = self.world.members.borrow().clone();
        let fits = |member: &&Rc<Member>| {
            !member.out.get()
                && !member.is_weak()
                && member.slot.get().is_some()
                && self.may_lose(member, |other| Run::whole_in(&status, other))
        };
        let fit: Vec<_> = members.iter().filter(fits).collect();
        let one = fit.get(self.aimed.rng.below(fit.len()));
        Ok(one.and_then(|member| Some((Rc::clone(member), member.slot.get()?))))
    }

    /// Blocks of the part of the array that most requests go to, or of any.
    fn some_blocks(&self, anywhere: bool) -> Range<u64> {
        let rng = &self.aimed.rng;
        let hot = (self.scenario.hot / self.scenario.block).clamp(1, self.oracle.len());
        let room = if anywhere { self.oracle.len() } else { hot };
        let start = rng.range(0..room);
        start..(start + rng.log_range(1..33)).min(self.oracle.len())
    }

    fn write(&mut self, blocks: Range<u64>, fua: bool) -> Result<(), Over> {
        let life = self.life.as_mut().ok_or(Over)?;
        life.client.write(&life.machine, &mut self.oracle, blocks, fua);
        Ok(())
    }

    fn read(&mut self, blocks: Range<u64>) -> Result<(), Over> {
        let life = self.life.as_mut().ok_or(Over)?;
        life.client.read(&life.machine, &mut self.oracle, blocks);
        Ok(())
    }

    fn run_on(&mut self, steps: u64) -> Result<(), Over> {
        for _ in 0..steps {
            if self.step()? == Step::Stuck {
                break;
            }
        }
        Ok(())
    }

    fn rest_until_bits_are_clear(&mut self) -> Result<(), Over> {
        let sleep = self.scenario.assemble.bitmap_daemon_sleep_ms.unwrap_or(5000);
        self.rest(4 * sleep * MILLISECOND)
    }

    /// The next life's jobs, and those of this one, take long, or as long as they did.
    fn slow_jobs(&mut self, slow: bool) -> Result<(), Over> {
        let speed = if slow { SLOW } else { self.aimed_speed };
        self.scenario.assemble.sync_speed = speed;
        if self.life.is_some() {
            // A running array takes these limits.
            let _ = self.control()?.jobs().set_sync_speed(speed.min_kib, speed.max_kib);
        }
        Ok(())
    }

    /// Power fails while some writes are under way; gives what they wrote.
    fn crash_under_writes(&mut self, anywhere: bool) -> Result<Vec<Range<u64>>, Over> {
        let mut written = Vec::new();
        for _ in 0..1 + self.aimed.rng.range(0..6) {
            let blocks = self.some_blocks(anywhere);
            self.write(blocks.clone(), false)?;
            written.push(blocks);
        }
        self.run_on(self.aimed.rng.log_range(1..60))?;
        self.crash()?;
        Ok(written)
    }

    /// A check counts nothing once jobs are done and nobody is missing.
    fn check_again(&mut self) -> Result<(), Over> {
        self.drain()?;
        self.wait_for_jobs()?;
        let status = self.status()?;
        if self.excused || self.forced || status.degraded > 0 || !self.holes.is_empty() {
            return Ok(());
        }
        let status = self.scrub_once(false)?;
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
        let after = self.aimed.rng.range(0..3) as u32;
        self.world.trace(|| format!("{} will fail a write in {after}", member.name()));
        self.faults += 1;
        member.fail_write_in(Some(after));
        self.holes.lose(&self.layout, slot, &mut self.oracle);
        for _ in 0..1 + self.aimed.rng.range(0..4) {
            let blocks = self.some_blocks(false);
            self.write(blocks, self.aimed.rng.percent(50))?;
        }
        let answered = self.life()?.client.ended;
        for _ in 0..2000 {
            let news = self.life()?.client.ended > answered;
            if news && member.out.get() || self.step()? == Step::Stuck {
                break;
            }
        }
        self.run_on(self.aimed.rng.range(0..4))?;
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
        self.write(blocks, self.aimed.rng.percent(30))?;
        let submissions = self.world.submissions.get() + self.aimed.rng.log_range(1..40);
        while self.world.submissions.get() < submissions && self.life()?.client.waiting() > 0 {
            self.step()?;
        }
        self.run_on(self.aimed.rng.range(0..4))?;
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
        self.faults += 1;
        self.fail_by_command(&member)?;
        self.remove_faulty()?;
        self.wait_for_jobs()?;
        if self.status()?.degraded > 0 {
            let Some(other) = self.free_member(Some(&member))? else { return Ok(()) };
            self.bring(&other)?;
            self.wait_for_jobs()?;
        }
        self.quiet_round()?;
        self.drain()?;
        self.rest_until_bits_are_clear()?;
        let status = self.status()?;
        let members = self.world.members.borrow().clone();
        let holds = |m: &&Rc<Member>| Run::whole_in(&status, m) == Some(slot) && !m.is_weak();
        let Some(holder) = members.iter().find(holds) else { return Ok(()) };
        if !self.may_lose(holder, |other| Run::whole_in(&status, other)) {
            return Ok(());
        }
        self.fail_by_command(holder)?;
        self.remove_faulty()?;
        if self.status()?.members.iter().any(|known| known.name == member.name()) {
            // Another that had failed earlier was removed instead.
            return Ok(());
        }
        self.bring(&member)?;
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
        if self.status()?.degraded == 0 {
            let Some((member, _)) = self.spare_one()? else { return Ok(()) };
            self.faults += 1;
            self.fail_by_command(&member)?;
        }
        self.add_a_member()?;
        let recovers = |status: &ArrayStatus| {
            status.job.as_ref().is_some_and(|job| job.kind == JobKind::Recover)
        };
        let time = self.aimed.rng.log_range(50..2000) * MILLISECOND;
        self.rest(time)?;
        if !recovers(&self.status()?) {
            return Ok(());
        }
        self.stop()?;
        self.assemble()?;
        for _ in 0..1 + self.aimed.rng.range(0..6) {
            let blocks = self.some_blocks(false);
            self.write(blocks, false)?;
        }
        self.drain()?;
        let life = self.life.as_mut().ok_or(Over)?;
        life.client.flush(&life.machine, &mut self.oracle);
        self.drain()?;
        self.run_on(self.aimed.rng.range(0..4))?;
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
        let (layout, size) = (Rc::clone(&self.layout), self.scenario.block);
        let Layout::Parity(parity) = &*layout else { return Ok(()) };
        let rows = parity.chunk_size() / size;
        for blocks in written {
            let (stripe, k, _) = parity.locate(blocks.start * size);
            let slot = parity.data_slot(stripe, k);
            let status = self.status()?;
            let members = self.world.members.borrow().clone();
            let holds = |m: &&Rc<Member>| Run::whole_in(&status, m) == Some(slot);
            let Some(member) = members.iter().find(holds) else { continue };
            if member.is_weak() || !self.may_lose(member, |other| Run::whole_in(&status, other)) {
                continue;
            }
            let row = self.aimed.rng.range(0..rows);
            let at = parity.member_offset(stripe) + row * size;
            self.world.trace(|| format!("{} cannot read a block at {at}", member.name()));
            self.faults += 1;
            member.make_unreadable(at, 1);
            for bad in member.unreadable() {
                self.holes.lose_part(&self.layout, slot, bad, &mut self.oracle);
            }
            let first = parity.array_offset(stripe, k, 0) / size;
            self.read(first..first + rows)?;
            self.drain()?;
        }
        Ok(())
    }

    /// A block is written whose parity has rotten, which spreads that; a repair mends it; and the block is written again.
    fn repair_between_writes(&mut self) -> Result<(), Over> {
        let layout = Rc::clone(&self.layout);
        let Layout::Parity(parity) = &*layout else { return Ok(()) };
        if !self.is_whole()? {
            return Ok(());
        }
        let q = self.aimed.rng.percent(50);
        let blocks: Vec<u64> =
            (0..1 + self.aimed.rng.range(0..8)).map(|_| self.some_blocks(false).start).collect();
        blocks.iter().for_each(|block| self.rot_parity(parity, *block, q));
        self.faults += 1;
        for repairs in [true, false] {
            for block in &blocks {
                for _ in 0..1 + self.aimed.rng.range(0..2) {
                    self.write(*block..*block + 1, false)?;
                    self.drain()?;
                }
            }
            if repairs {
                self.world.trace(|| "repair".to_string());
                self.scrub_once(true)?;
            }
        }
        self.check_again()
    }

    /// A member fails while a window of the resync after a crash is open where writes were under way: all members are
    /// slow from the assembly on until then.
    fn fails_in_a_resync(&mut self) -> Result<(), Over> {
        self.drain()?;
        self.wait_for_jobs()?;
        let anywhere = self.aimed.rng.percent(50);
        self.crash_under_writes(anywhere)?;
        self.slow_members(self.aimed.rng.log_range(1..500));
        self.assemble()?;
        self.run_on(self.aimed.rng.log_range(1..80))?;
        let lost = self.lose_in_a_resync();
        self.slow_members(1);
        lost?;
        self.wait_for_jobs()?;
        if self.status()?.degraded > 0 {
            self.add_a_member()?;
        }
        self.check_again()
    }

    fn lose_in_a_resync(&mut self) -> Result<(), Over> {
        let Some((member, slot)) = self.spare_one()? else { return Ok(()) };
        self.faults += 1;
        if self.aimed.rng.percent(50) {
            return self.fail_by_command(&member);
        }
        self.world.trace(|| format!("{} is gone", member.name()));
        member.set_gone(true);
        member.out.set(true);
        self.holes.lose(&self.layout, slot, &mut self.oracle);
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
        for _ in 0..1 + self.aimed.rng.range(0..4) {
            let blocks = self.some_blocks(false);
            self.write(blocks.clone(), true)?;
            written.push(blocks);
        }
        self.drain()?;
        self.crash()?;
        let members = self.world.members.borrow().clone();
        let whole = |m: &Member| m.slot.get().filter(|_| m.in_sync.get());
        let fits = |m: &&Rc<Member>| {
            whole(m).is_some() && !m.out.get() && !m.is_weak() && self.may_lose(m, whole)
        };
        let fit: Vec<_> = members.iter().filter(fits).collect();
        if let Some(member) = fit.get(self.aimed.rng.below(fit.len()))
            && images::superblock(&self.world, member).is_some()
        {
            self.world.trace(|| format!("{} is not found any more", member.name()));
            member.set_gone(true);
            member.out.set(true);
        }
        self.assemble()?;
        for blocks in written {
            self.read(blocks)?;
        }
        self.drain()
    }
}
