//! Runs of arrays: a single one, or a stack of arrays whose members are arrays, in two or three layers. A single array is
//! a stack of one.
//!
//! A run creates everything from the bottom up, then goes through rounds: requests with faults among them, then a crash,
//! a stop, or nothing; what was stopped is assembled again. In the end everything is repaired, checked, read, stopped, and
//! the images are looked at. The client, the world and the oracle see the top and the leaves.
//!
//! | file | of every run |
//! |---|---|
//! | `plan`, `stacks`, `chances` | what it is about, with its odds and streams; how stacks are drawn; what only some runs have |
//! | `waits` | going on in time: steps, waiting, reading everything |
//! | `standing` | how arrays stand on one another |
//! | `counting` | which arrays count, and what they can still lose |
//! | `lives`, `between` | creation, assembly, stops and crashes; what lies between two lives |
//! | `rounds`, `faults`, `mishaps` | requests, and what happens meanwhile |
//! | `commands`, `mending`, `replacing` | what people ask of arrays; members that come; members that are replaced |
//! | `ending` | the last round |
//!
//! | file | of single arrays alone |
//! |---|---|
//! | `promises`, `holes` | what is promised no longer; the write hole |
//! | `assembly`, `missed` | superblocks before an assembly; members that missed a write |
//! | `lost_flushes`, `between_rounds` | mishaps with flushes, and without requests |
//! | `rescue` | more members are stale than the level can do without |
//! | `journal_fails` | the device of a write journal fails, at run time and at a start |
//! | `two_hosts` | another host takes an array that has a heartbeat |
//! | `scrub_in_parts` | checks that go on where they were interrupted |
//! | `aimed`, `metadata` | situations brought about on purpose; damaged metadata |
//! | `reshaping`, `other_shapes`, `resizing` | more members; other chunks and layouts, fewer members; larger components |
//! | `changing` | runs that are about other levels and shapes, and meet little else |
//! | `growing` | the same of level 10 that is reshaped, and of larger components |
//! | `calm` | the array of these two |
//! | `levels`, `steps` | other levels; other levels and shapes in several steps |
//! | `cut_short` | short histories that are cut at every instant (`crate::exhaust`) |
//!
//! | file | of stacks alone |
//! |---|---|
//! | `rest` | what every array holds, from the images of the leaves |
//! | `too_degraded` | an array below another that has lost too much |
//!
//! Owns the order of events only.

mod aimed;
mod assembly;
mod between;
mod between_rounds;
mod calm;
mod chances;
pub mod changing;
mod commands;
mod counting;
pub mod cut_short;
mod ending;
mod faults;
pub mod growing;
mod holes;
mod journal_fails;
mod levels;
mod lives;
mod lost_flushes;
mod mending;
mod metadata;
mod mishaps;
mod missed;
mod other_shapes;
pub mod plan;
mod promises;
mod replacing;
mod rescue;
mod reshaping;
mod resizing;
mod rest;
mod rounds;
mod scrub_in_parts;
mod stacks;
mod standing;
mod steps;
mod too_degraded;
mod two_hosts;
mod waits;

use crate::checkers::LOOKS;
use crate::client::Client;
use crate::machine::Machine;
use crate::member::Member;
use crate::oracle::Oracle;
use crate::rng::{Extra, Rng};
use crate::verdict::{Counts, Report, Verdict};
use crate::waiting::Over;
use crate::world::World;
use braid_array::array::Array;
use braid_array::control::Control;
use braid_array::status::ArrayStatus;
use braid_layout::{Layout, Slot};
use braid_shard::Nanos;
use chances::{Chances, Damage};
use plan::Plan;
use promises::Promises;
use standing::{Links, Standing};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// The stream that says whether reads see what is lost with a failed flush.
const SHOWS_LOSS: u64 = 57;

/// One life of the arrays, between assembly and stop or crash.
struct Life {
    // Dropped in this order: the devices and the arrays before the shards.
    client: Client,
    /// By number; `None`: it does not run.
    arrays: Vec<Option<Arc<Array>>>,
    machine: Machine,
}

/// See the module's documentation.
struct Run {
    plan: Plan,
    world: Rc<World>,
    rng: Rng,
    settings_rng: Rng,
    mishaps: Extra,
    chances: Chances,
    damage: Damage,
    oracle: Oracle,
    links: Rc<RefCell<Links>>,
    standing: Standing,
    promises: Promises,
    life: Option<Life>,
    lives: u64,
    /// Everything is being stopped, since then: requests may be refused, and end with members that do not answer.
    stopping: Option<Nanos>,
    did: Counts,
}

/// Carries out a run; a plain one is without mishaps.
pub fn run(plan: Plan, plain: bool, verbose: bool) -> Report {
    carry_out(plan, plain, verbose, Run::go)
}

fn carry_out(
    plan: Plan,
    plain: bool,
    verbose: bool,
    history: impl FnOnce(&mut Run) -> Result<(), Over>,
) -> Report {
    let (scenario, seed) = (plan.describe(), plan.scenario.seed);
    if verbose {
        println!("{} {seed}: {scenario}", if plan.is_alone() { "seed" } else { "stack" });
    }
    let (lies, top) = (plan.scenario.lies, &plan.scenario);
    let world = World::new(LOOKS, seed, top.manners, top.create.version, verbose);
    for kind in &top.members {
        world.add_member(Member::new(kind.clone()));
    }
    *world.journal.borrow_mut() =
        top.journal.as_ref().map(|kind| Rc::new(Member::new(kind.clone())));
    let mut run = Run::new(plan, plain, &world);
    // The failure, if there is one, is in the world.
    let _ = history(&mut run);
    let ended = run.life.as_ref().map_or(0, |life| life.client.ended);
    let did = Counts { requests: run.did.requests + ended, ..run.did };
    drop(run);
    let verdict = Verdict::of(&world);
    world.end();
    Report { verdict, scenario, did, lies }
}

impl Run {
    fn new(plan: Plan, plain: bool, world: &Rc<World>) -> Run {
        let links: Rc<RefCell<Links>> = Rc::default();
        let of = Rc::clone(&links);
        *world.unit_of.borrow_mut() = Some(Box::new(move |member: &Member, at| {
            of.borrow().unit(member.kind.array, member.slot.get(), at)
        }));
        let (seed, top, streams) = (world.seed, &plan.scenario, &plan.streams);
        let (stream, percent) = streams.mishaps;
        let mishaps = Extra::of(seed, stream, percent, plain);
        // Members lose what they have cached when a flush fails. In some runs reads see it: those of a stack where the
        // leaf's own array can do without it.
        let drops_pages = mishaps.chance(75);
        let shows_loss = drops_pages && plan.is_alone() && Rng::new(seed, SHOWS_LOSS).percent(50);
        for member in world.members.borrow().iter() {
            member.drops_pages.set(drops_pages);
            member.shows_loss.set(shows_loss);
        }
        Run {
            rng: Rng::new(seed, streams.choices),
            settings_rng: Rng::new(seed, streams.settings),
            mishaps,
            chances: Chances::of(seed, streams, plain),
            damage: Damage::of(seed, streams, plain),
            oracle: Oracle::new(seed, top.block, top.block, top.zeroes, top.volatile),
            standing: Standing::of(plan.arrays.len(), top.zeroes),
            promises: Promises { synced: top.zeroes, ..Promises::default() },
            world: Rc::clone(world),
            plan,
            links,
            life: None,
            lives: 0,
            stopping: None,
            did: Counts::default(),
        }
    }

    fn go(&mut self) -> Result<(), Over> {
        self.first_life()?;
        for _ in 0..self.plan.scenario.phases {
            self.round()?;
            self.something_aimed()?;
            self.mend_between_rounds()?;
            if self.chances.replaced.chance(30) {
                self.replace_a_member()?;
            }
            let odds = &self.plan.odds;
            let (jobs, idle, mishap) =
                (odds.wait_for_jobs, odds.crash_when_idle, odds.between_rounds);
            match self.rng.range(0..20) {
                0..9 => {
                    self.run_on_for_a_while()?;
                    self.next_life(true)?;
                    self.after_a_crash()?;
                }
                9..12 => self.next_life(false)?,
                drawn if drawn < jobs => {
                    self.wait_for_jobs()?;
                    if self.mishaps.chance(idle) {
                        self.idle_and_crash()?;
                        self.read_again()?;
                    }
                }
                _ => {}
            }
            if self.mishaps.chance(mishap) {
                self.mishap_between_rounds()?;
            }
        }
        // Last, so that everything before is what it is without.
        if self.chances.too_degraded.on {
            self.too_degraded_below()?;
        }
        if self.chances.reshaping.on {
            self.members_are_added()?;
        }
        if self.chances.resizing.on {
            self.components_grow()?;
        }
        if self.chances.other_shapes.on {
            self.shape_changes()?;
        }
        if self.chances.scrub_in_parts.on {
            self.scrub_in_parts()?;
        }
        if self.chances.replaced.on {
            self.replacements_are_cut_short()?;
        }
        self.another_host_takes_it()?;
        if self.chances.journal.on {
            self.the_journal_fails()?;
        }
        if self.chances.rescue.on {
            self.too_many_are_stale()?;
        }
        if self.chances.levels.on {
            self.level_changes()?;
        }
        if self.chances.steps.on {
            self.level_steps()?;
        }
        if self.chances.copies.on {
            self.stripes_and_copies()?;
        }
        if self.chances.level_0.on {
            self.level_0_at_last()?;
        }
        self.ending()
    }

    /// The run has failed, with this checker.
    fn fail<T>(&self, checker: &'static str, text: String) -> Result<T, Over> {
        self.world.fail(checker, text);
        Err(Over)
    }

    /// [`Over`] when the run has failed.
    fn goes_on(&self) -> Result<(), Over> {
        if self.world.failure().is_some() { Err(Over) } else { Ok(()) }
    }

    fn life(&mut self) -> Result<&mut Life, Over> {
        self.life.as_mut().ok_or(Over)
    }

    // --- Arrays --------------------------------------------------------------------------------

    /// The number of the array that the client uses.
    fn top(&self) -> usize {
        self.plan.arrays.len() - 1
    }

    /// Array `nr` in what people read; of a single array there is no need to say which.
    fn a(&self, nr: usize) -> String {
        if self.plan.is_alone() { String::new() } else { format!("a{nr}: ") }
    }

    /// Any array.
    fn some_array(&self, rng: &Rng) -> usize {
        if self.plan.is_alone() { self.top() } else { rng.below(self.plan.arrays.len()) }
    }

    /// The layout of array `nr`, which was created.
    fn layout(&self, nr: usize) -> Rc<Layout> {
        Rc::clone(&self.links.borrow().0[nr].layout)
    }

    fn layouts(&self) -> Vec<Rc<Layout>> {
        self.links.borrow().0.iter().map(|link| Rc::clone(&link.layout)).collect()
    }

    fn redundant(&self, nr: usize) -> bool {
        self.plan.arrays[nr].create.level.has_redundancy()
    }

    /// Arrays from `nr` upwards, without `nr`.
    fn above(&self, nr: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.plan.arrays[nr].above, |nr| self.plan.arrays[*nr].above)
    }

    /// The control of array `nr`; `None` when it does not run, which the top always does.
    fn control(&self, nr: usize) -> Result<Option<Rc<Control>>, Over> {
        let life = self.life.as_ref().ok_or(Over)?;
        let array = life.arrays.get(nr).and_then(|array| array.as_ref());
        let found = array.and_then(|array| Control::find(life.machine.home(), array.id()));
        if found.is_none() && nr == self.top() {
            return self.fail("assembles", "a running array has no control".to_string());
        }
        Ok(found)
    }

    fn top_control(&self) -> Result<Rc<Control>, Over> {
        self.control(self.top())?.ok_or(Over)
    }

    fn status(&mut self, nr: usize) -> Result<Option<ArrayStatus>, Over> {
        let Some(control) = self.control(nr)? else { return Ok(None) };
        let later = self.life()?.machine.begin(async move { control.status().await });
        self.wait("a status", &later).map(Some)
    }

    fn top_status(&mut self) -> Result<ArrayStatus, Over> {
        self.status(self.top())?.ok_or(Over)
    }

    fn statuses(&mut self) -> Result<Vec<Option<ArrayStatus>>, Over> {
        (0..self.plan.arrays.len()).map(|nr| self.status(nr)).collect()
    }

    // --- The write hole ------------------------------------------------------------------------

    /// The member of `slot` is lost to a single array.
    fn lose(&mut self, slot: Slot) {
        let layout = self.layout(self.top());
        // One that an unfinished reshape has given to a new member holds nothing of this layout.
        if slot < layout.slots() {
            self.promises.lose(&layout, slot, &mut self.oracle);
        }
    }

    /// These component bytes of the member of `slot` cannot be read; as for [`lose`](Run::lose), it may have none.
    fn lose_parts(&mut self, slot: Slot, parts: impl IntoIterator<Item = Range<u64>>) {
        let layout = self.layout(self.top());
        if slot < layout.slots() {
            self.promises.lose_parts(&layout, slot, parts, &mut self.oracle);
        }
    }
}
