//! Creation, stops, crashes, what lies between two lives, and assembly from the bottom up.

use super::plan::{Below, DATA_OFFSET};
use super::rest::{AtRest, Held};
use super::{Life, StackRun, When, member_name};
use crate::checkers::{job_resumes, memory_bounded};
use crate::client::Client;
use crate::images::{self, Choice};
use crate::machine::{Machine, Step};
use crate::member::Member;
use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::steps::{Steps, ends_like_a_crash};
use crate::waiting::{Over, PATIENCE, wait};
use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::create::create;
use braid_array::error::{AssembleError, CreateError};
use braid_array::stacking::ArrayMember;
use braid_array::state::apart::SideMember;
use braid_array::status::{ArrayStatus, Left};
use braid_device::{Device, Opener, Target};
use std::rc::Rc;
use std::sync::Arc;

const KIB: u64 = 1 << 10;

impl StackRun {
    /// Creates everything from the bottom up and leaves it running.
    pub(super) fn first_life(&mut self) -> Result<(), Over> {
        let machine = Machine::start(&self.world, self.plan.scenario.shards);
        let mut arrays: Vec<Option<Arc<Array>>> = Vec::new();
        for nr in 0..self.plan.arrays.len() {
            let work = self.create_one(&machine, &arrays, nr);
            let later = machine.begin(work);
            if let Err(error) = wait(&machine, "create", &later)? {
                return self.fail("assembles", format!("create: {error}"));
            }
            let superblocks = match &self.plan.arrays[nr].below {
                Below::Leaves(leaves) => {
                    let leaves = leaves.iter().map(|index| self.world.member(*index));
                    let leaves: Vec<_> = leaves.collect();
                    for spare in leaves.iter().filter(|leaf| leaf.slot.get().is_none()) {
                        spare.mark_stale();
                    }
                    leaves.iter().filter_map(|leaf| images::superblock(&self.world, leaf)).collect()
                }
                Below::Arrays(below) => {
                    let mut found = Vec::new();
                    for lower in below {
                        let Some(Some(array)) = arrays.get(*lower).cloned() else { continue };
                        let shard = machine.home().clone();
                        let member = ArrayMember::new(array);
                        let later = machine.begin(async move {
                            braid_array::metadata::superblock::examine(&shard, &member).await
                        });
                        let examined = wait(&machine, "examine", &later)?;
                        found.extend(examined.ok().and_then(|found| found.superblock));
                    }
                    found
                }
            };
            let Some(layout) = images::layout(&superblocks) else {
                let text = format!("the superblocks of a{nr} describe no array");
                return self.fail("md_can_assemble", text);
            };
            self.links.borrow_mut().0[nr].layout = Some(Rc::new(layout));
            let later = machine.begin(self.assemble_one(&machine, &arrays, nr));
            match wait(&machine, "assemble", &later)? {
                Ok(array) => arrays.push(Some(array)),
                Err(error) => return self.fail("assembles", format!("a{nr}: {error}")),
            }
        }
        let Some(layout) = self.layout(self.top()) else { return Err(Over) };
        let top = &self.plan.scenario;
        let (seed, block) = (self.world.seed, top.block);
        self.oracle = Oracle::new(seed, block, layout.array_size(), top.zeroes, top.volatile);
        self.oracle.settled = top.zeroes;
        self.begin_life(machine, arrays)?;
        self.look_around()
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
                let open = |index: &usize| Some(crate::device::SimOpener::of(&self.world, *index));
                leaves.map(open).collect()
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

    fn begin_life(
        &mut self,
        machine: Machine,
        arrays: Vec<Option<Arc<Array>>>,
    ) -> Result<(), Over> {
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
        let client = Client::new(Rng::new(self.world.seed, 64 + self.lives), devices);
        self.life = Some(Life { client, arrays, machine });
        Ok(())
    }

    /// Runs up to the instant of a crash.
    pub(super) fn run_on_for_a_while(&mut self) -> Result<(), Over> {
        let world = Rc::clone(&self.world);
        let requests = world.submissions.get() + self.rng.log_range(1..600);
        let metadata = world.metadata_writes.get() + self.rng.range(1..8);
        let by_metadata = self.rng.percent(30);
        let until = world.now() + self.rng.log_range(1_000..2_000_000_000);
        loop {
            let there = if by_metadata {
                world.metadata_writes.get() >= metadata
            } else {
                world.submissions.get() >= requests
            };
            if there || world.now() >= until || self.step()? == Step::Stuck {
                return Ok(());
            }
        }
    }

    /// Ends this life, by a crash or a stop from the top down, as far as the stack survives that now; looks
    /// at what is left, and begins the next.
    pub(super) fn next_life(&mut self, crash: bool) -> Result<(), Over> {
        let statuses = self.statuses()?;
        let ways: &[When] =
            if crash { &[When::AfterCrash, When::AfterStop] } else { &[When::AfterStop] };
        for when in ways {
            let counts = self.counting(&statuses, None, *when);
            if !counts[self.top()] || self.has_hole(&statuses, *when) {
                continue;
            }
            match when {
                When::AfterCrash => self.crash(),
                _ => self.stop()?,
            }
            self.between_lives(&statuses, counts, *when)?;
            return self.assemble();
        }
        Ok(())
    }

    fn crash(&mut self) {
        self.world.trace(|| "CRASH".to_string());
        self.crashes += 1;
        if let Some(Life { client, arrays, machine }) = self.life.take() {
            self.requests += client.ended;
            self.world.power_cut();
            drop((client, arrays));
            drop(machine);
        }
        self.synced.fill(false);
        self.oracle.crash();
        self.oracle.settled = false;
    }

    /// From the top down.
    pub(super) fn stop(&mut self) -> Result<(), Over> {
        self.world.trace(|| "stop".to_string());
        self.stopping = true;
        let mut cut_short = false;
        for nr in (0..self.plan.arrays.len()).rev() {
            let left = self.stop_one(nr)?;
            cut_short |= left.is_some_and(|left| ends_like_a_crash(&left));
            if nr == self.top() {
                self.drain()?;
            }
        }
        self.stopping = false;
        if !cut_short {
            let now = self.oracle.tick();
            self.oracle.end_flush(now);
        }
        if let Some(Life { client, arrays, machine }) = self.life.take() {
            self.requests += client.ended;
            drop((client, arrays));
            self.world.wake_hung();
            // Tasks that sleep find out when they wake.
            let patience = self.world.now() + PATIENCE;
            while machine.step() != Step::Stuck && self.world.now() < patience {}
            memory_bounded::at_rest(&machine);
            // A stop is a promise: what was written is durable, and power may fail.
            self.world.power_cut();
        }
        self.oracle.crash();
        self.oracle.settled = false;
        Ok(())
    }

    /// Tells in which state the array was left, if it ran.
    pub(super) fn stop_one(&mut self, nr: usize) -> Result<Option<Left>, Over> {
        let Some(control) = self.control(nr) else { return Ok(None) };
        let later = self.life()?.machine.begin(async move { control.stop().await });
        self.wait("a stop", &later).map(Some)
    }

    /// Looks at what is there, then lets members come back, or go.
    fn between_lives(
        &mut self,
        statuses: &[Option<ArrayStatus>],
        counts: Vec<bool>,
        when: When,
    ) -> Result<(), Over> {
        let rest = AtRest::look(&self.world, &self.plan.arrays, &self.layouts(), &counts);
        if self.world.failure().is_none() {
            rest.copies_hold_acknowledged(&self.world, &self.layouts(), &mut self.oracle);
        }
        let members = self.world.members.borrow().clone();
        for member in &members {
            member.slot.set(None);
            member.in_sync.set(false);
        }
        for resting in rest.arrays.iter().flatten() {
            for (slot, held) in &resting.choice.in_sync {
                if let Held::Leaf(index) = held {
                    self.world.member(*index).slot.set(Some(*slot));
                    self.world.member(*index).in_sync.set(true);
                }
            }
            for (slot, held, _) in &resting.choice.rebuilding {
                if let Held::Leaf(index) = held {
                    self.world.member(*index).slot.set(Some(*slot));
                }
            }
        }
        // One is not found any more, where all that counted counts without it.
        let mut missing = None;
        if self.rng.percent(15) {
            let leaf = Rc::clone(self.rng.pick(&members));
            let without = Some(Held::Leaf(leaf.kind.index));
            let still = self.counting(statuses, without, when);
            let quiet = self.synced[leaf.kind.array]
                || !self.above(leaf.kind.array).any(|above| self.redundant(above));
            // One of the same array that is older may come back, or is there, and would be all there is of it then: only
            // whoever insists starts that.
            let older = |m: &Rc<Member>| m.is_gone() || self.takes_itself_for_current(m);
            let alone = members.iter().any(|m| m.kind.array == leaf.kind.array && older(m));
            let last = without.is_some_and(|leaf| self.may_be_listed_elsewhere(leaf));
            if still == counts && quiet && !alone && !last {
                missing = Some(leaf);
            }
        }
        for member in &members {
            if member.is_gone() && self.rng.percent(50) {
                self.world.trace(|| format!("{} is there again", member.name()));
                member.set_gone(false);
            }
            member.out.set(member.is_gone());
        }
        if let Some(leaf) = missing {
            self.world.trace(|| format!("{} is not found any more", leaf.name()));
            leaf.set_gone(true);
            leaf.out.set(true);
        }
        self.expected = counts;
        let named = |choice: &Choice<Held>| {
            let name = |held: &Held| match held {
                Held::Leaf(index) => self.world.member(*index).name().to_string(),
                Held::Array(nr) => member_name(*nr),
            };
            let rebuilding = choice.rebuilding.iter();
            rebuilding.map(|(slot, held, at)| (*slot, name(held), *at)).collect::<Vec<_>>()
        };
        self.rebuilding =
            rest.arrays.iter().map(|one| one.as_ref().map(|one| named(&one.choice))).collect();
        if self.world.failure().is_some() { Err(Over) } else { Ok(()) }
    }

    /// The array has gone on without this member, which does not know.
    fn takes_itself_for_current(&self, member: &Member) -> bool {
        !member.in_sync.get()
            && images::superblock(&self.world, member).is_some_and(|sb| {
                sb.recovery_offset.is_none() && sb.role_of(sb.dev_number).slot().is_some()
            })
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
            Below::Leaves(leaves) => {
                let leaves = leaves.iter().map(|index| self.world.member(*index));
                for leaf in leaves.filter(|leaf| old(leaf.name())) {
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

    /// Assembles all arrays from the bottom up. Those that counted must start.
    pub(super) fn assemble(&mut self) -> Result<(), Over> {
        self.world.owners.borrow_mut().clear();
        self.world.moving.set(false);
        let machine = Machine::start(&self.world, self.plan.scenario.shards);
        let mut arrays: Vec<Option<Arc<Array>>> = Vec::new();
        for nr in 0..self.plan.arrays.len() {
            let later = machine.begin(self.assemble_one(&machine, &arrays, nr));
            let mut result = wait(&machine, "assemble", &later)?;
            if let (Err(error), true) = (&result, self.expected[nr]) {
                // One that does not count may not even give its superblock: people leave it out.
                self.world.trace(|| format!("a{nr}: {error}"));
                let fit = |nr: usize| {
                    let fits = self.expected[nr] && !self.blank.contains(&nr);
                    fits.then(|| arrays[nr].clone()).flatten()
                };
                let those: Vec<_> = (0..arrays.len()).map(fit).collect();
                let later = machine.begin(self.assemble_one(&machine, &those, nr));
                result = wait(&machine, "assemble", &later)?;
            }
            if let Err(AssembleError::RanApart { sides, .. }) = &result {
                // Nobody is left of those whom an old member knew: people keep the side that is newer.
                let old = self.leave_out_older_sides(nr, &sides.sides);
                let those = arrays.iter().enumerate();
                let those: Vec<_> =
                    those.map(|(nr, one)| one.clone().filter(|_| !old.contains(&nr))).collect();
                let later = machine.begin(self.assemble_one(&machine, &those, nr));
                result = wait(&machine, "assemble", &later)?;
            }
            match result {
                Ok(array) => arrays.push(Some(array)),
                Err(error) if self.expected[nr] => {
                    return self.fail("assembles", format!("a{nr}: {error}"));
                }
                Err(error) => {
                    self.world.trace(|| format!("a{nr} does not start: {error}"));
                    arrays.push(None);
                }
            }
        }
        self.begin_life(machine, arrays)?;
        let statuses = self.statuses()?;
        for (nr, status) in statuses.iter().enumerate() {
            if let (Some(Some(rebuilding)), Some(status)) = (self.rebuilding.get(nr), status) {
                job_resumes::compare(&self.world, rebuilding, status);
            }
        }
        self.look_around()
    }
}
