//! Time for engines that run here: it jumps when everything waits, and not for ever.

use braid_shard::{Nanos, Reactor, Shard};
use std::cell::Cell;
use std::rc::Rc;

/// More times than all waits in any use of a sample.
const WAITS_MAX: u64 = 1_000_000;

struct Clock {
    now: Cell<Nanos>,
    waits: Cell<u64>,
}

impl Reactor for Clock {
    fn now(&self) -> Nanos {
        self.now.get()
    }

    fn poll(&self) -> bool {
        false
    }

    fn park(&self, deadline: Option<Nanos>, _: &dyn Fn() -> bool) {
        self.waits.set(self.waits.get() + 1);
        assert!(self.waits.get() < WAITS_MAX, "it waits for ever");
        // A panic is what the harness reports.
        let deadline = deadline.expect("everything waits, and nothing will wake it");
        self.now.set(self.now.get().max(deadline));
    }
}

/// A shard without a thread, in a time of its own.
pub fn shard() -> Shard {
    let clock = Clock { now: Cell::new(1_000_000_000), waits: Cell::new(0) };
    Shard::with_reactor(0, Rc::new(clock))
}
