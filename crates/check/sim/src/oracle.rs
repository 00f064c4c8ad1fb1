//! What every logical block of the array may hold.
//!
//! A block has a list of versions that it may hold. A write adds its version when it begins; when it
//! has ended well, it removes the versions whose writes had ended before it began (so of overlapping
//! concurrent writes each remains possible). A removed version can come back at a crash until the
//! write that removed it is durable: by FUA, by a flush that began after that write had ended, or at
//! once where no member has a volatile cache. A failed write, and a discard, removes nothing: the
//! block is old or new. A crash makes every version that is not durably removed possible again.
//!
//! A read may give any version that was possible at some instant while it ran. What a read that no
//! write overlaps has given is what the block holds from then on. Where redundancy is known to match data (`settled`)
//! that is for good. Before a resync has come by another copy may hold another version, but it is not asked as long as
//! no member comes, goes or fails (`steady`): so what was read new is not read old again. The versions that such a read
//! has ruled out are possible again once that ends.
//!
//! A flush that fails tells that what was not durable yet may never be: no later flush vouches for it, and a crash brings
//! back what it had removed, until the block is written anew.
//!
//! Does not know members, layouts, or why a version was lost: whoever knows says [`Oracle::forget`].

use crate::content::{ANY, Found, Version, ZERO, fill, recognise};
use smallvec::{SmallVec, smallvec};
use std::fmt::Write;
use std::ops::Range;

/// An instant: every beginning and end has its own.
pub type Tick = u32;

const NEVER: Tick = Tick::MAX;

#[derive(Clone, Debug)]
struct Entry {
    version: Version,
    ended: Tick,
    removed: Tick,
    /// Removed durably: a crash does not bring it back.
    dead: bool,
    /// Ruled out by a read alone, of copies that may differ.
    ruled_out: bool,
    /// A flush that should have made its removal durable has failed.
    in_doubt: bool,
}

impl Entry {
    fn new(version: Version, ended: Tick) -> Entry {
        Entry { version, ended, removed: NEVER, dead: false, ruled_out: false, in_doubt: false }
    }

    /// It never comes back, since what removed it is durable: the last flush that succeeded began at `flushed`.
    fn is_gone(&self, flushed: Tick) -> bool {
        self.dead || (self.removed < flushed && !self.ruled_out && !self.in_doubt)
    }
}

/// A write, write-zeroes or discard under way.
#[derive(Clone, Debug)]
pub struct WriteTicket {
    /// What it writes.
    pub version: Version,
    /// When it began.
    pub started: Tick,
    /// Blocks of the array.
    pub blocks: Range<u64>,
}

/// See the module's documentation.
pub struct Oracle {
    seed: u64,
    block_size: usize,
    blocks: Vec<SmallVec<[Entry; 1]>>,
    tick: Tick,
    next_version: Version,
    /// Completed writes may be lost until a flush.
    volatile: bool,
    /// When the last flush that succeeded began.
    flushed: Tick,
    /// When the last flush that failed ended.
    failed: Tick,
    /// When a member last gave older bytes than before, of what nobody else has.
    shown: Tick,
    reading: Vec<Tick>,
    /// Redundancy is known to match data, so what was read once is what the block holds.
    pub settled: bool,
    /// The members are those of the last assembly, and nothing is wrong with any.
    steady: bool,
}

impl Oracle {
    /// `size` bytes of which all that is known is that they are zero, or nothing at all.
    pub fn new(seed: u64, block_size: u64, size: u64, zeroes: bool, volatile: bool) -> Oracle {
        let version = if zeroes { ZERO } else { ANY };
        let first = Entry::new(version, 0);
        let count = (size / block_size) as usize;
        Oracle {
            seed,
            block_size: block_size as usize,
            blocks: vec![smallvec![first]; count],
            tick: 1,
            next_version: 1,
            volatile,
            flushed: 0,
            failed: 0,
            shown: 0,
            reading: Vec::new(),
            settled: zeroes,
            steady: false,
        }
    }

    /// The array has `size` bytes now, if that is more than it had; of what is new nothing is known.
    pub fn grow(&mut self, size: u64) {
        let count = (size / self.block_size as u64) as usize;
        let now = self.tick();
        if count > self.blocks.len() {
            self.blocks.resize(count, smallvec![Entry::new(ANY, now)]);
        }
    }

    /// The array has `size` bytes now, if that is less than it had: what lies behind is lost. Nothing is under way.
    pub fn shrink(&mut self, size: u64) {
        self.blocks.truncate((size / self.block_size as u64) as usize);
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u64 {
        self.block_size as u64
    }

    /// Number of blocks.
    pub fn len(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// True when the array has no block.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// A new instant.
    pub fn tick(&mut self) -> Tick {
        self.tick += 1;
        self.tick
    }

    /// The content of `version` for the blocks from `first` on.
    pub fn payload(&self, version: Version, first: u64, bytes: &mut [u8]) {
        for (block, bytes) in (first..).zip(bytes.chunks_mut(self.block_size)) {
            fill(self.seed, block, version, bytes);
        }
    }

    /// A write begins; with `zero` its content is zeroes.
    pub fn begin_write(&mut self, blocks: Range<u64>, zero: bool) -> WriteTicket {
        let version = self.next_version | if zero { ZERO } else { 0 };
        self.next_version += 1;
        let started = self.tick();
        let oldest_read = self.reading.iter().copied().min().unwrap_or(started);
        let flushed = self.flushed;
        for entries in &mut self.blocks[blocks.start as usize..blocks.end as usize] {
            entries.retain(|entry| !entry.is_gone(flushed) || entry.removed >= oldest_read);
            entries.push(Entry::new(version, NEVER));
        }
        WriteTicket { version, started, blocks }
    }

    /// The write has ended. `replaced`: it succeeded and was no mere advice. `durable`: it was FUA.
    pub fn end_write(&mut self, ticket: &WriteTicket, replaced: bool, durable: bool) {
        let now = self.tick();
        let durable = durable || !self.volatile;
        // Some of what was under way when a member lost its cache may have been in it.
        let replaced = replaced && (durable || ticket.started >= self.shown);
        let blocks = ticket.blocks.start as usize..ticket.blocks.end as usize;
        let flushed = self.flushed;
        for entry in self.blocks[blocks].iter_mut().flatten() {
            if entry.version == ticket.version {
                entry.ended = now;
            } else if replaced && entry.ended < ticket.started && !entry.is_gone(flushed) {
                let anew = entry.ruled_out || entry.in_doubt;
                entry.removed = if anew { now } else { entry.removed.min(now) };
                entry.ruled_out = false;
                // What was under way when a flush failed may be among what was lost.
                entry.in_doubt = ticket.started < self.failed;
                entry.dead |= durable;
            }
        }
    }

    /// A flush that began at `started` has succeeded.
    pub fn end_flush(&mut self, started: Tick) {
        self.flushed = self.flushed.max(started);
    }

    /// A flush has failed: whatever is not durable by now may have been lost for good.
    pub fn fail_flush(&mut self) {
        self.failed = self.tick();
        let flushed = self.flushed;
        let removed = |entry: &&mut Entry| entry.removed != NEVER && !entry.is_gone(flushed);
        for entry in self.blocks.iter_mut().flatten().filter(removed) {
            entry.in_doubt = true;
        }
    }

    /// A member has lost with a failed flush what no other has: whatever no flush has made durable may be read as it was
    /// before.
    pub fn show_loss(&mut self) {
        self.shown = self.tick();
        let flushed = self.flushed;
        for entry in self.blocks.iter_mut().flatten().filter(|entry| !entry.is_gone(flushed)) {
            (entry.removed, entry.ruled_out) = (NEVER, false);
        }
    }

    /// A read begins.
    pub fn begin_read(&mut self) -> Tick {
        let started = self.tick();
        self.reading.push(started);
        started
    }

    /// The read has ended without data.
    pub fn end_read(&mut self, started: Tick) {
        if let Some(at) = self.reading.iter().position(|tick| *tick == started) {
            self.reading.swap_remove(at);
        }
    }

    /// One block as the read that began at `started` gave it.
    ///
    /// # Errors
    /// What was expected and what was found.
    pub fn check(&mut self, started: Tick, block: u64, bytes: &[u8]) -> Result<(), String> {
        let found = recognise(self.seed, bytes);
        let entries = &mut self.blocks[block as usize];
        let fits = |entry: &Entry| match found {
            _ if entry.version == ANY => true,
            Found::Zeroes => entry.version & ZERO != 0,
            Found::Block { block: from, version } => from == block && entry.version == version,
            _ => false,
        };
        let possible = |entry: &&Entry| entry.removed > started;
        let alone = entries.iter().filter(|entry| entry.removed == NEVER).count() == 1;
        if !entries.iter().filter(possible).any(fits) {
            let mut expected = String::new();
            for entry in entries.iter() {
                let _ = write!(expected, " {}", describe(entry, started));
            }
            return Err(format!("block {block}: found {found}; may be:{expected}"));
        }
        let quiet = entries
            .iter()
            .filter(|entry| entry.removed == NEVER)
            .all(|entry| entry.ended < started && entry.version != ANY);
        // A read from before a loss has been shown may have seen what is lost.
        let lasts = (self.settled || self.steady) && started >= self.shown;
        if !alone && lasts && quiet {
            let now = self.tick;
            for entry in entries.iter_mut().filter(|entry| entry.removed == NEVER) {
                if !fits(entry) {
                    entry.removed = now;
                    entry.ruled_out = !self.settled;
                    entry.in_doubt = self.failed > 0;
                }
            }
        }
        Ok(())
    }

    /// The block may hold this version now: nothing that was acknowledged has replaced it.
    pub fn may_be(&self, block: u64, version: Version) -> bool {
        let entries = self.blocks.get(block as usize).into_iter().flatten();
        let mut left = entries.filter(|entry| entry.removed == NEVER);
        left.any(|entry| entry.version == version)
    }

    /// All copies are the same from now on: what a read has ruled out is gone.
    pub fn settle(&mut self) {
        self.settled = true;
        for entry in self.blocks.iter_mut().flatten() {
            entry.ruled_out = false;
        }
    }

    /// The array runs on members of which none is weak: copies that may differ are asked in one order.
    pub fn begin_steady(&mut self) {
        self.steady = true;
    }

    /// A member comes, goes or fails: another copy may be asked than before.
    pub fn end_steady(&mut self) {
        if std::mem::take(&mut self.steady) && !self.settled {
            for entry in self.blocks.iter_mut().flatten().filter(|entry| entry.ruled_out) {
                (entry.removed, entry.ruled_out) = (NEVER, false);
            }
        }
    }

    /// The process is killed and what members hold in their caches is kept, so nothing that was acknowledged is lost.
    /// Gives the blocks that more than one version is possible for.
    pub fn kill(&mut self) -> Vec<u64> {
        self.end_steady();
        let now = self.tick();
        self.reading.clear();
        let mut open = Vec::new();
        for (block, entries) in (0..).zip(&mut self.blocks) {
            for entry in entries.iter_mut().filter(|entry| entry.ended == NEVER) {
                entry.ended = now;
            }
            if entries.iter().filter(|entry| entry.removed == NEVER).count() > 1 {
                open.push(block);
            }
        }
        open
    }

    /// Power fails: what was not durable may be gone. Gives the blocks that more than one version is
    /// possible for.
    pub fn crash(&mut self) -> Vec<u64> {
        self.end_steady();
        let now = self.tick();
        self.reading.clear();
        let mut open = Vec::new();
        for (block, entries) in (0..).zip(&mut self.blocks) {
            entries.retain(|entry| !entry.is_gone(self.flushed));
            if entries.len() > 1 {
                open.push(block);
            }
            if entries.iter().any(|entry| entry.version == ANY) {
                *entries = smallvec![Entry::new(ANY, now)];
            }
            for entry in entries {
                *entry = Entry::new(entry.version, now);
            }
        }
        (self.flushed, self.failed, self.shown) = (0, 0, 0);
        open
    }

    /// The block was lost beyond what redundancy promises: it may hold anything until it is written. What a write before
    /// that has replaced, and a power cut may bring back, is still remembered: it says that the block is open then.
    pub fn forget(&mut self, block: u64) {
        let now = self.tick();
        let flushed = self.flushed;
        // An array that was made smaller has held more.
        let Some(entries) = self.blocks.get_mut(block as usize) else { return };
        entries.retain(|entry| {
            entry.ended == NEVER || (entry.removed != NEVER && !entry.is_gone(flushed))
        });
        entries.push(Entry::new(ANY, now));
    }
}

fn describe(entry: &Entry, started: Tick) -> String {
    let what = match entry.version {
        ANY => "anything".to_string(),
        version if version & ZERO != 0 => format!("zeroes({})", version & !ZERO),
        version => format!("version {version}"),
    };
    match (entry.ended, entry.removed) {
        (NEVER, _) => format!("[{what}, being written]"),
        (_, NEVER) => format!("[{what}]"),
        (_, removed) if removed > started => format!("[{what}, replaced during the read]"),
        _ => format!("[not {what} any more]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oracle(volatile: bool) -> Oracle {
        Oracle::new(1, 512, 4096, true, volatile)
    }

    fn holds(oracle: &mut Oracle, version: Version) -> bool {
        let mut bytes = [0; 512];
        fill(1, 0, version, &mut bytes);
        let started = oracle.begin_read();
        let result = oracle.check(started, 0, &bytes);
        oracle.end_read(started);
        result.is_ok()
    }

    #[test]
    fn an_acknowledged_write_replaces_and_a_failed_one_may_have() {
        let mut oracle = oracle(false);
        let first = oracle.begin_write(0..1, false);
        oracle.end_write(&first, true, false);
        assert!(!holds(&mut oracle, ZERO));
        let second = oracle.begin_write(0..1, false);
        oracle.end_write(&second, false, false);
        assert!(holds(&mut oracle, first.version));
    }

    #[test]
    fn a_read_settles_which_of_two_concurrent_writes_came_last() {
        let mut oracle = oracle(false);
        let (first, second) = (oracle.begin_write(0..1, false), oracle.begin_write(0..1, false));
        oracle.end_write(&second, true, false);
        oracle.end_write(&first, true, false);
        assert!(oracle.may_be(0, first.version) && oracle.may_be(0, second.version));
        assert!(holds(&mut oracle, second.version));
        assert!(!holds(&mut oracle, first.version));
        let third = oracle.begin_write(0..1, false);
        oracle.end_write(&third, true, false);
        assert!(!oracle.may_be(0, second.version) && oracle.may_be(0, third.version));
    }

    #[test]
    fn a_crash_brings_back_what_no_flush_has_buried() {
        let mut oracle = oracle(true);
        let first = oracle.begin_write(0..1, false);
        oracle.end_write(&first, true, false);
        let flush = oracle.tick();
        oracle.end_flush(flush);
        let second = oracle.begin_write(0..1, false);
        oracle.end_write(&second, true, false);
        assert!(!holds(&mut oracle, first.version));
        assert_eq!(oracle.crash(), [0]);
        oracle.settled = false;
        assert!(holds(&mut oracle, second.version) && holds(&mut oracle, first.version));
        assert!(!holds(&mut oracle, ZERO));
    }

    #[test]
    fn what_was_read_new_is_not_old_again_until_a_member_fails() {
        let mut oracle = oracle(true);
        let first = oracle.begin_write(0..1, false);
        oracle.end_write(&first, true, false);
        oracle.crash();
        oracle.settled = false;
        oracle.begin_steady();
        assert!(holds(&mut oracle, first.version) && !holds(&mut oracle, ZERO));
        oracle.end_steady();
        assert!(holds(&mut oracle, ZERO) && holds(&mut oracle, first.version));
    }

    #[test]
    fn what_a_member_has_lost_is_read_old_and_what_is_written_then_is_not() {
        let mut oracle = oracle(true);
        let first = oracle.begin_write(0..1, false);
        oracle.end_write(&first, true, false);
        let under_way = oracle.begin_write(0..1, false);
        oracle.show_loss();
        oracle.end_write(&under_way, true, false);
        assert!(holds(&mut oracle, ZERO));
        let later = oracle.begin_write(0..1, false);
        oracle.end_write(&later, true, false);
        assert!(!holds(&mut oracle, ZERO) && !holds(&mut oracle, under_way.version));
    }

    #[test]
    fn a_kill_loses_nothing_and_a_power_cut_after_it_does() {
        let mut oracle = oracle(true);
        let first = oracle.begin_write(0..1, false);
        oracle.end_write(&first, true, false);
        assert!(oracle.kill().is_empty());
        assert!(!holds(&mut oracle, ZERO));
        oracle.crash();
        assert!(holds(&mut oracle, ZERO));
    }

    #[test]
    fn what_a_failed_flush_was_for_may_be_lost_whatever_is_flushed_later() {
        let mut oracle = oracle(true);
        let first = oracle.begin_write(0..1, false);
        oracle.end_write(&first, true, false);
        let under_way = oracle.begin_write(1..2, false);
        oracle.fail_flush();
        oracle.end_write(&under_way, true, false);
        let later = oracle.begin_write(2..3, false);
        oracle.end_write(&later, true, false);
        let flush = oracle.tick();
        oracle.end_flush(flush);
        assert!(holds(&mut oracle, first.version) && !holds(&mut oracle, ZERO));
        assert_eq!(oracle.crash(), [0, 1]);
        assert!(holds(&mut oracle, ZERO));
    }

    #[test]
    fn what_is_written_after_a_failed_flush_is_durable_by_the_next() {
        let mut oracle = oracle(true);
        let first = oracle.begin_write(0..1, false);
        oracle.end_write(&first, true, false);
        oracle.fail_flush();
        let second = oracle.begin_write(0..1, false);
        oracle.end_write(&second, true, false);
        let flush = oracle.tick();
        oracle.end_flush(flush);
        assert!(oracle.crash().is_empty());
        assert!(holds(&mut oracle, second.version) && !holds(&mut oracle, first.version));
    }

    #[test]
    fn a_write_that_is_not_durable_leaves_its_block_open_though_it_was_forgotten() {
        let mut oracle = oracle(true);
        let first = oracle.begin_write(0..1, false);
        oracle.end_write(&first, true, false);
        oracle.forget(0);
        oracle.forget(1);
        assert!(oracle.kill().is_empty());
        assert_eq!(oracle.crash(), [0]);
        assert!(oracle.crash().is_empty());
    }

    #[test]
    fn a_forced_write_survives_a_crash() {
        let mut oracle = oracle(true);
        let first = oracle.begin_write(0..1, false);
        oracle.end_write(&first, true, true);
        assert!(oracle.crash().is_empty());
        assert!(holds(&mut oracle, first.version) && !holds(&mut oracle, ZERO));
    }
}
