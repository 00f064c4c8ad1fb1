//! Intents: regions of files of which blocks are being written over in place, and regions of copies that miss something.
//!
//! One of a file with copies is there, in memory only, also while blocks are written for the first time or are moved: should a brick
//! lose what it has not made durable, the region is recorded with the brick's number, and its copies there are not
//! trusted until they were made equal to the others.

use super::window::{Key, Window};
use crate::transactions::TransactionNr;
use braid_filesystem::Ino;
use braid_format::volume::keys;
use braid_format::volume::sums::{IntentRecord, PER_REGION};
use braid_kv::Change;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A region that nobody has written to for so long loses its intent, in nanoseconds.
const QUIET_NANOS: u64 = 5_000_000_000;
/// Windows whose records wait for that, at most: 32 MiB of them.
const HELD_MAX: usize = 32 << 10;

/// Bricks by their numbers.
pub type Stale = SmallVec<[u16; 2]>;

/// An intent.
#[derive(Default)]
struct Intent {
    /// The transaction that has it.
    since: TransactionNr,
    /// It is recorded, or about to be, that blocks are written over.
    written_over: bool,
    /// Writes that are under way.
    users: usize,
    /// The time since when there is none.
    quiet_since: u64,
    /// It was there at the mount, after a crash: the checksums of the region may be of before.
    doubtful: bool,
    /// The file may have copies.
    copied: bool,
    /// Bricks whose copies of the region have lost something.
    stale: Stale,
    /// Windows whose checksums have changed and are recorded when it goes.
    held: BTreeMap<u64, Rc<Window>>,
}

impl Intent {
    fn says(&self) -> IntentRecord {
        IntentRecord { written_over: self.written_over, stale: self.stale.to_vec() }
    }

    fn record(&self, region: &Key) -> Change {
        (keys::intent(region.0, region.1), self.says().encode())
    }
}

/// A region whose blocks or copies are not known to be right.
pub struct Unsettled {
    /// The file and the number of the region.
    pub region: Key,
    /// Checksums may be of before the last crash, and copies may differ.
    pub doubtful: bool,
    /// The bricks whose copies have lost something.
    pub stale: Stale,
}

/// The intents of a mount.
#[derive(Default)]
pub(super) struct Intents {
    table: RefCell<BTreeMap<Key, Intent>>,
    held: Cell<usize>,
    doubtful: Cell<usize>,
    /// Intents with bricks that are stale.
    stale: Cell<usize>,
    /// Those with copies that the transaction which is being committed takes away: their last writes are not durable yet.
    going: RefCell<BTreeSet<Key>>,
    /// Those that have a brick more that is stale, which no transaction has yet.
    unrecorded: RefCell<BTreeSet<Key>>,
    /// Those of them that the transaction has which is being committed; if that is refused the next one has them.
    recording: RefCell<BTreeSet<Key>>,
    /// What was recorded of those of them whose files were removed since, which a later transaction has.
    removed: RefCell<BTreeMap<Key, IntentRecord>>,
    /// All go as soon as nobody writes.
    closing: Cell<bool>,
    /// The next transaction takes all that is held.
    all_held: Cell<bool>,
}

/// The region of a window.
pub(super) fn region_of((ino, window): Key) -> Key {
    (ino, window / PER_REGION)
}

impl Intents {
    /// One that an earlier life has left.
    pub(super) fn found(&self, region: Key, record: &IntentRecord) {
        let doubtful = record.written_over;
        let stale = Stale::from_slice(&record.stale);
        self.doubtful.set(self.doubtful.get() + usize::from(doubtful));
        self.stale.set(self.stale.get() + usize::from(!stale.is_empty()));
        let intent =
            Intent { written_over: doubtful, doubtful, stale, copied: true, ..Intent::default() };
        self.table.borrow_mut().insert(region, intent);
    }

    /// A write to the region begins, over what is there: gives the transaction that has the intent, and the record if it
    /// is new in the open one, which is `open`. `copied`: the file has copies.
    pub(super) fn begin(
        &self,
        region: Key,
        open: TransactionNr,
        copied: bool,
    ) -> (TransactionNr, Option<Change>) {
        let mut table = self.table.borrow_mut();
        let intent = table.entry(region).or_default();
        intent.users += 1;
        intent.copied |= copied;
        let is_new = !std::mem::replace(&mut intent.written_over, true);
        if is_new {
            intent.since = open;
        }
        (intent.since, is_new.then(|| intent.record(&region)))
    }

    /// A write to the region of a file with copies begins, where nothing is yet.
    pub(super) fn begin_first(&self, region: Key) {
        let mut table = self.table.borrow_mut();
        let intent = table.entry(region).or_default();
        intent.users += 1;
        intent.copied = true;
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
        let intent = table.get_mut(&region_of(key)).filter(|intent| intent.written_over);
        let Some(intent) = intent else { return false };
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
        // They are in the table no more.
        self.going.borrow_mut().retain(|(of, _)| *of != ino);
        let found = self.of(ino);
        for (region, _) in &found {
            let key = (ino, *region);
            self.unrecorded.borrow_mut().remove(&key);
            if let Some(intent) = self.table.borrow_mut().remove(&key) {
                if self.recording.borrow().contains(&key) {
                    self.removed.borrow_mut().insert(key, intent.says());
                }
                self.held.set(self.held.get() - intent.held.len());
                self.doubtful.set(self.doubtful.get() - usize::from(intent.doubtful));
                self.stale.set(self.stale.get() - usize::from(!intent.stale.is_empty()));
            }
        }
        found
    }

    /// The same of one that a snapshot has: what is said of its copies stays, since those of the snapshot may be on the same bricks.
    pub(super) fn leave_to_snapshots(&self, ino: Ino) -> Vec<(u64, bool)> {
        let found = self.of(ino);
        for (region, doubtful) in &found {
            let key = (ino, *region);
            if let Some(intent) = self.table.borrow_mut().get_mut(&key) {
                // What is being committed still has the file, whose blocks may be written over.
                self.removed.borrow_mut().insert(key, intent.says());
                self.unrecorded.borrow_mut().insert(key);
                self.held.set(self.held.get() - intent.held.len());
                intent.held.clear();
                self.doubtful.set(self.doubtful.get() - usize::from(*doubtful));
                intent.doubtful = false;
                intent.written_over = false;
            }
        }
        found
    }

    /// The regions of a file that have intents; true: which are in doubt.
    fn of(&self, ino: Ino) -> Vec<(u64, bool)> {
        let table = self.table.borrow();
        let range = table.range((ino, 0)..=(ino, u64::MAX));
        range.map(|(region, intent)| (region.1, intent.doubtful)).collect()
    }

    /// The files of which some copies have lost something.
    pub(super) fn stale_files(&self) -> BTreeSet<Ino> {
        let table = self.table.borrow();
        let stale = table.iter().filter(|(_, intent)| !intent.stale.is_empty());
        stale.map(|((ino, _), _)| *ino).collect()
    }

    /// More is held than should be: a commit takes it.
    pub(super) fn holds_much(&self) -> bool {
        self.held.get() > HELD_MAX
    }

    /// Regions whose checksums may be of before the last crash.
    pub(super) fn in_doubt(&self) -> usize {
        self.doubtful.get()
    }

    /// Checksums of the region may be of before the last crash.
    pub(super) fn is_doubtful(&self, region: Key) -> bool {
        self.doubtful.get() > 0
            && self.table.borrow().get(&region).is_some_and(|intent| intent.doubtful)
    }

    /// The region is not known to be right, or has copies of which the last writes may not be durable.
    pub(super) fn is_unsettled(&self, region: Key) -> bool {
        let is_open = |intent: &Intent| intent.doubtful || intent.copied;
        self.table.borrow().get(&region).is_some_and(is_open)
            || self.going.borrow().contains(&region)
    }

    /// The bricks whose copies of the region have lost something.
    pub(super) fn stale_in(&self, region: Key) -> Stale {
        if self.stale.get() == 0 {
            return Stale::new();
        }
        let table = self.table.borrow();
        table.get(&region).map(|intent| intent.stale.clone()).unwrap_or_default()
    }

    /// All regions that are not known to be right.
    pub(super) fn unsettled(&self) -> Vec<Unsettled> {
        let table = self.table.borrow();
        let found = table.iter().filter(|(_, intent)| intent.doubtful || !intent.stale.is_empty());
        let unsettled = found.map(|(region, intent)| Unsettled {
            region: *region,
            doubtful: intent.doubtful,
            stale: intent.stale.clone(),
        });
        unsettled.collect()
    }

    /// All checksums of the region are right, or held to be recorded so.
    pub(super) fn settled(&self, region: Key) {
        if let Some(intent) = self.table.borrow_mut().get_mut(&region)
            && std::mem::take(&mut intent.doubtful)
        {
            self.doubtful.set(self.doubtful.get() - 1);
        }
    }

    /// Some brick has lost what it had taken since its last flush: what was written lately of copies there.
    pub(super) fn lost(&self, brick: u16) {
        let mut table = self.table.borrow_mut();
        let going = self.going.borrow();
        let copied = table.iter().filter(|(_, intent)| intent.copied).map(|(region, _)| *region);
        let regions: BTreeSet<Key> = copied.chain(going.iter().copied()).collect();
        drop(going);
        for region in regions {
            self.add_stale(table.entry(region).or_default(), region, brick);
        }
    }

    /// A copy of the region on `brick` is not as the others are.
    pub(super) fn note_stale(&self, region: Key, brick: u16) {
        self.add_stale(self.table.borrow_mut().entry(region).or_default(), region, brick);
    }

    fn add_stale(&self, intent: &mut Intent, region: Key, brick: u16) {
        intent.copied = true;
        if !intent.stale.contains(&brick) {
            self.stale.set(self.stale.get() + usize::from(intent.stale.is_empty()));
            intent.stale.push(brick);
        }
        self.unrecorded.borrow_mut().insert(region);
    }

    /// The copies of the region on these bricks are as the others are.
    pub(super) fn filled(&self, region: Key, bricks: &[u16]) {
        let mut table = self.table.borrow_mut();
        let Some(intent) = table.get_mut(&region).filter(|intent| !intent.stale.is_empty()) else {
            return;
        };
        intent.stale.retain(|brick| !bricks.contains(brick));
        if intent.stale.is_empty() {
            self.stale.set(self.stale.get() - 1);
        }
        self.unrecorded.borrow_mut().insert(region);
    }

    /// A brick more is stale somewhere, or one less, which no transaction has yet.
    pub(super) fn has_unrecorded(&self) -> bool {
        !self.unrecorded.borrow().is_empty()
    }

    /// The same for the transaction that is being committed, which is not to tell of files that were removed since: after a crash
    /// they may be there, and their blocks written over.
    pub(super) fn take_late(&self) -> Vec<Change> {
        let (regions, removed) = (self.take_regions(), self.removed.borrow());
        let record = |region: &Key| {
            let Some(before) = removed.get(region) else { return self.record_of(region) };
            let mut record = before.clone();
            if let Some(intent) = self.table.borrow().get(region) {
                record.stale = intent.stale.to_vec();
                // The later transaction has it, too.
                self.unrecorded.borrow_mut().insert(*region);
            }
            (keys::intent(region.0, region.1), record.encode())
        };
        regions.iter().map(record).collect()
    }

    /// The records of those.
    pub(super) fn take_unrecorded(&self) -> Vec<Change> {
        self.take_regions().iter().map(|region| self.record_of(region)).collect()
    }

    fn take_regions(&self) -> BTreeSet<Key> {
        let mut regions = self.unrecorded.take();
        let mut recording = self.recording.borrow_mut();
        regions.append(&mut recording);
        recording.extend(&regions);
        regions
    }

    fn record_of(&self, region: &Key) -> Change {
        match self.table.borrow().get(region) {
            Some(intent) => intent.record(region),
            None => (keys::intent(region.0, region.1), None),
        }
    }

    /// The next transaction takes all checksums that are held.
    pub(super) fn record_all(&self) {
        self.all_held.set(true);
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
        let is_quiet = self.closing.get()
            || !intent.written_over
            || now.saturating_sub(intent.quiet_since) >= QUIET_NANOS;
        let is_kept = !intent.written_over && !intent.stale.is_empty();
        is_quiet && !is_kept && intent.users == 0 && !intent.doubtful
    }

    /// Some recorded intents can go.
    pub(super) fn any_due(&self, now: u64) -> bool {
        let table = self.table.borrow();
        table.values().any(|intent| intent.written_over && self.is_due(intent, now))
    }

    /// Takes those away that can go, into transaction `closed`: the records of their windows, and of their absence.
    pub(super) fn take_due(&self, now: u64, closed: TransactionNr) -> Vec<Change> {
        let mut records = Vec::new();
        let all = self.all_held.take() || self.holds_much();
        // This transaction has what removed them.
        self.removed.borrow_mut().clear();
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
                if intent.copied {
                    self.going.borrow_mut().insert(*region);
                }
                let was_recorded = std::mem::take(&mut intent.written_over);
                if was_recorded {
                    records.push(intent.record(region));
                }
            }
            !is_due || !intent.stale.is_empty()
        });
        records.extend(self.take_unrecorded());
        records
    }

    /// The transaction that was closed last is durable, and the data that was written before.
    pub(super) fn committed(&self) {
        self.going.borrow_mut().clear();
        self.recording.borrow_mut().clear();
        self.removed.borrow_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_keeps_the_mark_of_a_file_that_a_later_one_removes() {
        let (intents, region) = (Intents::default(), (3, 0));
        intents.begin(region, 1, true);
        intents.end(region, 0);
        intents.lost(2);
        let marked = IntentRecord { written_over: true, stale: vec![2] }.encode();
        assert!(marked.is_some());
        let key = keys::intent(3, 0);
        assert_eq!(intents.take_due(0, 1), [(key.clone(), marked.clone())]);
        // While that is being committed the file is removed, and another brick fails.
        intents.remove(3);
        intents.begin((4, 0), 2, true);
        intents.lost(1);
        let late = intents.take_late();
        assert!(late.contains(&(key.clone(), marked)), "{late:?}");
        intents.committed();
        let next = intents.take_due(0, 2);
        assert!(next.iter().all(|(of, record)| *of != key || record.is_none()), "{next:?}");
    }

    #[test]
    fn what_a_snapshot_has_of_a_removed_file_keeps_its_mark() {
        let (intents, region, key) = (Intents::default(), (3, 0), keys::intent(3, 0));
        let record = |written_over, stale: &[u16]| {
            IntentRecord { written_over, stale: stale.to_vec() }.encode()
        };
        intents.begin(region, 1, true);
        intents.end(region, 0);
        intents.lost(2);
        assert_eq!(intents.take_due(0, 1), [(key.clone(), record(true, &[2]))]);
        // While that is being committed the file is removed, and another brick fails.
        intents.leave_to_snapshots(3);
        intents.lost(1);
        // A crash may leave the file as it was.
        assert_eq!(intents.take_late(), [(key.clone(), record(true, &[2, 1]))]);
        intents.committed();
        assert_eq!(intents.take_due(0, 2), [(key.clone(), record(false, &[2, 1]))]);
        assert_eq!(intents.stale_in(region)[..], [2, 1]);
        intents.committed();
        intents.filled(region, &[1, 2]);
        assert_eq!(intents.take_due(0, 3), [(key, None)]);
    }
}
