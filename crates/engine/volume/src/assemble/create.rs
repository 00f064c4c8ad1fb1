//! A volume is made on its bricks.
//!
//! Superblocks say that it is being made until its metadata is whole: what is interrupted is no volume.

use super::choose::{AssembleOptions, assemble};
use super::error::AssembleError;
use super::examine::{FoundBrick, Half, write_request};
use super::plan::CreatePlan;
use super::store::BrickStore;
use super::superblocks::Superblocks;
use crate::namespace::Clock;
use braid_device::{Device, IoSets};
use braid_format::brick::VolumeState;
use braid_kv::Store;
use braid_mirror::Open;
use braid_shard::Shard;
use std::rc::Rc;

/// The store's cache while it is made, in bytes.
const CACHE: usize = 4 << 20;

/// Makes the volume of `plan` on `devices`, in the order of the plan's bricks: what they held is lost. It is left as one that was
/// unmounted in order.
///
/// # Errors
/// When a device cannot be written: then there is no volume, and it can be made again.
pub async fn create(
    shard: &Shard,
    plan: CreatePlan,
    devices: &[Rc<dyn Device>],
    clock: Clock,
) -> Result<(), AssembleError> {
    let io = IoSets::new(shard);
    let mut found = Vec::new();
    for (superblock, device) in plan.superblocks.iter().zip(devices) {
        let device = Rc::clone(device);
        let (superblock, begin_with) = (superblock.clone(), Half::First);
        found.push(FoundBrick { device, superblock, notes: Vec::new(), begin_with });
    }
    for half in [Half::First, Half::Second] {
        let mut writes = io.start();
        for (number, brick) in (0..).zip(&found) {
            writes.submit(number, &*brick.device, write_request(shard, &brick.superblock, half));
        }
        for (number, outcome) in writes.finish().await {
            let device = found.get(number as usize).map_or("", |brick| brick.name()).to_string();
            let failed = |error| AssembleError::Io { device, doing: "writing", error };
            outcome.result.map_err(failed)?;
        }
    }
    for brick in &mut found {
        brick.superblock.volume_state = VolumeState::Clean;
    }
    let assembly = assemble(found, AssembleOptions::default())?;
    let superblocks = Rc::new(Superblocks::new(shard, &assembly, clock));
    superblocks.being_made();
    let store = BrickStore::open(&superblocks, &assembly.metadata, Open::Create, CACHE).await?;
    store.commit(plan.records).await?;
    store.stop().await?;
    superblocks.clean().await
}
