//! Where a job wants a stripe to be.

use super::part::Mover;
use crate::extents::Avoid;
use crate::namespace::Inode;
use braid_format::volume::extent::Extent;
use braid_format::volume::job::{JobKind, JobRecord};

impl Mover {
    /// The brick that the stripe is to be moved to; `None`: it stays.
    pub(super) fn wanted(
        &self,
        job: &JobRecord,
        inode: &Inode,
        stripe: u64,
        extent: Extent,
    ) -> Option<u16> {
        let pinned = inode.with(|record| record.is_pinned());
        let regular = || {
            let wanted = inode.with(|record| record.wanted_brick());
            let usable =
                wanted.filter(|id| self.bricks.get(*id).is_some_and(|brick| brick.takes_data()));
            usable.unwrap_or_else(|| self.extents.placement().brick_of(inode.ino(), stripe))
        };
        let to = match job.kind {
            JobKind::Balance if !pinned => regular(),
            JobKind::Flush if !pinned && Some(extent.brick) == job.brick => regular(),
            // Whoever is to be detached keeps nothing, pinned or not.
            JobKind::Remove if Some(extent.brick) == job.brick => regular(),
            JobKind::Migrate if inode.ino() == job.ino => job.brick?,
            JobKind::Migrate
                if job.ino == 0 && inode.with(|record| record.wanted_brick()) == job.brick =>
            {
                job.brick?
            }
            _ => return None,
        };
        let is_there = |id| self.bricks.get(id).is_some_and(|brick| brick.is_there());
        // What leaves a brick that is gone comes from other copies.
        let can = is_there(extent.brick) || job.kind == JobKind::Remove;
        (to != extent.brick && can).then_some(to)
    }

    /// Another brick with room, when the one that a stripe belongs on has none.
    pub(super) fn instead(
        &self,
        job: &JobRecord,
        inode: &Inode,
        stripe: u64,
        avoid: &Avoid,
    ) -> Option<u16> {
        let fits = |id| Some(id) != job.brick && !avoid.contains(&id);
        let blocks = self.geometry.blocks();
        self.extents.placement().other(inode.ino(), stripe, blocks, fits)
    }
}
