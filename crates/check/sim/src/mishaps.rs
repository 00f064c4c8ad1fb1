//! What befalls single arrays beyond failing members: caches that are lost with a failed flush, also where no other
//! member has what they held, members that hang, or are slow and answer after they were failed, parity that rots under
//! load and is repaired, members that come back as they were long ago, and crashes at moments that have something of their
//! own: while the array is created or assembled, when its job has just ended and it is idle, and those of the process
//! alone, which leave the members' caches as they are.
//!
//! All is drawn from a stream of its own. A run that is *plain* has none of it: seeds that failed before there were
//! mishaps stay the runs that they were.
//!
//! Does not go beyond what the level survives: whoever is hit counts as lost as a whole, as in `faults`. But for the failed
//! flushes of levels without redundancy, after which clients know what may be lost.

use crate::device::SimOpener;
use crate::images;
use crate::machine::{Machine, Step};
use crate::member::Member;
use crate::run::Run;
use crate::steps::Steps;
use crate::waiting::Over;
use braid_array::assemble::assemble;
use braid_array::status::JobOutcome;
use braid_format::superblock::Superblock;
use braid_layout::{Layout, Parity};
use braid_shard::Nanos;
use std::ops::Range;
use std::rc::Rc;

/// A command takes effect at once when it takes no longer, in nanoseconds: other members may be slow, too.
const AT_ONCE: Nanos = 60_000_000_000;

impl Run {
    /// Something that `faults` does not know happens under load.
    pub(crate) fn mishap_under_load(&mut self) -> Result<(), Over> {
        match self.mishaps.rng.range(0..10) {
            0..5 => self.flushes_fail(),
            5..7 => self.hangs(),
            _ => self.slow_and_failed(),
        }
    }

    /// A member that works and that the level can do without now.
    fn one_to_lose(&mut self) -> Result<Option<(Rc<Member>, usize)>, Over> {
        if !self.scenario.create.level.has_redundancy() || self.excused {
            return Ok(None);
        }
        let status = self.status()?;
        let members = self.world.members.borrow().clone();
        let mut working: Vec<_> = members
            .iter()
            .filter(|member| member.slot.get().is_some() && !member.out.get() && !member.is_weak())
            .collect();
        self.mishaps.rng.shuffle(&mut working);
        let found =
            working.first().and_then(|member| Some((Rc::clone(member), member.slot.get()?)));
        Ok(found.filter(|(member, _)| self.may_lose(member, |other| Run::whole_in(&status, other))))
    }

    /// Flushes of a member fail, once or for ever, perhaps of two at the same time; often there are flushes at once, and
    /// a crash before everybody knows.
    ///
    /// Not with bad-block logs: what one member has lost and others have recorded as bad is nowhere, and is told to
    /// each client by a flush that fails.
    fn flushes_fail(&mut self) -> Result<(), Over> {
        if self.scenario.create.bad_block_log {
            return self.slow_and_failed();
        }
        let times = if self.mishaps.rng.percent(30) { u32::MAX } else { 1 };
        if !self.scenario.create.level.has_redundancy() {
            self.one_loses_what_nobody_else_has(times);
        }
        let just_written = self.write_what_is_lost()?;
        for _ in 0..1 + u32::from(self.mishaps.rng.percent(25)) {
            let Some((member, slot)) = self.one_to_lose()? else { break };
            self.world.trace(|| format!("flushes of {} fail ({times})", member.name()));
            self.faults += 1;
            member.fail_flushes(times);
            self.holes.lose(&self.layout, slot, &mut self.oracle);
        }
        if self.mishaps.rng.percent(70) {
            for _ in 0..1 + self.mishaps.rng.range(0..3) {
                let steps = self.mishaps.rng.range(0..6);
                if let Some(life) = self.life.as_mut() {
                    life.client.flush(&life.machine, &mut self.oracle);
                }
                for _ in 0..steps {
                    self.step()?;
                }
            }
        }
        self.read_what_is_lost(&just_written)?;
        if self.mishaps.rng.percent(40) {
            for _ in 0..self.mishaps.rng.log_range(1..100) {
                self.step()?;
            }
            self.crash()?;
            self.assemble()?;
            self.read_again()?;
        }
        Ok(())
    }

    /// After a crash, while parity is not in sync yet, a member cannot read some blocks: mending them must leave alone what
    /// can be read beside them.
    pub(crate) fn blocks_fade(&mut self) -> Result<(), Over> {
        let layout = Rc::clone(&self.layout);
        let Layout::Parity(parity) = &*layout else { return Ok(()) };
        if self.excused || !self.fading.chance(50) {
            return Ok(());
        }
        let status = self.status()?;
        let members = self.world.members.borrow().clone();
        let works = |m: &&Rc<Member>| m.slot.get().is_some() && !m.out.get() && !m.is_weak();
        let working: Vec<_> = members.iter().filter(works).collect();
        let Some(member) = working.get(self.fading.rng.below(working.len())) else { return Ok(()) };
        let (slot, whole) =
            (member.slot.get().unwrap_or(0), |m: &Member| Run::whole_in(&status, m));
        if !self.may_lose(member, whole) {
            return Ok(());
        }
        self.oracle.end_steady();
        self.faults += 1;
        let hot = (self.scenario.hot / self.scenario.block).clamp(1, self.oracle.len());
        for _ in 0..2 + self.fading.rng.range(0..8) {
            let block = self.fading.rng.range(0..hot);
            let (stripe, _, within) = parity.locate(block * self.scenario.block);
            let at = parity.member_offset(stripe) + within;
            self.world.trace(|| format!("{} cannot read one block at {at}", member.name()));
            member.make_unreadable(at, 1);
        }
        for bad in member.unreadable() {
            self.holes.lose_part(&self.layout, slot, bad, &mut self.oracle);
        }
        let chunk = parity.chunk_size() / self.scenario.block;
        for _ in 0..8 {
            let start = self.fading.rng.range(0..hot) / chunk * chunk;
            let blocks = start..(start + 4 * chunk).min(self.oracle.len());
            if let Some(life) = self.life.as_mut() {
                life.client.read(&life.machine, &mut self.oracle, blocks);
            }
        }
        self.drain()
    }

    /// Where reads see what a failed flush has lost: some writes, of which no flush has come yet. Gives their blocks.
    fn write_what_is_lost(&mut self) -> Result<Vec<Range<u64>>, Over> {
        let shows = self.world.members.borrow().iter().any(|member| member.shows_loss.get());
        if !shows || !self.read_lost.chance(70) {
            return Ok(Vec::new());
        }
        let chunk = self.scenario.create.chunk_size.unwrap_or(64 << 10) / self.scenario.block;
        let room = (self.scenario.hot / self.scenario.block).clamp(1, self.oracle.len());
        let mut written = Vec::new();
        for _ in 0..1 + self.read_lost.rng.range(0..6) {
            let len = self.read_lost.rng.log_range(1..chunk + 1);
            let start = self.read_lost.rng.range(0..room);
            let blocks = start..(start + len).min(self.oracle.len());
            written.push(blocks.clone());
            if let Some(life) = self.life.as_mut() {
                life.client.write(&life.machine, &mut self.oracle, blocks, false);
            }
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
        let slow = &members[self.read_lost.rng.below(members.len())];
        slow.slowness.set(self.read_lost.rng.log_range(1..100));
        if let Some(life) = self.life.as_mut() {
            life.client.flush(&life.machine, &mut self.oracle);
        }
        let result = self.use_what_is_lost(written);
        slow.slowness.set(1);
        result
    }

    fn use_what_is_lost(&mut self, written: &[Range<u64>]) -> Result<(), Over> {
        for _ in 0..self.read_lost.rng.log_range(10..200) {
            let blocks = self.read_lost.rng.pick(written).clone();
            let one = self.read_lost.rng.range(blocks.clone());
            let what = self.read_lost.rng.range(0..10);
            if let Some(life) = self.life.as_mut()
                && life.client.waiting() < 64
            {
                match what {
                    0..4 => life.client.read(&life.machine, &mut self.oracle, blocks),
                    4 => life.client.write(&life.machine, &mut self.oracle, one..one + 1, false),
                    _ => {}
                }
            }
            self.step()?;
        }
        Ok(())
    }

    /// Flushes of a member fail, and no other holds what it loses: each client is told by a flush that fails, or whoever
    /// stops the array.
    fn one_loses_what_nobody_else_has(&mut self, times: u32) {
        if self.excused || !self.sole_copies.chance(80) {
            return;
        }
        let members = self.world.members.borrow();
        let member = &members[self.sole_copies.rng.below(members.len())];
        self.world.trace(|| format!("flushes of {} fail ({times})", member.name()));
        self.faults += 1;
        member.fail_flushes(times);
        self.flushes_fail = true;
    }

    /// A member does not answer any more. Failing it takes effect at once; otherwise it is given up when its time is over.
    fn hangs(&mut self) -> Result<(), Over> {
        let Some((member, slot)) = self.one_to_lose()? else { return Ok(()) };
        self.world.trace(|| format!("{} hangs", member.name()));
        self.faults += 1;
        member.hung.set(true);
        self.holes.lose(&self.layout, slot, &mut self.oracle);
        for _ in 0..self.mishaps.rng.log_range(1..200) {
            self.step()?;
        }
        if self.mishaps.rng.percent(50) {
            return Ok(());
        }
        let since = self.world.now();
        self.fail_by_command(&member)?;
        let took = self.world.now() - since;
        if took > AT_ONCE {
            let text = format!("{} hangs, and failing it took {took} ns", member.name());
            return self.fail("nothing_waits_for_ever", text);
        }
        Ok(())
    }

    /// A member becomes slow and is failed by command, so that it answers afterwards.
    fn slow_and_failed(&mut self) -> Result<(), Over> {
        let Some((member, slot)) = self.one_to_lose()? else { return Ok(()) };
        let times = self.mishaps.rng.log_range(20..500);
        self.world.trace(|| format!("{} is {times} times as slow", member.name()));
        self.faults += 1;
        member.slowness.set(times);
        self.holes.lose(&self.layout, slot, &mut self.oracle);
        for _ in 0..self.mishaps.rng.log_range(1..100) {
            self.step()?;
        }
        let failed = self.fail_by_command(&member);
        member.slowness.set(1);
        failed
    }

    // --- Between rounds ------------------------------------------------------------------------

    pub(crate) fn mishap_between_rounds(&mut self) -> Result<(), Over> {
        self.oracle.end_steady();
        match self.mishaps.rng.range(0..10) {
            0..3 => self.rot_and_repair(),
            3..6 => self.comes_back_as_it_was(),
            6..8 => self.flushes_fail(),
            _ => self.idle_and_crash(),
        }
    }

    /// Requests, and nothing else.
    pub(crate) fn quiet_round(&mut self) -> Result<(), Over> {
        let (faults, changes) = (self.scenario.faults, self.scenario.changes);
        (self.scenario.faults, self.scenario.changes) = (0, 0);
        let result = self.round();
        (self.scenario.faults, self.scenario.changes) = (faults, changes);
        result
    }

    /// Nothing is asked of the array for so long.
    pub(crate) fn rest(&mut self, time: Nanos) -> Result<(), Over> {
        self.drain()?;
        let until = self.world.now() + time;
        while self.world.now() < until && self.step()? != Step::Stuck {}
        Ok(())
    }

    /// Redundancy holds, no member is missing or weak.
    pub(crate) fn is_whole(&mut self) -> Result<bool, Over> {
        if !self.scenario.create.level.has_redundancy() || self.excused || self.forced {
            return Ok(false);
        }
        self.drain()?;
        self.wait_for_jobs()?;
        let status = self.status()?;
        let members = self.world.members.borrow();
        let fit = |slot| {
            let mut holders =
                members.iter().filter(|m| m.slot.get() == Some(slot) && m.in_sync.get());
            holders.any(|member| !member.out.get() && !member.is_weak() && !member.was_bad.get())
        };
        let holders = (0..self.layout.slots()).all(fit);
        let jobs_done = status.job.is_none() && status.resynced.is_none();
        Ok(holders && jobs_done && status.degraded == 0 && self.holes.is_empty())
    }

    /// P, or with `q` Q where there is one, of the row of a block rots on a member in sync.
    pub(crate) fn rot_parity(&self, parity: &Parity, block: u64, q: bool) {
        let (stripe, _, within) = parity.locate(block * self.scenario.block);
        let map = parity.map_stripe(stripe);
        let slot = map.q_slot().filter(|_| q).unwrap_or(map.p_slot());
        let members = self.world.members.borrow();
        let mut holders = members.iter().filter(|m| m.slot.get() == Some(slot) && m.in_sync.get());
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
        let layout = Rc::clone(&self.layout);
        let Layout::Parity(parity) = &*layout else { return Ok(()) };
        if !self.is_whole()? {
            return Ok(());
        }
        let blocks = (self.scenario.hot / self.scenario.block).clamp(1, self.oracle.len());
        let q = self.mishaps.rng.percent(50);
        for _ in 0..1 + self.mishaps.rng.range(0..12) {
            self.rot_parity(parity, self.mishaps.rng.range(0..blocks), q);
        }
        self.faults += 1;
        self.quiet_round()?;
        self.world.trace(|| "repair".to_string());
        if let Err(error) = self.control()?.jobs().start_repair() {
            return self.fail("requests_succeed", error.to_string());
        }
        self.quiet_round()?;
        self.drain()?;
        self.wait_for_jobs()?;
        let outcome = self.status()?.last_job.map(|job| job.outcome);
        if outcome != Some(JobOutcome::Done) {
            return self.fail("requests_succeed", format!("a repair ended: {outcome:?}"));
        }
        self.quiet_round()?;
        self.drain()?;
        let status = self.scrub_once(false)?;
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
        let Some((member, slot)) = self.one_to_lose()? else { return Ok(()) };
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
        let members = self.world.members.borrow().clone();
        let freshest =
            images::md_choice(&self.world, &members).map(|choice| choice.freshest.events);
        let old = freshest.is_some_and(|freshest| freshest > then + 1);
        // A crash opens the write hole; parity levels do not promise to lose a member then.
        let whole = |other: &Member| other.slot.get().filter(|_| other.in_sync.get());
        if old && self.holes.is_empty() && self.may_lose(&member, whole) {
            self.world.trace(|| format!("{} is as it was {then} updates on", member.name()));
            self.faults += 1;
            member.restore(&snapshot);
            member.mark_stale();
            member.in_sync.set(false);
            member.slot.set(None);
            self.holes.lose(&self.layout, slot, &mut self.oracle);
            self.assemble()?;
            return self.add_a_member();
        }
        self.assemble()
    }

    /// The array has done its jobs and has nothing to do when power fails, or the process ends.
    pub(crate) fn idle_and_crash(&mut self) -> Result<(), Over> {
        self.drain()?;
        self.wait_for_jobs()?;
        let time = self.mishaps.rng.log_range(1_000..3_000_000_000);
        self.rest(time)?;
        self.crash()?;
        self.assemble()
    }

    // --- Assembly ------------------------------------------------------------------------------

    /// Now and then power fails, or the process ends, while the array is assembled or has just been.
    pub(crate) fn crash_in_assemble(&mut self) -> Result<(), Over> {
        if !self.mishaps.chance(12) {
            return Ok(());
        }
        let present = self.present();
        // A member that is gone may be rebuilt before the crash: what the write hole has taken with it is taken now.
        self.look_at_images(&present)?;
        let machine = Machine::start(&self.world, self.scenario.shards);
        let openers = present.iter().map(|member| SimOpener::of(&self.world, member.kind.index));
        let openers = openers.collect();
        let (context, options) = (machine.context.clone(), self.scenario.assemble.clone());
        let later = machine.begin(async move { assemble(&context, openers, options).await });
        self.mishaps.run_on(&machine, self.mishaps.rng.log_range(1..400), || false);
        let killed = self.mishaps.kills(30, &self.world);
        self.world.trace(|| "CRASH during assembly".to_string());
        if killed {
            self.world.kill()
        } else {
            self.world.power_cut()
        }
        later.borrow_mut().take();
        drop(machine);
        let open = if killed { self.oracle.kill() } else { self.oracle.crash() };
        self.holes.crash(&self.layout, self.scenario.block, &open);
        self.world.missed.borrow_mut().clear();
        self.learn_from_images();
        if self.world.failure().is_some() { Err(Over) } else { Ok(()) }
    }

    /// Reads blocks again and again: before a resync has come by, too, each is what it was read as at first.
    pub(crate) fn read_again(&mut self) -> Result<(), Over> {
        if !self.mishaps.chance(60) {
            return Ok(());
        }
        let blocks = (self.scenario.hot / self.scenario.block).clamp(1, self.oracle.len());
        let starts: Vec<u64> = (0..8).map(|_| self.mishaps.rng.range(0..blocks)).collect();
        for _ in 0..3 {
            for start in &starts {
                let end = (start + 8).min(self.oracle.len());
                if let Some(life) = self.life.as_mut() {
                    life.client.read(&life.machine, &mut self.oracle, *start..end);
                }
            }
            self.drain()?;
        }
        Ok(())
    }
}
