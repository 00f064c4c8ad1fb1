//! Whether mishaps befall a run, and those that come before it has an array.
//!
//! All is drawn from a stream of its own. A run that is *plain* has none of it: seeds that failed before there were
//! mishaps stay the runs that they were.

use crate::device::SimOpener;
use crate::machine::{Machine, Step};
use crate::member::Member;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::world::World;
use braid_array::create::create;
use std::rc::Rc;

/// See the module's documentation.
pub(crate) struct Mishaps {
    on: bool,
    pub(crate) rng: Rng,
}

impl Mishaps {
    pub(crate) fn of(seed: u64, plain: bool) -> Mishaps {
        let rng = Rng::new(seed, 40);
        Mishaps { on: rng.percent(75) && !plain, rng }
    }

    /// True in `percent` of 100 cases, where there are mishaps.
    pub(crate) fn chance(&self, percent: u64) -> bool {
        self.on && self.rng.percent(percent)
    }

    /// Members lose what they have cached when a flush fails, and in some runs reads see it.
    pub(crate) fn prepare(&self, seed: u64, members: &[Rc<Member>]) {
        let drops_pages = self.chance(75);
        let shows_loss = drops_pages && Rng::new(seed, 57).percent(50);
        for member in members {
            member.drops_pages.set(drops_pages);
            member.shows_loss.set(shows_loss);
        }
    }

    /// Now and then power fails while the array is being created; it is created again afterwards.
    pub(crate) fn crash_in_create(&self, scenario: &Scenario, world: &Rc<World>) {
        if !self.chance(15) {
            return;
        }
        let machine = Machine::start(world, scenario.shards);
        let given = scenario.create.raid_disks + scenario.create.spares;
        let openers = (0..given).map(|index| Some(SimOpener::of(world, index))).collect();
        let (context, options) = (machine.context.clone(), scenario.create.clone());
        let later = machine.begin(async move { create(&context, openers, options).await.is_ok() });
        self.run_on(&machine, self.rng.log_range(1..200), || later.borrow().is_some());
        world.trace(|| "CRASH during create".to_string());
        world.power_cut();
    }

    /// The process alone ends, in `percent` of 100 crashes. Not while a member has lost what is still read: nobody would
    /// tell the next process.
    pub(crate) fn kills(&self, percent: u64, world: &World) -> bool {
        let lost = world.members.borrow().iter().any(|member| member.has_lost());
        self.chance(percent) && !lost
    }

    pub(crate) fn run_on(&self, machine: &Machine, steps: u64, over: impl Fn() -> bool) {
        for _ in 0..steps {
            if over() || machine.step() == Step::Stuck {
                return;
            }
        }
    }
}
