//! The right to write to a target: shared by all clients, or held by one alone.
//!
//! A write that begins or ends inside a block reads the block, changes it and writes it back. Whatever
//! another connection writes to that block in between would be lost, though it was acknowledged. So such
//! a write waits until it is alone: all connections of the target finish what their devices have, and
//! begin nothing that changes content until it is done. Nobody's payload is waited for, so a client that
//! stalls holds nobody up. As long as there is no such write, a write costs a look at a flag of its own
//! connection.
//!
//! The first shard keeps the turns; the connections' shards and it send each other messages.
//!
//! Invariant: while one is alone no other connection has a write with its device; those that wait are
//! let through between two turns.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use braid_shard::sync::{Notify, Promise, promise};

/// Numbers for gates and members; no two of the process are the same.
fn number() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

/// The gate of one target.
pub struct Gate {
    id: u64,
    home: Remote,
}

/// The gates of one shard.
#[derive(Default)]
struct Locals {
    keepers: RefCell<Vec<(u64, Rc<Keeper>)>>,
    passes: RefCell<Vec<(u64, Weak<Pass>)>>,
}

impl Locals {
    fn add(&self, pass: &Rc<Pass>) {
        let mut passes = self.passes.borrow_mut();
        passes.retain(|(_, pass)| pass.strong_count() > 0);
        passes.push((pass.member, Rc::downgrade(pass)));
    }
}

impl Gate {
    /// A gate whose turns are kept on the shard `home`.
    pub fn new(home: Remote) -> Arc<Gate> {
        Arc::new(Gate { id: number(), home })
    }

    /// Enters a connection on `shard`; waits until its gate's keeper knows of it.
    pub async fn enter(self: &Arc<Self>, shard: &Shard) -> Rc<Pass> {
        let (joined, wait) = promise(shard);
        let pass = Rc::new(Pass {
            member: number(),
            gate: Arc::clone(self),
            joined: Cell::new(Some(joined)),
            held: Cell::new(false),
            let_through: Cell::new(false),
            waiting: Cell::new(0),
            in_flight: Cell::new(0),
            wants: RefCell::default(),
            shard: shard.clone(),
            changed: Notify::new(shard),
        });
        shard.local::<Locals>().add(&pass);
        let (member, remote) = (pass.member, shard.remote());
        self.tell(move |keeper| keeper.join(member, remote));
        // None only when the home shard is gone: then nobody is let alone any more either.
        wait.await;
        pass
    }

    /// Has `act` done by the keeper.
    fn tell(&self, act: impl FnOnce(&Keeper) + Send + 'static) {
        let id = self.id;
        self.home.run(move |shard| {
            let locals = shard.local::<Locals>();
            let known = locals.keepers.borrow().iter().find(|(known, _)| *known == id).cloned();
            let keeper = known.map(|(_, keeper)| keeper).unwrap_or_else(|| {
                let keeper = Rc::new(Keeper::default());
                locals.keepers.borrow_mut().push((id, Rc::clone(&keeper)));
                keeper
            });
            act(&keeper);
            if keeper.members.borrow().is_empty() {
                locals.keepers.borrow_mut().retain(|(known, _)| *known != id);
            }
        });
    }
}

struct Member {
    number: u64,
    remote: Remote,
}

impl Member {
    /// Has `act` done by the member's pass, if it is still there: one that is not leaves.
    fn tell(&self, act: impl FnOnce(&Pass) + Send + 'static) {
        let number = self.number;
        self.remote.run(move |shard| {
            let passes = shard.local::<Locals>();
            let known = passes.passes.borrow().iter().find(|(known, _)| *known == number).cloned();
            if let Some(pass) = known.and_then(|(_, pass)| pass.upgrade()) {
                act(&pass);
            }
        });
    }
}

/// Keeps the turns of a gate.
#[derive(Default)]
struct Keeper {
    members: RefCell<Vec<Member>>,
    /// Members that want to be alone after this turn, once for each write.
    queue: RefCell<VecDeque<u64>>,
    /// Those of this turn, the first of them first.
    turn: RefCell<VecDeque<u64>>,
    /// Members that still have writes with their devices.
    busy: RefCell<Vec<u64>>,
}

impl Keeper {
    fn join(&self, number: u64, remote: Remote) {
        let member = Member { number, remote };
        let held = !self.turn.borrow().is_empty();
        member.tell(move |pass| {
            pass.held.set(held);
            pass.joined.take().into_iter().for_each(|joined| joined.fulfil(()));
        });
        self.members.borrow_mut().push(member);
    }

    fn want(&self, member: u64) {
        self.queue.borrow_mut().push_back(member);
        self.next();
    }

    fn next(&self) {
        if !self.turn.borrow().is_empty() || self.queue.borrow().is_empty() {
            return;
        }
        *self.turn.borrow_mut() = self.queue.take();
        let members = self.members.borrow();
        *self.busy.borrow_mut() = members.iter().map(|member| member.number).collect();
        members.iter().for_each(|member| member.tell(Pass::hold));
    }

    /// `member` has no writes with its device.
    fn quiet(&self, member: u64) {
        let mut busy = self.busy.borrow_mut();
        let before = busy.len();
        busy.retain(|known| *known != member);
        if before > 0 && busy.is_empty() {
            drop(busy);
            self.grant();
        }
    }

    /// Lets the first of the turn be alone; with nobody left of it all go on.
    fn grant(&self) {
        loop {
            let Some(first) = self.turn.borrow().front().copied() else { break };
            let members = self.members.borrow();
            if let Some(member) = members.iter().find(|member| member.number == first) {
                return member.tell(Pass::be_alone);
            }
            // It has left.
            self.turn.borrow_mut().pop_front();
        }
        self.members.borrow().iter().for_each(|member| member.tell(Pass::release));
        self.next();
    }

    /// The first of the turn is done.
    fn done(&self) {
        self.turn.borrow_mut().pop_front();
        self.grant();
    }

    fn leave(&self, member: u64) {
        self.members.borrow_mut().retain(|known| known.number != member);
        self.queue.borrow_mut().retain(|known| *known != member);
        let was_alone =
            self.busy.borrow().is_empty() && self.turn.borrow().front() == Some(&member);
        if was_alone {
            return self.done();
        }
        self.quiet(member);
    }
}

/// One connection's pass through its target's gate.
pub struct Pass {
    member: u64,
    gate: Arc<Gate>,
    joined: Cell<Option<Promise<()>>>,
    /// Somebody is alone, or about to be.
    held: Cell<bool>,
    /// One that was waiting when the next turn came goes first.
    let_through: Cell<bool>,
    waiting: Cell<usize>,
    /// Writes with the device.
    in_flight: Cell<usize>,
    /// Those who want to be alone.
    wants: RefCell<VecDeque<Promise<()>>>,
    shard: Shard,
    changed: Notify,
}

impl Pass {
    /// Waits until content may be changed; [`wrote`](Self::wrote) ends it.
    pub async fn write(&self) {
        if self.held.get() {
            self.waiting.set(self.waiting.get() + 1);
            let may = || (!self.held.get() || self.let_through.replace(false)).then_some(());
            self.changed.wait_for(may).await;
            self.waiting.set(self.waiting.get() - 1);
        }
        self.in_flight.set(self.in_flight.get() + 1);
    }

    /// A write is not with the device any more.
    pub fn wrote(&self) {
        self.in_flight.set(self.in_flight.get() - 1);
        self.tell_if_quiet();
    }

    /// Waits until nobody else writes to the target.
    pub async fn alone(self: &Rc<Self>) -> Alone {
        let (granted, wait) = promise(&self.shard);
        self.wants.borrow_mut().push_back(granted);
        let member = self.member;
        self.gate.tell(move |keeper| keeper.want(member));
        wait.await;
        Alone(Rc::clone(self))
    }

    fn hold(&self) {
        self.held.set(true);
        self.let_through.set(self.waiting.get() > 0);
        self.changed.notify_all();
        self.tell_if_quiet();
    }

    fn tell_if_quiet(&self) {
        if self.held.get() && !self.let_through.get() && self.in_flight.get() == 0 {
            let member = self.member;
            self.gate.tell(move |keeper| keeper.quiet(member));
        }
    }

    fn release(&self) {
        self.held.set(false);
        self.let_through.set(false);
        self.changed.notify_all();
    }

    fn be_alone(&self) {
        let first = self.wants.borrow_mut().pop_front();
        first.into_iter().for_each(|granted| granted.fulfil(()));
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let member = self.member;
        self.gate.tell(move |keeper| keeper.leave(member));
    }
}

/// Nobody else writes to the target while this is there.
pub struct Alone(Rc<Pass>);

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.gate.tell(Keeper::done);
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
