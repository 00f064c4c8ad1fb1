//! The checksums of a window of a file: 256 blocks, 1 MiB.

use crate::transactions::TransactionNr;
use braid_filesystem::Ino;
use braid_format::volume::keys;
use braid_format::volume::sums::{PER_WINDOW, UNKNOWN, encode};
use braid_kv::Change;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// A file, and the number of a window or a region.
pub(super) type Key = (Ino, u64);

/// The checksums of one window.
pub(super) struct Window {
    key: Key,
    sums: RefCell<Vec<u32>>,
    /// The first transaction that has a record of it: 0 for one that the store had, the last number for none.
    born: Cell<TransactionNr>,
}

impl Window {
    /// As recorded; `None`: it is not.
    pub(super) fn new(key: Key, recorded: Option<Vec<u32>>) -> Window {
        let born = if recorded.is_some() { 0 } else { TransactionNr::MAX };
        Window { key, sums: RefCell::new(recorded.unwrap_or_default()), born: Cell::new(born) }
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// The checksum of a block, counted from the start of the file.
    fn get(&self, block: u64) -> u32 {
        self.sums.borrow().get((block % PER_WINDOW) as usize).copied().unwrap_or(UNKNOWN)
    }

    /// Changes one. False: it was so.
    fn set(&self, block: u64, sum: u32) -> bool {
        let mut sums = self.sums.borrow_mut();
        let at = (block % PER_WINDOW) as usize;
        if sums.get(at).copied().unwrap_or(UNKNOWN) == sum {
            return false;
        }
        if sums.len() <= at {
            sums.resize(at + 1, UNKNOWN);
        }
        sums[at] = sum;
        true
    }

    /// No record of it is older than this transaction.
    pub(super) fn born(&self) -> TransactionNr {
        self.born.get()
    }

    /// Transaction `number` has a record of it.
    pub(super) fn recorded_in(&self, number: TransactionNr) {
        self.born.set(self.born.get().min(number));
    }

    /// Its record.
    pub(super) fn record(&self) -> Change {
        (keys::sums(self.key.0, self.key.1), encode(&self.sums.borrow()))
    }
}

/// The windows over a range of blocks of one file, which stay in memory meanwhile. There are none where a volume has no
/// checksums.
#[derive(Default)]
pub struct Windows {
    first: u64,
    list: SmallVec<[Rc<Window>; 2]>,
}

impl Windows {
    pub(super) fn push(&mut self, window: Rc<Window>) {
        if self.list.is_empty() {
            self.first = window.key().1;
        }
        self.list.push(window);
    }

    fn of(&self, block: u64) -> Option<&Rc<Window>> {
        self.list.get((block / PER_WINDOW).checked_sub(self.first)? as usize)
    }

    /// The checksum of a block, counted from the start of the file; [`UNKNOWN`] where it is not known.
    pub fn get(&self, block: u64) -> u32 {
        self.of(block).map_or(UNKNOWN, |window| window.get(block))
    }

    /// Changes the checksum of a block; gives its window if it was another.
    pub(super) fn set(&self, block: u64, sum: u32) -> Option<&Rc<Window>> {
        self.of(block).filter(|window| window.set(block, sum))
    }

    /// The windows in which checksums of `blocks` are known.
    pub(super) fn known_in(&self, blocks: Range<u64>) -> impl Iterator<Item = &Rc<Window>> {
        self.list.iter().filter(move |window| {
            let start = window.key.1 * PER_WINDOW;
            let inside = blocks.start.max(start)..blocks.end.min(start + PER_WINDOW);
            inside.into_iter().any(|block| window.get(block) != UNKNOWN)
        })
    }
}
