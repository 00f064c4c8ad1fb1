//! The metadata region becomes larger while the volume is mounted, on all bricks that have one.
//!
//! The space is the end of each brick's data area. Step by step, and after each the volume can be mounted: what lies there
//! moves, the metadata says that the data area is shorter, the superblocks give its end to the region, and the store takes
//! it. What an interruption leaves free is used when it is done again.

use crate::assemble::{AssembleError, Opened};
use crate::error::VolumeError;
use crate::volume::Volume;
use braid_format::brick::MAX_GROWN;
use braid_format::volume::BLOCK;
use std::rc::Rc;

/// Sizes of regions are multiples of this, in bytes.
const ALIGN: u64 = 1 << 20;

/// Makes the metadata region `size` bytes large, rounded up to whole MiB. Gives the bricks on which it is that large now:
/// those with the metadata, and of those that could be given it the ones that have room.
///
/// # Errors
/// When it is that large already, or a brick with the metadata has no room; when bricks cannot be written.
pub async fn grow_metadata(
    opened: &Opened,
    volume: &Rc<Volume>,
    size: u64,
) -> Result<Vec<u16>, AssembleError> {
    let refused = |why: String| AssembleError::Volume(VolumeError::Refused(why));
    let _turn = opened.growing.take(1).await;
    if opened.read_only {
        return Err(refused("the volume is mounted read-only: mount it to be written".to_string()));
    }
    let size = size.checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX - BLOCK + 1);
    let held = opened.store.settled_bricks().await;
    let regions = opened.superblocks.regions();
    let have = regions.iter().filter(|(id, ..)| held.contains(id)).map(|(.., len)| *len).min();
    let have = have.unwrap_or(0);
    if size <= have {
        return Err(refused(format!(
            "the metadata region has {have} bytes already, and can only become larger: give a larger size"
        )));
    }
    let mut small: Vec<(u16, u64)> = Vec::new();
    // Those first that must have room.
    for wanted in [true, false] {
        let some = regions.iter().filter(|(id, _, len)| held.contains(id) == wanted && *len < size);
        small.extend(some.map(|(id, _, len)| (*id, size - len)));
    }
    if let Some((id, _)) =
        small.iter().find(|(id, _)| held.contains(id) && growths(opened, *id) >= MAX_GROWN)
    {
        return Err(refused(format!(
            "the metadata region of brick {id} has grown {MAX_GROWN} times and cannot grow once more: remove the brick from \
             the volume and add it again, then it is in one piece"
        )));
    }
    small.retain(|(id, _)| growths(opened, *id) < MAX_GROWN);
    for (id, _) in small.iter().filter(|(id, _)| held.contains(id)) {
        volume.mover.may_give_up_end(*id, to_give_up(opened, volume, *id, size))?;
    }
    let mut grown = Vec::new();
    for (id, more) in small {
        let blocks = to_give_up(opened, volume, id, size);
        let given = match blocks {
            0 => Ok(()),
            blocks => volume.mover.give_up_end(id, blocks).await,
        };
        match given {
            Ok(()) => grown.push((id, more)),
            Err(error) if held.contains(&id) => return Err(error.into()),
            Err(error) => tracing::warn!(brick = id, "its metadata region stays as it is: {error}"),
        }
    }
    // Also what an earlier growth had the metadata say, and did not wait for.
    let synced = volume.sync_all().await;
    synced.map_err(|errno| VolumeError::File { doing: "making room for metadata", errno })?;
    opened.superblocks.grow_metadata(&grown).await?;
    opened.store.grow().await?;
    // A brick may have room for a copy that had none.
    opened.copy_metadata();
    Ok(grown.into_iter().map(|(id, _)| id).collect())
}

/// Blocks that the data area of a brick has to give up for a region of `size` bytes: without those that are not its own any
/// more.
fn to_give_up(opened: &Opened, volume: &Volume, id: u16, size: u64) -> u64 {
    let (Some((_, superblock)), Some(brick)) = (opened.superblocks.brick(id), volume.brick(id))
    else {
        return 0;
    };
    let free = (superblock.data.len / BLOCK).saturating_sub(brick.space.blocks());
    (size.saturating_sub(superblock.metadata_size()) / BLOCK).saturating_sub(free)
}

fn growths(opened: &Opened, id: u16) -> usize {
    opened.superblocks.brick(id).map_or(0, |(_, superblock)| superblock.metadata_grown.len())
}
