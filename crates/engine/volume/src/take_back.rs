//! A brick that was lost is used again while the volume is mounted: a disk that was pulled and is back, or an export of another server
//! whose connection was lost.
//!
//! It comes back as it went. First what the next mount has to know of its failure is made durable; then the superblocks say
//! that it is there; then the volume uses it. What it missed is known and copied again where files have copies.

use crate::assemble::{AssembleError, FoundBrick, Opened};
use crate::error::VolumeError;
use crate::membership::BrickBack;
use crate::volume::Volume;
use braid_format::volume::BLOCK;
use std::rc::Rc;
use uuid::Uuid;

/// Takes the brick that was found on a device back into the volume, and gives its number. One brick comes or goes at a time.
///
/// # Errors
/// When it is no brick of the volume, is there, was removed, or is not as it was when it went; when superblocks or metadata
/// cannot be written. The brick is away as before then.
pub async fn take_back(
    opened: &Opened,
    volume: &Volume,
    found: FoundBrick,
) -> Result<u16, AssembleError> {
    if opened.read_only {
        let why = "the volume is mounted read-only: mount it to be written".to_string();
        return Err(VolumeError::Refused(why).into());
    }
    let id = found.superblock.brick_id;
    opened.superblocks.is_of_volume(opened.uuid, &found)?;
    if volume.brick(id).is_some_and(|brick| !brick.is_there()) {
        // The volume may know that it has failed, and the superblocks not yet.
        opened.brick_lost(id).await?;
    }
    opened.superblocks.may_return(&found)?;
    let back = BrickBack {
        id,
        uuid: Uuid::from_bytes(found.superblock.brick_uuid),
        device: Rc::clone(&found.device),
        data_offset: found.superblock.data.offset,
        blocks: found.superblock.data.len / BLOCK,
    };
    let brick = volume.brick(id).ok_or(AssembleError::NoSuchBrick(id))?;
    let (state, weight) = (brick.state(), brick.weight());
    drop(brick);
    let note = async move || opened.brick_returned(found, state, weight).await;
    volume.take_back_brick(back, note).await?;
    // It may be given a copy of the metadata.
    opened.copy_metadata();
    Ok(id)
}
