//! Flushes of members of a single array that fail, also where no other member has what they held, and reads of what is
//! lost before anybody was told.

use super::Run;
use crate::waiting::Over;
use std::ops::Range;

impl Run {
    /// Flushes fail, perhaps of two members at the same time.
    pub(super) fn flushes_of_one_or_two_fail(&mut self) -> Result<(), Over> {
        let times = self.times_that_flushes_fail();
        if !self.redundant(self.top()) {
            self.one_loses_what_nobody_else_has(times);
        }
        let just_written = self.write_what_is_lost()?;
        for _ in 0..1 + u32::from(self.mishaps.rng.percent(25)) {
            let Some(member) = self.one_to_lose(true)? else { break };
            let slot = member.slot.get();
            self.fail_flushes(&member, times);
            slot.into_iter().for_each(|slot| self.lose(slot));
        }
        if self.mishaps.rng.percent(70) {
            for _ in 0..1 + self.mishaps.rng.range(0..3) {
                let steps = self.mishaps.rng.range(0..6);
                self.flush()?;
                for _ in 0..steps {
                    self.step()?;
                }
            }
        }
        self.read_what_is_lost(&just_written)?;
        if self.mishaps.rng.percent(40) {
            self.some_steps(100)?;
            self.next_life(true)?;
            self.read_again()?;
        }
        Ok(())
    }

    /// Flushes of a member fail, and no other holds what it loses: each client is told by a flush that fails, or whoever
    /// stops the array.
    fn one_loses_what_nobody_else_has(&mut self, times: u32) {
        if self.promises.excused || !self.chances.sole_copies.chance(80) {
            return;
        }
        let members = self.world.members.borrow().clone();
        let member = &members[self.chances.sole_copies.rng.below(members.len())];
        self.fail_flushes(member, times);
        self.promises.flushes_fail = true;
    }

    /// Where reads see what a failed flush has lost: some writes, of which no flush has come yet. Gives their blocks.
    fn write_what_is_lost(&mut self) -> Result<Vec<Range<u64>>, Over> {
        let shows = self.world.members.borrow().iter().any(|member| member.shows_loss.get());
        if !shows || !self.chances.read_lost.chance(70) {
            return Ok(Vec::new());
        }
        let scenario = &self.plan.scenario;
        let chunk = scenario.create.chunk_size.unwrap_or(64 << 10) / scenario.block;
        let room = self.hot_blocks();
        let mut written = Vec::new();
        for _ in 0..1 + self.chances.read_lost.rng.range(0..6) {
            let len = self.chances.read_lost.rng.log_range(1..chunk + 1);
            let start = self.chances.read_lost.rng.range(0..room);
            let blocks = start..(start + len).min(self.oracle.len());
            written.push(blocks.clone());
            self.write(blocks, false)?;
        }
        self.drain()?;
        Ok(written)
    }

    /// These blocks are flushed, and read and changed in part while nobody has been told yet that the flush fails.
    fn read_what_is_lost(&mut self, written: &[Range<u64>]) -> Result<(), Over> {
        if written.is_empty() {
            return Ok(());
        }
        // The array's flush waits for all members, and so takes the longer.
        let members = self.world.members.borrow().clone();
        let slow = &members[self.chances.read_lost.rng.below(members.len())];
        slow.slowness.set(self.chances.read_lost.rng.log_range(1..100));
        self.flush()?;
        let result = self.use_what_is_lost(written);
        slow.slowness.set(1);
        result
    }

    fn use_what_is_lost(&mut self, written: &[Range<u64>]) -> Result<(), Over> {
        for _ in 0..self.chances.read_lost.rng.log_range(10..200) {
            let rng = &self.chances.read_lost.rng;
            let blocks = rng.pick(written).clone();
            let one = rng.range(blocks.clone());
            let what = rng.range(0..10);
            if self.life()?.client.waiting() < 64 {
                match what {
                    0..4 => self.read(blocks)?,
                    4 => self.write(one..one + 1, false)?,
                    _ => {}
                }
            }
            self.step()?;
        }
        Ok(())
    }
}
