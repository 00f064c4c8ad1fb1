//! The job that gives files the copies that they are to have: when it is asked for, and by itself when bricks that were away are
//! back.

use super::part::Mover;
use super::run::Move;
use super::running::{NewJob, Running};
use crate::error::VolumeError;
use crate::extents::Brick;
use crate::namespace::Inode;
use crate::progress::JobState;
use braid_filesystem::Errno;
use braid_format::volume::extent::{Extent, groups_of_copy};
use braid_format::volume::job::{JobKind, JobRecord};
use braid_format::volume::keys;
use std::rc::Rc;

impl Mover {
    /// The stripes of a group that have too few copies, or copies that miss something, or too many.
    pub(super) async fn copies_missing(
        &self,
        inode: &Rc<Inode>,
        group: u64,
        placed: &[(u64, Extent)],
    ) -> Result<Vec<Move>, Errno> {
        let mut found = Vec::new();
        // Copy 0 of a stripe is there if any is.
        if group >= groups_of_copy(1) {
            return Ok(found);
        }
        for (stripe, extent) in placed {
            let bytes = self.files.missing_copies(inode, *stripe).await?;
            if bytes > 0 || self.files.has_too_many(inode, *stripe).await? {
                let (inode, stripe, at) = (Rc::clone(inode), *stripe, extent.brick);
                found.push(Move { inode, stripe, from: at, to: at, bytes });
            }
        }
        Ok(found)
    }

    /// Refuses the removal of a brick whose files are to have more copies than bricks would be left.
    pub(super) async fn may_do_without(
        &self,
        brick: u16,
        job: &JobRecord,
    ) -> Result<(), VolumeError> {
        let failed = |errno| VolumeError::File { doing: "looking for copies on the brick", errno };
        let bricks = self.bricks.all();
        let stays = |other: &&Rc<Brick>| other.id != brick && other.is_placed() && other.is_there();
        let left = bricks.iter().filter(stays).count();
        if !self.record.has_copies() || left == 0 {
            return Ok(());
        }
        self.commits.sync_all().await.map_err(failed)?;
        let mut cursor = Some(keys::extents(0, 0));
        while let Some(from) = cursor.take() {
            let (groups, next) = self.some_groups(job, &from).await.map_err(failed)?;
            for (ino, group) in groups {
                let inode = match self.inodes.get(ino).await {
                    Err(Errno::Stale) => continue,
                    other => other.map_err(failed)?,
                };
                let copies = inode.with(|record| record.copies);
                if usize::from(copies) <= left {
                    continue;
                }
                let group = self.extents.group(&inode.extents, group).await.map_err(failed)?;
                if group.placed().iter().any(|(_, extent)| extent.brick == brick) {
                    return Err(VolumeError::Refused(format!(
                        "files on it are to have {copies} copies, and {left} bricks would be left: add a brick, or ask for fewer \
                         copies first; see: braid volume copies --help"
                    )));
                }
            }
            cursor = next;
        }
        Ok(())
    }

    /// A job begins, or goes on: one that makes copies looks at all of them.
    pub(super) fn begin_copies(&self, running: &Running) {
        if running.record.get().kind == JobKind::Copies {
            running.set_cursor((0, 0));
            self.missed_before.set(self.record.missed());
        }
    }

    /// A brick that was away is there again: what it has missed is copied, once all are.
    pub fn bricks_are_back(self: &Rc<Self>) {
        self.tried_with.borrow_mut().clear();
        let copies = self.current().filter(|job| job.record.get().kind == JobKind::Copies);
        if copies.is_some() && matches!(self.state(), JobState::Failed(_)) {
            self.resume();
        }
        let own = Rc::clone(self);
        self.shard.spawn(async move { own.make_copies_when_due().await });
    }

    /// Starts to make copies when some miss something and all bricks are there, if nothing else is under way; once for the same
    /// bricks.
    pub async fn make_copies_when_due(self: &Rc<Self>) {
        if !self.record.is_incomplete() || self.current().is_some() || self.suspended.get() {
            return;
        }
        let bricks = self.bricks.all();
        if bricks.iter().any(|brick| !brick.is_there()) {
            self.tried_with.borrow_mut().clear();
            return;
        }
        let with: Vec<u16> = bricks.iter().map(|brick| brick.id).collect();
        if self.tried_with.replace(with.clone()) == with {
            return;
        }
        tracing::info!("some files have fewer copies than they are to have: making them");
        if let Err(error) = self.start(NewJob::Copies).await {
            tracing::warn!("making copies: {error}");
        }
    }
}
