//! A snapshot is taken: everything waits for a moment, and what is durable then is what it shows.

use crate::error::VolumeError;
use crate::namespace::may_change;
use crate::volume::Volume;
use braid_filesystem::Ino;
use braid_format::volume::BLOCK;
use braid_format::volume::snapshot::{
    LISTING_NAME, SnapshotRecord, SnapshotState, file_of, is_name, snapshot_of,
};
use braid_shard::plant::planted;
use braid_shard::range_locks::WHOLE;
use std::rc::Rc;

/// A snapshot, as `braid volume snapshot` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotStatus {
    /// Its number.
    pub id: u32,
    /// The folder that it is of, from the root of the volume; `None`: the folder is gone.
    pub folder: Option<String>,
    /// Its name.
    pub name: String,
    /// When it was taken, in seconds since 1970.
    pub created: i64,
    /// It is being removed: what only it has is being freed.
    pub is_going: bool,
}

impl Volume {
    /// Takes a snapshot of a folder. Durable when this comes back.
    ///
    /// # Errors
    /// When there is one of that name, or the name cannot be; when the folder is in a snapshot, has a file `.snapshots` or files
    /// with names elsewhere; when something cannot be put right that a crash has left; when the metadata region is full.
    pub async fn take_snapshot(
        self: &Rc<Self>,
        folder: Ino,
        name: &str,
    ) -> Result<SnapshotStatus, VolumeError> {
        let failed = |errno| VolumeError::File { doing: "taking a snapshot", errno };
        self.transactions.writable().map_err(failed)?;
        if !is_name(name) {
            return Err(VolumeError::Refused(
                "a name of a snapshot has 1 to 255 bytes, no slash and no control characters, and is not \".\" or \"..\"".into(),
            ));
        }
        if may_change(folder).is_err() {
            return Err(VolumeError::Refused(
                "that folder is in a snapshot, which does not change: give the folder itself"
                    .into(),
            ));
        }
        let _taking = self.snapshots.taking.exclusive(WHOLE).await;
        let inode = self.inodes.directory(folder).await.map_err(failed)?;
        if self.namespace.has_name(folder, LISTING_NAME).await.map_err(failed)? {
            return Err(VolumeError::Refused(
                "the folder has something named .snapshots, where its snapshots would be: give that another name".into(),
            ));
        }
        let subvolume = self.make_subvolume(&inode).await?;
        if self.snapshots.of(subvolume).iter().any(|(_, record)| record.name == name) {
            return Err(VolumeError::Refused(format!(
                "the folder has a snapshot {name} already: choose another name, or remove that one first"
            )));
        }
        // Nobody puts right what a snapshot has: its checksums would be those of before a crash, and its copies differ.
        if !planted("snapshot-in-doubt") {
            self.files.wait_settled().await;
            if self.sums.in_doubt() > 0 {
                return Err(VolumeError::Refused(
                    "what was being written when the volume was stopped last is not put right yet, since it cannot be read: the log of \
                     the mount says of which file; take the snapshot when its brick is back, or the file was removed"
                        .into(),
                ));
            }
        }
        // Less is left to do then while everything waits.
        self.sync_all().await.map_err(failed)?;
        let id = self.record.new_snapshot();
        let id =
            id.ok_or_else(|| VolumeError::Refused("no number for a snapshot is left".into()))?;
        let shut = self.gate.shut().await;
        let record = SnapshotRecord {
            subvolume,
            state: SnapshotState::There,
            next_ino: self.record.next_ino(),
            created: self.inodes.now(),
            name: name.to_string(),
        };
        if !planted("snapshot-without-sums") {
            self.sums.record_all();
        }
        self.snapshots.record(id, &record);
        if let Err(error) = self.commits.make_record_durable().await {
            self.transactions.set(braid_format::volume::keys::snapshot(id), None);
            return Err(error.into());
        }
        self.snapshots.set(id, record.clone());
        // Extents in memory are taken for the file's own.
        self.extents.release_all();
        drop(shut);
        Ok(self.snapshot_status(id, &record).await)
    }

    /// All snapshots, the oldest first.
    pub async fn snapshots(&self) -> Vec<SnapshotStatus> {
        let mut all = Vec::new();
        for (id, record) in self.snapshots.all() {
            all.push(self.snapshot_status(id, &record).await);
        }
        all
    }

    /// Bytes that only snapshots have.
    pub fn snapshot_bytes(&self) -> u64 {
        self.record.snapshot_blocks() * BLOCK
    }

    async fn snapshot_status(&self, id: u32, record: &SnapshotRecord) -> SnapshotStatus {
        let folder = match self.snapshots.root_of(record.subvolume) {
            Some(root) => self.path_of(root).await,
            None => None,
        };
        SnapshotStatus {
            id,
            folder,
            name: record.name.clone(),
            created: record.created.seconds,
            is_going: record.state != SnapshotState::There,
        }
    }

    /// The snapshots of a folder, the oldest first. `folder` may also be the folder that lists them, or be in one.
    pub async fn snapshots_of(&self, folder: Ino) -> Vec<SnapshotStatus> {
        let subvolume = self.snapshots.subvolume_at(file_of(folder));
        let subvolume = subvolume.filter(|_| snapshot_of(folder) == 0);
        let mut all = Vec::new();
        for (id, record) in subvolume.map(|id| self.snapshots.of(id)).unwrap_or_default() {
            all.push(self.snapshot_status(id, &record).await);
        }
        all
    }
}
