//! One run of a volume: its life from the first mount to the last, with everything that befalls it.

use super::choose::Taste;
use super::client::{Client, Clock};
use super::history::History;
use super::leased;
use super::ledger::{self, Pairs};
use super::meta::Id;
use super::model::Model;
use super::over_arrays::{self, OverArrays, Running};
use super::plan::{Scope, VolumePlan};
use super::room::Room;
use super::taken::Snapshots;
use crate::checkers::LOOKS;
use crate::device::SimOpener;
use crate::machine::{Later, Machine, Step};
use crate::member::Member;
use crate::rng::Rng;
use crate::verdict::{Counts, Report, Verdict};
use crate::waiting::{Over, PATIENCE, wait};
use crate::world::World;
use braid_filesystem::{Caller, Errno, FileSystem, Leases, ROOT, Time};
use braid_format::superblock::Version;
use braid_format::volume::BLOCK;
use braid_kv::Store;
use braid_kv::model::{ModelStore, Snapshot, UnderWay};
use braid_volume::{
    BrickDevice, CheckReport, Format, MountOf, NewBrick, Volume, VolumeError, first_records,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use uuid::Uuid;

/// What became of commands: of a check what it found.
pub(super) type Outcomes = Rc<RefCell<Vec<Result<Option<CheckReport>, VolumeError>>>>;

/// Times that commands are given in one life of the volume, at most: where requests take many steps, a run would
/// otherwise do little but commands, for minutes.
const MOST_COMMANDS: u32 = 500;
/// When the clock of every run begins, in seconds since 1970.
const EPOCH: i64 = 1_700_000_000;

/// One life of the volume, between a mount and a stop or crash.
pub(super) struct Life {
    // Dropped in this order: what stands on the shards before them.
    pub(super) client: Client<Volume>,
    pub(super) volume: Rc<Volume>,
    store: ModelStore,
    pub(super) arrays: Running,
    pub(super) machine: Machine,
}

/// A mount that is on its way.
pub(super) struct Mounting {
    // Dropped in this order: what stands on the shards before them.
    pub(super) later: Later<Result<Rc<Volume>, VolumeError>>,
    pub(super) store: ModelStore,
    pub(super) arrays: Running,
    pub(super) machine: Machine,
}

/// See the module's documentation.
pub(super) struct VolumeRun {
    pub(super) plan: VolumePlan,
    pub(super) world: Rc<World>,
    rng: Rng,
    /// Choices of commands: a stream of its own, so that runs without commands stay as they were before there were any.
    pub(super) commands_rng: Rng,
    /// Choices of what fails, likewise.
    pub(super) faults_rng: Rng,
    /// Choices of what is done on purpose, likewise (`aimed`).
    pub(super) aimed_rng: Rng,
    /// Choices of copies, likewise (`copies`).
    pub(super) copies_rng: Rng,
    /// Choices of returns of the brick that fails, likewise.
    pub(super) returns_rng: Rng,
    /// Choices of bricks that take the place of others, likewise.
    pub(super) replaces_rng: Rng,
    /// Choices of snapshots, likewise, and those that there are (`snapshots`).
    pub(super) snapshots_rng: Rng,
    pub(super) snapshots: Snapshots,
    /// Choices of limits of projects, likewise, and what projects may have at most.
    pub(super) limits_rng: Rng,
    pub(super) most: BTreeMap<u32, (u64, u64)>,
    /// Bricks that are arrays.
    pub(super) over_arrays: OverArrays,
    /// Files that were cut right before the last crash.
    pub(super) cut: Vec<Id>,
    /// Bricks that the volume has noted as lost: it is not given them any more.
    pub(super) noted: Rc<RefCell<BTreeSet<u16>>>,
    /// Bricks that were not there, all the while that everything was read last.
    pub(super) dead_when_read: Option<Vec<u16>>,
    /// Bricks have gone; they may have been noted as lost, and removed, since.
    pub(super) lost_some: Rc<Cell<bool>>,
    pub(super) model: Option<Model>,
    pub(super) metadata: Snapshot,
    pub(super) life: Option<Life>,
    /// What became of commands of this life.
    pub(super) outcomes: Outcomes,
    /// What the client of the life before knew.
    history: History,
    lives: u64,
    crashes: u64,
    pub(super) faults: u64,
    requests: u64,
}

/// Carries out the run of the volume of `seed`, of that scope.
pub fn run(seed: u64, scope: Scope, verbose: bool) -> Report {
    let plan = VolumePlan::of(seed, scope);
    let scenario = plan.describe();
    if verbose {
        println!("volume {seed}: {scenario}");
    }
    let world = World::new(LOOKS, seed, plan.manners, Version::V1_2, verbose);
    for brick in plan.all_bricks() {
        let at = world.add_member(Member::new(brick.kind.clone()));
        // All of it is data, to the faults of the member.
        *world.member(at).data.borrow_mut() = 0..brick.kind.info.size;
        world.member(at).forgets.set(true);
    }
    over_arrays::add_leaves(&world, &plan.arrays);
    let mut run = VolumeRun {
        rng: Rng::new(seed, 31),
        commands_rng: Rng::new(seed, 35),
        faults_rng: Rng::new(seed, 38),
        aimed_rng: Rng::new(seed, 39),
        copies_rng: Rng::new(seed, 58),
        returns_rng: Rng::new(seed, 62),
        replaces_rng: Rng::new(seed, 70),
        snapshots_rng: Rng::new(seed, 66),
        snapshots: Snapshots::default(),
        limits_rng: Rng::new(seed, 52),
        most: BTreeMap::new(),
        over_arrays: OverArrays::new(&world, &plan.arrays),
        cut: Vec::new(),
        noted: Rc::default(),
        dead_when_read: None,
        lost_some: Rc::default(),
        outcomes: Outcomes::default(),
        world: Rc::clone(&world),
        plan,
        model: None,
        metadata: Snapshot::default(),
        life: None,
        history: History::default(),
        lives: 0,
        crashes: 0,
        faults: 0,
        requests: 0,
    };
    // The failure, if there is one, is in the world.
    let _ = run.go();
    let ended = run.life.as_ref().map_or(0, |life| life.client.ended);
    world.end();
    let verdict = match world.failure() {
        None => Verdict::Passed,
        Some(failure) => Verdict::Failed(failure),
    };
    let did = Counts {
        requests: run.requests + ended,
        crashes: run.crashes,
        faults: run.faults,
        ..Counts::default()
    };
    Report { verdict, scenario, did, lies: false }
}

fn clock(world: &Rc<World>) -> Clock {
    let world = Rc::clone(world);
    Rc::new(move || {
        let now = world.now();
        Time { seconds: EPOCH + (now / 1_000_000_000) as i64, nanos: (now % 1_000_000_000) as u32 }
    })
}

/// Which brick it is.
pub(super) fn uuid_of(brick: usize) -> Uuid {
    Uuid::from_u128(brick as u128 + 1)
}

impl Life {
    /// The records that are durable.
    pub(super) fn metadata(&self) -> Pairs {
        self.store.snapshot().pairs().clone()
    }
}

impl VolumeRun {
    pub(super) fn fail<T>(&self, checker: &'static str, text: String) -> Result<T, Over> {
        self.world.fail(checker, text);
        Err(Over)
    }

    pub(super) fn life(&mut self) -> Result<&mut Life, Over> {
        self.life.as_mut().ok_or(Over)
    }

    fn go(&mut self) -> Result<(), Over> {
        self.create()?;
        self.mount()?;
        for _ in 0..self.plan.rounds {
            self.round()?;
            match self.rng.range(0..20) {
                0..12 => {
                    self.crash()?;
                    self.interrupt_a_mount()?;
                    self.mount()?;
                    self.grow_what_was_cut()?;
                }
                12..16 => {
                    self.stop()?;
                    self.mount()?;
                }
                _ => self.compare()?,
            }
        }
        self.compare()?;
        self.finish_jobs()?;
        self.copies_are_made()?;
        self.end_snapshots()?;
        self.account()?;
        self.stop()?;
        self.mount()?;
        self.lose_a_copy()?;
        self.stop()?;
        if self.has_snapshots() {
            return Ok(());
        }
        self.rot()?;
        self.damage()
    }

    fn create(&mut self) -> Result<(), Over> {
        over_arrays::make(&self.world, &self.plan.arrays)?;
        let machine = Machine::start(&self.world, 1);
        let bricks: Vec<NewBrick> = (0..)
            .zip(&self.plan.bricks)
            .map(|(index, brick)| NewBrick {
                uuid: uuid_of(index),
                weight: brick.weight,
                blocks: brick.blocks(),
                domain: String::new(),
            })
            .collect();
        let now = clock(&self.world)();
        let owner = Caller::default();
        let format = Format {
            stripe: self.plan.stripe,
            checksums: true,
            copies: self.plan.default_copies(),
        };
        let made = first_records(Uuid::from_u128(77), format, &bricks, owner, now);
        let records = match made {
            Ok(records) => records,
            Err(error) => return self.fail("mounts", format!("create: {error}")),
        };
        let store = ModelStore::new(machine.home());
        let commit = store.commit(records);
        let later = machine.begin(commit);
        if let Err(error) = wait(&machine, "the first commit", &later)? {
            return self.fail("mounts", format!("create: {error}"));
        }
        self.metadata = store.snapshot();
        Ok(())
    }

    pub(super) fn mount(&mut self) -> Result<(), Over> {
        self.check_metadata()?;
        self.bricks_between_lives();
        self.over_arrays.leaves_between_lives();
        let commit_time = self.rng.range(0..self.plan.commit_time);
        let Mounting { machine, store, arrays, later } = self.begin_mount(commit_time);
        let volume = match wait(&machine, "the mount", &later)? {
            Ok(volume) => volume,
            Err(error) => return self.fail("mounts", error.to_string()),
        };
        let clock = clock(&self.world);
        self.lives += 1;
        let rng = Rng::new(self.world.seed, 40 + self.lives);
        let mut client = Client::new(rng, Rc::clone(&volume), &machine, clock);
        client.history = std::mem::take(&mut self.history);
        (client.calls, client.trims) = (self.plan.calls, self.plan.trims());
        client.names_may_be_full = self.plan.metadata.is_some();
        client.shares = self.plan.snapshots.is_some();
        client.copies_ranges = self.plan.common;
        client.may_fail = self.may_fail().then_some(false);
        client.leases = self.leases(&machine);
        client.may_be_old = self.only_on_victim(store.snapshot().pairs(), &volume);
        match &mut self.model {
            Some(model) => client.recover(&machine, model)?,
            None => {
                let fs = Rc::clone(&volume);
                let later = machine.begin(async move { fs.lookup(ROOT, b".").await });
                match wait(&machine, "the root", &later)? {
                    Ok(root) => {
                        volume.forget(ROOT, 1);
                        let seed = self.world.seed;
                        self.model = Some(Model::new(seed, root.generation, &root.attr));
                    }
                    Err(errno) => return self.fail("mounts", format!("the root: {errno}")),
                }
            }
        }
        client.room = self.room()?;
        self.set_job_speed(&volume);
        self.life = Some(Life { client, volume, store, arrays, machine });
        let life = self.life.as_ref().ok_or(Over)?;
        self.over_arrays.replace_leaves(&life.machine, &life.arrays)?;
        self.expect_failures();
        self.dead_when_read = Some(self.dead());
        if self.plan.limits {
            self.look_at_limits()?;
        }
        self.snapshots_after_mount()?;
        self.check()
    }

    /// In half of the lives some reads are made as another shard makes them.
    fn leases(&self, machine: &Machine) -> Option<Rc<dyn Leases>> {
        let is_array =
            |brick: &usize| self.plan.arrays.all.iter().any(|array| array.brick == *brick);
        let bricks = (0..self.plan.all_bricks().count()).filter(|brick| !is_array(brick));
        let bricks = bricks.map(|brick| (uuid_of(brick), brick)).collect();
        let does = Rng::new(self.world.seed, 1000 + self.lives).percent(50);
        does.then(|| leased::reader(machine, bricks))
    }

    /// A mount of what there is begins on a machine of its own. Commits take the store up to `commit_time`
    /// nanoseconds.
    pub(super) fn begin_mount(&self, commit_time: u64) -> Mounting {
        let machine = Machine::start(&self.world, self.plan.arrays.shards);
        let store = ModelStore::from_snapshot(machine.home(), self.metadata.clone());
        store.set_commit_time(commit_time);
        store.set_capacity(self.plan.metadata.unwrap_or(u64::MAX));
        let mut devices = Vec::new();
        let (all, arrays) = (self.plan.arrays.all.clone(), Running::default());
        for (index, brick) in self.plan.all_bricks().enumerate() {
            if all.iter().any(|array| array.brick == index) {
                continue;
            }
            if let Ok(device) = SimOpener::of(&self.world, index).open(machine.home()) {
                let data_offset = brick.data_offset;
                devices.push(BrickDevice { uuid: uuid_of(index), device, data_offset });
            }
        }
        let mut from = MountOf {
            devices,
            store: Rc::new(store.clone()),
            note_lost: self.note_lost(machine.home()),
            clock: clock(&self.world),
            read_only: false,
        };
        let (shard, running) = (machine.home().clone(), Rc::clone(&arrays));
        let (world, context) = (Rc::clone(&self.world), machine.context.clone());
        let offsets: Vec<u64> = self.plan.bricks.iter().map(|brick| brick.data_offset).collect();
        let later = machine.begin(async move {
            for array in all {
                let (uuid, data_offset) = (uuid_of(array.brick), offsets[array.brick]);
                let running = Rc::clone(&running);
                let device =
                    over_arrays::start(Rc::clone(&world), context.clone(), array, running).await;
                from.devices.extend(device.map(|device| BrickDevice { uuid, device, data_offset }));
            }
            Volume::mount(&shard, from).await
        });
        Mounting { machine, store, arrays, later }
    }

    /// Lets the volume run, or the clock, and looks at what came back.
    pub(super) fn step(&mut self) -> Result<Step, Over> {
        let (Some(life), Some(model)) = (self.life.as_mut(), self.model.as_mut()) else {
            return Err(Over);
        };
        // What completed at once comes back before any time passes.
        let step = match life.client.collect(model) {
            true => Step::Ran,
            false => life.machine.step(),
        };
        life.client.collect(model);
        self.look_at_commands()?;
        if self.world.failure().is_some() {
            return Err(Over);
        }
        let now = self.world.now();
        let Some(life) = self.life.as_mut() else { return Err(Over) };
        let stuck = step == Step::Stuck && life.client.waiting() > 0;
        if stuck || life.client.oldest().is_some_and(|oldest| now > oldest + PATIENCE) {
            let waiting = life.client.describe_waiting();
            let bricks = self.world.describe_under_way();
            let text = format!("requests wait: [{waiting}]; at bricks: [{bricks}]");
            return self.fail("nothing_waits_for_ever", text);
        }
        Ok(step)
    }

    fn round(&mut self) -> Result<(), Over> {
        let mut taste = Taste::of(&self.rng, self.plan.space(), self.plan.stripe);
        taste.fill_names = self.plan.metadata.is_some() && self.rng.percent(50);
        self.world.trace(|| format!("{taste:?}"));
        let mut left = self.plan.requests;
        let mut commands = MOST_COMMANDS;
        while left > 0 {
            let often = self.plan.commands_often;
            if self.plan.commands && commands > 0 && self.commands_rng.range(0..1000) < often {
                // Several at once meet each other, and what they wait for.
                let together = if self.commands_rng.percent(25) { 4 } else { 1 };
                for _ in 0..together {
                    self.command()?;
                }
                commands -= 1;
            }
            self.tell_copies()?;
            if self.plan.faults > 0 && self.faults_rng.range(0..1000) < self.plan.faults {
                self.a_brick_fails()?;
            }
            self.a_brick_returns()?;
            self.faults += u64::from(self.over_arrays.a_leaf_fails());
            self.limit_a_project()?;
            self.snapshot_now_and_then()?;
            let depth = self.plan.depth;
            let (Some(life), Some(model)) = (self.life.as_mut(), self.model.as_mut()) else {
                return Err(Over);
            };
            if life.client.waiting() < depth && !self.rng.percent(10) {
                life.client.send_random(model, &taste);
                left -= 1;
                continue;
            }
            if life.client.waiting() == 0 {
                // Time passes between requests, too.
                let pause = self.rng.log_range(1..2_000_000_000);
                self.world.advance(self.world.now() + pause);
            }
            self.step()?;
        }
        Ok(())
    }

    pub(super) fn drain(&mut self) -> Result<(), Over> {
        while self.life()?.client.waiting() > 0 {
            self.step()?;
        }
        Ok(())
    }

    pub(super) fn compare(&mut self) -> Result<(), Over> {
        self.drain()?;
        self.limits_hold()?;
        let dead = self.dead();
        let (Some(life), Some(model)) = (self.life.as_mut(), self.model.as_mut()) else {
            return Err(Over);
        };
        life.client.compare_all(&life.machine, model)?;
        self.dead_when_read = Some(dead).filter(|dead| *dead == self.dead());
        self.look_into_snapshots(false)?;
        self.check()
    }

    fn crash(&mut self) -> Result<(), Over> {
        if !self.sync_or_cut()? {
            for _ in 0..self.rng.log_range(1..200) {
                self.step()?;
            }
        }
        self.cut_power()
    }

    /// Power fails now.
    pub(super) fn cut_power(&mut self) -> Result<(), Over> {
        self.world.trace(|| "CRASH".to_string());
        self.snapshots_in_doubt();
        self.crashes += 1;
        let under_way = if self.rng.percent(50) { UnderWay::Kept } else { UnderWay::Lost };
        let life = self.life()?;
        life.client.history.note(&[], "CRASH".to_string());
        let metadata = life.store.crash(under_way);
        self.metadata = metadata;
        self.world.power_cut();
        self.end_life()
    }

    pub(super) fn stop(&mut self) -> Result<(), Over> {
        self.wait_for_snapshot_calls()?;
        self.drain()?;
        self.world.trace(|| "stop".to_string());
        let (Some(life), Some(model)) = (self.life.as_mut(), self.model.as_mut()) else {
            return Err(Over);
        };
        let volume = Rc::clone(&life.volume);
        let later = life.machine.begin(async move { volume.close().await });
        match wait(&life.machine, "the stop", &later)? {
            // A stop is a promise: everything is durable, and power may fail.
            Ok(()) => model.make_all_durable(),
            // What a flush that failed was for is as after a crash.
            Err(Errno::Io) if life.client.may_fail.is_some() => {}
            Err(errno) => return self.fail("stops", format!("the volume: {errno}")),
        }
        let life = self.life.as_ref().ok_or(Over)?;
        self.over_arrays.stop(&life.machine, &life.arrays)?;
        let life = self.life()?;
        life.client.history.note(&[], "STOP".to_string());
        let metadata = life.store.snapshot();
        self.metadata = metadata;
        self.world.power_cut();
        self.end_life()
    }

    /// The process is gone; what the client knew of it goes with it.
    fn end_life(&mut self) -> Result<(), Over> {
        self.keep_noted_away();
        let Some(life) = self.life.take() else { return Err(Over) };
        self.requests += life.client.ended;
        let Life { mut client, volume, store, arrays, machine } = life;
        let history = std::mem::take(&mut client.history);
        drop((client, volume, store, arrays));
        drop(machine);
        self.outcomes = Outcomes::default();
        self.history = history;
        match self.world.failure() {
            Some(_) => Err(Over),
            None => Ok(()),
        }
    }

    /// How full the volume may be, where that can be said: files that are told to go somewhere find no room there, and
    /// bricks that fail take theirs with them.
    fn room(&self) -> Result<Option<Room>, Over> {
        let shared = self.plan.snapshots.is_some();
        let no_bound = shared || self.plan.copies.is_some() || self.plan.metadata.is_some();
        if self.plan.commands || self.plan.faults > 0 || no_bound {
            return Ok(None);
        }
        match ledger::read(self.metadata.pairs()) {
            Ok(ledger) => {
                let used = ledger.used.values().sum::<u64>() * BLOCK;
                Ok(Some(Room::new(self.plan.space(), used, self.plan.stripe)))
            }
            Err(why) => self.fail("metadata_agrees", why),
        }
    }

    /// The records agree with each other.
    fn check_metadata(&self) -> Result<(), Over> {
        match ledger::read(self.metadata.pairs()) {
            Ok(_) => Ok(()),
            Err(why) => self.fail("metadata_agrees", why),
        }
    }
}
