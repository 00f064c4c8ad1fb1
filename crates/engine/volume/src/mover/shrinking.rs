//! A brick gives up the end of its data area: what lies there goes elsewhere first, while files are used.

use super::part::Mover;
use super::run::WALKS_MAX;
use super::versions::first_version;
use crate::error::VolumeError;
use crate::extents::Brick;
use braid_filesystem::Errno;
use braid_format::volume::brick_record::BrickState;
use braid_format::volume::job::{JobKind, JobRecord};
use braid_format::volume::snapshot::in_snapshot;
use braid_format::volume::{BLOCK, keys};
use std::rc::Rc;

/// Bytes of data that a brick keeps at least.
const DATA_MIN: u64 = 8 << 20;

impl Mover {
    /// Checks that a brick can give up so many blocks. Gives it, and the blocks that it would keep.
    pub fn may_give_up_end(&self, id: u16, blocks: u64) -> Result<(Rc<Brick>, u64), VolumeError> {
        let brick = self.bricks.get(id).ok_or(VolumeError::NoSuchBrick(id))?;
        let (name, have) = (brick.name(), brick.space.blocks());
        if !brick.is_there() {
            return Err(VolumeError::NoSuchBrick(id));
        }
        let least = DATA_MIN.max(self.geometry.stripe) / BLOCK;
        let Some(left) = have.checked_sub(blocks).filter(|left| *left >= least) else {
            return Err(VolumeError::Refused(format!(
                "{name} has {} bytes for data and would give {} of them to the metadata, but keeps {} at least: choose a \
                 smaller size",
                have * BLOCK,
                blocks * BLOCK,
                least * BLOCK
            )));
        };
        let bricks = self.bricks.all();
        let others =
            bricks.iter().filter(|other| other.id != id && other.is_placed() && other.is_there());
        let room: u64 = others.map(|other| other.space.blocks() - other.space.used()).sum();
        let used = brick.space.used();
        if used > left + room {
            return Err(VolumeError::Refused(format!(
                "{name} has {} bytes in use and would keep room for {}, and the other bricks have {} free: add a brick, \
                 remove files, or choose a smaller size",
                used * BLOCK,
                left * BLOCK,
                room * BLOCK
            )));
        }
        Ok((brick, left))
    }

    /// Shortens the data area of a brick by so many blocks. When this returns nothing lies on them, and the metadata says
    /// that they are not the brick's.
    ///
    /// # Errors
    /// When there is no room for what lies there, or another job is under way: the brick is as it was.
    pub async fn give_up_end(self: &Rc<Self>, id: u16, blocks: u64) -> Result<(), VolumeError> {
        let failed = |errno| VolumeError::File { doing: "making room for metadata", errno };
        self.transactions.writable().map_err(failed)?;
        if let Some(job) = self.status() {
            return Err(VolumeError::Busy { running: job.kind.name() });
        }
        let (brick, left) = self.may_give_up_end(id, blocks)?;
        self.extents.fence_off(&brick, left).await?;
        for _ in 0..WALKS_MAX {
            if let Err(error) = self.empty_end(&brick, left).await {
                let _shut = self.gate.shut().await;
                self.extents.lift_fence(&brick);
                return Err(error);
            }
            // Whoever has reserved blocks there has put something in them, or given them back, when nobody is inside.
            let _shut = self.gate.shut().await;
            if brick.space.used_behind_fence() > 0 {
                continue;
            }
            // Make the last frees there durable, so that a crash brings nothing back to these blocks.
            self.commits.make_record_durable().await?;
            let before = brick.space.blocks();
            self.extents.cut_off(&brick);
            if brick.state() == BrickState::Data {
                let weight = u128::from(brick.weight()) * u128::from(left) / u128::from(before);
                // Less than before.
                let weight = u64::try_from(weight).unwrap_or(u64::MAX).max(1);
                self.membership.set_share(&brick, weight)?;
            }
            self.membership.note_size(&brick);
            return Ok(self.commits.make_record_durable().await?);
        }
        let _shut = self.gate.shut().await;
        let left = brick.space.used_behind_fence() * BLOCK;
        self.extents.lift_fence(&brick);
        Err(VolumeError::Refused(format!(
            "{left} bytes at the end of {} do not go elsewhere; run: braid volume check",
            brick.name()
        )))
    }

    /// Moves what lies behind block `limit` of a brick.
    async fn empty_end(self: &Rc<Self>, brick: &Rc<Brick>, limit: u64) -> Result<(), VolumeError> {
        let failed = |errno| VolumeError::File { doing: "making room for metadata", errno };
        // As a removal of just these blocks: they go elsewhere on the brick, or to another.
        let job = JobRecord {
            kind: JobKind::Remove,
            brick: Some(brick.id),
            ino: 0,
            cursor: (0, 0),
            done: 0,
            total: 0,
            paused: false,
        };
        // Puts the extents of all earlier writes into the store, so that the walk meets them.
        self.commits.sync_all().await.map_err(failed)?;
        let mut cursor = Some(keys::extents(0, 0));
        while let Some(from) = cursor.take() {
            let (groups, next) = self.some_groups(&job, &from).await.map_err(failed)?;
            for (ino, group) in groups {
                let inode = match self.inodes.get(ino).await {
                    // It was removed meanwhile.
                    Err(Errno::Stale) => continue,
                    other => other.map_err(failed)?,
                };
                let extents =
                    self.extents.group(&inode.extents, group).await.map_err(failed)?.placed();
                for (stripe, extent) in extents {
                    let behind = extent.start + u64::from(extent.blocks) > limit;
                    if extent.brick == brick.id && behind {
                        let one = self.a_move(&inode, stripe, extent, brick.id);
                        self.carry_out(&job, &one).await.map_err(failed)?;
                    }
                }
            }
            cursor = next;
        }
        self.empty_end_of_versions(&job, brick, limit).await
    }

    /// The same for what only snapshots have.
    async fn empty_end_of_versions(
        &self,
        job: &JobRecord,
        brick: &Rc<Brick>,
        limit: u64,
    ) -> Result<(), VolumeError> {
        let failed = |errno| VolumeError::File { doing: "making room for metadata", errno };
        let mut cursor = Some(first_version());
        while let Some(from) = cursor.take() {
            let (versions, next) = self.some_versions(job, &from).await.map_err(failed)?;
            for (ino, group, id) in versions {
                let own = self.extents.own_of(ino, group, id).await.map_err(failed)?;
                for (stripe, extent) in own {
                    let behind = extent.start + u64::from(extent.blocks) > limit;
                    if extent.brick != brick.id || !behind {
                        continue;
                    }
                    let inode = match self.inodes.get(in_snapshot(ino, id)).await {
                        Err(Errno::Stale) => continue,
                        other => other.map_err(failed)?,
                    };
                    let one = self.a_move(&inode, stripe, extent, brick.id);
                    self.carry_out(job, &one).await.map_err(failed)?;
                }
            }
            cursor = next;
        }
        Ok(())
    }
}
