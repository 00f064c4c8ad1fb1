//! The stripe cache of one array on one shard: blocks of lines that writes have read or written, kept
//! so that a later write of the same line has less to read.
//!
//! A line is `stripe_size` bytes of every member at one height of a stripe. What is in the cache is
//! what is on the members: a write enters it when it has ended well, so a line can be evicted at any
//! moment, and a crash loses nothing. One look-up by stripe finds all lines of the stripe, however
//! large the cache is.
//!
//! | file | subject |
//! |---|---|
//! | `lines` | memory of lines, found by stripe, evicted by the clock rule |
//! | `sizing` | how large the cache should be, and whether a stripe is worth keeping |
//!
//! Knows no I/O. Whoever uses it holds the lock of the rows, and tells it what the members hold.

mod lines;
mod sizing;

pub(crate) use lines::{Lines, StripeLines};
use sizing::Sizing;

use braid_layout::Slot;
use braid_shard::Buf;
use braid_shard::buffer::Pool;
use std::ops::Range;

/// The most that a cache whose size is `auto` takes, in bytes, all shards together.
pub const AUTO_BYTES_MAX: u64 = 256 << 20;

/// Contents and counters of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lines that it may hold.
    pub capacity: u64,
    /// Lines that it holds.
    pub lines: u64,
    /// Bytes of the blocks that lines have.
    pub bytes: u64,
    /// Blocks of lines that a write needed and found here.
    pub hits: u64,
    /// Blocks of lines that a write needed and had to read.
    pub misses: u64,
    /// Lines evicted for others.
    pub evictions: u64,
}

impl CacheStats {
    /// Adds what another shard's cache says.
    pub fn add(&mut self, more: &CacheStats) {
        self.capacity += more.capacity;
        self.lines += more.lines;
        self.bytes += more.bytes;
        self.hits += more.hits;
        self.misses += more.misses;
        self.evictions += more.evictions;
    }
}

/// See the module's documentation.
pub(crate) struct StripeCache {
    lines: Lines,
    sizing: Sizing,
    hits: u64,
    misses: u64,
}

impl StripeCache {
    /// A cache for stripes of `members` blocks of `chunk` bytes, in lines `line_size` high: `fixed`
    /// lines, or as many as pay up to `bound`.
    pub(crate) fn new(
        pool: &Pool,
        members: usize,
        chunk: u64,
        line_size: u64,
        fixed: Option<u32>,
        bound: u32,
    ) -> StripeCache {
        let sizing = Sizing::new(fixed, bound);
        let horizon = if fixed.is_some() { 1 } else { bound };
        let lines = Lines::new(pool, members, chunk, line_size, sizing.capacity(), horizon);
        StripeCache { lines, sizing, hits: 0, misses: 0 }
    }

    /// Height of a line in bytes.
    #[inline]
    pub(crate) fn line_size(&self) -> u64 {
        self.lines.line_size()
    }

    /// True when nothing is kept and nothing will be.
    #[inline]
    fn is_off(&self) -> bool {
        self.lines.is_empty() && self.lines.capacity() == 0
    }

    /// The lines of a stripe, by one look-up.
    #[inline]
    pub(crate) fn stripe(&self, stripe: u64) -> Option<lines::StripeLines<'_>> {
        self.lines.stripe(stripe)
    }

    /// Counts what a write needed of `stripe`: blocks found here and blocks read. Lines that were let
    /// go too early count towards growing.
    #[inline]
    pub(crate) fn wanted(&mut self, stripe: u64, hits: u64, misses: u64) {
        self.hits += hits;
        self.misses += misses;
        if hits > 0 {
            self.lines.touch(stripe);
        }
        if !self.sizing.is_fixed() {
            self.sizes_itself(stripe, hits, misses);
        }
    }

    #[inline(never)]
    fn sizes_itself(&mut self, stripe: u64, hits: u64, misses: u64) {
        if !self.sizing.admits(stripe) {
            // While only some stripes are kept, only those show what keeping them would bring.
            return;
        }
        let early = misses > 0 && self.lines.was_evicted(stripe);
        if let Some(capacity) = self.sizing.wanted(hits, misses, early) {
            self.lines.set_capacity(capacity);
        }
    }

    /// True if blocks of `stripe` that are not cached yet should be.
    fn admits(&self, stripe: u64) -> bool {
        self.lines.capacity() > 0 && self.sizing.admits(stripe)
    }

    /// Blocks of rows of `stripe` are about to be [stored](StripeCache::store), of a write of a part of it or of all; of the
    /// members that are `missing` nothing is known any more. Tells if lines should be made for it; `None`: nothing of it is
    /// kept.
    #[inline(always)]
    pub(crate) fn takes_over(
        &mut self,
        stripe: u64,
        rows: &Range<u64>,
        missing: impl Iterator<Item = Slot>,
        partly: bool,
    ) -> Option<bool> {
        // Lines are made for whole blocks only, and rows shorter than one have none.
        let has_whole = rows.end - rows.start >= self.line_size();
        match self.is_off() || (!has_whole && self.lines.is_empty()) {
            true => None,
            false => self.takes_over_lines(stripe, rows, missing, partly && has_whole),
        }
    }

    #[inline(never)]
    fn takes_over_lines(
        &mut self,
        stripe: u64,
        rows: &Range<u64>,
        missing: impl Iterator<Item = Slot>,
        makes_lines: bool,
    ) -> Option<bool> {
        let admit = makes_lines && self.admits(stripe);
        if !admit && self.stripe(stripe).is_none() {
            return None;
        }
        missing.for_each(|slot| self.forget_slot(stripe, slot, rows.clone()));
        Some(admit)
    }

    /// Takes over what slot `slot` of `stripe` now holds at bytes `rows` of its chunk. With `admit`
    /// lines are made for it; else only what is here already is brought up to date.
    pub(crate) fn store(
        &mut self,
        stripe: u64,
        slot: Slot,
        rows: Range<u64>,
        bytes: &Buf,
        admit: bool,
    ) {
        self.lines.store(stripe, slot, rows, bytes, admit);
    }

    /// As [`store`](StripeCache::store), for `rows` of several slots.
    pub(crate) fn store_blocks<'a>(
        &mut self,
        stripe: u64,
        rows: &Range<u64>,
        blocks: impl Iterator<Item = (Slot, &'a Buf)>,
        admit: bool,
    ) {
        if rows.end - rows.start == self.line_size() && rows.start.is_multiple_of(self.line_size())
        {
            let height = (rows.start / self.line_size()) as usize;
            return self.lines.store_line(stripe, height, blocks, admit);
        }
        for (slot, block) in blocks {
            self.store(stripe, slot, rows.clone(), block, admit);
        }
    }

    /// Forgets bytes `rows` of one slot of `stripe`.
    pub(crate) fn forget_slot(&mut self, stripe: u64, slot: Slot, rows: Range<u64>) {
        self.lines.forget_slot(stripe, slot, rows);
    }

    /// Forgets bytes `rows` of all slots of `stripe`.
    pub(crate) fn forget(&mut self, stripe: u64, rows: Range<u64>) {
        if !self.lines.is_empty() && self.stripe(stripe).is_some() {
            self.lines.forget(stripe, rows);
        }
    }

    /// The array has been idle, or memory is short: gives back half. True when there is more to give.
    pub(crate) fn shrink(&mut self) -> bool {
        if let Some(capacity) = self.sizing.shrink() {
            self.lines.set_capacity(capacity);
        }
        self.sizing.can_shrink()
    }

    /// Contents and counters.
    pub(crate) fn stats(&self) -> CacheStats {
        CacheStats {
            capacity: u64::from(self.lines.capacity()),
            lines: u64::from(self.lines.len()),
            bytes: self.lines.bytes(),
            hits: self.hits,
            misses: self.misses,
            evictions: self.lines.evictions(),
        }
    }
}
