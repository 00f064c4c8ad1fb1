//! A queue that runs: from a kick to the call that ends its requests.
//!
//! Invariant: each request that is taken from the ring is put back into it once, unless the connection has ended.

use super::claims::{Claim, RingId};
use super::execute::execute;
use super::hub::Hub;
use crate::blk::request::{Job, Status};
use crate::inflight::Tracker;
use crate::memory::Memory;
use crate::queue::{Place, QueueError, Ring};
use braid_shard::ring::RingOp;
use braid_shard::{Buf, Shard};
use smallvec::smallvec;
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Requests of a queue that are under way; further ones stay in the ring.
const REQUESTS_MAX: u64 = 256;
/// Nanoseconds between looks whether a ring is still another connection's.
const CLAIM_NANOS: u64 = 1_000_000;

/// Where a guest is told that something has ended: the front end may change it at any time.
pub(super) type CallFile = Rc<RefCell<Option<Rc<OwnedFd>>>>;

/// The parts that a queue is started with.
pub(super) struct Start {
    pub memory: Rc<Memory>,
    pub place: Place,
    pub tracker: Option<Tracker>,
    pub kick: Rc<OwnedFd>,
    pub call: CallFile,
}

/// See the module's documentation.
pub(super) struct Running {
    hub: Rc<Hub>,
    /// `None` until it may start.
    ring: RefCell<Option<Ring>>,
    /// Until all that was taken has ended.
    claim: RefCell<Option<Claim>>,
    base: u16,
    kick: Rc<OwnedFd>,
    call: CallFile,
    enabled: Cell<bool>,
    stopped: Cell<bool>,
    in_flight: Cell<u64>,
    /// Requests have ended that the guest was not told of.
    to_call: Cell<bool>,
}

impl Running {
    pub fn start(hub: &Rc<Hub>, start: Start) -> Rc<Running> {
        let Start { memory, place, tracker, kick, call } = start;
        let running = Rc::new(Running {
            hub: Rc::clone(hub),
            ring: RefCell::new(None),
            claim: RefCell::new(None),
            base: place.base,
            kick,
            call,
            enabled: Cell::new(true),
            stopped: Cell::new(false),
            in_flight: Cell::new(0),
            to_call: Cell::new(false),
        });
        let this = Rc::clone(&running);
        hub.shard.spawn(async move {
            if let Some(ring) = id_of(&memory, &place) {
                while !this.is_over() && !this.claim(ring) {
                    this.hub.shard.sleep(CLAIM_NANOS).await;
                }
            }
            if this.is_over() {
                return this.release();
            }
            match Ring::start(&memory, place, tracker) {
                Ok(ring) => {
                    *this.ring.borrow_mut() = Some(ring);
                    this.hub.shard.spawn(Rc::clone(&this).call_guest());
                    if let Err(error) = this.take_requests().await {
                        this.hub.fail(error);
                    }
                }
                Err(error) => this.hub.fail(error),
            }
        });
        running
    }

    fn is_over(&self) -> bool {
        self.stopped.get() || self.hub.has_ended()
    }

    fn claim(&self, ring: RingId) -> bool {
        let claim = Claim::new(ring);
        let ours = claim.is_some();
        *self.claim.borrow_mut() = claim;
        ours
    }

    /// Lets others have the ring, once nothing of it is under way.
    pub fn release(&self) {
        self.claim.borrow_mut().take();
    }

    pub fn enable(&self, enabled: bool) {
        self.enabled.set(enabled);
        self.hub.notify();
    }

    /// Takes nothing further, and waits until what was taken has been answered. Gives the index of the first request
    /// that was not taken.
    pub async fn stop(&self) -> u16 {
        self.end();
        self.hub.wait_until(|| self.in_flight.get() == 0).await;
        self.release();
        self.ring.borrow().as_ref().map_or(self.base, Ring::base)
    }

    /// Takes nothing further.
    pub fn end(&self) {
        self.stopped.set(true);
        self.hub.notify();
        // The task may wait for a kick.
        self.kick();
    }

    /// The descriptor was seen to be an eventfd, which takes this without waiting.
    fn kick(&self) {
        let _ = rustix::io::write(&*self.kick, &1u64.to_ne_bytes());
    }

    async fn take_requests(self: &Rc<Self>) -> Result<(), QueueError> {
        let shard = self.hub.shard.clone();
        let mut count = shard.pool().get(8);
        loop {
            if !self.take_all().await? {
                return Ok(());
            }
            let read =
                RingOp::Read { fd: Rc::clone(&self.kick), offset: 0, bufs: smallvec![count] };
            let Some((result, RingOp::Read { bufs, .. })) = shard.perform(read).await else {
                return Ok(());
            };
            let back = bufs.into_iter().next().filter(|_| result > 0);
            if self.is_over() {
                // The driver's kick may have come to this wait, and not to that of the ring's next run.
                self.kick();
                return Ok(());
            }
            // An eventfd gives eight bytes; without them there are no kicks any more.
            let Some(buf) = back else { return Ok(()) };
            count = buf;
        }
    }

    /// Takes requests until there are none; false when it is over.
    async fn take_all(self: &Rc<Self>) -> Result<bool, QueueError> {
        self.with_ring(Ring::ask_for_no_kick)?;
        loop {
            let may = || {
                let room = self.in_flight.get() < REQUESTS_MAX;
                self.is_over() || self.enabled.get() && !self.hub.is_held() && room
            };
            if !may() {
                self.hub.wait_until(may).await;
            }
            if self.is_over() {
                return Ok(false);
            }
            match self.with_ring(Ring::pop)?.flatten() {
                Some(chain) => {
                    let memory = self.with_ring(|ring| Ok(Rc::clone(ring.memory())))?;
                    let Some(memory) = memory else { return Ok(false) };
                    let job = Job::parse(&memory, chain)?;
                    if memory.is_broken() {
                        return Err(QueueError::Gone);
                    }
                    self.begin(job, memory);
                }
                None if self.with_ring(Ring::ask_for_kick)?.unwrap_or(false) => {
                    self.with_ring(Ring::ask_for_no_kick)?;
                }
                None => return Ok(true),
            }
        }
    }

    fn with_ring<T>(
        &self,
        act: impl FnOnce(&mut Ring) -> Result<T, QueueError>,
    ) -> Result<Option<T>, QueueError> {
        let mut ring = self.ring.borrow_mut();
        let Some(ring) = ring.as_mut() else { return Ok(None) };
        let done = act(ring)?;
        // This request has touched the guest's memory, even if it failed.
        if ring.memory().is_broken() {
            return Err(QueueError::Gone);
        }
        Ok(Some(done))
    }

    fn begin(self: &Rc<Self>, job: Job, memory: Rc<Memory>) {
        self.in_flight.set(self.in_flight.get() + 1);
        self.hub.began();
        let this = Rc::clone(self);
        self.hub.shard.spawn(async move {
            let (status, moved) = execute(&this.hub, &job, &memory).await;
            this.finish(&job, &memory, status, moved);
        });
    }

    fn finish(&self, job: &Job, memory: &Memory, status: Status, moved: (u64, u64)) {
        let (read, written) = moved;
        self.hub.figures.ended(read, written, status != Status::Ok);
        self.in_flight.set(self.in_flight.get() - 1);
        if !self.hub.has_ended()
            && let Err(error) = self.answer(job, memory, status, read)
        {
            self.hub.fail(error);
        }
        self.hub.is_done();
    }

    fn answer(
        &self,
        job: &Job,
        memory: &Memory,
        status: Status,
        read: u64,
    ) -> Result<(), QueueError> {
        use vm_memory::Bytes;
        let at = job.status;
        let outside = |_| QueueError::Memory { address: at.0, length: 1 };
        memory.guest().write_obj(status as u8, at).map_err(outside)?;
        // A payload is less than 4 GiB: its parts are.
        self.with_ring(|ring| ring.push(job.head, read as u32 + 1))?;
        self.to_call.set(true);
        Ok(())
    }

    /// Tells the guest of what has ended, once for all that ends in a turn.
    async fn call_guest(self: Rc<Self>) {
        let shard = self.hub.shard.clone();
        let one = one(&shard);
        loop {
            self.hub.wait_until(|| self.to_call.get() || self.is_quiet()).await;
            if !self.to_call.replace(false) {
                return;
            }
            let wanted = match self.with_ring(Ring::wants_call) {
                Ok(wanted) => wanted.unwrap_or(false),
                Err(error) => return self.hub.fail(error),
            };
            let call = self.call.borrow().clone();
            if let Some(fd) = call.filter(|_| wanted) {
                let bufs = smallvec![one.clone()];
                // If this fails, the guest still finds completed requests in the ring.
                shard.perform(RingOp::Write { fd, offset: 0, bufs, durable: false }).await;
            }
        }
    }

    /// Nothing will end any more.
    fn is_quiet(&self) -> bool {
        self.hub.has_ended() || self.stopped.get() && self.in_flight.get() == 0
    }
}

/// `None` where there is no such memory, which the start of the ring finds.
fn id_of(memory: &Memory, place: &Place) -> Option<RingId> {
    memory.file_of_user(place.descriptors).zip(memory.of_user(place.descriptors))
}

fn one(shard: &Shard) -> Buf {
    shard.pool().copy_of(&1u64.to_ne_bytes()).freeze()
}
