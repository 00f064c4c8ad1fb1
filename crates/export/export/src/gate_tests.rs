//! Gates of several shards on one thread.

use super::*;
use crate::testing::Clock;
use std::future::Future;

struct World {
    shards: Vec<Shard>,
    gate: Arc<Gate>,
}

impl World {
    fn new() -> World {
        let shards: Vec<Shard> =
            (0..3).map(|id| Shard::with_reactor(id, Rc::new(Clock::default()))).collect();
        let gate = Gate::new(shards[0].remote());
        World { shards, gate }
    }

    fn run(&self) {
        while self.shards.iter().any(|shard| shard.turn().progressed) {}
    }

    /// Begins something on a shard; the cell has its result when it is there.
    fn begin<T: 'static>(
        &self,
        shard: usize,
        future: impl Future<Output = T> + 'static,
    ) -> Rc<RefCell<Option<T>>> {
        let slot = Rc::new(RefCell::new(None));
        let fill = Rc::clone(&slot);
        self.shards[shard].spawn(async move {
            let value = future.await;
            *fill.borrow_mut() = Some(value);
        });
        self.run();
        slot
    }

    fn pass(&self, shard: usize) -> Rc<Pass> {
        let (gate, own) = (Arc::clone(&self.gate), self.shards[shard].clone());
        let entered = self.begin(shard, async move { gate.enter(&own).await });
        entered.take().expect("nobody is alone")
    }

    fn write(&self, shard: usize, pass: &Rc<Pass>) -> Rc<RefCell<Option<()>>> {
        let pass = Rc::clone(pass);
        self.begin(shard, async move { pass.write().await })
    }

    fn alone(&self, shard: usize, pass: &Rc<Pass>) -> Rc<RefCell<Option<Alone>>> {
        let pass = Rc::clone(pass);
        self.begin(shard, async move { pass.alone().await })
    }
}

fn is_there<T>(slot: &RefCell<Option<T>>) -> bool {
    slot.borrow().is_some()
}

#[test]
fn one_is_alone_when_all_writes_before_are_done() {
    let world = World::new();
    let (near, far) = (world.pass(1), world.pass(2));
    assert!(is_there(&world.write(1, &near)) && is_there(&world.write(2, &far)));
    let alone = world.alone(2, &far);
    far.wrote();
    world.run();
    assert!(!is_there(&alone), "the other's write is under way");
    let later = world.write(1, &near);
    assert!(!is_there(&later));
    near.wrote();
    world.run();
    assert!(is_there(&alone) && !is_there(&later));
    drop(alone.take());
    world.run();
    assert!(is_there(&later));
}

#[test]
fn those_who_waited_go_before_the_next_turn() {
    let world = World::new();
    let (ragged, whole) = (world.pass(0), world.pass(1));
    let first = world.alone(0, &ragged);
    let (second, write) = (world.alone(0, &ragged), world.write(1, &whole));
    assert!(is_there(&first) && !is_there(&second) && !is_there(&write));
    drop(first.take());
    world.run();
    assert!(!is_there(&second) && is_there(&write), "the write is under way");
    whole.wrote();
    world.run();
    assert!(is_there(&second));
}

#[test]
fn all_that_want_it_together_have_one_turn_each_alone() {
    let world = World::new();
    let passes: Vec<Rc<Pass>> = (0..3).map(|shard| world.pass(shard)).collect();
    assert!(is_there(&world.write(0, &passes[0])));
    let wants: Vec<_> = (0..6).map(|nr| world.alone(nr % 3, &passes[nr % 3])).collect();
    passes[0].wrote();
    let mut served = 0;
    while served < 6 {
        world.run();
        let alone: Vec<_> = wants.iter().filter(|want| is_there(want)).collect();
        assert_eq!(alone.len(), 1);
        drop(alone[0].take());
        served += 1;
    }
    world.run();
    assert!(is_there(&world.write(1, &passes[1])), "all go on");
}

#[test]
fn who_leaves_holds_nobody_up() {
    let world = World::new();
    let (stays, leaves, other) = (world.pass(0), world.pass(1), world.pass(2));
    assert!(is_there(&world.write(1, &leaves)) && is_there(&world.write(2, &other)));
    let gone = world.alone(1, &leaves);
    let alone = world.alone(0, &stays);
    // It leaves with a write that never ended, and its wish to be alone.
    world.shards[1].abandon();
    drop((gone, leaves));
    world.run();
    assert!(!is_there(&alone), "the third writes");
    other.wrote();
    world.run();
    assert!(is_there(&alone));
    // Whoever comes now waits like the others.
    let (gate, own) = (Arc::clone(&world.gate), world.shards[2].clone());
    let newcomer = world.begin(2, async move { gate.enter(&own).await });
    let newcomer = newcomer.take().expect("it knows that it must wait");
    let write = world.write(2, &newcomer);
    assert!(!is_there(&write));
    drop(alone.take());
    world.run();
    assert!(is_there(&write));
}
