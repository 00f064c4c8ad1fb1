//! Values that a commit is about to change are saved for the snapshots that see them.

use super::list::Snapshots;
use crate::transactions::Transactions;
use braid_filesystem::Ino;
use braid_format::volume::inode::InodeRecord;
use braid_format::volume::keys;
use braid_format::volume::snapshot::Saved;
use braid_kv::{Change, StoreError};
use braid_shard::plant::planted;
use std::collections::BTreeMap;

/// Records that the store is asked for before its answers are waited for.
const AT_ONCE: usize = 512;

/// The newest snapshot that sees each file.
type Newest = BTreeMap<Ino, Option<u32>>;

impl Snapshots {
    /// The values of before that are to be committed together with `batch`. The store has the transaction before it.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn saved_for(
        &self,
        transactions: &Transactions,
        batch: &[Change],
    ) -> Result<Vec<Change>, StoreError> {
        let mut saved = Vec::new();
        if !self.any() {
            return Ok(saved);
        }
        // A job that moves what is saved says itself what is to be saved.
        let mut own = BTreeMap::new();
        for (of, id) in
            batch.iter().filter_map(|(key, value)| value.as_ref().and_then(|_| keys::saved_of(key)))
        {
            own.insert(of, id.max(own.get(of).copied().unwrap_or(0)));
        }
        let next_ino = self.next_ino();
        let old = batch.iter().filter(|(key, _)| keys::is_saved(key)).filter_map(|(key, _)| {
            let ino = keys::ino_of(key).filter(|ino| *ino < next_ino)?;
            Some((&key[..], ino))
        });
        let old: Vec<(&[u8], Ino)> = old.collect();
        let mut newest = Newest::new();
        for some in old.chunks(AT_ONCE) {
            self.find_newest(transactions, some, &mut newest).await?;
            let seen = some.iter().filter_map(|(key, ino)| Some((*key, (*newest.get(ino)?)?)));
            let unsaved =
                seen.filter(|(key, newest)| own.get(key).is_none_or(|saved| saved < newest));
            self.save_some(transactions, unsaved, &mut saved).await?;
        }
        Ok(saved)
    }

    /// Saves the values of records for the newest snapshots that see them, but for those that are saved.
    async fn save_some(
        &self,
        transactions: &Transactions,
        records: impl Iterator<Item = (&[u8], u32)>,
        saved: &mut Vec<Change>,
    ) -> Result<(), StoreError> {
        let store = transactions.store();
        let asked = records.map(|(key, newest)| {
            // As the store has it: what is saved by a later transaction may be lost in a crash that this one survives.
            let end = keys::after(&keys::saved(key, u32::MAX));
            let known = store.scan(&keys::saved(key, newest), &end, 1);
            (key, newest, known, store.get(key))
        });
        // Answers are on their way before the first is waited for.
        let asked: Vec<_> = asked.collect();
        for (key, newest, known, value) in asked {
            if !known.await?.is_empty() {
                continue;
            }
            let value = value.await?.map_or(Saved::Absent, Saved::Value);
            if planted("names-not-saved") && key.first() == Some(&b'D') {
                continue;
            }
            self.note_saved(newest, key);
            saved.push((keys::saved(key, newest), Some(value.encode())));
        }
        Ok(())
    }

    /// Finds the newest snapshots that see files as the store has them.
    async fn find_newest(
        &self,
        transactions: &Transactions,
        records: &[(&[u8], Ino)],
        newest: &mut Newest,
    ) -> Result<(), StoreError> {
        let inos = records.iter().map(|(_, ino)| *ino);
        if self.all_of_root() {
            newest.extend(inos.map(|ino| (ino, self.newest(0, ino))));
            return Ok(());
        }
        let mut asked = BTreeMap::new();
        for ino in inos.filter(|ino| !newest.contains_key(ino)) {
            asked.entry(ino).or_insert_with(|| transactions.store().get(&keys::inode(ino)));
        }
        for (ino, answer) in asked {
            let found = match answer.await? {
                None => None,
                Some(bytes) => {
                    let record = InodeRecord::parse(ino, &bytes);
                    let record = record.map_err(|error| StoreError::Damaged(error.to_string()))?;
                    self.newest(record.subvolume, ino)
                }
            };
            newest.insert(ino, found);
        }
        Ok(())
    }
}
