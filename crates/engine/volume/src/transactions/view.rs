//! Records as they were when a snapshot was taken: what was saved of them, or what they are still.
//!
//! A commit saves the values that it changes together with the change. So a record is read from the store first, and what is saved of
//! it after that: if a commit comes between, the saved value is found. What is still on its way to the store is not looked
//! at, but for saved values that a job has changed since.

use super::Transactions;
use braid_filesystem::{Errno, Ino};
use braid_format::volume::keys;
use braid_format::volume::snapshot::{INO_END, Saved, in_snapshot, snapshot_of};
use braid_kv::{Pair, StoreError};
use braid_shard::plant::planted;
use std::collections::BTreeMap;

/// Saved values that are looked for at a time.
const AT_ONCE: usize = 256;
/// Added to a record's key this comes behind the keys of all values that are saved of it, as [`keys::saved`] makes them.
const BEHIND_SAVED: [u8; 6] = [0, 0xff, 0xff, 0xff, 0xff, 0];

/// The key without the snapshot in its file number. The end of a range may be shorter than that number.
fn real(key: &[u8]) -> Vec<u8> {
    let mut bytes = key.to_vec();
    let mask = (INO_END - 1).to_be_bytes();
    bytes.iter_mut().skip(1).zip(mask).for_each(|(byte, mask)| *byte &= mask);
    bytes
}

impl Transactions {
    /// The snapshot that a key is about: its file has a number of that snapshot. 0: none. In damaged metadata files may have
    /// any numbers.
    pub(super) fn snapshot_in(&self, key: &[u8]) -> u32 {
        let id = keys::ino_of(key).map_or(0, snapshot_of);
        if id != 0 && self.snapshots.borrow().contains(&id) { id } else { 0 }
    }

    /// The value that the record of `key` had in the snapshot that its file number says.
    pub(super) async fn get_in_snapshot(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let (snapshot, key) = (self.snapshot_in(key), real(key));
        if !keys::is_saved(&key) {
            return Ok(None);
        }
        let now = self.store.get(&key).await?;
        match self.saved_from(&key, snapshot).await? {
            Some((_, saved)) => Ok(saved.value()),
            None => Ok(now),
        }
    }

    /// The value that was saved of a record when it changed first after snapshot `from` was taken, with the snapshot that it was
    /// saved for.
    ///
    /// # Errors
    /// When the store fails, or what it has is damaged.
    pub async fn saved_from(
        &self,
        key: &[u8],
        from: u32,
    ) -> Result<Option<(u32, Saved)>, StoreError> {
        let mut cursor = Some(keys::saved(key, from));
        let end = keys::after(&keys::saved(key, u32::MAX));
        while let Some(start) = cursor.take() {
            let (pairs, next) = self.scan_plain(&start, &end, 1).await?;
            if let Some((found, value)) = pairs.first() {
                let id = keys::saved_of(found).map_or(0, |(_, id)| id);
                return Ok(Some((id, parse(value)?)));
            }
            cursor = next;
        }
        Ok(None)
    }

    /// All values that were saved of a record, by the snapshots that they were saved for.
    ///
    /// # Errors
    /// As [`saved_from`](Transactions::saved_from).
    pub async fn all_saved(&self, key: &[u8]) -> Result<BTreeMap<u32, Saved>, StoreError> {
        let mut cursor = Some(keys::saved(key, 0));
        let end = keys::after(&keys::saved(key, u32::MAX));
        let mut all = BTreeMap::new();
        while let Some(start) = cursor.take() {
            let (pairs, next) = self.scan_plain(&start, &end, AT_ONCE).await?;
            for (found, value) in pairs {
                if let Some((_, id)) = keys::saved_of(&found) {
                    all.insert(id, parse(&value)?);
                }
            }
            cursor = next;
        }
        Ok(all)
    }

    /// A file is there, or a snapshot has it: as far as what was committed says. One that was removed since is there still.
    ///
    /// # Errors
    /// As [`store_failed`](Transactions::store_failed) says.
    pub async fn is_kept(&self, ino: Ino) -> Result<bool, Errno> {
        let (key, failed) = (keys::inode(ino), |error| self.store_failed(&error));
        if self.store.get(&key).await.map_err(failed)?.is_some() {
            return Ok(true);
        }
        let saved = self.all_saved(&key).await.map_err(failed)?;
        Ok(saved.values().any(|saved| matches!(saved, Saved::Value(_))))
    }

    /// As [`scan`](Transactions::scan), for keys of files in a snapshot.
    pub(super) async fn scan_in_snapshot(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<(Vec<Pair>, Option<Vec<u8>>), StoreError> {
        let snapshot = self.snapshot_in(from);
        let (from, to) = (real(from), real(to));
        if !keys::is_saved(&from) || from >= to {
            return Ok((Vec::new(), None));
        }
        let now = self.store.scan(&from, &to, limit).await?;
        let mut next = (now.len() >= limit).then(|| {
            // Behind all that is saved of the last one, which goes with it.
            let behind = if planted("last-listed-as-now") { &[0][..] } else { &BEHIND_SAVED };
            now.last().map_or_else(|| to.clone(), |(key, _)| [key, behind].concat())
        });
        let mut found: BTreeMap<Vec<u8>, Option<Vec<u8>>> =
            now.into_iter().map(|(key, value)| (key, Some(value))).collect();
        let end = next.as_ref().unwrap_or(&to);
        let (saved, until) = self.saved_between(&from, end, snapshot, limit).await?;
        if let Some(until) = until {
            found.retain(|key, _| *key < until);
            next = Some(until);
        }
        found.extend(saved);
        let tag = |key: Vec<u8>| {
            let ino = keys::ino_of(&key).unwrap_or(0);
            keys::with_ino(&key, in_snapshot(ino, snapshot))
        };
        let pairs = found.into_iter().filter_map(|(key, value)| Some((tag(key), value?))).collect();
        Ok((pairs, next.map(tag)))
    }

    /// The saved values of records from key `from` on, before `to`, about `limit` of them; and the key where it ended, before
    /// `to`.
    async fn saved_between(
        &self,
        from: &[u8],
        to: &[u8],
        snapshot: u32,
        limit: usize,
    ) -> Result<(BTreeMap<Vec<u8>, Option<Vec<u8>>>, Option<Vec<u8>>), StoreError> {
        let mut found = BTreeMap::new();
        let (mut cursor, end) = (prefixed(from), prefixed(to));
        loop {
            let (pairs, next) = self.scan_plain(&cursor, &end, limit.max(AT_ONCE)).await?;
            for (key, value) in pairs {
                let Some((of, id)) = keys::saved_of(&key) else { continue };
                if id < snapshot || found.contains_key(of) {
                    continue;
                }
                if found.len() >= limit.max(AT_ONCE) {
                    return Ok((found, Some(of.to_vec())));
                }
                found.insert(of.to_vec(), parse(&value)?.value());
            }
            match next {
                Some(next) => cursor = next,
                None => return Ok((found, None)),
            }
        }
    }
}

/// The first key of saved values of records from `key` on.
fn prefixed(key: &[u8]) -> Vec<u8> {
    let mut bytes = b"Z".to_vec();
    bytes.extend_from_slice(key);
    bytes
}

fn parse(value: &[u8]) -> Result<Saved, StoreError> {
    Saved::parse(value).map_err(|error| StoreError::Damaged(error.to_string()))
}
