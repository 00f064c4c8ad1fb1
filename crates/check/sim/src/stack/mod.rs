//! Runs of stacks: arrays whose members are arrays, in two or three layers.
//!
//! The client, the world and the oracle are those of a single array and see the top and the leaves. What
//! fails hits leaves, or an array as a whole where the one above it can do without; at each layer members
//! are failed, added and rebuilt, scrubs run, settings change, bitmaps come and go. After a crash the arrays are
//! assembled from the bottom up. `rest` reads what every array holds from the images of the leaves alone.
//!
//! What is promised of a stack is what its arrays promise by themselves, so faults keep to this:
//! - An array *counts* as long as its level survives what is lost or weak below it. The top always counts.
//! - An array with parity that has lost something refuses to start after a crash, or with a resync that had not
//!   ended (nothing forces it here), so then it does not count; crashes and stops come only when the top does. Nor do they come when such
//!   an array would compute, from parity that may not match, blocks that it cannot read.
//! - Until an array's redundancy has been made to match, what it gives may turn from one version into
//!   another when a member fails. An array above that keeps redundancy would not know; so nothing is made
//!   to fail there until then.

mod ending;
mod faults;
mod lives;
mod mishaps;
mod plan;
mod rest;
mod too_degraded;

use crate::checkers::LOOKS;
use crate::client::{Client, Failed};
use crate::device::SimOpener;
use crate::images;
use crate::machine::{Machine, Step};
use crate::member::Member;
use crate::oracle::Oracle;
use crate::rng::{Extra, Rng};
use crate::run::{Report, Verdict};
use crate::steps::{Going, SECOND, Steps};
use crate::waiting::Over;
use crate::world::World;
use braid_array::array::Array;
use braid_array::control::Control;
use braid_array::stacking::{ArrayMember, PREFIX};
use braid_array::state::geometry::REGION;
use braid_array::status::{ArrayState, ArrayStatus, MemberState};
use braid_device::{IoErrorKind, Opener};
use braid_layout::{Layout, Slot};
use plan::{Below, Plan};
use rest::Held;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// One life of the stack.
struct Life {
    // Dropped in this order: the devices and the arrays before the shards.
    client: Client,
    arrays: Vec<Option<Arc<Array>>>,
    machine: Machine,
}

/// What maps bytes of leaves to units of the arrays above: see [`World::unit_of`].
#[derive(Default)]
struct Links(Vec<Link>);

#[derive(Default)]
struct Link {
    layout: Option<Rc<Layout>>,
    /// The array above, this one's slot there, and where its component starts.
    above: Option<(usize, Slot, u64)>,
}

/// See the module's documentation.
pub struct StackRun {
    plan: Plan,
    world: Rc<World>,
    rng: Rng,
    settings_rng: Rng,
    mishaps: Extra,
    aimed: Extra,
    oracle: Oracle,
    links: Rc<RefCell<Links>>,
    /// By array: its redundancy matches its data.
    synced: Vec<bool>,
    /// By array: it must start next time.
    expected: Vec<bool>,
    /// Arrays that were made anew and that the one above has not taken yet: it finds no superblock of its own there.
    blank: BTreeSet<usize>,
    /// By array: who is being rebuilt by the images, as `job_resumes` takes it.
    rebuilding: Vec<Option<Vec<(Slot, String, u64)>>>,
    life: Option<Life>,
    lives: u64,
    stopping: bool,
    crashes: u64,
    faults: u64,
    re_added: u64,
    bitmap_changes: u64,
    requests: u64,
}

/// Carries out the run of the stack of `seed`; a plain one is without mishaps.
pub fn run(seed: u64, plain: bool, verbose: bool) -> Report {
    let plan = Plan::of(seed);
    let scenario = plan.describe();
    if verbose {
        println!("stack {seed}: {scenario}");
    }
    let (lies, top) = (plan.scenario.lies, &plan.scenario);
    let world = World::new(LOOKS, seed, top.manners, top.create.version, verbose);
    for kind in &top.members {
        world.add_member(Member::new(kind.clone()));
    }
    let mut report = Report {
        verdict: Verdict::Passed,
        scenario,
        requests: 0,
        crashes: 0,
        faults: 0,
        re_added: 0,
        bitmap_changes: 0,
        lies,
    };
    if let Ok(mut run) = StackRun::create(plan, plain, &world) {
        // The failure, if there is one, is in the world.
        let _ = run.go();
        report.requests = run.requests + run.life.as_ref().map_or(0, |life| life.client.ended);
        report.crashes = run.crashes;
        report.faults = run.faults;
        report.re_added = run.re_added;
        report.bitmap_changes = run.bitmap_changes;
    }
    report.verdict = Verdict::of(&world);
    world.end();
    report
}

impl Links {
    /// The unit that component byte `at` of `slot` of array `nr` belongs to: of this array, or of the first
    /// above it that has units.
    fn unit(&self, nr: usize, slot: Option<Slot>, at: u64) -> Option<u64> {
        let link = self.0.get(nr)?;
        let layout = link.layout.as_ref()?;
        let up = |logical: Option<u64>| {
            let (above, slot, start) = link.above?;
            let at = logical?.checked_sub(start)?;
            let used = self.0.get(above)?.layout.as_ref()?.used_size(slot);
            (at < used).then(|| self.unit(above, Some(slot), at)).flatten()
        };
        let unit = match &**layout {
            Layout::Parity(parity) => at / parity.chunk_size(),
            Layout::Mirror(_) => at / REGION,
            Layout::Raid10(raid10) => raid10.logical(slot?, at)? / raid10.chunk_size(),
            Layout::Striped(striped) => return up(striped.logical(slot?, at)),
            Layout::Linear(linear) => return up(linear.logical(slot?, at)),
        };
        Some((nr as u64) << 48 | unit)
    }
}

/// When it is that arrays count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Now,
    AfterStop,
    AfterCrash,
}

impl When {
    /// The array's redundancy may not match then.
    fn finds_dirty(self, status: &ArrayStatus) -> bool {
        match self {
            When::Now => false,
            When::AfterStop => status.resynced.is_some(),
            When::AfterCrash => true,
        }
    }
}

/// The name under which an array is the member of another.
fn member_name(nr: usize) -> String {
    format!("{PREFIX}a{nr}")
}

impl Steps for StackRun {
    fn going(&mut self) -> Result<Going<'_>, Over> {
        let life = self.life.as_mut().ok_or(Over)?;
        Ok(Going {
            world: &self.world,
            machine: &life.machine,
            client: &mut life.client,
            oracle: &mut self.oracle,
            rng: &self.rng,
            block: self.plan.scenario.block,
        })
    }

    fn wake_the_needed(&mut self) -> Result<bool, Over> {
        let statuses = self.statuses()?;
        let members = self.world.members.borrow().clone();
        let needed = |leaf: &&Rc<Member>| {
            let counts = self.counting(&statuses, Some(Held::Leaf(leaf.kind.index)), When::Now);
            leaf.hung.get() && !counts[leaf.kind.array]
        };
        let needed = members.iter().find(needed).map(|leaf| leaf.kind.array);
        if let Some(nr) = needed {
            self.wake_leaves_of(nr)?;
        }
        Ok(needed.is_some())
    }

    fn step(&mut self) -> Result<Step, Over> {
        let Going { machine, client, oracle, .. } = self.going()?;
        let step = machine.step();
        let (_, errors) = client.collect(machine, oracle);
        let oldest = client.oldest();
        for Failed { what, error, .. } in errors {
            // A stop does not wait for a leaf that says nothing for a second, also where nobody can do without it.
            let given_up =
                error.kind == IoErrorKind::Gone && self.world.waits_for_longer_than(SECOND);
            if !(self.stopping && (error.kind == IoErrorKind::Refused || given_up)) {
                self.world.fail("requests_succeed", format!("{what}: {error}"));
            }
        }
        self.stepped(step, oldest)
    }
}

impl StackRun {
    fn create(plan: Plan, plain: bool, world: &Rc<World>) -> Result<StackRun, Over> {
        let links: Rc<RefCell<Links>> = Rc::default();
        links.borrow_mut().0.resize_with(plan.arrays.len(), Link::default);
        let of = Rc::clone(&links);
        *world.unit_of.borrow_mut() = Some(Box::new(move |member: &Member, at| {
            of.borrow().unit(member.kind.array, member.slot.get(), at)
        }));
        let (seed, top) = (world.seed, &plan.scenario);
        let mishaps = Extra::of(seed, 42, 60, plain);
        let drops_pages = mishaps.chance(75);
        world.members.borrow().iter().for_each(|member| member.drops_pages.set(drops_pages));
        let mut run = StackRun {
            rng: Rng::new(seed, 33),
            settings_rng: Rng::new(seed, 34),
            mishaps,
            aimed: Extra::of(seed, 43, 60, plain),
            oracle: Oracle::new(seed, top.block, top.block, top.zeroes, top.volatile),
            synced: vec![top.zeroes; plan.arrays.len()],
            expected: Vec::new(),
            blank: BTreeSet::new(),
            rebuilding: Vec::new(),
            world: Rc::clone(world),
            plan,
            links,
            life: None,
            lives: 0,
            stopping: false,
            crashes: 0,
            faults: 0,
            re_added: 0,
            bitmap_changes: 0,
            requests: 0,
        };
        run.first_life()?;
        Ok(run)
    }

    fn go(&mut self) -> Result<(), Over> {
        for _ in 0..self.plan.scenario.phases {
            self.round()?;
            if self.rng.percent(50) {
                self.mend_something()?;
            }
            match self.rng.range(0..20) {
                0..9 => {
                    self.run_on_for_a_while()?;
                    self.next_life(true)?;
                    if self.rng.percent(40) {
                        self.wait_for_jobs()?;
                    }
                }
                9..12 => self.next_life(false)?,
                12..16 => self.wait_for_jobs()?,
                _ => {}
            }
        }
        // Last, so that everything before is what it is without.
        if self.aimed.on {
            self.too_degraded_below()?;
        }
        self.ending()
    }

    fn fail<T>(&self, checker: &'static str, text: String) -> Result<T, Over> {
        self.world.fail(checker, text);
        Err(Over)
    }

    fn life(&mut self) -> Result<&mut Life, Over> {
        self.life.as_mut().ok_or(Over)
    }

    fn top(&self) -> usize {
        self.plan.arrays.len() - 1
    }

    fn layouts(&self) -> Vec<Option<Rc<Layout>>> {
        self.links.borrow().0.iter().map(|link| link.layout.clone()).collect()
    }

    fn layout(&self, nr: usize) -> Option<Rc<Layout>> {
        self.links.borrow().0.get(nr)?.layout.clone()
    }

    fn redundant(&self, nr: usize) -> bool {
        self.plan.arrays[nr].create.level.has_redundancy()
    }

    /// Arrays from `nr` upwards, without `nr`.
    fn above(&self, nr: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.plan.arrays[nr].above, |nr| self.plan.arrays[*nr].above)
    }

    // --- Arrays --------------------------------------------------------------------------------

    /// `None` when the array does not run.
    fn control(&self, nr: usize) -> Option<Rc<Control>> {
        let life = self.life.as_ref()?;
        Control::find(life.machine.home(), life.arrays.get(nr)?.as_ref()?.id())
    }

    fn status(&mut self, nr: usize) -> Result<Option<ArrayStatus>, Over> {
        let Some(control) = self.control(nr) else { return Ok(None) };
        let later = self.life()?.machine.begin(async move { control.status().await });
        self.wait("a status", &later).map(Some)
    }

    fn statuses(&mut self) -> Result<Vec<Option<ArrayStatus>>, Over> {
        (0..self.plan.arrays.len()).map(|nr| self.status(nr)).collect()
    }

    fn openers_of(&self, machine_arrays: &[Option<Arc<Array>>], nr: usize) -> Vec<Arc<dyn Opener>> {
        match &self.plan.arrays[nr].below {
            Below::Leaves(leaves) => {
                let there = |index: &&usize| {
                    let leaf = self.world.member(**index);
                    !leaf.is_gone() && images::superblock(&self.world, &leaf).is_some()
                };
                leaves
                    .iter()
                    .filter(there)
                    .map(|index| SimOpener::of(&self.world, *index))
                    .collect()
            }
            Below::Arrays(arrays) => arrays
                .iter()
                .filter_map(|nr| machine_arrays.get(*nr)?.clone())
                .map(|array| Arc::new(ArrayMember::new(array)) as Arc<dyn Opener>)
                .collect(),
        }
    }

    /// Notes what each array's redundancy has come to, and where arrays stand in those above them.
    fn look_around(&mut self) -> Result<(), Over> {
        let statuses = self.statuses()?;
        for (nr, status) in statuses.iter().enumerate() {
            let Some(status) = status else { continue };
            if status.resynced.is_none() && status.degraded == 0 {
                self.synced[nr] = true;
            }
            let Below::Arrays(below) = &self.plan.arrays[nr].below else { continue };
            for lower in below {
                let name = member_name(*lower);
                let member = status.members.iter().find(|member| member.name == name);
                let above = member.and_then(|m| Some((nr, m.slot?, m.data_offset)));
                self.links.borrow_mut().0[*lower].above = above;
            }
        }
        let unsynced = |nr: &usize| self.redundant(*nr) && !self.synced[*nr];
        if !(0..self.plan.arrays.len()).any(|nr| unsynced(&nr)) {
            self.oracle.settled = true;
        }
        Ok(())
    }

    fn wait_for_jobs(&mut self) -> Result<(), Over> {
        for nr in 0..self.plan.arrays.len() {
            if let Some(control) = self.control(nr).filter(|_| self.redundant(nr)) {
                let later =
                    self.life()?.machine.begin(async move { control.jobs().wait_idle().await });
                self.wait("jobs", &later)?;
            }
        }
        self.look_around()
    }

    // --- What counts -------------------------------------------------------------------------

    /// Which arrays count, without `without`: now, or at the next start.
    fn counting(
        &self,
        statuses: &[Option<ArrayStatus>],
        without: Option<Held>,
        when: When,
    ) -> Vec<bool> {
        let mut counts = Vec::new();
        for (nr, plan) in self.plan.arrays.iter().enumerate() {
            let (Some(layout), Some(status)) = (self.layout(nr), &statuses[nr]) else {
                counts.push(false);
                continue;
            };
            let sound = |held: Held, name: &str| {
                let fit = match held {
                    Held::Leaf(index) => {
                        let leaf = self.world.member(index);
                        !leaf.out.get() && !leaf.is_weak()
                    }
                    Held::Array(lower) => counts.get(lower).copied().unwrap_or(false),
                };
                let known = status.members.iter().find(|member| member.name == name)?;
                let filled = status.job.as_ref().is_some_and(|job| job.member == Some(known.nr));
                let whole = known.state == MemberState::InSync && !filled;
                (fit && whole && Some(held) != without).then_some(known.slot).flatten()
            };
            let slots: Vec<usize> = match &plan.below {
                Below::Leaves(leaves) => leaves
                    .iter()
                    .filter_map(|index| sound(Held::Leaf(*index), self.world.member(*index).name()))
                    .collect(),
                Below::Arrays(arrays) => arrays
                    .iter()
                    .filter_map(|nr| sound(Held::Array(*nr), &member_name(*nr)))
                    .collect(),
            };
            let whole = slots.len() == layout.slots();
            // One that has lost too much stays so until it is started again, whatever was rebuilt meanwhile.
            let failed = status.state.contains(&ArrayState::Failed) && when == When::Now;
            let survives = !failed && layout.survives(|slot| slots.contains(&slot));
            let refuses = when.finds_dirty(status) && plan.create.level.is_parity();
            counts.push(survives && (whole || !refuses));
        }
        counts
    }

    /// Some array with parity would start although it may not match, and compute from it what a leaf below
    /// does not give, or what its own log lists as bad although it was written meanwhile (a log is cleared
    /// some time after the write, as in md): the write hole.
    fn has_hole(&self, statuses: &[Option<ArrayStatus>], when: When) -> bool {
        let members = self.world.members.borrow();
        members.iter().filter(|leaf| !leaf.out.get()).any(|leaf| {
            [leaf.kind.array].into_iter().chain(self.above(leaf.kind.array)).any(|nr| {
                let create = &self.plan.arrays[nr].create;
                let dirty = statuses[nr].as_ref().is_some_and(|status| when.finds_dirty(status));
                let bad = leaf.was_bad.get() || leaf.has_failed_a_write.get();
                let listed = bad && create.bad_block_log;
                dirty && create.level.is_parity() && (leaf.is_weak() || listed)
            })
        })
    }

    /// Some array of arrays above `what` may have listed blocks of another of its members as bad, since a leaf there did not
    /// give or take them: for those `what` may be all that is left.
    fn may_be_listed_elsewhere(&self, what: Held) -> bool {
        let (mut through, mut above) = match what {
            Held::Leaf(index) => {
                let nr = self.world.member(index).kind.array;
                (nr, self.plan.arrays[nr].above)
            }
            Held::Array(nr) => (nr, self.plan.arrays[nr].above),
        };
        while let Some(nr) = above {
            let members = self.world.members.borrow();
            let bad = |leaf: &Member| leaf.was_bad.get() || leaf.has_failed_a_write.get();
            let is_below = |leaf: &Member, array: usize| {
                leaf.kind.array == array || self.above(leaf.kind.array).any(|nr| nr == array)
            };
            let mut others =
                members.iter().filter(|leaf| is_below(leaf, nr) && !is_below(leaf, through));
            if self.plan.arrays[nr].create.bad_block_log && others.any(|leaf| bad(leaf)) {
                return true;
            }
            (through, above) = (nr, self.plan.arrays[nr].above);
        }
        false
    }

    /// Nothing is asked of the stack that it does not promise when `what` is lost or weak.
    fn may_lose(&mut self, what: Held) -> Result<bool, Over> {
        self.look_around()?;
        let statuses = self.statuses()?;
        let counts = self.counting(&statuses, Some(what), When::Now);
        if !counts[self.top()] || self.may_be_listed_elsewhere(what) {
            return Ok(false);
        }
        let mut hit = match what {
            Held::Leaf(index) => Some(self.world.member(index).kind.array),
            Held::Array(nr) => self.plan.arrays[nr].above,
        };
        while let Some(nr) = hit {
            let parity = self.plan.arrays[nr].create.level.is_parity();
            let redundancy_above = self.above(nr).any(|above| self.redundant(above));
            let unsynced = self.redundant(nr) && !self.synced[nr];
            if unsynced && (parity || redundancy_above) {
                return Ok(false);
            }
            hit = if counts[nr] { None } else { self.plan.arrays[nr].above };
        }
        Ok(true)
    }
}
