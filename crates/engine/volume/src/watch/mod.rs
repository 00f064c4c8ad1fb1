//! Changes that are told to a check: what it has seen of the part that it is looking at, kept true while files change.
//!
//! A pass goes over records in the order of their keys. Of what is before the point that it has come to, every change is
//! counted here at once; what is after it will be seen as it is then. So what is counted is always what a pass at this
//! moment would have counted up to the same point.

mod bits;
mod shares;

pub use bits::{Bits, Group};
pub use shares::{Share, Shares};

use braid_filesystem::Ino;
use braid_format::volume::entry::ByName;
use braid_format::volume::extent::{Extent, PER_GROUP};
use braid_format::volume::keys;
use braid_format::volume::snapshot::snapshot_of;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

/// The type nibble of a directory.
pub const DIRECTORY: u8 = 4;

/// The watches of checks under way.
#[derive(Default)]
pub struct Watches {
    list: RefCell<Vec<Rc<Watch>>>,
}

/// A watch that is told of changes, until this is dropped.
pub struct Watching {
    watches: Rc<Watches>,
    watch: Rc<Watch>,
}

impl Watches {
    /// Tells `watch` of all changes from now on.
    pub fn begin(self: &Rc<Self>, watch: &Rc<Watch>) -> Watching {
        self.list.borrow_mut().push(Rc::clone(watch));
        Watching { watches: Rc::clone(self), watch: Rc::clone(watch) }
    }

    /// Tells all of a change.
    pub fn tell(&self, tell: impl Fn(&Watch)) {
        self.list.borrow().iter().for_each(|watch| tell(watch));
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.watches.list.borrow_mut().retain(|watch| !Rc::ptr_eq(watch, &self.watch));
    }
}

/// Sees all changes of names and extents while a check is under way.
#[derive(Default)]
pub struct Watch {
    pub names: RefCell<Names>,
    pub extents: RefCell<Walked>,
    /// While the files of projects are added up.
    pub shares: RefCell<Option<Shares>>,
}

impl Watch {
    /// An entry has come, or gone.
    pub fn entry(&self, directory: Ino, name: &[u8], entry: &ByName, comes: bool) {
        let mut names = self.names.borrow_mut();
        if names.is_seen(directory, name) {
            names.count_target(directory, entry, comes);
            names.count_entry(directory, name, entry, comes);
        }
        if names.in_order_to > keys::cookie(directory, entry.cookie) {
            names.count_in_order(directory, name, entry, comes);
        }
    }

    /// A file is another part of a project.
    pub fn share(&self, ino: Ino, before: Option<Share>, after: Option<Share>) {
        if let Some(shares) = self.shares.borrow_mut().as_mut().filter(|shares| shares.covers(ino))
        {
            shares.count(before, false);
            shares.count(after, true);
        }
    }

    /// A stripe has another extent. With the old one: others still have it. A common extent is seen with its owners.
    pub fn extent(&self, ino: Ino, stripe: u64, (old, stays): (Extent, bool), new: Extent) {
        let mut walked = self.extents.borrow_mut();
        if (ino, stripe / PER_GROUP) >= walked.to {
            return;
        }
        if ino >= walked.judged && snapshot_of(ino) == 0 {
            let taken = walked.taken.entry(ino).or_default();
            *taken = taken.wrapping_add(new.blocks.into()).wrapping_sub(old.blocks.into());
        }
        if (old.brick, old.start, old.blocks) != (new.brick, new.start, new.blocks) {
            if stays && (old.brick, old.start) == (new.brick, new.start) {
                return;
            }
            if !stays {
                walked.bits.unname(&old);
            }
            if !new.common {
                walked.bits.name(&new);
            }
        }
    }

    /// A common extent lies elsewhere now.
    pub fn common_moved(&self, old: &Extent, new: &Extent) {
        let mut walked = self.extents.borrow_mut();
        walked.bits.unname(old);
        walked.bits.name_kept(new);
    }

    /// A common extent has no owner any more, and is free.
    pub fn common_freed(&self, old: &Extent) {
        self.extents.borrow_mut().bits.unname(old);
    }
}

/// A file as the names that lead to it describe it.
#[derive(Clone, Copy, Default)]
pub struct Seen {
    pub names: u32,
    /// The type nibble; 0: there is no such file.
    pub kind: u8,
}

/// A directory as its entries describe it.
#[derive(Clone, Default)]
pub struct Directory {
    pub entries: u64,
    pub subdirectories: u32,
    /// Where it has a name.
    pub parent: Ino,
    /// The lowest place of an entry in the order of reading; 0: there is none.
    pub lowest: u64,
    /// Sums over the entries by name, and over those in the order of reading.
    pub by_name: u64,
    pub in_order: u64,
}

impl Directory {
    fn uncount(&mut self, entry: &ByName) {
        self.entries = self.entries.saturating_sub(1);
        self.subdirectories = self.subdirectories.saturating_sub(is_directory(entry));
    }
}

fn is_directory(entry: &ByName) -> u32 {
    u32::from(entry.kind == DIRECTORY)
}

/// The files whose names are counted: those with numbers from `from` on, before `end`.
#[derive(Default)]
pub struct Names {
    pub from: Ino,
    /// The first number of `files`; between `from` and it there is no file.
    pub first: Ino,
    pub end: Ino,
    pub files: Vec<Seen>,
    pub directories: BTreeMap<Ino, Directory>,
    /// Entries by name have been seen up to this key.
    pub by_name_to: Vec<u8>,
    /// Entries in order have been seen up to this key.
    pub in_order_to: Vec<u8>,
}

impl Names {
    fn is_seen(&self, directory: Ino, name: &[u8]) -> bool {
        !self.by_name_to.is_empty() && self.by_name_to > keys::name(directory, name)
    }

    /// The numbers of the files whose names are counted: the first, and the one behind the last.
    pub fn window(&self) -> (Ino, Ino) {
        (self.from, self.end)
    }

    pub fn covers(&self, ino: Ino) -> bool {
        (self.from..self.end).contains(&ino)
    }

    pub fn file(&self, ino: Ino) -> Seen {
        let at = ino.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.files.get(at)).copied().unwrap_or_default()
    }

    pub fn file_mut(&mut self, ino: Ino) -> Option<&mut Seen> {
        let at = usize::try_from(ino.checked_sub(self.first)?).ok()?;
        self.files.get_mut(at)
    }

    pub fn directory(&self, ino: Ino) -> Directory {
        self.directories.get(&ino).cloned().unwrap_or_default()
    }

    /// Counts a name of the file that it stands for.
    pub fn count_target(&mut self, directory: Ino, entry: &ByName, comes: bool) {
        let Some(file) = self.file_mut(entry.ino) else { return };
        file.names =
            if comes { file.names.saturating_add(1) } else { file.names.saturating_sub(1) };
        if comes && entry.kind == DIRECTORY {
            self.directories.entry(entry.ino).or_default().parent = directory;
        }
    }

    /// Counts an entry of its directory.
    pub fn count_entry(&mut self, directory: Ino, name: &[u8], entry: &ByName, comes: bool) {
        if !self.covers(directory) {
            return;
        }
        let counts = self.directories.entry(directory).or_default();
        let sum = sum(name, entry);
        if comes {
            counts.by_name = counts.by_name.wrapping_add(sum);
            let lowest = if counts.lowest == 0 { entry.cookie } else { counts.lowest };
            counts.lowest = lowest.min(entry.cookie);
            counts.entries += 1;
            let subdirectories = counts.subdirectories.saturating_add(is_directory(entry));
            counts.subdirectories = subdirectories;
        } else {
            counts.by_name = counts.by_name.wrapping_sub(sum);
            counts.uncount(entry);
        }
    }

    /// An entry that was counted stands for nothing; its directory still lists it.
    pub fn stands_for_nothing(&mut self, directory: Ino, entry: &ByName) {
        self.count_target(directory, entry, false);
        if let Some(counts) = self.directories.get_mut(&directory) {
            counts.uncount(entry);
        }
    }

    /// The entry is not listed any more.
    pub fn forget_listed(&mut self, directory: Ino, name: &[u8], entry: &ByName) {
        if let Some(counts) = self.directories.get_mut(&directory) {
            counts.by_name = counts.by_name.wrapping_sub(sum(name, entry));
        }
    }

    /// Counts an entry in the order of its directory.
    pub fn count_in_order(&mut self, directory: Ino, name: &[u8], entry: &ByName, comes: bool) {
        if !self.covers(directory) {
            return;
        }
        let counts = self.directories.entry(directory).or_default();
        let sum = sum(name, entry);
        counts.in_order = match comes {
            true => counts.in_order.wrapping_add(sum),
            false => counts.in_order.wrapping_sub(sum),
        };
    }
}

/// A number for an entry: the sums of two lists of entries are equal when the lists are, in whatever order.
fn sum(name: &[u8], entry: &ByName) -> u64 {
    let mut hasher = DefaultHasher::new();
    (name, entry.ino, entry.cookie, entry.kind).hash(&mut hasher);
    hasher.finish()
}

/// The findings of a pass over extents.
#[derive(Default)]
pub struct Walked {
    /// Groups of extents have been seen up to this one: a file and a group.
    pub to: (Ino, u64),
    /// Files before this one are not counted any more.
    pub judged: Ino,
    /// Blocks that the extents of files take.
    pub taken: BTreeMap<Ino, u64>,
    pub bits: Bits,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(ino: Ino, cookie: u64) -> ByName {
        ByName { ino, cookie, kind: 8 }
    }

    #[test]
    fn what_changes_before_the_point_of_the_pass_is_counted_and_what_is_behind_it_is_not() {
        let watch = Watch::default();
        *watch.names.borrow_mut() = Names {
            from: 1,
            first: 1,
            end: 10,
            files: vec![Seen::default(); 9],
            by_name_to: keys::name(1, b"m"),
            in_order_to: keys::cookie(1, 50),
            ..Names::default()
        };
        watch.entry(1, b"a", &entry(5, 60), true);
        watch.entry(1, b"z", &entry(5, 40), true);
        let names = watch.names.borrow();
        assert_eq!(names.file(5).names, 1);
        let directory = names.directory(1);
        assert_eq!((directory.entries, directory.lowest), (1, 60));
        assert_eq!(directory.by_name, sum(b"a", &entry(5, 60)));
        assert_eq!(directory.in_order, sum(b"z", &entry(5, 40)));
    }

    #[test]
    fn the_same_entries_have_the_same_sum_in_any_order() {
        let mut names = Names { end: 10, ..Names::default() };
        for (name, cookie) in [(b"a", 1), (b"b", 2), (b"c", 3)] {
            names.count_entry(1, name, &entry(2, cookie), true);
        }
        for (name, cookie) in [(b"c", 3), (b"a", 1), (b"b", 2)] {
            names.count_in_order(1, name, &entry(2, cookie), true);
        }
        let directory = names.directory(1);
        assert_eq!(directory.by_name, directory.in_order);
        names.count_in_order(1, b"c", &entry(2, 3), false);
        names.count_in_order(1, b"c", &entry(2, 4), true);
        let directory = names.directory(1);
        assert_ne!(directory.by_name, directory.in_order);
    }
}
