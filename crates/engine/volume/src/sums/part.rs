//! Checksums are loaded, compared, changed and recorded.

use super::intents::{Intents, Stale, Unsettled, region_of};
use super::window::{Key, Window, Windows};
use crate::transactions::{Part, TransactionNr, Transactions};
use braid_filesystem::{Errno, Ino};
use braid_format::volume::BLOCK;
use braid_format::volume::keys;
use braid_format::volume::snapshot::file_of;
use braid_format::volume::sums::{IntentRecord, PER_REGION, PER_WINDOW, parse};
use braid_kv::Change;
use braid_shard::Shard;
use braid_shard::plant::planted;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// Windows that stay in memory, about: 64 MiB of them.
const KEPT_WINDOWS: usize = 64 << 10;
/// Bytes of the record of a window, about.
const WINDOW_BYTES: u64 = 1050;
/// Intents that are looked for at a time.
const AT_ONCE: usize = 1024;

/// Blocks of a region.
const REGION: u64 = PER_WINDOW * PER_REGION;

/// The file that checksums are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Of {
    /// Its number.
    pub ino: Ino,
    /// Nothing of it was ever recorded.
    pub is_new: bool,
    /// Bytes that it has.
    pub size: u64,
}

/// The checksums of all files.
pub struct Sums {
    shard: Shard,
    transactions: Rc<Transactions>,
    /// The volume has checksums.
    on: bool,
    known: RefCell<BTreeMap<Key, Rc<Window>>>,
    /// Those that have changed in the open transaction.
    changed: RefCell<BTreeMap<Key, Rc<Window>>>,
    intents: Intents,
    /// The transaction that has the last marks of copies that a brick has lost.
    marked: Cell<TransactionNr>,
    /// Blocks whose bytes were not what was written, since the mount.
    mismatches: Cell<u64>,
    /// Of them those that another copy has mended.
    mended: Cell<u64>,
}

/// The content that a write is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// A file without copies: what is there of checksums says it.
    Sums,
    /// Blocks of copies that have nothing yet, or get what another has.
    Nothing,
    /// Blocks of copies that have something.
    Copies,
}

/// A write of some blocks may go: what is written over in place has an intent for as long as this is held.
pub struct Prepared {
    windows: Windows,
    sums: Rc<Sums>,
    regions: SmallVec<[Key; 1]>,
}

impl Prepared {
    fn mark_first(&mut self, ino: Ino, blocks: &Range<u64>) {
        let ino = file_of(ino);
        for number in blocks.start / REGION..blocks.end.div_ceil(REGION) {
            self.sums.intents.begin_first((ino, number));
            self.regions.push((ino, number));
        }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let now = self.sums.shard.now();
        for region in &self.regions {
            self.sums.intents.end(*region, now);
        }
    }
}

impl Sums {
    /// Those of a volume, which has them or not: `on`.
    pub fn new(shard: &Shard, transactions: Rc<Transactions>, on: bool) -> Sums {
        Sums {
            shard: shard.clone(),
            transactions,
            on,
            known: RefCell::default(),
            changed: RefCell::default(),
            intents: Intents::default(),
            marked: Cell::new(0),
            mismatches: Cell::new(0),
            mended: Cell::new(0),
        }
    }

    /// The volume has checksums.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Finds the intents that an earlier life has left. One that marks copies as stale is committed before the files that
    /// are new then: of a file that is not there, nor in a snapshot, it goes.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn find_doubtful(&self) -> Result<(), Errno> {
        let mut from = self.on.then(|| keys::intent(0, 0));
        let mut last: Option<(Ino, bool)> = None;
        while let Some(start) = from.take() {
            let end = keys::after(&keys::intent(0, 0)[..1]);
            let (pairs, next) = self.transactions.scanned(&start, &end, AT_ONCE).await?;
            for (key, value) in &pairs {
                if let (Some(ino), Some(region)) = (keys::ino_of(key), keys::second_of(key)) {
                    let is_there = match last.filter(|(of, _)| *of == ino) {
                        Some((_, is_there)) => is_there,
                        None => self.transactions.is_kept(ino).await?,
                    };
                    last = Some((ino, is_there));
                    if !is_there {
                        if self.transactions.writable().is_ok() {
                            self.transactions.set(key.clone(), None);
                        }
                        continue;
                    }
                    let record = IntentRecord::parse(ino, region, value);
                    let record = record.map_err(|error| self.transactions.damaged(&error))?;
                    self.intents.found((ino, region), &record);
                }
            }
            from = next;
        }
        Ok(())
    }

    /// The windows of a region that have records.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn recorded(&self, ino: Ino, region: u64) -> Result<Vec<u64>, Errno> {
        let first = region.saturating_mul(PER_REGION);
        let end = keys::sums(ino, first.saturating_add(PER_REGION));
        let pairs = self.transactions.scanned(&keys::sums(ino, first), &end, AT_ONCE).await?.0;
        Ok(pairs.iter().filter_map(|(key, _)| keys::second_of(key)).collect())
    }

    /// Brings the checksums of a range of blocks of a file to memory.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn load(&self, file: Of, blocks: Range<u64>) -> Result<Windows, Errno> {
        let mut windows = Windows::default();
        if !self.on || blocks.is_empty() {
            return Ok(windows);
        }
        for number in blocks.start / PER_WINDOW..blocks.end.div_ceil(PER_WINDOW) {
            windows.push(self.window((file.ino, number), file.is_new).await?);
        }
        Ok(windows)
    }

    async fn window(&self, key: Key, is_new: bool) -> Result<Rc<Window>, Errno> {
        if let Some(known) = self.known.borrow().get(&key) {
            return Ok(Rc::clone(known));
        }
        let stored = match is_new {
            true => None,
            false => self.transactions.stored(&keys::sums(key.0, key.1)).await?,
        };
        let recorded = stored.map(|bytes| parse(key.0, key.1, &bytes)).transpose();
        let recorded = recorded.map_err(|error| self.transactions.damaged(&error))?;
        let mut known = self.known.borrow_mut();
        if known.len() >= KEPT_WINDOWS {
            known.retain(|_, window| Rc::strong_count(window) > 1);
        }
        // Another task may have brought it to memory meanwhile.
        Ok(Rc::clone(known.entry(key).or_insert_with(|| Rc::new(Window::new(key, recorded)))))
    }

    /// Before blocks of a file are written: the checksums that they have are in memory, and if any is known there is a durable
    /// intent. The caller holds the blocks.
    ///
    /// # Errors
    /// When the store fails, or has no room.
    pub async fn prepare(
        self: &Rc<Self>,
        file: Of,
        blocks: Range<u64>,
        over: Over,
    ) -> Result<Prepared, Errno> {
        let windows = self.load(file, blocks.clone()).await?;
        let mut prepared =
            Prepared { windows, sums: Rc::clone(self), regions: SmallVec::default() };
        let known = prepared.windows.known_in(blocks.clone()).map(|window| window.born()).min();
        let born = match over {
            Over::Sums => known,
            Over::Nothing => None,
            // Where no checksum is known the copies may differ all the same after a crash.
            Over::Copies => Some(known.unwrap_or(0)),
        };
        let Some(born) = born.filter(|_| !planted("no-intent")) else {
            if over != Over::Sums {
                prepared.mark_first(file.ino, &blocks);
            }
            return Ok(prepared);
        };
        let mut needed = 0;
        for number in blocks.start / REGION..blocks.end.div_ceil(REGION) {
            let region = (file.ino, number);
            needed = self.begin(region, over != Over::Sums).max(needed);
            prepared.regions.push(region);
            // Whoever writes on comes to the next one soon, and need not wait then.
            let next = (file.ino, number + 1);
            if (number + 1).saturating_mul(REGION * BLOCK) < file.size {
                self.begin(next, over != Over::Sums);
                self.intents.end(next, self.shard.now());
            }
        }
        // Checksums that are recorded with the intent, or later, are not there without it.
        if needed > self.transactions.durable() && born < needed {
            let durable = self.transactions.wait_durable(needed).await;
            durable.map_err(|error| self.transactions.store_failed(&error))?;
        }
        Ok(prepared)
    }

    /// One user more of the intent of a region; gives the transaction that it is in.
    fn begin(&self, region: Key, copied: bool) -> u64 {
        let (since, record) = self.intents.begin(region, self.transactions.number(), copied);
        if let Some((key, value)) = record {
            self.transactions.set(key, value);
        }
        since
    }

    /// Blocks from `first` on were written: they have these checksums. Where `sums` says
    /// [`UNKNOWN`](braid_format::volume::sums::UNKNOWN) it is not known what a brick has.
    pub fn set(&self, prepared: &Prepared, first: u64, sums: impl IntoIterator<Item = u32>) {
        self.put(&prepared.windows, first, sums);
    }

    /// The same without a write: blocks are found to have these checksums, or there is nothing any more. The caller holds them.
    pub fn put(&self, windows: &Windows, first: u64, sums: impl IntoIterator<Item = u32>) {
        for (block, sum) in (first..).zip(sums) {
            if let Some(window) = windows.set(block, sum) {
                self.note_changed(window);
            }
        }
    }

    fn note_changed(&self, window: &Rc<Window>) {
        if self.intents.hold(window) {
            if self.intents.holds_much() {
                self.transactions.ask(self.transactions.number());
            }
            return;
        }
        let is_new = self.changed.borrow_mut().insert(window.key(), Rc::clone(window)).is_none();
        if is_new {
            window.recorded_in(self.transactions.number());
            self.transactions.object_changed(WINDOW_BYTES);
        }
    }

    /// The checksums of windows of a file are no more: nothing lies there.
    pub fn cut(&self, file: Of, windows: Range<u64>) {
        if !self.on {
            return;
        }
        for number in windows {
            let key = (file.ino, number);
            self.known.borrow_mut().remove(&key);
            self.intents.drop_window(key);
            if self.changed.borrow_mut().remove(&key).is_some() {
                self.transactions.object_dropped(WINDOW_BYTES);
            }
            if !file.is_new {
                self.transactions.set(keys::sums(key.0, key.1), None);
            }
        }
    }

    /// A file is no more: what is left of its checksums and intents goes with it. `is_seen`: a snapshot has it, whose copies may have
    /// lost something, too.
    pub fn remove(&self, file: Of, is_seen: bool) {
        let known = self.known.borrow();
        let left: Vec<u64> =
            known.range((file.ino, 0)..=(file.ino, u64::MAX)).map(|(key, _)| key.1).collect();
        drop(known);
        for window in left {
            self.cut(file, window..window + 1);
        }
        let regions = match is_seen {
            true => self.intents.leave_to_snapshots(file.ino),
            false => self.intents.remove(file.ino),
        };
        for (region, doubtful) in regions {
            if !is_seen {
                self.transactions.set(keys::intent(file.ino, region), None);
            }
            // There may be checksums of what was cut off before the crash.
            if doubtful {
                let first = region.saturating_mul(PER_REGION);
                self.cut(file, first..first.saturating_add(PER_REGION));
            }
        }
    }

    /// A snapshot is no more: what is known of copies that have lost something goes where nobody has the file any more.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn forget_unseen(&self) -> Result<(), Errno> {
        for ino in self.intents.stale_files() {
            if !self.transactions.is_kept(ino).await? {
                for (region, _) in self.intents.remove(ino) {
                    self.transactions.set(keys::intent(ino, region), None);
                }
            }
        }
        Ok(())
    }

    /// The checksum of a block may be of before the last crash.
    pub fn is_doubtful(&self, ino: Ino, block: u64) -> bool {
        self.intents.is_doubtful(region_of((ino, block / PER_WINDOW)))
    }

    /// The region of a block may have copies that are not equal, or not known to be durable, or checksums that are of before.
    pub fn is_unsettled(&self, ino: Ino, block: u64) -> bool {
        self.intents.is_unsettled(region_of((ino, block / PER_WINDOW)))
    }

    /// The bricks whose copies of a block have lost something, perhaps.
    pub fn stale_at(&self, ino: Ino, block: u64) -> Stale {
        self.intents.stale_in(region_of((file_of(ino), block / PER_WINDOW)))
    }

    /// Regions whose checksums may be of before the last crash.
    pub fn in_doubt(&self) -> usize {
        self.intents.in_doubt()
    }

    /// The regions that are in doubt, or have copies that miss something.
    pub fn unsettled(&self) -> Vec<Unsettled> {
        self.intents.unsettled()
    }

    /// Brick `brick` has lost what it had taken since its last flush: its copies of what was written lately are stale.
    pub fn lost(&self, brick: u16) {
        if planted("mark-not-made") {
            return;
        }
        self.intents.lost(brick);
        self.marked.set(self.transactions.number());
    }

    /// The copy of a region on `brick` is not as the others are.
    pub fn note_stale(&self, region: (Ino, u64), brick: u16) {
        self.intents.note_stale(region, brick);
    }

    /// The same of the region of a block.
    pub fn note_stale_at(&self, ino: Ino, block: u64, brick: u16) {
        self.note_stale(region_of((file_of(ino), block / PER_WINDOW)), brick);
    }

    /// The copies of a region on these bricks are as the others are.
    pub fn filled(&self, region: (Ino, u64), bricks: &[u16]) {
        self.intents.filled(region, bricks);
    }

    /// A region is in doubt no more.
    pub fn settled(&self, region: (Ino, u64)) {
        self.intents.settled(region);
    }

    /// A block was not as it was written.
    pub fn note_mismatch(&self) {
        self.mismatches.set(self.mismatches.get() + 1);
    }

    /// Blocks that were not as they were written, since the mount.
    pub fn mismatches(&self) -> u64 {
        self.mismatches.get()
    }

    /// A block that could not be read, or was not as it was written, was written again as another copy has it.
    pub fn note_mended(&self) {
        self.mended.set(self.mended.get() + 1);
    }

    /// Blocks that were mended from another copy since the mount.
    pub fn mended(&self) -> u64 {
        self.mended.get()
    }

    /// A write of blocks of copies begins that is over nothing: see [`prepare`](Sums::prepare), which also loads checksums.
    pub fn mark(self: &Rc<Self>, file: Of, blocks: Range<u64>) -> Prepared {
        let windows = Windows::default();
        let mut marked = Prepared { windows, sums: Rc::clone(self), regions: SmallVec::default() };
        marked.mark_first(file.ino, &blocks);
        marked
    }

    /// The next commit has all checksums, also those of what was written over just now.
    pub fn record_all(&self) {
        self.intents.record_all();
    }

    /// Nothing is written from now on: the next commit has all that is known.
    pub fn close_soon(&self) {
        self.intents.close_soon();
    }

    /// [`close_soon`](Sums::close_soon) was called.
    pub fn is_closing(&self) -> bool {
        self.intents.is_closing()
    }
}

impl Part for Sums {
    fn is_dirty(&self) -> bool {
        !self.changed.borrow().is_empty()
            || self.intents.holds_much()
            || self.intents.has_unrecorded()
            || self.intents.any_due(self.shard.now())
    }

    fn close(&self) -> Vec<Change> {
        // The open transaction is the next one by now.
        let closed = self.transactions.number() - 1;
        let changed = self.changed.take();
        let mut records: Vec<Change> = changed.values().map(|window| window.record()).collect();
        records.extend(self.intents.take_due(self.shard.now(), closed));
        records
    }

    fn late(&self) -> Vec<Change> {
        self.intents.take_late()
    }

    fn needed(&self) -> TransactionNr {
        self.marked.get()
    }

    fn committed(&self) {
        self.intents.committed();
    }
}
