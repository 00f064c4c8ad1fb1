//! Helpers that the tests of this crate share.

use crate::store::Change;
use braid_shard::{Nanos, Reactor, Shard};
use std::cell::Cell;
use std::rc::Rc;

struct VirtualClock(Cell<Nanos>);

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

/// A shard whose clock jumps when everything waits.
pub(crate) fn shard() -> Shard {
    Shard::with_reactor(0, Rc::new(VirtualClock(Cell::new(1_000_000_000))))
}

/// A change that sets `key` to `value`.
pub(crate) fn put(key: &str, value: &str) -> Change {
    (key.as_bytes().to_vec(), Some(value.as_bytes().to_vec()))
}
