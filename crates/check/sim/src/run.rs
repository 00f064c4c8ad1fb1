//! One run: an array's life from creation to the last stop, with everything that befalls it.
//!
//! A run creates and assembles the array, then goes through rounds: requests with faults among them,
//! then a crash, a stop, or nothing; what was stopped is assembled again. In the end everything is
//! repaired, checked, read, stopped, and the images are looked at.
//!
//! Owns the order of events only; `lives` stops, crashes and assembles, `faults` decides what fails,
//! `ending` is the last round, `checkers`
//! say what is wrong.

use crate::chances::Mishaps;
use crate::checkers::LOOKS;
use crate::checkers::memory_bounded;
use crate::client::{Acknowledged, Client, Failed};
use crate::content::{Found, ZERO, recognise};
use crate::device::SimOpener;
use crate::holes::Holes;
use crate::images;
use crate::left_out::LeftOut;
use crate::machine::{Machine, Step};
use crate::member::Member;
use crate::oracle::Oracle;
use crate::rng::{Extra, Rng};
use crate::scenario::Scenario;
use crate::steps::{Going, SECOND, Steps};
use crate::waiting::{Over, wait};
use crate::world::{Failure, World};
use braid_array::array::Array;
use braid_array::control::Control;
use braid_array::create::create;
use braid_array::options::SyncSpeed;
use braid_array::state::geometry::REGION;
use braid_array::status::ArrayStatus;
use braid_device::IoErrorKind;
use braid_layout::Layout;
use braid_shard::Nanos;
use std::rc::Rc;
use std::sync::Arc;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing was found.
    Passed,
    /// Something was lost, and a member had lied: outside of every promise, and seen.
    Outside(Failure),
    /// A checker found fault.
    Failed(Failure),
}

/// Checkers of what members hold, and of what follows from it: what a member has lost that lied about flushes can make
/// these fail, and no other.
const OF_CONTENT: &[&str] = &[
    "assembles",
    "blocks_are_there",
    "check_finds_nothing",
    "copies_hold_acknowledged",
    "md_can_assemble",
    "parity_matches_data",
    "reads_return_acknowledged",
    "stale_never_source",
];

impl Verdict {
    /// The verdict on the run of `world`, whose members are still there.
    pub(crate) fn of(world: &World) -> Verdict {
        let lost = world.lie_has_cost() && !world.beside_lies.get();
        match world.failure() {
            None => Verdict::Passed,
            Some(failure) if lost && OF_CONTENT.contains(&failure.checker) => {
                Verdict::Outside(failure)
            }
            Some(failure) => Verdict::Failed(failure),
        }
    }
}

/// What a run did.
#[derive(Clone, Debug)]
pub struct Report {
    /// How it ended.
    pub verdict: Verdict,
    /// The scenario in a line.
    pub scenario: String,
    /// Requests that the client sent.
    pub requests: u64,
    /// Crashes.
    pub crashes: u64,
    /// Members that failed, blocks that became unreadable, and so on.
    pub faults: u64,
    /// Members that were taken back by the bitmap.
    pub re_added: u64,
    /// Bitmaps that were added or removed.
    pub bitmap_changes: u64,
    /// A member lied about flushes.
    pub lies: bool,
}

/// One life of the array, between assembly and stop or crash.
pub(crate) struct Life {
    // Dropped in this order: the devices and the array before the shards.
    pub(crate) client: Client,
    pub(crate) array: Arc<Array>,
    pub(crate) machine: Machine,
}

/// See the module's documentation.
pub struct Run {
    pub(crate) scenario: Scenario,
    pub(crate) world: Rc<World>,
    pub(crate) rng: Rng,
    /// Choices of settings.
    pub(crate) settings_rng: Rng,
    pub(crate) mishaps: Mishaps,
    pub(crate) aimed: Extra,
    /// Flushes that fail where no other member has what is lost.
    pub(crate) sole_copies: Extra,
    /// Reads of what a member has lost with a failed flush.
    pub(crate) read_lost: Extra,
    /// Blocks that cannot be read after a crash.
    pub(crate) fading: Extra,
    /// Damage of metadata, and the members that were left out for it in this life.
    pub(crate) damage: Extra,
    pub(crate) damage_of_lists: Extra,
    pub(crate) left_out: Vec<LeftOut>,
    /// The limits of jobs, but for those that are to take long.
    pub(crate) aimed_speed: SyncSpeed,
    pub(crate) oracle: Oracle,
    pub(crate) holes: Holes,
    pub(crate) layout: Rc<Layout>,
    pub(crate) life: Option<Life>,
    pub(crate) lives: u64,
    /// Errors are right: more has failed than the level survives.
    pub(crate) excused: bool,
    /// A member that lied about flushes was stale after a power cut, which made blocks too many that others cannot give.
    pub(crate) lost_with_a_liar: bool,
    /// Without redundancy: a flush of a member was made to fail in this life, so that flushes of the array may fail and tell
    /// what is lost.
    pub(crate) flushes_fail: bool,
    /// The array is being stopped, since then: requests may be refused, and end with members that do not answer.
    pub(crate) stopping: Option<Nanos>,
    /// It was started dirty and degraded; redundancy is to be repaired before it is trusted.
    pub(crate) forced: bool,
    /// Redundancy has matched data everywhere at least once.
    pub(crate) synced: bool,
    pub(crate) crashes: u64,
    pub(crate) faults: u64,
    /// Members that were taken back by the bitmap.
    pub(crate) re_added: u64,
    /// Bitmaps that were added or removed.
    pub(crate) bitmap_changes: u64,
    pub(crate) requests: u64,
}

/// Carries out the run of `seed`; a plain one is without mishaps.
pub fn run(seed: u64, plain: bool, verbose: bool) -> Report {
    let scenario = Scenario::of(seed);
    let describe = scenario.describe();
    if verbose {
        println!("seed {seed}: {describe}");
    }
    let lies = scenario.lies;
    let world = World::new(LOOKS, seed, scenario.manners, scenario.create.version, verbose);
    for kind in &scenario.members {
        world.add_member(Member::new(kind.clone()));
    }
    let mut counts = (0, 0, 0, 0, 0);
    if let Ok(mut run) = Run::create(scenario, plain, &world) {
        // The failure, if there is one, is in the world.
        let _ = run.go();
        counts = (run.requests(), run.crashes, run.faults, run.re_added, run.bitmap_changes);
    }
    let verdict = Verdict::of(&world);
    world.end();
    let (requests, crashes, faults, re_added, bitmap_changes) = counts;
    Report {
        verdict,
        scenario: describe,
        requests,
        crashes,
        faults,
        re_added,
        bitmap_changes,
        lies,
    }
}

impl Steps for Run {
    fn going(&mut self) -> Result<Going<'_>, Over> {
        let life = self.life.as_mut().ok_or(Over)?;
        Ok(Going {
            world: &self.world,
            machine: &life.machine,
            client: &mut life.client,
            oracle: &mut self.oracle,
            rng: &self.rng,
            block: self.scenario.block,
        })
    }

    fn step(&mut self) -> Result<Step, Over> {
        let nobody_has_it = self.flushes_fail || self.excused;
        let Going { machine, client, oracle, .. } = self.going()?;
        let step = machine.step();
        if machine.world.loss_was_shown.take() && nobody_has_it {
            oracle.show_loss();
        }
        let (acknowledged, errors) = client.collect(machine, oracle);
        let oldest = client.oldest();
        let has_redundancy = self.scenario.create.level.has_redundancy();
        if has_redundancy && !acknowledged.is_empty() {
            self.note_missed(&acknowledged);
            self.note_lost();
        }
        for Failed { what, flush, error } in errors {
            if flush && self.flushes_fail {
                continue;
            }
            let refused = self.stopping.is_some_and(|since| match error.kind {
                IoErrorKind::Refused => true,
                // Without redundancy nobody else has it, and the stop waits no longer.
                IoErrorKind::Gone => !has_redundancy && self.world.now() > since + SECOND,
                _ => false,
            });
            let lost = self.lost_with_a_liar && error.kind == IoErrorKind::Medium;
            let checker = if lost { "blocks_are_there" } else { "requests_succeed" };
            if !self.excused && !refused {
                self.world.fail(checker, format!("{what}: {error}"));
            }
        }
        self.stepped(step, oldest)
    }
}

impl Run {
    fn create(scenario: Scenario, plain: bool, world: &Rc<World>) -> Result<Run, Over> {
        let mishaps = Mishaps::of(world.seed, plain);
        mishaps.prepare(world.seed, &world.members.borrow());
        mishaps.crash_in_create(&scenario, world);
        let machine = Machine::start(world, scenario.shards);
        let given = scenario.create.raid_disks + scenario.create.spares;
        let openers = (0..given).map(|index| Some(SimOpener::of(world, index))).collect();
        let (context, options) = (machine.context.clone(), scenario.create.clone());
        let later = machine.begin(async move { create(&context, openers, options).await });
        if let Err(error) = wait(&machine, "create", &later)? {
            world.fail("assembles", format!("create: {error}"));
            return Err(Over);
        }
        drop(machine);
        let members = world.members.borrow().clone();
        for member in &members[given.min(members.len())..] {
            member.mark_stale();
        }
        for member in &members[scenario.create.raid_disks..given] {
            member.mark_stale();
        }
        let superblocks: Vec<_> =
            members.iter().filter_map(|member| images::superblock(world, member)).collect();
        let Some(layout) = images::layout(&superblocks) else {
            world.fail("md_can_assemble", "the superblocks describe no array".to_string());
            return Err(Over);
        };
        let layout = Rc::new(layout);
        let (volatile, zeroes) = (scenario.volatile, scenario.zeroes);
        let oracle =
            Oracle::new(world.seed, scenario.block, layout.array_size(), scenario.zeroes, volatile);
        let of = Rc::clone(&layout);
        *world.unit_of.borrow_mut() = Some(Box::new(move |member: &Member, at| match &*of {
            Layout::Parity(parity) => Some(at / parity.chunk_size()),
            Layout::Mirror(_) => Some(at / REGION),
            Layout::Raid10(raid10) => {
                Some(raid10.logical(member.slot.get()?, at)? / raid10.chunk_size())
            }
            Layout::Striped(_) | Layout::Linear(_) => None,
        }));
        let (of, size) = (Rc::clone(&layout), scenario.block);
        *world.offsets_of.borrow_mut() = Some(Box::new(move |block| {
            let places = images::places(&of, block * size);
            places.iter().map(|place| place.offset..place.offset + size).collect()
        }));
        Ok(Run {
            rng: Rng::new(world.seed, 2),
            settings_rng: Rng::new(world.seed, 5),
            mishaps,
            aimed: Extra::of(world.seed, 41, 60, plain),
            sole_copies: Extra::of(world.seed, 55, 70, plain),
            read_lost: Extra::of(world.seed, 58, 80, plain),
            fading: Extra::of(world.seed, 59, 60, plain),
            damage: Extra::of(world.seed, 104, 40, plain),
            damage_of_lists: Extra::of(world.seed, 105, 60, plain),
            left_out: Vec::new(),
            aimed_speed: scenario.assemble.sync_speed,
            world: Rc::clone(world),
            scenario,
            oracle,
            holes: Holes::default(),
            layout,
            life: None,
            lives: 0,
            excused: false,
            lost_with_a_liar: false,
            flushes_fail: false,
            stopping: None,
            forced: false,
            synced: zeroes,
            crashes: 0,
            faults: 0,
            re_added: 0,
            bitmap_changes: 0,
            requests: 0,
        })
    }

    fn requests(&self) -> u64 {
        self.requests + self.life.as_ref().map_or(0, |life| life.client.ended)
    }

    fn go(&mut self) -> Result<(), Over> {
        self.assemble()?;
        for _ in 0..self.scenario.phases {
            self.round()?;
            self.something_aimed()?;
            if self.scenario.has_bitmap() && self.rng.percent(40) && self.status()?.degraded > 0 {
                self.add_a_member()?;
            }
            match self.rng.range(0..20) {
                0..9 => {
                    self.run_on_for_a_while()?;
                    self.crash()?;
                    self.assemble()?;
                    self.blocks_fade()?;
                    self.read_again()?;
                }
                9..12 => {
                    self.stop()?;
                    self.assemble()?;
                }
                12..15 => {
                    self.wait_for_jobs()?;
                    if self.mishaps.chance(40) {
                        self.idle_and_crash()?;
                        self.read_again()?;
                    }
                }
                _ => {}
            }
            if self.mishaps.chance(30) {
                self.mishap_between_rounds()?;
            }
        }
        self.ending()
    }

    /// The run has failed, with this checker.
    pub(crate) fn fail<T>(&self, checker: &'static str, text: String) -> Result<T, Over> {
        self.world.fail(checker, text);
        Err(Over)
    }

    pub(crate) fn life(&mut self) -> Result<&mut Life, Over> {
        self.life.as_mut().ok_or(Over)
    }

    // --- What members missed -----------------------------------------------------------------

    /// A member that did not get an acknowledged write is stale from the acknowledgement on.
    fn note_missed(&mut self, acknowledged: &[Acknowledged]) {
        let missed = self.world.missed.borrow().clone();
        let members = self.world.members.borrow().clone();
        for write in acknowledged {
            for missed in missed.iter().filter(|m| m.versions.contains(&write.version)) {
                let member = &members[missed.member];
                // Perhaps it was written again, in smaller pieces.
                if self.lacks(member, write) {
                    self.missed_one(member, "gave an error");
                }
            }
            for member in members.iter().filter(|m| m.dropped.get() && m.in_sync.get()) {
                if self.lacks(member, write) {
                    self.missed_one(member, "was out of the array");
                }
            }
        }
        if self.life.as_ref().is_none_or(|life| life.client.waiting() == 0) {
            self.world.missed.borrow_mut().clear();
        }
    }

    /// What was written to a member up to the instant at which it fails is lost with it where parity
    /// does not match.
    fn note_lost(&mut self) {
        if self.holes.is_empty() {
            return;
        }
        let members = self.world.members.borrow().clone();
        for member in members.iter().filter(|member| member.out.get() || member.dropped.get()) {
            if let Some(slot) = member.slot.get() {
                self.holes.lose(&self.layout, slot, &mut self.oracle);
            }
        }
    }

    /// The member holds a copy of some block that is older than this write.
    fn lacks(&self, member: &Member, write: &Acknowledged) -> bool {
        let (size, start) = (self.scenario.block, member.data.borrow().start);
        let older = |block: u64| {
            let places = images::places(&self.layout, block * size);
            let mut own = places.iter().filter(|place| Some(place.slot) == member.slot.get());
            own.any(|place| {
                let at = start + place.offset;
                match recognise(self.world.seed, &member.image(at..at + size)) {
                    // Perhaps of a later write.
                    Found::Zeroes => false,
                    Found::Block { version, .. } => version < write.version & !ZERO,
                    _ => true,
                }
            })
        };
        write.blocks.clone().any(older)
    }

    fn missed_one(&self, member: &Member, why: &str) {
        if member.in_sync.get() && (member.out.get() || member.dropped.get()) {
            self.world
                .trace(|| format!("{} missed an acknowledged write: it {why}", member.name()));
            member.in_sync.set(false);
            member.mark_stale();
        }
    }

    // --- Rounds ------------------------------------------------------------------------------

    pub(crate) fn round(&mut self) -> Result<(), Over> {
        let requests = self.rng.range(1..self.scenario.requests + 1);
        let mut sent = 0;
        while sent < requests {
            let depth = 1 + self.rng.range(0..self.scenario.depth) as usize;
            let scenario = &self.scenario;
            if let Some(life) = self.life.as_mut()
                && life.client.waiting() < depth
            {
                sent += 1;
                life.client.send_random(&life.machine, scenario, &mut self.oracle);
                memory_bounded::running(&life.machine, life.client.waiting() << 20);
                let changes = self.settings_rng.range(0..1000) < scenario.changes;
                if self.rng.range(0..1000) < scenario.faults {
                    self.something_happens()?;
                }
                if changes {
                    self.settings_change()?;
                }
            }
            self.step()?;
        }
        if self.rng.percent(50) { self.drain() } else { Ok(()) }
    }

    /// Runs up to the instant of a crash: after some requests to members, or soon after a
    /// superblock was written.
    fn run_on_for_a_while(&mut self) -> Result<(), Over> {
        let world = Rc::clone(&self.world);
        let requests = world.submissions.get() + self.rng.log_range(1..400);
        let metadata = world.metadata_writes.get() + self.rng.range(1..6);
        let by_metadata = self.rng.percent(30);
        // With a bitmap: data may have followed its bit, or not.
        let mut after = match by_metadata && self.scenario.has_bitmap() {
            true => self.rng.range(0..40),
            false => 0,
        };
        let until = world.now() + self.rng.log_range(1_000..2_000_000_000);
        loop {
            let there = if by_metadata {
                world.metadata_writes.get() >= metadata
            } else {
                world.submissions.get() >= requests
            };
            let over = there && after == 0;
            if over || world.now() >= until || self.step()? == Step::Stuck {
                return Ok(());
            }
            after -= u64::from(there);
        }
    }

    pub(crate) fn control(&mut self) -> Result<Rc<Control>, Over> {
        let life = self.life()?;
        let found = Control::find(life.machine.home(), life.array.id());
        match found {
            Some(control) => Ok(control),
            None => self.fail("assembles", "a running array has no control".to_string()),
        }
    }

    pub(crate) fn status(&mut self) -> Result<ArrayStatus, Over> {
        let control = self.control()?;
        let later = self.life()?.machine.begin(async move { control.status().await });
        self.wait("the status", &later)
    }

    pub(crate) fn wait_for_jobs(&mut self) -> Result<(), Over> {
        if !self.scenario.create.level.has_redundancy() {
            return Ok(());
        }
        let control = self.control()?;
        let later = self.life()?.machine.begin(async move { control.jobs().wait_idle().await });
        self.wait("jobs", &later)?;
        let status = self.status()?;
        if status.resynced.is_none() && status.degraded == 0 && !self.forced {
            self.redundancy_holds();
        }
        Ok(())
    }

    /// Redundancy matches data everywhere from now on.
    pub(crate) fn redundancy_holds(&mut self) {
        self.world.trace(|| "redundancy holds".to_string());
        self.synced = true;
        self.holes.close();
        self.oracle.settle();
        self.forced = false;
    }
}
