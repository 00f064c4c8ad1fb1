//! Budgets of several shards on one thread, in virtual time.

use super::*;
use crate::testing::Clock;
use braid_shard::Reactor;
use std::time::Duration;

const MIB: u64 = 1 << 20;

struct World {
    clock: Rc<Clock>,
    shards: Vec<Shard>,
    memory: Memory,
}

impl World {
    /// 64 MiB for 16 connections: 256 KiB for each, 60 MiB for all.
    fn new(shards: u16) -> World {
        let clock = Rc::new(Clock::default());
        let shard = |id| Shard::with_reactor(id, Rc::clone(&clock) as Rc<dyn Reactor>);
        let shards: Vec<Shard> = (0..shards).map(shard).collect();
        let remotes: Vec<Remote> = shards.iter().map(Shard::remote).collect();
        let patience = Duration::from_secs(10);
        let terms = Terms {
            bytes: 64 * MIB,
            accounts: 16,
            patience,
            payload_bytes_max: 32 * MIB,
            protocol: "test",
        };
        World { clock, shards, memory: Memory::new(&terms, &remotes) }
    }

    fn run(&self) {
        while self.shards.iter().any(|shard| shard.turn().progressed) {}
    }

    /// Lets `seconds` go by, in small steps.
    fn pass(&self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.clock.0.set(self.clock.0.get() + 100_000_000);
            self.run();
        }
    }

    fn client(&self, shard: usize) -> TestClient {
        let ended = Rc::new(Cell::new(false));
        let tell = Rc::clone(&ended);
        let shard = self.shards[shard].clone();
        let account = Account::open(&self.memory.shared(), &shard, move || tell.set(true));
        TestClient { shard, account, ended }
    }

    /// The memory that the dealer and all purses hold.
    fn unused(&self) -> u64 {
        let dealers = self.shards[0].local::<Locals>();
        let free: u64 = dealers.dealers.borrow().iter().map(|(_, dealer)| dealer.free.get()).sum();
        let stock = |shard: &Shard| {
            let purse = shard.local::<Locals>().purse(self.memory.0.id);
            purse.map_or(0, |purse| purse.stock.get())
        };
        free + self.shards.iter().map(stock).sum::<u64>()
    }
}

struct TestClient {
    shard: Shard,
    account: Rc<Account>,
    ended: Rc<Cell<bool>>,
}

impl TestClient {
    /// Begins to take; the cell says when it has.
    fn take(&self, bytes: u64) -> Rc<Cell<bool>> {
        let done = Rc::new(Cell::new(false));
        let (tell, account) = (Rc::clone(&done), Rc::clone(&self.account));
        self.shard.spawn(async move {
            account.take(bytes).await;
            tell.set(true);
        });
        done
    }

    /// A stalled client: it announced a write and does not send it.
    fn stall(&self, bytes: u64) -> Rc<Cell<bool>> {
        let took = self.take(bytes);
        self.account.begin(Way::In, bytes);
        took
    }
}

#[test]
fn small_requests_wait_for_nobody_and_large_ones_in_order() {
    let world = World::new(2);
    let clients: Vec<TestClient> = (0..6).map(|nr| world.client(nr % 2)).collect();
    let first = clients[0].take(32 * MIB);
    world.run();
    let second = clients[1].take(32 * MIB);
    world.run();
    let third = clients[2].take(16 * MIB);
    world.run();
    // The first two have 63.5 MiB of the common 60 in mind; the third would fit, and waits its turn.
    assert_eq!((first.get(), second.get(), third.get()), (true, false, false));
    for client in &clients[3..] {
        let small = client.take(256 << 10);
        world.run();
        assert!(small.get(), "within its reserve");
    }
    clients[0].account.give(32 * MIB);
    world.run();
    assert!(second.get() && third.get());
    clients[1].account.give(32 * MIB);
    clients[2].account.give(16 * MIB);
    world.run();
    assert_eq!(world.unused(), 60 * MIB);
    drop(clients);
    world.run();
    assert_eq!(world.unused(), 60 * MIB, "all is given back");
}

#[test]
fn clients_that_stall_are_disconnected_when_others_wait() {
    let world = World::new(3);
    let stalled: Vec<TestClient> = (0..8).map(|nr| world.client(nr % 3)).collect();
    for client in &stalled {
        client.stall(8 * MIB);
        world.run();
    }
    world.pass(3600);
    // Seven fit with 7.75 MiB of the common amount each; the eighth waits, so memory is short.
    assert!(stalled[..7].iter().all(|client| client.ended.get()));
    // A connection that ends does the same.
    for client in &stalled[..7] {
        client.account.done(Way::In);
        client.account.give(8 * MIB);
    }
    let other = world.client(1);
    let took = other.take(32 * MIB);
    world.run();
    assert!(took.get());
}

#[test]
fn clients_that_stall_stay_while_nobody_waits() {
    let world = World::new(2);
    let client = world.client(1);
    client.stall(32 * MIB);
    world.pass(3600);
    assert!(!client.ended.get());
    // Then somebody does, and a slow one is given a second for each MiB on top.
    let took = world.client(0).take(32 * MIB);
    world.pass(41);
    assert!(!client.ended.get() && !took.get());
    world.pass(6);
    assert!(client.ended.get());
}

#[test]
fn one_that_goes_away_while_it_waits_leaves_its_turn() {
    let world = World::new(2);
    let (holder, leaver, other) = (world.client(0), world.client(1), world.client(1));
    holder.take(32 * MIB);
    world.run();
    let waits = Box::pin({
        let account = Rc::clone(&leaver.account);
        async move { account.take(32 * MIB).await }
    });
    let gone = Rc::new(Cell::new(false));
    let leave = Rc::clone(&gone);
    let mut waits = Some(waits);
    leaver.shard.spawn(poll_fn(move |cx| {
        if leave.get() {
            waits = None;
            return Poll::Ready(());
        }
        waits.as_mut().map_or(Poll::Ready(()), |waits| waits.as_mut().poll(cx))
    }));
    world.run();
    let took = other.take(20 * MIB);
    world.run();
    assert!(!took.get());
    gone.set(true);
    // Its task is woken by what comes back.
    holder.account.give(32 * MIB);
    world.run();
    assert!(took.get());
    other.account.give(20 * MIB);
    world.run();
    assert_eq!(world.unused(), 60 * MIB);
}

#[test]
fn replies_that_leave_make_room_in_the_reserve() {
    let world = World::new(1);
    let (holder, own) = (world.client(0), world.client(0));
    let (_all, small) = (holder.take(32 * MIB), own.take(128 << 10));
    world.run();
    let large = world.client(0);
    large.take(32 * MIB);
    world.run();
    let next = own.take(200 << 10);
    world.run();
    assert!(small.get() && !next.get());
    own.account.give(128 << 10);
    world.run();
    assert!(next.get(), "it needs nothing of the others");
    own.account.give(200 << 10);
    holder.account.give(32 * MIB);
    world.run();
    assert_eq!(world.unused(), 60 * MIB - 32 * MIB + (256 << 10));
}
