//! The database behind a store: redb over a [`Storage`], whose size is fixed unless the user grows it.
//!
//! redb grows its storage by doubling and shrinks it when its end is free; a region does neither. So the storage accepts any
//! length for a while. A transaction that made it longer than its blocks is rolled back before it is committed. Then
//! the database is reopened, because redb uses the whole length of the storage that it opens, and the transaction is
//! retried. If it still does not fit the result is [`StoreError::NoSpace`], and redb has not seen an error.
//!
//! A commit itself needs pages, too. Unless there is known to be plenty of room, pages are allocated and freed
//! within the transaction before it is committed, as a proof: as many as the commit may need and, if the transaction makes
//! the store larger, half of the reserve as well. So a transaction that removes pairs can be committed when no other can.
//! The store reports that it is full when the second half of the reserve would not be free beside the needs of the next
//! commits, so changes that its user has begun by then still succeed.
//!
//! Commits have one phase and one flush, after which the newer of two roots is either valid or fails its checksums.
//! After an unclean stop redb verifies the tree below the newer root, and falls back to the older one if that is torn. It
//! reads all pages twice for that, unless the last commit [settled](Database::settle) the database: that has two phases, and
//! the list of free pages in it.
//!
//! Invariant: after an error that redb cannot continue after, every request fails with it until the store is opened
//! again. Panics of redb do not leave this module.

use crate::handle::Handle;
use crate::storage::{Kept, Storage};
use crate::store::{Change, Pair, StoreError, StoreSpace};
use braid_mirror::BLOCK;
use redb::{
    Builder, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Keys and values.
const PAIRS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("pairs");

/// The state of the store: the bytes that it holds, and the number of the last commit.
const STATE: TableDefinition<&str, u64> = TableDefinition::new("state");

/// The table in which pages are allocated and freed as a proof of room.
const ROOM: TableDefinition<u32, &[u8]> = TableDefinition::new("room");

/// Names in [`STATE`].
const BYTES: &str = "bytes";
const COMMITS: &str = "commits";

/// Bytes that a pair takes in addition to its key and value, approximately.
const PAIR_OVERHEAD: u64 = 16;

/// The least size of a region, in bytes: the size of an empty database, with some room.
pub const REGION_MIN: u64 = 4 << 20;

/// A value that occupies a page of its own.
const PAGE_FILLER: [u8; 3800] = [0; 3800];

/// The most pages that a commit takes in addition to those of its tables, for roots and lists of freed pages.
const COMMIT_PAGES: u64 = 48;

/// Number of changes, or pages, between two checks of the room.
const CHECK_EVERY: usize = 16;

/// The most additional pages that are allocated to prove that there is plenty. With more, the proof for a large commit
/// would take longer than the commit.
const PLENTY_MAX: u64 = 10_000;

/// The reserve is one page in this many, within the bounds below, and at most a quarter of all pages. One half is for
/// commits that do not make the store larger, the other for those that were begun before the store reported that it is full.
const RESERVE_PART: u64 = 16;
const RESERVE_MIN: u64 = 320;
const RESERVE_MAX: u64 = 4096;

/// A commit may have at least this many changes, however little room there is.
const CHANGES_MIN: u64 = 32;

/// The outcome of a transaction.
enum Attempt {
    Done,
    /// It needed more pages than there are, and was rolled back.
    NoRoom,
}

/// The proof of free pages that a commit needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// None, because there is room by far.
    None,
    /// Enough pages that the next commits need no proof.
    Plenty,
    /// Exactly the pages that this commit needs.
    Exact,
}

/// See the module's documentation.
pub(crate) struct Database {
    storage: Kept,
    /// `None` after a failure.
    redb: Option<redb::Database>,
    failure: Option<StoreError>,
    cache_bytes: usize,
    /// The table that reads use, until the next commit.
    reader: Option<ReadOnlyTable<&'static [u8], &'static [u8]>>,
    capacity: u64,
    bytes: u64,
    commits: u64,
    /// A lower bound of the free pages, and the length of the storage for which it holds.
    known_free: (u64, u64),
    /// The size at which the last proof of plenty failed. There is no further attempt until the store is smaller.
    scarce_at: Option<u64>,
    /// Pages that the last commit has written. Those that they replace become free with the next commit.
    last_written: u64,
    /// Number of times that the database was reopened to use the whole length.
    pub(crate) reopened: u64,
    /// Nothing was committed since it was opened or settled, or it cannot be settled now.
    is_settled: bool,
}

impl Database {
    /// The database in a mirror: a new, empty one where that was just made. After an unclean stop it is verified and repaired
    /// first.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when no commit can be read as a whole; [`StoreError::Failed`] from the mirror, and when a new one
    /// is too small ([`REGION_MIN`]).
    pub(crate) fn open(mirror: Handle, cache_bytes: usize) -> Result<Database, StoreError> {
        let gone = |error| StoreError::Failed(format!("opening the metadata region: {error}"));
        let (size, is_new) = mirror.region().map_err(gone)?;
        if is_new && size < REGION_MIN {
            let needed = REGION_MIN >> 20;
            return Err(StoreError::Failed(format!(
                "the metadata region has {size} bytes; give it {needed} MiB or more"
            )));
        }
        let storage = Storage::new(mirror, is_new)?;
        let verify = storage.must_verify()?;
        let mut database = Database::over(storage, cache_bytes);
        database.open_redb(verify)?;
        if is_new {
            // Reopened, so that redb uses all blocks of the storage.
            database.reopen()?;
        }
        database.set_up()?;
        if !is_new {
            database.with_storage(Storage::note_verified)??;
        }
        Ok(database)
    }

    /// Makes the database use the blocks by which its mirror has grown.
    ///
    /// # Errors
    /// See [`StoreError`]; nothing that was committed is lost by one.
    pub(crate) fn take_growth(&mut self) -> Result<(), StoreError> {
        if !self.with_storage(Storage::take_growth)?? {
            return Ok(());
        }
        self.capacity = self.with_storage(|storage| storage.capacity())?;
        self.scarce_at = None;
        self.reopen()
    }

    fn over(storage: Storage, cache_bytes: usize) -> Database {
        let capacity = storage.capacity();
        Database {
            storage: Kept::keep(storage),
            redb: None,
            failure: None,
            cache_bytes,
            reader: None,
            capacity,
            bytes: 0,
            commits: 0,
            known_free: (0, 0),
            scarce_at: None,
            last_written: 0,
            reopened: 0,
            is_settled: false,
        }
    }

    /// Works with the storage below.
    pub(crate) fn with_storage<T>(
        &self,
        work: impl FnOnce(&mut Storage) -> T,
    ) -> Result<T, StoreError> {
        self.storage.with(work)
    }

    fn open_redb(&mut self, verify: bool) -> Result<(), StoreError> {
        self.with_storage(Storage::leave_checking_to_database)??;
        let (source, repaired) = (self.storage.backend(), self.storage.backend());
        let mut builder = Builder::new();
        builder.set_cache_size(self.cache_bytes);
        builder.set_check_integrity_on_open(verify);
        builder.set_repair_callback(move |_| repaired.note_repair());
        let opened = self.guard(move |_| Ok(builder.create_with_backend(source)?))?;
        self.redb = Some(opened);
        // A repair has verified everything that it kept, but an ordinary start relies on the data that it reads.
        if !self.with_storage(Storage::check_by_mirror)?? {
            let error = StoreError::Damaged(
                "it was stopped in order, and yet is not as it was left".to_string(),
            );
            return Err(self.fail(error));
        }
        Ok(())
    }

    /// Creates missing tables, and reads the state of the store.
    fn set_up(&mut self) -> Result<(), StoreError> {
        let (bytes, commits) = self.guard(|database| {
            let transaction = database.writing()?;
            drop(transaction.open_table(PAIRS)?);
            let state = transaction.open_table(STATE)?;
            let bytes = state.get(BYTES)?.map(|value| value.value());
            let commits = state.get(COMMITS)?.map(|value| value.value());
            drop(state);
            match bytes {
                Some(_) => transaction.abort()?,
                None => transaction.commit()?,
            }
            Ok((bytes.unwrap_or(0), commits.unwrap_or(0)))
        })?;
        (self.bytes, self.commits) = (bytes, commits);
        Ok(())
    }

    /// Closes the database and opens it again, so that it uses the whole length of the storage.
    fn reopen(&mut self) -> Result<(), StoreError> {
        self.reader = None;
        self.known_free = (0, 0);
        self.reopened += 1;
        if let Some(redb) = self.redb.take() {
            self.guard(move |_| Ok(redb.close()?))?;
        }
        self.with_storage(Storage::reset)?;
        self.open_redb(false)
    }

    /// Runs `work` and converts its errors. An error that redb cannot continue after ends the database.
    fn guard<T>(
        &mut self,
        work: impl FnOnce(&mut Database) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                let below = self.with_storage(|storage| storage.error.take()).ok().flatten();
                Err(self.fail(below.unwrap_or_else(|| told(&error))))
            }
            Err(_) => {
                Err(self.fail(StoreError::Damaged("redb could not make sense of it".to_string())))
            }
        }
    }

    /// Ends the database with `error`.
    fn fail(&mut self, error: StoreError) -> StoreError {
        self.failure = Some(error.clone());
        let (redb, reader) = (self.redb.take(), self.reader.take());
        // Dropping redb after a panic may panic again.
        let _ = catch_unwind(AssertUnwindSafe(|| drop((reader, redb))));
        error
    }

    fn redb(&self) -> Result<&redb::Database, redb::Error> {
        self.redb.as_ref().ok_or(redb::Error::DatabaseClosed)
    }

    fn writing(&self) -> Result<WriteTransaction, redb::Error> {
        Ok(self.redb()?.begin_write()?)
    }

    fn reader(&mut self) -> Result<&ReadOnlyTable<&'static [u8], &'static [u8]>, redb::Error> {
        if self.reader.is_none() {
            self.reader = Some(self.redb()?.begin_read()?.open_table(PAIRS)?);
        }
        self.reader.as_ref().ok_or(redb::Error::DatabaseClosed)
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.guard(|database| {
            let value = database.reader()?.get(key)?;
            Ok(value.map(|value| value.value().to_vec()))
        })
    }

    /// The first `limit` pairs with keys from `from` on, before `to`.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(crate) fn scan(
        &mut self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Pair>, StoreError> {
        if from >= to {
            return Ok(Vec::new());
        }
        self.guard(|database| {
            let mut pairs = Vec::new();
            for pair in database.reader()?.range::<&[u8]>(from..to)?.take(limit) {
                let (key, value) = pair?;
                pairs.push((key.value().to_vec(), value.value().to_vec()));
            }
            Ok(pairs)
        })
    }

    /// Makes all changes, or none; they are durable when this returns.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] when there is no room: nothing was changed, and the store goes on.
    pub(crate) fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        if self.scarce_at.is_some_and(|bytes| self.bytes < bytes - bytes / 64) {
            self.scarce_at = None;
        }
        let first = match (self.needs_proof(changes)?, self.scarce_at) {
            (false, _) => Proof::None,
            (true, None) => Proof::Plenty,
            (true, Some(_)) => Proof::Exact,
        };
        if let Attempt::Done = self.attempt(changes, first)? {
            return Ok(());
        }
        if self.with_storage(|storage| storage.len() < storage.capacity())? {
            self.reopen()?;
        } else if first == Proof::Exact {
            return Err(StoreError::NoSpace);
        } else {
            self.scarce_at = Some(self.bytes);
        }
        match self.attempt(changes, Proof::Exact)? {
            Attempt::Done => Ok(()),
            Attempt::NoRoom => Err(StoreError::NoSpace),
        }
    }

    /// True when there is nothing to [settle](Database::settle).
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled || self.failure.is_some()
    }

    /// Commits once more, without a change, so that a start after a crash need not read all that there is. It takes two
    /// flushes and writes some bits for each page of the store: for a time at which nobody waits. Where there may be too
    /// little room, it does nothing.
    ///
    /// # Errors
    /// See [`StoreError`]; nothing that was committed is lost by one.
    pub(crate) fn settle(&mut self) -> Result<(), StoreError> {
        self.is_settled = true;
        if self.scarce_at.is_some() || self.needs_proof(&[])? {
            return Ok(());
        }
        self.reader = None;
        let written = self.with_storage(|storage| storage.written)?;
        let done = self.guard(|database| {
            let mut transaction = database.writing()?;
            transaction.set_quick_repair(true);
            database.set_strict(true);
            transaction.commit()?;
            database.set_strict(false);
            Ok(())
        });
        if let Err(error) = done {
            return self.after_refusal(error, self.commits, self.bytes).map(drop);
        }
        let written = self.with_storage(|storage| storage.written)? - written;
        self.last_written += written;
        self.known_free.0 = self.known_free.0.saturating_sub(written);
        Ok(())
    }

    /// The space of the store: used and total.
    pub(crate) fn space(&self) -> StoreSpace {
        let capacity = self.capacity - self.reserve() * BLOCK as u64;
        // Pages of a tree that grows at one end are half full, others about two thirds. Only the database knows exactly, and
        // it is asked only when the store may be nearly full.
        let used = match self.scarce_at {
            Some(_) => capacity,
            None => (self.bytes.saturating_mul(15) / 8).min(capacity - capacity / 8),
        };
        StoreSpace { capacity, used, changes: self.changes() }
    }

    /// Number of changes for which a commit is sure to find the pages.
    fn changes(&self) -> u64 {
        let len = self.with_storage(|storage| storage.len()).unwrap_or(0);
        let (known, at_len) = self.known_free;
        let known = if at_len == len { known } else { 0 };
        // Commits that make the store larger have left half of the reserve.
        let left = if self.scarce_at.is_some() { self.reserve() / 2 } else { 0 };
        let left = left.saturating_sub(self.last_written);
        let commit = COMMIT_PAGES + 16 + self.capacity / BLOCK as u64 / 4096;
        let free = self.surely_free().max(known).max(left);
        (free.saturating_sub(commit) / 3).max(CHANGES_MIN)
    }

    /// Pages that are free or can be freed, as estimated from the number of bytes in the store.
    fn surely_free(&self) -> u64 {
        // In the long run every page of a tree is at least a third full.
        let trees = self.bytes.saturating_mul(3) / BLOCK as u64;
        (self.capacity / BLOCK as u64).saturating_sub(trees + self.last_written)
    }

    /// Closes the database cleanly. Later requests fail; the storage stays until the database is dropped.
    ///
    /// # Errors
    /// When the clean end cannot be written; then the next start is a repair.
    pub(crate) fn close(&mut self) -> Result<(), StoreError> {
        self.reader = None;
        match self.redb.take() {
            Some(redb) => self.guard(move |_| Ok(redb.close()?)),
            None => self.failure.clone().map_or(Ok(()), Err),
        }
    }

    fn reserve(&self) -> u64 {
        let pages = self.capacity / BLOCK as u64;
        (pages / RESERVE_PART).clamp(RESERVE_MIN.min(pages / 4), RESERVE_MAX)
    }

    /// Pages that the commit of a transaction may take, beside those of its tables.
    fn commit_pages(&self, changes: &[Change]) -> u64 {
        // A list of freed pages has some 400 to a page, and of each kind there are two.
        COMMIT_PAGES + pages_touched(changes) / 100 + self.capacity / BLOCK as u64 / 4096
    }

    /// False when a commit of this size cannot make the store nearly full.
    fn needs_proof(&self, changes: &[Change]) -> Result<bool, StoreError> {
        let (len, room) = self.with_storage(|storage| (storage.len(), storage.capacity()))?;
        let pages = pages_touched(changes) + self.commit_pages(changes);
        let (free, at_len) = self.known_free;
        let wanted = pages + self.wanted_free(true, len, changes);
        let plenty =
            (at_len == len && free >= wanted) || (len >= room && self.surely_free() >= wanted);
        // The storage doubles until it has what it needs, and may do so once more in the commit.
        let grows = len.max(pages * BLOCK as u64).saturating_mul(6) <= room;
        Ok(!plenty && !grows)
    }

    /// Pages that must be free for a commit, beside those that its tables have taken.
    fn wanted_free(&self, larger: bool, len: u64, changes: &[Change]) -> u64 {
        let commit = self.commit_pages(changes);
        match larger {
            // Opening the database once more gives the storage the length that it lacks.
            true => (commit + self.reserve() / 2)
                .saturating_sub(self.capacity.saturating_sub(len) / BLOCK as u64)
                .max(commit),
            false => commit,
        }
    }

    fn attempt(&mut self, changes: &[Change], proof: Proof) -> Result<Attempt, StoreError> {
        self.reader = None;
        let (before, commits) = (self.bytes, self.commits + 1);
        let written = self.with_storage(|storage| storage.written)?;
        let mut after = before;
        let mut proved = 0;
        let result = self.guard(|database| {
            let transaction = database.writing()?;
            after = database.apply(&transaction, changes)?;
            if proof != Proof::None && !database.overflows() {
                let len = database.with_storage(|storage| storage.len()).unwrap_or(0);
                let wanted = database.wanted_free(after > before, len, changes);
                let pages = match proof {
                    Proof::Plenty => {
                        let most = PLENTY_MAX.min(database.reserve());
                        wanted
                            + database.reserve() / 2
                            + (2 * (pages_touched(changes) + wanted)).min(most)
                    }
                    _ => wanted,
                };
                database.take_and_give_back(&transaction, pages)?;
                proved = pages;
            }
            if database.overflows() {
                transaction.abort()?;
                return Ok(Attempt::NoRoom);
            }
            database.set_strict(true);
            transaction.commit()?;
            database.set_strict(false);
            Ok(Attempt::Done)
        });
        if let Err(error) = result {
            return self.after_refusal(error, commits, after);
        }
        if let Ok(Attempt::Done) = result {
            self.is_settled = false;
            (self.bytes, self.commits) = (after, commits);
            let (written, len) =
                self.with_storage(|storage| (storage.written - written, storage.len()))?;
            self.last_written = written;
            let (free, at_len) = self.known_free;
            let free = if at_len == len { free.max(proved) } else { proved };
            self.known_free = (free.saturating_sub(written), len);
        }
        result
    }

    /// Where the commit itself asked for more than there is, in spite of everything: the database is opened once more,
    /// and says whether the commit is there.
    fn after_refusal(
        &mut self,
        error: StoreError,
        commits: u64,
        bytes: u64,
    ) -> Result<Attempt, StoreError> {
        let refused = self.with_storage(|storage| std::mem::take(&mut storage.refused))?;
        if !refused {
            return Err(error);
        }
        self.failure = None;
        self.with_storage(|storage| {
            storage.reset();
            storage.error = None;
        })?;
        self.known_free = (0, 0);
        self.reopened += 1;
        self.open_redb(false)?;
        self.set_up()?;
        debug_assert!(
            self.commits < commits || self.bytes == bytes,
            "a commit is there as a whole"
        );
        Ok(if self.commits == commits { Attempt::Done } else { Attempt::NoRoom })
    }

    /// Makes the changes in `transaction`, as far as there is room; gives the bytes that the store holds then.
    fn apply(
        &self,
        transaction: &WriteTransaction,
        changes: &[Change],
    ) -> Result<u64, redb::Error> {
        let pair_bytes = |key: &[u8], value: usize| (key.len() + value) as u64 + PAIR_OVERHEAD;
        let mut bytes = self.bytes;
        let mut pairs = transaction.open_table(PAIRS)?;
        for some in changes.chunks(CHECK_EVERY) {
            for (key, value) in some {
                let old = match value {
                    Some(value) => pairs.insert(&key[..], &value[..])?,
                    None => pairs.remove(&key[..])?,
                };
                let less = old.map_or(0, |old| pair_bytes(key, old.value().len()));
                let more = value.as_ref().map_or(0, |value| pair_bytes(key, value.len()));
                bytes = bytes.saturating_add(more).saturating_sub(less);
            }
            if self.overflows() {
                return Ok(bytes);
            }
        }
        drop(pairs);
        let mut state = transaction.open_table(STATE)?;
        state.insert(BYTES, bytes)?;
        state.insert(COMMITS, self.commits + 1)?;
        Ok(bytes)
    }

    fn overflows(&self) -> bool {
        self.with_storage(|storage| storage.overflows()).unwrap_or(true)
    }

    fn set_strict(&self, strict: bool) {
        // Without a storage the transaction has failed already.
        let _ = self.with_storage(|storage| storage.strict = strict);
    }

    /// Allocates up to `pages` pages in `transaction`, as long as there are any, and frees them again.
    fn take_and_give_back(
        &self,
        transaction: &WriteTransaction,
        pages: u64,
    ) -> Result<(), redb::Error> {
        let mut table = transaction.open_table(ROOM)?;
        for page in 0..pages.min(u64::from(u32::MAX)) as u32 {
            table.insert(page, &PAGE_FILLER[..])?;
            if page % CHECK_EVERY as u32 == 0 && self.overflows() {
                break;
            }
        }
        drop(table);
        if !self.overflows() {
            transaction.delete_table(ROOM)?;
        }
        Ok(())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // redb writes to the storage when it is dropped, so it must be dropped first; that may panic.
        let (redb, reader) = (self.redb.take(), self.reader.take());
        let _ = catch_unwind(AssertUnwindSafe(|| drop((reader, redb))));
    }
}

/// Pages of the tables that changes take at most, about.
fn pages_touched(changes: &[Change]) -> u64 {
    let each = changes.iter().map(|(key, value)| {
        let bytes = key.len() + value.as_ref().map_or(0, Vec::len);
        2 + 2 * (bytes / BLOCK) as u64
    });
    16 + each.sum::<u64>()
}

fn told(error: &redb::Error) -> StoreError {
    match error {
        redb::Error::Corrupted(why) => StoreError::Damaged(why.clone()),
        redb::Error::TableTypeMismatch { .. }
        | redb::Error::TableIsMultimap(_)
        | redb::Error::TypeDefinitionChanged { .. } => StoreError::Damaged(error.to_string()),
        _ => StoreError::Failed(error.to_string()),
    }
}

#[cfg(test)]
#[path = "database_tests.rs"]
mod tests;
