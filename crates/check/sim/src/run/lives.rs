//! Beginnings and ends: creation, assembly from the bottom up, stops and crashes.

use super::counting::When;
use super::plan::{Below, DATA_OFFSET, KIB};
use super::standing::{Link, member_name};
use super::{Life, Run};
use crate::checkers::memory_bounded;
use crate::client::Client;
use crate::device::SimOpener;
use crate::images;
use crate::machine::{Machine, Step};
use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::waiting::{Over, PATIENCE, SECOND, ends_like_a_crash, wait};
use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::create::create;
use braid_array::error::{AssembleError, CreateError};
use braid_array::metadata::superblock::examine;
use braid_array::stacking::ArrayMember;
use braid_array::state::apart::SideMember;
use braid_array::status::Left;
use braid_device::{Device, Opener, Target};
use braid_format::superblock::Superblock;
use braid_layout::Layout;
use std::rc::Rc;
use std::sync::Arc;

/// The arrays of a life that has not begun yet.
type Arrays = Vec<Option<Arc<Array>>>;

impl Run {
    // --- Creation ------------------------------------------------------------------------------

    /// Creates everything from the bottom up. Stacks are left running; a single array is assembled again.
    pub(super) fn first_life(&mut self) -> Result<(), Over> {
        self.crash_in_create();
        let machine = Machine::start(&self.world, self.plan.scenario.shards);
        let mut arrays = Arrays::new();
        for nr in 0..self.plan.arrays.len() {
            let later = machine.begin(self.create_one(&machine, &arrays, nr));
            if let Err(error) = wait(&machine, "create", &later)? {
                return self.fail("assembles", format!("create: {error}"));
            }
            self.spares_are_stale(nr);
            let superblocks = self.superblocks_below(&machine, &arrays, nr)?;
            let Some(layout) = images::layout(&superblocks) else {
                let text = format!("{}the superblocks describe no array", self.a(nr));
                return self.fail("md_can_assemble", text);
            };
            self.links.borrow_mut().0.push(Link { layout: Rc::new(layout), above: None });
            if self.plan.is_alone() {
                break;
            }
            let later = machine.begin(self.assemble_one(&machine, &arrays, nr));
            match wait(&machine, "assemble", &later)? {
                Ok(array) => arrays.push(Some(array)),
                Err(error) => return self.fail("assembles", format!("a{nr}: {error}")),
            }
        }
        let (layout, top) = (self.layout(self.top()), &self.plan.scenario);
        let (seed, block) = (self.world.seed, top.block);
        self.oracle = Oracle::new(seed, block, layout.array_size(), top.zeroes, top.volatile);
        if self.plan.is_alone() {
            drop(machine);
            self.has_layout(layout);
            return self.assemble();
        }
        self.begin_life(machine, arrays)?;
        self.look_around()
    }

    /// A single array has this layout from now on.
    pub(super) fn has_layout(&mut self, layout: Rc<Layout>) {
        let (top, block, of) = (self.top(), self.plan.scenario.block, Rc::clone(&layout));
        *self.world.offsets_of.borrow_mut() = Some(Box::new(move |at| {
            let places = images::places(&of, at * block);
            places.iter().map(|place| place.offset..place.offset + block).collect()
        }));
        self.links.borrow_mut().0[top].layout = layout;
    }

    /// Now and then power fails while a single array is being created; it is created again afterwards.
    fn crash_in_create(&mut self) {
        if !self.mishaps.chance(self.plan.odds.crash_in_create) {
            return;
        }
        let machine = Machine::start(&self.world, self.plan.scenario.shards);
        let create = self.create_one(&machine, &[], self.top());
        let later = machine.begin(async move { create.await.is_ok() });
        for _ in 0..self.mishaps.rng.log_range(1..200) {
            if later.borrow().is_some() || machine.step() == Step::Stuck {
                break;
            }
        }
        self.world.trace(|| "CRASH during create".to_string());
        self.world.power_cut();
    }

    /// Creates array `nr` of what stands below it now.
    pub(super) fn create_one(
        &self,
        machine: &Machine,
        arrays: &[Option<Arc<Array>>],
        nr: usize,
    ) -> impl Future<Output = Result<(), CreateError>> + 'static {
        let plan = &self.plan.arrays[nr];
        let mut options = plan.create.clone();
        let openers: Vec<Option<Arc<dyn Opener>>> = match &plan.below {
            Below::Leaves(leaves) => {
                let given = options.raid_disks + options.spares;
                let leaves = leaves.iter().take(given);
                let leaves = leaves.map(|index| Some(SimOpener::of(&self.world, *index)));
                leaves.chain(self.journal_opener().map(Some)).collect()
            }
            Below::Arrays(below) => {
                let below = below.iter().filter_map(|lower| arrays.get(*lower)?.clone());
                let below: Vec<_> = below.collect();
                let sizes = below.iter().map(|array| array.info().device.size);
                let unit = options.chunk_size.unwrap_or(4 * KIB).max(4 * KIB);
                let room = sizes.min().unwrap_or(0).saturating_sub(DATA_OFFSET + 64 * KIB);
                options.size = options.level.has_redundancy().then_some(room / unit * unit);
                let opener = |array| Some(Arc::new(ArrayMember::new(array)) as Arc<dyn Opener>);
                below.into_iter().map(opener).collect()
            }
        };
        let context = machine.context.clone();
        async move { create(&context, openers, options).await.map(drop) }
    }

    /// The device of the write journal, where there is one.
    pub(super) fn journal_opener(&self) -> Option<Arc<dyn Opener>> {
        let journal = self.world.journal.borrow();
        journal.as_ref().map(|journal| SimOpener::of(&self.world, journal.kind.index))
    }

    /// The same for an assembly: people leave out what is not there, or has no superblock.
    pub(super) fn present_journal(&self) -> Option<Arc<dyn Opener>> {
        let journal = self.world.journal.borrow();
        let there = journal.as_ref().filter(|journal| {
            !journal.is_gone() && images::superblock(&self.world, journal).is_some()
        });
        there.map(|journal| SimOpener::of(&self.world, journal.kind.index))
    }

    /// The home shard writes to any unit while it replays a log.
    pub(super) fn is_replayed(&self) -> bool {
        let create = &self.plan.arrays[self.top()].create;
        create.ppl || create.write_journal
    }

    /// What array `nr` was not created of, or has as spares, holds nothing of it.
    pub(super) fn spares_are_stale(&self, nr: usize) {
        let leaves = self.leaves_of(nr);
        leaves.iter().filter(|leaf| leaf.slot.get().is_none()).for_each(|spare| spare.mark_stale());
    }

    /// The superblocks of array `nr`, which was created just now.
    fn superblocks_below(
        &self,
        machine: &Machine,
        arrays: &[Option<Arc<Array>>],
        nr: usize,
    ) -> Result<Vec<Superblock>, Over> {
        let leaves = self.leaves_of(nr);
        let on_leaves = leaves.iter().filter_map(|leaf| images::superblock(&self.world, leaf));
        let mut found: Vec<Superblock> = on_leaves.collect();
        if let Below::Arrays(below) = &self.plan.arrays[nr].below {
            for array in below.iter().filter_map(|lower| arrays.get(*lower)?.clone()) {
                let (shard, member) = (machine.home().clone(), ArrayMember::new(array));
                let later = machine.begin(async move { examine(&shard, &member).await });
                let examined = wait(machine, "examine", &later)?;
                found.extend(examined.ok().and_then(|found| found.superblock));
            }
        }
        Ok(found)
    }

    // --- Assembly ------------------------------------------------------------------------------

    /// Assembles everything from the bottom up.
    pub(super) fn assemble(&mut self) -> Result<(), Over> {
        if self.plan.is_alone() { self.assemble_alone() } else { self.assemble_all() }
    }

    /// What array `nr` can be assembled of now: leaves that can be opened and have a superblock, and arrays that run.
    fn openers_of(&self, arrays: &[Option<Arc<Array>>], nr: usize) -> Vec<Arc<dyn Opener>> {
        match &self.plan.arrays[nr].below {
            Below::Leaves(_) => {
                let present = self.present(nr);
                let leaves = present.iter().map(|leaf| SimOpener::of(&self.world, leaf.kind.index));
                leaves.chain(self.present_journal()).collect()
            }
            Below::Arrays(below) => below
                .iter()
                .filter_map(|nr| arrays.get(*nr)?.clone())
                .map(|array| Arc::new(ArrayMember::new(array)) as Arc<dyn Opener>)
                .collect(),
        }
    }

    /// Assembles array `nr` of what stands below it now.
    pub(super) fn assemble_one(
        &self,
        machine: &Machine,
        arrays: &[Option<Arc<Array>>],
        nr: usize,
    ) -> impl Future<Output = Result<Arc<Array>, AssembleError>> + 'static {
        let openers = self.openers_of(arrays, nr);
        let (context, options) = (machine.context.clone(), self.plan.arrays[nr].assemble.clone());
        async move { assemble(&context, openers, options).await }
    }

    /// All arrays of a stack. Those that counted must start.
    fn assemble_all(&mut self) -> Result<(), Over> {
        let machine = self.next_machine();
        let mut arrays = Arrays::new();
        for nr in 0..self.plan.arrays.len() {
            if !self.standing.expected[nr] && self.is_left_over(nr) {
                self.world.trace(|| format!("a{nr} is not started of members that had left it"));
                arrays.push(None);
                continue;
            }
            let later = machine.begin(self.assemble_one(&machine, &arrays, nr));
            let mut result = wait(&machine, "assemble", &later)?;
            if let (Err(error), true) = (&result, self.standing.expected[nr]) {
                // One that does not count may not even give its superblock: people leave it out.
                self.world.trace(|| format!("a{nr}: {error}"));
                let fit = |nr: usize| {
                    let fits = self.standing.expected[nr] && !self.standing.blank.contains(&nr);
                    fits.then(|| arrays[nr].clone()).flatten()
                };
                let those: Arrays = (0..arrays.len()).map(fit).collect();
                let later = machine.begin(self.assemble_one(&machine, &those, nr));
                result = wait(&machine, "assemble", &later)?;
            }
            if let Err(AssembleError::RanApart { sides, .. }) = &result {
                // Nobody is left of those whom an old member knew: people keep the side that is newer.
                let old = self.leave_out_older_sides(nr, &sides.sides);
                let those = arrays.iter().enumerate();
                let those: Arrays =
                    those.map(|(nr, one)| one.clone().filter(|_| !old.contains(&nr))).collect();
                let later = machine.begin(self.assemble_one(&machine, &those, nr));
                result = wait(&machine, "assemble", &later)?;
            }
            let refused = matches!(result, Err(AssembleError::DirtyDegraded { .. }));
            if self.standing.expected[nr] && self.standing.dirty_degraded[nr] {
                // Nobody insists here: refusing is right, and the end.
                return match refused {
                    true => Err(Over),
                    false => self.fail("assembles", format!("a{nr} starts, dirty and degraded")),
                };
            }
            match result {
                Ok(array) => arrays.push(Some(array)),
                Err(error) if self.standing.expected[nr] => {
                    return self.fail("assembles", format!("a{nr}: {error}"));
                }
                Err(error) => {
                    self.world.trace(|| format!("a{nr} does not start: {error}"));
                    arrays.push(None);
                }
            }
        }
        self.begin_life(machine, arrays)?;
        self.jobs_resume()?;
        self.look_around()
    }

    /// All that is there of array `nr` had left it before the others were lost. What it holds is of that time, and the array
    /// above could not tell: people do not start it.
    fn is_left_over(&self, nr: usize) -> bool {
        let present = self.present(nr);
        !present.is_empty() && present.iter().all(|leaf| leaf.dropped.get())
    }

    /// Members of array `nr` that are on none but older sides are left out: leaves are taken away, arrays are given.
    fn leave_out_older_sides(&self, nr: usize, sides: &[Vec<SideMember>]) -> Vec<usize> {
        let last = |side: &&Vec<SideMember>| side.iter().map(|m| (m.events, m.updated)).max();
        let Some(newest) = sides.iter().max_by_key(last) else { return Vec::new() };
        let old = |name: &str| {
            let is_it = |member: &SideMember| member.name == name;
            sides.iter().flatten().any(is_it) && !newest.iter().any(is_it)
        };
        match &self.plan.arrays[nr].below {
            Below::Leaves(_) => {
                for leaf in self.leaves_of(nr).iter().filter(|leaf| old(leaf.name())) {
                    self.world.trace(|| format!("{} is of long ago and left out", leaf.name()));
                    leaf.set_gone(true);
                    leaf.out.set(true);
                }
                Vec::new()
            }
            Below::Arrays(arrays) => {
                let old: Vec<_> =
                    arrays.iter().copied().filter(|nr| old(&member_name(*nr))).collect();
                self.world.trace(|| format!("arrays {old:?} are of long ago and left out"));
                old
            }
        }
    }

    /// The machine of the next life.
    pub(super) fn next_machine(&self) -> Machine {
        self.world.owners.borrow_mut().clear();
        self.world.moving.set(false);
        Machine::start(&self.world, self.plan.scenario.shards)
    }

    pub(super) fn begin_life(&mut self, machine: Machine, arrays: Arrays) -> Result<(), Over> {
        self.lives += 1;
        let mut devices: Vec<Rc<dyn Device>> = Vec::new();
        for shard in &machine.shards {
            let opened = arrays.last().and_then(|top| top.as_ref()).map(|top| top.open(shard));
            match opened {
                Some(Ok(device)) => devices.push(device),
                Some(Err(error)) => return self.fail("assembles", error.to_string()),
                None => return self.fail("assembles", "the top does not run".to_string()),
            }
        }
        let stream = self.plan.streams.clients + self.lives;
        let mut client = Client::new(Rng::new(self.world.seed, stream), devices);
        if self.plan.is_alone() && !self.redundant(self.top()) {
            client.must_be_told(self.world.failed_flushes.get());
        }
        self.life = Some(Life { client, arrays, machine });
        Ok(())
    }

    // --- Ends ----------------------------------------------------------------------------------

    /// Ends this life, by a crash or a stop, as far as the arrays survive that now; looks at what is left, and begins the
    /// next.
    pub(super) fn next_life(&mut self, crash: bool) -> Result<(), Over> {
        if self.plan.is_alone() {
            match crash {
                true => self.crash()?,
                false => self.stop()?,
            }
            return self.assemble();
        }
        let statuses = self.statuses()?;
        let ways: &[When] =
            if crash { &[When::AfterCrash, When::AfterStop] } else { &[When::AfterStop] };
        for when in ways {
            let counts = self.counting(&statuses, None, *when);
            if !counts[self.top()] || self.has_hole(&statuses, *when) {
                continue;
            }
            match when {
                When::AfterCrash => self.crash()?,
                _ => self.stop()?,
            }
            self.between_lives_of_a_stack(&statuses, counts, *when)?;
            return self.assemble();
        }
        Ok(())
    }

    /// Power fails, or the process alone ends.
    pub(super) fn crash(&mut self) -> Result<(), Over> {
        let killed = self.is_killed(self.plan.odds.is_killed);
        self.world.trace(|| if killed { "KILLED" } else { "CRASH" }.to_string());
        self.did.crashes += 1;
        self.note_whether_logged()?;
        if let Some(Life { client, arrays, machine }) = self.life.take() {
            self.did.requests += client.ended;
            if killed {
                self.world.kill()
            } else {
                self.world.power_cut()
            }
            drop((client, arrays));
            drop(machine);
        }
        self.standing.synced.fill(false);
        let kept = killed && !self.one_in_sync_forgot();
        let open = if kept { self.oracle.kill() } else { self.oracle.crash() };
        if self.plan.is_alone() {
            self.world.trace(|| format!("{} blocks are open", open.len()));
        }
        self.rows_open(&open);
        self.ended()
    }

    /// The process alone ends, in `percent` of 100 crashes. Not while a member has lost what is still read: nobody would
    /// tell the next process.
    pub(super) fn is_killed(&self, percent: u64) -> bool {
        let lost = self.world.members.borrow().iter().any(|member| member.has_lost());
        self.mishaps.chance(percent) && !lost
    }

    /// The array is about to end: was every write in a log, and all of it in a journal?
    pub(super) fn note_whether_logged(&mut self) -> Result<(), Over> {
        if self.plan.is_alone() && self.life.is_some() {
            let control = self.control(self.top())?;
            let lies = self.plan.scenario.lies;
            // Its first resync counts when all say so.
            let members = self.world.members.borrow().clone();
            let mut in_sync = members.iter().filter(|member| member.in_sync.get());
            let resynced = in_sync.all(|member| {
                let superblock = images::superblock_alone(&self.world, member);
                superblock.is_some_and(|superblock| superblock.resync_offset == u64::MAX)
            });
            let in_use = control.as_ref().is_some_and(|own| own.journal().is_in_use());
            let journaled = in_use && resynced && !lies && !self.promises.journal_is_lost;
            let logged = control.is_some_and(|control| control.ppl().is_in_use()) && !lies;
            self.promises.holes.all_logged = journaled || logged;
            self.promises.holes.journaled = journaled;
        }
        Ok(())
    }

    /// These blocks were open when everything ended: redundancy may not match.
    fn rows_open(&mut self, open: &[u64]) {
        if self.plan.is_alone() {
            let layout = self.layout(self.top());
            self.promises.holes.crash(&layout, self.plan.scenario.block, open);
        }
        self.oracle.settled = !(0..self.plan.arrays.len()).any(|nr| self.redundant(nr));
    }

    /// From the top down.
    pub(super) fn stop(&mut self) -> Result<(), Over> {
        self.world.trace(|| "stop".to_string());
        let since = self.world.now();
        self.stopping = Some(since);
        self.note_whether_logged()?;
        let mut cut_short = false;
        for nr in (0..self.plan.arrays.len()).rev() {
            let left = self.stop_one(nr)?;
            // A member that answers nothing for a second and cannot be spared is not waited for: what is under way ends as
            // in a crash, and the stop says so. Nor is what a member has lost with a failed flush, and no other has. A
            // single array says so for no other reason.
            let told = !self.plan.is_alone()
                || self.promises.flushes_fail
                || self.world.now() > since + SECOND;
            cut_short |= told && left.is_some_and(|left| ends_like_a_crash(&left));
            if nr == self.top() {
                self.drain()?;
            }
        }
        self.stopping = None;
        let broken = self.promises.excused || cut_short;
        if !broken {
            let now = self.oracle.tick();
            self.oracle.end_flush(now);
        }
        if let Some(Life { client, arrays, machine }) = self.life.take() {
            self.did.requests += client.ended;
            drop((client, arrays));
            self.world.wake_hung();
            // Tasks that sleep find out when they wake.
            let patience = self.world.now() + PATIENCE;
            while machine.step() != Step::Stuck && self.world.now() < patience {}
            memory_bounded::at_rest(&machine);
            // A stop is a promise: what was written is durable, and power may fail.
            self.world.power_cut();
        }
        let open = self.oracle.crash();
        if broken || !self.plan.is_alone() {
            self.rows_open(&open);
        }
        self.ended()
    }

    /// Tells in which state the array was left, if it ran.
    pub(super) fn stop_one(&mut self, nr: usize) -> Result<Option<Left>, Over> {
        let Some(control) = self.control(nr)? else { return Ok(None) };
        let later = self.life()?.machine.begin(async move { control.stop().await });
        let left = self.wait("a stop", &later)?;
        self.world.trace(|| format!("{}left {:?}: {:?}", self.a(nr), left.ended, left.problems));
        Ok(Some(left))
    }

    /// Nothing runs. Members of a single array come and go at once; those of a stack when it is known which arrays count.
    fn ended(&mut self) -> Result<(), Over> {
        if self.plan.is_alone() { self.between_lives_of_one() } else { Ok(()) }
    }
}
