//! Copies that a stripe lacks as snapshots see it: it gets extents of its own for them.
//!
//! A group of extents is saved apart from those of its copies, so the snapshots that see a stripe alike are found from all of them.
//! An extent that a version gets it has alone, or together with the version behind it: versions that name an extent stay next to
//! each other.

use super::group::is_same;
use super::map::ExtentMap;
use super::reservation::Reservation;
use braid_filesystem::{Errno, Ino};
use braid_format::volume::extent::{
    COPIES_MAX, Extent, PER_GROUP, copy_of, encode, groups_of_copy, stripe_of,
};
use braid_format::volume::keys;
use braid_format::volume::snapshot::{Saved, in_snapshot, snapshot_of};
use std::collections::BTreeSet;

/// Snapshots that see a stripe alike.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The last of those before that see it otherwise.
    pub below: Option<u32>,
    /// The last of them.
    pub at: u32,
    /// The last of the next ones; `None`: the present comes next.
    pub above: Option<u32>,
}

impl ExtentMap {
    /// The snapshots that see a group of stripes, the oldest first: of those that see it and its copies alike the last. `subvolume`:
    /// that of the file, if it is there now.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn views(
        &self,
        ino: Ino,
        subvolume: Option<u16>,
        group: u64,
    ) -> Result<Vec<u32>, Errno> {
        let mut ids = BTreeSet::new();
        for copy in 0..COPIES_MAX {
            ids.extend(self.saved_for(ino, group + groups_of_copy(copy)).await?);
        }
        ids.extend(subvolume.and_then(|subvolume| self.snapshots.newest(subvolume, ino)));
        Ok(ids.into_iter().collect())
    }

    /// The snapshots for which a group of extents was saved that they still need.
    async fn saved_for(&self, ino: Ino, group: u64) -> Result<Vec<u32>, Errno> {
        let saved = self.transactions.all_saved(&keys::extents(ino, group)).await;
        let saved = saved.map_err(|error| self.transactions.store_failed(&error))?;
        let needed = saved.into_iter().filter(|(_, saved)| *saved != Saved::Gone);
        Ok(needed.map(|(id, _)| id).collect())
    }

    /// Of all that is saved of a group of stripes and its copies, the group that was saved for snapshot `id` comes first.
    ///
    /// # Errors
    /// As [`views`](ExtentMap::views).
    pub async fn is_first_saved(&self, ino: Ino, group: u64, id: u32) -> Result<bool, Errno> {
        let number = group * PER_GROUP;
        let first = stripe_of(number) / PER_GROUP;
        for copy in 0..copy_of(number) {
            if !self.saved_for(ino, first + groups_of_copy(copy)).await?.is_empty() {
                return Ok(false);
            }
        }
        Ok(self.saved_for(ino, group).await?.first() == Some(&id))
    }

    /// A copy of a stripe is `new` from now on as the snapshots `seen` see it, instead of `old`, which is freed if no other version has
    /// it. With `reservation` these are its blocks; without, the next version has it. False: they see another extent.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn publish_seen(
        &self,
        (ino, number): (Ino, u64),
        seen: Seen,
        (old, new): (Extent, Extent),
        reservation: Option<&Reservation>,
    ) -> Result<bool, Errno> {
        let (group, nr) = (number / PER_GROUP, (number % PER_GROUP) as usize);
        let key = keys::extents(ino, group);
        let failed = |error| self.transactions.store_failed(&error);
        let _held = self.snapshots.versions.exclusive(ino..ino + 1).await;
        // Reads of the old blocks by way of a snapshot end first, and later ones find the new blocks.
        let _shut = self.snapshots.readers.shut().await;
        // The store first: see transactions/view.rs.
        let stored = self.transactions.store().get(&key).await.map_err(failed)?;
        let saved = self.transactions.all_saved(&key).await.map_err(failed)?;
        let view = |id: u32| match saved.range(id..).next() {
            Some((_, Saved::Gone)) => Ok(None),
            Some((_, saved)) => self.list_of(ino, group, saved.clone().value()).map(Some),
            None => self.list_of(ino, group, stored.clone()).map(Some),
        };
        let Some(mut list) = view(seen.at)? else { return Ok(false) };
        let below = seen.below.map(|id| Ok((id, view(id)?))).transpose()?;
        let older = below.and_then(|(_, list)| list).map_or(Extent::HOLE, |list| list[nr]);
        let above = seen.above.map(view).transpose()?.flatten();
        let newer = match above {
            Some(above) => above[nr],
            None => self.now_of(ino, group).await?[nr],
        };
        let common = match old.is_hole() {
            true => None,
            false => self.owners.of(old.place()).await?.map(|common| common.blocks),
        };
        self.prepare_free(old).await?;
        // From here to the end in one step.
        if list[nr] != old {
            return Ok(false);
        }
        list[nr] = new;
        self.save(&key, seen.at, &list);
        // Those before see what they saw.
        if let Some((id, Some(list))) = below.filter(|(id, _)| !saved.contains_key(id)) {
            self.save(&key, id, &list);
        }
        if let Some(reservation) = reservation {
            reservation.confirm();
            self.record.snapshots_hold(new.blocks.into());
            let of = in_snapshot(ino, seen.at);
            self.watches.tell(|watch| watch.extent(of, number, (Extent::HOLE, false), new));
        }
        let is_behind = |id: u32| seen.below.is_none_or(|below| id > below);
        for known in self.known_groups(ino, group) {
            let id = snapshot_of(known.key().0);
            if id != 0 && id <= seen.at && is_behind(id) {
                known.set_moved(number, new);
            }
        }
        self.note_republished();
        if above.is_none()
            && let Some(known) = self.group_now(ino, group)
        {
            let now = known.get(number);
            if is_same(&now, &new) {
                known.share(number);
            } else if is_same(&now, &old) {
                known.unshare(number);
            }
        }
        if !is_same(&old, &new) {
            self.free_version((ino, number, seen.at), old, [older, newer], common);
        }
        Ok(true)
    }

    fn save(&self, key: &[u8], id: u32, list: &[Extent]) {
        let value = encode(list).map_or(Saved::Absent, Saved::Value);
        self.transactions.set(keys::saved(key, id), Some(value.encode()));
        self.snapshots.note_saved(id, key);
    }
}
