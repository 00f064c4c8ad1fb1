//! A plain model of [`Store`] in memory: for the simulator and for tests of what stands on a store.
//!
//! It uses the time of the shard, which may be virtual. A commit takes as long as its owner has set, and later requests are
//! answered after it, as by a database on a thread of its own.
//!
//! Invariant: the durable state changes by whole commits, in the order in which they were made.

use crate::store::{Answer, Change, Pair, Store, StoreError, StoreSpace};
use braid_shard::sync::promise;
use braid_shard::{Nanos, Shard};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::rc::Rc;

/// The durable state of a [`ModelStore`], which outlives the store and its shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<Vec<u8>, Vec<u8>>);

impl Snapshot {
    /// The pairs, by key.
    pub fn pairs(&self) -> &BTreeMap<Vec<u8>, Vec<u8>> {
        &self.0
    }

    /// The share of the capacity that all pairs take together.
    fn used(&self) -> u64 {
        self.0.iter().map(|(key, value)| pair_bytes(key, value)).sum()
    }

    fn apply(&mut self, changes: &[Change]) {
        for (key, value) in changes {
            match value {
                Some(value) => self.0.insert(key.clone(), value.clone()),
                None => self.0.remove(key),
            };
        }
    }
}

/// The outcome of a commit that was in flight when the machine stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnderWay {
    /// None of its changes is there.
    Lost,
    /// All of its changes are there, although it was not answered.
    Kept,
}

/// Bytes that a pair takes beside its key and value.
const PAIR_OVERHEAD: u64 = 16;

fn pair_bytes(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64 + PAIR_OVERHEAD
}

struct State {
    shard: Shard,
    /// The state after all commits so far, which a new request sees.
    seen: RefCell<Snapshot>,
    seen_bytes: Cell<u64>,
    durable: RefCell<Snapshot>,
    /// Commits that were asked for and are not durable, the oldest first.
    waiting: RefCell<VecDeque<Vec<Change>>>,
    /// When all that was asked for so far will have been answered.
    busy_until: Cell<Nanos>,
    commit_time: Cell<Nanos>,
    capacity: Cell<u64>,
    failed: RefCell<Option<String>>,
}

/// See the module's documentation. Cheap to clone; clones are the same store.
#[derive(Clone)]
pub struct ModelStore {
    state: Rc<State>,
}

impl ModelStore {
    /// An empty store for tasks of `shard`, without a bound, whose commits take no time.
    pub fn new(shard: &Shard) -> ModelStore {
        ModelStore::from_snapshot(shard, Snapshot::default())
    }

    /// A store that holds what another had made durable.
    pub fn from_snapshot(shard: &Shard, snapshot: Snapshot) -> ModelStore {
        let state = State {
            shard: shard.clone(),
            seen_bytes: Cell::new(snapshot.used()),
            seen: RefCell::new(snapshot.clone()),
            durable: RefCell::new(snapshot),
            waiting: RefCell::new(VecDeque::new()),
            busy_until: Cell::new(0),
            commit_time: Cell::new(0),
            capacity: Cell::new(u64::MAX),
            failed: RefCell::new(None),
        };
        ModelStore { state: Rc::new(state) }
    }

    /// The durable content now, without the commits that were not answered.
    pub fn snapshot(&self) -> Snapshot {
        self.state.durable.borrow().clone()
    }

    /// The content that a crash at this moment leaves, where the commit that is being written (if there is one) ends as `under_way`
    /// says. Commits behind that one have not begun. The store itself is not changed.
    pub fn crash(&self, under_way: UnderWay) -> Snapshot {
        let mut left = self.snapshot();
        if under_way == UnderWay::Kept
            && let Some(changes) = self.state.waiting.borrow().front()
        {
            left.apply(changes);
        }
        left
    }

    /// True while a commit is being written.
    pub fn is_committing(&self) -> bool {
        !self.state.waiting.borrow().is_empty()
    }

    /// Each commit takes this long from now on, in nanoseconds of the shard's clock.
    pub fn set_commit_time(&self, nanos: Nanos) {
        self.state.commit_time.set(nanos);
    }

    /// The capacity of the store, in bytes of keys and values and 16 for each pair. A commit that makes it hold more than
    /// that, and more than before, gives [`StoreError::NoSpace`].
    pub fn set_capacity(&self, bytes: u64) {
        self.state.capacity.set(bytes);
    }

    /// Has everything that is asked from now on fail for this reason, as a store does whose devices are lost.
    pub fn fail(&self, reason: impl Into<String>) {
        *self.state.failed.borrow_mut() = Some(reason.into());
    }

    fn failure(&self) -> Option<StoreError> {
        self.state.failed.borrow().clone().map(StoreError::Failed)
    }

    /// Gives `result` when what was asked before has been answered.
    fn in_order<T: 'static>(&self, result: Result<T, StoreError>) -> Answer<T> {
        let state = Rc::clone(&self.state);
        let ready = state.busy_until.get();
        Box::pin(async move {
            wait_until(&state.shard, ready).await;
            result
        })
    }

    /// True when the store may hold `changes`: they fit, or they make it no larger.
    fn admits(&self, changes: &[Change]) -> Option<u64> {
        let seen = self.state.seen.borrow();
        let before = self.state.seen_bytes.get();
        let mut after = before;
        for (key, value) in changes {
            if let Some(old) = seen.0.get(key) {
                after -= pair_bytes(key, old);
            }
            if let Some(new) = value {
                after += pair_bytes(key, new);
            }
        }
        (after <= before || after <= self.state.capacity.get()).then_some(after)
    }
}

async fn wait_until(shard: &Shard, deadline: Nanos) {
    let now = shard.now();
    if deadline > now {
        shard.sleep(deadline - now).await;
    }
}

impl Store for ModelStore {
    fn get(&self, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        let value = self.state.seen.borrow().0.get(key).cloned();
        self.in_order(self.failure().map_or(Ok(value), Err))
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Answer<Vec<Pair>> {
        if let Some(error) = self.failure() {
            return self.in_order(Err(error));
        }
        let pairs = match from < to {
            true => {
                let seen = self.state.seen.borrow();
                let range = (Bound::Included(from), Bound::Excluded(to));
                let pairs = seen.0.range::<[u8], _>(range).take(limit);
                pairs.map(|(key, value)| (key.clone(), value.clone())).collect()
            }
            false => Vec::new(),
        };
        self.in_order(Ok(pairs))
    }

    fn commit(&self, changes: Vec<Change>) -> Answer<()> {
        if let Some(error) = self.failure() {
            return self.in_order(Err(error));
        }
        let Some(bytes) = self.admits(&changes) else {
            return self.in_order(Err(StoreError::NoSpace));
        };
        let state = Rc::clone(&self.state);
        state.seen.borrow_mut().apply(&changes);
        state.seen_bytes.set(bytes);
        state.waiting.borrow_mut().push_back(changes);
        let begins = state.busy_until.get().max(state.shard.now());
        let ends = begins.saturating_add(state.commit_time.get());
        state.busy_until.set(ends);
        let (giver, answer) = promise(&state.shard);
        let shard = state.shard.clone();
        // A task of its own: it becomes durable also when nobody waits for the answer.
        shard.spawn(async move {
            wait_until(&state.shard, ends).await;
            let done = state.waiting.borrow_mut().pop_front();
            if let Some(changes) = done {
                state.durable.borrow_mut().apply(&changes);
            }
            giver.fulfil(());
        });
        Box::pin(async move {
            answer.await.ok_or_else(|| StoreError::Failed("its shard has stopped".to_string()))
        })
    }

    fn space(&self) -> StoreSpace {
        let (capacity, used) = (self.state.capacity.get(), self.state.seen_bytes.get());
        StoreSpace { capacity, used, changes: u64::MAX }
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
