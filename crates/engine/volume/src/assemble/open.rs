//! The bricks and the metadata store of a volume are opened for a mount, changed while it lasts, and closed after it.
//!
//! This module does not know files and stripes.

use super::choose::Assembly;
use super::error::AssembleError;
use super::examine::FoundBrick;
use super::plan::{BrickPlan, plan_add};
use super::store::BrickStore;
use super::superblocks::Superblocks;
use crate::error::VolumeError;
use crate::mount::{BrickDevice, MountOf};
use crate::namespace::Clock;
use braid_device::Device;
use braid_device::overlay::Overlay;
use braid_format::brick::{BLOCK, BrickState as BrickUse, BrickSuperblock, MetadataState};
use braid_format::volume::brick_record::{BrickRecord, BrickState};
use braid_format::volume::keys;
use braid_format::volume::volume_record::VolumeRecord;
use braid_kv::Store;
use braid_mirror::{LEGS_MAX, Open};
use braid_shard::Shard;
use braid_shard::sync::Budget;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use uuid::Uuid;

/// Bricks' records that are read at a time.
const AT_ONCE: usize = 1024;

/// The superblocks and the store of a volume that is mounted, or about to be.
pub struct Opened {
    /// Its name.
    pub name: String,
    /// Its uuid.
    pub uuid: Uuid,
    /// The superblocks of its bricks.
    pub superblocks: Rc<Superblocks>,
    /// Its metadata.
    pub store: Rc<BrickStore>,
    /// Bricks that are not there.
    pub missing: Vec<u16>,
    /// Notes for the user: one sentence each.
    pub notes: RefCell<Vec<String>>,
    /// One growth of the metadata at a time.
    pub(crate) growing: Rc<Budget>,
    clock: Clock,
    pub(crate) read_only: bool,
}

/// Opens the superblocks and the store of `assembly`: marks the superblocks as mounted, opens the store (its legs are made
/// equal after a crash), and lets bricks go that the metadata does not know. A copy of the metadata that is missing is made in
/// the background, where a brick has room for it. `cache_bytes` is what is kept in memory of the metadata. Of an assembly
/// that is only read, all that is written stays in memory.
///
/// # Errors
/// When superblocks or metadata cannot be read or written, or disagree.
pub async fn open(
    shard: &Shard,
    mut assembly: Assembly,
    clock: Clock,
    cache_bytes: usize,
) -> Result<Opened, AssembleError> {
    if assembly.read_only {
        for brick in assembly.bricks.values_mut().chain(&mut assembly.left_over) {
            brick.device = Overlay::new(shard, Rc::clone(&brick.device));
        }
    }
    let superblocks = Rc::new(Superblocks::new(shard, &assembly, Rc::clone(&clock)));
    superblocks.mounted().await?;
    let how = if assembly.unclean { Open::AfterCrash } else { Open::AfterStop };
    let store = BrickStore::open(&superblocks, &assembly.metadata, how, cache_bytes).await?;
    let opened = Opened {
        name: assembly.name.clone(),
        uuid: assembly.uuid,
        superblocks,
        store: Rc::new(store),
        missing: assembly.missing.clone(),
        notes: RefCell::new(assembly.notes.clone()),
        growing: Budget::new(shard, 1),
        clock,
        read_only: assembly.read_only,
    };
    if let Err(error) = opened.reconcile(&assembly).await {
        // Nothing was changed: it is as clean as it was.
        let stopped = opened.store.stop().await;
        if stopped.is_ok() && !assembly.unclean {
            opened.superblocks.clean().await?;
        }
        return Err(error);
    }
    if !assembly.read_only {
        // The superblocks name what a growth that was interrupted has not laid out.
        if let Err(error) = opened.store.grow().await {
            tracing::warn!("the metadata region is used as it was before it grew: {error}");
        }
        opened.copy_metadata();
    }
    Ok(opened)
}

impl Opened {
    /// The parts that the volume is mounted from.
    pub fn mount_of(&self) -> MountOf {
        let store = Rc::clone(&self.store);
        MountOf {
            devices: self.devices(),
            store: Rc::clone(&self.store) as Rc<dyn Store>,
            note_lost: Rc::new(move |id| store.note_lost(id)),
            clock: Rc::clone(&self.clock),
            read_only: self.read_only,
        }
    }

    /// The bricks that are there.
    pub fn devices(&self) -> Vec<BrickDevice> {
        let bricks = self.superblocks.present().into_iter();
        bricks
            .filter_map(|id| self.superblocks.brick(id))
            .map(|(device, superblock)| BrickDevice {
                uuid: Uuid::from_bytes(superblock.brick_uuid),
                device,
                data_offset: superblock.data.offset,
            })
            .collect()
    }

    /// Stops the store and marks the superblocks as unmounted in order. After [`Volume::close`](crate::Volume::close)
    /// has succeeded: if it has not, stop the store only, and the next mount is one after a crash.
    ///
    /// # Errors
    /// When not everything could be written.
    pub async fn close(&self) -> Result<(), AssembleError> {
        self.store.stop().await?;
        self.superblocks.clean().await
    }

    /// Lays a brick out that is to be added. One is added at a time.
    ///
    /// # Errors
    /// When the brick or its weight cannot be.
    pub async fn plan_add(&self, brick: &BrickPlan) -> Result<BrickSuperblock, AssembleError> {
        let record = self.volume_record().await?;
        let regions = self.superblocks.regions();
        let len = regions.iter().map(|(.., len)| *len).max().unwrap_or(0);
        let uuid = brick.uuid.into_bytes();
        let present = self.superblocks.present();
        let superblocks =
            present.iter().filter_map(|id| self.superblocks.brick(*id)).collect::<Vec<_>>();
        if superblocks.iter().any(|(_, other)| other.brick_uuid == uuid) {
            return Err(AssembleError::NamedTwice { device: brick.info.name.clone() });
        }
        let count = present.len() + self.superblocks.away().len();
        if count >= braid_layout::buckets::MAX_BRICKS {
            return Err(AssembleError::TooManyBricks { count: count + 1 });
        }
        let (_, like) = superblocks.first().ok_or(AssembleError::NoBricks)?;
        let now = (self.clock)();
        plan_add(like, brick, (regions.len(), len), record.next_brick, now)
    }

    /// Writes the superblocks that name the new brick: before [`Volume::add_brick`](crate::Volume), which gives it the
    /// same id. When that fails, [`brick_removed`](Opened::brick_removed) undoes this.
    ///
    /// # Errors
    /// When the brick cannot be written: then nothing has changed.
    pub async fn begin_add(
        &self,
        superblock: &BrickSuperblock,
        device: Rc<dyn Device>,
    ) -> Result<(), AssembleError> {
        self.superblocks.add(device, superblock.clone()).await
    }

    /// After the metadata has no record of the brick any more: it is let go, its metadata goes to another brick, and its
    /// superblocks are erased.
    ///
    /// # Errors
    /// [`AssembleError::LastMetadata`] when no other brick can take the metadata (see [`can_remove`](Opened::can_remove));
    /// when the superblocks cannot be written or erased.
    pub async fn brick_removed(&self, id: u16) -> Result<(), AssembleError> {
        let held = self.store.settled_bricks().await;
        if held.contains(&id) {
            let other = self.room_for_metadata(id);
            match (held.len(), other) {
                (1, None) => return Err(self.last_metadata(id)),
                (1.., Some(other)) if held.len() < LEGS_MAX => {
                    self.store.add_leg(other).await?;
                    self.store.drop_leg(id).await?;
                }
                _ => {
                    self.store.drop_leg(id).await?;
                    if let Some(other) = other {
                        self.store.add_leg(other).await?;
                    }
                }
            }
        }
        self.superblocks.remove(id).await
    }

    /// Success if the metadata can do without the brick: to be asked before its stripes are moved.
    ///
    /// # Errors
    /// [`AssembleError::LastMetadata`].
    pub fn can_remove(&self, id: u16) -> Result<(), AssembleError> {
        let held = self.store.bricks();
        if held == [id] && self.room_for_metadata(id).is_none() {
            return Err(self.last_metadata(id));
        }
        Ok(())
    }

    /// A brick failed and is not used any more until the next mount. The only one with metadata stays: if the store can
    /// still use it nothing is lost yet, and the others without it are no volume.
    ///
    /// # Errors
    /// When the superblocks of the others cannot be written.
    pub async fn brick_lost(&self, id: u16) -> Result<(), AssembleError> {
        let held = self.store.settled_bricks().await;
        let others = self.superblocks.hold_metadata().into_iter().any(|other| other != id);
        if held == [id] || !others {
            return Ok(());
        }
        // Else the store might go on with that copy only, which does not count at the next mount.
        if held.contains(&id) {
            self.store.drop_leg(id).await?;
        }
        match self.superblocks.brick(id) {
            Some(_) => self.superblocks.lost(id).await,
            // A commit had it noted.
            None => Ok(()),
        }
    }

    /// A brick is for something else now, or has another weight.
    ///
    /// # Errors
    /// When the superblocks cannot be written.
    pub async fn brick_changed(
        &self,
        id: u16,
        state: BrickState,
        weight: u64,
    ) -> Result<(), AssembleError> {
        let state = match state {
            BrickState::Data => BrickUse::Data,
            BrickState::Removing => BrickUse::Removing,
            BrickState::Proxy => BrickUse::Proxy,
            BrickState::MetadataOnly => BrickUse::MetadataOnly,
            BrickState::Lost => return self.brick_lost(id).await,
        };
        self.superblocks.changed(id, state, weight).await
    }

    /// A brick that was away has returned, with this state and weight, and is to be used again: the superblocks of all say so
    /// when this ends.
    ///
    /// # Errors
    /// When it is not as it went, or superblocks cannot be written: it is away as before then.
    pub async fn brick_returned(
        &self,
        found: FoundBrick,
        state: BrickState,
        weight: u64,
    ) -> Result<(), AssembleError> {
        let id = found.superblock.brick_id;
        self.superblocks.take_back(found).await?;
        self.brick_changed(id, state, weight).await
    }

    async fn volume_record(&self) -> Result<VolumeRecord, AssembleError> {
        let bytes = self.store.get(keys::VOLUME).await?.ok_or(VolumeError::Empty)?;
        Ok(VolumeRecord::parse(&bytes).map_err(VolumeError::from)?)
    }

    /// Holds superblocks and metadata against each other.
    async fn reconcile(&self, assembly: &Assembly) -> Result<(), AssembleError> {
        let disagree = |why: String| AssembleError::Disagree { volume: assembly.name.clone(), why };
        let record = self.volume_record().await?;
        if record.uuid != assembly.uuid {
            return Err(disagree(format!("the metadata is of volume {}", record.uuid)));
        }
        if record.stripe != assembly.stripe {
            return Err(disagree(format!("the metadata has stripes of {} bytes", record.stripe)));
        }
        let mut records = BTreeMap::new();
        let mut from = keys::brick(0);
        loop {
            let pairs = self.store.scan(&from, &keys::after(b"b"), AT_ONCE).await?;
            let whole = pairs.len() < AT_ONCE;
            for (key, value) in pairs {
                if let Some(id) = keys::brick_of(&key) {
                    let record = BrickRecord::parse(id, &value).map_err(VolumeError::from)?;
                    records.insert(id, record);
                }
                from = key;
                from.push(0);
            }
            if whole {
                break;
            }
        }
        let away = self.superblocks.away();
        for (id, record) in &records {
            let Some((device, superblock)) = self.superblocks.brick(*id) else {
                if away.contains(id) || record.state == BrickState::Lost {
                    continue;
                }
                return Err(disagree(format!("the metadata knows brick {id} ({})", record.uuid)));
            };
            let name = &device.info().name;
            let uuid = Uuid::from_bytes(superblock.brick_uuid);
            if record.uuid != uuid {
                let expected = record.uuid;
                return Err(disagree(format!("brick {id} is {expected}, and {name} is {uuid}")));
            }
            let blocks = superblock.data.len / BLOCK;
            if record.blocks > blocks {
                let known = record.blocks;
                return Err(disagree(format!(
                    "{name} (brick {id}) has {blocks} blocks of data, and the metadata knows {known}"
                )));
            }
        }
        for id in self.superblocks.present().into_iter().chain(away) {
            if !records.contains_key(&id) {
                self.notes.borrow_mut().push(format!(
                    "brick {id} was being added or removed when that was interrupted: it holds nothing and is let go"
                ));
                self.brick_removed(id).await?;
            }
        }
        Ok(())
    }

    /// Starts to make the copies of the metadata that are missing, as far as bricks have room.
    pub fn copy_metadata(&self) {
        let (store, superblocks) = (Rc::clone(&self.store), Rc::clone(&self.superblocks));
        self.superblocks.shard().spawn(async move {
            let mut failed = Vec::new();
            while store.bricks().len() < LEGS_MAX
                && let Some(id) = room_for_metadata(&store, &superblocks, &failed)
            {
                match store.add_leg(id).await {
                    Ok(()) => {
                        let copies = store.bricks().len();
                        tracing::info!(brick = id, copies, "the metadata has one copy more");
                    }
                    // Another task was faster.
                    Err(_) if store.bricks().contains(&id) => {}
                    Err(error) => {
                        tracing::error!(brick = id, "copying the metadata: {error}");
                        failed.push(id);
                    }
                }
            }
        });
    }

    fn room_for_metadata(&self, but: u16) -> Option<u16> {
        room_for_metadata(&self.store, &self.superblocks, &[but])
    }

    fn last_metadata(&self, id: u16) -> AssembleError {
        let brick = self.superblocks.brick(id);
        let device = brick.map_or(format!("brick {id}"), |(device, _)| device.info().name.clone());
        AssembleError::LastMetadata { device }
    }
}

/// A brick, none of `but`, whose metadata region can become a copy: rather one that was a copy before.
fn room_for_metadata(store: &BrickStore, superblocks: &Superblocks, but: &[u16]) -> Option<u16> {
    let held = store.bricks();
    let regions = superblocks.regions();
    let need = regions.iter().filter(|(id, ..)| held.contains(id)).map(|(.., len)| *len);
    let need = need.max()?;
    let leaves = |id: u16| {
        let brick = superblocks.brick(id);
        brick.is_none_or(|(_, superblock)| superblock.state == BrickUse::Removing)
    };
    let can = regions.iter().filter(|(id, _, len)| {
        !but.contains(id) && !held.contains(id) && *len >= need && !leaves(*id)
    });
    let rather = |(_, state, _): &&(u16, MetadataState, _)| *state != MetadataState::OutOfSync;
    can.min_by_key(rather).map(|(id, ..)| *id)
}
