//! Messages between real threads whose shards go to sleep between them.

use crate::id::ShardId;
use crate::mailbox::{MeshEnd, Outboxes, mesh};
use crate::shard::{IdleHook, Shard};
use crate::threads::{Shards, start};
use crate::{BufMut, Loan};
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

/// Long enough for any machine; only a lost wake-up takes longer.
const HUNG: Duration = Duration::from_secs(120);

type Out<M> = Rc<OnceCell<Rc<Outboxes<M>>>>;

/// Attaches `end` on its shard for as long as the shard lives.
fn attach<M: 'static>(
    shard: &Shard,
    end: MeshEnd<M>,
    handle: impl Fn(&Shard, &Outboxes<M>, ShardId, M) + 'static,
) -> Rc<Outboxes<M>> {
    let out: Out<M> = Rc::default();
    let (inner, own) = (Rc::clone(&out), shard.clone());
    let (made, attached) = end.attach(shard, move |from, message| {
        if let Some(out) = inner.get() {
            handle(&own, out, from, message);
        }
    });
    // Another test covers detaching; here the mesh ends with the thread.
    std::mem::forget(attached);
    let _ = out.set(Rc::clone(&made));
    made
}

fn two<M: Send + 'static>(capacity: usize) -> (Shards, MeshEnd<M>, MeshEnd<M>) {
    let shards = start(2).unwrap();
    let mut ends = mesh(shards.remotes(), capacity);
    let second = ends.pop().unwrap();
    let first = ends.pop().unwrap();
    (shards, first, second)
}

#[test]
fn no_wake_up_is_lost_between_sleeping_shards() {
    const ROUNDS: u32 = 20_000;
    let (shards, first, second) = two::<u32>(4);
    let (send, receive) = mpsc::channel();
    shards.remotes()[1].call(|shard| {
        attach(shard, second, |_, out, from, round| {
            out.send(from, round + 1);
        });
    });
    shards.remotes()[0].call(move |shard| {
        let out = attach(shard, first, move |_, out, from, round| {
            if round >= ROUNDS {
                send.send(round).unwrap();
            } else {
                out.send(from, round + 1);
            }
        });
        out.send(1, 0);
    });
    assert!(receive.recv_timeout(HUNG).unwrap() >= ROUNDS);
}

#[test]
fn what_does_not_fit_the_ring_arrives_later_and_in_order() {
    let (shards, first, second) = two::<u32>(2);
    let (send, receive) = mpsc::channel();
    shards.remotes()[1].call(move |shard| {
        attach(shard, second, move |_, _, from, number| send.send((from, number)).unwrap());
    });
    shards.remotes()[0].call(move |shard| {
        let out = attach(shard, first, |_, _, _, _| {});
        for number in 0..5000 {
            assert!(out.send(1, number));
        }
        assert!(!out.send(0, 0), "there is no ring to oneself");
        assert!(!out.send(7, 0));
    });
    for number in 0..5000 {
        assert_eq!(receive.recv_timeout(HUNG).unwrap(), (0, number));
    }
}

#[test]
fn a_message_sent_by_a_timer_wakes_the_peer() {
    let (shards, first, second) = two::<u32>(4);
    let (send, receive) = mpsc::channel();
    shards.remotes()[1].call(move |shard| {
        attach(shard, second, move |_, _, _, number| send.send(number).unwrap());
    });
    shards.remotes()[0].call(move |shard| {
        let out = attach(shard, first, |_, _, _, _| {});
        let own = shard.clone();
        shard.spawn(async move {
            for number in 0..100 {
                own.sleep(100_000).await;
                out.send(1, number);
            }
        });
    });
    for number in 0..100 {
        assert_eq!(receive.recv_timeout(HUNG).unwrap(), number);
    }
}

enum Lent {
    There(Loan),
    Back(Loan),
}

thread_local! {
    static LENT: Cell<u32> = const { Cell::new(0) };
}

fn lend(buf: BufMut, out: &Outboxes<Lent>) {
    let loan = buf.into_loan().unwrap();
    out.send(1, Lent::There(loan));
}

#[test]
fn lent_memory_is_written_on_another_thread_and_comes_home() {
    const ROUNDS: u32 = 2000;
    let (shards, first, second) = two::<Lent>(4);
    let (send, receive) = mpsc::channel();
    shards.remotes()[1].call(|shard| {
        attach(shard, second, |shard, out, from, message| {
            let Lent::There(loan) = message else { panic!("not a loan of this shard") };
            let mut buf = shard.pool().adopt_mut(loan).unwrap();
            let round = buf[0];
            buf.fill(round.wrapping_add(1));
            if round.is_multiple_of(2) {
                out.send(from, Lent::Back(buf.into_loan().unwrap()));
                return;
            }
            // The other way: the buffer is dropped here, so its loan must be among the returns.
            let part = buf.freeze().slice(100..200);
            drop(part);
            let mut returns = Vec::new();
            shard.pool().take_returns(&mut returns);
            returns.into_iter().for_each(|loan| assert!(out.send(from, Lent::Back(loan))));
        });
    });
    shards.remotes()[0].call(move |shard| {
        let out = attach(shard, first, move |shard, out, _, message| {
            let Lent::Back(loan) = message else { panic!("a loan of another shard") };
            let mut buf = shard.pool().reclaim(loan).unwrap();
            let round = LENT.get();
            assert!(buf.iter().all(|byte| *byte == (round as u8).wrapping_add(1)));
            LENT.set(round + 1);
            if round + 1 == ROUNDS {
                drop(buf);
                send.send(shard.pool().outstanding()).unwrap();
            } else {
                buf.fill((round + 1) as u8);
                lend(buf, out);
            }
        });
        lend(shard.pool().zeroed(65536), &out);
    });
    assert_eq!(receive.recv_timeout(HUNG).unwrap(), 0);
}

#[test]
fn jobs_from_many_threads_all_run_on_the_shard() {
    let shards = start(1).unwrap();
    let remote = &shards.remotes()[0];
    std::thread::scope(|scope| {
        for caller in 0..4u64 {
            scope.spawn(move || {
                for number in 0..500 {
                    let answer = remote.call(move |shard| (shard.id(), caller * 1000 + number));
                    assert_eq!(answer, Some((0, caller * 1000 + number)));
                }
            });
        }
    });
    let later = remote.call_async(|shard, give| {
        let own = shard.clone();
        shard.spawn(async move {
            own.sleep(1_000_000).await;
            give("later");
        });
    });
    assert_eq!(later, Some("later"));
}

#[test]
fn a_stopped_shard_answers_nobody() {
    let shards = start(1).unwrap();
    let remote = shards.remotes()[0].clone();
    drop(shards);
    assert_eq!(remote.call(|shard| shard.id()), None);
    assert!(!remote.run(|_| {}));
}

#[test]
fn an_ended_shard_that_is_still_in_memory_answers_nobody() {
    let shard = crate::testing::shard();
    let remote = shard.remote();
    let (send, receive) = mpsc::channel::<()>();
    // On its way when the shard ends.
    assert!(remote.run(move |_| drop(send)));
    shard.abandon();
    assert!(
        receive
            .recv_timeout(HUNG)
            .is_err_and(|error| error == mpsc::RecvTimeoutError::Disconnected)
    );
    let caller = std::thread::spawn(move || (remote.call(|shard| shard.id()), remote.run(|_| {})));
    assert_eq!(caller.join().unwrap(), (None, false));
    assert!(!shard.turn().progressed);
}

struct CountTurns(Cell<u64>);

impl IdleHook for CountTurns {
    fn on_idle(&self) -> bool {
        self.0.set(self.0.get() + 1);
        false
    }
}

thread_local! {
    static TURNS: RefCell<Option<Rc<CountTurns>>> = const { RefCell::new(None) };
}

#[test]
fn a_shard_with_nothing_to_do_sleeps() {
    let shards = start(1).unwrap();
    let remote = &shards.remotes()[0];
    remote.call(|shard| {
        let count = Rc::new(CountTurns(Cell::new(0)));
        shard.on_idle(Rc::clone(&count) as _);
        TURNS.set(Some(count));
    });
    std::thread::sleep(Duration::from_millis(30));
    let turns = remote.call(|_| TURNS.with_borrow(|count| count.as_ref().unwrap().0.get()));
    // The two calls take a few turns; a shard that does not sleep makes tens of thousands.
    assert!(turns.unwrap() < 100, "{turns:?}");
}

#[test]
fn a_detached_end_takes_no_more_messages() {
    let shard = crate::testing::shard();
    let mut ends = mesh::<u8>(&[shard.remote(), shard.remote()], 4);
    let (second, first) = (ends.pop().unwrap(), ends.pop().unwrap());
    let seen = Rc::new(Cell::new(0));
    let count = Rc::clone(&seen);
    let (_, attached) = first.attach(&shard, move |_, _| count.set(count.get() + 1));
    let other = Shard::with_reactor(1, Rc::new(crate::testing::clock()));
    let (out, _keep) = second.attach(&other, |_, _| {});
    out.send(0, 1);
    crate::testing::settle(&shard);
    assert_eq!(seen.get(), 1);
    drop(attached);
    out.send(0, 2);
    crate::testing::settle(&shard);
    assert_eq!(seen.get(), 1);
}
