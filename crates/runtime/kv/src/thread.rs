//! A store on a thread of its own, and the handle on it that lives on a shard.
//!
//! Requests go through a channel and are executed in the order in which they were made, so a read that was made
//! after a commit waits for it. Answers come back as messages to the shard, several in one message if several are ready.
//!
//! The mirror below lives on a shard, usually the same, and the thread waits for it: so nothing here may make the shard
//! wait for the thread.
//!
//! Invariant: every request is answered, also when the thread ends.

use crate::database::Database;
use crate::handle::{Handle, Route};
use crate::store::{Answer, Begun, Change, Pair, Store, StoreError, StoreSpace};
use braid_mirror::Mirror;
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use braid_shard::sync::{Promise, promise};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::time::Duration;

/// Prefix of the names of the threads of stores.
const NAME: &str = "kv-";

/// True on the thread of a store, which catches panics of the embedded database.
pub fn catches_panics() -> bool {
    std::thread::current().name().is_some_and(|name| name.starts_with(NAME))
}

/// The time without a request before the database is [settled](Database::settle): so long that a store which is used now and
/// then is not written twice as often.
const SETTLE_AFTER: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });

/// The most answers in one message.
const ANSWERS_MAX: usize = 64;

enum Request {
    Get(Vec<u8>),
    Scan(Vec<u8>, Vec<u8>, usize),
    /// The changes, and a message to wait for before they are written.
    Commit(Vec<Change>, Option<mpsc::Receiver<()>>),
    TakeGrowth,
    Stop,
}

enum Reply {
    Value(Result<Option<Vec<u8>>, StoreError>),
    Pairs(Result<Vec<Pair>, StoreError>),
    Done(Result<(), StoreError>),
}

/// The waiting side of a request.
enum Waiting {
    Value(Promise<Result<Option<Vec<u8>>, StoreError>>),
    Pairs(Promise<Result<Vec<Pair>, StoreError>>),
    Done(Promise<Result<(), StoreError>>),
}

impl Waiting {
    fn answer(self, reply: Reply) {
        match (self, reply) {
            (Waiting::Value(promise), Reply::Value(result)) => promise.fulfil(result),
            (Waiting::Pairs(promise), Reply::Pairs(result)) => promise.fulfil(result),
            (Waiting::Done(promise), Reply::Done(result)) => promise.fulfil(result),
            // Cannot happen: a request determines both. Dropping the promise would answer that the store has ended.
            _ => {}
        }
    }
}

/// A message from the thread to the shard.
#[derive(Default)]
struct Delivery {
    answers: Vec<(usize, Reply)>,
    space: StoreSpace,
}

/// The stores of a shard, by number.
#[derive(Default)]
struct Stores {
    last: Cell<u64>,
    stores: RefCell<BTreeMap<u64, Weak<Inner>>>,
}

struct Inner {
    shard: Shard,
    number: u64,
    requests: mpsc::Sender<(usize, Request)>,
    waiting: RefCell<Slab<Waiting>>,
    space: Cell<StoreSpace>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shard.local::<Stores>().stores.borrow_mut().remove(&self.number);
    }
}

/// A store in a mirror; see [`Store`]. Cheap to clone; clones are the same store. When the last is dropped the
/// store is closed cleanly some time later; [`stop`](KvStore::stop) waits for that.
#[derive(Clone)]
pub struct KvStore {
    inner: Rc<Inner>,
}

impl KvStore {
    /// Opens the store in `mirror`, whose devices are open on `shard`, or makes one where the mirror was just made. Nobody else
    /// may write to the mirror until the store has stopped. `cache_bytes` is the size of the database's cache.
    ///
    /// A store that was not stopped cleanly is verified completely before it answers.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when there is no store, or none that can be read as a whole; [`StoreError::Failed`] when the
    /// mirror is too small ([`REGION_MIN`](crate::REGION_MIN)) or fails, or there can be no thread.
    pub fn open(shard: &Shard, mirror: Rc<Mirror>, cache_bytes: usize) -> Answer<KvStore> {
        let stores = shard.local::<Stores>();
        let number = stores.last.get() + 1;
        stores.last.set(number);
        let (requests, received) = mpsc::channel();
        let inner = Rc::new(Inner {
            shard: shard.clone(),
            number,
            requests,
            waiting: RefCell::new(Slab::new()),
            space: Cell::new(StoreSpace::default()),
        });
        stores.stores.borrow_mut().insert(number, Rc::downgrade(&inner));
        let (giver, opened) = promise(shard);
        let slot = inner.waiting.borrow_mut().insert(Waiting::Done(giver));
        let farewell = Farewell { shard: shard.remote(), number };
        let route = Route::new(shard, mirror);
        let started =
            std::thread::Builder::new().name(format!("{NAME}{number}")).spawn(move || {
                KvThread::run(farewell, received, slot, route, cache_bytes);
            });
        let store = KvStore { inner };
        Box::pin(async move {
            if let Err(error) = started {
                return Err(StoreError::Failed(format!(
                    "starting the thread of the metadata store: {error}; are there too many threads?"
                )));
            }
            opened.await.unwrap_or_else(|| Err(ended()))?;
            Ok(store)
        })
    }

    /// Makes the store as large as its mirror, which was [prepared](Mirror::prepare_growth) to grow.
    ///
    /// # Errors
    /// [`StoreError::Failed`] when the regions fail: the store can only be opened again.
    pub fn take_growth(&self) -> Answer<()> {
        self.ask_done(Request::TakeGrowth)
    }

    /// Closes the store cleanly, after all earlier requests. Later requests fail.
    ///
    /// # Errors
    /// [`StoreError::Failed`] when the clean end could not be written: the next start is one after a crash.
    pub fn stop(&self) -> Answer<()> {
        self.ask_done(Request::Stop)
    }

    fn ask_done(&self, request: Request) -> Answer<()> {
        let (giver, answer) = promise(&self.inner.shard);
        self.ask(Waiting::Done(giver), request);
        Box::pin(async move { answer.await.unwrap_or_else(|| Err(ended())) })
    }

    fn ask(&self, waiting: Waiting, request: Request) {
        let slot = self.inner.waiting.borrow_mut().insert(waiting);
        if self.inner.requests.send((slot, request)).is_err() {
            let waiting = self.inner.waiting.borrow_mut().try_remove(slot);
            drop(waiting);
        }
    }
}

impl Store for KvStore {
    fn get(&self, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        let (giver, answer) = promise(&self.inner.shard);
        self.ask(Waiting::Value(giver), Request::Get(key.to_vec()));
        Box::pin(async move { answer.await.unwrap_or_else(|| Err(ended())) })
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Answer<Vec<Pair>> {
        let (giver, answer) = promise(&self.inner.shard);
        self.ask(Waiting::Pairs(giver), Request::Scan(from.to_vec(), to.to_vec(), limit));
        Box::pin(async move { answer.await.unwrap_or_else(|| Err(ended())) })
    }

    fn commit(&self, changes: Vec<Change>) -> Answer<()> {
        self.ask_done(Request::Commit(changes, None))
    }

    fn begin_commit(&self, changes: Vec<Change>) -> Result<Begun, Vec<Change>> {
        let (gate, opened) = mpsc::channel();
        let done = self.ask_done(Request::Commit(changes, Some(opened)));
        let go = move || {
            // If the thread has ended meanwhile, it has answered already.
            let _ = gate.send(());
        };
        Ok(Begun { go: Box::new(go), done })
    }

    fn space(&self) -> StoreSpace {
        self.inner.space.get()
    }
}

fn ended() -> StoreError {
    StoreError::Failed("the store was stopped".to_string())
}

/// Sends messages of the thread to its shard. When it is dropped it announces that the thread has ended.
struct Farewell {
    shard: Remote,
    number: u64,
}

impl Farewell {
    fn deliver(&self, delivery: Delivery) {
        let number = self.number;
        self.shard.run(move |shard| {
            let store =
                shard.local::<Stores>().stores.borrow().get(&number).and_then(Weak::upgrade);
            if let Some(store) = store {
                store.take(delivery);
            }
        });
    }
}

impl Drop for Farewell {
    fn drop(&mut self) {
        let number = self.number;
        self.shard.run(move |shard| {
            let store =
                shard.local::<Stores>().stores.borrow().get(&number).and_then(Weak::upgrade);
            if let Some(store) = store {
                let waiting = store.waiting.take();
                drop(waiting);
            }
        });
    }
}

impl Inner {
    fn take(&self, delivery: Delivery) {
        self.space.set(delivery.space);
        for (slot, reply) in delivery.answers {
            let waiting = self.waiting.borrow_mut().try_remove(slot);
            if let Some(waiting) = waiting {
                waiting.answer(reply);
            }
        }
    }
}

struct KvThread {
    database: Database,
    farewell: Farewell,
    answers: Vec<(usize, Reply)>,
}

impl KvThread {
    fn run(
        farewell: Farewell,
        requests: mpsc::Receiver<(usize, Request)>,
        slot: usize,
        route: Route,
        cache_bytes: usize,
    ) {
        let database = match Database::open(Handle::Far(route), cache_bytes) {
            Ok(database) => database,
            Err(error) => {
                let answers = vec![(slot, Reply::Done(Err(error)))];
                farewell.deliver(Delivery { answers, ..Delivery::default() });
                return;
            }
        };
        let answers = vec![(slot, Reply::Done(Ok(())))];
        let mut thread = KvThread { database, farewell, answers };
        thread.deliver();
        while let Some((slot, request)) = thread.next(&requests) {
            match request {
                Request::Get(key) => {
                    let value = thread.database.get(&key);
                    thread.answers.push((slot, Reply::Value(value)));
                }
                Request::Scan(from, to, limit) => {
                    let pairs = thread.database.scan(&from, &to, limit);
                    thread.answers.push((slot, Reply::Pairs(pairs)));
                }
                Request::Commit(changes, gate) => {
                    // Earlier reads need not wait for it.
                    thread.deliver();
                    let done = thread.commit(&changes, gate);
                    thread.answers.push((slot, Reply::Done(done)));
                }
                Request::TakeGrowth => {
                    let done = thread.database.take_growth();
                    thread.answers.push((slot, Reply::Done(done)));
                }
                Request::Stop => {
                    thread.stop(Some(slot));
                    return;
                }
            }
        }
        thread.stop(None);
    }

    /// The next request; `None` when there can be none any more. Answers are sent before this waits.
    fn next(&mut self, requests: &mpsc::Receiver<(usize, Request)>) -> Option<(usize, Request)> {
        if self.answers.len() >= ANSWERS_MAX {
            self.deliver();
        }
        match requests.try_recv() {
            Ok(request) => Some(request),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                self.deliver();
                self.wait(requests)
            }
        }
    }

    /// The same, when there is none yet.
    fn wait(&mut self, requests: &mpsc::Receiver<(usize, Request)>) -> Option<(usize, Request)> {
        if !self.database.is_settled() {
            match requests.recv_timeout(SETTLE_AFTER) {
                Ok(request) => return Some(request),
                Err(RecvTimeoutError::Disconnected) => return None,
                // An error is the answer to the next request.
                Err(RecvTimeoutError::Timeout) => drop(self.database.settle()),
            }
        }
        requests.recv().ok()
    }

    fn deliver(&mut self) {
        if self.answers.is_empty() {
            return;
        }
        let answers = std::mem::take(&mut self.answers);
        self.farewell.deliver(Delivery { answers, space: self.database.space() });
    }

    fn commit(
        &mut self,
        changes: &[Change],
        gate: Option<mpsc::Receiver<()>>,
    ) -> Result<(), StoreError> {
        self.database.with_storage(|storage| storage.gate = gate)?;
        let done = self.database.commit(changes);
        // A commit that was refused has written nothing, and the next one must not wait for it.
        self.database.with_storage(|storage| storage.gate = None)?;
        done
    }

    fn stop(mut self, slot: Option<usize>) {
        self.deliver();
        let done = self.database.close();
        if let Some(slot) = slot {
            self.answers.push((slot, Reply::Done(done)));
            self.deliver();
        }
    }
}

#[cfg(test)]
#[path = "thread_tests.rs"]
mod tests;
