//! Entries of one directory: found, added, taken away.

use super::inode::{Inode, nibble_of};
use super::known_names::OF_ONE;
use super::rules::check_name;
use super::tree::{COOKIE_TOP, Namespace};
use braid_filesystem::{Entry, Errno, Ino, Kind, ROOT};
use braid_format::volume::entry::{ByCookie, ByName};
use braid_format::volume::keys;
use braid_format::volume::snapshot::{in_snapshot, snapshot_of};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Names that are read at a time.
const NAMES_AT_ONCE: usize = 1024;
/// Entries that are read before they are looked for.
const AHEAD: u64 = 256;

/// An entry of a directory in a snapshot stands for a file in it.
pub(super) fn seen_from(directory: Ino, entry: ByName) -> ByName {
    ByName { ino: inside(directory, entry.ino), ..entry }
}

/// The number of a file that an entry of `directory` names: in a snapshot, the one that it has there.
pub(super) fn inside(directory: Ino, ino: Ino) -> Ino {
    match snapshot_of(directory) {
        0 => ino,
        id => in_snapshot(ino, id),
    }
}

impl Namespace {
    /// The entry of that name, if there is one.
    pub(super) async fn find(&self, directory: Ino, name: &[u8]) -> Result<Option<ByName>, Errno> {
        check_name(name)?;
        if let Some(known) = self.names.get(directory, name) {
            return Ok(known);
        }
        let entries = self.inodes.known(directory).map(|known| known.with(|record| record.entries));
        if entries.is_some_and(|entries| self.names.missed(directory, entries)) {
            self.read_names(directory).await?;
            if let Some(known) = self.names.get(directory, name) {
                return Ok(known);
            }
        }
        let changes = self.names.changes();
        let bytes = self.transactions.stored(&keys::name(directory, name)).await?;
        let entry = bytes.map(|bytes| ByName::parse(&bytes)).transpose();
        let entry = entry.map_err(|error| self.transactions.damaged(&error))?;
        let entry = entry.map(|entry| seen_from(directory, entry));
        self.names.read(directory, name, entry, changes);
        if let Some(entry) = entry {
            self.read_ahead(directory, entry.cookie).await?;
        }
        Ok(entry)
    }

    /// Brings the entries to memory that will be looked for after the one at `cookie`, with their files, where they are looked
    /// for one after the other.
    async fn read_ahead(&self, directory: Ino, cookie: u64) -> Result<(), Errno> {
        let Some(next) = self.names.next_asked(directory, cookie, AHEAD) else { return Ok(()) };
        let changes = self.names.changes();
        let (from, to) = (keys::cookie(directory, next.start), keys::cookie(directory, next.end));
        let (pairs, _) = self.transactions.scanned(&from, &to, AHEAD as usize).await?;
        let mut inos = BTreeSet::new();
        for (key, value) in pairs {
            // One that is damaged is told of where it is looked for.
            let (Some(cookie), Ok(found)) = (keys::second_of(&key), ByCookie::parse(&value)) else {
                continue;
            };
            let ByCookie { ino, kind, name } = found;
            let entry = seen_from(directory, ByName { ino, cookie, kind });
            inos.insert(entry.ino);
            self.names.read(directory, &name, Some(entry), changes);
        }
        self.bring(inos).await
    }

    /// Brings all names of a directory to memory, unless there are too many.
    async fn read_names(&self, directory: Ino) -> Result<(), Errno> {
        let changes = self.names.changes();
        let (mut from, to) = (keys::name(directory, b""), keys::after(&keys::name(directory, b"")));
        let (mut names, mut read) = (Vec::new(), 0);
        loop {
            let (pairs, next) = self.transactions.scanned(&from, &to, NAMES_AT_ONCE).await?;
            let found = pairs.len();
            names.extend(pairs.into_iter().filter_map(|(key, value)| {
                let entry = ByName::parse(&value).ok()?;
                Some((keys::name_of(&key)?.to_vec(), seen_from(directory, entry)))
            }));
            read += found;
            // One that is damaged is told of where it is looked for.
            if names.len() < read || read >= OF_ONE {
                self.names.refuse_whole(directory);
                return Ok(());
            }
            let Some(next) = next else { break };
            from = next;
        }
        self.names.read_whole(directory, names, changes);
        Ok(())
    }

    /// Adds an entry in the open transaction; the caller holds the directory and knows that the name is free.
    pub fn add_entry(&self, directory: &Rc<Inode>, name: &[u8], ino: Ino, kind: Kind) {
        let cookie = self.new_cookie(directory);
        self.add_entry_at(directory, name, cookie, ino, kind);
    }

    /// The same, at a place in the order of reading that is free, or was until just now. A name that stands for another file
    /// from now on keeps its place: who reads the directory would miss it otherwise.
    pub(super) fn add_entry_at(
        &self,
        directory: &Rc<Inode>,
        name: &[u8],
        cookie: u64,
        ino: Ino,
        kind: Kind,
    ) {
        let now = self.inodes.now();
        self.inodes.edit(directory, true, |record| {
            // Damage may have left any number; a check corrects it.
            record.entries = record.entries.saturating_add(1);
            record.mtime = now;
            record.ctime = now;
            if kind == Kind::Directory {
                record.nlink = record.nlink.saturating_add(1);
            }
        });
        let entry = ByName { ino, cookie, kind: nibble_of(kind) };
        self.list_entry(directory, name, entry);
        self.watches.tell(|watch| watch.entry(directory.ino(), name, &entry, true));
    }

    /// The place of a new name in the order of reading.
    pub fn new_cookie(&self, directory: &Rc<Inode>) -> u64 {
        self.inodes.edit(directory, true, |record| {
            // Falling, so that who reads the directory does not meet what is made meanwhile, and comes to an end.
            let cookie = COOKIE_TOP.saturating_sub(record.next_cookie);
            record.next_cookie = record.next_cookie.saturating_add(1);
            cookie
        })
    }

    /// Writes both records of an entry.
    pub fn list_entry(&self, directory: &Rc<Inode>, name: &[u8], entry: ByName) {
        let ByName { ino, cookie, kind } = entry;
        directory.note_entry(cookie);
        let by_cookie = ByCookie { ino, kind, name: name.to_vec() };
        self.transactions.set(keys::name(directory.ino(), name), Some(entry.encode()));
        self.names.changed(directory.ino(), name, Some(entry));
        self.transactions.set(keys::cookie(directory.ino(), cookie), Some(by_cookie.encode()));
    }

    /// Takes an entry away in the open transaction; the caller holds the directory.
    pub(super) fn take_entry(
        &self,
        directory: &Rc<Inode>,
        name: &[u8],
        entry: &ByName,
        kind: Kind,
    ) {
        let now = self.inodes.now();
        self.inodes.edit(directory, true, |record| {
            record.entries = record.entries.saturating_sub(1);
            record.mtime = now;
            record.ctime = now;
            if kind == Kind::Directory {
                record.nlink = record.nlink.saturating_sub(1);
            }
        });
        self.transactions.set(keys::name(directory.ino(), name), None);
        self.names.changed(directory.ino(), name, None);
        self.transactions.set(keys::cookie(directory.ino(), entry.cookie), None);
        self.watches.tell(|watch| watch.entry(directory.ino(), name, entry, false));
    }

    /// The answer to a look-up of `inode`, with one reference more.
    pub fn entry_of(&self, inode: &Inode) -> Entry {
        self.inodes.add_lookup(inode.ino());
        let generation = inode.with(|record| record.generation);
        Entry { attr: inode.attr(self.geometry.stripe), generation }
    }

    /// See [`braid_filesystem::FileSystem::lookup`].
    pub async fn look_up(&self, parent: Ino, name: &[u8]) -> Result<Entry, Errno> {
        let ino = match name {
            // Also of what is no directory: that is how a file is found by its handle.
            b"." => parent,
            b".." => self.inodes.directory(parent).await?.with(|record| record.parent),
            name => {
                self.inodes.directory(parent).await?;
                if let Some(found) = self.find_snapshot(parent, name) {
                    return self.look_up_found(found?).await;
                }
                self.find(parent, name).await?.ok_or(Errno::NotFound)?.ino
            }
        };
        self.look_up_found(ino).await
    }

    async fn look_up_found(&self, ino: Ino) -> Result<Entry, Errno> {
        // Counted before the file is loaded, so that it is not removed meanwhile.
        self.inodes.add_lookup(ino);
        let found = self.inodes.get(ino).await;
        let entry = found.map(|inode| self.entry_of(&inode));
        self.give_back(ino, 1, 0);
        match entry {
            // The name went away while the file was being loaded.
            Err(Errno::Stale) => Err(Errno::NotFound),
            other => other,
        }
    }

    /// The file that a path from the root names; symbolic links are not followed.
    pub async fn resolve(&self, path: &[u8]) -> Result<Ino, Errno> {
        let mut at = ROOT;
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            at = self.look_up(at, part).await?.attr.ino;
            self.give_back(at, 1, 0);
        }
        Ok(at)
    }

    /// Look-ups and opens of `ino` are over.
    pub fn give_back(&self, ino: Ino, lookups: u64, opens: u64) {
        if self.inodes.give_back(ino, lookups, opens) && ino != ROOT && snapshot_of(ino) == 0 {
            let known = self.inodes.known(ino);
            if known.is_some_and(|inode| inode.with(|record| record.nlink == 0)) {
                self.remove_if_unused(ino);
            }
        }
    }

    /// Removes `ino` in the background, if it has no name and nobody uses it.
    pub(super) fn remove_if_unused(&self, ino: Ino) {
        if self.inodes.is_used(ino) {
            return;
        }
        let known = self.inodes.known(ino);
        if known.is_none_or(|inode| inode.with(|record| record.nlink == 0)) {
            self.orphans.push(ino);
        }
    }
}
