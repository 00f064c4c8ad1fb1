//! An array below another becomes too degraded while the one above goes on without it: so many of its leaves as it cannot
//! spare are gone at once, for a moment or for good, or fail a flush. It meets that by itself, in a check or a flush of
//! its own, or with a request from above.
//!
//! From then on it says so to whoever asks (**too_degraded_is_told**): a flush does not succeed, and no block is called
//! unreadable where no leaf has unreadable blocks. And the array above fails it before it acknowledges anything that
//! went there (**too_degraded_is_failed**).
//!
//! Nothing is excused for it: the rules, and what the stack survives, are those of every other run. Choices come from a
//! stream of their own; plain runs have none of it.

use super::Run;
use super::plan::Below;
use super::standing::{Held, member_name};
use crate::member::Member;
use crate::waiting::{Over, SECOND};
use braid_array::status::{ArrayState, MemberState};
use braid_device::{IoError, IoErrorKind, IoSets, Request, Target};
use std::rc::Rc;

/// Bytes that one read asks for.
const AT_ONCE: u64 = 64 << 10;
/// An array that meets its loss by itself has done so after this many looks at its state.
const LOOKS: usize = 100;

impl Run {
    /// After the last round: an array becomes too degraded, and there is another round.
    pub(super) fn too_degraded_below(&mut self) -> Result<(), Over> {
        self.drain()?;
        self.wait_for_jobs()?;
        let Some((nr, above)) = self.one_to_do_without()? else { return Ok(()) };
        let leaves = self.more_than_it_survives(nr)?;
        for _ in 0..1 + self.chances.too_degraded.rng.range(0..4) {
            self.write_to_all(above)?;
        }
        self.drain()?;
        self.lose_leaves(nr, above, &leaves)?;
        if self.is_too_degraded(nr)? {
            self.is_told(nr)?;
            self.is_failed_above(nr, above)?;
        }
        if self.chances.too_degraded.rng.percent(40) {
            self.next_life(true)?;
        }
        self.round()
    }

    /// An array of leaves that the one above it, which has redundancy, can do without now; and that one.
    fn one_to_do_without(&mut self) -> Result<Option<(usize, usize)>, Over> {
        let fits = |nr: &usize| {
            let above = self.plan.arrays[*nr].above.filter(|above| self.redundant(*above))?;
            let of_leaves = matches!(self.plan.arrays[*nr].below, Below::Leaves(_));
            (of_leaves && self.redundant(*nr)).then_some((*nr, above))
        };
        let fit: Vec<_> = (0..self.plan.arrays.len()).filter_map(|nr| fits(&nr)).collect();
        let Some((nr, above)) = fit.get(self.chances.too_degraded.rng.below(fit.len())).copied()
        else {
            return Ok(None);
        };
        let spared =
            self.counts_now(nr)? && self.may_lose(Held::Array(nr))? && !self.has_older_leaf(nr);
        Ok(spared.then_some((nr, above)))
    }

    /// Leaves that hold slots of array `nr`: as many as are one too many for its level, and no more.
    fn more_than_it_survives(&mut self, nr: usize) -> Result<Vec<Rc<Member>>, Over> {
        let (leaves, layout) = (self.leaves_of(nr), self.layout(nr));
        let Some(status) = self.status(nr)? else { return Ok(Vec::new()) };
        let holds = |leaf: Rc<Member>| {
            let known = status.members.iter().find(|member| member.name == leaf.name())?;
            let whole = known.state == MemberState::InSync && !leaf.out.get() && !leaf.is_weak();
            Some((leaf, known.slot.filter(|_| whole)?))
        };
        let mut left: Vec<_> = leaves.into_iter().filter_map(holds).collect();
        self.chances.too_degraded.rng.shuffle(&mut left);
        let mut lost = Vec::new();
        while layout.survives(|slot| left.iter().any(|(_, held)| *held == slot)) {
            let Some((leaf, _)) = left.pop() else { break };
            lost.push(leaf);
        }
        Ok(lost)
    }

    /// Writes so much in a row that every member of array `above` takes part, if it is the top.
    fn write_to_all(&mut self, above: usize) -> Result<(), Over> {
        let create = &self.plan.arrays[above].create;
        let stripe = create.chunk_size.unwrap_or(4096) * create.raid_disks as u64;
        let len = (2 * stripe / self.plan.scenario.block).clamp(1, self.oracle.len());
        let start = self.chances.too_degraded.rng.range(0..self.oracle.len() - len + 1);
        let fua = self.chances.too_degraded.rng.percent(20);
        self.write(start..start + len, fua)
    }

    /// The leaves are lost to array `nr`, which meets that, or is given the time to.
    fn lose_leaves(&mut self, nr: usize, above: usize, leaves: &[Rc<Member>]) -> Result<(), Over> {
        // With a log the other members may list as bad the very blocks that a lost cache had: see `flushes_fail`.
        let logs = self.plan.arrays.iter().any(|array| array.create.bad_block_log);
        let flushes = !logs && self.chances.too_degraded.rng.percent(30);
        for leaf in leaves {
            self.did.faults += 1;
            leaf.out.set(true);
            if flushes {
                self.world.trace(|| format!("a flush of {} fails", leaf.name()));
                leaf.shows_loss.set(false);
                leaf.fail_flushes(1);
            } else {
                self.world.trace(|| format!("{} is gone", leaf.name()));
                leaf.set_gone(true);
            }
        }
        match self.chances.too_degraded.rng.range(0..3) {
            // The array marks itself clean after some time, and flushes its leaves before.
            _ if flushes => {}
            0 => self.write_to_all(above)?,
            _ => {
                if let Some(control) = self.control(nr)? {
                    self.world.trace(|| format!("a{nr}: check"));
                    // Refused when it has met its loss already.
                    let _ = control.jobs().start_check();
                }
            }
        }
        let give_up = self.world.now() + 2 * SECOND;
        for _ in 0..LOOKS {
            if self.is_too_degraded(nr)? || self.world.now() > give_up {
                break;
            }
            for _ in 0..10 {
                self.step()?;
            }
        }
        if self.chances.too_degraded.rng.percent(70) {
            self.world.trace(|| format!("the leaves of a{nr} are there again"));
            leaves.iter().for_each(|leaf| leaf.set_gone(false));
        }
        Ok(())
    }

    fn is_too_degraded(&mut self, nr: usize) -> Result<bool, Over> {
        let status = self.status(nr)?;
        Ok(status.is_some_and(|status| status.state.contains(&ArrayState::Failed)))
    }

    /// **too_degraded_is_told**: somebody asks array `nr` itself.
    fn is_told(&mut self, nr: usize) -> Result<(), Over> {
        let Some(array) = self.life()?.arrays[nr].clone() else { return Ok(()) };
        let home = self.life()?.machine.home().clone();
        let Ok(device) = array.open(&home) else { return Ok(()) };
        let size = device.info().size;
        let later = self.life()?.machine.begin(async move {
            let sets = IoSets::new(&home);
            let flushed = sets.one(&*device, Request::flush()).await.result;
            let mut read = Vec::new();
            for at in (0..size).step_by(AT_ONCE as usize) {
                let buf = home.pool().get(AT_ONCE.min(size - at) as usize);
                read.push(sets.one(&*device, Request::read(at, buf)).await.result);
            }
            (flushed, read)
        });
        let (flushed, read) = self.wait("requests to an array that is too degraded", &later)?;
        if flushed.is_ok() {
            let text = format!("a{nr} is too degraded, and a flush of it succeeds");
            return self.fail("too_degraded_is_told", text);
        }
        let bad = self.leaves_of(nr).iter().any(|leaf| leaf.was_bad.get());
        let unreadable = |error: IoError| error.kind == IoErrorKind::Medium;
        if !bad && read.iter().any(|result| result.is_err_and(unreadable)) {
            let text = format!("a{nr} is too degraded, and says that blocks cannot be read");
            return self.fail("too_degraded_is_told", text);
        }
        Ok(())
    }

    /// **too_degraded_is_failed**: something that goes to array `nr` is acknowledged by the one above.
    fn is_failed_above(&mut self, nr: usize, above: usize) -> Result<(), Over> {
        if self.chances.too_degraded.rng.percent(50) {
            self.write_to_all(above)?;
        } else {
            self.flush()?;
        }
        self.drain()?;
        let Some(status) = self.status(above)? else { return Ok(()) };
        let name = member_name(nr);
        let member = status.members.iter().find(|member| member.name == name);
        if member.is_some_and(|member| member.state == MemberState::InSync) {
            let text = format!("a{nr} is too degraded, and a{above} has it in sync still");
            return self.fail("too_degraded_is_failed", text);
        }
        Ok(())
    }
}
