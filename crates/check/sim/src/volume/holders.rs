//! Bricks that vanish and return in every order, all of them too, as bricks behind a network do: while superblocks are
//! written, between mounts, and during mounts.
//!
//! The superblocks and the rules by which bricks are put together are the engine's (`assemble`). The metadata is a number,
//! the last commit, that each copy has in its region: written and made equal as the engine's store does it.
//!
//! The promise that is held to here: when all bricks are back they make up the volume, with nothing missing; and
//! whichever of
//! them are back, as long as one is among them that was there last, they show no metadata older than what was
//! answered, or refuse. Where the newest superblock among them tells three bricks with the metadata, they do so
//! whichever they are, because the majority decides.

use crate::checkers::LOOKS;
use crate::device::SimOpener;
use crate::machine::{Later, Machine, Step};
use crate::member::{Member, MemberKind};
use crate::rng::Rng;
use crate::waiting::{Over, wait};
use crate::world::{Failure, Manners, World};
use braid_device::{Device, DeviceInfo, IoSets, Op, Request};
use braid_filesystem::{Caller, Time};
use braid_format::brick::{BrickState, BrickSuperblock, MetadataState, VolumeState};
use braid_format::superblock::Version;
use braid_shard::Shard;
use braid_shard::sync::Budget;
use braid_volume::Clock;
use braid_volume::assemble::{
    AssembleError, AssembleOptions, Assembly, BrickPlan, FoundBrick, NewVolume, Superblocks,
    assemble, examine, plan_create,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use uuid::Uuid;

const MIB: u64 = 1 << 20;
/// The most copies of the metadata.
const LEGS_MAX: usize = 3;
/// Bytes of a sector, which holds the number of a copy and is written as a whole or not at all.
const SECTOR: u64 = 512;
/// Number of tries to write superblocks that nobody takes, and nanoseconds between two.
const TRIES: u32 = 4;
const TRY_EVERY: u64 = 500_000_000;

/// A volume that is mounted, as far as its superblocks and the copies of its metadata go.
struct Mounted {
    superblocks: Superblocks,
    /// Bricks that the store keeps copies on, at most three.
    legs: RefCell<Vec<u16>>,
    /// One change of the copies is made at a time.
    turn: Rc<Budget>,
    shard: Shard,
    /// The last commit that was begun.
    begun: Cell<u64>,
    /// The last that was answered.
    answered: Cell<u64>,
    failed: Cell<bool>,
}

impl Mounted {
    /// Writes number `commit` to the copy on brick `id`. False: it fails.
    async fn write(&self, id: u16, commit: u64) -> bool {
        let Some((device, superblock)) = self.superblocks.brick(id) else { return false };
        let mut bytes = vec![0; SECTOR as usize];
        bytes[..8].copy_from_slice(&commit.to_le_bytes());
        let buf = self.shard.pool().copy_of(&bytes).freeze();
        let request = Request {
            offset: superblock.metadata.offset,
            op: Op::Write { bufs: [buf].into_iter().collect(), fua: true },
        };
        IoSets::new(&self.shard).one(&*device, request).await.result.is_ok()
    }

    /// Superblocks that were noted are written, and tried again where a brick with the metadata may still take them.
    async fn settle(&self) -> Result<(), AssembleError> {
        for _ in 0..TRIES {
            match self.superblocks.settle().await {
                Err(AssembleError::NoHolder { error: Some(error), .. }) if !error.means_gone() => {
                    self.shard.sleep(TRY_EVERY).await;
                }
                other => return other,
            }
        }
        self.superblocks.settle().await
    }

    /// One commit, to all copies: answered when the superblocks say who has not taken it.
    async fn commit(&self) {
        let commit = {
            let _turn = self.turn.take(1).await;
            if self.failed.get() {
                return;
            }
            let commit = self.begun.get() + 1;
            self.begun.set(commit);
            let legs = self.legs.borrow().clone();
            let mut lost = Vec::new();
            for id in &legs {
                if !self.write(*id, commit).await {
                    lost.push(*id);
                }
            }
            if lost.len() == legs.len() {
                self.failed.set(true);
                return;
            }
            for id in lost {
                self.legs.borrow_mut().retain(|leg| *leg != id);
                self.superblocks.note_metadata(id, MetadataState::OutOfSync);
            }
            commit
        };
        if self.settle().await.is_err() || self.superblocks.hold_metadata().is_empty() {
            self.failed.set(true);
        } else {
            self.answered.set(self.answered.get().max(commit));
        }
    }

    /// A brick is found to be gone.
    async fn lose(&self, id: u16) {
        let held = {
            let _turn = self.turn.take(1).await;
            self.legs.borrow().clone()
        };
        if held == [id] || self.superblocks.hold_metadata().iter().all(|other| *other == id) {
            return;
        }
        if held.contains(&id) {
            {
                let _turn = self.turn.take(1).await;
                if self.legs.borrow().len() < 2 {
                    return;
                }
                self.legs.borrow_mut().retain(|leg| *leg != id);
            }
            self.superblocks.note_metadata(id, MetadataState::Unused);
            if self.superblocks.settle().await.is_err() {
                return;
            }
        }
        // A refusal is tried again when the next brick is lost.
        let _ = self.superblocks.lost(id).await;
    }

    /// A brick that was lost is there again as `device`, and is used again.
    async fn take_back(&self, device: Rc<dyn Device>) {
        if let Ok(found) = examine(&self.shard, device).await {
            // It may be lost again, and is tried again.
            let _ = self.superblocks.take_back(found).await;
        }
    }

    /// Another copy of the metadata may be made on brick `id`.
    fn may_copy_to(&self, id: u16) -> bool {
        let legs = self.legs.borrow();
        (1..LEGS_MAX).contains(&legs.len()) && !legs.contains(&id) && !self.failed.get()
    }

    /// Another copy of the metadata is made on brick `id`.
    async fn copy_to(&self, id: u16) {
        let has_region =
            self.superblocks.brick(id).is_some_and(|(_, superblock)| superblock.metadata.len > 0);
        if !self.may_copy_to(id) || !has_region {
            return;
        }
        self.superblocks.note_metadata(id, MetadataState::OutOfSync);
        if self.superblocks.settle().await.is_err() {
            return;
        }
        {
            let _turn = self.turn.take(1).await;
            if !self.may_copy_to(id) || !self.write(id, self.begun.get()).await {
                return;
            }
            self.legs.borrow_mut().push(id);
            self.superblocks.note_metadata(id, MetadataState::InSync);
        }
        let _ = self.superblocks.settle().await;
    }
}

struct Holders {
    world: Rc<World>,
    rng: Rng,
    /// Choices of bricks that are taken back while mounted: a stream of its own.
    returns: Rng,
    /// Choices of bricks that are looked at between two lives: a stream of its own.
    looks: Rng,
    bricks: usize,
    /// The last commit that was begun, and that was answered.
    begun: u64,
    answered: u64,
    /// Bricks that were there when the volume was used last.
    last: Vec<u16>,
    /// Bricks that come back for certain: of a mount that was interrupted while it took some back. Those may be newer than
    /// the others know, and count as used apart where the volume goes on without them.
    together: Vec<u16>,
}

/// Carries out such a run of `seed`; gives what is wrong.
pub fn run(seed: u64, verbose: bool) -> Option<Failure> {
    let rng = Rng::new(seed, 49);
    let manners =
        Manners { inline: *rng.pick(&[0, 50]), latency: 200_000, slow: 0, hang: 0, unsupported: 0 };
    let world = World::new(LOOKS, seed, manners, Version::V1_2, verbose);
    let bricks = 2 + rng.range(0..4) as usize;
    for index in 0..bricks {
        let mut info = DeviceInfo::plain(format!("h{index}"), 24 * MIB);
        info.volatile_cache = rng.percent(50);
        let kind = MemberKind { index, array: 0, info, tear: SECTOR, lies: false, garbage: None };
        world.add_member(Member::new(kind));
        *world.member(index).data.borrow_mut() = 0..24 * MIB;
    }
    let mut run = Holders {
        world: Rc::clone(&world),
        rng,
        returns: Rng::new(seed, 63),
        looks: Rng::new(seed, 68),
        bricks,
        begun: 0,
        answered: 0,
        last: Vec::new(),
        together: Vec::new(),
    };
    // The failure, if there is one, is in the world.
    let _ = run.go();
    world.end();
    world.failure()
}

impl Holders {
    fn fail<T>(&self, text: String) -> Result<T, Over> {
        self.world.fail("bricks_that_are_back_make_up_the_volume", text);
        Err(Over)
    }

    fn go(&mut self) -> Result<(), Over> {
        self.create()?;
        for _ in 0..2 + self.rng.range(0..8) {
            let all = self.rng.percent(50);
            self.return_some(all);
            self.life()?;
            self.world.power_cut();
            for _ in 0..2 {
                self.look()?;
            }
        }
        self.return_some(true);
        self.life()
    }

    /// All bricks are back, or some, with one that was there last.
    fn return_some(&self, all: bool) {
        for index in 0..self.bricks {
            self.world.member(index).set_gone(!all && self.rng.percent(50));
        }
        let sure = *self.rng.pick(&self.last);
        for id in self.together.iter().chain([&sure]) {
            self.world.member((*id).into()).set_gone(false);
        }
    }

    /// Some bricks, whichever they are, say what they have: that is not old, if most of three know of it. Nothing is mounted.
    fn look(&self) -> Result<(), Over> {
        for index in 0..self.bricks {
            self.world.member(index).set_gone(self.looks.percent(50));
        }
        let machine = Machine::start(&self.world, 1);
        let found = self.find(&machine)?;
        let newest = found
            .iter()
            .max_by_key(|brick| (brick.superblock.generation, brick.superblock.updated));
        if newest.is_none_or(|brick| brick.superblock.metadata_holders.len() != LEGS_MAX) {
            return Ok(());
        }
        let text = told(&found);
        let take_back = self.looks.percent(50);
        let options = AssembleOptions { degraded: true, take_back, ..AssembleOptions::default() };
        let Ok(assembly) = assemble(found, options) else { return Ok(()) };
        let (has, answered) = (self.copy_of(&assembly), self.answered);
        if has >= answered {
            return Ok(());
        }
        self.fail(format!(
            "commit {answered} was answered, and most of the bricks with the metadata show commit {has}: {text}"
        ))
    }

    /// Superblocks of a new volume stand on all bricks.
    fn create(&mut self) -> Result<(), Over> {
        let plans: Vec<BrickPlan> = (0..self.bricks)
            .map(|index| BrickPlan {
                domain: String::new(),
                uuid: Uuid::from_u128(index as u128 + 1),
                weight: None,
                info: self.world.member(index).kind.info.clone(),
            })
            .collect();
        let new = NewVolume {
            name: "holders".to_string(),
            uuid: Uuid::from_u128(77),
            stripe: 64 << 10,
            checksums: true,
            copies: 1,
            metadata_size: None,
            owner: Caller::default(),
            now: Time { seconds: 1, nanos: 0 },
        };
        let plan = match plan_create(&new, &plans) {
            Ok(plan) => plan,
            Err(error) => return self.fail(format!("create: {error}")),
        };
        for (index, superblock) in plan.superblocks.iter().enumerate() {
            let superblock =
                BrickSuperblock { volume_state: VolumeState::Clean, ..superblock.clone() };
            let member = self.world.member(index);
            for at in [0, superblock.brick_size - 4096] {
                // Nothing fails yet.
                let _ = member.write(&self.rng, at, &superblock.to_bytes(), true);
            }
            if superblock.metadata.len > 0 {
                let _ = member.write(&self.rng, superblock.metadata.offset, &[0; 512], true);
            }
        }
        self.last = (0..self.bricks as u16).collect();
        Ok(())
    }

    /// From a mount to a stop or the next crash.
    fn life(&mut self) -> Result<(), Over> {
        let machine = Machine::start(&self.world, 1);
        let Some(assembly) = self.assemble(&machine)? else { return Ok(()) };
        let tried: Vec<u16> = assembly.bricks.keys().copied().collect();
        let world = Rc::clone(&self.world);
        let clock: Clock = Rc::new(move || Time {
            seconds: (world.now() / 1_000_000_000) as i64,
            nanos: (world.now() % 1_000_000_000) as u32,
        });
        let mounted = Rc::new(Mounted {
            superblocks: Superblocks::new(machine.home(), &assembly, clock),
            legs: RefCell::new(assembly.metadata.clone()),
            turn: Budget::new(machine.home(), 1),
            shard: machine.home().clone(),
            begun: Cell::new(self.begun),
            answered: Cell::new(self.answered),
            failed: Cell::new(false),
        });
        let own = Rc::clone(&mounted);
        let current = self.copy_of(&assembly);
        // Of mounts some meet bricks that vanish.
        let often = *self.rng.pick(&[0, 0, 2, 10]);
        let later = machine.begin(async move {
            if own.superblocks.mounted().await.is_err() {
                return false;
            }
            // All copies are made equal.
            let behind: Vec<u16> = own.legs.borrow().iter().skip(1).copied().collect();
            for id in behind {
                if !own.write(id, current).await {
                    own.legs.borrow_mut().retain(|leg| *leg != id);
                    own.superblocks.note_metadata(id, MetadataState::OutOfSync);
                }
            }
            own.superblocks.settle().await.is_ok()
        });
        let steps = self.rng.log_range(1..400);
        let is_mounted = self.steps(&machine, often, steps, &later)?;
        if is_mounted == Some(true) {
            self.use_it(&machine, &mounted)?;
        }
        (self.begun, self.answered) = (mounted.begun.get(), mounted.answered.get());
        let present = mounted.superblocks.present();
        if is_mounted == Some(true) && present.is_empty() {
            return self.fail("a volume that was mounted has called every brick away".to_string());
        }
        if is_mounted == Some(true) {
            self.last = present;
            self.together.clear();
        } else {
            // Those that were not there then may be a little older from now on.
            let left: Vec<u16> =
                self.last.iter().copied().filter(|id| present.contains(id)).collect();
            self.last = if left.is_empty() { std::mem::take(&mut self.last) } else { left };
            self.together.extend(tried);
        }
        let (away, last) = (mounted.superblocks.away(), &self.last);
        self.world
            .trace(|| format!("END with {last:?}, away {away:?}, answered {}", self.answered));
        Ok(())
    }

    /// The bricks that are there.
    fn find(&self, machine: &Machine) -> Result<Vec<FoundBrick>, Over> {
        let mut devices: Vec<Rc<dyn Device>> = Vec::new();
        for index in 0..self.bricks {
            devices.extend(SimOpener::of(&self.world, index).open(machine.home()).ok());
        }
        let shard = machine.home().clone();
        let later = machine.begin(async move {
            let mut found = Vec::new();
            for device in devices {
                found.push(examine(&shard, device).await?);
            }
            Ok::<_, AssembleError>(found)
        });
        match wait(machine, "reading superblocks", &later)? {
            Ok(found) => Ok(found),
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// Assembles the bricks that are there; none where they rightly refuse.
    fn assemble(&mut self, machine: &Machine) -> Result<Option<Assembly>, Over> {
        let found = self.find(machine)?;
        let whole = found.len() == self.bricks;
        let names: Vec<String> = found.iter().map(|brick| brick.name().to_string()).collect();
        let take_back = whole || !self.together.is_empty() || self.rng.percent(50);
        let options = AssembleOptions { degraded: !whole, take_back, ..AssembleOptions::default() };
        let text = told(&found);
        self.world.trace(|| format!("MOUNT of {text}"));
        let assembly = match assemble(found, options) {
            Ok(assembly) => assembly,
            Err(error) if whole => return self.fail(format!("all are back: {error}: {text}")),
            Err(_) => return Ok(None),
        };
        if whole && !assembly.missing.is_empty() {
            return self.fail(format!("all are back, and {:?} missing: {text}", assembly.missing));
        }
        let has = self.copy_of(&assembly);
        if has < self.answered {
            let answered = self.answered;
            return self.fail(format!(
                "commit {answered} was answered, and {names:?} show commit {has}: {text}"
            ));
        }
        Ok(Some(assembly))
    }

    /// The last commit of the copy that counts.
    fn copy_of(&self, assembly: &Assembly) -> u64 {
        let first = assembly.metadata.first().and_then(|id| assembly.bricks.get(id));
        let Some(brick) = first else { return 0 };
        let at = brick.superblock.metadata.offset;
        let bytes = self.world.member(brick.superblock.brick_id.into()).image(at..at + 8);
        bytes.try_into().map_or(0, u64::from_le_bytes)
    }

    /// Steps, while bricks vanish and return, until `later` is there or so many are made.
    fn steps<T>(
        &self,
        machine: &Machine,
        often: u64,
        steps: u64,
        later: &Later<T>,
    ) -> Result<Option<T>, Over> {
        for _ in 0..steps {
            if self.rng.percent(often) {
                let member = self.world.member(self.rng.below(self.bricks));
                match self.rng.range(0..4) {
                    0 => member.fail_write_in(Some(self.rng.range(0..3) as u32)),
                    1 if !member.is_gone() => member.die(&self.rng),
                    1 | 2 => member.set_gone(false),
                    // The others go with it.
                    _ => (0..self.bricks)
                        .filter(|_| self.rng.percent(60))
                        .for_each(|index| self.world.member(index).die(&self.rng)),
                }
                self.world.trace(|| {
                    let gone = (0..self.bricks).filter(|at| self.world.member(*at).is_gone());
                    format!("gone: {:?}", gone.collect::<Vec<_>>())
                });
            }
            if let Some(value) = later.borrow_mut().take() {
                return Ok(Some(value));
            }
            if machine.step() == Step::Stuck {
                break;
            }
        }
        match self.world.failure() {
            Some(_) => Err(Over),
            None => Ok(later.borrow_mut().take()),
        }
    }

    /// Commits, losses and other changes while bricks vanish and return.
    fn use_it(&self, machine: &Machine, mounted: &Rc<Mounted>) -> Result<(), Over> {
        let never: Later<()> = Rc::default();
        let often = *self.rng.pick(&[0, 2, 10, 30]);
        for _ in 0..self.rng.log_range(1..12) {
            let own = Rc::clone(mounted);
            let id = *self.rng.pick(&(0..self.bricks as u16).collect::<Vec<_>>());
            let gone = self.world.member(id.into()).is_gone();
            let weight = self.rng.log_range(1..1000);
            match self.rng.range(0..10) {
                0..5 => drop(machine.begin(async move { own.commit().await })),
                5..8 if gone => drop(machine.begin(async move { own.lose(id).await })),
                8 => drop(machine.begin(async move { own.copy_to(id).await })),
                _ => drop(machine.begin(async move {
                    own.superblocks.changed(id, BrickState::Data, weight).await
                })),
            }
            let steps = self.rng.log_range(1..60);
            self.steps(machine, often, steps, &never)?;
            if self.returns.percent(40) {
                let away = mounted.superblocks.away();
                let there = away.iter().filter(|id| !self.world.member((**id).into()).is_gone());
                let there: Vec<u16> = there.copied().collect();
                if there.is_empty() {
                    continue;
                }
                let index = usize::from(*self.returns.pick(&there));
                let device = SimOpener::of(&self.world, index).open(machine.home());
                let own = Rc::clone(mounted);
                if let Ok(device) = device {
                    self.world.trace(|| format!("brick {index} is taken back"));
                    drop(machine.begin(async move { own.take_back(device).await }));
                    let steps = self.returns.log_range(1..200);
                    self.steps(machine, often, steps, &never)?;
                }
            }
        }
        if self.rng.percent(30) {
            let own = Rc::clone(mounted);
            let later = machine.begin(async move { own.superblocks.clean().await.is_ok() });
            self.steps(machine, often, 400, &later)?;
        }
        Ok(())
    }
}

/// The superblocks of bricks, for messages.
fn told(found: &[FoundBrick]) -> String {
    let of = |brick: &FoundBrick| {
        let (on, state) = (&brick.superblock, brick.superblock.metadata_state);
        format!(
            "{} generation {} {state:?} holders {:?} away {:?}",
            brick.name(),
            on.generation,
            on.metadata_holders,
            on.away
        )
    };
    found.iter().map(of).collect::<Vec<_>>().join("; ")
}
