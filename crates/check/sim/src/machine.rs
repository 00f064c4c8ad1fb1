//! One life of the simulated process: its shards, from start to stop or crash.
//!
//! Turns shards in random order until none progresses, then moves the clock. Does not know what the
//! shards do. Invariant: after [`Machine::crash`] or drop, nothing of it runs any more.

use crate::device::{Link, SimReactor};
use crate::world::World;
use braid_array::options::Context;
use braid_shard::mailbox::Remote;
use braid_shard::{Nanos, Shard, ShardId};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Turns without the clock moving after which shards are taken to be running in circles.
const SPIN_MAX: u32 = 200_000;
/// The namespace of the process ids of the machine's servers.
pub(crate) const NAMESPACE: u64 = 1;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Some shard had something to do.
    Ran,
    /// The clock moved.
    Waited,
    /// Nothing will ever happen again by itself.
    Stuck,
}

/// The result of something that was started and goes on asynchronously.
pub type Later<T> = Rc<RefCell<Option<T>>>;

/// See the module's documentation.
pub struct Machine {
    /// Its world.
    pub world: Rc<World>,
    /// Its shards; the first is the home of arrays.
    pub shards: Vec<Shard>,
    /// What arrays are created and assembled with.
    pub context: Context,
    deadlines: RefCell<Vec<Option<Nanos>>>,
    spin: Cell<u32>,
}

impl Machine {
    /// Starts `count` shards.
    pub fn start(world: &Rc<World>, count: usize) -> Machine {
        world.start_shards(count);
        let shards: Vec<Shard> = (0..count as ShardId)
            .map(|id| {
                let reactor = SimReactor { shard: id, world: Rc::clone(world) };
                let shard = Shard::with_reactor(id, Rc::new(reactor));
                // The link of a new shard is empty, so this cannot be refused.
                let _ = shard.local::<Link>().0.set(Rc::clone(world));
                shard
            })
            .collect();
        let remotes: Vec<Remote> = shards.iter().map(Shard::remote).collect();
        // Unlike at a real start, the same numbers for the same seed.
        let numbers = AtomicU64::new(world.rng.next());
        let seconds = 1_700_000_000 + world.now() / 1_000_000_000;
        let context = Context {
            shard: shards[0].clone(),
            remotes,
            wall_clock: Arc::new(move || seconds),
            // Of the own processes all earlier ones have.
            has_ended: Arc::new(|process| process.namespace == NAMESPACE),
            new_uuid: Arc::new(move || {
                let number = numbers.fetch_add(1, Ordering::Relaxed);
                let mut uuid = [0; 16];
                for (half, stream) in uuid.chunks_mut(8).zip([1, 2]) {
                    half.copy_from_slice(&crate::rng::mix(number ^ stream << 60).to_le_bytes());
                }
                uuid
            }),
        };
        Machine {
            world: Rc::clone(world),
            deadlines: RefCell::new(vec![None; count]),
            shards,
            context,
            spin: Cell::new(0),
        }
    }

    /// The shard with the controls of arrays.
    pub fn home(&self) -> &Shard {
        &self.shards[0]
    }

    /// Starts `work` on the home shard.
    pub fn begin<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> Later<T> {
        let later = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&later);
        self.home().spawn(async move {
            let value = work.await;
            *slot.borrow_mut() = Some(value);
        });
        later
    }

    /// Turns some shards, or moves the clock when none has anything to do.
    pub fn step(&self) -> Step {
        let mut order: SmallVec<[usize; 8]> = (0..self.shards.len()).collect();
        self.world.rng.shuffle(&mut order);
        let mut ran = false;
        for at in order {
            let turn = self.shards[at].turn();
            ran |= turn.progressed;
            self.deadlines.borrow_mut()[at] = turn.next_deadline;
        }
        if ran {
            self.spin.set(self.spin.get() + 1);
            if self.spin.get() > SPIN_MAX {
                let text =
                    format!("{SPIN_MAX} turns in which no time passed: tasks wake each other");
                self.world.fail("no_livelock", text);
            }
            return Step::Ran;
        }
        self.spin.set(0);
        let timer = self.deadlines.borrow().iter().flatten().min().copied();
        let next = match (timer, self.world.next_event()) {
            (Some(timer), Some(event)) => timer.min(event),
            (timer, event) => match timer.or(event) {
                Some(next) => next,
                None => return Step::Stuck,
            },
        };
        self.world.advance(next);
        Step::Waited
    }

    /// Memory that was lent to other shards, and is not in use any more, goes home. Arrays see to that while they run;
    /// what a member that was given up completes after the last has stopped waits for the next array.
    pub fn settle_loans(&self) {
        let mut loans = Vec::new();
        for shard in &self.shards {
            shard.pool().take_returns(&mut loans);
        }
        for loan in loans {
            if let Some(home) = self.shards.get(loan.home() as usize) {
                // Every loan here was made by this machine's pools.
                let _ = home.pool().release(loan);
            }
        }
    }

    /// Bytes in buffers in use, on all shards.
    pub fn buffers_in_use(&self) -> usize {
        self.shards.iter().map(|shard| shard.pool().outstanding()).sum()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Tasks hold their shards and shards their tasks.
        for shard in &self.shards {
            shard.abandon();
        }
        // So that it is freed with its pool.
        self.settle_loans();
        for shard in &self.shards {
            shard.pool().trim();
        }
    }
}
