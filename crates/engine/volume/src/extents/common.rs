//! Extents that several stripes have: they become so, and are freed with their last owner.

use super::group::ExtentGroup;
use super::map::{ExtentMap, Replaced};
use super::owners::{Common, Owner};
use braid_filesystem::Errno;
use braid_format::volume::extent::{Extent, PER_GROUP, Place};
use std::rc::Rc;

/// The way in which a stripe has an extent that is recorded as common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// As one that is common, or only in a version that a snapshot has.
    Rightly,
    /// As if it had it alone.
    AsItsOwn,
    /// It does not have it.
    Not,
}

impl ExtentMap {
    /// The common extent that begins there; `None`: the extent there has one owner, if any.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn common_at(&self, at: Place) -> Result<Option<Common>, Errno> {
        self.owners.of(at).await
    }

    /// The extent that begins there is common, and jobs look at it where another stripe has it.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn is_led_elsewhere(&self, at: Place, owner: Owner) -> Result<bool, Errno> {
        let first = self.owners.first_of(at).await?;
        Ok(first.is_some_and(|first| first != owner))
    }

    /// A stripe is recorded as an owner of the extent that begins there. So it may be when only a snapshot has the extent in it: then it
    /// cannot get it again, as versions that name an extent are next to each other.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn is_owner(&self, at: Place, owner: Owner) -> Result<bool, Errno> {
        self.owners.has(at, owner).await
    }

    /// Gives stripe `to` the extent of stripe `from`, which is common from now on. What it had is freed, which
    /// [`prepare_free`](ExtentMap::prepare_free) has seen.
    pub fn share(
        &self,
        (from, from_stripe): (&Rc<ExtentGroup>, u64),
        (to, to_stripe): (&Rc<ExtentGroup>, u64),
    ) -> Replaced {
        let extent = Extent { common: true, ..from.get(from_stripe) };
        let owners = [(from.key().0, from_stripe), (to.key().0, to_stripe)];
        self.owners.add(extent.place(), extent.blocks, owners);
        if !from.get(from_stripe).common {
            from.set_common(from_stripe);
            self.note_changed(from);
        }
        self.replace(to, to_stripe, extent)
    }

    /// Looks for extents of which an earlier life has not found out whether anybody has them.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn find_left(&self) -> Result<(), Errno> {
        self.owners.find_left().await
    }

    /// Owners have left extents, and it was not found out yet whether others are left.
    pub fn has_left(&self) -> bool {
        self.owners.has_left()
    }

    /// Frees the common extents that have no owner any more, as far as that is durable.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn free_left(&self) -> Result<(), Errno> {
        let extent =
            |(brick, start): Place, blocks: u16| Extent { start, blocks, brick, ..Extent::HOLE };
        let prepare = async |at: Place, blocks: u16| self.prepare_free(extent(at, blocks)).await;
        let free = |at: Place, blocks: u16| {
            let gone = extent(at, blocks);
            self.watches.tell(|watch| watch.common_freed(&gone));
            self.free(gone);
        };
        self.owners.look(prepare, free).await
    }

    /// The common extent that begins there has no owner, and nobody is to look at it.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn is_ownerless(&self, at: Place) -> Result<bool, Errno> {
        self.owners.is_forgotten(at).await
    }

    /// It is to be found out whether a common extent has owners.
    pub fn look_at(&self, at: Place) {
        self.owners.look_at(at);
    }

    /// A stripe that has a common extent is an owner of it.
    pub fn record_owner(&self, extent: Extent, owner: Owner) {
        self.owners.add(extent.place(), extent.blocks, [owner, owner]);
    }

    /// An owner that a check has found not to have the extent any more is none.
    pub fn drop_owner(&self, at: Place, owner: Owner) {
        self.owners.leave(at, owner);
    }

    /// A stripe has the extent that begins there, in some version. The present one is told with whether it says that the
    /// extent is common; without that the stripe might write to it.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn names(&self, at: Place, (ino, number): Owner) -> Result<Naming, Errno> {
        let (group, nr) = (number / PER_GROUP, (number % PER_GROUP) as usize);
        let is_it = |extent: &Extent| !extent.is_hole() && extent.place() == at;
        let now = self.now_of(ino, group).await?[nr];
        if is_it(&now) {
            return Ok(if now.common { Naming::Rightly } else { Naming::AsItsOwn });
        }
        let versions = self.versions(ino, group).await?;
        let has_it = versions.values().any(|list| is_it(&list[nr]));
        Ok(if has_it { Naming::Rightly } else { Naming::Not })
    }

    /// The extent that a stripe takes for its own is common.
    pub fn set_common(&self, group: &Rc<ExtentGroup>, stripe: u64) {
        group.set_common(stripe);
        self.note_changed(group);
    }
}
