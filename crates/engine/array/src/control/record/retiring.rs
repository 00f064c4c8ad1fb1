//! Members that have left: their own superblocks say so, since nobody else is there to tell when one of them is found alone.
//!
//! Nothing is written to a faulty member, as in md, so its superblock goes on to say that it holds its slot, and a mirror's
//! half would be started as a degraded array of its own. One that was removed is marked as if its recovery by the bitmap
//! had just begun: md, mdadm and braid count such a member as not in sync, and still take it back by the bitmap, since the
//! slot and the event count stay. One that was replaced is marked as faulty, and is no member any more.
//!
//! Version 0.90 has no field that would say how much of a member is valid, so there a removed one stays as it is.
//!
//! It is a courtesy: a member that does not answer, or takes no writes, is let go all the same.

use crate::control::record::Record;
use crate::metadata::superblock::{read_superblock, superblock_bytes, write};
use braid_device::meter::Metered;
use braid_device::{Device, Opener};
use braid_format::SECTOR;
use braid_format::superblock::{Role, Superblock};
use braid_shard::Nanos;
use braid_shard::plant::planted;
use std::cell::Cell;
use std::rc::Rc;

/// A member that has left is waited for so long, in nanoseconds.
const PATIENCE: Nanos = 1_000_000_000;

/// The way in which a member has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// It may come back.
    Removed,
    /// Another has its slot for good.
    Replaced,
}

impl Record {
    /// Marks a device that was a member with superblock `was`.
    ///
    /// # Errors
    /// Why it is not marked, as text.
    pub(crate) async fn retire(
        &self,
        opener: &dyn Opener,
        was: &Superblock,
        left: Left,
    ) -> Result<(), String> {
        let _alone = self.marking.take(1).await;
        let device = opener.open(&self.shard).map_err(|error| error.to_string())?;
        let device = Metered::new(&self.shard, device);
        let over = Rc::new(Cell::new(false));
        let (shard, waited_for, ended) =
            (self.shard.clone(), Rc::downgrade(&device), Rc::clone(&over));
        self.shard.spawn(async move {
            shard.sleep(PATIENCE).await;
            if !ended.get()
                && let Some(device) = waited_for.upgrade()
            {
                // Whoever adds the device again waits until it has ended what it was asked here.
                device.give_up();
            }
        });
        let marked = self.mark(&device, opener.name(), was, left).await;
        over.set(true);
        marked
    }

    /// Waits until no member that has left is being marked: one that comes back meanwhile would have its new superblock
    /// written over by the mark of the old one.
    pub(crate) async fn marks_are_written(&self) {
        drop(self.marking.take(1).await);
    }

    async fn mark(
        &self,
        device: &Rc<Metered>,
        name: &str,
        was: &Superblock,
        left: Left,
    ) -> Result<(), String> {
        let found = read_superblock(&self.shard, &device.as_device(), name).await;
        let Some(mut superblock) = found.map_err(|error| error.to_string())? else {
            return Err("it has no superblock any more".to_string());
        };
        let same = superblock.set_uuid == was.set_uuid
            && superblock.device_uuid == was.device_uuid
            && superblock.dev_number == was.dev_number;
        if !same {
            return Err("its superblock is that of another member by now".to_string());
        }
        if !matches!(superblock.own_role(), Role::Slot(_)) || planted("retired-unmarked") {
            return Ok(());
        }
        if left == Left::Replaced {
            if let Some(role) = superblock.roles.get_mut(superblock.dev_number as usize) {
                *role = Role::Faulty;
            }
        } else if superblock.version.has_recovery_offset() && superblock.recovery_offset.is_none() {
            superblock.recovery_offset = Some(0);
            superblock.recovery_by_bitmap = superblock.bitmap_offset != 0;
        }
        let bytes = superblock_bytes(&self.shard, &superblock, device.info().logical_block);
        let at = superblock.super_offset.saturating_mul(SECTOR as u64);
        write(&self.shard, &device.as_device(), at, bytes).await.map_err(|error| error.to_string())
    }
}
