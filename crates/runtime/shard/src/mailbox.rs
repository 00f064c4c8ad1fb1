//! Messages between shards: single-producer single-consumer rings, and a doorbell for sleepers.
//!
//! Requests travel over a [`mesh`]: one ring per ordered pair of shards, so no slot is contended.
//! A sender rings the doorbell only of a receiver that has said that it sleeps. Control (rare,
//! any thread) travels as boxed closures through a [`Remote`].

use crate::shard::{Shard, ShardId};
use rtrb::{Consumer, Producer, RingBuffer};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc;

/// Wakes a shard that sleeps in its reactor.
pub struct Doorbell {
    sleeping: AtomicBool,
    event: Option<OwnedFd>,
}

impl Doorbell {
    fn new() -> Doorbell {
        // Without an eventfd (out of descriptors) the ring refuses to start; simulated shards
        // never sleep and need none.
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        Doorbell { sleeping: AtomicBool::new(false), event }
    }

    /// The descriptor that becomes readable when the bell rings.
    pub fn event(&self) -> Option<&OwnedFd> {
        self.event.as_ref()
    }

    /// Wakes the shard if it has said that it sleeps. The message must be visible before.
    pub fn ring(&self) {
        // Pairs with the fence in `going_to_sleep`: either the sleeper sees the message or the
        // sender sees the sleeper.
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed)
            && self.sleeping.swap(false, Ordering::AcqRel)
            && let Some(event) = &self.event
        {
            // A full counter means that the bell rings already.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
    }

    /// Says that the owner is about to sleep; it must look for messages once more afterwards.
    pub fn going_to_sleep(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that the owner is awake, and silences the bell.
    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }
}

type Job = Box<dyn FnOnce(&Shard) + Send>;

/// Runs closures on a shard, from any thread. Not for requests: each call allocates.
#[derive(Clone)]
pub struct Remote {
    shard: ShardId,
    jobs: mpsc::Sender<Job>,
    bell: Arc<Doorbell>,
}

impl Remote {
    /// The shard's number.
    pub fn id(&self) -> ShardId {
        self.shard
    }

    /// Has `job` run on the shard's thread. False when the shard is gone.
    pub fn run(&self, job: impl FnOnce(&Shard) + Send + 'static) -> bool {
        let sent = self.jobs.send(Box::new(job)).is_ok();
        self.bell.ring();
        sent
    }

    /// Runs `job` there and waits for what it returns; `None` when the shard is gone. Must not be
    /// called on a shard's thread.
    pub fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Shard) -> T + Send + 'static,
    ) -> Option<T> {
        let (send, receive) = mpsc::sync_channel(1);
        self.run(move |shard| {
            // The caller may have given up; then nobody wants the value.
            let _ = send.send(job(shard));
        });
        receive.recv().ok()
    }

    /// Like [`call`](Remote::call) for a job that goes on asynchronously: `job` gets a function to
    /// be called with the result.
    pub fn call_async<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Shard, Box<dyn FnOnce(T)>) + Send + 'static,
    ) -> Option<T> {
        let (send, receive) = mpsc::sync_channel(1);
        self.run(move |shard| {
            job(
                shard,
                Box::new(move |value| {
                    let _ = send.send(value);
                }),
            );
        });
        receive.recv().ok()
    }

    pub(crate) fn bell(&self) -> &Arc<Doorbell> {
        &self.bell
    }
}

/// The receiving side of every [`Remote`] of a shard.
pub(crate) struct RemoteJobs {
    own: Remote,
    jobs: mpsc::Receiver<Job>,
    ahead: RefCell<Option<Job>>,
}

impl RemoteJobs {
    pub(crate) fn new(shard: ShardId) -> RemoteJobs {
        let (send, jobs) = mpsc::channel();
        let own = Remote { shard, jobs: send, bell: Arc::new(Doorbell::new()) };
        RemoteJobs { own, jobs, ahead: RefCell::new(None) }
    }

    pub(crate) fn remote(&self) -> Remote {
        self.own.clone()
    }

    pub(crate) fn doorbell(&self) -> Arc<Doorbell> {
        Arc::clone(&self.own.bell)
    }

    pub(crate) fn has_pending(&self) -> bool {
        if self.ahead.borrow().is_some() {
            return true;
        }
        let job = self.jobs.try_recv().ok();
        let found = job.is_some();
        *self.ahead.borrow_mut() = job;
        found
    }

    pub(crate) fn run_pending(&self, shard: &Shard) -> bool {
        let mut ran = false;
        loop {
            let ahead = self.ahead.borrow_mut().take();
            let Some(job) = ahead.or_else(|| self.jobs.try_recv().ok()) else {
                return ran;
            };
            job(shard);
            ran = true;
        }
    }
}

/// Something that a shard empties at every turn.
pub(crate) trait Inbox {
    fn take(&self, shard: &Shard) -> bool;
    fn waiting(&self) -> bool;
}

/// One shard's corner of a mesh, to be carried to its thread and attached there.
pub struct MeshEnd<M> {
    own: ShardId,
    to: Vec<Option<(Producer<M>, Arc<Doorbell>)>>,
    from: Vec<Option<Consumer<M>>>,
}

/// Rings between every ordered pair of `shards`, each with room for `capacity` messages; the ends
/// come in the order of `shards`, which must be numbered 0, 1, ….
pub fn mesh<M>(shards: &[Remote], capacity: usize) -> Vec<MeshEnd<M>> {
    let n = shards.len();
    let mut ends: Vec<MeshEnd<M>> = (0..n)
        .map(|own| MeshEnd {
            own: own as ShardId,
            to: (0..n).map(|_| None).collect(),
            from: (0..n).map(|_| None).collect(),
        })
        .collect();
    for from in 0..n {
        for to in (0..n).filter(|to| *to != from) {
            let (producer, consumer) = RingBuffer::new(capacity);
            ends[from].to[to] = Some((producer, Arc::clone(shards[to].bell())));
            ends[to].from[from] = Some(consumer);
        }
    }
    ends
}

struct Outbox<M> {
    ring: Producer<M>,
    bell: Arc<Doorbell>,
    /// Messages that did not fit; bounded by the sender's own bound on requests in flight.
    overflow: VecDeque<M>,
    rung: bool,
}

/// The sending side of an attached mesh.
pub struct Outboxes<M> {
    to: Vec<Option<RefCell<Outbox<M>>>>,
}

struct Inboxes<M, H> {
    from: Vec<Option<RefCell<Consumer<M>>>>,
    out: Rc<Outboxes<M>>,
    handle: H,
}

impl<M: 'static> MeshEnd<M> {
    /// Attaches this end to its shard: `handle` is called on it for every message, with the
    /// sender's number. Messages leave at the end of the turn in which they were sent.
    pub fn attach(
        self,
        shard: &Shard,
        handle: impl Fn(ShardId, M) + 'static,
    ) -> (Rc<Outboxes<M>>, Attached) {
        debug_assert_eq!(shard.id(), self.own, "a mesh end belongs to its own shard");
        let out = Rc::new(Outboxes {
            to: self
                .to
                .into_iter()
                .map(|peer| {
                    peer.map(|(ring, bell)| {
                        RefCell::new(Outbox { ring, bell, overflow: VecDeque::new(), rung: true })
                    })
                })
                .collect(),
        });
        let inboxes: Rc<dyn Inbox> = Rc::new(Inboxes {
            from: self.from.into_iter().map(|ring| ring.map(RefCell::new)).collect(),
            out: Rc::clone(&out),
            handle,
        });
        shard.add_inbox(Rc::clone(&inboxes));
        (out, Attached { shard: shard.clone(), inbox: inboxes })
    }
}

/// Keeps a mesh end attached; dropping it detaches.
pub struct Attached {
    shard: Shard,
    inbox: Rc<dyn Inbox>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.shard.remove_inbox(&self.inbox);
    }
}

impl<M> Outboxes<M> {
    /// Sends `message` to shard `to`; it leaves now or, when the ring is full, at a later turn.
    /// False when there is no such peer.
    pub fn send(&self, to: ShardId, message: M) -> bool {
        let Some(Some(peer)) = self.to.get(to as usize) else { return false };
        let mut peer = peer.borrow_mut();
        if peer.overflow.is_empty() {
            if let Err(rtrb::PushError::Full(message)) = peer.ring.push(message) {
                peer.overflow.push_back(message);
            }
        } else {
            peer.overflow.push_back(message);
        }
        peer.rung = false;
        true
    }

    fn flush(&self) -> bool {
        let mut moved = false;
        for peer in self.to.iter().flatten() {
            let mut peer = peer.borrow_mut();
            let peer = &mut *peer;
            while let Some(message) = peer.overflow.pop_front() {
                if let Err(rtrb::PushError::Full(message)) = peer.ring.push(message) {
                    peer.overflow.push_front(message);
                    break;
                }
                // The receiver may have emptied the ring and gone to sleep since it was last woken.
                peer.rung = false;
                moved = true;
            }
            if !peer.rung {
                peer.rung = true;
                peer.bell.ring();
                moved = true;
            }
        }
        moved
    }

    fn has_overflow(&self) -> bool {
        self.to.iter().flatten().any(|peer| !peer.borrow().overflow.is_empty())
    }
}

impl<M, H: Fn(ShardId, M)> Inbox for Inboxes<M, H> {
    fn take(&self, _: &Shard) -> bool {
        let mut progressed = false;
        for (from, ring) in self.from.iter().enumerate() {
            let Some(ring) = ring else { continue };
            let waiting = ring.borrow().slots();
            for _ in 0..waiting {
                let Ok(message) = ring.borrow_mut().pop() else { break };
                (self.handle)(from as ShardId, message);
                progressed = true;
            }
        }
        progressed | self.out.flush()
    }

    fn waiting(&self) -> bool {
        self.out.has_overflow() || self.from.iter().flatten().any(|ring| ring.borrow().slots() > 0)
    }
}

#[cfg(test)]
#[path = "mailbox_tests.rs"]
mod tests;
