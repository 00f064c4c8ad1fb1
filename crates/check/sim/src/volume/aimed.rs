//! What chance alone seldom does just so, done on purpose: power fails right after a sync of what was just written, or
//! right after a cut that was made durable, and the file grows again as the first thing in the next life; power
//! fails during a mount.
//!
//! Nothing is excused for it: the rules are those of every other run. Choices come from a stream of their own, so that
//! a run that does none of this is what it was before there was any.

use super::call::{Call, What};
use super::meta::{Id, Node};
use super::run::{Mounting, VolumeRun};
use crate::machine::Step;
use crate::waiting::Over;
use braid_filesystem::{Caller, Kind, SetAttr};
use braid_kv::model::UnderWay;

/// Files of this size and more are left alone: reading them takes too long.
const LARGE: u64 = 64 << 20;
/// Of 100 crashes, how many come right after something that was done on purpose.
const ON_PURPOSE: u64 = 40;
/// Of 100 mounts after a crash, how many meet another one.
const MOUNTS: u64 = 25;

impl VolumeRun {
    /// Right before a crash: some file is written or cut and made durable. False: nothing was done.
    pub(super) fn sync_or_cut(&mut self) -> Result<bool, Over> {
        if !self.plan.aimed || !self.aimed_rng.percent(ON_PURPOSE) {
            return Ok(false);
        }
        self.drain()?;
        let cut = self.aimed_rng.percent(50);
        for _ in 0..1 + self.aimed_rng.range(0..3) {
            let Some(id) = self.some_file(|node| !cut || node.size > 0)? else { break };
            let durable = if cut { self.cut_file(id)? } else { self.write_file(id)? };
            if durable && cut {
                self.cut.push(id);
            }
        }
        Ok(true)
    }

    /// Some file that requests may name, and that is not too long to be read as a whole.
    pub(super) fn some_file(&mut self, which: impl Fn(&Node) -> bool) -> Result<Option<Id>, Over> {
        let (Some(life), Some(model)) = (&self.life, &self.model) else { return Err(Over) };
        let fits = |node: &Node| node.kind == Kind::File && node.size < LARGE && which(node);
        let usable = |(id, node): (&Id, &Node)| (life.client.has(*id) && fits(node)).then_some(*id);
        let ids: Vec<Id> = model.now.nodes.iter().filter_map(usable).collect();
        Ok(ids.get(self.aimed_rng.below(ids.len())).copied())
    }

    /// Makes the request and waits for its answer.
    pub(super) fn ask(&mut self, on: Id, what: What) -> Result<bool, Over> {
        let (Some(life), Some(model)) = (self.life.as_mut(), self.model.as_mut()) else {
            return Err(Over);
        };
        let sent = life.client.send(model, Call { on, other: on, what });
        self.drain()?;
        Ok(sent)
    }

    fn write_file(&mut self, id: Id) -> Result<bool, Over> {
        let rng = &self.aimed_rng;
        let Some(model) = &self.model else { return Err(Over) };
        let Some(version) = model.next_version() else { return Ok(false) };
        let size = model.now.nodes.get(&id).map_or(0, |node| node.size);
        let len = rng.log_range(1..128 << 10) as usize;
        let offset = rng.range(0..size + 1);
        let only_data = rng.percent(50);
        self.ask(id, What::Write(offset, len, version))?;
        self.ask(id, What::Fsync(only_data))
    }

    fn cut_file(&mut self, id: Id) -> Result<bool, Over> {
        let Some(model) = &self.model else { return Err(Over) };
        let size = model.now.nodes.get(&id).map_or(0, |node| node.size);
        let to = self.aimed_rng.range(0..size);
        self.ask(id, size_of(to))?;
        self.ask(id, What::Fsync(self.aimed_rng.percent(50)))
    }

    /// Files that were cut before the crash grow at once, before anybody has tidied up behind their new end, and are
    /// read.
    pub(super) fn grow_what_was_cut(&mut self) -> Result<(), Over> {
        for id in std::mem::take(&mut self.cut) {
            let (Some(life), Some(model)) = (&self.life, &self.model) else { return Err(Over) };
            let Some(node) = model.now.nodes.get(&id).filter(|_| life.client.has(id)) else {
                continue;
            };
            let (size, more) = (node.size, self.aimed_rng.log_range(1..4 << 20));
            match model.next_version().filter(|_| self.aimed_rng.percent(30)) {
                Some(version) => self.ask(id, What::Write(size + more, 100, version))?,
                None => self.ask(id, size_of(size + more))?,
            };
            self.ask(id, What::Read(size, (more + 100) as usize))?;
        }
        Ok(())
    }

    /// Power fails during a mount.
    pub(super) fn interrupt_a_mount(&mut self) -> Result<(), Over> {
        if !self.plan.aimed || !self.aimed_rng.percent(MOUNTS) {
            return Ok(());
        }
        let commit_time = self.aimed_rng.range(0..self.plan.commit_time);
        self.over_arrays.leaves_between_lives();
        let Mounting { later, store, arrays, machine } = self.begin_mount(commit_time);
        for _ in 0..self.aimed_rng.log_range(1..100) {
            // Also what a mount leaves to be done behind its back.
            if machine.step() == Step::Stuck {
                break;
            }
        }
        self.world.trace(|| "CRASH during a mount".to_string());
        let under_way = match self.aimed_rng.percent(50) {
            true => UnderWay::Kept,
            false => UnderWay::Lost,
        };
        self.metadata = store.crash(under_way);
        self.world.power_cut();
        drop((later, store, arrays));
        drop(machine);
        self.keep_noted_away();
        match self.world.failure() {
            Some(_) => Err(Over),
            None => Ok(()),
        }
    }
}

/// A change of the size.
fn size_of(size: u64) -> What {
    What::SetAttr(Caller::default(), SetAttr { size: Some(size), ..SetAttr::default() })
}
