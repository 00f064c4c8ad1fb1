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
}

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
        self.log.push(Entry { op, range, version, ended, firm, partial: false });
    }

    /// The change has ended well.
    pub fn end(&mut self, op: OpNr, now: Tick) {
        for entry in self.log.iter_mut().filter(|entry| entry.op == op) {
            entry.ended = now;
            self.now.set(entry.range.clone(), entry.version);
        }
    }

    /// The change was refused before it changed anything.
    pub fn refuse(&mut self, op: OpNr) {
        self.log.retain(|entry| entry.op != op);
    }

    /// The change failed on the way: parts of it are there.
    pub fn fail(&mut self, op: OpNr, now: Tick) {
        for entry in self.log.iter_mut().filter(|entry| entry.op == op) {
            (entry.ended, entry.partial) = (now, true);
        }
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
            if entry.partial && settled.contains(&entry.op) {
                continue;
            }
            // What may be there in part only is needed until it is settled, durably.
            let blocked = entry.partial || kept.iter().any(|other: &Entry| overlap(other, &entry));
            match entry.ended < fold && !blocked {
                true => base.set(entry.range, entry.version),
                false => kept.push(entry),
            }
        }
        self.log = kept;
    }

    /// Where bytes have been written, as far as the history goes.
    pub fn places(&self) -> Vec<Range<u64>> {
        let log = self.log.iter().map(|entry| entry.range.clone());
        self.base.written().chain(self.now.written()).chain(log).collect()
    }

    /// True when every byte of `range` is zero.
    pub fn is_hole(&self, range: Range<u64>) -> bool {
        self.now.pieces(range).iter().all(|(_, version)| *version == stamp::ZEROES)
    }

    /// Compares bytes that were read at `offset` while no change was under way there. Gives the first that is wrong
    /// and the version it should be of.
    pub fn check(&self, seed: u64, offset: u64, bytes: &[u8]) -> Option<(u64, Version)> {
        let range = offset..offset + bytes.len() as u64;
        self.now.pieces(range).into_iter().find_map(|(piece, version)| {
            let part = &bytes[(piece.start - offset) as usize..(piece.end - offset) as usize];
            let at = stamp::first_difference(seed, version, piece.start, part)?;
            Some((piece.start + at as u64, version))
        })
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
        let must = |entry: &Entry| {
            !entry.partial && (entry.ended < durable || entry.firm && shown.shows(entry))
        };
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

    /// The file is, durably, what was found.
    pub fn restart(&mut self, found: Extents) {
        *self = FileData { base: found.clone(), now: found, log: Vec::new(), durable: 0 };
    }

    /// What the failed change `op` of `range` left is known now: `bytes`, and zeroes where the file ends before. Gives
    /// the first sector that is none of what it may be.
    pub fn settle(
        &mut self,
        seed: u64,
        op: OpNr,
        now: Tick,
        range: Range<u64>,
        bytes: &[u8],
    ) -> Option<u64> {
        let (offset, mut found) = (range.start, Extents::default());
        let must = |entry: &Entry| !entry.partial && entry.ended != NEVER;
        let wrong = self.each_sector(offset, bytes, |sector, part| {
            let Some(state) = self.state_of(seed, sector.clone(), part, &must) else {
                return Some(sector.start);
            };
            for (piece, version) in state {
                found.set(piece, version);
            }
            None
        });
        for (range, version) in found.pieces(range) {
            self.now.set(range.clone(), version);
            let (ended, firm, partial) = (now, false, false);
            self.log.push(Entry { op, range, version, ended, firm, partial });
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
                last.extend(after);
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

fn overlap(one: &Entry, other: &Entry) -> bool {
    one.range.start < other.range.end && other.range.start < one.range.end
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
    fn a_failed_write_is_there_in_part_and_settled_by_reading() {
        let mut file = written(&[1]);
        file.begin(9, 0..1024, 2, false);
        file.fail(9, 90);
        let mixed = [bytes(1, 0..512), bytes(2, 512..1024)].concat();
        assert_eq!(file.settle(SEED, 9, 95, 0..1024, &mixed), None);
        assert_eq!(file.check(SEED, 0, &mixed), None);
        assert!(file.check(SEED, 0, &bytes(2, 0..1024)).is_some());
    }
}
