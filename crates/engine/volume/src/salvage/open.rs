//! Which copy of the metadata a salvage reads: the newest that can be opened.

use super::read::{Salvage, Source};
use crate::assemble::FoundBrick;
use crate::error::VolumeError;
use crate::stripes::Geometry;
use braid_device::overlay::Overlay;
use braid_format::brick::{BrickSuperblock, MetadataState};
use braid_format::volume::keys;
use braid_format::volume::volume_record::VolumeRecord;
use braid_kv::{KvStore, Store, StoreError};
use braid_mirror::{LEGS_MAX, Mirror, Open, Region};
use braid_shard::Shard;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;
use uuid::Uuid;

/// Nothing can be salvaged.
#[derive(Debug, thiserror::Error)]
pub enum SalvageError {
    /// No brick was given that can be used.
    #[error("none of the devices that were given is a brick that can be read")]
    NoBricks,
    /// Bricks of two volumes.
    #[error(
        "{device} is a brick of volume {volume:?} ({uuid}), others are not: salvage one volume at a time"
    )]
    OtherVolume {
        /// The device.
        device: String,
        /// The name of its volume.
        volume: String,
        /// The uuid of its volume.
        uuid: Uuid,
    },
    /// The bricks with the metadata are not among them.
    #[error(
        "none of these bricks of volume {volume:?} has a copy of the metadata, which alone says which bytes are whose; give \
         one that has (braid volume examine BRICK shows it)"
    )]
    NoMetadata {
        /// Its name.
        volume: String,
    },
    /// No copy of the metadata can be opened.
    #[error("no copy of the metadata of volume {volume:?} can be opened: {why}")]
    Damaged {
        /// Its name.
        volume: String,
        /// For each copy why not.
        why: String,
    },
}

/// Opens what there is of a volume, from the bricks of it that were found; they may be of different times. `cache_bytes` is
/// what is kept in memory of the metadata.
///
/// # Errors
/// When the bricks are of several volumes, or none of them has metadata that can be opened: it alone says which bytes are
/// whose.
pub async fn open(
    shard: &Shard,
    found: Vec<FoundBrick>,
    cache_bytes: usize,
) -> Result<Salvage, SalvageError> {
    let first = found.first().ok_or(SalvageError::NoBricks)?.superblock.clone();
    let name = first.volume_name.as_str().to_string();
    let mut notes = Vec::new();
    let mut bricks = by_id(&first, found, &mut notes)?;
    let newest = bricks.values().map(|brick| brick.superblock.generation).max().unwrap_or(0);
    for (id, brick) in &mut bricks {
        let generation = brick.superblock.generation;
        // One step apart is what an interruption leaves.
        if generation.saturating_add(1) < newest {
            let name = &brick.device.info().name;
            notes.push(format!(
                "{name} (brick {id}) is of generation {generation}, the newest of {newest}: it missed changes"
            ));
            brick.doubt = Some(format!("read from {name}, which missed changes: it may be old"));
        }
    }
    let mut why = Vec::new();
    for ids in candidates(&bricks) {
        match of_copies(shard, &bricks, &ids, cache_bytes).await {
            Ok((store, record)) => {
                let names: Vec<String> = ids.iter().map(|id| format!("brick {id}")).collect();
                notes.push(format!("the metadata is that of {}", names.join(" and ")));
                if record.uuid.as_bytes() != &first.volume_uuid {
                    notes.push(format!("it is of volume {}", record.uuid));
                }
                let behind = |id: &u16| {
                    bricks.get(id).is_some_and(|brick| {
                        brick.superblock.metadata_state != MetadataState::InSync
                            || brick.superblock.generation.saturating_add(1) < newest
                    })
                };
                let doubt = ids.iter().all(behind).then(|| {
                    "the copy of the metadata missed changes: these bytes may be old, or another file's".to_string()
                });
                if doubt.is_some() {
                    notes.push("that copy missed changes: newer files are not in it".to_string());
                }
                let geometry = Geometry::new(record.stripe);
                let shard = shard.clone();
                let has_sums = record.checksums;
                return Ok(Salvage {
                    shard,
                    geometry,
                    bricks,
                    store,
                    doubt,
                    has_sums,
                    name,
                    notes,
                });
            }
            Err(error) => {
                let names: Vec<String> = ids.iter().map(|id| format!("brick {id}")).collect();
                why.push(format!("that of {}: {error}", names.join(" with ")));
            }
        }
    }
    match why.is_empty() {
        true => Err(SalvageError::NoMetadata { volume: name }),
        false => Err(SalvageError::Damaged { volume: name, why: why.join("; ") }),
    }
}

/// Of bricks with the same number the newest.
fn by_id(
    first: &BrickSuperblock,
    found: Vec<FoundBrick>,
    notes: &mut Vec<String>,
) -> Result<BTreeMap<u16, Source>, SalvageError> {
    let mut bricks: BTreeMap<u16, Source> = BTreeMap::new();
    for FoundBrick { device, superblock, .. } in found {
        if superblock.volume_uuid != first.volume_uuid {
            return Err(SalvageError::OtherVolume {
                device: device.info().name.clone(),
                volume: superblock.volume_name.as_str().to_string(),
                uuid: Uuid::from_bytes(superblock.volume_uuid),
            });
        }
        let source = Source { device, superblock, doubt: None };
        match bricks.entry(source.superblock.brick_id) {
            Entry::Vacant(free) => drop(free.insert(source)),
            Entry::Occupied(mut taken) => {
                let newer = |one: &Source| (one.superblock.generation, one.superblock.updated);
                let id = *taken.key();
                let left = match newer(taken.get()) < newer(&source) {
                    true => taken.insert(source),
                    false => source,
                };
                let name = &left.device.info().name;
                notes.push(format!("{name} is an older copy of brick {id}: it is left out"));
            }
        }
    }
    Ok(bricks)
}

/// The copies to try, the best first: those that are current together, so that each makes up for what the others have lost; then
/// one by one, and those that missed commits last.
fn candidates(bricks: &BTreeMap<u16, Source>) -> Vec<Vec<u16>> {
    let mut copies: Vec<(u16, &BrickSuperblock)> = bricks
        .iter()
        .map(|(id, brick)| (*id, &brick.superblock))
        .filter(|(_, superblock)| superblock.metadata_areas().next().is_some())
        .filter(|(_, superblock)| superblock.metadata_state != MetadataState::Unused)
        .collect();
    let in_sync = |superblock: &BrickSuperblock| superblock.metadata_state == MetadataState::InSync;
    copies.sort_by_key(|(id, superblock)| {
        (!in_sync(superblock), Reverse(superblock.metadata_generation), *id)
    });
    let mut all = Vec::new();
    if let Some((_, first)) = copies.first() {
        let is_current = |(_, other): &&(u16, &BrickSuperblock)| {
            in_sync(other)
                && first.metadata_generation.abs_diff(other.metadata_generation) <= 1
                && first.generation.abs_diff(other.generation) <= 1
        };
        let together = copies.iter().filter(is_current).take(LEGS_MAX);
        let together: Vec<u16> = together.map(|(id, _)| *id).collect();
        if together.len() > 1 {
            all.push(together);
        }
    }
    all.extend(copies.iter().map(|(id, _)| vec![*id]));
    all
}

async fn of_copies(
    shard: &Shard,
    bricks: &BTreeMap<u16, Source>,
    ids: &[u16],
    cache_bytes: usize,
) -> Result<(KvStore, VolumeRecord), VolumeError> {
    let regions = || -> Result<Vec<Region>, VolumeError> {
        let mut regions = Vec::new();
        for Source { device, superblock, .. } in ids.iter().filter_map(|id| bricks.get(id)) {
            let areas: Vec<(u64, u64)> =
                superblock.metadata_areas().map(|area| (area.offset, area.len)).collect();
            // Writes of the opening stay in memory.
            let device = Overlay::new(shard, Rc::clone(device));
            let region = Region::of_ranges(device, &areas);
            regions.push(region.map_err(|error| VolumeError::Refused(error.to_string()))?);
        }
        Ok(regions)
    };
    let open = async |how: Open| -> Result<KvStore, VolumeError> {
        let mirror = Mirror::open(shard, regions()?, how).await.map_err(StoreError::from)?;
        Ok(KvStore::open(shard, mirror, cache_bytes).await?)
    };
    let store = match open(Open::AfterCrash).await {
        Ok(store) => Ok(store),
        // Without a look at all of it: what is damaged is met when it is read.
        Err(_) => open(Open::AfterStop).await,
    };
    let store = store?;
    let record = async {
        let bytes = store.get(keys::VOLUME).await?.ok_or(VolumeError::Empty)?;
        Ok::<_, VolumeError>(VolumeRecord::parse(&bytes)?)
    };
    match record.await {
        Ok(record) => Ok((store, record)),
        Err(error) => {
            let _ = store.stop().await;
            Err(error)
        }
    }
}
