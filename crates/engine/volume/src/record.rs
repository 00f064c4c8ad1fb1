//! The volume's own record: the numbers that are given once, the proxy, and whether all stripes are where they belong.

use crate::transactions::Part;
use braid_filesystem::{Errno, Ino};
use braid_format::volume::keys;
use braid_format::volume::snapshot::{INO_END, SNAPSHOT_END};
use braid_format::volume::volume_record::VolumeRecord;
use braid_kv::Change;
use std::cell::{Cell, RefCell};
use uuid::Uuid;

/// The record of a volume.
pub struct Record {
    record: RefCell<VolumeRecord>,
    changed: Cell<bool>,
    missed: Cell<u64>,
}

impl Record {
    /// As recorded.
    pub fn new(record: VolumeRecord) -> Record {
        Record { record: RefCell::new(record), changed: Cell::new(false), missed: Cell::new(0) }
    }

    fn edit<T>(&self, change: impl FnOnce(&mut VolumeRecord) -> T) -> T {
        self.changed.set(true);
        change(&mut self.record.borrow_mut())
    }

    /// Which volume it is.
    pub fn uuid(&self) -> Uuid {
        self.record.borrow().uuid
    }

    /// Blocks of files have checksums.
    pub fn has_checksums(&self) -> bool {
        self.record.borrow().checksums
    }

    /// The number of the next new file.
    pub fn next_ino(&self) -> Ino {
        self.record.borrow().next_ino
    }

    /// A number for a new file.
    ///
    /// # Errors
    /// [`Errno::NoSpace`] when there are none left, which only damage brings about.
    pub fn new_ino(&self) -> Result<Ino, Errno> {
        self.edit(|record| {
            let ino = record.next_ino;
            if ino >= INO_END {
                return Err(Errno::NoSpace);
            }
            record.next_ino = ino + 1;
            Ok(ino)
        })
    }

    /// New files get no number below `limit` from now on.
    pub fn skip_inos(&self, limit: Ino) {
        self.edit(|record| record.next_ino = record.next_ino.max(limit));
    }

    /// The number of the next new brick.
    pub fn next_brick(&self) -> u16 {
        self.record.borrow().next_brick
    }

    /// The brick of number `id` is new; it is the proxy if `proxy` says so.
    pub fn brick_added(&self, id: u16, proxy: bool) {
        self.edit(|record| {
            record.next_brick = id + 1;
            if proxy {
                record.proxy = Some(id);
            }
        });
    }

    /// The brick that takes all new stripes first.
    pub fn proxy(&self) -> Option<u16> {
        self.record.borrow().proxy
    }

    /// Changes which brick takes all new stripes first.
    pub fn set_proxy(&self, proxy: Option<u16>) {
        self.edit(|record| record.proxy = proxy);
    }

    /// Brick `id` is not the proxy, or is not any more.
    pub fn no_proxy(&self, id: u16) {
        self.edit(|record| {
            if record.proxy == Some(id) {
                record.proxy = None;
            }
        });
    }

    /// Stripes lie elsewhere than placement says, or may.
    pub fn is_unbalanced(&self) -> bool {
        self.record.borrow().unbalanced
    }

    /// A stripe is elsewhere than placement says.
    pub fn note_unbalanced(&self) {
        if !self.is_unbalanced() {
            self.edit(|record| record.unbalanced = true);
        }
    }

    /// Buckets have another brick, `moved` of them.
    pub fn buckets_moved(&self, moved: usize) {
        self.edit(|record| record.unbalanced |= moved > 0);
    }

    /// There are records of projects, or none.
    pub fn set_counted(&self, counted: bool) {
        if self.record.borrow().counted != counted {
            self.edit(|record| record.counted = counted);
        }
    }

    /// Files may have copies.
    pub fn has_copies(&self) -> bool {
        self.record.borrow().copies
    }

    /// Some files are to have copies, so a braid that does not know of them must not write to the volume.
    pub fn note_copies(&self) {
        if !self.has_copies() {
            self.edit(|record| record.copies = true);
        }
    }

    /// Some copies miss something, or are not there.
    pub fn is_incomplete(&self) -> bool {
        self.record.borrow().incomplete
    }

    /// A copy misses something, or could not be made.
    pub fn note_incomplete(&self) {
        self.missed.set(self.missed.get() + 1);
        if !self.is_incomplete() {
            self.edit(|record| record.incomplete = true);
        }
    }

    /// The number of copies so far that missed something.
    pub fn missed(&self) -> u64 {
        self.missed.get()
    }

    /// All copies are there, and were when so many had missed something.
    pub fn set_complete(&self, missed: u64) {
        if self.is_incomplete() && self.missed.get() == missed {
            self.edit(|record| record.incomplete = false);
        }
    }

    /// Files have let blocks go that snapshots have, too.
    pub fn snapshots_hold(&self, blocks: u64) {
        self.edit(|record| {
            record.snapshot_blocks = record.snapshot_blocks.saturating_add(blocks);
        });
    }

    /// Snapshots have let blocks go that nobody else has.
    pub fn snapshots_free(&self, blocks: u64) {
        self.edit(|record| {
            record.snapshot_blocks = record.snapshot_blocks.saturating_sub(blocks);
        });
    }

    /// Blocks that only snapshots have.
    pub fn snapshot_blocks(&self) -> u64 {
        self.record.borrow().snapshot_blocks
    }

    /// An extent has several owners from now on.
    pub fn note_common(&self) {
        if !self.has_common() {
            self.edit(|record| record.common = true);
        }
    }

    /// There are common extents, or were.
    pub fn has_common(&self) -> bool {
        self.record.borrow().common
    }

    /// A number for a new snapshot; `None`: there is none left.
    pub fn new_snapshot(&self) -> Option<u32> {
        let id = self.record.borrow().last_snapshot.saturating_add(1);
        (id < SNAPSHOT_END).then(|| {
            self.edit(|record| {
                record.snapshots = true;
                record.last_snapshot = id;
            });
            id
        })
    }

    /// A number for a new subvolume; `None`: there is none left.
    pub fn new_subvolume(&self) -> Option<u16> {
        let id = self.record.borrow().last_subvolume.checked_add(1)?;
        self.edit(|record| {
            record.snapshots = true;
            record.last_subvolume = id;
        });
        Some(id)
    }

    /// All stripes are where placement says.
    pub fn set_balanced(&self) {
        self.edit(|record| record.unbalanced = false);
    }
}

impl Part for Record {
    fn is_dirty(&self) -> bool {
        self.changed.get()
    }

    fn close(&self) -> Vec<Change> {
        match self.changed.replace(false) {
            true => vec![(keys::VOLUME.to_vec(), Some(self.record.borrow().encode()))],
            false => Vec::new(),
        }
    }
}
