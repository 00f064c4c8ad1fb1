//! Shared by the tests of this crate: a shard on a clock that stands still.

use braid_shard::{Nanos, Reactor, Shard};
use std::rc::Rc;

struct Still;

impl Reactor for Still {
    fn now(&self) -> Nanos {
        0
    }

    fn poll(&self) -> bool {
        false
    }

    fn park(&self, _: Option<Nanos>, _: &dyn Fn() -> bool) {}
}

/// A shard for what needs one and never waits.
pub(crate) fn shard() -> Shard {
    Shard::with_reactor(0, Rc::new(Still))
}
