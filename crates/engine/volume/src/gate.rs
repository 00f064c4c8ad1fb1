//! Lets changes in, or holds them while somebody needs the volume to stay as it is.

use braid_shard::Shard;
use braid_shard::sync::Notify;
use braid_shard::version::Version;
use std::cell::Cell;
use std::rc::Rc;

/// The gate that every change goes through.
pub struct Gate {
    inside: Cell<u32>,
    closed: Cell<bool>,
    changed: Notify,
    /// Changes when the gate is shut.
    pub version: Version,
}

/// A change under way.
pub struct Inside(Rc<Gate>);

/// The gate is closed, and nobody is inside.
pub struct Shut(Rc<Gate>);

impl Gate {
    /// Open.
    pub fn new(shard: &Shard) -> Rc<Gate> {
        Rc::new(Gate {
            inside: Cell::new(0),
            closed: Cell::new(false),
            changed: Notify::new(shard),
            version: Version::default(),
        })
    }

    /// Goes in, as soon as the gate is open.
    pub async fn enter(self: &Rc<Self>) -> Inside {
        if self.closed.get() {
            self.changed.wait_for(|| (!self.closed.get()).then_some(())).await;
        }
        self.inside.set(self.inside.get() + 1);
        Inside(Rc::clone(self))
    }

    /// Closes the gate, and waits until nobody is inside.
    pub async fn shut(self: &Rc<Self>) -> Shut {
        self.changed.wait_for(|| (!self.closed.get()).then_some(())).await;
        self.closed.set(true);
        let shut = Shut(Rc::clone(self));
        self.changed.wait_for(|| (self.inside.get() == 0).then_some(())).await;
        self.version.changes();
        shut
    }

    /// Somebody needs the volume to stay as it is, or changes what no change of a file would.
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.inside.set(self.0.inside.get() - 1);
        if self.0.closed.get() {
            self.0.changed.notify_all();
        }
    }
}

impl Drop for Shut {
    fn drop(&mut self) {
        self.0.closed.set(false);
        self.0.changed.notify_all();
    }
}
