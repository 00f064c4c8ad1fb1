//! How every kind of run goes on in time: it steps until something is there, and gives up on what waits for
//! ever.

use crate::client::Client;
use crate::machine::{Later, Machine, Step};
use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::waiting::{Over, PATIENCE};
use crate::world::World;
use braid_array::status::{ArrayStatus, Ended, Left, MemberState};
use braid_shard::Nanos;

/// In nanoseconds.
pub const SECOND: Nanos = 1_000_000_000;

/// A stop has left an array like this, and says so: writes may be half done, or not durable.
pub(crate) fn ends_like_a_crash(left: &Left) -> bool {
    left.ended == Ended::Active || left.not_durable.is_some()
}

/// What steps need of a run while its arrays run.
pub(crate) struct Going<'a> {
    pub(crate) world: &'a World,
    pub(crate) machine: &'a Machine,
    pub(crate) client: &'a mut Client,
    pub(crate) oracle: &'a mut Oracle,
    pub(crate) rng: &'a Rng,
    /// Bytes of a logical block.
    pub(crate) block: u64,
}

impl Going<'_> {
    fn stuck<T>(&self, what: &str) -> Result<T, Over> {
        let tasks: Vec<usize> = self.machine.shards.iter().map(|s| s.live_tasks()).collect();
        let text = format!(
            "{what} wait: [{}]; at members: [{}]; live tasks by shard: {tasks:?}",
            self.client.describe_waiting(),
            self.world.describe_under_way()
        );
        self.world.fail("nothing_waits_for_ever", text);
        Err(Over)
    }
}

/// See the module's documentation.
pub(crate) trait Steps {
    /// Lets the shards run, or the clock, and looks at what came back.
    fn step(&mut self) -> Result<Step, Over>;

    /// What is going on; [`Over`] when nothing runs.
    fn going(&mut self) -> Result<Going<'_>, Over>;

    /// The end of a step, after what came back was looked at: `oldest` is when the oldest request that had not
    /// come back was submitted.
    fn stepped(&mut self, step: Step, oldest: Option<Nanos>) -> Result<Step, Over> {
        let going = self.going()?;
        if going.world.failure().is_some() {
            return Err(Over);
        }
        let now = going.world.now();
        let forgotten = step == Step::Stuck && oldest.is_some();
        if forgotten || step == Step::Waited && oldest.is_some_and(|oldest| now > oldest + PATIENCE)
        {
            return going.stuck("requests");
        }
        Ok(step)
    }

    /// Has members answer that hang and that some array cannot do without: it waits for them for as long as they do. True
    /// when there were any.
    fn wake_the_needed(&mut self) -> Result<bool, Over> {
        Ok(false)
    }

    /// Steps until `later` is there.
    fn wait<T>(&mut self, what: &str, later: &Later<T>) -> Result<T, Over> {
        let mut start = self.going()?.world.now();
        loop {
            if let Some(value) = later.borrow_mut().take() {
                return Ok(value);
            }
            let stuck = self.step()? == Step::Stuck && later.borrow().is_none();
            let now = self.going()?.world.now();
            if stuck || now > start + PATIENCE {
                if !self.wake_the_needed()? {
                    return self.going()?.stuck(what);
                }
                start = now;
            }
        }
    }

    /// Steps until what `status` tells has the member of this name in `state`, or not any more: what a command began is
    /// recorded when the other members allow it.
    fn wait_until_recorded(
        &mut self,
        name: &str,
        state: Option<MemberState>,
        mut status: impl FnMut(&mut Self) -> Result<Option<ArrayStatus>, Over>,
    ) -> Result<(), Over> {
        let mut start = self.going()?.world.now();
        loop {
            let Some(status) = status(self)? else { return Ok(()) };
            let known = status.members.iter().find(|member| member.name == name);
            if known.is_none_or(|member| Some(member.state) == state) {
                return Ok(());
            }
            let stuck = self.step()? == Step::Stuck;
            let now = self.going()?.world.now();
            if stuck || now > start + PATIENCE {
                if !self.wake_the_needed()? {
                    return self.going()?.stuck(&format!("the record of what became of {name}"));
                }
                start = now;
            }
        }
    }

    /// Steps until every request has come back.
    fn drain(&mut self) -> Result<(), Over> {
        while self.going()?.client.waiting() > 0 {
            let stuck = self.step()? == Step::Stuck;
            let going = self.going()?;
            if stuck && going.client.waiting() > 0 {
                return going.stuck("requests");
            }
        }
        Ok(())
    }

    /// Reads every block, several at a time.
    fn read_everything(&mut self) -> Result<(), Over> {
        let (mut at, blocks) = (0, self.going()?.oracle.len());
        while at < blocks {
            let Going { rng, block, .. } = self.going()?;
            let len = rng.log_range(1..(1 << 20) / block + 1).max((64 << 10) / block);
            let end = (at + len).min(blocks);
            while self.going()?.client.waiting() >= 8 {
                self.step()?;
            }
            let Going { machine, client, oracle, .. } = self.going()?;
            client.read(machine, oracle, at..end);
            at = end;
        }
        self.drain()
    }
}
