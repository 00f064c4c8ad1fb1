//! Going on in time: a run steps until something is there, and gives up on what waits for ever. Each step looks at what
//! came back to the client.

use super::Run;
use crate::client::Failed;
use crate::machine::{Later, Step};
use crate::waiting::{Over, PATIENCE, SECOND};
use braid_array::status::MemberState;
use braid_device::{IoError, IoErrorKind};
use braid_shard::Nanos;

impl Run {
    /// Lets the shards run, or the clock, and looks at what came back.
    pub(super) fn step(&mut self) -> Result<Step, Over> {
        let nobody_has_it = self.promises.flushes_fail || self.promises.excused;
        let redundant = self.redundant(self.top());
        let life = self.life.as_mut().ok_or(Over)?;
        let step = life.machine.step();
        if self.world.loss_was_shown.take() && nobody_has_it {
            self.oracle.show_loss();
            if redundant {
                // Another copy still has what this one has lost, and the array can do without neither.
                self.oracle.end_steady();
                self.oracle.settled = false;
            }
        }
        let (acknowledged, errors) = life.client.collect(&life.machine, &mut self.oracle);
        let oldest = life.client.oldest();
        if self.plan.is_alone() && self.redundant(self.top()) && !acknowledged.is_empty() {
            self.note_missed(&acknowledged);
            self.note_lost();
        }
        for failed in errors {
            self.judge(&failed);
        }
        self.goes_on()?;
        let now = self.world.now();
        let forgotten = step == Step::Stuck && oldest.is_some();
        if forgotten || step == Step::Waited && oldest.is_some_and(|oldest| now > oldest + PATIENCE)
        {
            return self.stuck("requests");
        }
        Ok(step)
    }

    /// A request has ended with an error, which is seldom right.
    fn judge(&self, failed: &Failed) {
        let Failed { what, flush, changes, error } = failed;
        if self.promises.excused || *flush && self.promises.flushes_fail {
            return;
        }
        // Nothing is written without the journal.
        if *changes && self.promises.journal_fails && error.kind == IoErrorKind::Refused {
            return;
        }
        if self.stopping.is_some_and(|since| self.is_refused(since, error)) {
            return;
        }
        let lost = self.promises.lost_with_a_liar && error.kind == IoErrorKind::Medium;
        let checker = if lost { "blocks_are_there" } else { "requests_succeed" };
        self.world.fail(checker, format!("{what}: {error}"));
    }

    /// A stop that has begun at `since` ends requests so. It does not wait for a member that says nothing for a second,
    /// also where nobody else has what it holds.
    fn is_refused(&self, since: Nanos, error: &IoError) -> bool {
        match error.kind {
            IoErrorKind::Refused => true,
            IoErrorKind::Gone if self.plan.is_alone() => {
                !self.redundant(self.top()) && self.world.now() > since + SECOND
            }
            IoErrorKind::Gone => self.world.waits_for_longer_than(SECOND),
            _ => false,
        }
    }

    fn stuck<T>(&self, what: &str) -> Result<T, Over> {
        let life = self.life.as_ref().ok_or(Over)?;
        let tasks: Vec<usize> = life.machine.shards.iter().map(|s| s.live_tasks()).collect();
        let text = format!(
            "{what} wait: [{}]; at members: [{}]; live tasks by shard: {tasks:?}",
            life.client.describe_waiting(),
            self.world.describe_under_way()
        );
        self.fail("nothing_waits_for_ever", text)
    }

    /// Some steps, as many as there are unless nothing will ever happen again.
    pub(super) fn run_on(&mut self, steps: u64) -> Result<(), Over> {
        for _ in 0..steps {
            if self.step()? == Step::Stuck {
                break;
            }
        }
        Ok(())
    }

    /// Steps until `later` is there.
    pub(super) fn wait<T>(&mut self, what: &str, later: &Later<T>) -> Result<T, Over> {
        let mut start = self.world.now();
        loop {
            if let Some(value) = later.borrow_mut().take() {
                return Ok(value);
            }
            let stuck = self.step()? == Step::Stuck && later.borrow().is_none();
            let now = self.world.now();
            if stuck || now > start + PATIENCE {
                if !self.wake_the_needed()? {
                    return self.stuck(what);
                }
                start = now;
            }
        }
    }

    /// Steps until what array `nr` tells has the member of this name in `state`, or not any more: what a command began is
    /// recorded when the other members allow it.
    pub(super) fn wait_until_recorded(
        &mut self,
        nr: usize,
        name: &str,
        state: Option<MemberState>,
    ) -> Result<(), Over> {
        let mut start = self.world.now();
        loop {
            let Some(status) = self.status(nr)? else { return Ok(()) };
            let known = status.members.iter().find(|member| member.name == name);
            if known.is_none_or(|member| Some(member.state) == state) {
                return Ok(());
            }
            let stuck = self.step()? == Step::Stuck;
            let now = self.world.now();
            if stuck || now > start + PATIENCE {
                if !self.wake_the_needed()? {
                    return self.stuck(&format!("the record of what became of {name}"));
                }
                start = now;
            }
        }
    }

    /// Steps until every request has come back.
    pub(super) fn drain(&mut self) -> Result<(), Over> {
        while self.life()?.client.waiting() > 0 {
            let stuck = self.step()? == Step::Stuck;
            if stuck && self.life()?.client.waiting() > 0 {
                return self.stuck("requests");
            }
        }
        Ok(())
    }

    /// Nothing is asked of the arrays for so long.
    pub(super) fn rest(&mut self, time: Nanos) -> Result<(), Over> {
        self.drain()?;
        let until = self.world.now() + time;
        while self.world.now() < until && self.step()? != Step::Stuck {}
        Ok(())
    }

    /// Waits until no array with redundancy has a job.
    pub(super) fn wait_for_jobs(&mut self) -> Result<(), Over> {
        let redundant = |nr: &usize| self.redundant(*nr);
        let redundant: Vec<usize> = (0..self.plan.arrays.len()).filter(redundant).collect();
        for nr in &redundant {
            if let Some(control) = self.control(*nr)? {
                let later =
                    self.life()?.machine.begin(async move { control.jobs().wait_idle().await });
                self.wait("jobs", &later)?;
            }
        }
        if redundant.is_empty() { Ok(()) } else { self.look_around() }
    }

    /// Reads every block, several at a time.
    pub(super) fn read_everything(&mut self) -> Result<(), Over> {
        let (mut at, blocks, block) = (0, self.oracle.len(), self.plan.scenario.block);
        while at < blocks {
            let len = self.rng.log_range(1..(1 << 20) / block + 1).max((64 << 10) / block);
            let end = (at + len).min(blocks);
            while self.life()?.client.waiting() >= 8 {
                self.step()?;
            }
            self.read(at..end)?;
            at = end;
        }
        self.drain()
    }
}
