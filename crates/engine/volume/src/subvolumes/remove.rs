//! A snapshot is removed: nobody reads it any more, and what only it has is freed, in steps that each leave a whole state.
//!
//! A value that was saved for it is still of use if an older snapshot has none of its own: it is saved for that one then. Otherwise
//! it goes, and its extents with it that no other version has. As long as that is under way files treat it as if it were
//! there: what they change is saved for it, and goes in the end.

use crate::error::VolumeError;
use crate::volume::Volume;
use braid_filesystem::{Errno, Ino};
use braid_format::volume::inode::InodeRecord;
use braid_format::volume::keys;
use braid_format::volume::snapshot::{Saved, SnapshotRecord, SnapshotState};
use braid_shard::range_locks::WHOLE;
use std::rc::Rc;

/// Saved values that are looked for at a time.
const AT_ONCE: usize = 256;
/// Values that go in one step, while changes wait.
const STEP: usize = 32;
/// Tries to free what a snapshot has: a brick that fails meanwhile makes one of them fail.
const TRIES: u32 = 5;
/// The pause between two tries, in nanoseconds.
const PAUSE_NANOS: u64 = 1_000_000_000;

impl Volume {
    /// Removes a snapshot: it cannot be read any more when this comes back, which is durable. The space is freed after that.
    ///
    /// # Errors
    /// When there is none of that name, or nothing can be changed.
    pub async fn remove_snapshot(
        self: &Rc<Self>,
        folder: Ino,
        name: &str,
    ) -> Result<(), VolumeError> {
        let failed = |errno| VolumeError::File { doing: "removing a snapshot", errno };
        self.transactions.writable().map_err(failed)?;
        let _taking = self.snapshots.taking.exclusive(WHOLE).await;
        let subvolume = self.snapshots.subvolume_at(folder);
        let all = subvolume.map(|subvolume| self.snapshots.of(subvolume)).unwrap_or_default();
        let Some((id, record)) = all.iter().find(|(_, record)| record.name == name).cloned() else {
            let names: Vec<&str> = all.iter().map(|(_, record)| &record.name[..]).collect();
            return Err(VolumeError::Refused(match names.is_empty() {
                true => "the folder has no snapshots".into(),
                false => format!("the folder has no snapshot {name}; it has: {}", names.join(", ")),
            }));
        };
        self.set_state(id, &record, SnapshotState::Going);
        if let Err(error) = self.commits.make_record_durable().await {
            self.set_state(id, &record, SnapshotState::There);
            return Err(error.into());
        }
        // Reads that have begun come to an end.
        drop(self.snapshots.readers.shut().await);
        self.inodes.forget_snapshot(id);
        self.namespace.forget_names();
        self.start_freeing(id);
        Ok(())
    }

    /// Goes on with what an earlier life left unfinished.
    pub(crate) fn resume_snapshots(self: &Rc<Self>) {
        self.resume_marking();
        for (id, record) in self.snapshots.all() {
            if record.state != SnapshotState::There {
                self.start_freeing(id);
            }
        }
    }

    fn set_state(&self, id: u32, record: &SnapshotRecord, state: SnapshotState) {
        let record = SnapshotRecord { state, ..record.clone() };
        self.snapshots.record(id, &record);
        self.snapshots.set(id, record);
    }

    fn start_freeing(self: &Rc<Self>, id: u32) {
        let (weak, shard) = (Rc::downgrade(self), self.shard.clone());
        let snapshots = Rc::clone(&self.snapshots);
        snapshots.freeing_begins();
        self.shard.spawn(async move {
            let mut tries = 0;
            // Nothing keeps the volume from being unmounted in a pause.
            while let Some(own) = weak.upgrade() {
                let Err(error) = own.free_snapshot(id).await else { break };
                tries += 1;
                if tries == TRIES || own.transactions.writable().is_err() {
                    tracing::warn!(
                        snapshot = id,
                        "freeing what only a removed snapshot has: {error}; the next mount tries again"
                    );
                    break;
                }
                drop(own);
                shard.sleep(PAUSE_NANOS).await;
            }
            snapshots.freeing_ends();
        });
    }

    async fn free_snapshot(&self, id: u32) -> Result<(), Errno> {
        let _freeing = self.snapshots.freeing.exclusive(WHOLE).await;
        let Some(record) = self.snapshots.get(id) else { return Ok(()) };
        if record.state == SnapshotState::Going {
            let mut cursor = Some(b"Z".to_vec());
            while let Some(from) = cursor.take() {
                let (found, next) = self.saved_for(id, &from).await?;
                for step in found.chunks(STEP) {
                    if self.transactions.is_ended() {
                        return Ok(());
                    }
                    self.let_go_of(id, step).await?;
                }
                cursor = next;
            }
            loop {
                let late: Vec<Vec<u8>> = self.snapshots.take_late().into_iter().collect();
                // The commit that saves them may be under way.
                self.commits.sync_all().await?;
                for step in late.chunks(STEP) {
                    if self.transactions.is_ended() {
                        return Ok(());
                    }
                    self.let_go_of(id, step).await?;
                }
                if late.len() <= STEP {
                    break;
                }
            }
            self.end_snapshot(id, &record).await?;
        }
        self.sweep(id).await
    }

    /// The keys of which something is saved for a snapshot, some from `from` on, and where to go on.
    async fn saved_for(
        &self,
        id: u32,
        from: &[u8],
    ) -> Result<(Vec<Vec<u8>>, Option<Vec<u8>>), Errno> {
        self.shard.next_turn().await;
        let (pairs, next) = self.transactions.scanned(from, &keys::after(b"Z"), AT_ONCE).await?;
        let own = pairs.iter().filter_map(|(key, _)| keys::saved_of(key));
        let own = own.filter(|(_, other)| *other == id).map(|(of, _)| of.to_vec());
        Ok((own.collect(), next))
    }

    /// The values that were saved of these records for a snapshot go, or are saved for an older one.
    async fn let_go_of(&self, id: u32, of: &[Vec<u8>]) -> Result<(), Errno> {
        {
            let _shut = self.gate.shut().await;
            for key in of {
                self.let_go_of_one(id, key).await?;
            }
        }
        self.transactions.room().await;
        Ok(())
    }

    async fn let_go_of_one(&self, id: u32, key: &[u8]) -> Result<(), Errno> {
        let failed = |error| self.transactions.store_failed(&error);
        let saved = self.transactions.all_saved(key).await.map_err(failed)?;
        let (Some(value), Some(ino)) = (saved.get(&id), keys::ino_of(key)) else { return Ok(()) };
        if *value == Saved::Gone {
            return Ok(());
        }
        let subvolume = self.subvolume_of(ino).await?;
        let before =
            |id| subvolume.and_then(|subvolume| self.snapshots.newest_before(id, subvolume, ino));
        let (older, newest) = (before(id), before(u32::MAX));
        let has_own = |older: u32| saved.range(older..id).any(|(_, saved)| *saved != Saved::Gone);
        if let Some(older) = older.filter(|older| !has_own(*older)) {
            self.transactions.set(keys::saved(key, older), Some(value.clone().encode()));
        } else if let Some(group) = keys::second_of(key).filter(|_| key.first() == Some(&b'P')) {
            self.extents.drop_version(ino, group, id, newest).await?;
        }
        self.transactions.set(keys::saved(key, id), Some(Saved::Gone.encode()));
        Ok(())
    }

    /// The subvolume of a file as it was committed last, or was in any snapshot.
    async fn subvolume_of(&self, ino: Ino) -> Result<Option<u16>, Errno> {
        let failed = |error| self.transactions.store_failed(&error);
        let key = keys::inode(ino);
        // Of a file that was removed since: the one that it belonged to last. Its folder may have become one after older
        // snapshots were taken.
        let stored = self.transactions.store().get(&key).await.map_err(failed)?;
        let value = match stored {
            Some(stored) => Some(stored),
            None => {
                let saved = self.transactions.all_saved(&key).await.map_err(failed)?;
                saved.into_values().rev().find_map(Saved::value)
            }
        };
        value.map(|bytes| self.subvolume_in(ino, &bytes)).transpose()
    }

    fn subvolume_in(&self, ino: Ino, bytes: &[u8]) -> Result<u16, Errno> {
        let record = InodeRecord::parse(ino, bytes);
        Ok(record.map_err(|error| self.transactions.damaged(&error))?.subvolume)
    }

    /// Nothing is saved for a snapshot any more from here on.
    async fn end_snapshot(&self, id: u32, record: &SnapshotRecord) -> Result<(), Errno> {
        let _shut = self.gate.shut().await;
        // Saves what was changed since the last commit.
        self.commits.sync_all().await?;
        for key in self.snapshots.take_late() {
            self.let_go_of_one(id, &key).await?;
        }
        self.set_state(id, record, SnapshotState::Empty);
        self.commits.sync_all().await?;
        self.extents.release_all();
        Ok(())
    }

    /// Takes away the marks that an empty snapshot has left, and its record.
    async fn sweep(&self, id: u32) -> Result<(), Errno> {
        let mut cursor = Some(b"Z".to_vec());
        while let Some(from) = cursor.take() {
            if self.transactions.is_ended() {
                return Ok(());
            }
            let (found, next) = self.saved_for(id, &from).await?;
            for key in found {
                self.transactions.set(keys::saved(&key, id), None);
            }
            self.transactions.room().await;
            cursor = next;
        }
        self.snapshots.forget(id);
        self.sums.forget_unseen().await
    }
}
