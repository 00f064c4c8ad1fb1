//! A file in memory: its attributes, the extents of its stripes that are loaded, its locks; and the table of all.

use crate::group::ExtentGroup;
use crate::locks::RangeLocks;
use crate::transaction_nr::TransactionNr;
use braid_filesystem::{Attr, Ino, Kind, Time};
use braid_format::volume::BLOCK;
use braid_format::volume::inode::{InodeRecord, Stamp};
use braid_shard::Shard;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Files kept in memory although nothing uses them.
const KEPT_MAX: usize = 64 << 10;

/// A file.
pub struct Inode {
    ino: Ino,
    record: RefCell<InodeRecord>,
    /// Groups of extents by number.
    pub extents: RefCell<BTreeMap<u64, Rc<ExtentGroup>>>,
    /// Ranges in use. A directory is locked as a whole.
    pub locks: Rc<RangeLocks>,
    /// The transaction that last changed anything of it.
    changed: Cell<TransactionNr>,
    /// The transaction that last changed what reading its data needs.
    data_changed: Cell<TransactionNr>,
    /// It is new: no transaction with extents of it was closed yet, so the store is not asked for them.
    pub unstored: Cell<bool>,
    /// The last loss of acknowledged writes to this file, by [`Volume::losses`](crate::Volume); 0 for none.
    pub lost: Cell<u64>,
    /// The last one that somebody was told of.
    pub lost_told: Cell<u64>,
    /// Bytes after the end, in its last sub-block, may not be zero on the brick.
    pub ragged: Cell<bool>,
    /// The file is no more: whoever still holds this changes nothing that is recorded.
    pub removed: Cell<bool>,
}

impl Inode {
    /// With `record`.
    pub fn new(shard: &Shard, ino: Ino, record: InodeRecord) -> Rc<Inode> {
        Rc::new(Inode {
            ino,
            record: RefCell::new(record),
            extents: RefCell::default(),
            locks: RangeLocks::new(shard),
            changed: Cell::new(0),
            data_changed: Cell::new(0),
            unstored: Cell::new(false),
            lost: Cell::new(0),
            lost_told: Cell::new(0),
            ragged: Cell::new(true),
            removed: Cell::new(false),
        })
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
    pub fn edit<T>(&self, change: impl FnOnce(&mut InodeRecord) -> T) -> T {
        change(&mut self.record.borrow_mut())
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
    pub fn note_change(&self, number: TransactionNr, data: bool) {
        self.changed.set(number);
        if data {
            self.data_changed.set(number);
        }
    }

    /// The transaction that must be durable for an fsync.
    pub fn needed(&self, data_only: bool) -> TransactionNr {
        if data_only { self.data_changed.get() } else { self.changed.get() }
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

/// The users of a file outside the volume.
#[derive(Clone, Copy, Default)]
struct Uses {
    lookups: u64,
    opens: u64,
}

/// The files in memory.
#[derive(Default)]
pub struct Inodes {
    known: RefCell<BTreeMap<Ino, Rc<Inode>>>,
    uses: RefCell<BTreeMap<Ino, Uses>>,
}

impl Inodes {
    /// One that is in memory.
    pub fn get(&self, ino: Ino) -> Option<Rc<Inode>> {
        self.known.borrow().get(&ino).cloned()
    }

    /// Keeps `inode`, unless another task brought the same file meanwhile: then that one.
    pub fn keep(&self, inode: Rc<Inode>, is_changed: impl Fn(&Inode) -> bool) -> Rc<Inode> {
        let mut known = self.known.borrow_mut();
        if known.len() >= KEPT_MAX {
            known.retain(|_, inode| Rc::strong_count(inode) > 1 || is_changed(inode));
        }
        Rc::clone(known.entry(inode.ino()).or_insert(inode))
    }

    /// Calls `see` with each that is in memory.
    pub fn each(&self, see: impl FnMut(&Rc<Inode>)) {
        self.known.borrow().values().for_each(see);
    }

    /// Forgets a file that is no more.
    pub fn remove(&self, ino: Ino) {
        self.known.borrow_mut().remove(&ino);
        self.uses.borrow_mut().remove(&ino);
    }

    /// One look-up more.
    pub fn add_lookup(&self, ino: Ino) {
        self.uses.borrow_mut().entry(ino).or_default().lookups += 1;
    }

    /// One open more.
    pub fn add_open(&self, ino: Ino) {
        self.uses.borrow_mut().entry(ino).or_default().opens += 1;
    }

    /// Look-ups and opens fewer. True when nobody uses it from outside any more.
    pub fn give_back(&self, ino: Ino, lookups: u64, opens: u64) -> bool {
        let mut uses = self.uses.borrow_mut();
        let Some(found) = uses.get_mut(&ino) else { return true };
        found.lookups = found.lookups.saturating_sub(lookups);
        found.opens = found.opens.saturating_sub(opens);
        let unused = found.lookups == 0 && found.opens == 0;
        if unused {
            uses.remove(&ino);
        }
        unused
    }

    /// True when somebody outside uses it.
    pub fn is_used(&self, ino: Ino) -> bool {
        self.uses.borrow().contains_key(&ino)
    }
}
