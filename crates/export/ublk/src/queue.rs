//! One queue of a device, on its shard: requests come as completions of the shard's ring, and answers are its submissions.
//!
//! Invariant: each tag has a command with the driver, or a request that was not answered. A queue that was
//! [left](Queue::leave) to the next server answers no request that has failed, so that that one gets it.

use crate::abi::command;
use crate::abi::request::Job;
use crate::execute::{Backend, execute};
use crate::raw::{self, Descriptions};
use braid_device::{IoSets, Target};
use braid_export::{Connections, Figures, Hold, Register};
use braid_shard::Shard;
use braid_shard::ring::{RingOp, RingSink};
use braid_shard::sync::Budget;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// A queue that is to be.
pub(crate) struct Start {
    /// The device's own file.
    pub file: OwnedFd,
    /// Number of the queue.
    pub number: u16,
    /// Tags.
    pub depth: u16,
    /// The target behind the device.
    pub target: Arc<dyn Target>,
    /// Counts what it does.
    pub figures: Arc<Figures>,
    /// Bytes of payload that all queues of the shard may have.
    pub memory: u64,
    /// The door's.
    pub register: Arc<Register>,
    /// Lives as long as the queue.
    pub alive: Arc<()>,
}

/// See the module's documentation.
pub(crate) struct Queue {
    backend: Backend,
    descriptions: Descriptions,
    figures: Arc<Figures>,
    in_flight: Cell<u64>,
    held: Cell<bool>,
    left: Cell<bool>,
    /// Tags whose requests have come and were not taken.
    waiting: RefCell<Vec<u16>>,
    this: Weak<Queue>,
    _alive: Arc<()>,
}

/// The budgets of a shard, by their doors.
#[derive(Default)]
struct Budgets(RefCell<Vec<(u64, Weak<Budget>)>>);

fn budget_of(shard: &Shard, door: u64, bytes: u64) -> Rc<Budget> {
    let budgets = shard.local::<Budgets>();
    let mut all = budgets.0.borrow_mut();
    all.retain(|(_, budget)| budget.strong_count() > 0);
    let known = all.iter().find(|(of, _)| *of == door).and_then(|(_, budget)| budget.upgrade());
    known.unwrap_or_else(|| {
        let budget = Budget::new(shard, bytes);
        all.push((door, Rc::downgrade(&budget)));
        budget
    })
}

impl Queue {
    /// Has the driver send its requests to this shard. The queue lives as long as the driver has commands of it.
    ///
    /// # Errors
    /// When the target is being stopped, or the driver's memory cannot be mapped.
    pub fn start(shard: &Shard, start: Start) -> io::Result<()> {
        let Start { file, number, depth, target, figures, memory, register, alive } = start;
        let device = target.open(shard).map_err(io::Error::other)?;
        let descriptions = Descriptions::map(&file, number, depth)?;
        let queue = Rc::new_cyclic(|this| Queue {
            backend: Backend {
                shard: shard.clone(),
                file: Rc::new(file),
                number,
                device,
                sets: IoSets::new(shard),
                budget: budget_of(shard, register.id(), memory),
                read_only: target.info().read_only,
            },
            descriptions,
            figures,
            in_flight: Cell::new(0),
            held: Cell::new(false),
            left: Cell::new(false),
            waiting: RefCell::default(),
            this: Weak::clone(this),
            _alive: alive,
        });
        Connections::enter(shard, &register, &(Rc::clone(&queue) as Rc<dyn Hold>));
        (0..depth).for_each(|tag| queue.submit(command::FETCH, tag, 0));
        Ok(())
    }

    fn submit(self: &Rc<Self>, code: u32, tag: u16, result: i32) {
        let Backend { file, number, shard, .. } = &self.backend;
        let op = raw::io(Rc::clone(file), code, *number, tag, result);
        if let Some(ring) = shard.ring() {
            ring.submit(op, Rc::clone(self) as Rc<dyn RingSink>, u64::from(tag));
        }
    }

    fn begin(self: &Rc<Self>, tag: u16) {
        let Some(description) = self.descriptions.get(tag) else { return };
        let job = Job::parse(&description);
        self.in_flight.set(self.in_flight.get() + 1);
        self.figures.began();
        let this = Rc::clone(self);
        self.backend.shard.spawn(async move {
            let (result, (read, written)) = execute(&this.backend, tag, &job).await;
            this.figures.ended(read, written, result < 0);
            this.in_flight.set(this.in_flight.get() - 1);
            if result >= 0 || !this.left.get() {
                this.submit(command::COMMIT_AND_FETCH, tag, result);
            }
        });
    }
}

impl RingSink for Queue {
    fn ring_done(&self, token: u64, result: i32, _: RingOp) {
        // A tag has 16 bits.
        let tag = token as u16;
        // `UBLK_IO_RES_OK`.
        if result == 0 {
            let Some(this) = self.this.upgrade() else { return };
            match self.held.get() {
                true => self.waiting.borrow_mut().push(tag),
                false => this.begin(tag),
            }
            return;
        }
        // The driver gives its commands back when a device is stopped (`UBLK_IO_RES_ABORT`).
        let ends = [Errno::NODEV, Errno::CANCELED];
        if !ends.iter().any(|end| end.raw_os_error() == result.wrapping_neg()) {
            let error = io::Error::from_raw_os_error(result.wrapping_neg());
            let queue = self.backend.number;
            tracing::warn!(queue, tag, %error, "ublk: the kernel sends no more requests by this tag");
        }
    }
}

impl Hold for Queue {
    fn hold(&self, held: bool) -> u64 {
        if !self.left.get() {
            self.held.set(held);
        }
        if let (false, Some(this)) = (self.held.get(), self.this.upgrade()) {
            let waiting = self.waiting.take();
            waiting.into_iter().for_each(|tag| this.begin(tag));
        }
        self.in_flight.get()
    }

    /// Leaves it to the next server.
    fn stop(&self) {
        self.held.set(true);
        self.left.set(true);
    }
}
