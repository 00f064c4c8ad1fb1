//! Short histories of a single array in which power fails at an instant that is given: after so many writes and flushes of
//! members, each of which counts when it is submitted and when it completes. Nothing else is left to chance but what gets
//! through of that which was under way.

use super::plan::Plan;
use super::{Life, Run};
use crate::machine::Step;
use crate::rng::Rng;
use crate::verdict::Report;
use crate::waiting::{Over, SECOND};
use braid_array::control::reshaping::WantedShape;
use braid_layout::Slot;
use std::ops::Range;
use std::rc::Rc;

/// What happens, and when power fails.
#[derive(Clone, Debug)]
pub struct Short {
    /// Slots whose members fail before anything is written.
    pub failed: Vec<Slot>,
    /// Requests: the blocks, and whether they have the FUA flag; without blocks a flush.
    pub requests: Vec<(Range<u64>, bool)>,
    /// The first resync is not waited for.
    pub fresh: bool,
    /// The array is given this shape meanwhile.
    pub wanted: Option<WantedShape>,
    /// Changes before the cut.
    pub cut: u64,
    /// Which of the many ways in which what is under way gets through.
    pub way: u64,
    /// Changes of the start after that, before power fails once more.
    pub cut_again: Option<u64>,
    /// The member of this slot is not there any more after the cut.
    pub lost: Option<Slot>,
}

/// How far a short history came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It was over before the cut.
    End,
    /// The cut came; the start after it was over before it was cut.
    Cut,
    /// Both came, or the second was not asked for.
    All,
}

/// With nothing to do for so long it is over: the array has marked itself clean.
const AT_REST: u64 = 2 * SECOND;
/// No start takes longer, nor what is asked of the array before the cut.
const LIFE_MAX: u64 = 60 * SECOND;
/// The stream that says what gets through; numbers for each way.
const WAYS: u64 = 120;

/// Carries out a short history.
pub fn run_short(plan: Plan, short: &Short, verbose: bool) -> (Report, Reached) {
    let reached = Rc::new(std::cell::Cell::new(Reached::End));
    let told = Rc::clone(&reached);
    let history = move |run: &mut Run| run.short_history(short, &told);
    let report = super::carry_out(plan, true, verbose, history);
    (report, reached.get())
}

impl Run {
    fn short_history(
        &mut self,
        short: &Short,
        reached: &std::cell::Cell<Reached>,
    ) -> Result<(), Over> {
        self.first_life()?;
        if !short.fresh {
            self.wait_for_jobs()?;
        }
        for slot in &short.failed {
            let members = self.world.members.borrow().clone();
            if let Some(member) = members.iter().find(|member| member.slot.get() == Some(*slot)) {
                self.fail_leaf(member)?;
                // It does not come back: nothing is rebuilt onto it.
                self.is_not_found(member);
            }
        }
        if !self.until_the_cut(short)? {
            return Ok(());
        }
        reached.set(Reached::Cut);
        self.cut(short)?;
        if let Some(changes) = short.cut_again {
            self.world.stand_still_after(changes);
            let (world, mut cut) = (Rc::clone(&self.world), false);
            let until = world.now() + LIFE_MAX;
            self.doomed_assembly(0, |world, machine| {
                cut = world.stands_still();
                !cut && machine.step() != Step::Stuck && world.now() < until
            })?;
            if !cut {
                return Ok(());
            }
        }
        reached.set(Reached::All);
        self.assemble()?;
        if let Some(wanted) = short.wanted {
            let now = self.top_status()?;
            if now.reshape.is_some()
                || wanted.raid_disks.is_some_and(|disks| now.raid_disks == disks)
                || wanted.chunk_size.is_some_and(|chunk| now.chunk_size == chunk)
                || wanted.layout.is_some_and(|layout| now.layout == layout)
            {
                self.reshaped(|chances| &chances.reshaping)?;
            }
            self.world.reshaping.set(false);
        }
        self.ending()
    }

    /// Sends the requests, all at once, and whatever else is asked. False when everything came to rest before the cut.
    fn until_the_cut(&mut self, short: &Short) -> Result<bool, Over> {
        self.world.stand_still_after(short.cut);
        for (blocks, fua) in &short.requests {
            if blocks.is_empty() {
                self.flush()?;
            } else {
                self.write(blocks.clone(), *fua)?;
            }
        }
        let later = if let Some(wanted) = short.wanted {
            let control = self.top_control()?;
            self.oracle.end_steady();
            self.world.reshaping.set(true);
            let begun = async move { control.reshape(wanted, false).await };
            Some(self.life()?.machine.begin(begun))
        } else {
            None
        };
        let (mut busy_until, until) = (self.world.now() + AT_REST, self.world.now() + LIFE_MAX);
        while !self.world.stands_still() {
            let working = self.life()?.client.waiting() > 0
                || later.as_ref().is_some_and(|later| later.borrow().is_none())
                || self.world.under_way() > 0;
            let now = self.world.now();
            if working {
                busy_until = now + AT_REST;
            }
            if now > busy_until.min(until) || self.step()? == Step::Stuck {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Power fails now.
    fn cut(&mut self, short: &Short) -> Result<(), Over> {
        self.world.trace(|| "CUT".to_string());
        self.did.crashes += 1;
        self.note_whether_logged()?;
        self.world.rng.skip(Rng::new(short.way, WAYS).range(0..1 << 20));
        if let Some(Life { client, arrays, machine }) = self.life.take() {
            self.did.requests += client.ended;
            self.world.power_cut();
            drop((client, arrays));
            drop(machine);
        }
        self.standing.synced.fill(false);
        let open = self.oracle.crash();
        let layout = self.layout(self.top());
        self.promises.holes.crash(&layout, self.plan.scenario.block, &open);
        self.oracle.settled = false;
        self.world.missed.borrow_mut().clear();
        let members = self.world.members.borrow().clone();
        members.iter().for_each(|member| member.forgot.set(false));
        self.learn_from_images();
        let lost = short.lost.and_then(|slot| {
            members.iter().find(|member| member.slot.get() == Some(slot) && !member.is_gone())
        });
        if let Some(member) = lost {
            self.is_not_found(member);
        }
        self.goes_on()
    }
}
