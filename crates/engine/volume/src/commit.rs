//! Commits: the open transaction is closed, bricks are flushed, one batch goes to the store.

use crate::extents::Bricks;
use crate::record::Record;
use crate::snapshots::Snapshots;
use crate::transactions::{Part, TransactionNr, Transactions};
use braid_filesystem::Errno;
use braid_kv::{Begun, Change, StoreError};
use braid_shard::plant::planted;
use std::rc::Rc;

/// Makes changes durable, after the data that they name.
pub struct Commits {
    transactions: Rc<Transactions>,
    bricks: Rc<Bricks>,
    record: Rc<Record>,
    snapshots: Rc<Snapshots>,
    /// The parts whose changes become records when a transaction is closed.
    parts: Vec<Rc<dyn Part>>,
}

impl Commits {
    /// Of the changes in `transactions` and of `parts`, behind the data on `bricks`.
    pub fn new(
        transactions: Rc<Transactions>,
        bricks: Rc<Bricks>,
        record: Rc<Record>,
        snapshots: Rc<Snapshots>,
        parts: Vec<Rc<dyn Part>>,
    ) -> Commits {
        Commits { transactions, bricks, record, snapshots, parts }
    }

    fn has_changes(&self) -> bool {
        !self.transactions.is_clean() || self.parts.iter().any(|part| part.is_dirty())
    }

    /// Asks for a commit if anything has changed.
    pub fn ask_if_changed(&self) {
        if self.has_changes() {
            self.transactions.ask(self.transactions.number());
        }
    }

    /// Waits until a commit is asked for, and makes it. False: there will be none any more.
    pub async fn next(&self) -> bool {
        let is_wanted = self.transactions.wait_wanted().await;
        if is_wanted {
            self.commit().await;
        }
        is_wanted
    }

    /// Commits the open transaction.
    async fn commit(&self) {
        let number = self.transactions.close();
        let records = self.parts.iter().flat_map(|part| part.close()).collect();
        let batch = self.transactions.freeze(records);
        let written = self.write_batch(batch).await;
        if written == Err(StoreError::NoSpace) {
            // Nothing is lost yet: what is removed next may make room.
            tracing::error!("{}; what was changed last is not durable", StoreError::NoSpace);
            self.transactions.refused();
            return;
        }
        if let Err(error) = written {
            tracing::error!(
                "{error}; the volume is read-only from now on: unmount it, and see to its metadata bricks"
            );
            self.transactions.fail(&error.to_string());
            return;
        }
        self.parts.iter().for_each(|part| part.committed());
        self.transactions.committed(number);
    }

    /// Makes data durable, then the metadata that names it, which the store prepares meanwhile.
    async fn write_batch(&self, mut batch: Vec<Change>) -> Result<(), StoreError> {
        batch.extend(self.snapshots.saved_for(&self.transactions, &batch).await?);
        let store = self.transactions.store();
        let mut unflushed = self.bricks.unflushed();
        if planted("metadata-before-data") {
            unflushed.clear();
        }
        // Where files have copies a flush that fails has something added to what is committed.
        let begun = match batch.is_empty() || unflushed.is_empty() || self.record.has_copies() {
            true => Err(batch),
            false => store.begin_commit(batch),
        };
        self.bricks.flush(&unflushed).await;
        self.bricks.note_failed().await?;
        let begun = begun.map_err(|mut batch| {
            let late: Vec<Change> = self.parts.iter().flat_map(|part| part.late()).collect();
            batch.retain(|(key, _)| !late.iter().any(|(other, _)| other == key));
            batch.extend(late);
            batch
        });
        match begun {
            Ok(Begun { go, done }) => {
                go();
                done.await
            }
            Err(batch) if batch.is_empty() => Ok(()),
            Err(batch) => store.commit(batch).await,
        }
    }

    /// Waits until transaction `needed` and all data written before this call are durable. After a flush that failed
    /// meanwhile it is not known what of the data is on the brick, also when a later one succeeds.
    ///
    /// # Errors
    /// When that cannot be.
    pub async fn make_durable(&self, needed: TransactionNr) -> Result<(), Errno> {
        let failures = self.bricks.flush_failures();
        let mut written = self.bricks.unflushed();
        if planted("fsync-without-data") {
            written.clear();
        }
        if needed > self.transactions.durable() && !planted("fsync-without-commit") {
            let waited = self.transactions.wait_durable(needed).await;
            waited.map_err(|error| self.transactions.store_failed(&error))?;
        }
        // Overwritten data needs no commit; a commit that ended meanwhile has flushed it, too.
        self.bricks.flush(&written).await;
        // Where a copy was lost, another has the data, if the next mount knows that.
        let marked = self.parts.iter().map(|part| part.needed()).max().unwrap_or(0);
        if marked > self.transactions.durable() {
            let waited = self.transactions.wait_durable(marked).await;
            waited.map_err(|error| self.transactions.store_failed(&error))?;
        }
        if self.bricks.flush_failures() == failures { Ok(()) } else { Err(Errno::Io) }
    }

    /// See [`braid_filesystem::FileSystem::sync`].
    ///
    /// # Errors
    /// As [`make_durable`](Commits::make_durable).
    pub async fn sync_all(&self) -> Result<(), Errno> {
        let number = self.transactions.number();
        let needed = if self.has_changes() { number } else { number - 1 };
        self.make_durable(needed).await
    }

    /// Waits until the open transaction is durable.
    ///
    /// # Errors
    /// When the store fails, or has no room for it.
    pub async fn make_record_durable(&self) -> Result<(), StoreError> {
        self.transactions.wait_durable(self.transactions.number()).await
    }
}
