//! Stripes whose extents a snapshot has, too, or other stripes.
//!
//! Such an extent is not written to: what a write leaves of it is copied to a new one, to which the write goes, and which the file
//! has once both are there. It moves with all its owners, once.

use super::moving::Moved;
use super::part::Files;
use super::resolve::{Next, NextExtent, blocks_for, wants};
use crate::extents::{Avoid, Brick, Stripe, Wants};
use crate::gate::Inside;
use crate::namespace::Inode;
use braid_filesystem::{Errno, Ino};
use braid_format::volume::extent::Extent;
use braid_format::volume::snapshot::{in_snapshot, snapshot_of};
use braid_shard::plant::planted;
use std::rc::Rc;

impl Files {
    /// Goes in to read a file: blocks of a snapshot are not freed or moved meanwhile. `None`: it is in none. The caller holds what
    /// it reads of the file: who moves that holds it, too, while it waits for those inside.
    ///
    /// # Errors
    /// [`Errno::Stale`] when the snapshot was removed.
    pub(super) async fn go_inside(&self, ino: Ino) -> Result<Option<Inside>, Errno> {
        let id = snapshot_of(ino);
        if id == 0 {
            return Ok(None);
        }
        let inside = self.snapshots.readers.enter().await;
        if self.snapshots.is_there(id) { Ok(Some(inside)) } else { Err(Errno::Stale) }
    }

    /// Others have an extent of the stripe, too, on a brick that is there.
    pub(super) fn is_shared(&self, stripe: &Stripe) -> bool {
        if planted("snapshot-written-over") {
            return false;
        }
        let mut copies = stripe.extents();
        copies.any(|(copy, extent)| stripe.is_shared(copy) && self.bricks.is_there(extent.brick))
    }

    /// The next extents of a stripe that others have, too, of at least `needed` blocks, with what is written of it but for
    /// sub-blocks `covered`, which are to be written now. The caller holds the stripe. `end`: where the file will end, at least.
    ///
    /// # Errors
    /// [`Errno::NoSpace`] or [`Errno::Quota`] when there is no room; [`Errno::Io`] when a brick failed.
    pub(super) async fn leave_shared(
        &self,
        inode: &Rc<Inode>,
        stripe: &Stripe,
        covered: u32,
        needed: u64,
        end: u64,
    ) -> Result<Next, Errno> {
        let mut next = Next { _marked: self.mark(inode, stripe), ..Next::default() };
        let wanted = blocks_for(self.geometry, inode, stripe.number(), needed, end);
        for (copy, extent) in stripe.extents() {
            if !self.bricks.is_there(extent.brick) {
                continue;
            }
            let kept = self.trusted(inode, stripe, copy) & !covered;
            // It stays as long as it was: the kept bytes have to fit, and reserved space stays reserved.
            let needed = needed.max(extent.blocks.into());
            let wants = Wants {
                avoid: self.next_of_others(stripe, copy, &next),
                ..wants(inode, stripe, copy)
            };
            let source = Extent { written: kept, ..extent };
            let blocks = (wanted.max(needed), needed);
            let reservation = self.copied_elsewhere(inode, stripe, source, wants, blocks).await?;
            next.extents.push(NextExtent { copy, reservation, kept });
        }
        if next.extents.is_empty() { Err(Errno::Io) } else { Ok(next) }
    }

    /// The bricks that the other copies of a stripe are on, and will be: should one of them fail before it is written, it stays where
    /// it is.
    fn next_of_others(&self, stripe: &Stripe, copy: u8, next: &Next) -> Avoid {
        let others = stripe.extents().filter(|(other, _)| *other != copy);
        let made = next.extents.iter().map(|made| made.reservation.brick().id);
        others.map(|(_, extent)| extent.brick).chain(made).collect()
    }

    /// Gives a stripe extents of its own, with all that is written of it, if a snapshot has them, too. The caller holds a part of
    /// it: nobody writes to shared extents.
    pub(super) async fn unshare(&self, inode: &Rc<Inode>, stripe: &Stripe) -> Result<(), Errno> {
        while self.is_shared(stripe) {
            let before: Vec<(u8, Extent)> = stripe.extents().collect();
            let needed = before.iter().map(|(_, extent)| u64::from(extent.blocks)).max();
            let needed = needed.unwrap_or(0);
            let next = self.leave_shared(inode, stripe, 0, needed, inode.size()).await?;
            for (_, extent) in &before {
                self.extents.prepare_free(*extent).await?;
            }
            // Somebody who holds another part of it may have come first.
            if stripe.extents().ne(before.iter().copied()) {
                continue;
            }
            for one in &next.extents {
                let (group, number) = stripe.place(one.copy);
                let replaced = self.extents.publish(group, number, &one.reservation, one.kept);
                self.inodes.extent_replaced(inode, replaced);
            }
        }
        Ok(())
    }

    /// Moves a copy of a stripe for all its owners. The caller holds the stripe.
    pub(super) async fn move_versions(
        &self,
        inode: &Rc<Inode>,
        stripe: &Stripe,
        copy: u8,
        to: &Rc<Brick>,
    ) -> Result<Moved, Errno> {
        let (group, number) = stripe.place(copy);
        let (whole, of) = self.extents.whole_of(group, &inode.extents, number).await?;
        let Some(reserved) = self.better_place(whole, to).await? else {
            return Ok(Moved::NotThere);
        };
        let is_whole = self.bricks.is_there(whole.brick)
            && !self.is_stale(inode, stripe.number(), whole.brick);
        if is_whole || of == Some(snapshot_of(inode.ino())) {
            self.copy_to_stay(inode, stripe, whole, &reserved).await?;
        } else {
            // Other copies give it: as the version says that has all of it.
            let owner = in_snapshot(inode.ino(), of.ok_or(Errno::Io)?);
            let owner = self.inodes.get(owner).await?;
            let all = self.stripe(&owner, stripe.number()).await?;
            self.copy_to_stay(&owner, &all, whole, &reserved).await?;
        }
        let owners = [(&*inode.extents, number)];
        let moved = self.extents.publish_moved(&owners, None, whole, &reserved);
        let Some(replaced) = moved.await? else { return Ok(Moved::NotThere) };
        if snapshot_of(inode.ino()) == 0 {
            self.inodes.extent_replaced(inode, replaced);
        }
        Ok(Moved::Yes(self.geometry.written_bytes(whole)))
    }
}
