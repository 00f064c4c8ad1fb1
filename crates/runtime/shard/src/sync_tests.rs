//! Events, promises, budgets.

use crate::shard::Shard;
use crate::sync::{Budget, Notify, Share, promise};
use crate::testing::{settle, shard};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

#[test]
fn everybody_who_waits_is_notified_and_asks_again() {
    let shard = shard();
    let notify = Rc::new(Notify::new(&shard));
    let (level, seen) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
    for wanted in [2, 1, 0] {
        let (notify, level, seen) = (Rc::clone(&notify), Rc::clone(&level), Rc::clone(&seen));
        shard.spawn(async move {
            let found = notify.wait_for(|| (level.get() >= wanted).then(|| level.get())).await;
            seen.borrow_mut().push((wanted, found));
        });
    }
    assert_eq!(*seen.borrow(), [(0, 0)]);
    for now in [0, 1, 2] {
        level.set(now);
        notify.notify_all();
        settle(&shard);
    }
    assert_eq!(*seen.borrow(), [(0, 0), (1, 1), (2, 2)]);
    assert!(!notify.has_waiters());
}

#[test]
fn a_promise_gives_its_value_once_before_or_after_somebody_waits() {
    let shard = shard();
    let (give, wait) = promise(&shard);
    give.fulfil(5);
    assert_eq!(shard.block_on(wait), Some(5));

    let (give, wait) = promise(&shard);
    let own = shard.clone();
    shard.spawn(async move {
        own.sleep(10).await;
        give.fulfil("later");
    });
    assert_eq!(shard.block_on(wait), Some("later"));
}

#[test]
fn a_broken_promise_ends_the_wait() {
    let shard = shard();
    let (give, wait) = promise::<u8>(&shard);
    let own = shard.clone();
    shard.spawn(async move {
        own.sleep(10).await;
        drop(give);
    });
    assert_eq!(shard.block_on(wait), None);
}

type Taken = Rc<RefCell<Vec<(u32, Share)>>>;

fn take(shard: &Shard, budget: &Rc<Budget>, who: u32, amount: u64, taken: &Taken) {
    let (share, taken) = (budget.take(amount), Rc::clone(taken));
    shard.spawn(async move {
        let share = share.await;
        taken.borrow_mut().push((who, share));
    });
}

fn names(taken: &Taken) -> Vec<u32> {
    taken.borrow().iter().map(|(who, _)| *who).collect()
}

#[test]
fn a_large_wish_is_not_starved_by_small_ones() {
    let shard = shard();
    let budget = Budget::new(&shard, 10);
    let taken = Taken::default();
    take(&shard, &budget, 0, 6, &taken);
    take(&shard, &budget, 1, 8, &taken);
    take(&shard, &budget, 2, 1, &taken);
    take(&shard, &budget, 3, 1, &taken);
    assert!(budget.try_take(1).is_none(), "others wait for theirs");
    settle(&shard);
    assert_eq!((names(&taken), budget.left()), (vec![0], 4));
    taken.borrow_mut().clear();
    settle(&shard);
    assert_eq!((names(&taken), budget.left()), (vec![1, 2, 3], 0));
    taken.borrow_mut().clear();
    assert_eq!(budget.left(), 10);
    assert!(budget.try_take(10).is_some());
}

#[test]
fn a_wish_beyond_the_whole_budget_gets_the_whole_budget() {
    let shard = shard();
    let budget = Budget::new(&shard, 10);
    let waited = budget.take(1000);
    let share = shard.block_on(waited);
    assert_eq!(budget.left(), 0);
    drop(share);
    assert_eq!(budget.left(), 10);
}

#[test]
fn a_waiter_that_goes_away_does_not_block_those_behind_it() {
    let shard = shard();
    let budget = Budget::new(&shard, 10);
    let taken = Taken::default();
    take(&shard, &budget, 0, 10, &taken);
    let leave = Rc::new(Notify::new(&shard));
    let (impatient, left, own) = (budget.take(10), Rc::clone(&leave), shard.clone());
    let gone = Rc::new(Cell::new(false));
    let flag = Rc::clone(&gone);
    shard.spawn(async move {
        // Polled once, so that it has an entry in the queue, then dropped.
        let mut impatient = Box::pin(impatient);
        std::future::poll_fn(|cx| {
            let _ = impatient.as_mut().poll(cx);
            std::task::Poll::Ready(())
        })
        .await;
        left.wait_for(|| flag.get().then_some(())).await;
        drop(impatient);
        own.yield_now().await;
    });
    take(&shard, &budget, 2, 4, &taken);
    taken.borrow_mut().clear();
    settle(&shard);
    assert_eq!(names(&taken), []);
    gone.set(true);
    leave.notify_all();
    settle(&shard);
    assert_eq!(names(&taken), [2]);
}

#[test]
fn taking_in_many_tasks_keeps_the_order_in_which_they_came() {
    let shard = shard();
    let budget = Budget::new(&shard, 3);
    let order = Rc::new(RefCell::new(Vec::new()));
    for who in 0..50u64 {
        let (budget, order, own) = (Rc::clone(&budget), Rc::clone(&order), shard.clone());
        shard.spawn(async move {
            let share = budget.take(1 + who % 3).await;
            order.borrow_mut().push(who);
            own.sleep(who % 7).await;
            drop(share);
        });
    }
    let own = shard.clone();
    shard.block_on(async move { own.sleep(10_000).await });
    assert_eq!(*order.borrow(), (0..50).collect::<Vec<u64>>());
    assert_eq!(budget.left(), 3);
}
