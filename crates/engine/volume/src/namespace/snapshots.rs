//! Files as they were in a snapshot, and the folder `.snapshots` that lists the snapshots of a folder.
//!
//! Everything in a snapshot is found and read as files are otherwise, by a number that says the snapshot, too. Nothing of it
//! changes.

use super::inode::{Inode, nibble_of};
use super::inodes::Inodes;
use super::tree::Namespace;
use braid_filesystem::{DirEntry, Errno, Ino, Kind};
use braid_format::volume::NO_BRICK;
use braid_format::volume::inode::{FLAG_NO_ATTRIBUTES, InodeRecord, Stamp};
use braid_format::volume::keys;
use braid_format::volume::snapshot::{
    LISTING, LISTING_NAME, Saved, file_of, in_snapshot, snapshot_of,
};
use std::rc::Rc;

/// Refuses to change a file in a snapshot.
///
/// # Errors
/// [`Errno::ReadOnly`].
pub fn may_change(ino: Ino) -> Result<(), Errno> {
    match snapshot_of(ino) == 0 {
        true => Ok(()),
        false => Err(Errno::ReadOnly),
    }
}

/// A file in a snapshot is recorded to have at least so many copies.
pub fn see_copies(inode: &Inode, copies: u8) {
    inode.edit(|record| {
        if record.copies < copies {
            record.set_copies(copies);
        }
    });
}

impl Inodes {
    /// Refuses a file in a snapshot that is no more.
    pub(super) fn check_there(&self, ino: Ino) -> Result<(), Errno> {
        match snapshot_of(ino) {
            0 => Ok(()),
            id if self.snapshots.is_there(id) => Ok(()),
            _ => Err(Errno::Stale),
        }
    }

    /// A file is to have at least so many copies of each stripe also as snapshots see it, so that they look for them.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn set_copies_seen(&self, inode: &Inode, copies: u8) -> Result<(), Errno> {
        let ino = inode.ino();
        let key = keys::inode(ino);
        let failed = |error| self.transactions.store_failed(&error);
        let _held = self.snapshots.versions.exclusive(ino..ino + 1).await;
        let newest = self.snapshots.newest(inode.with(|record| record.subvolume), ino);
        // The store first: see transactions/view.rs.
        let stored = self.transactions.store().get(&key).await.map_err(failed)?;
        let mut saved = self.transactions.all_saved(&key).await.map_err(failed)?;
        let last = saved.last_key_value().map(|(id, _)| *id);
        if let (Some(newest), Some(stored)) = (newest.filter(|newest| last < Some(*newest)), stored)
        {
            saved.insert(newest, Saved::Value(stored));
        }
        let saved = saved.into_iter().filter_map(|(id, saved)| Some((id, saved.value()?)));
        let mut records = Vec::new();
        for (id, value) in saved {
            let record = InodeRecord::parse(ino, &value);
            records.push((id, record.map_err(|error| self.transactions.damaged(&error))?));
        }
        // From here to the end in one step.
        for (id, mut record) in records.into_iter().filter(|(_, record)| record.copies < copies) {
            record.set_copies(copies);
            self.transactions
                .set(keys::saved(&key, id), Some(Saved::Value(record.encode()).encode()));
            self.snapshots.note_saved(id, &key);
        }
        for (id, _) in self.snapshots.all() {
            if let Some(known) = self.known(in_snapshot(ino, id)) {
                see_copies(&known, copies);
            }
        }
        Ok(())
    }

    /// The snapshots for which the record of a file was saved: of those that see it alike the last.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn saved_for(&self, ino: Ino) -> Result<Vec<u32>, Errno> {
        let saved = self.transactions.all_saved(&keys::inode(ino)).await;
        let saved = saved.map_err(|error| self.transactions.store_failed(&error))?;
        let has_value = saved.into_iter().filter(|(_, saved)| matches!(saved, Saved::Value(_)));
        Ok(has_value.map(|(id, _)| id).collect())
    }

    /// The record of a file in a snapshot names other files of it.
    pub(super) fn see_from_inside(&self, ino: Ino, record: &mut InodeRecord) {
        let (id, file) = (snapshot_of(ino), file_of(ino));
        if record.parent == 0 {
            return;
        }
        let subvolume = self.snapshots.get(id).map(|snapshot| snapshot.subvolume);
        let root = subvolume.and_then(|subvolume| self.snapshots.root_of(subvolume));
        record.parent = match root == Some(file) {
            true => in_snapshot(file, LISTING),
            false => in_snapshot(record.parent, id),
        };
    }

    /// The folder that lists the snapshots of a folder.
    pub(super) fn listing(&self, ino: Ino) -> Result<Rc<Inode>, Errno> {
        let folder = file_of(ino);
        let subvolume = self.snapshots.subvolume_at(folder).ok_or(Errno::Stale)?;
        let all = self.snapshots.of(subvolume);
        let Some((id, last)) = all.last() else { return Err(Errno::Stale) };
        let known = self.known(ino);
        if let Some(known) = known.filter(|known| {
            known.with(|record| {
                (record.next_cookie, record.entries) == (u64::from(*id), all.len() as u64)
            })
        }) {
            return Ok(known);
        }
        let changed: Stamp = last.created;
        let record = InodeRecord {
            kind: nibble_of(Kind::Directory),
            perm: 0o555,
            uid: 0,
            gid: 0,
            // Tools take 1 for "not counted".
            nlink: 1,
            rdev: 0,
            flags: FLAG_NO_ATTRIBUTES,
            size: 0,
            blocks: 0,
            generation: 0,
            atime: changed,
            mtime: changed,
            ctime: changed,
            crtime: changed,
            parent: folder,
            next_cookie: (*id).into(),
            entries: all.len() as u64,
            brick: NO_BRICK,
            project: 0,
            copies: 1,
            held: 1,
            subvolume,
            target: Vec::new(),
        };
        self.forget_listing(ino);
        Ok(self.keep(ino, record, true))
    }
}

impl Namespace {
    /// The file behind `name` in a folder: of `.snapshots` in the folder of a subvolume that has some, and of what that
    /// lists. `None`: the names of the folder say it.
    pub(super) fn find_snapshot(&self, parent: Ino, name: &[u8]) -> Option<Result<Ino, Errno>> {
        let snapshots = &self.inodes.snapshots;
        match snapshot_of(parent) {
            0 if name == LISTING_NAME => {
                let subvolume = snapshots.subvolume_at(parent)?;
                let any = !snapshots.of(subvolume).is_empty();
                any.then(|| Ok(in_snapshot(parent, LISTING)))
            }
            LISTING => {
                let subvolume = snapshots.subvolume_at(file_of(parent));
                let all = subvolume.map(|subvolume| snapshots.of(subvolume)).unwrap_or_default();
                let found = all.iter().find(|(_, record)| record.name.as_bytes() == name);
                Some(found.map(|(id, _)| in_snapshot(parent, *id)).ok_or(Errno::NotFound))
            }
            _ => None,
        }
    }

    /// A folder has a file of that name itself.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn has_name(&self, folder: Ino, name: &[u8]) -> Result<bool, Errno> {
        Ok(self.find(folder, name).await?.is_some())
    }

    /// The snapshots of a folder, as entries of `.snapshots`, behind `cookie`.
    pub(super) fn list_snapshots(&self, ino: Ino, cookie: u64, max: usize) -> Vec<DirEntry> {
        let snapshots = &self.inodes.snapshots;
        let subvolume = snapshots.subvolume_at(file_of(ino));
        let all = subvolume.map(|subvolume| snapshots.of(subvolume)).unwrap_or_default();
        let behind = all.into_iter().filter(|(id, _)| u64::from(*id) > cookie);
        let entries = behind.map(|(id, record)| DirEntry {
            ino: in_snapshot(ino, id),
            kind: Kind::Directory,
            cookie: id.into(),
            name: record.name.into_bytes(),
        });
        entries.take(max).collect()
    }

    /// Refuses to bring a file into a folder of another subvolume: its snapshots would not have it as it was.
    pub(super) fn may_come_under(&self, directory: &Inode, inode: &Inode) -> Result<(), Errno> {
        let own = inode.with(|record| record.subvolume);
        let home = self.inodes.snapshots.home_of(inode.ino(), own);
        match directory.with(|record| record.subvolume) == home {
            true => Ok(()),
            false => Err(Errno::CrossDevice),
        }
    }

    /// Refuses to remove a folder that has snapshots; one that has none is no subvolume any more.
    pub(super) fn end_subvolume(&self, inode: &Inode) -> Result<(), Errno> {
        let snapshots = &self.inodes.snapshots;
        let Some(subvolume) = snapshots.subvolume_at(inode.ino()) else { return Ok(()) };
        if snapshots.all().iter().any(|(_, record)| record.subvolume == subvolume) {
            return Err(Errno::Busy);
        }
        Ok(())
    }
}
