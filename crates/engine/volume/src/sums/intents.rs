//! Intents: regions of files of which blocks are being written over in place.

use super::window::{Key, Window};
use crate::transactions::TransactionNr;
use braid_filesystem::Ino;
use braid_format::volume::keys;
use braid_format::volume::sums::PER_REGION;
use braid_kv::Change;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A region that nobody has written to for so long loses its intent, in nanoseconds.
const QUIET_NANOS: u64 = 5_000_000_000;
/// Windows whose records wait for that, at most: 32 MiB of them.
const HELD_MAX: usize = 32 << 10;
/// The record of an intent.
const RECORD: u8 = 1;

/// An intent.
struct Intent {
    /// The transaction that has it.
    since: TransactionNr,
    /// Writes that are under way.
    users: usize,
    /// The time since when there is none.
    quiet_since: u64,
    /// It was there at the mount, after a crash: the checksums of the region may be of before.
    doubtful: bool,
    /// Windows whose checksums have changed and are recorded when it goes.
    held: BTreeMap<u64, Rc<Window>>,
}

/// The intents of a mount.
#[derive(Default)]
pub(super) struct Intents {
    table: RefCell<BTreeMap<Key, Intent>>,
    held: Cell<usize>,
    doubtful: Cell<usize>,
    /// All go as soon as nobody writes.
    closing: Cell<bool>,
}

/// The region of a window.
pub(super) fn region_of((ino, window): Key) -> Key {
    (ino, window / PER_REGION)
}

impl Intents {
    /// One that an earlier life has left.
    pub(super) fn found(&self, region: Key) {
        let intent =
            Intent { since: 0, users: 0, quiet_since: 0, doubtful: true, held: BTreeMap::new() };
        if self.table.borrow_mut().insert(region, intent).is_none() {
            self.doubtful.set(self.doubtful.get() + 1);
        }
    }

    /// A write to the region begins. Gives the transaction that has the intent, and the record if it is new in the open one,
    /// which is `open`.
    pub(super) fn begin(
        &self,
        region: Key,
        open: TransactionNr,
    ) -> (TransactionNr, Option<Change>) {
        let mut table = self.table.borrow_mut();
        let mut is_new = false;
        let intent = table.entry(region).or_insert_with(|| {
            is_new = true;
            Intent { since: open, users: 0, quiet_since: 0, doubtful: false, held: BTreeMap::new() }
        });
        intent.users += 1;
        let record = || (keys::intent(region.0, region.1), Some(vec![RECORD]));
        (intent.since, is_new.then(record))
    }

    /// A write to the region has ended.
    pub(super) fn end(&self, region: Key, now: u64) {
        if let Some(intent) = self.table.borrow_mut().get_mut(&region) {
            intent.users = intent.users.saturating_sub(1);
            intent.quiet_since = now;
        }
    }

    /// Keeps a window that has changed for later. False: there is no intent for it.
    pub(super) fn hold(&self, window: &Rc<Window>) -> bool {
        let key = window.key();
        let mut table = self.table.borrow_mut();
        let Some(intent) = table.get_mut(&region_of(key)) else { return false };
        if intent.held.insert(key.1, Rc::clone(window)).is_none() {
            self.held.set(self.held.get() + 1);
        }
        true
    }

    /// A window is no more.
    pub(super) fn drop_window(&self, key: Key) {
        if let Some(intent) = self.table.borrow_mut().get_mut(&region_of(key))
            && intent.held.remove(&key.1).is_some()
        {
            self.held.set(self.held.get() - 1);
        }
    }

    /// A file is no more, whose windows were dropped: gives the regions that had intents; true: which were in doubt.
    pub(super) fn remove(&self, ino: Ino) -> Vec<(u64, bool)> {
        let mut table = self.table.borrow_mut();
        let range = table.range((ino, 0)..=(ino, u64::MAX));
        let found: Vec<_> = range.map(|(region, intent)| (region.1, intent.doubtful)).collect();
        for (region, _) in &found {
            if let Some(intent) = table.remove(&(ino, *region)) {
                self.held.set(self.held.get() - intent.held.len());
                self.doubtful.set(self.doubtful.get() - usize::from(intent.doubtful));
            }
        }
        found
    }

    /// More is held than should be: a commit takes it.
    pub(super) fn holds_much(&self) -> bool {
        self.held.get() > HELD_MAX
    }

    /// Checksums of the region may be of before the last crash.
    pub(super) fn is_doubtful(&self, region: Key) -> bool {
        self.doubtful.get() > 0
            && self.table.borrow().get(&region).is_some_and(|intent| intent.doubtful)
    }

    /// All such regions.
    pub(super) fn all_doubtful(&self) -> Vec<Key> {
        let table = self.table.borrow();
        let doubtful = table.iter().filter(|(_, intent)| intent.doubtful);
        doubtful.map(|(region, _)| *region).collect()
    }

    /// All checksums of the region are right, or held to be recorded so.
    pub(super) fn settled(&self, region: Key) {
        if let Some(intent) = self.table.borrow_mut().get_mut(&region)
            && std::mem::take(&mut intent.doubtful)
        {
            self.doubtful.set(self.doubtful.get() - 1);
        }
    }

    /// From now on intents go as soon as nobody writes.
    pub(super) fn close_soon(&self) {
        self.closing.set(true);
    }

    /// [`close_soon`](Intents::close_soon) was called.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    fn is_due(&self, intent: &Intent, now: u64) -> bool {
        let is_quiet = self.closing.get() || now.saturating_sub(intent.quiet_since) >= QUIET_NANOS;
        is_quiet && intent.users == 0 && !intent.doubtful
    }

    /// Some intents can go.
    pub(super) fn any_due(&self, now: u64) -> bool {
        self.table.borrow().values().any(|intent| self.is_due(intent, now))
    }

    /// Takes those away that can go, into transaction `closed`: the records of their windows, and of their absence.
    pub(super) fn take_due(&self, now: u64, closed: TransactionNr) -> Vec<Change> {
        let mut records = Vec::new();
        let all = self.holds_much();
        self.table.borrow_mut().retain(|region, intent| {
            let is_due = self.is_due(intent, now);
            if is_due || all {
                self.held.set(self.held.get() - intent.held.len());
                for window in std::mem::take(&mut intent.held).into_values() {
                    window.recorded_in(closed);
                    records.push(window.record());
                }
            }
            if is_due {
                records.push((keys::intent(region.0, region.1), None));
            }
            !is_due
        });
        records
    }
}
