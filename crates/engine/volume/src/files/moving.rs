//! A stripe goes to another extent.
//!
//! The copy is made before the extent is changed, under the stripe's lock, and the old blocks are free when the change
//! is durable: until then a crash finds them as they were.

use super::part::Files;
use crate::extents::{Brick, Reservation, Stripe};
use crate::namespace::Inode;
use braid_filesystem::Errno;
use braid_format::volume::extent::{Extent, copy_of, stripe_of};
use braid_format::volume::snapshot::snapshot_of;
use braid_shard::plant::planted;
use std::rc::Rc;

/// The outcome of the move of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// It was moved: so many bytes of it were copied.
    Yes(u64),
    /// It is not where it was thought to be any more, or is gone.
    NotThere,
}

impl Files {
    /// Moves stripe `stripe` from brick `from` to brick `to`. On the same brick a short extent is only moved to a better
    /// one.
    ///
    /// # Errors
    /// [`Errno::NoSpace`] when there is no room on `to`; [`Errno::Io`] when a brick failed.
    pub async fn move_stripe(
        &self,
        inode: &Rc<Inode>,
        stripe: u64,
        from: u16,
        to: &Rc<Brick>,
    ) -> Result<Moved, Errno> {
        let (copy, start) = (copy_of(stripe), stripe_of(stripe) * self.geometry.stripe);
        let range = match planted("move-unlocked") {
            true => u64::MAX - 1..u64::MAX,
            false => start..start + self.geometry.stripe,
        };
        let held = inode.locks.exclusive(range).await;
        let all = self.stripe(inode, stripe_of(stripe)).await?;
        if copy >= all.rows() {
            return Ok(Moved::NotThere);
        }
        let extent = all.get(copy);
        if extent.is_hole() || extent.brick != from {
            return Ok(Moved::NotThere);
        }
        let is_common = self.extents.common_at(extent.place()).await?.is_some();
        if is_common && !planted("common-moved-for-one") {
            drop(held);
            return self.move_common(extent, to).await;
        }
        // Two copies on one brick would be one.
        let is_taken = all.others_than(copy).contains(&to.id);
        if is_taken && !planted("two-copies-one-brick") {
            return Ok(Moved::NotThere);
        }
        let _marked = self.mark(inode, &all);
        let kept = self.trusted(inode, &all, copy);
        let (group, number) = all.place(copy);
        let has_versions = snapshot_of(inode.ino()) != 0 || group.is_shared(number);
        if has_versions {
            return self.move_versions(inode, &all, copy, to).await;
        }
        let Some(reserved) = self.better_place(extent, to).await? else {
            return Ok(Moved::NotThere);
        };
        let extent = Extent { written: kept, ..extent };
        self.copy_from_any(inode, &all, extent, &reserved).await?;
        let replaced = self.extents.publish(group, number, &reserved, kept);
        self.inodes.extent_replaced(inode, replaced);
        Ok(Moved::Yes(self.geometry.written_bytes(extent)))
    }

    /// Reserves blocks of `to` for an extent that goes there. `None`: it is short, on that brick already, and there is no better place
    /// for it.
    ///
    /// # Errors
    /// [`Errno::NoSpace`] when there is no room on `to`.
    pub(super) async fn better_place(
        &self,
        extent: Extent,
        to: &Rc<Brick>,
    ) -> Result<Option<Reservation>, Errno> {
        let blocks = u64::from(extent.blocks);
        let reserved = self.extents.reserve_on(to, blocks).await?.ok_or(Errno::NoSpace)?;
        let is_short = blocks < self.geometry.blocks();
        let is_better = || to.space.is_better(extent.start, reserved.start(), blocks);
        if to.id == extent.brick && is_short && !is_better() {
            if planted("reservation-leaked") {
                reserved.leak();
            }
            return Ok(None);
        }
        Ok(Some(reserved))
    }

    /// As [`copy_to_stay`](Self::copy_to_stay), of an extent that only this file has. Where there are more copies the bytes are read
    /// like any others, from the brick that gives them soonest and compared with their checksums: the brick that is left has less
    /// to do, and what has rotten on it does not move along. Where that fails the extent goes as it is.
    async fn copy_from_any(
        &self,
        inode: &Rc<Inode>,
        stripe: &Stripe,
        extent: Extent,
        to: &Reservation,
    ) -> Result<(), Errno> {
        let has_copies = stripe.rows() > 1;
        let place = (to.brick(), to.start());
        if !has_copies || self.fill(inode, stripe, extent.written, place).await.is_err() {
            return self.copy_to_stay(inode, stripe, extent, to).await;
        }
        self.extents.prepare_free(extent).await?;
        self.still_there(to)
    }

    /// Copies what is written of an extent of a stripe to reserved blocks, so that they can be the extent in the next step. Where
    /// its brick is away, or has lost something, the other copies give it.
    pub(super) async fn copy_to_stay(
        &self,
        inode: &Rc<Inode>,
        stripe: &Stripe,
        extent: Extent,
        to: &Reservation,
    ) -> Result<(), Errno> {
        let (has_copies, place) = (stripe.rows() > 1, (to.brick(), to.start()));
        let is_stale = has_copies && self.is_stale(inode, stripe.number(), extent.brick);
        if !is_stale || self.fill(inode, stripe, extent.written, place).await.is_err() {
            let copied = self.bricks.copy(extent, to.brick(), to.start(), has_copies).await;
            match copied {
                Err(_) if has_copies && to.brick().is_there() => {
                    self.fill(inode, stripe, extent.written, place).await?;
                }
                other => other?,
            }
            if is_stale {
                self.note_stale(inode, stripe.number(), to.brick().id);
            }
        }
        self.extents.prepare_free(extent).await?;
        self.still_there(to)
    }

    /// One that failed a flush meanwhile has taken the copy, perhaps, and nobody will make it durable.
    fn still_there(&self, to: &Reservation) -> Result<(), Errno> {
        if to.brick().is_there() { Ok(()) } else { Err(Errno::Io) }
    }
}
