//! Memory of lines, found by stripe, evicted by the clock rule.
//!
//! A line holds a block of `stripe_size` bytes of each member of which it knows what is there: the very buffer that was
//! read or written where that is just such a block, else a copy, since a part of a larger buffer would keep all of it.
//! Nothing here goes through all lines but the clock's hand, which passes each line at most once for each that it evicts
//! (and once more for each that was used meanwhile).

use braid_layout::Slot;
use braid_shard::Buf;
use braid_shard::buffer::Pool;
use hashbrown::HashMap;
use std::ops::Range;

/// Marks a place of a stripe without a line.
const NONE: u32 = u32::MAX;

/// The header of a line.
#[derive(Clone)]
struct Line {
    stripe: u64,
    /// Which line of the stripe; [`NONE`]: not in use.
    height: u32,
    /// Used since the clock's hand came by.
    used: bool,
}

/// Which lines of one stripe there are.
struct Entry {
    /// By height: the number of the line.
    lines: Box<[u32]>,
    count: u32,
}

/// See the module's documentation.
pub(crate) struct Lines {
    pool: Pool,
    members: usize,
    line_size: u64,
    heights: usize,
    capacity: u32,
    index: HashMap<u64, Entry>,
    headers: Vec<Line>,
    /// By line, the block of each member that is there.
    blocks: Vec<Option<Buf>>,
    /// Blocks that are there.
    held: u64,
    /// The line that was stored to last: mostly the next is the same.
    last: u32,
    free: Vec<u32>,
    hand: u32,
    len: u32,
    evictions: u64,
    /// Fingerprints of stripes that were evicted, by hash: what a larger cache would still have.
    evicted: Vec<u32>,
    /// Entries without lines, kept for reuse.
    spare: Vec<Box<[u32]>>,
}

/// The lines of one stripe.
pub(crate) struct StripeLines<'a> {
    lines: &'a Lines,
    entry: &'a Entry,
}

impl StripeLines<'_> {
    /// True when all bytes `rows` of `slot` are here.
    pub(crate) fn has(&self, slot: Slot, rows: &Range<u64>) -> bool {
        self.lines.heights_of(rows).all(|height| self.block(height, slot).is_some())
    }

    fn block(&self, height: usize, slot: Slot) -> Option<&Buf> {
        let line = self.entry.lines.get(height).copied().filter(|line| *line != NONE)?;
        self.lines.block(line, slot)
    }

    /// Bytes `rows` of `slot`; `None` when not all are here. Copied to memory of `pool` unless they are of one line.
    pub(crate) fn get(&self, slot: Slot, rows: &Range<u64>, pool: &Pool) -> Option<Buf> {
        let heights = self.lines.heights_of(rows);
        if heights.len() == 1 {
            let (within, _) = self.lines.overlap(heights.start, rows);
            return self.block(heights.start, slot).map(|block| block.slice(within));
        }
        let mut buf = pool.get((rows.end - rows.start) as usize);
        self.copy(slot, rows, &mut buf).then(|| buf.freeze())
    }

    /// Copies bytes `rows` of `slot` to `out`, of the same length; false, and `out` half written, when
    /// not all are here.
    pub(crate) fn copy(&self, slot: Slot, rows: &Range<u64>, out: &mut [u8]) -> bool {
        let lines = self.lines;
        lines.heights_of(rows).all(|height| {
            let Some(block) = self.block(height, slot) else { return false };
            let (within, at) = lines.overlap(height, rows);
            match (block.get(within), out.get_mut(at)) {
                (Some(from), Some(to)) if from.len() == to.len() => to.copy_from_slice(from),
                _ => return false,
            }
            true
        })
    }
}

impl Lines {
    /// Room for `capacity` lines, `line_size` high, of stripes of `members` chunks of `chunk` bytes, that
    /// remembers about `horizon` stripes whose lines were evicted. Copies take memory of `pool`.
    pub(crate) fn new(
        pool: &Pool,
        members: usize,
        chunk: u64,
        line_size: u64,
        capacity: u32,
        horizon: u32,
    ) -> Lines {
        let line_size = line_size.max(1);
        Lines {
            pool: pool.clone(),
            members,
            line_size,
            heights: chunk.div_ceil(line_size) as usize,
            capacity,
            index: HashMap::new(),
            headers: Vec::new(),
            blocks: Vec::new(),
            held: 0,
            last: NONE,
            free: Vec::new(),
            hand: 0,
            len: 0,
            evictions: 0,
            evicted: vec![0; (horizon as usize).next_power_of_two()],
            spare: Vec::new(),
        }
    }

    pub(crate) fn line_size(&self) -> u64 {
        self.line_size
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Bytes of all blocks that are here.
    pub(crate) fn bytes(&self) -> u64 {
        self.held * self.line_size
    }

    /// The lines of `stripe`, if there are any.
    pub(crate) fn stripe(&self, stripe: u64) -> Option<StripeLines<'_>> {
        let entry = self.index.get(&stripe)?;
        Some(StripeLines { lines: self, entry })
    }

    /// The lines of `stripe` were useful.
    pub(crate) fn touch(&mut self, stripe: u64) {
        let Some(entry) = self.index.get(&stripe) else { return };
        for line in entry.lines.iter().filter(|line| **line != NONE) {
            if let Some(header) = self.headers.get_mut(*line as usize) {
                header.used = true;
            }
        }
    }

    /// A line of `stripe` was evicted not long ago.
    pub(crate) fn was_evicted(&self, stripe: u64) -> bool {
        let (at, mark) = self.fingerprint(stripe);
        self.evicted.get(at) == Some(&mark)
    }

    fn fingerprint(&self, stripe: u64) -> (usize, u32) {
        let hash = stripe.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // The table's length is a power of two; 0 marks an empty place.
        let at = (hash >> 32) as usize & (self.evicted.len() - 1);
        (at, (hash as u32) | 1)
    }

    fn heights_of(&self, rows: &Range<u64>) -> Range<usize> {
        (rows.start / self.line_size) as usize..rows.end.div_ceil(self.line_size) as usize
    }

    /// Where `rows` meet the line at `height`: bytes of the line's block, and bytes of `rows`.
    fn overlap(&self, height: usize, rows: &Range<u64>) -> (Range<usize>, Range<usize>) {
        let base = height as u64 * self.line_size;
        let start = rows.start.max(base);
        let end = rows.end.min(base + self.line_size);
        let within = (start - base) as usize..(end - base) as usize;
        (within, (start - rows.start) as usize..(end - rows.start) as usize)
    }

    fn block(&self, line: u32, slot: Slot) -> Option<&Buf> {
        self.blocks.get(self.place(line, slot)?)?.as_ref()
    }

    fn place(&self, line: u32, slot: Slot) -> Option<usize> {
        (slot < self.members).then(|| line as usize * self.members + slot)
    }

    /// Keeps `block`, or nothing, as that of `slot`.
    fn put(&mut self, line: u32, slot: Slot, block: Option<Buf>) {
        let place = self.place(line, slot);
        if let Some(place) = place.and_then(|place| self.blocks.get_mut(place)) {
            self.held += u64::from(block.is_some());
            self.held -= u64::from(place.is_some());
            *place = block;
        }
    }

    /// The line for `height` of `stripe`.
    fn line(&self, stripe: u64, height: usize) -> Option<u32> {
        let last = self.headers.get(self.last as usize);
        if last.is_some_and(|line| line.stripe == stripe && line.height as usize == height) {
            return Some(self.last);
        }
        let entry = self.index.get(&stripe)?;
        entry.lines.get(height).copied().filter(|line| *line != NONE)
    }

    /// See [`StripeCache::store`](crate::cache::StripeCache::store).
    pub(crate) fn store(
        &mut self,
        stripe: u64,
        slot: Slot,
        rows: Range<u64>,
        bytes: &Buf,
        admit: bool,
    ) {
        if slot >= self.members || rows.end - rows.start != bytes.len() as u64 {
            return;
        }
        for height in self.heights_of(&rows) {
            let (within, at) = self.overlap(height, &rows);
            let whole = within.len() as u64 == self.line_size;
            let line = match self.line(stripe, height) {
                Some(line) => line,
                None if whole && admit => match self.make(stripe, height) {
                    Some(line) => line,
                    None => return,
                },
                None => continue,
            };
            self.last = line;
            if whole {
                let alone = at.len() == bytes.len() && bytes.is_all_of_its_memory();
                let block = if alone { bytes.clone() } else { self.copy_of(bytes, at) };
                self.put(line, slot, Some(block));
            } else {
                self.update(line, slot, within, bytes.get(at).unwrap_or_default());
            }
        }
    }

    /// Keeps these blocks of slots as the whole line at `height`. With `admit` it is made if it is not there.
    pub(crate) fn store_line<'a>(
        &mut self,
        stripe: u64,
        height: usize,
        blocks: impl Iterator<Item = (Slot, &'a Buf)>,
        admit: bool,
    ) {
        let there = self.line(stripe, height);
        let made = || if admit { self.make(stripe, height) } else { None };
        let Some(line) = there.or_else(made) else { return };
        for (slot, block) in blocks {
            self.keep(line, slot, block);
        }
    }

    /// Keeps all of `block` as that of `slot`.
    #[inline]
    fn keep(&mut self, line: u32, slot: Slot, block: &Buf) {
        debug_assert_eq!(block.len() as u64, self.line_size, "a block of another height");
        let block = match block.is_all_of_its_memory() {
            true => block.clone(),
            false => self.pool.copy_of(block).freeze(),
        };
        self.put(line, slot, Some(block));
    }

    fn copy_of(&self, bytes: &[u8], at: Range<usize>) -> Buf {
        self.pool.copy_of(bytes.get(at).unwrap_or_default()).freeze()
    }

    /// Brings bytes `within` of a block up to date, if the block is there: part of one is not kept.
    fn update(&mut self, line: u32, slot: Slot, within: Range<usize>, bytes: &[u8]) {
        let place = self.place(line, slot).and_then(|place| self.blocks.get_mut(place));
        let Some(place) = place else { return };
        let Some(block) = place.take() else { return };
        // Whoever else has the block, such as a request to a member, goes on with what it was.
        let mut block = block.try_into_mut().unwrap_or_else(|block| self.pool.copy_of(&block));
        if let Some(to) = block.get_mut(within) {
            to.copy_from_slice(bytes);
        }
        *place = Some(block.freeze());
    }

    /// A line without valid blocks for `height` of `stripe`.
    fn make(&mut self, stripe: u64, height: usize) -> Option<u32> {
        if height >= self.heights {
            return None;
        }
        let line = self.free_line()?;
        let header = self.headers.get_mut(line as usize)?;
        *header = Line { stripe, height: height as u32, used: false };
        let heights = self.heights;
        let spare = &mut self.spare;
        let entry = self.index.entry(stripe).or_insert_with(|| Entry {
            lines: spare.pop().unwrap_or_else(|| vec![NONE; heights].into_boxed_slice()),
            count: 0,
        });
        *entry.lines.get_mut(height)? = line;
        entry.count += 1;
        self.len += 1;
        Some(line)
    }

    fn free_line(&mut self) -> Option<u32> {
        if let Some(line) = self.free.pop() {
            return Some(line);
        }
        if (self.headers.len() as u64) < u64::from(self.capacity) {
            let line = self.headers.len() as u32;
            self.headers.push(Line { stripe: 0, height: NONE, used: false });
            self.blocks.resize_with(self.headers.len() * self.members, || None);
            return Some(line);
        }
        self.evict();
        self.free.pop()
    }

    /// Lets one line go: the first that was not used since the hand came by.
    fn evict(&mut self) {
        let lines = self.headers.len() as u32;
        for _ in 0..2 * u64::from(lines) {
            self.hand = if self.hand + 1 >= lines { 0 } else { self.hand + 1 };
            let Some(header) = self.headers.get_mut(self.hand as usize) else { return };
            if header.height == NONE || std::mem::take(&mut header.used) {
                continue;
            }
            let (line, stripe) = (self.hand, header.stripe);
            let (at, mark) = self.fingerprint(stripe);
            if let Some(place) = self.evicted.get_mut(at) {
                *place = mark;
            }
            self.evictions += 1;
            self.drop_line(line);
            return;
        }
    }

    fn drop_line(&mut self, line: u32) {
        let Some(header) = self.headers.get_mut(line as usize) else { return };
        let (stripe, height) = (header.stripe, std::mem::replace(&mut header.height, NONE));
        let first = line as usize * self.members;
        for block in self.blocks.get_mut(first..first + self.members).unwrap_or_default() {
            if block.take().is_some() {
                self.held -= 1;
            }
        }
        self.free.push(line);
        self.len -= 1;
        let Some(entry) = self.index.get_mut(&stripe) else { return };
        if let Some(place) = entry.lines.get_mut(height as usize) {
            *place = NONE;
        }
        entry.count -= 1;
        if entry.count == 0
            && let Some(entry) = self.index.remove(&stripe)
        {
            self.spare.push(entry.lines);
        }
    }

    pub(crate) fn forget_slot(&mut self, stripe: u64, slot: Slot, rows: Range<u64>) {
        for height in self.heights_of(&rows) {
            if let Some(line) = self.line(stripe, height) {
                self.put(line, slot, None);
            }
        }
    }

    pub(crate) fn forget(&mut self, stripe: u64, rows: Range<u64>) {
        for height in self.heights_of(&rows) {
            if let Some(line) = self.line(stripe, height) {
                self.drop_line(line);
            }
        }
    }

    /// Room for `capacity` lines from now on; what is beyond is evicted, and its memory freed.
    pub(crate) fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.truncate(capacity);
    }

    /// Evicts all lines from number `lines` on.
    fn truncate(&mut self, lines: u32) {
        for line in lines..self.headers.len() as u32 {
            if self.headers.get(line as usize).is_some_and(|header| header.height != NONE) {
                self.drop_line(line);
            }
        }
        self.free.retain(|line| *line < lines);
        self.headers.truncate(lines as usize);
        self.blocks.truncate(lines as usize * self.members);
        self.hand = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE_SIZE: u64 = 4;

    fn lines(capacity: u32) -> Lines {
        Lines::new(&pool(), 3, 16, LINE_SIZE, capacity, 64)
    }

    fn pool() -> Pool {
        Pool::new(0)
    }

    fn store(lines: &mut Lines, stripe: u64, slot: Slot, rows: Range<u64>, bytes: &[u8]) {
        let bytes = lines.pool.copy_of(bytes).freeze();
        lines.store(stripe, slot, rows, &bytes, true);
    }

    fn held(lines: &Lines, stripe: u64, slot: Slot, rows: Range<u64>) -> Option<Vec<u8>> {
        let mut out = vec![0; (rows.end - rows.start) as usize];
        lines.stripe(stripe).filter(|found| found.copy(slot, &rows, &mut out))?;
        Some(out)
    }

    #[test]
    fn what_was_stored_is_given_back_and_nothing_else_is() {
        let mut lines = lines(8);
        store(&mut lines, 7, 1, 2..12, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(held(&lines, 7, 1, 4..12), Some(vec![3, 4, 5, 6, 7, 8, 9, 10]));
        assert_eq!(held(&lines, 7, 1, 5..7), Some(vec![4, 5]));
        assert_eq!(held(&lines, 7, 1, 2..8), None, "part of a block is not kept");
        assert_eq!(held(&lines, 7, 0, 4..8), None);
        assert_eq!(held(&lines, 8, 1, 4..8), None);
        let part = lines.pool.copy_of(&[60, 70, 80]).freeze();
        lines.store(7, 1, 6..9, &part, false);
        assert_eq!(held(&lines, 7, 1, 4..12), Some(vec![3, 4, 60, 70, 80, 8, 9, 10]));
        let block = lines.pool.zeroed(4).freeze();
        lines.store(9, 1, 4..8, &block, false);
        assert!(lines.stripe(9).is_none(), "not admitted");
        lines.forget_slot(7, 1, 7..8);
        assert_eq!(held(&lines, 7, 1, 4..8), None);
        assert_eq!(held(&lines, 7, 1, 8..12), Some(vec![80, 8, 9, 10]));
        lines.forget(7, 0..16);
        assert!(lines.stripe(7).is_none() && lines.is_empty());
    }

    #[test]
    fn the_capacity_holds_and_a_line_that_is_used_stays() {
        let mut lines = lines(4);
        for stripe in 0..4 {
            store(&mut lines, stripe, 0, 0..4, &[stripe as u8; 4]);
        }
        for stripe in 4..40 {
            lines.touch(2);
            store(&mut lines, stripe, 0, 0..4, &[stripe as u8; 4]);
            assert_eq!(lines.len(), 4);
            assert_eq!(held(&lines, 2, 0, 0..4), Some(vec![2; 4]));
            assert_eq!(held(&lines, stripe, 0, 0..4), Some(vec![stripe as u8; 4]));
        }
        assert_eq!(lines.evictions(), 36);
        assert_eq!(lines.bytes(), 4 * LINE_SIZE, "one block of each line is known");
        assert!((4..38).filter(|stripe| lines.was_evicted(*stripe)).count() > 3);
    }

    #[test]
    fn a_changed_capacity_keeps_what_still_fits() {
        let mut lines = Lines::new(&pool(), 2, 64, 4, 3, 1);
        for height in 0..3 {
            store(&mut lines, 1, 0, height * 4..height * 4 + 4, &[height as u8; 4]);
        }
        lines.set_capacity(8);
        for height in 3..10 {
            store(&mut lines, 1, 1, height * 4..height * 4 + 4, &[height as u8; 4]);
        }
        assert_eq!(lines.len(), 8);
        assert_eq!(lines.bytes(), 8 * 4);
        lines.set_capacity(1);
        assert!(lines.len() <= 1);
        lines.set_capacity(0);
        assert!(lines.is_empty() && lines.bytes() == 0);
        store(&mut lines, 1, 1, 0..4, &[1; 4]);
        assert!(lines.is_empty());
        lines.set_capacity(2);
        store(&mut lines, 1, 1, 0..4, &[1; 4]);
        assert_eq!(held(&lines, 1, 1, 0..4), Some(vec![1; 4]));
    }

    #[test]
    fn a_buffer_that_is_a_block_is_kept_itself_and_a_part_of_a_larger_one_is_copied() {
        let pool = pool();
        let mut lines = Lines::new(&pool, 2, 16384, 4096, 8, 1);
        let block = pool.zeroed(4096).freeze();
        lines.store(1, 0, 0..4096, &block, true);
        assert_eq!((lines.bytes(), pool.outstanding()), (4096, 4096));
        let large = pool.zeroed(16384).freeze();
        lines.store(2, 0, 0..16384, &large, true);
        lines.store(3, 0, 0..4096, &large.slice(4096..8192), true);
        drop(large);
        assert_eq!(lines.bytes(), 6 * 4096);
        assert_eq!(pool.outstanding(), 6 * 4096, "no more than what it holds");
    }

    #[test]
    fn who_reads_a_block_while_it_changes_has_the_old_bytes() {
        let pool = pool();
        let mut lines = Lines::new(&pool, 2, 16384, 4096, 8, 1);
        let block = pool.zeroed(4096).freeze();
        lines.store(1, 0, 0..4096, &block, true);
        let read = lines.stripe(1).unwrap().get(0, &(512..1024), &pool).unwrap();
        drop(block);
        store(&mut lines, 1, 0, 0..512, &[7; 512]);
        store(&mut lines, 1, 0, 512..1024, &[9; 512]);
        assert_eq!(read[..], [0; 512]);
        assert_eq!(held(&lines, 1, 0, 0..1024), Some([[7; 512], [9; 512]].concat()));
        assert_eq!(lines.bytes(), 4096);
    }
}
