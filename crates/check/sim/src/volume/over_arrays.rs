//! Bricks that are arrays: a volume over them is made, mounted, stopped and loses power as over disks.
//!
//! Such a brick is an array of leaves of its own, on as many shards as the run has; the volume itself is on the first.
//! Leaves of mirrors die, hang, fail flushes and lose blocks under load, one at a time of each array, and may be replaced in
//! the next life. The volume is told nothing of that: no request of it fails and nothing is lost, so a run with arrays is
//! judged as one in which no brick fails.
//!
//! Leaves of parity levels stay: one that is lost together with power takes what the write hole takes.

use super::array_bricks::{Arrays, BrickArray, DATA_OFFSET};
use crate::device::SimOpener;
use crate::images;
use crate::machine::Machine;
use crate::member::{Member, MemberKind};
use crate::rng::Rng;
use crate::waiting::{Over, ends_like_a_crash, wait};
use crate::world::World;
use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::create::create;
use braid_array::options::Context;
use braid_device::{Device, Opener, Target};
use braid_format::superblock::Superblock;
use braid_format::volume::BLOCK;
use braid_layout::{Layout, Level};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Of 100 leaves that are missing, how many are replaced in the next life.
const REPLACED: u64 = 60;

/// Arrays that run, with their bricks.
pub(super) type Running = Rc<RefCell<Vec<(usize, Arc<Array>)>>>;

/// Adds the leaves of all arrays to the world.
pub(super) fn add_leaves(world: &World, arrays: &Arrays) {
    for kind in arrays.all.iter().flat_map(|array| &array.leaves) {
        world.add_member(Member::new(kind.clone()));
    }
}

/// Makes all arrays.
pub(super) fn make(world: &Rc<World>, arrays: &Arrays) -> Result<(), Over> {
    for array in &arrays.all {
        let machine = Machine::start(world, arrays.shards);
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

/// The arrays of a run, and what befalls their leaves.
pub(super) struct OverArrays {
    world: Rc<World>,
    arrays: Arrays,
    /// Choices of what befalls leaves: a stream of its own.
    rng: Rng,
}

impl OverArrays {
    pub(super) fn new(world: &Rc<World>, arrays: &Arrays) -> OverArrays {
        let rng = Rng::new(world.seed, 29);
        OverArrays { world: Rc::clone(world), arrays: arrays.clone(), rng }
    }

    /// A leaf that its array can do without, and that is as it should be as all others of that array are.
    fn leaf_to_lose(&self) -> Option<Rc<Member>> {
        let mirrors = self
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
        let leaf = self.rng.pick(&self.rng.pick(&whole).leaves);
        Some(self.world.member(leaf.index))
    }

    /// Now and then something befalls a leaf: true then.
    pub(super) fn a_leaf_fails(&self) -> bool {
        let often = self.arrays.faults;
        if often == 0 || self.rng.range(0..1000) >= often {
            return false;
        }
        let Some(leaf) = self.leaf_to_lose() else { return false };
        let (rng, name) = (&self.rng, leaf.name());
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
        self.world.trace(|| format!("{name} {what}"));
        true
    }

    /// Leaves that have failed are not found any more, and may be replaced.
    pub(super) fn leaves_between_lives(&self) {
        for leaf in self.arrays.all.iter().flat_map(|array| &array.leaves) {
            let leaf = self.world.member(leaf.index);
            if leaf.hung.get() || leaf.out.get() || leaf.dropped.get() {
                leaf.set_gone(true);
            }
            leaf.cancel_failures();
        }
    }

    /// New disks come in the place of those that are missing.
    pub(super) fn replace_leaves(&self, machine: &Machine, running: &Running) -> Result<(), Over> {
        for (array, leaf) in
            self.arrays.all.iter().flat_map(|a| a.leaves.iter().map(move |l| (a, l)))
        {
            let member = self.world.member(leaf.index);
            if !member.is_gone() || !self.rng.percent(REPLACED) {
                continue;
            }
            let Some(control) = control_of(array.brick, machine, running) else { continue };
            self.world.trace(|| format!("{} is replaced", member.name()));
            member.replace(&self.rng);
            member.mark_stale();
            let opener = SimOpener::of(&self.world, leaf.index);
            let later = machine.begin(async move { control.membership().add(opener, true).await });
            if let Err(error) = wait(machine, "the command to add a leaf", &later)? {
                self.world.fail("requests_succeed", error.to_string());
                return Err(Over);
            }
        }
        Ok(())
    }

    /// Brick `index` is an array.
    pub(super) fn is_array(&self, index: usize) -> bool {
        self.arrays.all.iter().any(|array| array.brick == index)
    }

    /// A leaf of a brick that holds this byte of it, and where on the leaf, if the brick is an array with redundancy, and all of
    /// that is in order.
    pub(super) fn leaf_with(&self, brick: usize, at: u64) -> Option<(Rc<Member>, u64)> {
        let array = self.arrays.all.iter().find(|array| array.brick == brick)?;
        let level = array.create.level;
        let leaves: Vec<Rc<Member>> =
            array.leaves.iter().map(|leaf| self.world.member(leaf.index)).collect();
        let is_well = |leaf: &Rc<Member>| !leaf.is_gone() && !leaf.is_weak() && !leaf.out.get();
        if !level.has_redundancy() || !leaves.iter().all(is_well) {
            return None;
        }
        let choice = images::md_choice(&self.world, &leaves)?;
        if choice.in_sync.len() < leaves.len() || !choice.freshest.is_clean() {
            return None;
        }
        let superblocks: Option<Vec<Superblock>> =
            leaves.iter().map(|leaf| images::superblock(&self.world, leaf)).collect();
        let (slot, component) = match images::layout(&superblocks?)? {
            Layout::Mirror(mirror) => (self.rng.below(mirror.slots()), at),
            Layout::Raid10(raid10) => {
                let (chunk, within) = raid10.locate(at);
                let place = raid10.copy(chunk, self.rng.below(raid10.copy_count()));
                (place.slot, place.offset + within)
            }
            Layout::Parity(parity) => {
                let (stripe, k, within) = parity.locate(at);
                (parity.data_slot(stripe, k), parity.member_offset(stripe) + within)
            }
            Layout::Striped(_) | Layout::Linear(_) => return None,
        };
        let (_, leaf) = choice.in_sync.iter().find(|(of, _)| *of == slot)?;
        let start = images::superblock(&self.world, leaf)?.data_offset * 512;
        let bytes = start + component..start + component + BLOCK;
        let is_listed = !images::recorded_bad(&self.world, leaf).is_empty();
        (!is_listed && !leaf.cannot_read(&bytes)).then(|| (Rc::clone(leaf), start + component))
    }

    /// Stops all arrays, after the volume.
    pub(super) fn stop(&self, machine: &Machine, running: &Running) -> Result<(), Over> {
        for array in &self.arrays.all {
            let brick = array.brick;
            let Some(control) = control_of(brick, machine, running) else { continue };
            let later = machine.begin(async move { control.stop().await });
            let left = wait(machine, "the stop of an array", &later)?;
            if ends_like_a_crash(&left) {
                self.world.fail("stops", format!("the array of brick {brick}: {left:?}"));
                return Err(Over);
            }
        }
        Ok(())
    }
}

fn control_of(brick: usize, machine: &Machine, running: &Running) -> Option<Rc<Control>> {
    let running = running.borrow();
    let (_, array) = running.iter().find(|(of, _)| *of == brick)?;
    Control::find(machine.home(), array.id())
}
