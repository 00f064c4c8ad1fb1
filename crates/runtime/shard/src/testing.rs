//! Shared by the tests of this crate: a shard whose clock jumps.

use crate::reactor::{Nanos, Reactor};
use crate::shard::Shard;
use std::cell::Cell;
use std::rc::Rc;

pub(crate) struct VirtualClock(Cell<Nanos>);

impl Reactor for VirtualClock {
    fn now(&self) -> Nanos {
        self.0.get()
    }

    fn poll(&self) -> bool {
        false
    }

    fn park(&self, deadline: Option<Nanos>, _: &dyn Fn() -> bool) {
        let deadline = deadline.expect("everything waits and no timer is set: a lost wake-up");
        self.0.set(self.0.get().max(deadline));
    }
}

/// A clock that stands still until everything waits; then it jumps to the next deadline.
pub(crate) fn clock() -> VirtualClock {
    VirtualClock(Cell::new(0))
}

/// A shard on such a clock.
pub(crate) fn shard() -> Shard {
    Shard::with_reactor(0, Rc::new(clock()))
}

/// Turns until nothing more happens unless time passes.
pub(crate) fn settle(shard: &Shard) {
    while shard.turn().progressed {}
}
