//! Bricks that are arrays: a volume over them is made, mounted, stopped and loses power as over disks.
//!
//! Such a brick is an array of leaves of its own, on as many shards as the run has; the volume itself is on the first.
//! Leaves of mirrors die, hang, fail flushes and lose blocks under load, one at a time of each array, and may be replaced in
//! the next life. The volume is told nothing of that: no request of it fails and nothing is lost, so a run with arrays is
//! judged as one in which no brick fails.
//!
//! Leaves of parity levels stay: one that is lost together with power takes what the write hole takes.

use super::plan::{BrickPlan, VolumePlan};
use super::run::VolumeRun;
use super::verify::wait;
use crate::device::SimOpener;
use crate::images;
use crate::machine::Machine;
use crate::member::{Member, MemberKind};
use crate::rng::Rng;
use crate::run::Over;
use crate::steps::ends_like_a_crash;
use crate::world::World;
use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::create::create;
use braid_array::options::{AssembleOptions, Context, CreateBitmap, CreateOptions};
use braid_device::{Device, DeviceInfo, Opener, Target};
use braid_layout::Level;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

const KIB: u64 = 1 << 10;
/// Where data starts on leaves.
const DATA_OFFSET: u64 = 1 << 20;
/// Of 100 runs in which no brick fails, how many have arrays.
const RUNS: u64 = 25;
/// Of 100 bricks of those, how many are arrays.
const BRICKS: u64 = 60;
/// Of 1000 steps of a round, before how many something befalls a leaf, at most.
const LEAF_FAULTS: u64 = 30;
/// Of 100 leaves that are missing, how many are replaced in the next life.
const REPLACED: u64 = 60;

/// A brick that is an array.
#[derive(Clone, Debug)]
pub struct BrickArray {
    /// The brick's index.
    pub brick: usize,
    /// How it is made.
    pub create: CreateOptions,
    /// How it is assembled.
    pub assemble: AssembleOptions,
    /// What it stands on.
    pub leaves: Vec<MemberKind>,
}

/// The arrays of a run.
#[derive(Clone, Debug)]
pub struct Arrays {
    /// Each with its brick.
    pub all: Vec<BrickArray>,
    /// Shards of the machine.
    pub shards: usize,
    /// Of 1000 steps of a round, before how many something befalls a leaf.
    pub faults: u64,
}

/// Arrays that run, with their bricks.
pub(super) type Running = Rc<RefCell<Vec<(usize, Arc<Array>)>>>;

impl Arrays {
    /// A run without any.
    pub fn none() -> Arrays {
        Arrays { all: Vec::new(), shards: 1, faults: 0 }
    }

    /// Those of `seed` for these bricks; `first_leaf` is the index of the first leaf among all simulated members.
    pub fn of(seed: u64, bricks: &[BrickPlan], first_leaf: usize) -> Arrays {
        let rng = &Rng::new(seed, 28);
        let mut arrays = Arrays::none();
        if !rng.percent(RUNS) {
            return arrays;
        }
        arrays.shards = 1 + rng.below(3);
        arrays.faults = *rng.pick(&[0, rng.log_range(1..LEAF_FAULTS)]);
        let mut next = first_leaf;
        for (brick, plan) in bricks.iter().enumerate() {
            if !rng.percent(BRICKS) {
                continue;
            }
            let array = array(rng, brick, plan, next, arrays.all.len() + 1);
            next += array.leaves.len();
            arrays.all.push(array);
        }
        arrays
    }

    /// In a few words; nothing when there is none.
    pub fn describe(&self) -> String {
        let one = |array: &BrickArray| {
            format!("{} is {} of {}", array.brick, array.create.level, array.leaves.len())
        };
        let all: Vec<String> = self.all.iter().map(one).collect();
        match all.is_empty() {
            true => String::new(),
            false => format!(", arrays on {} shards [{}]", self.shards, all.join(", ")),
        }
    }
}

fn array(rng: &Rng, brick: usize, plan: &BrickPlan, first: usize, number: usize) -> BrickArray {
    let levels = [Level::Raid1, Level::Raid1, Level::Raid10, Level::Raid5, Level::Raid0];
    let level = *rng.pick(&levels);
    let (count, data) = match level {
        Level::Raid1 => (2 + rng.below(2), 1),
        Level::Raid10 => (4, 2),
        Level::Raid5 => (3, 2),
        _ => (2, 2),
    };
    let chunk = (4 * KIB) << rng.range(0..5);
    let mut create = CreateOptions::new(format!("brick{brick}"), level, count);
    create.chunk_size = (level != Level::Raid1).then_some(chunk);
    create.layout = (level == Level::Raid0).then_some(2);
    create.data_offset = Some(DATA_OFFSET);
    // All leaves are zeroes.
    create.assume_clean = level.has_redundancy();
    create.bad_block_log = level.has_redundancy() && rng.percent(40);
    create.bitmap = match level.has_redundancy() && rng.percent(60) {
        true => CreateBitmap::Internal { chunk: Some(64 * KIB) },
        false => CreateBitmap::None,
    };
    let brick_info = &plan.kind.info;
    let size = DATA_OFFSET + brick_info.size.div_ceil(data * chunk) * chunk + 64 * KIB;
    let leaf = |nr: usize| {
        let mut info = DeviceInfo::plain(format!("b{brick}l{nr}"), size);
        info.volatile_cache = brick_info.volatile_cache;
        info.logical_block = brick_info.logical_block;
        let tear = u64::from(info.logical_block);
        MemberKind { index: first + nr, array: number, info, tear, lies: false, garbage: None }
    };
    let leaves = (0..count).map(leaf).collect();
    let assemble = AssembleOptions {
        safe_mode_delay_ms: *rng.pick(&[1, 20, 200]),
        ..AssembleOptions::default()
    };
    BrickArray { brick, create, assemble, leaves }
}

/// Adds the leaves of all arrays to the world.
pub(super) fn add_leaves(world: &World, plan: &VolumePlan) {
    for kind in plan.arrays.all.iter().flat_map(|array| &array.leaves) {
        world.add_member(Member::new(kind.clone()));
    }
}

/// Makes all arrays.
pub(super) fn make(world: &Rc<World>, plan: &VolumePlan) -> Result<(), Over> {
    for array in &plan.arrays.all {
        let machine = Machine::start(world, plan.arrays.shards);
        let leaves = array.leaves.iter().map(|leaf| Some(SimOpener::of(world, leaf.index)));
        let (context, leaves, options) =
            (machine.context.clone(), leaves.collect(), array.create.clone());
        let later = machine.begin(async move { create(&context, leaves, options).await });
        if let Err(error) = wait(&machine, "create", &later)? {
            world.fail("assembles", format!("create: {error}"));
            return Err(Over);
        }
    }
    Ok(())
}

/// Starts the array of a brick and opens it on the home shard.
pub(super) async fn start(
    world: Rc<World>,
    context: Context,
    array: BrickArray,
    running: Running,
) -> Option<Rc<dyn Device>> {
    let there = |leaf: &&MemberKind| {
        let member = world.member(leaf.index);
        !member.is_gone() && images::superblock(&world, &member).is_some()
    };
    let leaves = array.leaves.iter().filter(there);
    let leaves: Vec<Arc<dyn Opener>> =
        leaves.map(|leaf| SimOpener::of(&world, leaf.index)).collect();
    let started = assemble(&context, leaves, array.assemble).await;
    let opened = match started {
        Ok(started) => {
            running.borrow_mut().push((array.brick, Arc::clone(&started)));
            started.open(&context.shard).map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    opened.map_err(|error| world.fail("assembles", error)).ok()
}

/// The device of brick `index`, on the home shard: its array, where it is one.
pub(super) fn open_brick(
    index: usize,
    machine: &Machine,
    running: &Running,
) -> Option<Rc<dyn Device>> {
    let running = running.borrow();
    match running.iter().find(|(brick, _)| *brick == index) {
        Some((_, array)) => array.open(machine.home()).ok(),
        None => SimOpener::of(&machine.world, index).open(machine.home()).ok(),
    }
}

impl VolumeRun {
    /// A leaf that its array can do without, and that is as it should be as all others of that array are.
    fn leaf_to_lose(&self) -> Option<Rc<Member>> {
        let mirrors = self
            .plan
            .arrays
            .all
            .iter()
            .filter(|array| matches!(array.create.level, Level::Raid1 | Level::Raid10));
        let whole: Vec<&BrickArray> = mirrors
            .filter(|array| {
                array.leaves.iter().all(|leaf| {
                    let leaf = self.world.member(leaf.index);
                    leaf.in_sync.get() && !leaf.out.get() && !leaf.is_weak() && !leaf.dropped.get()
                })
            })
            .collect();
        if whole.is_empty() {
            return None;
        }
        let leaf = self.arrays_rng.pick(&self.arrays_rng.pick(&whole).leaves);
        Some(self.world.member(leaf.index))
    }

    /// Now and then something befalls a leaf.
    pub(super) fn a_leaf_fails(&mut self) {
        let often = self.plan.arrays.faults;
        if often == 0 || self.arrays_rng.range(0..1000) >= often {
            return;
        }
        let Some(leaf) = self.leaf_to_lose() else { return };
        let (rng, name) = (&self.arrays_rng, leaf.name());
        let what = match rng.range(0..10) {
            0..4 => {
                leaf.die(rng);
                leaf.out.set(true);
                "is gone"
            }
            4..6 => {
                leaf.fail_flush();
                "fails a flush"
            }
            6 | 7 => {
                leaf.hung.set(true);
                "hangs"
            }
            _ => {
                let blocks = leaf.data.borrow().end.saturating_sub(DATA_OFFSET) / leaf.kind.tear;
                let first = rng.log_range(1..blocks.max(2)) * leaf.kind.tear;
                leaf.make_unreadable(first, rng.log_range(1..33));
                "cannot read some blocks"
            }
        };
        self.faults += 1;
        self.world.trace(|| format!("{name} {what}"));
    }

    /// Who failed is not found any more, and may be replaced.
    pub(super) fn leaves_between_lives(&self) {
        for leaf in self.plan.arrays.all.iter().flat_map(|array| &array.leaves) {
            let leaf = self.world.member(leaf.index);
            if leaf.hung.get() || leaf.out.get() || leaf.dropped.get() {
                leaf.cancel_failures();
                leaf.set_gone(true);
            }
            leaf.cancel_failures();
        }
    }

    /// New disks come in the place of those that are missing.
    pub(super) fn replace_leaves(&mut self) -> Result<(), Over> {
        for array in self.plan.arrays.all.clone() {
            for leaf in &array.leaves {
                let member = self.world.member(leaf.index);
                if !member.is_gone() || !self.arrays_rng.percent(REPLACED) {
                    continue;
                }
                self.world.trace(|| format!("{} is replaced", member.name()));
                member.replace(&self.arrays_rng);
                member.mark_stale();
                let opener = SimOpener::of(&self.world, leaf.index);
                let life = self.life()?;
                let control = life.control_of(array.brick);
                let later = life.machine.begin(async move {
                    match control {
                        Some(control) => control.add(opener, true).await.map(|_| ()),
                        None => Ok(()),
                    }
                });
                let machine = &self.life()?.machine;
                if let Err(error) = wait(machine, "the command to add a leaf", &later)? {
                    return self.fail("requests_succeed", error.to_string());
                }
            }
        }
        Ok(())
    }

    /// Stops all arrays, after the volume.
    pub(super) fn stop_arrays(&mut self) -> Result<(), Over> {
        let bricks: Vec<usize> =
            self.life()?.arrays.borrow().iter().map(|(brick, _)| *brick).collect();
        for brick in bricks {
            let life = self.life()?;
            let Some(control) = life.control_of(brick) else { continue };
            let later = life.machine.begin(async move { control.stop().await });
            let left = wait(&life.machine, "the stop of an array", &later)?;
            if ends_like_a_crash(&left) {
                return self.fail("stops", format!("the array of brick {brick}: {left:?}"));
            }
        }
        Ok(())
    }
}

impl super::run::Life {
    fn control_of(&self, brick: usize) -> Option<Rc<Control>> {
        let arrays = self.arrays.borrow();
        let (_, array) = arrays.iter().find(|(of, _)| *of == brick)?;
        Control::find(self.machine.home(), array.id())
    }
}
