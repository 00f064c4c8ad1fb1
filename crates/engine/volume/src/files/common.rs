//! Stripes that share an extent with other stripes: how they come to it, and how it moves with all of them, once.
//!
//! Whoever needs several stripes holds them in the order of their files and numbers.

use super::moving::Moved;
use super::part::Files;
use super::verify::sums_of;
use crate::extents::{Brick, Common, Owner, Stripe};
use crate::namespace::Inode;
use braid_filesystem::{Errno, Ino, Writing};
use braid_format::volume::extent::{Extent, PER_GROUP, copy_of, stripe_of};
use braid_format::volume::inode::FLAG_RESERVED;
use braid_format::volume::snapshot::{in_snapshot, snapshot_of};
use braid_shard::range_locks::Held;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// Tries to hold all owners of an extent, which may change until they are held.
const TRIES: usize = 8;

/// The owners of a common extent, which are held.
struct HeldOwners {
    common: Common,
    inodes: Vec<Rc<Inode>>,
    stripes: Vec<Stripe>,
    _held: Vec<Held>,
}

impl Files {
    fn range_of_stripe(&self, stripe: u64) -> Range<u64> {
        let start = stripe * self.geometry.stripe;
        start..start + self.geometry.stripe
    }

    /// Gives stripe `to` of a file the extents of stripe `from` of another, `bytes` bytes from its start on: all of it, or all up to the end
    /// of both files. False: that is not possible now, and the bytes are to be copied.
    ///
    /// # Errors
    /// When extents or checksums cannot be read; [`Errno::Quota`].
    pub(super) async fn share_stripe(
        &self,
        (from, from_nr): (&Rc<Inode>, u64),
        (to, to_nr): (&Rc<Inode>, u64),
        bytes: u64,
    ) -> Result<bool, Errno> {
        let start = to_nr * self.geometry.stripe;
        let end = start + bytes;
        self.settle_end(to, start).await?;
        let from_range = self.range_of_stripe(from_nr);
        // The end of a file comes with what the source has behind it: nobody may be about to write beyond, and show that.
        let to_range = match bytes < self.geometry.stripe {
            true => start..u64::MAX,
            false => self.range_of_stripe(to_nr),
        };
        let _held = match from.ino().cmp(&to.ino()) {
            Ordering::Less => {
                let first = from.locks.shared(from_range).await;
                (first, Some(to.locks.exclusive(to_range).await))
            }
            Ordering::Equal => (to.locks.exclusive_all([from_range, to_range]).await, None),
            Ordering::Greater => {
                let first = to.locks.exclusive(to_range).await;
                (first, Some(from.locks.shared(from_range).await))
            }
        };
        let reaches = |inode: &Inode, nr: u64| inode.size() >= nr * self.geometry.stripe + bytes;
        let is_whole = bytes == self.geometry.stripe
            || from.size() == from_nr * self.geometry.stripe + bytes && to.size() <= end;
        if !self.may_reach(to, start, end) || !reaches(from, from_nr) || !is_whole {
            return Ok(false);
        }
        let source = self.stripe(from, from_nr).await?;
        let target = self.stripe(to, to_nr).await?;
        let room = self.inodes.room_for(to);
        let has_same_copies = from.with(|record| record.copies) == to.with(|record| record.copies);
        let extents: SmallVec<[(u8, Extent); 1]> = source.extents().collect();
        let is_there = |(_, extent): &(u8, Extent)| self.bricks.is_there(extent.brick);
        let blocks: u64 = extents.iter().map(|(_, extent)| u64::from(extent.blocks)).sum();
        let (from_block, to_block) =
            (from_nr * self.geometry.blocks(), to_nr * self.geometry.blocks());
        let is_unsettled = self.sums.is_unsettled(from.ino(), from_block);
        // A hole leaves what was reserved, which is written to.
        let is_reserved = to.with(|record| record.flags & FLAG_RESERVED != 0);
        if extents.is_empty() && is_reserved
            || !has_same_copies
            || source.rows() > target.rows()
            || !extents.iter().all(is_there)
            || is_unsettled
        {
            return Ok(false);
        }
        let before: SmallVec<[(u8, Extent); 1]> = target.extents().collect();
        let had: u64 = before.iter().map(|(_, extent)| u64::from(extent.blocks)).sum();
        if blocks.saturating_sub(had) > room {
            return Err(Errno::Quota);
        }
        for (copy, extent) in &extents {
            let owner = (to.ino(), target.place(*copy).1);
            if target.get(*copy).place() == extent.place() && !target.get(*copy).is_hole() {
                return Ok(false);
            }
            if self.extents.is_owner(extent.place(), owner).await? {
                return Ok(false);
            }
        }
        for (_, extent) in &before {
            self.extents.prepare_free(*extent).await?;
        }
        let span = |first: u64| first..first + self.geometry.blocks();
        let known = self.sums.load(sums_of(from), span(from_block)).await?;
        let windows = self.sums.load(sums_of(to), span(to_block)).await?;
        // From here to the end in one step. A brick that has failed meanwhile may have lost what is shared.
        let is_same = source.extents().eq(extents.iter().copied())
            && target.extents().eq(before.iter().copied())
            && extents.iter().all(is_there);
        if !is_same || self.transactions.has_room_for(0).is_err() {
            return Ok(false);
        }
        for copy in 0..target.rows() {
            let (group, number) = target.place(copy);
            let shared = extents.iter().find(|(other, _)| *other == copy);
            let replaced = match shared {
                Some(_) => self.extents.share(source.place(copy), (group, number)),
                None if group.get(number).is_hole() => continue,
                None => self.extents.clear(group, number),
            };
            self.inodes.extent_replaced(to, replaced);
        }
        let sums = span(from_block).map(|block| known.get(block));
        self.sums.put(&windows, to_block, sums);
        self.note_write(to, end, Writing::default());
        // The bytes that the source has behind its end came along.
        to.set_ragged(true);
        Ok(true)
    }

    /// The file that an owner of an extent is of: as it is now, or in a snapshot that still has the extent. `None`: neither has it.
    pub(super) async fn owner_inode(
        &self,
        extent: Extent,
        (ino, number): Owner,
    ) -> Result<Option<Rc<Inode>>, Errno> {
        let is_it = |one: &Extent| !one.is_hole() && one.place() == extent.place();
        match self.inodes.get(ino).await {
            Ok(inode) => {
                let (_, now) = self.extents.get(&inode.extents, number).await?;
                if is_it(&now) {
                    return Ok(Some(inode));
                }
            }
            Err(Errno::Stale) => {}
            Err(error) => return Err(error),
        }
        let at = (number % PER_GROUP) as usize;
        for (id, _) in self.snapshots.all().into_iter().rev() {
            let inode = match self.inodes.get(in_snapshot(ino, id)).await {
                Err(Errno::Stale) => continue,
                other => other?,
            };
            let group = self.extents.group(&inode.extents, number / PER_GROUP).await?;
            if is_it(&group.list()[at]) {
                return Ok(Some(inode));
            }
        }
        Ok(None)
    }

    /// Holds all who have the common extent that begins where `extent` does. `None`: there is no such one any more.
    async fn hold_owners(&self, extent: Extent) -> Result<Option<HeldOwners>, Errno> {
        for _ in 0..TRIES {
            let Some(common) = self.extents.common_at(extent.place()).await? else { break };
            let mut inodes = Vec::new();
            for owner in &common.owners {
                let Some(inode) = self.owner_inode(extent, *owner).await? else {
                    return Ok(None);
                };
                inodes.push(inode);
            }
            let mut ranges: BTreeMap<Ino, (&Rc<Inode>, Vec<Range<u64>>)> = BTreeMap::new();
            for (inode, (_, number)) in inodes.iter().zip(&common.owners) {
                let (_, of_file) = ranges.entry(inode.ino()).or_insert((inode, Vec::new()));
                of_file.push(self.range_of_stripe(stripe_of(*number)));
            }
            let mut held = Vec::new();
            for (inode, ranges) in ranges.into_values() {
                held.push(inode.locks.exclusive_all(ranges).await);
            }
            let mut stripes = Vec::new();
            for (inode, (_, number)) in inodes.iter().zip(&common.owners) {
                stripes.push(self.stripe(inode, stripe_of(*number)).await?);
            }
            let has_it = |(stripe, (_, number)): (&Stripe, &Owner)| {
                copy_of(*number) < stripe.rows()
                    && stripe.get(copy_of(*number)).place() == extent.place()
                    && !stripe.get(copy_of(*number)).is_hole()
            };
            let all_have = stripes.iter().zip(&common.owners).all(has_it);
            if all_have && self.extents.common_at(extent.place()).await?.as_ref() == Some(&common) {
                return Ok(Some(HeldOwners { common, inodes, stripes, _held: held }));
            }
        }
        Ok(None)
    }

    /// Moves a common extent to brick `to`, for all who have it.
    ///
    /// # Errors
    /// As [`move_stripe`](Files::move_stripe).
    pub(super) async fn move_common(&self, extent: Extent, to: &Rc<Brick>) -> Result<Moved, Errno> {
        let Some(owners) = self.hold_owners(extent).await? else { return Ok(Moved::NotThere) };
        let parts = || owners.inodes.iter().zip(&owners.stripes).zip(&owners.common.owners);
        let mut whole = extent;
        let mut best: Option<(Rc<Inode>, Stripe)> = None;
        let mut marked = Vec::new();
        for ((inode, stripe), (_, number)) in parts() {
            if stripe.others_than(copy_of(*number)).contains(&to.id) {
                return Ok(Moved::NotThere);
            }
            marked.push(self.mark(inode, stripe));
            let (group, number) = stripe.place(copy_of(*number));
            let (one, of) = self.extents.whole_of(group, &inode.extents, number).await?;
            if one.written & !whole.written != 0 || best.is_none() {
                let of = of.filter(|of| *of != snapshot_of(inode.ino()));
                best = Some(match of {
                    None => (Rc::clone(inode), stripe.clone()),
                    Some(of) => {
                        let owner = self.inodes.get(in_snapshot(inode.ino(), of)).await?;
                        let all = self.stripe(&owner, stripe.number()).await?;
                        (owner, all)
                    }
                });
            }
            whole.blocks = whole.blocks.max(one.blocks).max(owners.common.blocks);
            whole.written |= one.written;
        }
        let Some((inode, stripe)) = best else { return Ok(Moved::NotThere) };
        let Some(reserved) = self.better_place(whole, to).await? else {
            return Ok(Moved::NotThere);
        };
        self.copy_to_stay(&inode, &stripe, whole, &reserved).await?;
        let files: Vec<_> =
            parts().map(|((inode, _), (_, number))| (&*inode.extents, *number)).collect();
        let moved =
            self.extents.publish_moved(&files, Some(&owners.common), whole, &reserved).await?;
        if moved.is_none() {
            return Ok(Moved::NotThere);
        }
        Ok(Moved::Yes(self.geometry.written_bytes(whole)))
    }
}
