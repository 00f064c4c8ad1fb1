//! Rounds of requests, with what happens meanwhile, and the time up to a crash.

use super::Run;
use crate::checkers::memory_bounded;
use crate::machine::Step;
use crate::waiting::Over;
use std::ops::Range;
use std::rc::Rc;

impl Run {
    pub(super) fn round(&mut self) -> Result<(), Over> {
        let requests = self.rng.range(1..self.plan.scenario.requests + 1);
        let mut sent = 0;
        while sent < requests {
            let depth = 1 + self.rng.range(0..self.plan.scenario.depth) as usize;
            let scenario = &self.plan.scenario;
            if let Some(life) = self.life.as_mut()
                && life.client.waiting() < depth
            {
                sent += 1;
                life.client.send_random(&life.machine, scenario, &mut self.oracle);
                memory_bounded::running(
                    &life.machine,
                    (self.plan.layers * life.client.waiting()) << 20,
                );
                if self.rng.range(0..1000) < self.plan.scenario.faults {
                    self.something_happens()?;
                }
                if self.settings_rng.range(0..1000) < self.plan.scenario.changes {
                    self.settings_change()?;
                }
            }
            self.step()?;
        }
        if self.rng.percent(50) { self.drain() } else { Ok(()) }
    }

    /// Requests, and nothing else.
    pub(super) fn quiet_round(&mut self) -> Result<(), Over> {
        let scenario = &mut self.plan.scenario;
        let (faults, changes) = (scenario.faults, scenario.changes);
        (scenario.faults, scenario.changes) = (0, 0);
        let result = self.round();
        (self.plan.scenario.faults, self.plan.scenario.changes) = (faults, changes);
        result
    }

    /// Something fails, or somebody gives a command.
    fn something_happens(&mut self) -> Result<(), Over> {
        self.oracle.end_steady();
        let odds = &self.plan.odds;
        let member_fails = odds.member_fails;
        if self.mishaps.chance(odds.mishap) {
            return self.mishap_under_load();
        }
        if self.chances.replaced.chance(25) {
            return self.replace_a_member();
        }
        if self.plan.scenario.bitmap_changes && self.rng.percent(odds.bitmap_change) {
            return self.change_a_bitmap();
        }
        if self.plan.scenario.ppl_changes && self.rng.percent(odds.bitmap_change) {
            return self.change_the_log();
        }
        match self.rng.range(0..20) {
            drawn if drawn < member_fails => self.a_member_fails(),
            0..11 => self.an_array_fails(),
            11..15 => self.mend_something(),
            15..17 => self.start_a_scrub(),
            _ => self.a_spare_fails(),
        }
    }

    /// Runs up to the instant of a crash: after some requests to members, or soon after a superblock was written.
    pub(super) fn run_on_for_a_while(&mut self) -> Result<(), Over> {
        let world = Rc::clone(&self.world);
        let (most, most_metadata) = self.plan.odds.until_crash;
        let requests = world.submissions.get() + self.rng.log_range(1..most);
        let metadata = world.metadata_writes.get() + self.rng.range(1..most_metadata);
        let by_metadata = self.rng.percent(30);
        // With a bitmap, of a single array: data may have followed its bit, or not.
        let bits = self.plan.is_alone() && self.plan.arrays[self.top()].has_bitmap();
        let mut after = if by_metadata && bits { self.rng.range(0..40) } else { 0 };
        let until = world.now() + self.rng.log_range(1_000..2_000_000_000);
        loop {
            let there = if by_metadata {
                world.metadata_writes.get() >= metadata
            } else {
                world.submissions.get() >= requests
            };
            let over = there && after == 0;
            if over || world.now() >= until || self.step()? == Step::Stuck {
                return Ok(());
            }
            after -= u64::from(there);
        }
    }

    // --- Requests ------------------------------------------------------------------------------

    /// Blocks of the part of the array that most requests go to: so many, from the first on.
    pub(super) fn hot_blocks(&self) -> u64 {
        (self.plan.scenario.hot / self.plan.scenario.block).clamp(1, self.oracle.len())
    }

    pub(super) fn write(&mut self, blocks: Range<u64>, fua: bool) -> Result<(), Over> {
        let life = self.life.as_mut().ok_or(Over)?;
        life.client.write(&life.machine, &mut self.oracle, blocks, fua);
        Ok(())
    }

    pub(super) fn read(&mut self, blocks: Range<u64>) -> Result<(), Over> {
        let life = self.life.as_mut().ok_or(Over)?;
        life.client.read(&life.machine, &mut self.oracle, blocks);
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), Over> {
        let life = self.life.as_mut().ok_or(Over)?;
        life.client.flush(&life.machine, &mut self.oracle);
        Ok(())
    }
}
