//! Changes of metadata between two commits.
//!
//! Every change goes into the open transaction, in memory. A commit closes it, in one step of this thread, so that
//! it holds whole operations only; the next is open while the closed one is on its way to the store. Readers see
//! open, then closed, then stored.
//!
//! Records of a few bytes are changed here by key. What other parts of the volume keep in structures of their own (files,
//! extents, free space) becomes records when the transaction is closed: such a [`Part`] says that something has changed,
//! and gives the records then.

mod number;
#[cfg(test)]
mod tests;
mod view;

pub use number::TransactionNr;

use braid_filesystem::Errno;
use braid_format::volume::RecordError;
use braid_kv::{Change, Pair, Store, StoreError, StoreSpace};
use braid_shard::Shard;
use braid_shard::sync::Notify;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use uuid::Uuid;

/// Changed keys and their new values.
type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Changed objects from which a commit is asked for at once.
const CHANGED_MANY: usize = 16 << 10;
/// Changed objects from which operations wait for the commit under way.
const CHANGED_MAX: usize = 64 << 10;
/// The number of commits that a request waits for when it needs room for metadata, before it is refused.
const ROOM_WAITS: usize = 4;

/// A part of the volume whose state becomes records when a transaction is closed.
pub trait Part {
    /// Something has changed since the last transaction was closed.
    fn is_dirty(&self) -> bool;

    /// The records of what has changed. What changes from here on belongs to the next transaction.
    fn close(&self) -> Vec<Change>;

    /// Records of what has happened while bricks were flushed for the transaction that was closed last: they go with it.
    fn late(&self) -> Vec<Change> {
        Vec::new()
    }

    /// The transaction that has to be durable before anybody is told that his data is.
    fn needed(&self) -> TransactionNr {
        0
    }

    /// The records that were given last are durable.
    fn committed(&self) {}
}

/// The open transaction and the one that is being committed.
pub struct Transactions {
    store: Rc<dyn Store>,
    /// The volume, in messages.
    volume: Uuid,
    read_only: bool,
    open: RefCell<Changes>,
    closed: RefCell<Rc<Changes>>,
    /// Objects that parts have changed in the open transaction, and the bytes of their records, about.
    objects: Cell<usize>,
    object_bytes: Cell<u64>,
    number: Cell<TransactionNr>,
    durable: Cell<TransactionNr>,
    wanted: Cell<TransactionNr>,
    /// Bytes of keys and values in `open`, about.
    bytes: Cell<u64>,
    /// The same of the one that is being committed.
    closed_bytes: Cell<u64>,
    failed: RefCell<Option<String>>,
    /// Commits for which there was no room.
    refused: Cell<u64>,
    /// It was said that the metadata is full, and there has not been much room since.
    told_full: Cell<bool>,
    /// The snapshots that there are. Values of before are saved for them, which takes as much again.
    snapshots: RefCell<BTreeSet<u32>>,
    closing: Cell<bool>,
    /// A commit is wanted, or one has ended.
    changed: Notify,
}

impl Transactions {
    /// On top of what `store` holds of `volume`; `read_only`: nothing is ever changed.
    pub fn new(
        shard: &Shard,
        store: Rc<dyn Store>,
        volume: Uuid,
        read_only: bool,
    ) -> Rc<Transactions> {
        Rc::new(Transactions {
            store,
            volume,
            read_only,
            open: RefCell::default(),
            closed: RefCell::default(),
            objects: Cell::new(0),
            object_bytes: Cell::new(0),
            number: Cell::new(1),
            durable: Cell::new(0),
            wanted: Cell::new(0),
            bytes: Cell::new(0),
            closed_bytes: Cell::new(0),
            failed: RefCell::new(None),
            refused: Cell::new(0),
            told_full: Cell::new(false),
            snapshots: RefCell::default(),
            closing: Cell::new(false),
            changed: Notify::new(shard),
        })
    }

    /// These are the snapshots that there are.
    pub fn note_snapshots(&self, snapshots: BTreeSet<u32>) {
        *self.snapshots.borrow_mut() = snapshots;
    }

    fn saves(&self) -> bool {
        !self.snapshots.borrow().is_empty()
    }

    /// The store below.
    pub fn store(&self) -> &Rc<dyn Store> {
        &self.store
    }

    /// Number of the open transaction.
    pub fn number(&self) -> TransactionNr {
        self.number.get()
    }

    /// Number of the last transaction that is durable.
    pub fn durable(&self) -> TransactionNr {
        self.durable.get()
    }

    /// Changes one key.
    pub fn set(&self, key: Vec<u8>, value: Option<Vec<u8>>) {
        let bytes = key.len() + value.as_ref().map_or(0, Vec::len);
        self.bytes.set(self.bytes.get() + bytes as u64);
        self.open.borrow_mut().insert(key, value);
        self.ask_when_large();
    }

    /// The record of something that has changed is longer than most by so many bytes.
    pub fn count_bytes(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// A part has changed an object that had not changed in this transaction, whose record takes so many bytes, about.
    pub fn object_changed(&self, bytes: u64) {
        self.objects.set(self.objects.get() + 1);
        self.object_bytes.set(self.object_bytes.get() + bytes);
        self.ask_when_large();
    }

    /// Such an object has no record in this transaction after all.
    pub fn object_dropped(&self, bytes: u64) {
        self.objects.set(self.objects.get().saturating_sub(1));
        self.object_bytes.set(self.object_bytes.get().saturating_sub(bytes));
    }

    /// Nothing has changed since the last transaction was closed.
    pub fn is_clean(&self) -> bool {
        self.changed_objects() == 0
    }

    /// Bytes that the store will have to take, about: what is open and what is on its way.
    pub fn pending_bytes(&self) -> u64 {
        self.bytes.get() + self.object_bytes.get() + self.closed_bytes.get()
    }

    fn changed_objects(&self) -> usize {
        self.open.borrow().len() + self.objects.get()
    }

    /// Objects that a transaction may change: fewer where the store may have no room for a larger commit.
    fn objects_max(&self) -> usize {
        let most = usize::try_from(self.store.space().changes).unwrap_or(usize::MAX);
        if self.saves() { most / 2 } else { most }
    }

    fn ask_when_large(&self) {
        let changed = self.changed_objects();
        if changed >= CHANGED_MANY || changed.saturating_mul(2) >= self.objects_max() {
            self.ask(self.number.get());
        }
    }

    /// Waits while so much has changed that the commit under way should end first.
    pub async fn room(&self) {
        while self.changed_objects() >= CHANGED_MAX.min(self.objects_max())
            && self.failed.borrow().is_none()
        {
            let number = self.number.get();
            self.ask(number);
            self.changed
                .wait_for(|| {
                    (self.number.get() > number || self.failed.borrow().is_some()).then_some(())
                })
                .await;
        }
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if self.snapshot_in(key) != 0 {
            return self.get_in_snapshot(key).await;
        }
        loop {
            if let Some(value) = self.overlaid(key) {
                return Ok(value);
            }
            let durable = self.durable.get();
            let stored = self.store.get(key).await?;
            if let Some(value) = self.overlaid(key) {
                return Ok(value);
            }
            // A commit that ended meanwhile has taken its changes out of sight: the answer may be from before it.
            if self.durable.get() == durable {
                return Ok(stored);
            }
        }
    }

    fn overlaid(&self, key: &[u8]) -> Option<Option<Vec<u8>>> {
        if let Some(value) = self.open.borrow().get(key) {
            return Some(value.clone());
        }
        self.closed.borrow().get(key).cloned()
    }

    /// Pairs with keys from `from` on, before `to`, about `limit` of them, and the key where to go on; `None`: that
    /// was all.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<(Vec<Pair>, Option<Vec<u8>>), StoreError> {
        match self.snapshot_in(from) {
            0 => self.scan_plain(from, to, limit).await,
            _ => self.scan_in_snapshot(from, to, limit).await,
        }
    }

    async fn scan_plain(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<(Vec<Pair>, Option<Vec<u8>>), StoreError> {
        loop {
            let durable = self.durable.get();
            let stored = self.store.scan(from, to, limit).await?;
            if self.durable.get() != durable {
                continue;
            }
            let next = (stored.len() >= limit).then(|| {
                let mut next = stored.last().map_or_else(|| to.to_vec(), |(key, _)| key.clone());
                next.push(0);
                next
            });
            let end: &[u8] = next.as_deref().unwrap_or(to);
            let mut merged: Changes =
                stored.into_iter().map(|(key, value)| (key, Some(value))).collect();
            let range = from.to_vec()..end.to_vec();
            if from < end {
                for (key, value) in self.closed.borrow().range(range.clone()) {
                    merged.insert(key.clone(), value.clone());
                }
                for (key, value) in self.open.borrow().range(range) {
                    merged.insert(key.clone(), value.clone());
                }
            }
            let pairs = merged.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
            return Ok((pairs, next));
        }
    }

    /// Asks for transaction `number` to be committed.
    pub fn ask(&self, number: TransactionNr) {
        if self.wanted.get() < number {
            self.wanted.set(number);
            self.changed.notify_all();
        }
    }

    /// Waits until transaction `number` is durable.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] when there was no room for it: it is tried again with the next. When a commit failed.
    pub async fn wait_durable(&self, number: TransactionNr) -> Result<(), StoreError> {
        let refused = self.refused.get();
        self.ask(number);
        self.changed
            .wait_for(|| {
                if self.durable.get() >= number {
                    return Some(Ok(()));
                }
                if self.refused.get() > refused && self.number.get() > number {
                    return Some(Err(StoreError::NoSpace));
                }
                self.failed.borrow().clone().map(|why| Err(StoreError::Failed(why)))
            })
            .await
    }

    /// Waits until a commit is wanted. False: there will be none any more.
    pub async fn wait_wanted(&self) -> bool {
        self.changed
            .wait_for(|| {
                if self.failed.borrow().is_some() {
                    return Some(false);
                }
                if self.wanted.get() >= self.number.get() {
                    return Some(true);
                }
                self.closing.get().then_some(false)
            })
            .await
    }

    /// No further commit will be asked for.
    pub fn end(&self) {
        self.closing.set(true);
        self.changed.notify_all();
    }

    /// True after [`end`](Transactions::end).
    pub fn is_ended(&self) -> bool {
        self.closing.get()
    }

    /// Closes the open transaction and gives its number. The records of the parts are for the caller to
    /// [add](Transactions::freeze) before anything else runs.
    pub fn close(&self) -> TransactionNr {
        let number = self.number.get();
        self.number.set(number + 1);
        self.closed_bytes.set(0);
        self.closed_bytes.set(self.pending_bytes());
        self.bytes.set(0);
        self.object_bytes.set(0);
        self.objects.set(0);
        number
    }

    /// Freezes what was set before [`close`](Transactions::close), with `records` added, and gives it as one batch.
    pub fn freeze(&self, records: Vec<Change>) -> Vec<Change> {
        let mut changes = std::mem::take(&mut *self.open.borrow_mut());
        changes.extend(records);
        let batch = changes.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        *self.closed.borrow_mut() = Rc::new(changes);
        batch
    }

    /// The closed transaction is durable.
    pub fn committed(&self, number: TransactionNr) {
        *self.closed.borrow_mut() = Rc::default();
        self.closed_bytes.set(0);
        self.durable.set(number);
        self.changed.notify_all();
    }

    /// There was no room for the closed transaction, and nothing of it is in the store: it is a part of the open one again.
    pub fn refused(&self) {
        let closed = self.closed.take();
        let mut open = self.open.borrow_mut();
        for (key, value) in closed.iter() {
            // Later changes win. Records of objects that have changed again come when this is closed.
            open.entry(key.clone()).or_insert_with(|| value.clone());
        }
        drop(open);
        self.bytes.set(self.bytes.get() + self.closed_bytes.take());
        self.refused.set(self.refused.get() + 1);
        self.changed.notify_all();
    }

    /// A commit failed: nothing can be changed any more.
    pub fn fail(&self, why: &str) {
        self.failed.borrow_mut().get_or_insert_with(|| why.to_string());
        self.changed.notify_all();
    }

    /// Why nothing can be changed any more.
    pub fn failure(&self) -> Option<String> {
        self.failed.borrow().clone()
    }

    /// Changes are refused when a commit failed or the volume is mounted read-only.
    ///
    /// # Errors
    /// [`Errno::ReadOnly`].
    pub fn writable(&self) -> Result<(), Errno> {
        if self.read_only || self.failed.borrow().is_some() {
            return Err(Errno::ReadOnly);
        }
        Ok(())
    }

    /// Waits until there is room in the open transaction, and refuses what would fill the metadata store up.
    ///
    /// # Errors
    /// [`Errno::NoSpace`]; [`Errno::ReadOnly`] when nothing can be changed.
    pub async fn may_grow(&self) -> Result<(), Errno> {
        for _ in 0..ROOM_WAITS {
            self.writable()?;
            self.room().await;
            if self.has_room_for(0).is_ok() || self.pending_bytes() == 0 {
                break;
            }
            // It is not known what is under way will take, until it is there.
            let durable = self.wait_durable(self.number()).await;
            durable.map_err(|error| self.store_failed(&error))?;
        }
        self.has_room_for(0)
    }

    /// Refuses what would fill the metadata store up with a change of `bytes` bytes, which is made at once.
    ///
    /// # Errors
    /// [`Errno::NoSpace`].
    pub fn has_room_for(&self, bytes: u64) -> Result<(), Errno> {
        let space = self.store.space();
        // A commit may write a good part of the pages that its changes touch anew.
        let pending = self.pending_bytes().saturating_add(bytes);
        let parts = if self.saves() { 6 } else { 3 };
        let wanted = space.used.saturating_add(pending.saturating_mul(parts));
        let is_full = wanted > room_of(&space);
        // Whoever asks for room gets an errno, which says nothing of metadata.
        if is_full && !self.told_full.replace(true) {
            tracing::error!("{}", StoreError::NoSpace);
        }
        if space.used < space.capacity / 8 * 7 {
            self.told_full.set(false);
        }
        if is_full { Err(Errno::NoSpace) } else { Ok(()) }
    }

    /// The error that a request gets when the store fails, which is logged.
    pub fn store_failed(&self, error: &StoreError) -> Errno {
        tracing::error!(volume = %self.volume, "{error}");
        match error {
            StoreError::NoSpace => Errno::NoSpace,
            StoreError::Damaged(_) | StoreError::Failed(_) => Errno::Io,
        }
    }

    /// The error that a request gets when a record is damaged, which is logged.
    pub fn damaged(&self, error: &RecordError) -> Errno {
        tracing::error!(volume = %self.volume, "{error}");
        Errno::Io
    }

    /// The value of `key`, for a request.
    ///
    /// # Errors
    /// As [`store_failed`](Transactions::store_failed) says.
    pub async fn stored(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        self.get(key).await.map_err(|error| self.store_failed(&error))
    }

    /// As [`scan`](Transactions::scan), for a request.
    ///
    /// # Errors
    /// As [`store_failed`](Transactions::store_failed) says.
    pub async fn scanned(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<(Vec<Pair>, Option<Vec<u8>>), Errno> {
        self.scan(from, to, limit).await.map_err(|error| self.store_failed(&error))
    }

    /// Waits until all that was changed up to now is durable, for a request.
    ///
    /// # Errors
    /// As [`wait_durable`](Transactions::wait_durable).
    pub async fn settle(&self) -> Result<(), Errno> {
        let durable = self.wait_durable(self.number()).await;
        durable.map_err(|error| self.store_failed(&error))
    }
}

/// Bytes of metadata that may be taken. What removes may take more.
pub fn room_of(space: &StoreSpace) -> u64 {
    space.capacity - space.capacity / 16
}
