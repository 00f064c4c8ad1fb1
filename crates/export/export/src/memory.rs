//! One budget of memory for the payloads of all clients of a server, over all its shards.
//!
//! Every connection has a reserve of its own: requests that fit it never wait for anybody. What is
//! longer, or further, comes from a common amount. One shard deals that out, first come first served;
//! the others keep what they were dealt until it is short, and then everything goes back and through
//! the dealer. While it is short, clients that keep their share without taking their data or giving
//! it are disconnected. No request takes a lock.
//!
//! ```text
//!            ┌── want ──►              ┌── grant, hand back ──►
//!   purse ───┤            dealer ──────┤                        purses of all shards
//!            └── give ──►              └── all is well again ─►
//! ```
//!
//! Invariant: what dealer and purses have, what is on its way between them and what requests hold is
//! always the common amount; with the reserves it is at most the budget.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use braid_shard::mailbox::Remote;
use braid_shard::{Nanos, Shard, TaskId};

/// The size of a budget, and the terms on which it is dealt out.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Bytes of payload in memory.
    pub bytes: u64,
    /// Accounts at a time, at least one. A quarter of the budget is divided among them (at most 256 KiB for each).
    pub accounts: usize,
    /// While memory is short, a client that keeps some of what others wait for must take its data, and send what it has
    /// announced, within this time and one second for each MiB; else it is disconnected.
    pub patience: Duration,
    /// Bytes of the largest payload.
    pub payload_bytes_max: u64,
    /// The protocol's name, for messages.
    pub protocol: &'static str,
}

/// The largest reserve of a connection, in bytes: 64 requests of a page, or two of a usual read-ahead.
const RESERVE_MAX: u64 = 256 << 10;
/// Looks at clients that may have stalled, per time that they are given.
const LOOKS: u64 = 4;
/// The part of the common amount that each connection may have, however many there are, in bytes.
const SHARE_MIN: u64 = 1 << 20;
/// A nanosecond more for each of so many payload bytes that a client has to move while others wait: a
/// second for a MiB.
const BYTES_PER_MICROSECOND: u64 = 1;

/// A budget as all shards know it. Made by [`Memory::new`].
pub struct Shared {
    id: u64,
    common: u64,
    reserve: u64,
    patience: Nanos,
    payload_bytes_max: u64,
    protocol: &'static str,
    shards: Vec<Remote>,
    /// Accounts of all shards.
    connected: AtomicUsize,
}

/// A budget; its dealer goes with it.
pub struct Memory(Arc<Shared>);

/// The dealers that live on a shard, and its purses.
#[derive(Default)]
struct Locals {
    dealers: RefCell<Vec<(u64, Rc<Dealer>)>>,
    purses: RefCell<Vec<(u64, Weak<Purse>)>>,
}

impl Memory {
    /// A budget on these terms, dealt out by the first of `shards`.
    #[must_use]
    pub fn new(terms: &Terms, shards: &[Remote]) -> Memory {
        static BUDGETS: AtomicU64 = AtomicU64::new(0);
        let accounts = terms.accounts.max(1) as u64;
        let reserve = (terms.bytes / 4 / accounts).min(RESERVE_MAX);
        Memory(Arc::new(Shared {
            id: BUDGETS.fetch_add(1, Ordering::Relaxed),
            common: terms.bytes - reserve * accounts,
            reserve,
            patience: terms.patience.as_nanos().try_into().unwrap_or(Nanos::MAX),
            payload_bytes_max: terms.payload_bytes_max,
            protocol: terms.protocol,
            shards: shards.to_vec(),
            connected: AtomicUsize::new(0),
        }))
    }

    /// The part of it that connections need.
    #[must_use]
    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.0)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let id = self.0.id;
        if let Some(home) = self.0.shards.first() {
            // Memory that is given back later goes to nobody, as it should.
            home.run(move |shard| {
                shard.local::<Locals>().dealers.borrow_mut().retain(|(known, _)| *known != id);
            });
        }
    }
}

impl Shared {
    /// The purse of this shard; made when its first connection comes.
    fn purse(self: &Arc<Self>, shard: &Shard) -> Rc<Purse> {
        let locals = shard.local::<Locals>();
        if let Some(known) = locals.purse(self.id) {
            return known;
        }
        let purse = Rc::new(Purse {
            shard: shard.clone(),
            shared: Arc::clone(self),
            stock: Cell::new(0),
            short_since: Cell::new(None),
            watching: Cell::new(false),
            queue: RefCell::new(VecDeque::new()),
            next: Cell::new(0),
            clients: RefCell::new(Vec::new()),
        });
        let mut purses = locals.purses.borrow_mut();
        purses.retain(|(_, purse)| purse.strong_count() > 0);
        purses.push((self.id, Rc::downgrade(&purse)));
        purse
    }

    /// Has `act` done by the dealer.
    fn tell_dealer(self: &Arc<Self>, act: impl FnOnce(&Dealer) + Send + 'static) {
        let shared = Arc::clone(self);
        let Some(home) = self.shards.first() else { return };
        home.run(move |shard| {
            let locals = shard.local::<Locals>();
            let known = locals.dealers.borrow().iter().find(|(id, _)| *id == shared.id).cloned();
            let dealer = known.map(|(_, dealer)| dealer).unwrap_or_else(|| {
                let dealer = Rc::new(Dealer::new(Arc::clone(&shared)));
                locals.dealers.borrow_mut().push((shared.id, Rc::clone(&dealer)));
                dealer
            });
            act(&dealer);
        });
    }

    /// Has `act` done by the purse of shard number `at`; `without` where it has none.
    fn tell_purse(
        self: &Arc<Self>,
        at: usize,
        act: impl FnOnce(&Rc<Purse>) + Send + 'static,
        without: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) {
        let shared = Arc::clone(self);
        let Some(remote) = self.shards.get(at) else { return };
        remote.run(move |shard| match shard.local::<Locals>().purse(shared.id) {
            Some(purse) => act(&purse),
            None => without(&shared),
        });
    }

    fn give_back(self: &Arc<Self>, bytes: u64) {
        if bytes > 0 {
            self.tell_dealer(move |dealer| dealer.take_back(bytes));
        }
    }

    /// The part of the common amount that one connection may have beside a single request.
    fn share(&self) -> u64 {
        let connected = self.connected.load(Ordering::Relaxed).max(1) as u64;
        (self.common / connected).clamp(SHARE_MIN, self.payload_bytes_max.max(SHARE_MIN))
    }
}

impl Locals {
    fn purse(&self, id: u64) -> Option<Rc<Purse>> {
        let purses = self.purses.borrow();
        purses.iter().find(|(known, _)| *known == id).and_then(|(_, purse)| purse.upgrade())
    }
}

/// Deals the common amount out.
struct Dealer {
    shared: Arc<Shared>,
    free: Cell<u64>,
    /// Shards that want something, and how much.
    queue: RefCell<VecDeque<(usize, u64)>>,
    short: Cell<bool>,
}

impl Dealer {
    fn new(shared: Arc<Shared>) -> Dealer {
        let free = Cell::new(shared.common);
        Dealer { shared, free, queue: RefCell::default(), short: Cell::new(false) }
    }

    fn want(&self, shard: usize, bytes: u64) {
        self.queue.borrow_mut().push_back((shard, bytes));
        self.deal();
    }

    fn take_back(&self, bytes: u64) {
        self.free.set(self.free.get() + bytes);
        self.deal();
    }

    fn deal(&self) {
        loop {
            let mut queue = self.queue.borrow_mut();
            let Some(&(shard, bytes)) = queue.front() else { break };
            if self.free.get() < bytes {
                break;
            }
            queue.pop_front();
            // As long as there is enough a shard gets more than it asks for, to be asked less often.
            let shards = self.shared.shards.len().max(1) as u64;
            let more = if queue.is_empty() && !self.short.get() {
                (self.shared.common / shards / 2).min(self.free.get() - bytes)
            } else {
                0
            };
            let bytes = bytes + more;
            self.free.set(self.free.get() - bytes);
            self.shared.tell_purse(
                shard,
                move |purse| purse.put(bytes),
                move |shared| shared.give_back(bytes),
            );
        }
        let waiting = !self.queue.borrow().is_empty();
        if waiting && !self.short.get() {
            self.say_short(true);
        }
        if !waiting && self.short.get() && self.free.get() >= self.shared.common / 4 {
            self.say_short(false);
        }
    }

    fn say_short(&self, short: bool) {
        self.short.set(short);
        for at in 0..self.shared.shards.len() {
            self.shared.tell_purse(at, move |purse| purse.is_short(short), |_| {});
        }
    }
}

/// A task that waits for its part.
struct Waiter {
    ticket: u64,
    bytes: u64,
    task: TaskId,
    granted: bool,
}

/// The memory that a shard was dealt, and the requests that wait for it there.
struct Purse {
    shard: Shard,
    shared: Arc<Shared>,
    stock: Cell<u64>,
    /// Since when memory has been short.
    short_since: Cell<Option<Nanos>>,
    watching: Cell<bool>,
    queue: RefCell<VecDeque<Waiter>>,
    next: Cell<u64>,
    clients: RefCell<Vec<Weak<Account>>>,
}

impl Purse {
    fn try_take(&self, bytes: u64) -> bool {
        let there = self.queue.borrow().is_empty() && self.stock.get() >= bytes;
        if there {
            self.stock.set(self.stock.get() - bytes);
        }
        there
    }

    /// Enters the current task as waiting; gives its ticket.
    fn enter(&self, bytes: u64) -> u64 {
        let ticket = self.next.replace(self.next.get() + 1);
        let task = self.shard.current_task();
        self.queue.borrow_mut().push_back(Waiter { ticket, bytes, task, granted: false });
        let at = usize::from(self.shard.id());
        self.shared.tell_dealer(move |dealer| dealer.want(at, bytes));
        ticket
    }

    /// Takes the part of a waiter that has got it; false when it has not.
    fn collect(&self, ticket: u64) -> bool {
        let granted =
            self.queue.borrow().iter().any(|waiter| waiter.ticket == ticket && waiter.granted);
        granted && self.leave(ticket)
    }

    /// Ends a waiter's waiting; true when it had got its part.
    fn leave(&self, ticket: u64) -> bool {
        let mut queue = self.queue.borrow_mut();
        let at = queue.iter().position(|waiter| waiter.ticket == ticket);
        at.and_then(|at| queue.remove(at)).is_some_and(|waiter| waiter.granted)
    }

    /// Memory that comes back, or was dealt.
    fn put(&self, bytes: u64) {
        self.stock.set(self.stock.get() + bytes);
        for waiter in self.queue.borrow_mut().iter_mut().filter(|waiter| !waiter.granted) {
            if self.stock.get() < waiter.bytes {
                break;
            }
            self.stock.set(self.stock.get() - waiter.bytes);
            waiter.granted = true;
            self.shard.wake(waiter.task);
        }
        if self.short_since.get().is_some() {
            self.shared.give_back(self.stock.take());
        }
    }

    /// Returns the memory of a request. While memory is short, waiting requests get it in the order in which they came, whatever
    /// their shard.
    fn give(&self, bytes: u64) {
        match self.short_since.get() {
            Some(_) => self.shared.give_back(bytes),
            None => self.put(bytes),
        }
    }

    fn is_short(self: &Rc<Self>, short: bool) {
        self.short_since.set(short.then(|| self.shard.now()));
        if short {
            self.shared.give_back(self.stock.take());
            self.watch();
        }
    }

    /// Looks at the clients of this shard until there is enough again.
    fn watch(self: &Rc<Self>) {
        if self.watching.replace(true) {
            return;
        }
        let (shard, purse) = (self.shard.clone(), Rc::downgrade(self));
        let pause = (self.shared.patience / LOOKS).max(1);
        self.shard.spawn(async move {
            loop {
                shard.sleep(pause).await;
                let Some(purse) = purse.upgrade() else { return };
                let Some(since) = purse.short_since.get() else {
                    purse.watching.set(false);
                    return;
                };
                let clients: Vec<Rc<Account>> =
                    purse.clients.borrow().iter().filter_map(Weak::upgrade).collect();
                for client in clients {
                    client.end_if_stalled(since, shard.now());
                }
            }
        });
    }
}

impl Drop for Purse {
    fn drop(&mut self) {
        self.shared.give_back(self.stock.get());
    }
}

/// Which way a payload goes.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// From the client.
    In,
    /// To the client.
    Out,
}

/// The share of the budget that one connection holds.
pub struct Account {
    purse: Rc<Purse>,
    /// Bytes of requests in flight; beyond the reserve they are of the common amount.
    used: Cell<u64>,
    /// Bytes taken from the common amount.
    taken: Cell<u64>,
    /// Since when a payload has been on its way, and its bytes: in, out.
    moving: [Cell<Option<(Nanos, u64)>>; 2],
    /// The connection's reader, when it waits for memory.
    waiting: Cell<TaskId>,
    /// Disconnects the client.
    end: Box<dyn Fn()>,
}

impl Account {
    /// An account of a connection on `shard`, whose client `end` disconnects when it keeps memory that
    /// others wait for.
    pub fn open(shared: &Arc<Shared>, shard: &Shard, end: impl Fn() + 'static) -> Rc<Account> {
        shared.connected.fetch_add(1, Ordering::Relaxed);
        let account = Rc::new(Account {
            purse: shared.purse(shard),
            used: Cell::new(0),
            taken: Cell::new(0),
            moving: [Cell::new(None), Cell::new(None)],
            waiting: Cell::new(TaskId::NONE),
            end: Box::new(end),
        });
        let mut clients = account.purse.clients.borrow_mut();
        clients.retain(|client| client.strong_count() > 0);
        clients.push(Rc::downgrade(&account));
        drop(clients);
        account
    }

    /// True if the connection may have `bytes` more beside what it has.
    #[must_use]
    pub fn allows(&self, bytes: u64) -> bool {
        self.used.get() == 0 || self.used.get() + bytes <= self.purse.shared.share()
    }

    /// Bytes that a payload of `length` takes: those of its buffer.
    #[must_use]
    pub fn size_of(length: u32) -> u64 {
        if length == 0 { 0 } else { u64::from(length).next_power_of_two().max(4096) }
    }

    fn lacking(&self, bytes: u64) -> u64 {
        let beyond = (self.used.get() + bytes).saturating_sub(self.purse.shared.reserve);
        beyond.saturating_sub(self.taken.get())
    }

    /// Counts `bytes` more in, if there is memory for them now.
    #[must_use]
    pub fn try_take(&self, bytes: u64) -> bool {
        let lacking = self.lacking(bytes);
        if lacking > 0 {
            if !self.purse.try_take(lacking) {
                return false;
            }
            self.taken.set(self.taken.get() + lacking);
        }
        self.used.set(self.used.get() + bytes);
        self.trim();
        true
    }

    /// Waits until there is memory for `bytes` more, and counts them in. One task of a connection may wait at a time.
    pub async fn take(&self, bytes: u64) {
        let mut place = Place { account: self, ticket: None };
        poll_fn(|_| place.poll(bytes)).await;
        drop(place);
        self.used.set(self.used.get() + bytes);
        self.trim();
    }

    /// Returns `bytes`.
    pub fn give(&self, bytes: u64) {
        self.used.set(self.used.get() - bytes);
        self.trim();
        // It may have made room enough in the reserve.
        self.purse.shard.wake(self.waiting.replace(TaskId::NONE));
    }

    /// Gives back what was taken of the common amount and the reserve has room for by now.
    fn trim(&self) {
        let needed = self.used.get().saturating_sub(self.purse.shared.reserve);
        let over = self.taken.get().saturating_sub(needed);
        if over > 0 {
            self.taken.set(self.taken.get() - over);
            self.purse.give(over);
        }
    }

    /// Notes that `bytes` of payload begin to move.
    pub fn begin(&self, way: Way, bytes: u64) {
        self.moving[way as usize].set(Some((self.purse.shard.coarse_now(), bytes)));
    }

    /// Notes that they have arrived.
    pub fn done(&self, way: Way) {
        self.moving[way as usize].set(None);
    }

    fn end_if_stalled(&self, short_since: Nanos, now: Nanos) {
        if self.taken.get() == 0 {
            return;
        }
        for way in &self.moving {
            let Some((since, bytes)) = way.get() else { continue };
            let time = self.purse.shared.patience + bytes * 1000 / BYTES_PER_MICROSECOND;
            if now.saturating_sub(since.max(short_since)) > time {
                tracing::warn!(
                    held = self.used.get(),
                    protocol = self.purse.shared.protocol,
                    "a client neither takes its data nor sends what it announced while others wait for memory: disconnecting it"
                );
                (self.end)();
                return;
            }
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.purse.shared.connected.fetch_sub(1, Ordering::Relaxed);
        self.purse.give(self.taken.get());
    }
}

/// A connection's place among those that wait; given up when its task goes away.
struct Place<'a> {
    account: &'a Account,
    /// Its ticket, and the bytes that it stands for.
    ticket: Option<(u64, u64)>,
}

impl Place<'_> {
    fn poll(&mut self, bytes: u64) -> Poll<()> {
        let (account, purse) = (self.account, &self.account.purse);
        if let Some((ticket, wanted)) = self.ticket
            && purse.collect(ticket)
        {
            self.ticket = None;
            account.taken.set(account.taken.get() + wanted);
        }
        let lacking = account.lacking(bytes);
        if lacking == 0 {
            return Poll::Ready(());
        }
        if self.ticket.is_none() {
            if purse.try_take(lacking) {
                account.taken.set(account.taken.get() + lacking);
                return Poll::Ready(());
            }
            self.ticket = Some((purse.enter(lacking), lacking));
        }
        account.waiting.set(purse.shard.current_task());
        Poll::Pending
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.account.waiting.set(TaskId::NONE);
        if let Some((ticket, wanted)) = self.ticket {
            let granted = self.account.purse.leave(ticket);
            // Without it, those behind may be served.
            self.account.purse.give(if granted { wanted } else { 0 });
        }
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
