//! Names that were looked for lately, whether they were there or not, and directories of which all names are known, so
//! that making, opening or removing a file does not ask the store for what the look-up before it has just found out, nor
//! for names that are not there.
//!
//! A new directory is known as a whole, others are when they were read. One that has become too large for that is known by the
//! hashes of its names ([`NamePrints`]): what is not there is still not asked for. Entries change in three extents only (`add_entry`,
//! `take_entry` and repairs), which all tell; so what is known is never wrong.

use super::name_prints::NamePrints;
use braid_filesystem::Ino;
use braid_format::volume::entry::ByName;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

/// Names kept: at most twice as many, some MiB.
const KEPT: usize = 64 << 10;
/// Names of a directory that are kept, at most; one with more is not known as a whole.
pub const OF_ONE: usize = KEPT / 4;
/// Hashes of names that are kept, of all large directories together: some 40 MiB.
const PRINTS_MAX: usize = 2 << 20;
/// The memory of a directory beside its names, in names.
const OVERHEAD: usize = 2;
/// Names that are read in the time that it takes to ask for one, about.
const READ_MEANWHILE: u64 = 32;
/// Entries that are no farther from each other than this in the order of reading are looked for one after the other.
const NEAR: u64 = 64;

/// A directory, as far as it is known.
#[derive(Default)]
struct Directory {
    /// `None`: there is no such name.
    names: HashMap<Box<[u8]>, Option<ByName>>,
    /// There are no other names.
    whole: bool,
    /// Hashes of all its names, when it was known as a whole and has become too large.
    prints: Option<NamePrints>,
    /// It was too large to be known as a whole, or could not be read.
    refused: bool,
    /// Names that had to be asked for.
    missed: u64,
    /// The place, in the order of reading, of the entry that had to be asked for last, or of the last that was read ahead.
    asked: Option<u64>,
    /// The value of [`KnownNames::changes`] when a name changed last, or a later one.
    changed: u64,
}

impl Directory {
    fn get(&self, name: &[u8]) -> Option<Option<ByName>> {
        self.names.get(name).copied().or_else(|| self.is_absent(name).then_some(None))
    }

    /// There is no name but those that are kept: this one is not there.
    fn is_absent(&self, name: &[u8]) -> bool {
        self.whole || self.prints.as_ref().is_some_and(|prints| !prints.may_have(name))
    }

    fn prints(&self) -> usize {
        self.prints.as_ref().map_or(0, NamePrints::len)
    }

    /// Follows a change of a name, which is not kept yet.
    fn follow(&mut self, name: &[u8], entry: Option<ByName>) {
        let is_kept = matches!(self.names.get(name), Some(Some(_)));
        match (&mut self.prints, entry) {
            (Some(prints), Some(_)) if !is_kept => prints.add(name),
            (Some(prints), None) => prints.remove(name),
            _ => {}
        }
    }
}

#[derive(Default)]
struct State {
    young: HashMap<Ino, Directory>,
    /// Those that were not asked for since the young ones became too many.
    old: HashMap<Ino, Directory>,
    /// Names of the young ones, and what they take beside them.
    weight: usize,
    /// Hashes of all directories.
    prints: usize,
    changes: u64,
    /// The value of `changes` when a directory was dropped last.
    dropped: u64,
}

impl State {
    /// The directory, among the young ones.
    fn directory(&mut self, ino: Ino) -> &mut Directory {
        let State { young, old, weight, dropped, .. } = self;
        young.entry(ino).or_insert_with(|| {
            let new = || Directory { changed: *dropped, ..Directory::default() };
            let directory = old.remove(&ino).unwrap_or_else(new);
            *weight += directory.names.len() + OVERHEAD;
            directory
        })
    }

    /// Notes a name.
    fn keep(&mut self, ino: Ino, name: &[u8], entry: Option<ByName>) {
        let directory = self.directory(ino);
        let before = directory.names.len();
        if entry.is_none() && (directory.whole || directory.prints.is_some()) {
            directory.names.remove(name);
        } else {
            directory.names.insert(name.into(), entry);
        }
        let after = directory.names.len();
        self.weight = (self.weight + after).saturating_sub(before);
        if after >= OF_ONE {
            self.empty(ino);
        }
        self.shrink();
    }

    /// Forgets the names of a directory that has too many, but for their hashes.
    fn empty(&mut self, ino: Ino) {
        let directory = self.directory(ino);
        let (names, before) = (std::mem::take(&mut directory.names), directory.prints());
        if std::mem::replace(&mut directory.whole, false) {
            directory.refused = true;
            let mut prints = NamePrints::default();
            let there = names.iter().filter(|(_, entry)| entry.is_some());
            there.for_each(|(name, _)| prints.add(name));
            directory.prints = Some(prints);
        }
        self.weight = self.weight.saturating_sub(names.len());
        self.count_prints(ino, before);
    }

    /// A directory had so many hashes before. Those of one for which there is no room are forgotten.
    fn count_prints(&mut self, ino: Ino, before: usize) {
        let after = self.directory(ino).prints();
        self.prints = (self.prints + after).saturating_sub(before);
        if after > before && self.prints > PRINTS_MAX {
            self.prints = self.prints.saturating_sub(after);
            self.directory(ino).prints = None;
        }
    }

    fn shrink(&mut self) {
        if self.weight >= KEPT {
            self.changes += 1;
            self.dropped = self.changes;
            self.old = std::mem::take(&mut self.young);
            self.prints = self.old.values().map(Directory::prints).sum();
            self.weight = 0;
        }
    }
}

/// The cached names.
#[derive(Default)]
pub struct KnownNames(RefCell<State>);

impl KnownNames {
    /// The cached entry of a name.
    pub fn get(&self, directory: Ino, name: &[u8]) -> Option<Option<ByName>> {
        let state = &mut *self.0.borrow_mut();
        if let Some(known) = state.young.get(&directory) {
            return known.get(name);
        }
        if !state.old.contains_key(&directory) {
            return None;
        }
        let found = state.directory(directory).get(name);
        state.shrink();
        found
    }

    /// A name was not known of a directory with so many. True: it pays to read all of them.
    pub fn missed(&self, directory: Ino, entries: u64) -> bool {
        let state = &mut *self.0.borrow_mut();
        let known = state.directory(directory);
        known.missed = known.missed.saturating_add(1);
        let pays = entries < OF_ONE as u64 && known.missed >= entries / READ_MEANWHILE;
        let pays = pays && !known.refused && !known.whole;
        state.shrink();
        pays
    }

    /// The number of times that entries have changed or were dropped: an entry read from the store is cached only when
    /// none of its directory has changed meanwhile.
    pub fn changes(&self) -> u64 {
        self.0.borrow().changes
    }

    /// The entry at `cookie` had to be asked for. The places from which on entries will be looked for next, up to `many` of them,
    /// if entries are looked for one after the other, in the order of reading or against it, as by who removes all files
    /// in the order of their numbers.
    pub fn next_asked(&self, directory: Ino, cookie: u64, many: u64) -> Option<Range<u64>> {
        let state = &mut *self.0.borrow_mut();
        let known = state.directory(directory);
        let before = known.asked.replace(cookie);
        let next = before.filter(|before| before.abs_diff(cookie) <= NEAR).map(|before| {
            let (first, last) = (cookie.saturating_sub(many), cookie.saturating_add(many));
            let (range, edge) =
                if cookie < before { (first..cookie, first) } else { (cookie + 1..last, last) };
            known.asked = Some(edge);
            range
        });
        state.shrink();
        next
    }

    /// The store holds this, as it was after so many [`changes`](KnownNames::changes).
    pub fn read(&self, directory: Ino, name: &[u8], entry: Option<ByName>, changes: u64) {
        let state = &mut *self.0.borrow_mut();
        if state.directory(directory).changed <= changes {
            state.keep(directory, name, entry);
        }
    }

    /// The store holds these names of a directory and no other, as it was after so many
    /// [`changes`](KnownNames::changes).
    pub fn read_whole(&self, directory: Ino, names: Vec<(Vec<u8>, ByName)>, changes: u64) {
        let state = &mut *self.0.borrow_mut();
        let known = state.directory(directory);
        if known.changed > changes || known.prints.is_some() {
            return;
        }
        let before = known.names.len();
        known.names =
            names.into_iter().map(|(name, entry)| (name.into_boxed_slice(), Some(entry))).collect();
        known.whole = true;
        let after = known.names.len();
        state.weight = (state.weight + after).saturating_sub(before);
        state.shrink();
    }

    /// The directory has too many names to be read as a whole, or one that cannot be read.
    pub fn refuse_whole(&self, directory: Ino) {
        self.0.borrow_mut().directory(directory).refused = true;
    }

    /// There is a new directory, without names.
    pub fn made(&self, directory: Ino) {
        let state = &mut *self.0.borrow_mut();
        state.directory(directory).whole = true;
        state.shrink();
    }

    /// A directory is no more.
    pub fn removed(&self, directory: Ino) {
        let state = &mut *self.0.borrow_mut();
        let old = state.old.remove(&directory);
        state.prints = state.prints.saturating_sub(old.map_or(0, |known| known.prints()));
        if let Some(known) = state.young.remove(&directory) {
            state.weight = state.weight.saturating_sub(known.names.len() + OVERHEAD);
            state.prints = state.prints.saturating_sub(known.prints());
        }
    }

    /// An entry has come, or gone.
    pub fn changed(&self, directory: Ino, name: &[u8], entry: Option<ByName>) {
        let state = &mut *self.0.borrow_mut();
        state.changes += 1;
        let changes = state.changes;
        let known = state.directory(directory);
        known.changed = changes;
        let before = known.prints();
        known.follow(name, entry);
        state.count_prints(directory, before);
        state.keep(directory, name, entry);
    }

    /// Entries have changed that nobody told of.
    pub fn forget(&self) {
        let state = &mut *self.0.borrow_mut();
        let changes = state.changes + 1;
        *state = State { changes, dropped: changes, ..State::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: Option<ByName> = Some(ByName { ino: 7, cookie: 1, kind: 8 });

    fn kept(known: &KnownNames) -> usize {
        let state = known.0.borrow();
        let count = |all: &HashMap<Ino, Directory>| -> usize {
            all.values().map(|directory| directory.names.len()).sum()
        };
        let young = count(&state.young);
        assert_eq!(state.weight, young + OVERHEAD * state.young.len(), "what the young ones take");
        young + count(&state.old)
    }

    #[test]
    fn what_has_changed_since_it_was_read_is_not_taken_for_known() {
        let known = KnownNames::default();
        let before = known.changes();
        known.changed(1, b"a", ENTRY);
        known.read(1, b"a", None, before);
        known.read_whole(1, Vec::new(), before);
        assert_eq!(known.get(1, b"a"), Some(ENTRY));
        assert_eq!(known.get(1, b"b"), None);
        known.read(2, b"a", ENTRY, before);
        assert_eq!(known.get(2, b"a"), Some(ENTRY), "that of another directory may have changed");
        known.changed(1, b"a", None);
        assert_eq!((known.get(1, b"a"), known.get(1, b"c")), (Some(None), None));
        known.forget();
        known.read(2, b"a", ENTRY, before);
        assert_eq!(known.get(2, b"a"), None, "nobody knows what has changed");
    }

    #[test]
    fn of_a_whole_directory_it_is_known_what_is_not_there() {
        let known = KnownNames::default();
        known.made(1);
        assert_eq!(known.get(1, b"a"), Some(None));
        known.changed(1, b"a", ENTRY);
        known.changed(1, b"b", ENTRY);
        known.changed(1, b"a", None);
        assert_eq!((known.get(1, b"a"), known.get(1, b"b")), (Some(None), Some(ENTRY)));
        known.removed(1);
        assert_eq!(known.get(1, b"a"), None);
        assert!(known.missed(2, 5) && !known.missed(3, 1000));
        known.read_whole(2, vec![(b"x".to_vec(), ENTRY.unwrap())], known.changes());
        assert_eq!((known.get(2, b"x"), known.get(2, b"y")), (Some(ENTRY), Some(None)));
        assert_eq!(kept(&known), 1);
    }

    #[test]
    fn one_with_too_many_names_is_not_known_as_a_whole() {
        let known = KnownNames::default();
        known.made(1);
        for at in 0..OF_ONE {
            known.changed(1, &at.to_le_bytes(), ENTRY);
        }
        assert_eq!(known.get(1, &0usize.to_le_bytes()), None);
        assert!(!known.missed(1, 10), "it was too large once");
        assert!(kept(&known) < OF_ONE);
    }

    #[test]
    fn of_a_large_directory_it_is_known_what_is_not_there() {
        let known = KnownNames::default();
        known.made(1);
        let name = |at: usize| at.to_le_bytes();
        for at in 0..2 * OF_ONE {
            assert_eq!(known.get(1, &name(at)), Some(None));
            known.changed(1, &name(at), ENTRY);
        }
        let there = known.get(1, &name(0));
        assert!(there.is_none_or(|entry| entry == ENTRY), "{there:?}");
        for at in 0..OF_ONE {
            known.changed(1, &name(at), None);
            assert_eq!(known.get(1, &name(at)), Some(None));
        }
        for at in OF_ONE..2 * OF_ONE {
            assert_ne!(known.get(1, &name(at)), Some(None));
        }
        assert_eq!(known.0.borrow().prints, OF_ONE);
        known.read_whole(1, Vec::new(), known.changes());
        assert_ne!(known.get(1, &name(OF_ONE)), Some(None), "hashes are all there");
        known.removed(1);
        assert_eq!(known.0.borrow().prints, 0);
        assert_eq!(known.get(1, b"a"), None);
    }

    #[test]
    fn random_changes_of_a_large_directory_leave_nothing_wrong() {
        let known = KnownNames::default();
        known.made(1);
        let mut there = std::collections::HashSet::new();
        let mut random = 1u64;
        for _ in 0..20 * OF_ONE {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let name = (random >> 33) % (4 * OF_ONE as u64);
            match (random >> 30) % 4 {
                0 => {
                    known.changed(1, &name.to_le_bytes(), None);
                    there.remove(&name);
                }
                1 => {
                    let entry = there.contains(&name).then_some(ENTRY).flatten();
                    known.read(1, &name.to_le_bytes(), entry, known.changes());
                }
                _ => {
                    known.changed(1, &name.to_le_bytes(), ENTRY);
                    there.insert(name);
                }
            }
            if let Some(found) = known.get(1, &name.to_le_bytes()) {
                assert_eq!(found.is_some(), there.contains(&name));
            }
        }
        assert!(there.len() > 2 * OF_ONE && known.0.borrow().prints >= there.len());
        for name in 0..4 * OF_ONE as u64 {
            let found = known.get(1, &name.to_le_bytes());
            assert!(found.is_none_or(|found| found.is_some() == there.contains(&name)));
        }
    }

    #[test]
    fn directories_that_are_asked_for_stay_and_others_go() {
        let known = KnownNames::default();
        known.read(1, b"asked", None, 0);
        known.made(5);
        let before = known.changes();
        for at in 0..3 * KEPT {
            known.read(10 + at as u64 / 100, &at.to_le_bytes(), None, known.changes());
            assert!(known.get(1, b"asked").is_some());
            assert!(known.get(5, b"any").is_some());
        }
        assert_eq!(known.get(10, &0usize.to_le_bytes()), None);
        known.read(10, b"x", None, before);
        assert_eq!(known.get(10, b"x"), None, "it may have changed before it was let go of");
        assert!(kept(&known) <= 2 * KEPT);
    }
}
