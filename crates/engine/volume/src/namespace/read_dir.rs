//! Directories read in order. The newest entries come first.

use super::entries::inside;
use super::inode::kind_of;
use super::tree::Namespace;
use braid_filesystem::{DirEntry, Entry, Errno, Ino};
use braid_format::volume::entry::ByCookie;
use braid_format::volume::keys;
use braid_format::volume::snapshot::{LISTING, snapshot_of};
use braid_shard::range_locks::WHOLE;
use std::collections::BTreeSet;

/// Files are near each other when at least one in so many of the numbers between them is theirs.
const NEAR: usize = 4;
/// Entries that are looked for at a time, at most.
const AT_ONCE: usize = 512;

impl Namespace {
    /// See [`braid_filesystem::FileSystem::read_dir`].
    pub async fn read_entries(
        &self,
        ino: Ino,
        cookie: u64,
        max: usize,
    ) -> Result<Vec<DirEntry>, Errno> {
        let directory = self.inodes.directory(ino).await?;
        if snapshot_of(ino) == LISTING {
            return Ok(self.list_snapshots(ino, cookie, max));
        }
        // Whoever reads a directory asks until there is no more.
        if directory.ends_by(cookie) {
            return Ok(Vec::new());
        }
        let to = keys::after(&keys::cookie(ino, u64::MAX)[..9]);
        let mut from = keys::cookie(ino, cookie.saturating_add(1));
        loop {
            let (pairs, next) =
                self.transactions.scanned(&from, &to, max.clamp(1, AT_ONCE)).await?;
            let mut entries = Vec::with_capacity(pairs.len());
            for (key, value) in pairs.iter().take(max) {
                let found =
                    ByCookie::parse(value).map_err(|error| self.transactions.damaged(&error))?;
                let Some(cookie) = keys::second_of(key) else { continue };
                let kind = kind_of(found.kind);
                let ino = inside(ino, found.ino);
                entries.push(DirEntry { ino, kind, cookie, name: found.name });
            }
            match next {
                Some(next) if entries.is_empty() => from = next,
                Some(_) => return Ok(entries),
                None => {
                    if pairs.len() <= max {
                        directory.note_end(entries.last().map_or(cookie, |last| last.cookie));
                    }
                    return Ok(entries);
                }
            }
        }
    }

    /// The entries of a folder behind `cookie`, which becomes that of the last; none: there are no more, or it was removed.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn next_entries(
        &self,
        folder: Ino,
        cookie: &mut u64,
        max: usize,
    ) -> Result<Vec<DirEntry>, Errno> {
        let entries = match self.read_entries(folder, *cookie, max).await {
            Err(Errno::Stale | Errno::NotFound) => Vec::new(),
            other => other?,
        };
        *cookie = entries.last().map_or(*cookie, |last| last.cookie);
        Ok(entries)
    }

    /// See [`braid_filesystem::FileSystem::read_dir_plus`].
    pub async fn read_entries_plus(
        &self,
        ino: Ino,
        cookie: u64,
        max: usize,
    ) -> Result<Vec<(DirEntry, Option<Entry>)>, Errno> {
        let directory = self.inodes.directory(ino).await?;
        // The files behind the names must not change before they are counted.
        let _held = directory.locks.shared(WHOLE).await;
        let entries = self.read_entries(ino, cookie, max).await?;
        self.bring(entries.iter().map(|entry| entry.ino).collect()).await?;
        let mut found = Vec::with_capacity(entries.len());
        for entry in entries {
            let inode = self.inodes.get(entry.ino).await.ok();
            found.push((entry, inode.map(|inode| self.entry_of(&inode))));
        }
        Ok(found)
    }

    /// Brings files to memory that will be looked at: in one step where their numbers are near each other, as those of
    /// files are that were made together.
    pub(super) async fn bring(&self, mut inos: BTreeSet<Ino>) -> Result<(), Errno> {
        inos.retain(|ino| self.inodes.known(*ino).is_none() && snapshot_of(*ino) != LISTING);
        let (Some(first), Some(last)) = (inos.first(), inos.last()) else { return Ok(()) };
        let many = NEAR * inos.len();
        if last - first >= many as u64 {
            return Ok(());
        }
        let (from, to) = (keys::inode(*first), keys::after(&keys::inode(*last)));
        let (pairs, _) = self.transactions.scanned(&from, &to, many).await?;
        for (key, value) in pairs {
            if let Some(ino) = keys::ino_of(&key).filter(|ino| inos.contains(ino)) {
                // One that is damaged is told of where it is looked at.
                let _ = self.inodes.keep_stored(ino, &value);
            }
        }
        Ok(())
    }
}
