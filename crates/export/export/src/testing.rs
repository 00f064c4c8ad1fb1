//! Shared by the tests of this crate: a clock for shards that all run on one thread.

use braid_shard::{Nanos, Reactor};
use std::cell::Cell;

/// A clock that stands until it is moved.
#[derive(Default)]
pub(crate) struct Clock(pub Cell<Nanos>);

impl Reactor for Clock {
    fn now(&self) -> Nanos {
        self.0.get()
    }

    fn poll(&self) -> bool {
        false
    }

    fn park(&self, _: Option<Nanos>, _: &dyn Fn() -> bool) {}
}
