//! The extents of a write: found once, under the lock of its range, or made there.

use super::part::Files;
use crate::extents::{ExtentGroup, Reservation, Wants};
use crate::namespace::Inode;
use crate::stripes::{Geometry, Piece, down, up};
use braid_filesystem::Errno;
use braid_format::volume::extent::Extent;
use braid_shard::range_locks::Held;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// Stripes from this one on are given whole extents from the start: a file of that size grows on.
const WHOLE_FROM: u64 = 8;

/// Where the part of a write is to go that lies in one stripe.
pub(super) struct Target {
    pub(super) stripe: u64,
    /// The group of the stripe's extent, which stays in memory meanwhile: looking at the extent costs nothing.
    pub(super) group: Rc<ExtentGroup>,
    /// The next extent of a stripe whose brick is lost: the lost one stays recorded until all of the write is there.
    pub(super) reservation: Option<Reservation>,
}

/// The targets of a write; most have one.
pub(super) type Targets = SmallVec<[Target; 1]>;

/// A write that holds its range, with the targets of it.
pub(super) struct Resolved {
    pub(super) targets: Targets,
    /// Flushes of bricks that had failed before.
    pub(super) flush_failures: u64,
    _held: Held,
}

impl Target {
    /// Where the stripe is written, as things are now: a concurrent writer of another part of it may have seen its brick
    /// fail since it was resolved.
    pub(super) fn extent(&self) -> Extent {
        match &self.reservation {
            Some(reservation) => reservation.extent(0),
            None => self.group.get(self.stripe),
        }
    }
}

impl Files {
    /// The range that a write of `range` locks at first.
    pub(super) fn range_of(&self, range: &Range<u64>) -> Range<u64> {
        down(range.start, self.geometry.sub_block)..up(range.end, self.geometry.sub_block)
    }

    /// Locks the range of a write, `wanted`, and finds the extents of its stripes, long enough, or reserves blocks for
    /// them. `None`: an extent is to be changed, which takes more than `wanted` was, or another writer came before.
    pub(super) async fn resolve(
        &self,
        inode: &Rc<Inode>,
        range: &Range<u64>,
        wanted: &mut Range<u64>,
    ) -> Result<Option<Resolved>, Errno> {
        let geometry = self.geometry;
        let flush_failures = self.bricks.flush_failures();
        let held = inode.locks.exclusive(wanted.clone()).await;
        let mut targets = Targets::new();
        for piece in geometry.pieces(range.clone()) {
            let needed = geometry.blocks_to(piece.to);
            let (group, extent) = self.extents.get(&inode.extents, piece.stripe).await?;
            let is_lost = !extent.is_hole() && !self.bricks.is_there(extent.brick);
            let mut target = Target { stripe: piece.stripe, group, reservation: None };
            if !extent.is_hole() && (is_lost || u64::from(extent.blocks) < needed) {
                // The extent is to be changed: that takes the whole stripe.
                if !geometry.widen(wanted, piece.stripe) {
                    return Ok(None);
                }
                if is_lost {
                    let reserved = self.reserve_anew(inode, piece, range, extent).await?;
                    target.reservation = Some(reserved);
                }
            }
            targets.push(target);
        }
        for (target, piece) in targets.iter().zip(geometry.pieces(range.clone())) {
            if target.reservation.is_some() {
                continue;
            }
            let needed = geometry.blocks_to(piece.to);
            let (group, stripe) = (&target.group, piece.stripe);
            let start = stripe * geometry.stripe;
            let whole = wanted.start <= start && wanted.end >= start + geometry.stripe;
            // A concurrent writer of another part has given the stripe an extent meanwhile, which must be changed.
            if !self.ensure_extent(inode, group, stripe, needed, range.end, whole).await? {
                return Ok(None);
            }
        }
        Ok(Some(Resolved { targets, flush_failures, _held: held }))
    }

    /// Reserves blocks for a stripe whose brick is lost, if all that was there is written anew.
    async fn reserve_anew(
        &self,
        inode: &Rc<Inode>,
        piece: Piece,
        range: &Range<u64>,
        lost: Extent,
    ) -> Result<Reservation, Errno> {
        let geometry = self.geometry;
        let to = if range.end >= inode.size() { geometry.stripe } else { piece.to };
        let before = geometry.touched(0, piece.from);
        let keeps = geometry.touched(to, geometry.stripe) | before;
        if lost.written & keeps != 0 {
            return Err(Errno::Io);
        }
        let needed = geometry.blocks_to(piece.to);
        let room = self.inodes.room_for(inode).saturating_add(lost.blocks.into());
        let blocks = blocks_for(self.geometry, inode, piece.stripe, needed, range.end);
        let blocks = within(room, blocks, needed)?;
        self.extents.reserve_about(wants(inode, piece.stripe), blocks, needed).await
    }

    /// Makes sure that the stripe has an extent of at least `needed` blocks. The caller holds the part of the stripe that it
    /// is about, or all of it: `whole`. False: it has an extent that is too short, which takes all of it; who writes another
    /// part may have given it one meanwhile. `end`: where the file will end, at least.
    pub(super) async fn ensure_extent(
        &self,
        inode: &Rc<Inode>,
        group: &Rc<ExtentGroup>,
        stripe: u64,
        needed: u64,
        end: u64,
        whole: bool,
    ) -> Result<bool, Errno> {
        loop {
            let extent = group.get(stripe);
            if !extent.is_hole() {
                let is_short = u64::from(extent.blocks) < needed;
                if is_short && whole {
                    self.grow(inode, group, stripe, needed, end).await?;
                }
                return Ok(whole || !is_short);
            }
            let blocks = blocks_for(self.geometry, inode, stripe, needed, end);
            let blocks = within(self.inodes.room_for(inode), blocks, needed)?;
            let wants = wants(inode, stripe);
            let reserved = self.extents.reserve_about(wants, blocks, needed).await?;
            // Others may have taken what the project may take meanwhile.
            if !group.get(stripe).is_hole() || reserved.blocks() > self.inodes.room_for(inode) {
                continue;
            }
            // Others have come here meanwhile, too.
            self.transactions.has_room_for(0)?;
            let replaced = self.extents.publish(group, stripe, &reserved, 0);
            self.inodes.extent_replaced(inode, replaced);
            return Ok(true);
        }
    }

    /// Makes an extent longer: where it is, or elsewhere with what it holds.
    async fn grow(
        &self,
        inode: &Rc<Inode>,
        group: &Rc<ExtentGroup>,
        stripe: u64,
        needed: u64,
        end: u64,
    ) -> Result<(), Errno> {
        let extent = group.get(stripe);
        let whole = self.geometry.blocks();
        let wanted = match blocks_for(self.geometry, inode, stripe, needed, end) {
            blocks if blocks == whole => whole,
            blocks => blocks.next_power_of_two().min(whole),
        };
        let old = u64::from(extent.blocks);
        let fits = |blocks: u64| blocks - old <= self.inodes.room_for(inode);
        if let Some(replaced) = self.extents.extend(group, stripe, (wanted, needed), fits).await? {
            self.inodes.extent_replaced(inode, replaced);
            return Ok(());
        }
        let reserved = loop {
            let wanted = within(self.inodes.room_for(inode).saturating_add(old), wanted, needed)?;
            let wants = wants(inode, stripe);
            let reserved = self.extents.reserve_about(wants, wanted, needed).await?;
            match self.copy_to_stay(extent, &reserved).await {
                // Others may have taken what the project may take meanwhile.
                Ok(()) if reserved.blocks().saturating_sub(old) > self.inodes.room_for(inode) => {}
                Ok(()) => break reserved,
                // A brick that is found to be gone is left out next time.
                Err(error)
                    if reserved.brick().is_there() || !self.bricks.is_there(extent.brick) =>
                {
                    return Err(error);
                }
                Err(_) => {}
            }
        };
        let replaced = self.extents.publish(group, stripe, &reserved, extent.written);
        self.inodes.extent_replaced(inode, replaced);
        Ok(())
    }
}

/// As many blocks as are wanted, or as there is room for in the project, if that is as many as are needed.
fn within(room: u64, wanted: u64, needed: u64) -> Result<u64, Errno> {
    if needed > room { Err(Errno::Quota) } else { Ok(wanted.min(room)) }
}

/// The blocks that a stripe wants.
fn wants(inode: &Inode, stripe: u64) -> Wants {
    Wants { ino: inode.ino(), stripe, brick: inode.with(|record| record.wanted_brick()) }
}

/// Blocks for an extent whose first `needed` blocks are wanted now.
fn blocks_for(geometry: Geometry, inode: &Inode, stripe: u64, needed: u64, end: u64) -> u64 {
    let whole = geometry.blocks();
    let is_last = end.max(inode.size()) <= (stripe + 1) * geometry.stripe;
    if is_last && stripe < WHOLE_FROM { needed.min(whole) } else { whole }
}
