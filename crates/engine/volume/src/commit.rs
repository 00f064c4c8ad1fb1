//! Commits: the open transaction is closed, bricks are flushed, one batch goes to the store.

use crate::brick::Brick;
use crate::transaction_nr::TransactionNr;
use crate::volume::Volume;
use braid_device::Request;
use braid_filesystem::{Errno, Ino};
use braid_format::volume::extent::encode;
use braid_format::volume::keys;
use braid_kv::{Begun, Change, StoreError};
use braid_shard::Shard;
use braid_shard::plant::planted;
use std::cell::Cell;
use std::rc::{Rc, Weak};

/// The longest that a change waits for its commit, unless somebody asks before: what Linux's file systems do.
const INTERVAL_NANOS: u64 = 5_000_000_000;

/// Starts the tasks that commit: when asked, and every few seconds.
pub(crate) fn start(shard: &Shard, volume: &Weak<Volume>) {
    let weak = Weak::clone(volume);
    shard.spawn(async move {
        while let Some(volume) = weak.upgrade() {
            if !volume.transactions.wait_wanted().await {
                break;
            }
            volume.commit().await;
        }
    });
    let weak = Weak::clone(volume);
    let clock = shard.clone();
    shard.spawn(async move {
        loop {
            clock.sleep(INTERVAL_NANOS).await;
            let Some(volume) = weak.upgrade() else { break };
            if volume.transactions.is_ended() {
                break;
            }
            if volume.has_changes() {
                volume.transactions.ask(volume.transactions.number());
            }
            volume.flush_when_full().await;
        }
    });
}

impl Volume {
    fn has_changes(&self) -> bool {
        let spaces = self.bricks.borrow().values().any(|brick| brick.space.is_dirty());
        spaces
            || self.record_changed.get()
            || self.placement_changed.get()
            || !self.transactions.is_clean()
    }

    /// Commits the open transaction.
    async fn commit(&self) {
        let closed = self.transactions.close();
        let mut records: Vec<Change> = Vec::new();
        for (ino, inode) in &closed.inodes {
            records.push((keys::inode(*ino), Some(inode.with(|record| record.encode()))));
        }
        for ((ino, group), extents) in &closed.extents {
            if let Some(inode) = self.inodes.get(*ino) {
                inode.unstored.set(false);
            }
            records.push((keys::extents(*ino, *group), encode(&extents.list())));
        }
        let bricks = self.bricks();
        for brick in &bricks {
            records.extend(brick.space.close());
        }
        if self.record_changed.replace(false) {
            records.push((keys::VOLUME.to_vec(), Some(self.record.borrow().encode())));
        }
        if self.placement_changed.replace(false) {
            records.push((keys::BUCKETS.to_vec(), Some(self.buckets.borrow().to_bytes())));
            for brick in &bricks {
                records.push((keys::brick(brick.id), Some(brick.record().encode())));
            }
        }
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
        for brick in &bricks {
            brick.space.committed();
        }
        self.transactions.committed(closed.number);
    }

    /// Makes data durable, then the metadata that names it, which the store prepares meanwhile.
    async fn write_batch(&self, batch: Vec<Change>) -> Result<(), StoreError> {
        let store = self.transactions.store();
        let mut unflushed = self.unflushed();
        if planted("metadata-before-data") {
            unflushed.clear();
        }
        let begun = match batch.is_empty() || unflushed.is_empty() {
            true => Err(batch),
            false => store.begin_commit(batch),
        };
        self.flush_bricks(&unflushed).await;
        self.note_failed_bricks().await?;
        match begun {
            Ok(Begun { go, done }) => {
                go();
                done.await
            }
            Err(batch) if batch.is_empty() => Ok(()),
            Err(batch) => store.commit(batch).await,
        }
    }

    /// The next commit may name data that a brick had not made durable when it failed: should the brick be back at the
    /// next mount, it must not be used as if it had all of it. Requests to the store made here wait for the commit.
    async fn note_failed_bricks(&self) -> Result<(), StoreError> {
        for brick in self.bricks().iter().filter(|brick| brick.failed_unnoted()) {
            (self.note_lost)(brick.id).await?;
            brick.failure_noted();
        }
        Ok(())
    }

    /// The bricks that have been written to since they were flushed, with the writes that had completed.
    fn unflushed(&self) -> Vec<(Rc<Brick>, u64)> {
        let bricks = self.bricks.borrow();
        bricks.values().filter_map(|brick| Some((Rc::clone(brick), brick.unflushed()?))).collect()
    }

    /// Flushes those bricks of `written` on which that many writes are not durable yet.
    async fn flush_bricks(&self, written: &[(Rc<Brick>, u64)]) {
        let mut flushes = self.io.start();
        let mut waiting = Vec::new();
        for (brick, needed) in written {
            let unflushed = brick.unflushed().filter(|_| !brick.has_flushed(*needed));
            let (Some(device), Some(written)) = (brick.device(), unflushed) else { continue };
            if !device.info().volatile_cache {
                brick.flushed(written);
                continue;
            }
            flushes.submit(waiting.len() as u32, &*device, Request::flush());
            waiting.push((brick, written));
        }
        // One by one: what a brick gives whose flush has failed may be old already.
        while let Some((tag, outcome)) = flushes.next().await {
            let (brick, written) = &waiting[tag as usize];
            match outcome.result {
                // After one that failed, a flush that succeeds says nothing.
                Ok(()) if brick.is_there() => brick.flushed(*written),
                Ok(()) => {}
                Err(error) => self.flush_failed(brick, error),
            }
        }
    }

    /// Waits until transaction `needed` and all data written before this call are durable. After a flush that failed
    /// meanwhile it is not known what of the data is on the brick, also when a later one succeeds.
    async fn make_durable(&self, needed: TransactionNr) -> Result<(), Errno> {
        let failures = self.flush_failures.get();
        let mut written = self.unflushed();
        if planted("fsync-without-data") {
            written.clear();
        }
        if needed > self.transactions.durable() && !planted("fsync-without-commit") {
            let waited = self.transactions.wait_durable(needed).await;
            waited.map_err(|error| self.store_failed(&error))?;
        }
        // Overwritten data needs no commit; a commit that ended meanwhile has flushed it, too.
        self.flush_bricks(&written).await;
        if self.flush_failures.get() == failures { Ok(()) } else { Err(Errno::Io) }
    }

    /// See [`braid_filesystem::FileSystem::fsync_since`]. Without `told`, the first who asks is told for all of those who
    /// have none.
    pub(crate) async fn sync_file(
        &self,
        ino: Ino,
        data_only: bool,
        told: Option<&Cell<u64>>,
    ) -> Result<(), Errno> {
        let inode = self.inode(ino).await?;
        let told = told.unwrap_or(&inode.lost_told);
        let durable = self.make_durable(inode.needed(data_only)).await;
        let lost = inode.lost.get();
        let is_new = lost > told.get();
        told.set(lost.max(told.get()));
        inode.lost_told.set(lost);
        if is_new { Err(Errno::Io) } else { durable }
    }

    /// See [`braid_filesystem::FileSystem::sync`].
    pub async fn sync_all(&self) -> Result<(), Errno> {
        let number = self.transactions.number();
        let needed = if self.has_changes() { number } else { number - 1 };
        self.make_durable(needed).await
    }

    /// Ends the volume in order: everything is durable afterwards, and nothing runs any more.
    ///
    /// # Errors
    /// When a commit failed.
    pub async fn close(self: &Rc<Self>) -> Result<(), Errno> {
        self.suspend_job().await;
        let synced = self.sync_all().await;
        self.transactions.end();
        synced
    }
}
