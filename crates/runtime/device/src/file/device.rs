//! The device of one shard over an open file, and its requests in flight.

use super::holes::{self, Searches};
use super::inline;
use super::probe::Abilities;
use super::reservations::DiskReservations;
use super::steps::{Context, Flight, Step};
use super::whole::Whole;
use crate::completion::{Completion, Outcome};
use crate::device::Device;
use crate::error::{IoError, IoErrorKind};
use crate::holes::{FindHoles, Holes};
use crate::info::DeviceInfo;
use crate::request::{Op, Request};
use crate::reservation::Reservations;
use braid_shard::ring::{Ring, RingOp, RingSink};
use braid_shard::{Nanos, Shard};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// While there are writes, the size of the file is checked at this interval, in nanoseconds.
const CHECK_INTERVAL: Nanos = 100_000_000;

/// A file on one shard.
pub(super) struct FileDevice {
    core: Rc<Core>,
}

/// The state of the device. Operations in flight keep it alive.
struct Core {
    shard: Shard,
    /// `None` if requests are executed at submit.
    ring: Option<Rc<Ring>>,
    /// Even the start of a request may block, so a worker thread of the kernel starts it instead of the shard.
    by_worker: bool,
    info: DeviceInfo,
    writable: bool,
    /// The file's size in bytes when it was opened; a write that ends here could hide a
    /// truncation, because it makes the file as long as before.
    end: u64,
    context: Context,
    whole: Arc<Whole>,
    flights: RefCell<Slab<Flight>>,
    searches: Rc<Searches>,
    next_check: Cell<Nanos>,
    own: Weak<Core>,
}

impl FileDevice {
    /// `flush_fd` is used for flushes if there is one, else `fd`. Returns `None` when the shard has no ring and the
    /// file needs one.
    pub(super) fn new(
        shard: &Shard,
        (fd, flush_fd): (OwnedFd, Option<OwnedFd>),
        info: DeviceInfo,
        abilities: Abilities,
        writable: bool,
        whole: Arc<Whole>,
    ) -> Option<FileDevice> {
        let ring = match abilities.in_memory {
            true => None,
            false => Some(Rc::clone(shard.ring()?)),
        };
        let context =
            Context::new((fd, flush_fd), shard.pool().clone(), info.logical_block, &whole);
        let core = Rc::new_cyclic(|own| Core {
            shard: shard.clone(),
            ring,
            by_worker: abilities.is_served,
            info,
            writable,
            end: abilities.size,
            context,
            whole,
            flights: RefCell::new(Slab::new()),
            searches: Searches::new(shard),
            next_check: Cell::new(0),
            own: own.clone(),
        });
        Some(FileDevice { core })
    }
}

impl Device for FileDevice {
    fn info(&self) -> &DeviceInfo {
        &self.core.info
    }

    fn holes(&self, bytes: Range<u64>) -> FindHoles {
        let core = Rc::clone(&self.core);
        Box::pin(async move { core.holes(bytes).await })
    }

    fn submit(&self, request: Request, done: Completion) {
        let core = &self.core;
        if let Err(error) = core.admit(&request) {
            done.complete(Outcome::failed(error, request.op));
            return;
        }
        if request.is_empty() && !matches!(request.op, Op::Flush) {
            done.complete(Outcome::ok(request.op));
            return;
        }
        match Flight::start(&core.context, request.offset, request.op, done) {
            Ok((flight, call)) => core.begin(flight, call),
            Err((done, error, op)) => done.complete(Outcome::failed(error, op)),
        }
    }

    fn reservations(&self) -> Option<Rc<dyn Reservations>> {
        let Core { shard, whole, .. } = &*self.core;
        if whole.is_file() {
            return None;
        }
        let disk = DiskReservations::of(shard, whole.descriptor().ok()?)?;
        Some(Rc::new(disk))
    }
}

impl Core {
    async fn holes(&self, bytes: Range<u64>) -> Holes {
        let none = Holes::none(&bytes);
        if !self.whole.is_file() {
            return none;
        }
        let Ok(fd) = self.whole.descriptor() else { return none };
        let found = match self.ring {
            Some(_) => self.searches.search(&self.shard, fd, bytes).await,
            None => holes::search(&fd, &bytes),
        };
        // Where a file was cut off it seems to be a hole.
        if self.whole.check() { found } else { none }
    }

    fn admit(&self, request: &Request) -> Result<(), IoError> {
        let writes = !matches!(request.op, Op::Read(_) | Op::Flush);
        if writes && !self.writable {
            return Err(IoError::new(IoErrorKind::Refused));
        }
        let whole = if writes { self.whole_before_write(request) } else { !self.whole.is_gone() };
        if whole { Ok(()) } else { Err(IoError::new(IoErrorKind::Gone)) }
    }

    fn whole_before_write(&self, request: &Request) -> bool {
        let now = self.shard.now();
        let reaches_end = request.offset.saturating_add(request.len()) >= self.end;
        if now < self.next_check.get() && !reaches_end {
            return !self.whole.is_gone();
        }
        self.next_check.set(now.saturating_add(CHECK_INTERVAL));
        self.whole.check()
    }

    fn begin(self: &Rc<Core>, mut flight: Flight, mut call: RingOp) {
        if let Some(ring) = &self.ring {
            let key = self.flights.borrow_mut().insert(flight);
            self.submit(ring, call, Rc::clone(self) as Rc<dyn RingSink>, key as u64);
            return;
        }
        loop {
            let result = inline::carry_out(&mut call);
            match self.next(&mut flight, result, call) {
                Step::Call(next) => call = next,
                Step::End(result, op) => return flight.done.finish(result, op),
            }
        }
    }

    fn submit(&self, ring: &Ring, call: RingOp, sink: Rc<dyn RingSink>, token: u64) {
        match self.by_worker {
            true => ring.submit_by_worker(call, sink, token),
            false => ring.submit(call, sink, token),
        }
    }

    fn next(&self, flight: &mut Flight, result: i32, call: RingOp) -> Step {
        flight.next(&self.context, result, call, &|| self.whole.check())
    }
}

impl RingSink for Core {
    fn ring_done(&self, token: u64, result: i32, call: RingOp) {
        let key = token as usize;
        let step = match self.flights.borrow_mut().get_mut(key) {
            Some(flight) => self.next(flight, result, call),
            None => return,
        };
        match step {
            Step::Call(call) => {
                // Cannot fail: the ring holds a reference until this returns.
                if let (Some(ring), Some(own)) = (&self.ring, self.own.upgrade()) {
                    self.submit(ring, call, own, token);
                }
            }
            Step::End(result, op) => {
                let flight = self.flights.borrow_mut().try_remove(key);
                if let Some(flight) = flight {
                    flight.done.finish(result, op);
                }
            }
        }
    }
}
