//! Records as they were when a snapshot was taken, and which snapshots there are.
//!
//! A number of a file says the snapshot that it is seen in, as everywhere in the engine. Invariant: what is given of a snapshot is what
//! it shows; where the values saved for it cannot be read, nothing is given of what came after.

use super::read::{Records, Salvage, strange};
use braid_filesystem::ROOT;
use braid_format::volume::snapshot::{
    INO_END, Saved, SnapshotRecord, SnapshotState, SubvolumeRecord, file_of, in_snapshot,
    snapshot_of,
};
use braid_format::volume::{RecordError, keys};
use braid_kv::{Pair, Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};

/// Pairs that are asked for at a time.
const AT_ONCE: usize = 512;

/// A snapshot that can be copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotOf {
    /// The folder that it is of.
    pub folder: u64,
    /// That folder as the snapshot shows it.
    pub root: u64,
    /// Its name, which is one of a file.
    pub name: String,
}

impl Salvage {
    /// The snapshots of all folders. One that was being removed is none any more.
    pub async fn snapshots(&self) -> Records<SnapshotOf> {
        let mut subvolumes = BTreeMap::new();
        let subvolume = self.records(b"U", |key, value| {
            let id = keys::subvolume_of(key).ok_or_else(|| strange("a subvolume"))?;
            Ok((id, SubvolumeRecord::parse(id, value)?.root))
        });
        let subvolume = subvolume.await;
        subvolumes.insert(0, ROOT);
        subvolumes.extend(subvolume.found);
        let snapshots = self.records(b"N", |key, value| {
            let id = keys::snapshot_of(key).ok_or_else(|| strange("a snapshot"))?;
            let record = SnapshotRecord::parse(id, value)?;
            if record.state != SnapshotState::There {
                return Ok(None);
            }
            let folder = subvolumes.get(&record.subvolume).copied();
            let folder = folder.ok_or_else(|| RecordError {
                what: format!("snapshot {id}, {:?}", record.name),
                why: "the folder that it is of is not known",
            })?;
            let root = in_snapshot(folder, id);
            Ok(Some(SnapshotOf { folder, root, name: record.name }))
        });
        let Records { found, mut damaged } = snapshots.await;
        damaged.extend(subvolume.damaged);
        Records { found: found.into_iter().flatten().collect(), damaged }
    }

    /// The numbers of files that were changed or removed since a snapshot of them was taken, as they are seen in the last one before
    /// that: with or without a name there.
    pub async fn saved_inodes(&self) -> Records<u64> {
        let (pairs, error) = self.stored(b"ZI").await;
        let mut damaged: Vec<String> = error.iter().map(StoreError::to_string).collect();
        let mut found = Vec::new();
        for (key, value) in pairs {
            let Some((of, id)) = keys::saved_of(&key) else { continue };
            let Some(ino) = keys::ino_of(of).filter(|ino| (1..INO_END).contains(ino)) else {
                damaged.push(strange("the number of a file").to_string());
                continue;
            };
            match saved(&value) {
                Ok(value) => found.extend(value.value().map(|_| in_snapshot(ino, id))),
                Err(error) => damaged.push(error.to_string()),
            }
        }
        Records { found, damaged }
    }

    /// The value of a record, as the snapshot shows it that its key says.
    pub(super) async fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let ino = keys::ino_of(key).unwrap_or(0);
        let id = snapshot_of(ino);
        if id == 0 {
            return self.store.get(key).await;
        }
        let key = keys::with_ino(key, file_of(ino));
        if !keys::is_saved(&key) {
            return Ok(None);
        }
        let end = keys::after(&keys::saved(&key, u32::MAX));
        match self.store.scan(&keys::saved(&key, id), &end, 1).await?.first() {
            Some((_, value)) => Ok(saved(value)?.value()),
            None => self.store.get(&key).await,
        }
    }

    /// All pairs of a file whose keys begin with `prefix`, up to the first that cannot be read, and why it cannot: as the snapshot
    /// shows them that the prefix says. The store ends with a damaged page, so what comes after it is lost with it.
    pub(super) async fn all_of(&self, prefix: &[u8]) -> (Vec<Pair>, Option<StoreError>) {
        let ino = keys::ino_of(prefix).unwrap_or(0);
        let id = snapshot_of(ino);
        if id == 0 {
            return self.stored(prefix).await;
        }
        let prefix = keys::with_ino(prefix, file_of(ino));
        let (now, mut damaged) = self.stored(&prefix).await;
        let mut found: BTreeMap<Vec<u8>, Vec<u8>> = now.into_iter().collect();
        let (pairs, unknown) = self.stored(&[b"Z", &prefix[..]].concat()).await;
        if unknown.is_some() {
            // Of what comes after, nobody knows whether it is the snapshot's.
            let last = pairs.last().and_then(|(key, _)| Some(keys::saved_of(key)?.0.to_vec()));
            found.retain(|key, _| last.as_ref().is_some_and(|last| key < last));
            damaged = unknown;
        }
        let mut seen = BTreeSet::new();
        for (key, value) in pairs {
            let Some((of, _)) = keys::saved_of(&key).filter(|(_, of)| *of >= id) else { continue };
            // The one that was saved first after it was taken.
            if !seen.insert(of.to_vec()) {
                continue;
            }
            let value = saved(&value).unwrap_or_else(|error| {
                damaged = Some(error);
                Saved::Absent
            });
            match value.value() {
                Some(value) => drop(found.insert(of.to_vec(), value)),
                None => drop(found.remove(of)),
            }
        }
        (found.into_iter().collect(), damaged)
    }

    /// As the store has them.
    async fn stored(&self, prefix: &[u8]) -> (Vec<Pair>, Option<StoreError>) {
        let (mut found, mut from, to) = (Vec::new(), prefix.to_vec(), keys::after(prefix));
        loop {
            match self.store.scan(&from, &to, AT_ONCE).await {
                Ok(pairs) => {
                    let ended = pairs.len() < AT_ONCE;
                    if let Some((last, _)) = pairs.last() {
                        from = last.clone();
                        // The first key after it.
                        from.push(0);
                    }
                    found.extend(pairs);
                    if ended {
                        return (found, None);
                    }
                }
                Err(error) => return (found, Some(error)),
            }
        }
    }
}

fn saved(value: &[u8]) -> Result<Saved, StoreError> {
    Saved::parse(value).map_err(|error| StoreError::Damaged(error.to_string()))
}
