//! What the engine sees of the simulated world: a reactor for each shard, and members that open on any of
//! them. Both only pass on to the [`World`].

use crate::member::Member;
use crate::world::World;
use braid_device::{Completion, Device, DeviceInfo, OpenError, Opener, Request};
use braid_shard::{Nanos, Reactor, Shard, ShardId};
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

/// The reactor of one simulated shard.
pub struct SimReactor {
    /// The shard.
    pub shard: ShardId,
    /// Its world.
    pub world: Rc<World>,
}

impl Reactor for SimReactor {
    fn now(&self) -> Nanos {
        self.world.now()
    }

    fn poll(&self) -> bool {
        self.world.deliver(self.shard)
    }

    fn park(&self, _: Option<Nanos>, _: &dyn Fn() -> bool) {
        // Only the driver moves the clock; nothing in a run blocks.
    }
}

/// Where a simulated shard keeps its world, so that openers, which may travel, need not hold it.
#[derive(Default)]
pub struct Link(pub OnceCell<Rc<World>>);

/// Opens a member on any shard of its world.
pub struct SimOpener {
    /// The member's index.
    pub index: usize,
    /// Its name.
    pub name: String,
}

impl SimOpener {
    /// The opener of member `index`.
    pub fn of(world: &World, index: usize) -> Arc<dyn Opener> {
        Arc::new(SimOpener { index, name: world.member(index).name().to_string() })
    }
}

impl Opener for SimOpener {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        let link = shard.local::<Link>();
        let why = || OpenError { name: self.name.clone(), why: "it is not there".to_string() };
        let world = link.0.get().ok_or_else(why)?;
        let member = world.member(self.index);
        if member.is_gone() {
            return Err(why());
        }
        Ok(Rc::new(SimDevice { member, world: Rc::clone(world), shard: shard.id() }))
    }
}

struct SimDevice {
    member: Rc<Member>,
    world: Rc<World>,
    shard: ShardId,
}

impl Device for SimDevice {
    fn info(&self) -> &DeviceInfo {
        &self.member.kind.info
    }

    fn submit(&self, request: Request, done: Completion) {
        self.world.submit(&self.member, self.shard, request, done);
    }
}
