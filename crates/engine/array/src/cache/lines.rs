//! Memory of lines, found by stripe, let go by the clock rule.
//!
//! Lines are cut from arenas of equal size, whatever the machine's page size is; a line takes members ×
//! `stripe_size` bytes and a header. Nothing here goes through all lines but the clock's hand, which
//! passes each line at most once for each that it lets go (and once more for each that was used
//! meanwhile).

use braid_layout::Slot;
use hashbrown::HashMap;
use std::ops::Range;

/// Bytes of an arena, about: whole lines of it.
const ARENA_BYTES: u64 = 4 << 20;
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
    members: usize,
    granule: u64,
    heights: usize,
    capacity: u32,
    per_arena: u32,
    index: HashMap<u64, Entry>,
    headers: Vec<Line>,
    /// Of each line, which members' blocks are there: `words` words a line.
    valid: Vec<u64>,
    words: usize,
    arenas: Vec<Box<[u8]>>,
    free: Vec<u32>,
    hand: u32,
    len: u32,
    evictions: u64,
    /// Fingerprints of stripes that were let go, by hash: what a larger cache would still have.
    let_go: Vec<u32>,
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
        self.lines.heights_of(rows).all(|height| {
            let line = self.entry.lines.get(height).copied().unwrap_or(NONE);
            line != NONE && self.lines.is_valid(line, slot)
        })
    }

    /// Copies bytes `rows` of `slot` to `out`, of the same length; false, and `out` half written, when
    /// not all are here.
    pub(crate) fn copy(&self, slot: Slot, rows: &Range<u64>, out: &mut [u8]) -> bool {
        let lines = self.lines;
        lines.heights_of(rows).all(|height| {
            let line = self.entry.lines.get(height).copied().unwrap_or(NONE);
            if line == NONE || !lines.is_valid(line, slot) {
                return false;
            }
            let (within, at) = lines.overlap(height, rows);
            match (lines.block(line, slot).get(within), out.get_mut(at)) {
                (Some(from), Some(to)) if from.len() == to.len() => to.copy_from_slice(from),
                _ => return false,
            }
            true
        })
    }
}

impl Lines {
    /// Room for `capacity` lines, `granule` high, of stripes of `members` chunks of `chunk` bytes, that
    /// remembers about `horizon` stripes whose lines were let go.
    pub(crate) fn new(
        members: usize,
        chunk: u64,
        granule: u64,
        capacity: u32,
        horizon: u32,
    ) -> Lines {
        let granule = granule.max(1);
        let line = (members as u64 * granule).max(1);
        Lines {
            members,
            granule,
            heights: chunk.div_ceil(granule) as usize,
            capacity,
            per_arena: (ARENA_BYTES / line).clamp(1, 4096) as u32,
            index: HashMap::new(),
            headers: Vec::new(),
            valid: Vec::new(),
            words: members.div_ceil(64),
            arenas: Vec::new(),
            free: Vec::new(),
            hand: 0,
            len: 0,
            evictions: 0,
            let_go: vec![0; (horizon as usize).next_power_of_two()],
            spare: Vec::new(),
        }
    }

    pub(crate) fn granule(&self) -> u64 {
        self.granule
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

    /// Bytes taken for lines.
    pub(crate) fn bytes(&self) -> u64 {
        self.arenas.iter().map(|arena| arena.len() as u64).sum()
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

    /// A line of `stripe` was let go not long ago.
    pub(crate) fn was_let_go(&self, stripe: u64) -> bool {
        let (at, mark) = self.fingerprint(stripe);
        self.let_go.get(at) == Some(&mark)
    }

    fn fingerprint(&self, stripe: u64) -> (usize, u32) {
        let hash = stripe.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // The table's length is a power of two; 0 marks an empty place.
        let at = (hash >> 32) as usize & (self.let_go.len() - 1);
        (at, (hash as u32) | 1)
    }

    fn heights_of(&self, rows: &Range<u64>) -> Range<usize> {
        (rows.start / self.granule) as usize..rows.end.div_ceil(self.granule) as usize
    }

    /// Where `rows` meet the line at `height`: bytes of the line's block, and bytes of `rows`.
    fn overlap(&self, height: usize, rows: &Range<u64>) -> (Range<usize>, Range<usize>) {
        let base = height as u64 * self.granule;
        let start = rows.start.max(base);
        let end = rows.end.min(base + self.granule);
        let within = (start - base) as usize..(end - base) as usize;
        (within, (start - rows.start) as usize..(end - rows.start) as usize)
    }

    fn is_valid(&self, line: u32, slot: Slot) -> bool {
        let word = self.valid.get(line as usize * self.words + slot / 64);
        word.is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    fn set_valid(&mut self, line: u32, slot: Slot, valid: bool) {
        if let Some(word) = self.valid.get_mut(line as usize * self.words + slot / 64) {
            let bit = 1 << (slot % 64);
            *word = if valid { *word | bit } else { *word & !bit };
        }
    }

    /// Which arena, and the first byte in it.
    fn place(&self, line: u32, slot: Slot) -> (usize, usize) {
        let (arena, nr) = (line / self.per_arena, line % self.per_arena);
        let block = nr as usize * self.members + slot;
        (arena as usize, block * self.granule as usize)
    }

    fn block(&self, line: u32, slot: Slot) -> &[u8] {
        let (arena, at) = self.place(line, slot);
        let block = self.arenas.get(arena).and_then(|arena| arena.get(at..));
        block.and_then(|block| block.get(..self.granule as usize)).unwrap_or_default()
    }

    fn block_mut(&mut self, line: u32, slot: Slot) -> &mut [u8] {
        let (arena, at) = self.place(line, slot);
        let granule = self.granule as usize;
        let block = self.arenas.get_mut(arena).and_then(|arena| arena.get_mut(at..));
        block.and_then(|block| block.get_mut(..granule)).unwrap_or_default()
    }

    /// See [`StripeCache::store`](crate::cache::StripeCache::store).
    pub(crate) fn store(
        &mut self,
        stripe: u64,
        slot: Slot,
        rows: Range<u64>,
        bytes: &[u8],
        admit: bool,
    ) {
        if slot >= self.members || rows.end - rows.start != bytes.len() as u64 {
            return;
        }
        for height in self.heights_of(&rows) {
            let (within, at) = self.overlap(height, &rows);
            let whole = within.len() as u64 == self.granule;
            let known = self.index.get(&stripe).and_then(|entry| entry.lines.get(height)).copied();
            let line = match known.filter(|line| *line != NONE) {
                // Part of a block may be brought up to date, but part of one is not kept.
                Some(line) if whole || self.is_valid(line, slot) => line,
                Some(_) => continue,
                None if whole && admit => match self.make(stripe, height) {
                    Some(line) => line,
                    None => return,
                },
                None => continue,
            };
            if let (Some(to), Some(from)) =
                (self.block_mut(line, slot).get_mut(within), bytes.get(at))
            {
                to.copy_from_slice(from);
                self.set_valid(line, slot, true);
            }
        }
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
            self.valid.resize(self.headers.len() * self.words, 0);
            if line / self.per_arena >= self.arenas.len() as u32 {
                // The last arena of a small cache holds no more lines than there may be.
                let lines = (self.capacity - line).min(self.per_arena) as usize;
                let bytes = lines * self.members * self.granule as usize;
                self.arenas.push(vec![0; bytes].into_boxed_slice());
            }
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
            if let Some(place) = self.let_go.get_mut(at) {
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
        let words = line as usize * self.words..(line as usize + 1) * self.words;
        if let Some(words) = self.valid.get_mut(words) {
            words.fill(0);
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
            let line = self.index.get(&stripe).and_then(|entry| entry.lines.get(height)).copied();
            if let Some(line) = line.filter(|line| *line != NONE) {
                self.set_valid(line, slot, false);
            }
        }
    }

    pub(crate) fn forget(&mut self, stripe: u64, rows: Range<u64>) {
        for height in self.heights_of(&rows) {
            let Some(entry) = self.index.get(&stripe) else { return };
            let line = entry.lines.get(height).copied().unwrap_or(NONE);
            if line != NONE {
                self.drop_line(line);
            }
        }
    }

    /// Room for `capacity` lines from now on; what is beyond is let go, and its memory given back.
    pub(crate) fn set_capacity(&mut self, capacity: u32) {
        let grown = capacity > self.capacity;
        self.capacity = capacity;
        if grown {
            // An arena that was cut short for the old size gives way to one of full size.
            let short = self.arenas.last().is_some_and(|arena| {
                arena.len() < self.per_arena as usize * self.members * self.granule as usize
            });
            let lines = self.per_arena * (self.arenas.len() as u32).saturating_sub(1);
            if short {
                self.truncate(lines);
            }
            return;
        }
        self.truncate(capacity);
    }

    /// Lets go all lines from number `lines` on.
    fn truncate(&mut self, lines: u32) {
        for line in lines..self.headers.len() as u32 {
            if self.headers.get(line as usize).is_some_and(|header| header.height != NONE) {
                self.drop_line(line);
            }
        }
        self.free.retain(|line| *line < lines);
        self.headers.truncate(lines as usize);
        self.valid.truncate(lines as usize * self.words);
        self.arenas.truncate(lines.div_ceil(self.per_arena) as usize);
        self.hand = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANULE: u64 = 4;

    fn lines(capacity: u32) -> Lines {
        Lines::new(3, 16, GRANULE, capacity, 64)
    }

    fn held(lines: &Lines, stripe: u64, slot: Slot, rows: Range<u64>) -> Option<Vec<u8>> {
        let mut out = vec![0; (rows.end - rows.start) as usize];
        lines.stripe(stripe).filter(|found| found.copy(slot, &rows, &mut out))?;
        Some(out)
    }

    #[test]
    fn what_was_stored_is_given_back_and_nothing_else_is() {
        let mut lines = lines(8);
        lines.store(7, 1, 2..12, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], true);
        assert_eq!(held(&lines, 7, 1, 4..12), Some(vec![3, 4, 5, 6, 7, 8, 9, 10]));
        assert_eq!(held(&lines, 7, 1, 5..7), Some(vec![4, 5]));
        assert_eq!(held(&lines, 7, 1, 2..8), None, "part of a block is not kept");
        assert_eq!(held(&lines, 7, 0, 4..8), None);
        assert_eq!(held(&lines, 8, 1, 4..8), None);
        lines.store(7, 1, 6..9, &[60, 70, 80], false);
        assert_eq!(held(&lines, 7, 1, 4..12), Some(vec![3, 4, 60, 70, 80, 8, 9, 10]));
        lines.store(9, 1, 4..8, &[0; 4], false);
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
            lines.store(stripe, 0, 0..4, &[stripe as u8; 4], true);
        }
        for stripe in 4..40 {
            lines.touch(2);
            lines.store(stripe, 0, 0..4, &[stripe as u8; 4], true);
            assert_eq!(lines.len(), 4);
            assert_eq!(held(&lines, 2, 0, 0..4), Some(vec![2; 4]));
            assert_eq!(held(&lines, stripe, 0, 0..4), Some(vec![stripe as u8; 4]));
        }
        assert_eq!(lines.evictions(), 36);
        assert_eq!(lines.bytes(), 4 * 3 * GRANULE);
        assert!((4..38).filter(|stripe| lines.was_let_go(*stripe)).count() > 3);
    }

    #[test]
    fn a_changed_capacity_keeps_what_still_fits() {
        let mut lines = Lines::new(2, 64, 4, 3, 1);
        lines.per_arena = 2;
        for height in 0..3 {
            lines.store(1, 0, height * 4..height * 4 + 4, &[height as u8; 4], true);
        }
        lines.set_capacity(8);
        for height in 3..10 {
            lines.store(1, 1, height * 4..height * 4 + 4, &[height as u8; 4], true);
        }
        assert_eq!(lines.len(), 8);
        assert_eq!(lines.bytes(), 8 * 2 * 4);
        lines.set_capacity(1);
        assert!(lines.len() <= 1);
        lines.set_capacity(0);
        assert!(lines.is_empty() && lines.bytes() == 0);
        lines.store(1, 1, 0..4, &[1; 4], true);
        assert!(lines.is_empty());
        lines.set_capacity(2);
        lines.store(1, 1, 0..4, &[1; 4], true);
        assert_eq!(held(&lines, 1, 1, 0..4), Some(vec![1; 4]));
    }
}
