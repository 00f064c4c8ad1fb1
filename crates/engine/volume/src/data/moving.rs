//! A stripe goes to another extent.
//!
//! The copy is made before the extent is changed, under the stripe's lock, and the old blocks are free when the change
//! is durable: until then a crash finds them as they were.

use crate::brick::Brick;
use crate::inode::Inode;
use crate::volume::Volume;
use braid_filesystem::Errno;
use braid_format::volume::BLOCK;
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

impl Volume {
    /// Moves stripe `stripe` from brick `from` to brick `to`. On the same brick a short extent is only moved to a better
    /// one.
    ///
    /// # Errors
    /// [`Errno::NoSpace`] when there is no room on `to`; [`Errno::Io`] when a brick failed.
    pub(crate) async fn move_stripe(
        &self,
        inode: &Rc<Inode>,
        stripe: u64,
        from: u16,
        to: &Rc<Brick>,
    ) -> Result<Moved, Errno> {
        let start = stripe * self.geometry.stripe;
        let range = match planted("move-unlocked") {
            true => u64::MAX - 1..u64::MAX,
            false => start..start + self.geometry.stripe,
        };
        let _held = inode.locks.exclusive(range).await;
        let (extents, extent) = self.extent(inode, stripe).await?;
        if extent.is_hole() || extent.brick != from {
            return Ok(Moved::NotThere);
        }
        let blocks = u64::from(extent.blocks);
        let reserved = self.reserve_on(to, blocks).await?.ok_or(Errno::NoSpace)?;
        let is_short = blocks < self.geometry.blocks();
        if to.id == from && is_short && !to.space.is_better(extent.start, reserved, blocks) {
            if !planted("reservation-leaked") {
                to.space.release(reserved, blocks);
            }
            return Ok(Moved::NotThere);
        }
        if let Err(error) = self.copy_to_stay(extent, to, reserved).await {
            to.space.release(reserved, blocks);
            return Err(error);
        }
        self.give_extent(inode, &extents, stripe, (to, reserved, blocks), extent.written);
        let end = blocks * BLOCK;
        let written = self.geometry.runs(extent, 0, end).filter(|(_, is_written)| *is_written);
        Ok(Moved::Yes(written.map(|(run, _)| run.end - run.start).sum()))
    }
}
