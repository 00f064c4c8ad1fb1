//! What the bytes of one file may be: now, and after a crash.
//!
//! Keeps the content as of the last durable point and every change since. Without a crash a byte is what the last
//! completed change made it. After a crash every sector is, as a whole, what one of the changes since the last one
//! known to be durable had made of it: data is written in place, in any order, and devices tear writes at sectors.
//! What cut or punched the file is *firm*: once the namespace shows it, older content must not come back.
//!
//! Changes of one sector are never under way together; the client sees to that. Does not know sizes or names.

use super::extents::Extents;
use super::stamp::{self, Version};
use super::{OpNr, Tick};
use std::ops::Range;

/// Bytes that a crash leaves whole.
pub const SECTOR: u64 = 512;
/// A change that has not ended.
pub const NEVER: Tick = Tick::MAX;

/// One change.
#[derive(Clone, Debug)]
struct Entry {
    op: OpNr,
    range: Range<u64>,
    version: Version,
    ended: Tick,
    /// It cut or punched.
    firm: bool,
    /// It ended with an error: parts of it may be there.
    partial: bool,
    /// It is there, whatever else is known.
    sure: bool,
}

/// The request of what is not any request's: what earlier lives may have left.
const NOBODY: OpNr = 0;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct FileData {
    /// Content at the durable point, or before.
    base: Extents,
    /// What every completed change has made of it.
    now: Extents,
    log: Vec<Entry>,
    /// Changes that ended before are durable.
    durable: Tick,
}

/// Which changes a recovered namespace shows.
pub struct Shown<'a> {
    /// Those that ended before.
    pub until: Tick,
    /// Of those under way then.
    pub among: &'a [OpNr],
}

impl Shown<'_> {
    fn shows(&self, entry: &Entry) -> bool {
        entry.ended < self.until || self.among.contains(&entry.op)
    }
}

/// What one sector may hold: pieces of versions.
type State = Vec<(Range<u64>, Version)>;

fn changed(state: &State, range: &Range<u64>, sector: &Range<u64>, version: Version) -> State {
    let mut extents = Extents::default();
    for (piece, version) in state {
        extents.set(piece.clone(), *version);
    }
    extents.set(range.start.max(sector.start)..range.end.min(sector.end), version);
    extents.pieces(sector.clone())
}

impl FileData {
    /// A change of `range` begins; a cut or punch is `firm`.
    pub fn begin(&mut self, op: OpNr, range: Range<u64>, version: Version, firm: bool) {
        let ended = NEVER;
        self.log.push(Entry { op, range, version, ended, firm, partial: false, sure: false });
    }

    /// The change that begins next may find that what was there is lost, and make room for what comes.
    pub fn may_forget(&mut self, op: OpNr, range: Range<u64>) {
        let (version, ended) = (stamp::ZEROES, NEVER);
        let (firm, partial, sure) = (false, true, false);
        self.log.push(Entry { op, range, version, ended, firm, partial, sure });
    }

    /// The change has ended well.
    pub fn end(&mut self, op: OpNr, now: Tick) {
        for entry in self.log.iter_mut().filter(|entry| entry.op == op) {
            entry.ended = now;
            if !entry.partial {
                self.now.set(entry.range.clone(), entry.version);
            }
        }
    }

    /// The change was refused before it changed anything.
    pub fn refuse(&mut self, op: OpNr) {
        self.log.retain(|entry| entry.op != op);
    }

    /// The change failed on the way: parts of it are there. What of it is beyond `size`, the end of the file, goes when
    /// the file grows.
    pub fn fail(&mut self, op: OpNr, now: Tick, size: u64) {
        let mut beyond = Vec::new();
        for entry in self.log.iter_mut().filter(|entry| entry.op == op) {
            (entry.ended, entry.partial) = (now, true);
            if entry.range.start < size && size < entry.range.end {
                beyond.push(Entry { range: size..entry.range.end, ..entry.clone() });
                entry.range.end = size;
            }
        }
        self.log.append(&mut beyond);
    }

    /// Changes that ended before `tick` are durable. Those that ended before `keep` need not be kept apart any more.
    pub fn make_durable(&mut self, tick: Tick, keep: Tick) {
        self.durable = self.durable.max(tick);
        let fold = self.durable.min(keep);
        let settled: Vec<OpNr> = self
            .log
            .iter()
            .filter(|entry| !entry.partial && entry.ended < fold)
            .map(|entry| entry.op)
            .collect();
        let (base, mut kept) = (&mut self.base, Vec::new());
        for entry in self.log.drain(..) {
            if entry.partial && entry.op != NOBODY && settled.contains(&entry.op) {
                continue;
            }
            // What may be there in part only is needed until it is settled, durably.
            let blocked = entry.partial
                || kept.iter().any(|other: &Entry| overlap(&other.range, &entry.range));
            match entry.ended < fold && !blocked {
                true => base.set(entry.range, entry.version),
                false => kept.push(entry),
            }
        }
        self.log = kept;
    }

    /// The content of `range`, in pieces of versions; `None`: some of it is not known for sure.
    pub fn surely(&self, range: Range<u64>) -> Option<Vec<(Range<u64>, Version)>> {
        let unsure = |entry: &Entry| entry.partial && overlap(&entry.range, &range);
        (!self.log.iter().any(unsure)).then(|| self.now.pieces(range))
    }

    /// Where bytes have been written, as far as the history goes.
    pub fn places(&self) -> Vec<Range<u64>> {
        let log = self.log.iter().map(|entry| entry.range.clone());
        self.base.written().chain(self.now.written()).chain(log).collect()
    }

    /// True when every byte of `range` is zero, as far as that is known: what a failed change left need not be.
    pub fn is_hole(&self, range: Range<u64>) -> bool {
        let is_unsure = |piece: &Range<u64>| {
            self.log.iter().any(|entry| entry.partial && overlap(&entry.range, piece))
        };
        let pieces = self.now.pieces(range);
        pieces.iter().all(|(piece, version)| *version == stamp::ZEROES || is_unsure(piece))
    }

    /// Compares bytes that were read at `offset` while no change was under way there. Gives the first that is wrong
    /// and the version it should be of.
    pub fn check(&self, seed: u64, offset: u64, bytes: &[u8]) -> Option<(u64, Version)> {
        let range = offset..offset + bytes.len() as u64;
        let wrong = self.now.pieces(range.clone()).into_iter().find_map(|(piece, version)| {
            let part = &bytes[(piece.start - offset) as usize..(piece.end - offset) as usize];
            let at = stamp::first_difference(seed, version, piece.start, part)?;
            Some((piece.start + at as u64, version))
        })?;
        let unsure = |entry: &Entry| {
            entry.partial && entry.range.start < range.end && range.start < entry.range.end
        };
        if !self.log.iter().any(unsure) {
            return Some(wrong);
        }
        // What could not be read when it failed is there in part, or not.
        let must = |entry: &Entry| !entry.partial && entry.ended != NEVER;
        let at = self.each_sector(offset, bytes, |sector, part| {
            self.state_of(seed, sector.clone(), part, &must).is_none().then_some(sector.start)
        })?;
        Some((at, wrong.1))
    }

    /// Compares bytes that were read while changes were under way, since `begun`: each sector is as it was at some
    /// moment since then.
    pub fn check_racing(&self, seed: u64, begun: Tick, offset: u64, bytes: &[u8]) -> Option<u64> {
        let must = |entry: &Entry| entry.ended < begun;
        self.each_sector(offset, bytes, |sector, part| {
            self.state_of(seed, sector.clone(), part, &must).is_none().then_some(sector.start)
        })
    }

    /// Compares what a recovered file holds from `offset` on, and takes it for what the file is now. Gives the first
    /// sector that is none of what it may be.
    pub fn recover(
        &mut self,
        seed: u64,
        shown: &Shown<'_>,
        offset: u64,
        bytes: &[u8],
        found: &mut Extents,
    ) -> Option<u64> {
        let durable = self.durable;
        let must = |entry: &Entry| entry.must(durable, shown);
        if self.log.is_empty() {
            // Nothing has changed: one comparison does.
            for (piece, version) in self.base.pieces(offset..offset + bytes.len() as u64) {
                found.set(piece, version);
            }
            return self.check(seed, offset, bytes).map(|(at, _)| at);
        }
        self.each_sector(offset, bytes, |sector, part| {
            match self.state_of(seed, sector.clone(), part, &must) {
                Some(state) => {
                    for (piece, version) in state {
                        found.set(piece, version);
                    }
                    None
                }
                None => Some(sector.start),
            }
        })
    }

    /// The file is, durably, what was found; what of it could not be read, `unread`, is what a crash may have left.
    pub fn restart(&mut self, shown: &Shown<'_>, found: Extents, unread: &[Range<u64>]) {
        let (mut base, mut log) = (found, Vec::new());
        for range in unread {
            for (piece, version) in self.base.pieces(range.clone()) {
                base.set(piece, version);
            }
            let touching = self.log.iter().filter(|entry| overlap(&entry.range, range));
            let first = log.len();
            for entry in touching {
                let part = entry.range.start.max(range.start)..entry.range.end.min(range.end);
                let sure = entry.must(self.durable, shown);
                let before = log[first..].iter().any(|other: &Entry| overlap(&other.range, &part));
                if sure && !before {
                    base.set(part, entry.version);
                    continue;
                }
                let (op, range, version, ended) = (NOBODY, part, entry.version, 0);
                let (firm, partial) = (false, !sure);
                log.push(Entry { op, range, version, ended, firm, partial, sure });
            }
        }
        let mut now = base.clone();
        for entry in log.iter().filter(|entry| entry.sure) {
            now.set(entry.range.clone(), entry.version);
        }
        *self = FileData { base, now, log, durable: 0 };
    }

    /// What the failed change `op` of `range` left is known now: `bytes`, and zeroes where the file ends before, but for
    /// what could not be read, `unread`. Gives the first sector that is none of what it may be.
    pub fn settle(
        &mut self,
        seed: u64,
        op: OpNr,
        now: Tick,
        range: Range<u64>,
        (bytes, unread): (&[u8], &[Range<u64>]),
    ) -> Option<u64> {
        let (offset, mut found) = (range.start, Extents::default());
        let must = |entry: &Entry| !entry.partial && entry.ended != NEVER;
        let is_unread = |part: &Range<u64>| unread.iter().any(|other| overlap(other, part));
        let wrong = self.each_sector(offset, bytes, |sector, part| {
            if is_unread(sector) {
                return None;
            }
            let Some(state) = self.state_of(seed, sector.clone(), part, &must) else {
                return Some(sector.start);
            };
            for (piece, version) in state {
                found.set(piece, version);
            }
            None
        });
        for part in without(range, unread) {
            for (range, version) in found.pieces(part) {
                self.now.set(range.clone(), version);
                let (ended, firm, partial, sure) = (now, false, false, false);
                self.log.push(Entry { op, range, version, ended, firm, partial, sure });
            }
        }
        let failed: Vec<Entry> =
            self.log.iter().filter(|entry| entry.op == op && entry.partial).cloned().collect();
        for (entry, unread) in
            failed.iter().flat_map(|entry| unread.iter().map(move |of| (entry, of)))
        {
            let range = entry.range.start.max(unread.start)..entry.range.end.min(unread.end);
            if !range.is_empty() {
                self.log.push(Entry { op: NOBODY, range, ..entry.clone() });
            }
        }
        wrong
    }

    /// Which of its possible states the bytes of (a part of) a sector are. `must` says which changes cannot be
    /// missing.
    fn state_of(
        &self,
        seed: u64,
        sector: Range<u64>,
        part: &[u8],
        must: &dyn Fn(&Entry) -> bool,
    ) -> Option<State> {
        let is = |state: &State| {
            state.iter().all(|(piece, version)| {
                let (from, to) = (piece.start - sector.start, piece.end - sector.start);
                let bytes = &part[from as usize..to as usize];
                stamp::first_difference(seed, *version, piece.start, bytes).is_none()
            })
        };
        let touching =
            |entry: &&Entry| entry.range.start < sector.end && sector.start < entry.range.end;
        let (mut earlier, mut last) = (Vec::new(), vec![self.base.pieces(sector.clone())]);
        for entry in self.log.iter().filter(touching) {
            let after: Vec<State> = last
                .iter()
                .map(|state| changed(state, &entry.range, &sector, entry.version))
                .collect();
            if entry.partial {
                for state in after {
                    if !last.contains(&state) {
                        last.push(state);
                    }
                }
                continue;
            }
            match must(entry) {
                true => earlier.clear(),
                false => earlier.append(&mut last),
            }
            last = after;
        }
        last.into_iter().rev().chain(earlier.into_iter().rev()).find(is)
    }

    fn each_sector(
        &self,
        offset: u64,
        bytes: &[u8],
        mut look: impl FnMut(&Range<u64>, &[u8]) -> Option<u64>,
    ) -> Option<u64> {
        let end = offset + bytes.len() as u64;
        let mut at = offset;
        while at < end {
            let next = ((at / SECTOR + 1) * SECTOR).min(end);
            let part = &bytes[(at - offset) as usize..(next - offset) as usize];
            if let Some(wrong) = look(&(at..next), part) {
                return Some(wrong);
            }
            at = next;
        }
        None
    }
}

impl Entry {
    /// A recovered file cannot lack it.
    fn must(&self, durable: Tick, shown: &Shown<'_>) -> bool {
        !self.partial && (self.sure || self.ended < durable || self.firm && shown.shows(self))
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// The parts of `range` that are not in `holes`, which are in order.
pub fn without(range: Range<u64>, holes: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut parts, mut at) = (Vec::new(), range.start);
    for hole in holes.iter().filter(|hole| overlap(hole, &range)) {
        if at < hole.start {
            parts.push(at..hole.start);
        }
        at = at.max(hole.end);
    }
    if at < range.end {
        parts.push(at..range.end);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 3;

    fn bytes(version: Version, range: Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        stamp::fill(SEED, version, range.start, &mut bytes);
        bytes
    }

    fn written(versions: &[Version]) -> FileData {
        let mut file = FileData::default();
        for version in versions {
            file.begin(u64::from(*version), 0..1024, *version, false);
            file.end(u64::from(*version), Tick::from(*version) * 10);
        }
        file
    }

    fn recovers(file: &FileData, bytes: &[u8]) -> bool {
        let shown = Shown { until: 0, among: &[] };
        let mut found = Extents::default();
        file.clone().recover(SEED, &shown, 0, bytes, &mut found).is_none()
    }

    #[test]
    fn after_a_crash_each_sector_is_durable_or_newer() {
        let mut file = written(&[1, 2, 3]);
        file.make_durable(25, NEVER);
        assert!(recovers(&file, &bytes(2, 0..1024)) && recovers(&file, &bytes(3, 0..1024)));
        let mixed = [bytes(3, 0..512), bytes(2, 512..1024)].concat();
        assert!(recovers(&file, &mixed));
        assert!(!recovers(&file, &bytes(1, 0..1024)));
        assert!(!recovers(&file, &vec![0; 1024]));
        let torn = [bytes(3, 0..500), bytes(2, 500..1024)].concat();
        assert!(!recovers(&file, &torn));
    }

    #[test]
    fn a_part_of_a_sector_is_written_over_what_was_there() {
        let mut file = written(&[1]);
        file.begin(9, 100..200, 2, false);
        let both = [bytes(1, 0..100), bytes(2, 100..200), bytes(1, 200..1024)].concat();
        assert!(recovers(&file, &both) && recovers(&file, &bytes(1, 0..1024)));
        let lost = [vec![0; 100], bytes(2, 100..200), vec![0; 824]].concat();
        assert!(!recovers(&file, &lost));
    }

    #[test]
    fn what_was_cut_does_not_come_back_once_the_namespace_shows_the_cut() {
        let mut file = written(&[1]);
        file.begin(9, 0..u64::MAX, stamp::ZEROES, true);
        file.end(9, 50);
        assert!(recovers(&file, &bytes(1, 0..1024)));
        let (shown, mut found) = (Shown { until: 51, among: &[] }, Extents::default());
        assert_eq!(file.recover(SEED, &shown, 0, &bytes(1, 0..1024), &mut found), Some(0));
    }

    #[test]
    fn what_could_not_be_read_after_a_failure_or_a_crash_is_one_of_what_it_may_be() {
        let mut file = written(&[1]);
        file.begin(9, 0..1024, 2, false);
        file.fail(9, 90, u64::MAX);
        let unread = [0..512, 512..1024];
        assert_eq!(file.settle(SEED, 9, 95, 0..1024, (&[0; 1024], &unread)), None);
        let mixed = [bytes(1, 0..512), bytes(2, 512..1024)].concat();
        assert!(file.check(SEED, 0, &mixed).is_none());
        assert!(file.check(SEED, 0, &bytes(3, 0..1024)).is_some());
        file.make_durable(100, NEVER);
        let shown = Shown { until: 0, among: &[] };
        file.restart(&shown, Extents::default(), &unread);
        assert!(recovers(&file, &mixed) && recovers(&file, &bytes(1, 0..1024)));
        assert!(!recovers(&file, &[0; 1024]) && file.check(SEED, 0, &[0; 1024]).is_some());
        file.begin(10, 0..1024, 4, false);
        file.end(10, 110);
        assert!(file.check(SEED, 0, &mixed).is_some());
        assert!(file.check(SEED, 0, &bytes(4, 0..1024)).is_none());
    }

    #[test]
    fn what_a_failed_write_left_beyond_the_end_goes_when_the_file_grows() {
        let mut file = written(&[1]);
        file.begin(9, 800..1500, 2, false);
        file.fail(9, 90, 1024);
        let left = [bytes(2, 800..1024), vec![0; 1500 - 1024]].concat();
        assert_eq!(file.settle(SEED, 9, 95, 800..1500, (&left, &[])), None);
    }

    #[test]
    fn a_failed_write_is_there_in_part_and_settled_by_reading() {
        let mut file = written(&[1]);
        file.begin(9, 0..1024, 2, false);
        file.fail(9, 90, u64::MAX);
        let mixed = [bytes(1, 0..512), bytes(2, 512..1024)].concat();
        assert_eq!(file.settle(SEED, 9, 95, 0..1024, (&mixed, &[])), None);
        assert_eq!(file.check(SEED, 0, &mixed), None);
        assert!(file.check(SEED, 0, &bytes(2, 0..1024)).is_some());
    }
}
