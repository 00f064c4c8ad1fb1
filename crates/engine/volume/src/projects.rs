//! Projects: what the files of each take, and how much they may.
//!
//! Every change of a file that changes what its project takes passes [`Projects::changed`], in the step of the change itself, so
//! that a transaction holds both or none of the two. Files without a project (0) are not counted.
//!
//! Does not know names, nor which files have a project: what a project takes is a sum, which a check compares.

use crate::error::VolumeError;
use crate::record::Record;
use crate::transactions::{Part, Transactions};
use crate::watch::{Share, Watches};
use braid_filesystem::{Errno, Ino};
use braid_format::volume::keys;
use braid_format::volume::project::{ProjectRecord, UNLIMITED};
use braid_kv::Change;
use braid_shard::plant::planted;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Bytes of the record of a project, about.
const PROJECT_BYTES: u64 = 60;
/// Projects that are looked for at a time.
const AT_ONCE: usize = 1024;
/// The first number that is given to a folder: those that people choose are mostly smaller.
const FIRST_OF_FOLDERS: u32 = 1 << 24;

/// The projects of a volume.
pub struct Projects {
    transactions: Rc<Transactions>,
    record: Rc<Record>,
    watches: Rc<Watches>,
    known: RefCell<BTreeMap<u32, ProjectRecord>>,
    /// Those that have changed in the open transaction.
    changed: RefCell<BTreeSet<u32>>,
}

impl Projects {
    /// These are recorded.
    pub fn new(
        transactions: Rc<Transactions>,
        record: Rc<Record>,
        watches: Rc<Watches>,
        known: BTreeMap<u32, ProjectRecord>,
    ) -> Projects {
        let known = RefCell::new(known);
        Projects { transactions, record, watches, known, changed: RefCell::default() }
    }

    /// The recorded ones.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn load(
        transactions: &Transactions,
    ) -> Result<BTreeMap<u32, ProjectRecord>, VolumeError> {
        let (mut from, to) = (keys::project(0), keys::after(b"Q"));
        let mut found = BTreeMap::new();
        loop {
            let (pairs, next) = transactions.scan(&from, &to, AT_ONCE).await?;
            for (key, value) in pairs {
                let Some(id) = keys::project_of(&key) else { continue };
                found.insert(id, ProjectRecord::parse(id, &value)?);
            }
            match next {
                Some(next) => from = next,
                None => return Ok(found),
            }
        }
    }

    /// All that are known.
    pub fn all(&self) -> Vec<(u32, ProjectRecord)> {
        self.known.borrow().iter().map(|(id, project)| (*id, *project)).collect()
    }

    /// One; as empty as can be where nothing is known of it.
    pub fn get(&self, id: u32) -> ProjectRecord {
        self.known.borrow().get(&id).copied().unwrap_or_default()
    }

    /// Changes the record of a project in the open transaction.
    pub fn edit<T>(&self, id: u32, change: impl FnOnce(&mut ProjectRecord) -> T) -> T {
        let mut known = self.known.borrow_mut();
        if self.changed.borrow_mut().insert(id) {
            self.transactions.object_changed(PROJECT_BYTES);
        }
        let project = known.entry(id).or_default();
        let result = change(project);
        if project.is_empty() {
            known.remove(&id);
        }
        // A braid that does not count must not write to the volume.
        self.record.set_counted(!known.is_empty());
        result
    }

    /// File `ino` has another share now; none before: it is new, none after: it is no more.
    pub fn changed(&self, ino: Ino, before: Option<Share>, after: Option<Share>) {
        if before == after {
            return;
        }
        for (share, is_more) in [(before, false), (after, true)] {
            let Some(Share { project, blocks }) = share.filter(|share| share.project != 0) else {
                continue;
            };
            let files = u64::from(!planted("use-forgets-removed") || is_more || after.is_some());
            self.edit(project, |record| {
                let (all, some) = (&mut record.blocks, &mut record.files);
                // Less than nothing is damage, which a check mends.
                (*all, *some) = match is_more {
                    true => (all.saturating_add(blocks), some.saturating_add(files)),
                    false => (all.saturating_sub(blocks), some.saturating_sub(files)),
                };
            });
        }
        let gone = before.filter(|_| after.is_none()).map_or(0, |share| share.project);
        if gone != 0 && self.get(gone).folder == ino {
            // The folder with the limit is no more; what it held is, or is somewhere else.
            self.edit(gone, |record| {
                let (blocks, files) = (record.blocks, record.files);
                *record = ProjectRecord { blocks, files, ..ProjectRecord::default() };
            });
        }
        self.watches.tell(|watch| watch.share(ino, before, after));
    }

    /// Blocks that files of a project may take yet.
    pub fn room(&self, id: u32) -> u64 {
        let known = self.known.borrow();
        let limited = known.get(&id).filter(|record| record.blocks_max != UNLIMITED && id != 0);
        limited.map_or(UNLIMITED, |record| record.blocks_max.saturating_sub(record.blocks))
    }

    /// Refuses one more file of a project that has as many as it may.
    ///
    /// # Errors
    /// [`Errno::Quota`].
    pub fn may_add_file(&self, id: u32) -> Result<(), Errno> {
        let record = self.get(id);
        match id == 0 || record.files < record.files_max {
            true => Ok(()),
            false => Err(Errno::Quota),
        }
    }

    /// Refuses a file with so many blocks that is to come into the project.
    ///
    /// # Errors
    /// [`Errno::Quota`].
    pub fn may_receive(&self, id: u32, blocks: u64) -> Result<(), Errno> {
        self.may_add_file(id)?;
        if blocks > 0 && blocks > self.room(id) { Err(Errno::Quota) } else { Ok(()) }
    }

    /// A number for the project of a folder.
    pub fn new_id(&self) -> Option<u32> {
        let last = self.known.borrow().last_key_value().map_or(0, |(id, _)| *id);
        last.checked_add(1).map(|id| id.max(FIRST_OF_FOLDERS))
    }
}

impl Part for Projects {
    fn is_dirty(&self) -> bool {
        !self.changed.borrow().is_empty()
    }

    fn close(&self) -> Vec<Change> {
        let known = self.known.borrow();
        let changed = self.changed.take().into_iter();
        changed.map(|id| (keys::project(id), known.get(&id).map(ProjectRecord::encode))).collect()
    }
}
