//! A file in memory: its attributes, its extents, its locks.

use crate::extents::FileExtents;
use crate::transactions::TransactionNr;
use braid_filesystem::{Attr, Ino, Kind, Time};
use braid_format::volume::BLOCK;
use braid_format::volume::inode::{InodeRecord, Stamp};
use braid_shard::Shard;
use braid_shard::range_locks::RangeLocks;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A file.
pub struct Inode {
    ino: Ino,
    record: RefCell<InodeRecord>,
    /// Its extents that are in memory.
    pub extents: Rc<FileExtents>,
    /// Ranges in use. A directory is locked as a whole.
    pub locks: Rc<RangeLocks>,
    /// The transaction that last changed anything of it.
    changed: Cell<TransactionNr>,
    /// The transaction that last changed what reading its data needs.
    data_changed: Cell<TransactionNr>,
    /// The last loss of acknowledged writes to this file; 0 for none.
    lost: Cell<u64>,
    /// The last one that somebody was told of.
    lost_told: Cell<u64>,
    /// Bytes after the end, in its last sub-block, may not be zero on the brick.
    ragged: Cell<bool>,
    /// The file is no more: whoever still holds this changes nothing that is recorded.
    pub(super) removed: Cell<bool>,
    /// No entry of this directory lies behind this place in the order of reading.
    listed_to: Cell<u64>,
}

impl Inode {
    /// With `record`.
    pub(super) fn new(
        shard: &Shard,
        ino: Ino,
        record: InodeRecord,
        extents: Rc<FileExtents>,
    ) -> Rc<Inode> {
        Rc::new(Inode {
            ino,
            record: RefCell::new(record),
            extents,
            locks: RangeLocks::new(shard),
            changed: Cell::new(0),
            data_changed: Cell::new(0),
            lost: Cell::new(0),
            lost_told: Cell::new(0),
            ragged: Cell::new(true),
            removed: Cell::new(false),
            listed_to: Cell::new(u64::MAX),
        })
    }

    /// True when this directory is known to have no entry behind place `cookie` in the order of reading. New ones come before
    /// all others, so that this stays known.
    pub(super) fn ends_by(&self, cookie: u64) -> bool {
        self.listed_to.get() <= cookie
    }

    /// No entry lies behind `cookie`.
    pub(super) fn note_end(&self, cookie: u64) {
        self.listed_to.set(cookie);
    }

    /// An entry comes to lie at `cookie`.
    pub(super) fn note_entry(&self, cookie: u64) {
        if self.ends_by(cookie) {
            self.listed_to.set(cookie);
        }
    }

    /// Its number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Looks at the record.
    pub fn with<T>(&self, look: impl FnOnce(&InodeRecord) -> T) -> T {
        look(&self.record.borrow())
    }

    /// Changes the record; the caller tells the transaction.
    pub(super) fn edit<T>(&self, change: impl FnOnce(&mut InodeRecord) -> T) -> T {
        let mut record = self.record.borrow_mut();
        let size = record.size;
        let result = change(&mut record);
        if record.size != size {
            // Whoever has a lease of another part knows the size, too.
            self.locks.version.changes();
        }
        result
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.record.borrow().size
    }

    /// The kind of file.
    pub fn kind(&self) -> Kind {
        kind_of(self.record.borrow().kind)
    }

    /// Notes that transaction `number` holds a change; `data`: one that reading its data needs.
    pub(super) fn note_change(&self, number: TransactionNr, data: bool) {
        self.changed.set(number);
        if data {
            self.data_changed.set(number);
        }
    }

    /// The transaction that must be durable for an fsync.
    pub fn needed(&self, data_only: bool) -> TransactionNr {
        if data_only { self.data_changed.get() } else { self.changed.get() }
    }

    /// Acknowledged writes to the file may be lost: loss number `loss`.
    pub(super) fn lose(&self, loss: u64) {
        self.lost.set(loss);
    }

    /// The last loss of acknowledged writes to the file.
    pub fn lost(&self) -> u64 {
        self.lost.get()
    }

    /// The last loss that somebody was told of.
    pub fn lost_told(&self) -> u64 {
        self.lost_told.get()
    }

    /// Somebody was told of this loss, and of those before it.
    pub fn has_told(&self, loss: u64) {
        self.lost_told.set(loss);
    }

    /// Bytes after the end, in its last sub-block, may not be zero on the brick.
    pub fn is_ragged(&self) -> bool {
        self.ragged.get()
    }

    /// Says if they may not be.
    pub fn set_ragged(&self, ragged: bool) {
        self.ragged.set(ragged);
    }

    /// The attributes that `stat` shows.
    pub fn attr(&self, stripe: u64) -> Attr {
        let record = self.record.borrow();
        let kind = kind_of(record.kind);
        Attr {
            ino: self.ino,
            size: match kind {
                Kind::Symlink => record.target.len() as u64,
                _ => record.size,
            },
            blocks: record.blocks.saturating_mul(BLOCK / 512),
            atime: time(record.atime),
            mtime: time(record.mtime),
            ctime: time(record.ctime),
            crtime: time(record.crtime),
            kind,
            perm: record.perm,
            nlink: record.nlink,
            uid: record.uid,
            gid: record.gid,
            rdev: record.rdev,
            blksize: u32::try_from(stripe).unwrap_or(BLOCK as u32),
        }
    }
}

/// The kind that a type nibble stands for; parsing has let only known ones through.
pub fn kind_of(nibble: u8) -> Kind {
    Kind::from_bits(u32::from(nibble) << 12).unwrap_or(Kind::File)
}

/// The type nibble of a kind.
pub fn nibble_of(kind: Kind) -> u8 {
    // Four bits after the shift.
    (kind.bits() >> 12) as u8
}

/// As the trait has it.
pub fn time(stamp: Stamp) -> Time {
    Time { seconds: stamp.seconds, nanos: stamp.nanos }
}

/// As the record has it.
pub fn stamp(time: Time) -> Stamp {
    Stamp { seconds: time.seconds, nanos: time.nanos.min(999_999_999) }
}
