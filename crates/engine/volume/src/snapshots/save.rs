//! Values that a commit is about to change are saved for the snapshots that see them.

use super::list::Snapshots;
use crate::transactions::Transactions;
use braid_filesystem::Ino;
use braid_format::volume::inode::InodeRecord;
use braid_format::volume::keys;
use braid_format::volume::snapshot::Saved;
use braid_kv::{Change, StoreError};
use std::collections::BTreeMap;

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
        let store = transactions.store();
        let next_ino = self.next_ino();
        // A job that moves what is saved says itself what is to be saved.
        let mut own = BTreeMap::new();
        for (of, id) in
            batch.iter().filter_map(|(key, value)| value.as_ref().and_then(|_| keys::saved_of(key)))
        {
            own.insert(of, id.max(own.get(of).copied().unwrap_or(0)));
        }
        let mut newest_of = BTreeMap::new();
        for (key, _) in batch.iter().filter(|(key, _)| keys::is_saved(key)) {
            let Some(ino) = keys::ino_of(key).filter(|ino| *ino < next_ino) else { continue };
            let newest = match newest_of.get(&ino) {
                Some(known) => *known,
                None => {
                    let newest = self.newest_stored(transactions, ino).await?;
                    newest_of.insert(ino, newest);
                    newest
                }
            };
            let Some(newest) = newest else { continue };
            if own.get(&key[..]).is_some_and(|id| *id >= newest) {
                continue;
            }
            // As the store has it: what is saved by a later transaction may be lost in a crash that this one survives.
            let end = keys::after(&keys::saved(key, u32::MAX));
            if !store.scan(&keys::saved(key, newest), &end, 1).await?.is_empty() {
                continue;
            }
            let value = store.get(key).await?;
            self.note_saved(newest, key);
            let value = value.map_or(Saved::Absent, Saved::Value);
            saved.push((keys::saved(key, newest), Some(value.encode())));
        }
        Ok(saved)
    }

    /// The newest snapshot that sees a file as the store has it.
    async fn newest_stored(
        &self,
        transactions: &Transactions,
        ino: Ino,
    ) -> Result<Option<u32>, StoreError> {
        if self.all_of_root() {
            return Ok(self.newest(0, ino));
        }
        let Some(bytes) = transactions.store().get(&keys::inode(ino)).await? else {
            return Ok(None);
        };
        let record = InodeRecord::parse(ino, &bytes);
        let record = record.map_err(|error| StoreError::Damaged(error.to_string()))?;
        Ok(self.newest(record.subvolume, ino))
    }
}
