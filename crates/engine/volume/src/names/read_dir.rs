//! Directories read in order. The newest entries come first.

use crate::inode::kind_of;
use crate::volume::Volume;
use braid_filesystem::{DirEntry, Entry, Errno, Ino};
use braid_format::volume::entry::ByCookie;
use braid_format::volume::keys;

/// Entries that are looked for at a time, at most.
const AT_ONCE: usize = 512;

impl Volume {
    /// See [`braid_filesystem::FileSystem::read_dir`].
    pub(crate) async fn read_entries(
        &self,
        ino: Ino,
        cookie: u64,
        max: usize,
    ) -> Result<Vec<DirEntry>, Errno> {
        self.directory(ino).await?;
        let to = keys::after(&keys::cookie(ino, u64::MAX)[..9]);
        let mut from = keys::cookie(ino, cookie.saturating_add(1));
        loop {
            let scanned = self.transactions.scan(&from, &to, max.clamp(1, AT_ONCE)).await;
            let (pairs, next) = scanned.map_err(|error| self.store_failed(&error))?;
            let mut entries = Vec::with_capacity(pairs.len());
            for (key, value) in pairs.iter().take(max) {
                let found = ByCookie::parse(value).map_err(|error| self.damaged(&error))?;
                let Some(cookie) = keys::second_of(key) else { continue };
                let kind = kind_of(found.kind);
                entries.push(DirEntry { ino: found.ino, kind, cookie, name: found.name });
            }
            match next {
                Some(next) if entries.is_empty() => from = next,
                _ => return Ok(entries),
            }
        }
    }

    /// See [`braid_filesystem::FileSystem::read_dir_plus`].
    pub(crate) async fn read_entries_plus(
        &self,
        ino: Ino,
        cookie: u64,
        max: usize,
    ) -> Result<Vec<(DirEntry, Option<Entry>)>, Errno> {
        let entries = self.read_entries(ino, cookie, max).await?;
        let mut found = Vec::with_capacity(entries.len());
        for entry in entries {
            let looked_up = match self.look_up(ino, &entry.name).await {
                Ok(looked_up) if looked_up.attr.ino == entry.ino => Some(looked_up),
                Ok(other) => {
                    self.give_back(other.attr.ino, 1, 0);
                    None
                }
                Err(_) => None,
            };
            found.push((entry, looked_up));
        }
        Ok(found)
    }
}
