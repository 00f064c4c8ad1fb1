//! The snapshots and subvolumes of a volume: which there are, and which of them see a file.

use crate::gate::Gate;
use crate::transactions::Transactions;
use braid_filesystem::{Ino, ROOT};
use braid_format::volume::snapshot::{SnapshotRecord, SnapshotState, SubvolumeRecord};
use braid_format::volume::{RecordError, keys};
use braid_kv::StoreError;
use braid_shard::Shard;
use braid_shard::range_locks::RangeLocks;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Records that are looked for at a time.
const AT_ONCE: usize = 1024;

/// The recorded snapshots and subvolumes.
#[derive(Default)]
pub struct Recorded {
    snapshots: BTreeMap<u32, SnapshotRecord>,
    subvolumes: BTreeMap<u16, SubvolumeRecord>,
}

/// The snapshots of a volume.
pub struct Snapshots {
    transactions: Rc<Transactions>,
    list: RefCell<BTreeMap<u32, SnapshotRecord>>,
    subvolumes: RefCell<BTreeMap<u16, SubvolumeRecord>>,
    /// Grows whenever it changes which snapshots see what.
    changes: Cell<u64>,
    /// Readers of data of files in snapshots are inside: what they read is not freed, or moved, meanwhile.
    pub readers: Rc<Gate>,
    /// Held while saved extents of a file change.
    pub versions: Rc<RangeLocks>,
    /// Held while a snapshot is taken, or taken away.
    pub taking: Rc<RangeLocks>,
    /// Held while the blocks are freed that only a removed one has.
    pub freeing: Rc<RangeLocks>,
    /// The number that are being freed now.
    freeing_now: Cell<u32>,
    /// Keys of which something was saved for a snapshot that is being removed.
    late: RefCell<BTreeSet<Vec<u8>>>,
}

impl Recorded {
    /// The recorded ones.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn load(transactions: &Transactions) -> Result<Recorded, StoreError> {
        let damaged = |error: RecordError| StoreError::Damaged(error.to_string());
        let mut found = Recorded::default();
        for tag in [&b"N"[..], b"U"] {
            let (mut cursor, end) = (Some(tag.to_vec()), keys::after(tag));
            while let Some(from) = cursor.take() {
                let (pairs, next) = transactions.scan(&from, &end, AT_ONCE).await?;
                for (key, value) in pairs {
                    if let Some(id) = keys::snapshot_of(&key) {
                        found
                            .snapshots
                            .insert(id, SnapshotRecord::parse(id, &value).map_err(damaged)?);
                    } else if let Some(id) = keys::subvolume_of(&key) {
                        found
                            .subvolumes
                            .insert(id, SubvolumeRecord::parse(id, &value).map_err(damaged)?);
                    }
                }
                cursor = next;
            }
        }
        Ok(found)
    }
}

impl Snapshots {
    /// As recorded.
    pub fn new(shard: &Shard, transactions: Rc<Transactions>, recorded: Recorded) -> Snapshots {
        let snapshots = Snapshots {
            transactions,
            list: RefCell::new(recorded.snapshots),
            subvolumes: RefCell::new(recorded.subvolumes),
            changes: Cell::new(0),
            readers: Gate::new(shard),
            versions: RangeLocks::new(shard),
            taking: RangeLocks::new(shard),
            freeing: RangeLocks::new(shard),
            freeing_now: Cell::new(0),
            late: RefCell::default(),
        };
        snapshots.note_change();
        snapshots
    }

    fn note_change(&self) {
        self.changes.set(self.changes.get() + 1);
        let known = self.list.borrow().keys().copied().collect();
        self.transactions.note_snapshots(known);
    }

    /// The number of times so far that it has changed which snapshots see what.
    pub fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Some snapshot sees files: values are saved for it.
    pub fn any(&self) -> bool {
        self.list.borrow().values().any(|record| record.state != SnapshotState::Empty)
    }

    /// Snapshot `id`.
    pub fn get(&self, id: u32) -> Option<SnapshotRecord> {
        self.list.borrow().get(&id).cloned()
    }

    /// All, by number.
    pub fn all(&self) -> Vec<(u32, SnapshotRecord)> {
        self.list.borrow().iter().map(|(id, record)| (*id, record.clone())).collect()
    }

    /// Snapshot `id` can be read.
    pub fn is_there(&self, id: u32) -> bool {
        self.list.borrow().get(&id).is_some_and(|record| record.state == SnapshotState::There)
    }

    /// A task begins to free what a removed snapshot has.
    pub fn freeing_begins(&self) {
        self.freeing_now.set(self.freeing_now.get() + 1);
    }

    /// See [`freeing_begins`](Snapshots::freeing_begins): it was freed, or cannot be before the next mount.
    pub fn freeing_ends(&self) {
        self.freeing_now.set(self.freeing_now.get() - 1);
    }

    /// Some snapshot is being removed, and has something still, which will be freed before long.
    pub fn any_going(&self) -> bool {
        self.freeing_now.get() > 0
            && self.list.borrow().values().any(|record| record.state == SnapshotState::Going)
    }

    /// Those of a subvolume that can be read, by number.
    pub fn of(&self, subvolume: u16) -> Vec<(u32, SnapshotRecord)> {
        let mut all = self.all();
        all.retain(|(_, record)| {
            record.subvolume == subvolume && record.state == SnapshotState::There
        });
        all
    }

    /// Records a snapshot in the open transaction.
    pub fn record(&self, id: u32, record: &SnapshotRecord) {
        self.transactions.set(keys::snapshot(id), Some(record.encode()));
    }

    /// A snapshot is there from now on, or is in another state: as it is recorded.
    pub fn set(&self, id: u32, record: SnapshotRecord) {
        self.list.borrow_mut().insert(id, record);
        self.note_change();
    }

    /// A snapshot is no more.
    pub fn forget(&self, id: u32) {
        self.transactions.set(keys::snapshot(id), None);
        self.list.borrow_mut().remove(&id);
        let gone: Vec<u16> = {
            let subvolumes = self.subvolumes.borrow();
            subvolumes.iter().filter(|(_, record)| record.gone).map(|(id, _)| *id).collect()
        };
        for subvolume in gone.into_iter().filter(|id| !self.is_seen(*id)) {
            self.set_subvolume(subvolume, None);
        }
        self.note_change();
    }

    /// Some snapshot has files of a subvolume.
    fn is_seen(&self, subvolume: u16) -> bool {
        self.list.borrow().values().any(|record| self.sees(record.subvolume, subvolume))
    }

    /// A folder was removed. If it was that of a subvolume, this is known as long as a snapshot of one around it has files of
    /// it.
    pub fn lose_folder(&self, folder: Ino) {
        let Some(id) = self.subvolume_at(folder) else { return };
        let record = self.subvolume(id).filter(|_| self.is_seen(id));
        self.set_subvolume(id, record.map(|record| SubvolumeRecord { gone: true, ..record }));
    }

    /// The subvolume whose folder this is.
    pub fn subvolume_at(&self, folder: Ino) -> Option<u16> {
        if folder == ROOT {
            return Some(0);
        }
        let subvolumes = self.subvolumes.borrow();
        subvolumes.iter().find(|(_, record)| record.root == folder).map(|(id, _)| *id)
    }

    /// A subvolume; the volume's root has none.
    pub fn subvolume(&self, id: u16) -> Option<SubvolumeRecord> {
        self.subvolumes.borrow().get(&id).copied()
    }

    /// The folder of a subvolume.
    pub fn root_of(&self, subvolume: u16) -> Option<Ino> {
        if subvolume == 0 { Some(ROOT) } else { Some(self.subvolume(subvolume)?.root) }
    }

    /// Notes a subvolume, in the open transaction; `None`: it is no more.
    pub fn set_subvolume(&self, id: u16, record: Option<SubvolumeRecord>) {
        self.transactions.set(keys::subvolume(id), record.map(|record| record.encode()));
        match record {
            Some(record) => drop(self.subvolumes.borrow_mut().insert(id, record)),
            None => drop(self.subvolumes.borrow_mut().remove(&id)),
        }
        self.note_change();
    }

    /// Subvolumes that are not made yet.
    pub fn unmade(&self) -> Vec<u16> {
        let subvolumes = self.subvolumes.borrow();
        subvolumes.iter().filter(|(_, record)| !record.made).map(|(id, _)| *id).collect()
    }

    /// The subvolume that the entry of a folder belongs to, whose file says `own`: the folder of a subvolume lies in another.
    pub fn home_of(&self, ino: Ino, own: u16) -> u16 {
        match self.subvolume(own).filter(|record| record.root == ino) {
            Some(record) => record.parent,
            None => own,
        }
    }

    /// A snapshot of subvolume `of` sees files of subvolume `subvolume`.
    fn sees(&self, of: u16, mut subvolume: u16) -> bool {
        // Damaged ones could lie in each other.
        for _ in 0..=self.subvolumes.borrow().len() {
            if subvolume == of {
                return true;
            }
            match self.subvolume(subvolume) {
                Some(record) => subvolume = record.parent,
                None => return of == 0,
            }
        }
        false
    }

    /// The newest snapshot that sees a file of a subvolume, of those before `before`; also one that is being removed.
    pub fn newest_before(&self, before: u32, subvolume: u16, ino: Ino) -> Option<u32> {
        let list = self.list.borrow();
        let sees = |record: &SnapshotRecord| {
            record.state != SnapshotState::Empty
                && ino < record.next_ino
                && self.sees(record.subvolume, subvolume)
        };
        list.range(..before).rev().find(|(_, record)| sees(record)).map(|(id, _)| *id)
    }

    /// The newest snapshot that sees a file of a subvolume.
    pub fn newest(&self, subvolume: u16, ino: Ino) -> Option<u32> {
        if self.list.borrow().is_empty() {
            return None;
        }
        self.newest_before(u32::MAX, subvolume, ino)
    }

    /// Files from this number on are in no snapshot.
    pub fn next_ino(&self) -> Ino {
        self.list.borrow().values().map(|record| record.next_ino).max().unwrap_or(0)
    }

    /// All snapshots are of the volume as a whole.
    pub fn all_of_root(&self) -> bool {
        self.list.borrow().values().all(|record| record.subvolume == 0)
    }

    /// A value was saved for snapshot `id`.
    pub fn note_saved(&self, id: u32, key: &[u8]) {
        let list = self.list.borrow();
        if list.get(&id).is_some_and(|record| record.state == SnapshotState::Going) {
            self.late.borrow_mut().insert(key.to_vec());
        }
    }

    /// The keys of which something was saved, since this was asked last, for a snapshot that is being removed.
    pub fn take_late(&self) -> BTreeSet<Vec<u8>> {
        self.late.take()
    }
}
