//! Volumes that are not mounted: given another name, and ended for good.

use super::choose::Assembly;
use super::error::AssembleError;
use super::examine::{FoundBrick, erase};
use super::superblocks::Superblocks;
use crate::namespace::Clock;
use braid_format::brick::VolumeName;
use braid_shard::Shard;

/// Gives a volume another name. It must have been unmounted in order, and all of its bricks must be there.
///
/// # Errors
/// When the superblocks cannot be written: then some bricks may have the new name already, which the next mount takes.
pub async fn rename(
    shard: &Shard,
    assembly: &Assembly,
    name: VolumeName,
    clock: Clock,
) -> Result<(), AssembleError> {
    Superblocks::new(shard, assembly, clock).rename(name).await
}

/// Overwrites the superblocks of a brick: it is none any more, and what was on it is lost.
///
/// # Errors
/// When they cannot be written.
pub async fn erase_brick(shard: &Shard, brick: &FoundBrick) -> Result<(), AssembleError> {
    erase(shard, &*brick.device, &brick.superblock).await
}
