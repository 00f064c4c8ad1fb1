//! The state that all queues of one connection share.

use crate::queue::QueueError;
use braid_device::IoSets;
use braid_export::{Disk, Figures, Hold};
use braid_shard::Shard;
use braid_shard::sync::{Budget, Notify};
use rustix::net::Shutdown;
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// See the module's documentation.
pub(super) struct Hub {
    pub shard: Shard,
    pub disk: Disk,
    pub sets: IoSets,
    /// The name that a driver is told.
    pub name: String,
    pub figures: Arc<Figures>,
    /// Memory for payloads, of all clients of the shard.
    pub budget: Rc<Budget>,
    /// The driver knows no flush, so every write is durable when it is answered.
    pub durable_writes: Cell<bool>,
    socket: Arc<OwnedFd>,
    in_flight: Cell<u64>,
    /// No request is taken for the moment.
    held: Cell<bool>,
    /// The guest's memory is not to be touched any more.
    ended: Cell<bool>,
    failure: RefCell<Option<QueueError>>,
    /// Something of these has changed.
    changed: Notify,
}

impl Hub {
    pub fn new(
        shard: &Shard,
        disk: Disk,
        name: String,
        (figures, budget): (Arc<Figures>, Rc<Budget>),
        socket: Arc<OwnedFd>,
    ) -> Rc<Hub> {
        Rc::new(Hub {
            shard: shard.clone(),
            disk,
            sets: IoSets::new(shard),
            name,
            figures,
            budget,
            durable_writes: Cell::new(true),
            socket,
            in_flight: Cell::new(0),
            held: Cell::new(false),
            ended: Cell::new(false),
            failure: RefCell::new(None),
            changed: Notify::new(shard),
        })
    }

    /// Waits until `holds`, which is asked again after each change.
    pub async fn wait_until(&self, holds: impl Fn() -> bool) {
        self.changed.wait_for(|| holds().then_some(())).await;
    }

    pub fn notify(&self) {
        self.changed.notify_all();
    }

    pub fn is_held(&self) -> bool {
        self.held.get()
    }

    pub fn has_ended(&self) -> bool {
        self.ended.get()
    }

    pub fn in_flight(&self) -> u64 {
        self.in_flight.get()
    }

    pub fn began(&self) {
        self.in_flight.set(self.in_flight.get() + 1);
        self.figures.began();
    }

    pub fn is_done(&self) {
        self.in_flight.set(self.in_flight.get() - 1);
        self.notify();
    }

    /// Ends the connection for what a driver has done. The first failure counts.
    pub fn fail(&self, error: QueueError) {
        self.failure.borrow_mut().get_or_insert(error);
        self.disconnect();
    }

    pub fn failure(&self) -> Option<QueueError> {
        self.failure.borrow_mut().take()
    }

    fn disconnect(&self) {
        // Fails only when the front end is gone already.
        let _ = rustix::net::shutdown(&*self.socket, Shutdown::Both);
    }

    /// From now on nothing of the guest is touched.
    pub fn end(&self) {
        self.ended.set(true);
        self.notify();
    }
}

impl Hold for Hub {
    fn hold(&self, held: bool) -> u64 {
        self.held.set(held);
        self.notify();
        self.in_flight.get()
    }

    fn stop(&self) {
        self.disconnect();
    }
}
