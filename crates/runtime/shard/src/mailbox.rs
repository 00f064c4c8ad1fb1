//! Messages between shards: single-producer single-consumer rings, and a doorbell for sleepers.
//!
//! Requests travel over a [`mesh`]: one ring per ordered pair of shards, so no slot is contended.
//! A sender rings the doorbell of a receiver only if that has announced that it sleeps. Control (rare,
//! from any thread) travels as boxed closures through a [`Remote`].

use crate::doorbell::Doorbell;
use crate::id::ShardId;
use crate::inbox::Inbox;
use crate::shard::{Job, Shard};
use rtrb::{Consumer, Producer, RingBuffer};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;

/// Runs closures on a shard, from any thread. Not for requests: each call allocates.
#[derive(Clone)]
pub struct Remote {
    shard: ShardId,
    jobs: mpsc::Sender<Job>,
    bell: Arc<Doorbell>,
}

impl Shard {
    /// A handle by which other threads run closures on this shard.
    pub fn remote(&self) -> Remote {
        let (jobs, bell) = self.job_sender();
        Remote { shard: self.id(), jobs, bell }
    }
}

impl Remote {
    /// The shard's number.
    pub fn id(&self) -> ShardId {
        self.shard
    }

    /// Sends `job` to the shard, whose thread runs it. False when the shard has ended.
    pub fn run(&self, job: impl FnOnce(&Shard) + Send + 'static) -> bool {
        let sent = self.jobs.send(Box::new(job)).is_ok();
        self.bell.ring();
        sent
    }

    /// Runs `job` on the shard and waits for its result; `None` when the shard has ended. Must not be
    /// called on a shard's thread.
    pub fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Shard) -> T + Send + 'static,
    ) -> Option<T> {
        let (send, receive) = mpsc::sync_channel(1);
        self.run(move |shard| {
            // Fails only when the caller does not wait any more.
            let _ = send.send(job(shard));
        });
        receive.recv().ok()
    }

    /// Like [`call`](Remote::call) for a job that goes on asynchronously: `job` gets a function that
    /// it calls with the result.
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

    fn bell(&self) -> &Arc<Doorbell> {
        &self.bell
    }
}

/// One shard's end of a mesh, to be moved to its thread and attached there.
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
    /// Messages that did not fit into the ring. The sender's limit on requests in flight bounds them.
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
    /// Attaches this end to its shard, which calls `handle` for every message, with the
    /// sender's number. Messages are delivered from the end of the turn in which they were sent.
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
    /// Sends `message` to shard `to`, now or, when the ring is full, in a later turn.
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
    fn take(&self) -> bool {
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
