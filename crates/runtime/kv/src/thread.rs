//! A store on a thread of its own, and the handle on it that lives on a shard.
//!
//! Requests go through a channel and are executed in the order in which they were made, so a read that was made
//! after a commit waits for it. Answers come back as messages to the shard, several in one message if several are ready.
//! A report of the thread precedes the answers to the requests during which it arose.
//!
//! The regions of the thread may be on devices of the same shard, so nothing here may make the shard wait for the thread.
//!
//! Invariant: every request is answered, also when the thread ends.

use crate::database::Database;
use crate::image::Image;
use crate::mirror::{Dropped, Mirror};
use crate::region::Region;
use crate::store::{Answer, Begun, Change, Pair, Store, StoreError, StoreSpace};
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use braid_shard::sync::{Promise, promise};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::mpsc::{self, TryRecvError};

/// Prefix of the names of the threads of stores.
const NAME: &str = "kv-";

/// True on the thread of a store, which catches panics of the embedded database.
pub fn catches_panics() -> bool {
    std::thread::current().name().is_some_and(|name| name.starts_with(NAME))
}

/// The most answers in one message.
const ANSWERS_MAX: usize = 64;

/// The most requests between two windows of a copy.
const REQUESTS_MAX: usize = 64;

/// The state in which the regions of a store were left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// There is no store in them: they are formatted, and their content is lost.
    Create,
    /// The store was stopped cleanly, so two regions have the same content.
    AfterStop,
    /// The store was not stopped cleanly, or that is unknown: of two regions the second is made equal to the first.
    /// Both must have been in use until the end.
    AfterCrash,
}

/// Is called for regions that were dropped.
type Reporter = Rc<dyn Fn(&Dropped)>;

enum Request {
    Get(Vec<u8>),
    Scan(Vec<u8>, Vec<u8>, usize),
    /// The changes, and a message to wait for before they are written.
    Commit(Vec<Change>, Option<mpsc::Receiver<()>>),
    AddHalf(Box<dyn Region>),
    DropHalf(usize),
    PrepareGrowth(Vec<(usize, Box<dyn Region>)>),
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
    dropped: Vec<Dropped>,
    mended: u64,
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
    mended: Cell<u64>,
    reporter: RefCell<Option<Reporter>>,
    /// Reports that came while there was no reporter.
    early: RefCell<Vec<Dropped>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shard.local::<Stores>().stores.borrow_mut().remove(&self.number);
    }
}

/// A store in one or two regions; see [`Store`]. Cheap to clone; clones are the same store. When the last is dropped the
/// store is closed cleanly some time later; [`stop`](KvStore::stop) waits for that.
#[derive(Clone)]
pub struct KvStore {
    inner: Rc<Inner>,
}

impl KvStore {
    /// Opens the store in `regions`, one or two, the current one first. `cache_bytes` is the size of the database's
    /// cache.
    ///
    /// A store that was not stopped cleanly is verified completely before it answers.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when there is no store, or none that can be read as a whole; [`StoreError::Failed`] when the
    /// regions are too small ([`REGION_MIN`](crate::REGION_MIN)) or fail, or there can be no thread.
    pub fn open(
        shard: &Shard,
        regions: Vec<Box<dyn Region>>,
        how: Open,
        cache_bytes: usize,
    ) -> Answer<KvStore> {
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
            mended: Cell::new(0),
            reporter: RefCell::new(None),
            early: RefCell::new(Vec::new()),
        });
        stores.stores.borrow_mut().insert(number, Rc::downgrade(&inner));
        let (giver, opened) = promise(shard);
        let slot = inner.waiting.borrow_mut().insert(Waiting::Done(giver));
        let farewell = Farewell { shard: shard.remote(), number };
        let started =
            std::thread::Builder::new().name(format!("{NAME}{number}")).spawn(move || {
                KvThread::run(farewell, received, slot, regions, how, cache_bytes);
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

    /// Calls `reporter` on the shard for every region that the store drops. The call comes before the answer to the request
    /// during which that happened, so that the owner can record the loss for the next start before it relies on the
    /// answer. Regions that were dropped earlier, while the store was opened, are reported immediately.
    pub fn on_dropped(&self, reporter: impl Fn(&Dropped) + 'static) {
        let reporter: Reporter = Rc::new(reporter);
        let early = self.inner.early.take();
        for dropped in &early {
            reporter(dropped);
        }
        *self.inner.reporter.borrow_mut() = Some(reporter);
    }

    /// Blocks that one region had lost and that were repaired from the other, since the store was opened.
    pub fn mended(&self) -> u64 {
        self.inner.mended.get()
    }

    /// Copies the store to `region`, which becomes the second half; its content is lost. The store goes on meanwhile. Answers
    /// when the copy is complete.
    ///
    /// # Errors
    /// [`StoreError::Failed`] when there are two halves already, the region is too small, or it fails: the store goes on
    /// without it.
    pub fn add_half(&self, region: Box<dyn Region>) -> Answer<()> {
        self.ask_done(Request::AddHalf(region))
    }

    /// Drops a half: 0 for the first region that was given, 1 for the second, or the one that was added in its place.
    ///
    /// # Errors
    /// [`StoreError::Failed`] when nothing would be left.
    pub fn drop_half(&self, half: usize) -> Answer<()> {
        self.ask_done(Request::DropHalf(half))
    }

    /// Replaces halves (numbered as for [`drop_half`](KvStore::drop_half)) by larger regions with the same content, and
    /// formats the additional space. Halves that are dropped meanwhile must be recorded before
    /// [`take_growth`](KvStore::take_growth), which makes the store larger. No half may be added in between.
    ///
    /// # Errors
    /// [`StoreError::Failed`] when it has grown too often, or no half can be written; the store goes on as it is.
    pub fn prepare_growth(&self, regions: Vec<(usize, Box<dyn Region>)>) -> Answer<()> {
        self.ask_done(Request::PrepareGrowth(regions))
    }

    /// Makes the store as large as the regions that were [prepared](KvStore::prepare_growth).
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
        self.mended.set(delivery.mended);
        let reporter = self.reporter.borrow().clone();
        for dropped in delivery.dropped {
            match &reporter {
                Some(reporter) => reporter(&dropped),
                None => self.early.borrow_mut().push(dropped),
            }
        }
        for (slot, reply) in delivery.answers {
            let waiting = self.waiting.borrow_mut().try_remove(slot);
            if let Some(waiting) = waiting {
                waiting.answer(reply);
            }
        }
    }
}

/// A copy in progress: its next block, and the request that waits for it.
struct Joining {
    next: u64,
    slot: usize,
    /// Requests since the last window was copied.
    requests: usize,
}

struct KvThread {
    database: Database,
    joining: Option<Joining>,
    farewell: Farewell,
    answers: Vec<(usize, Reply)>,
}

impl KvThread {
    fn run(
        farewell: Farewell,
        requests: mpsc::Receiver<(usize, Request)>,
        slot: usize,
        regions: Vec<Box<dyn Region>>,
        how: Open,
        cache_bytes: usize,
    ) {
        let database = match open(regions, how, cache_bytes) {
            Ok(database) => database,
            Err(error) => {
                let answers = vec![(slot, Reply::Done(Err(error)))];
                farewell.deliver(Delivery { answers, ..Delivery::default() });
                return;
            }
        };
        let answers = vec![(slot, Reply::Done(Ok(())))];
        let mut thread = KvThread { database, joining: None, farewell, answers };
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
                Request::AddHalf(region) => thread.add_half(slot, region),
                Request::DropHalf(half) => {
                    let done = thread.drop_half(half);
                    thread.answers.push((slot, Reply::Done(done)));
                }
                Request::PrepareGrowth(regions) => {
                    let prepare = |image: &mut Image| image.prepare_growth(regions);
                    let done = thread.database.with_image(prepare);
                    let done = done.and_then(|done| done).map(|_| ());
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
        // A copy proceeds between requests, and after a number of them even if there is no pause.
        if let Some(joining) = &mut self.joining {
            joining.requests += 1;
            if joining.requests > REQUESTS_MAX {
                self.deliver();
                self.copy();
            }
        }
        loop {
            match requests.try_recv() {
                Ok(request) => return Some(request),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => {}
            }
            self.deliver();
            if self.joining.is_none() {
                return requests.recv().ok();
            }
            self.copy();
        }
    }

    fn deliver(&mut self) {
        if self.answers.is_empty() {
            return;
        }
        let answers = std::mem::take(&mut self.answers);
        let (dropped, mended) = self
            .database
            .with_image(|image| (image.mirror().take_dropped(), image.mended))
            .unwrap_or_default();
        self.farewell.deliver(Delivery { answers, space: self.database.space(), dropped, mended });
    }

    fn commit(
        &mut self,
        changes: &[Change],
        gate: Option<mpsc::Receiver<()>>,
    ) -> Result<(), StoreError> {
        self.database.with_image(|image| image.gate = gate)?;
        let done = self.database.commit(changes);
        // A commit that was refused has written nothing, and the next one must not wait for it.
        self.database.with_image(|image| image.gate = None)?;
        done
    }

    fn add_half(&mut self, slot: usize, region: Box<dyn Region>) {
        let joins = self.database.with_image(|image| image.join(region)).and_then(|joins| joins);
        match joins {
            Ok(()) => self.joining = Some(Joining { next: 0, slot, requests: 0 }),
            Err(error) => self.answers.push((slot, Reply::Done(Err(error)))),
        }
    }

    /// Copies the next window to the region that joins.
    fn copy(&mut self) {
        let Some(Joining { next, slot, .. }) = self.joining.take() else { return };
        let copied = self.database.with_image(|image| image.copy_window(next));
        match copied.and_then(|copied| copied) {
            Ok(Some(next)) => self.joining = Some(Joining { next, slot, requests: 0 }),
            Ok(None) => self.answers.push((slot, Reply::Done(Ok(())))),
            Err(error) => self.answers.push((slot, Reply::Done(Err(error)))),
        }
    }

    fn drop_half(&mut self, half: usize) -> Result<(), StoreError> {
        self.database
            .with_image(|image| image.mirror().drop_half(half, "it was asked for"))?
            .map_err(|_| StoreError::Failed("the metadata would have no copy left".to_string()))
    }

    fn stop(mut self, slot: Option<usize>) {
        if let Some(Joining { slot, .. }) = self.joining.take() {
            self.answers.push((slot, Reply::Done(Err(ended()))));
        }
        self.deliver();
        let done = self.database.close();
        if let Some(slot) = slot {
            self.answers.push((slot, Reply::Done(done)));
            // Reports come with it: a half on which the clean end could not be written differs from the other.
            self.deliver();
        }
    }
}

fn open(
    regions: Vec<Box<dyn Region>>,
    how: Open,
    cache_bytes: usize,
) -> Result<Database, StoreError> {
    let mirror = Mirror::new(regions);
    match how {
        Open::Create => Database::create(Image::format(mirror)?, cache_bytes),
        Open::AfterStop => Database::open(Image::open(mirror, false)?, cache_bytes),
        Open::AfterCrash => Database::open(Image::open(mirror, true)?, cache_bytes),
    }
}

#[cfg(test)]
#[path = "thread_tests.rs"]
mod tests;
