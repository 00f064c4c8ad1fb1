//! Tasks: when they run, what wakes them, where they live.

use crate::shard::{IdleHook, Shard};
use crate::task::TaskId;
use crate::testing::{settle, shard};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

type Events = Rc<RefCell<Vec<&'static str>>>;

#[test]
fn a_task_runs_to_its_first_wait_within_spawn() {
    let shard = shard();
    let events = Events::default();
    let (inner, own) = (Rc::clone(&events), shard.clone());
    shard.spawn(async move {
        inner.borrow_mut().push("spawned");
        own.yield_now().await;
        inner.borrow_mut().push("resumed");
    });
    events.borrow_mut().push("after spawn");
    settle(&shard);
    assert_eq!(*events.borrow(), ["spawned", "after spawn", "resumed"]);
    assert_eq!(shard.live_tasks(), 0);
}

#[test]
fn a_task_spawned_by_a_task_runs_inside_it_and_leaves_its_identity_alone() {
    let shard = shard();
    let same = Rc::new(Cell::new(false));
    let (own, result) = (shard.clone(), Rc::clone(&same));
    shard.spawn(async move {
        let before = own.current_task();
        let child = Rc::new(Cell::new(TaskId::NONE));
        let (noted, nested) = (Rc::clone(&child), own.clone());
        own.spawn(async move {
            noted.set(nested.current_task());
            nested.yield_now().await;
        });
        result.set(own.current_task() == before && child.get() != before);
    });
    assert!(same.get());
    assert_eq!(shard.current_task(), TaskId::NONE);
    settle(&shard);
    assert_eq!(shard.live_tasks(), 0);
}

#[test]
fn a_spawner_may_spawn_from_its_own_tasks() {
    let shard = shard();
    let count = Rc::new(Cell::new(0));
    let spawner: Rc<RefCell<Option<crate::Spawner<u32>>>> = Rc::default();
    let (again, counter, own) = (Rc::clone(&spawner), Rc::clone(&count), shard.clone());
    let made = shard.spawner(move |depth: u32| {
        let (again, counter, own) = (Rc::clone(&again), Rc::clone(&counter), own.clone());
        async move {
            counter.set(counter.get() + 1);
            if depth > 0 {
                let spawner = again.borrow().clone();
                for _ in 0..2 {
                    spawner.iter().for_each(|spawner| spawner.spawn(depth - 1));
                }
            }
            own.yield_now().await;
        }
    });
    *spawner.borrow_mut() = Some(made.clone());
    made.spawn(6);
    settle(&shard);
    assert_eq!((count.get(), shard.live_tasks()), (127, 0));
    *spawner.borrow_mut() = None;
}

#[test]
fn finished_tasks_leave_their_slots_to_the_next_ones() {
    let shard = shard();
    let seen = Rc::new(RefCell::new(BTreeSet::new()));
    let (own, tasks) = (shard.clone(), Rc::clone(&seen));
    let spawner = shard.spawner(move |()| {
        let (own, tasks) = (own.clone(), Rc::clone(&tasks));
        async move {
            tasks.borrow_mut().insert(own.current_task());
            own.yield_now().await;
        }
    });
    for _ in 0..100 {
        for _ in 0..3 {
            spawner.spawn(());
        }
        settle(&shard);
    }
    assert_eq!(seen.borrow().len(), 3);
}

#[test]
fn late_wake_ups_reach_the_next_tenant_and_do_no_harm() {
    let shard = shard();
    let polls = Rc::new(Cell::new(0));
    let noted = Rc::new(Cell::new(TaskId::NONE));
    let (own, note) = (shard.clone(), Rc::clone(&noted));
    let spawner = shard.spawner(move |polls: Option<Rc<Cell<u32>>>| {
        note.set(own.current_task());
        async move {
            if let Some(polls) = polls {
                poll_fn(|_| {
                    polls.set(polls.get() + 1);
                    if polls.get() < 4 { Poll::Pending } else { Poll::Ready(()) }
                })
                .await;
            }
        }
    });
    let (own, note) = (shard.clone(), Rc::clone(&noted));
    let noting = shard.spawner(move |()| {
        let (own, note) = (own.clone(), Rc::clone(&note));
        async move { note.set(own.current_task()) }
    });
    noting.spawn(());
    let finished = noted.get();
    for _ in 0..3 {
        shard.wake(finished);
    }
    shard.wake(TaskId::NONE);
    shard.wake(TaskId { group: 77, index: 0 });
    shard.wake(TaskId { group: finished.group, index: 99 });
    settle(&shard);

    spawner.spawn(Some(Rc::clone(&polls)));
    assert_eq!((polls.get(), shard.live_tasks()), (1, 1));
    let waiting = TaskId { group: finished.group - 1, index: 0 };
    for _ in 0..5 {
        shard.wake(waiting);
    }
    settle(&shard);
    assert_eq!((polls.get(), shard.live_tasks()), (4, 0));
}

#[test]
fn more_runnable_tasks_than_a_turn_advances_all_finish() {
    let shard = shard();
    let done = Rc::new(Cell::new(0));
    for _ in 0..1000 {
        let (own, done) = (shard.clone(), Rc::clone(&done));
        shard.spawn(async move {
            for _ in 0..3 {
                own.yield_now().await;
            }
            done.set(done.get() + 1);
        });
    }
    settle(&shard);
    assert_eq!(done.get(), 1000);
}

#[test]
fn sleepers_wake_in_the_order_of_their_deadlines() {
    let shard = shard();
    let order = Rc::new(RefCell::new(Vec::new()));
    for nanos in [30u64, 10, 20, 10, 0] {
        let (own, order) = (shard.clone(), Rc::clone(&order));
        shard.spawn(async move {
            own.sleep(nanos).await;
            order.borrow_mut().push((nanos, own.now()));
        });
    }
    let own = shard.clone();
    shard.block_on(async move { own.sleep(25).await });
    assert_eq!(*order.borrow(), [(0, 0), (10, 10), (10, 10), (20, 20)]);
    let own = shard.clone();
    assert_eq!(
        shard.block_on(async move {
            own.sleep(5).await;
            own.now()
        }),
        30
    );
}

#[test]
fn a_spurious_wake_up_does_not_shorten_a_sleep() {
    let shard = shard();
    let own = shard.clone();
    let woken = shard.block_on(async move {
        own.wake_at(3, own.current_task());
        own.sleep(10).await;
        own.now()
    });
    assert_eq!(woken, 10);
}

struct CountIdle(Cell<u32>);

impl IdleHook for CountIdle {
    fn on_idle(&self) -> bool {
        self.0.set(self.0.get() + 1);
        false
    }
}

fn busy(shard: &Shard, turns: u32) {
    let own = shard.clone();
    shard.spawn(async move {
        for _ in 0..turns * 256 {
            own.yield_now().await;
        }
    });
}

#[test]
fn idle_hooks_run_when_nothing_is_runnable_and_now_and_then_otherwise() {
    let shard = shard();
    let hook = Rc::new(CountIdle(Cell::new(0)));
    let as_hook: Rc<dyn IdleHook> = Rc::clone(&hook) as _;
    shard.on_idle(Rc::clone(&as_hook));
    shard.turn();
    assert_eq!(hook.0.get(), 1);
    busy(&shard, 40);
    for _ in 0..8 {
        shard.turn();
    }
    assert_eq!(hook.0.get(), 3);
    shard.remove_idle_hook(&as_hook);
    settle(&shard);
    assert_eq!(hook.0.get(), 3);
}

#[test]
fn the_next_turn_comes_after_all_that_is_runnable_and_what_it_makes_runnable() {
    let shard = shard();
    let events = Events::default();
    let (inner, own) = (Rc::clone(&events), shard.clone());
    shard.spawn(async move {
        own.next_turn().await;
        inner.borrow_mut().push("next turn");
    });
    let (inner, own) = (Rc::clone(&events), shard.clone());
    shard.spawn(async move {
        for _ in 0..3 {
            own.yield_now().await;
            inner.borrow_mut().push("runnable");
        }
    });
    settle(&shard);
    assert_eq!(*events.borrow(), ["runnable", "runnable", "runnable", "next turn"]);
}

#[test]
fn an_idle_shard_gives_its_buffers_back() {
    let shard = shard();
    let own = shard.clone();
    let kept = Rc::new(Cell::new((0, 0)));
    let seen = Rc::clone(&kept);
    shard.spawn(async move {
        drop(own.pool().get(32 << 20));
        own.sleep(1_000_000_000).await;
        let before = own.pool().kept();
        own.sleep(30_000_000_000).await;
        seen.set((before, own.pool().kept()));
        own.stop();
    });
    shard.run();
    assert_eq!(kept.get(), (32 << 20, 0));
}
