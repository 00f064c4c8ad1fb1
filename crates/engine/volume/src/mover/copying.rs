//! The job that gives files the copies that they are to have: when it is asked for, and by itself when bricks that were away are
//! back.

use super::part::Mover;
use super::run::Move;
use super::running::{NewJob, Running};
use crate::namespace::Inode;
use braid_filesystem::Errno;
use braid_format::volume::extent::{Extent, groups_of_copy};
use braid_format::volume::job::JobKind;
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

    /// A job begins, or goes on: one that makes copies looks at all of them.
    pub(super) fn begin_copies(&self, running: &Running) {
        if running.record.get().kind == JobKind::Copies {
            running.set_cursor((0, 0));
            self.missed_before.set(self.record.missed());
        }
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
