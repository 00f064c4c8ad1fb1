//! The extents of a write: found once, under the lock of its range, or made there.

use super::part::Files;
use crate::extents::{Avoid, Reservation, Stripe, Wants};
use crate::namespace::Inode;
use crate::stripes::{Geometry, Piece, down, up};
use crate::sums::Prepared;
use braid_filesystem::Errno;
use braid_format::volume::extent::Extent;
use braid_shard::range_locks::Held;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// Stripes from this one on are given whole extents from the start: a file of that size grows on.
const WHOLE_FROM: u64 = 8;

/// Where the part of a write is to go that lies in one stripe: to all copies.
pub(super) struct Target {
    pub(super) stripe: Stripe,
    /// The next extents of the stripe; those of before stay recorded until all of the write is there. Empty: it is written where
    /// it is.
    pub(super) next: Next,
}

/// Extents that are to replace those of a stripe.
#[derive(Default)]
pub(super) struct Next {
    /// One for each copy that is replaced.
    pub(super) extents: SmallVec<[NextExtent; 1]>,
    /// The bricks of all copies are lost, so that nothing of before is kept.
    pub(super) is_lost: bool,
    /// For as long as copies are written.
    pub(super) _marked: Option<Prepared>,
}

/// The extent that is to be that of a copy.
pub(super) struct NextExtent {
    pub(super) copy: u8,
    pub(super) reservation: Reservation,
    /// The sub-blocks that were copied to it.
    pub(super) kept: u32,
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
    /// The content of the stripe where it is written, as things are now: a concurrent writer of another part of it may have seen
    /// its brick fail since it was resolved.
    pub(super) fn extent(&self) -> Extent {
        let next = self.next.extents.iter().map(|next| next.reservation.extent(0));
        let together = self.stripe.together();
        match next.min_by_key(|next| next.blocks) {
            Some(next) if self.next.is_lost => next,
            Some(next) => Extent { blocks: next.blocks, ..together },
            None => together,
        }
    }

    /// The extents that are written, with their copies.
    pub(super) fn places(&self) -> SmallVec<[(u8, Extent); 1]> {
        match self.is_replaced() {
            true => {
                let next = self.next.extents.iter();
                next.map(|next| (next.copy, next.reservation.extent(0))).collect()
            }
            false => self.stripe.extents().collect(),
        }
    }

    /// The stripe gets other extents.
    pub(super) fn is_replaced(&self) -> bool {
        !self.next.extents.is_empty()
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
            let stripe = self.stripe(inode, piece.stripe).await?;
            let is_lost = self.is_lost(&stripe);
            let is_short = self.short_copies(&stripe, needed).next().is_some();
            let is_shared = self.is_shared(&stripe);
            let mut target = Target { stripe, next: Next::default() };
            if is_lost || is_short || is_shared {
                // The extent is to be changed: that takes the whole stripe.
                if !geometry.widen(wanted, piece.stripe) {
                    return Ok(None);
                }
                if is_lost {
                    let reservation =
                        self.reserve_anew(inode, piece, range, &target.stripe).await?;
                    target.next.extents.push(NextExtent { copy: 0, reservation, kept: 0 });
                    target.next.is_lost = true;
                } else if is_shared {
                    let written = geometry.covered(piece.from, piece.to);
                    target.next = self
                        .leave_shared(inode, &target.stripe, written, needed, range.end)
                        .await?;
                }
            }
            targets.push(target);
        }
        for (target, piece) in targets.iter().zip(geometry.pieces(range.clone())) {
            if target.is_replaced() {
                continue;
            }
            let needed = geometry.blocks_to(piece.to);
            let start = piece.stripe * geometry.stripe;
            let whole = wanted.start <= start && wanted.end >= start + geometry.stripe;
            // A concurrent writer of another part has given the stripe an extent meanwhile, which must be changed.
            if !self.ensure_extents(inode, &target.stripe, needed, range.end, whole).await? {
                return Ok(None);
            }
        }
        Ok(Some(Resolved { targets, flush_failures, _held: held }))
    }

    /// A stripe of a file, with its copies; its number says none.
    ///
    /// # Errors
    /// When the extents cannot be read.
    pub async fn stripe(&self, inode: &Inode, stripe: u64) -> Result<Stripe, Errno> {
        let rows = inode.with(|record| record.held);
        self.extents.stripe(&inode.extents, stripe, rows).await
    }

    /// The stripe has extents, and none on a brick that is there.
    fn is_lost(&self, stripe: &Stripe) -> bool {
        let mut bricks = stripe.extents().map(|(_, extent)| extent.brick).peekable();
        bricks.peek().is_some() && !bricks.any(|id| self.bricks.is_there(id))
    }

    /// The copies that have fewer than `needed` blocks, on bricks that are there.
    fn short_copies<'a>(
        &'a self,
        stripe: &'a Stripe,
        needed: u64,
    ) -> impl Iterator<Item = u8> + 'a {
        let short = stripe.extents().filter(move |(_, extent)| {
            u64::from(extent.blocks) < needed && self.bricks.is_there(extent.brick)
        });
        short.map(|(copy, _)| copy)
    }

    /// Reserves blocks for a stripe whose bricks are lost, if all that was there is written anew.
    async fn reserve_anew(
        &self,
        inode: &Rc<Inode>,
        piece: Piece,
        range: &Range<u64>,
        stripe: &Stripe,
    ) -> Result<Reservation, Errno> {
        let (geometry, lost) = (self.geometry, stripe.together());
        let to = if range.end >= inode.size() { geometry.stripe } else { piece.to };
        let before = geometry.touched(0, piece.from);
        let keeps = geometry.touched(to, geometry.stripe) | before;
        if lost.written & keeps != 0 {
            return Err(Errno::Io);
        }
        let needed = geometry.blocks_to(piece.to);
        let room = self.inodes.room_for(inode).saturating_add(stripe.get(0).blocks.into());
        let blocks = blocks_for(self.geometry, inode, piece.stripe, needed, range.end);
        let blocks = within(room, blocks, needed)?;
        self.extents.reserve_about(wants(inode, stripe, 0), blocks, needed).await
    }

    /// Makes sure that the stripe has an extent of at least `needed` blocks, with as many copies as the file is to have where
    /// nothing is written of it yet. As [`ensure_extent`](Files::ensure_extent).
    pub(super) async fn ensure_extents(
        &self,
        inode: &Rc<Inode>,
        stripe: &Stripe,
        needed: u64,
        end: u64,
        whole: bool,
    ) -> Result<bool, Errno> {
        let copies = inode.with(|record| record.copies);
        for copy in 0..stripe.rows() {
            let extent = stripe.get(copy);
            let is_wanted = match extent.is_hole() {
                true => copy == 0 || self.wants_copy(stripe, copy, copies),
                // One whose brick is away has missed the write, if another has it.
                false => stripe.rows() == 1 || self.bricks.is_there(extent.brick),
            };
            if is_wanted && !self.ensure_extent(inode, stripe, copy, needed, end, whole).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A copy is to be made of a stripe of which nothing is written: there is a brick for it.
    fn wants_copy(&self, stripe: &Stripe, copy: u8, copies: u8) -> bool {
        if copy >= copies || stripe.together().written != 0 {
            return false;
        }
        let avoid = stripe.others_than(copy);
        let can = self.bricks.any(|brick| brick.takes_data() && !avoid.contains(&brick.id));
        if !can {
            self.record.note_incomplete();
        }
        can
    }

    /// Makes sure that a copy of the stripe has an extent of at least `needed` blocks. The caller holds the part of the stripe that it
    /// is about, or all of it: `whole`. False: it has an extent that is too short, which takes all of it; who writes another
    /// part may have given it one meanwhile. `end`: where the file will end, at least.
    pub(super) async fn ensure_extent(
        &self,
        inode: &Rc<Inode>,
        stripe: &Stripe,
        copy: u8,
        needed: u64,
        end: u64,
        whole: bool,
    ) -> Result<bool, Errno> {
        loop {
            let extent = stripe.get(copy);
            if !extent.is_hole() {
                let is_short = u64::from(extent.blocks) < needed;
                if is_short && whole {
                    self.grow(inode, stripe, copy, needed, end).await?;
                }
                return Ok(whole || !is_short);
            }
            let blocks = blocks_for(self.geometry, inode, stripe.number(), needed, end);
            let blocks = within(self.inodes.room_for(inode), blocks, needed)?;
            let wants = wants(inode, stripe, copy);
            let reserved = self.extents.reserve_about(wants, blocks, needed).await?;
            // Others may have taken what the project may take meanwhile.
            if !stripe.get(copy).is_hole()
                || stripe.others_than(copy).contains(&reserved.brick().id)
                || reserved.blocks() > self.inodes.room_for(inode)
            {
                continue;
            }
            // Others have come here meanwhile, too.
            self.transactions.has_room_for(0)?;
            let (group, number) = stripe.place(copy);
            let replaced = self.extents.publish(group, number, &reserved, 0);
            self.inodes.extent_replaced(inode, replaced);
            return Ok(true);
        }
    }

    /// Makes an extent longer: where it is, or elsewhere with what it holds.
    async fn grow(
        &self,
        inode: &Rc<Inode>,
        stripe: &Stripe,
        copy: u8,
        needed: u64,
        end: u64,
    ) -> Result<(), Errno> {
        let (group, number) = stripe.place(copy);
        let extent = stripe.get(copy);
        let whole = self.geometry.blocks();
        let wanted = match blocks_for(self.geometry, inode, stripe.number(), needed, end) {
            blocks if blocks == whole => whole,
            blocks => blocks.next_power_of_two().min(whole),
        };
        let old = u64::from(extent.blocks);
        let fits = |blocks: u64| blocks - old <= self.inodes.room_for(inode);
        if let Some(replaced) = self.extents.extend(group, number, (wanted, needed), fits).await? {
            self.inodes.extent_replaced(inode, replaced);
            return Ok(());
        }
        let kept = self.trusted(inode, stripe, copy);
        let _marked = self.mark(inode, stripe);
        let wants = wants(inode, stripe, copy);
        let source = Extent { written: kept, ..extent };
        let reserved =
            self.copied_elsewhere(inode, stripe, source, wants, (wanted, needed)).await?;
        let replaced = self.extents.publish(group, number, &reserved, kept);
        self.inodes.extent_replaced(inode, replaced);
        Ok(())
    }

    /// Reserves `wanted` blocks, or else `needed` ones, to which what is written of `source` is copied, an extent of a stripe that
    /// they are to replace.
    ///
    /// # Errors
    /// [`Errno::NoSpace`] or [`Errno::Quota`] when there is no room; [`Errno::Io`] when it cannot be read.
    pub(super) async fn copied_elsewhere(
        &self,
        inode: &Rc<Inode>,
        stripe: &Stripe,
        source: Extent,
        wants: Wants,
        (wanted, needed): (u64, u64),
    ) -> Result<Reservation, Errno> {
        let old = u64::from(source.blocks);
        loop {
            let wanted = within(self.inodes.room_for(inode).saturating_add(old), wanted, needed)?;
            let reserved = self.extents.reserve_about(wants.clone(), wanted, needed).await?;
            match self.copy_to_stay(inode, stripe, source, &reserved).await {
                // Others may have taken what the project may take meanwhile.
                Ok(()) if reserved.blocks().saturating_sub(old) > self.inodes.room_for(inode) => {}
                Ok(()) => return Ok(reserved),
                // A brick that is found to be gone is left out next time.
                Err(error)
                    if reserved.brick().is_there() || !self.bricks.is_there(source.brick) =>
                {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
    }
}

/// As many blocks as are wanted, or as there is room for in the project, if that is as many as are needed.
fn within(room: u64, wanted: u64, needed: u64) -> Result<u64, Errno> {
    if needed > room { Err(Errno::Quota) } else { Ok(wanted.min(room)) }
}

/// The blocks that a copy of a stripe wants.
pub(super) fn wants(inode: &Inode, stripe: &Stripe, copy: u8) -> Wants {
    let avoid: Avoid = stripe.others_than(copy);
    let brick = inode.with(|record| record.wanted_brick());
    Wants { ino: inode.ino(), stripe: stripe.place(copy).1, brick, avoid }
}

/// Blocks for an extent whose first `needed` blocks are wanted now.
pub(super) fn blocks_for(
    geometry: Geometry,
    inode: &Inode,
    stripe: u64,
    needed: u64,
    end: u64,
) -> u64 {
    let whole = geometry.blocks();
    let is_last = end.max(inode.size()) <= (stripe + 1) * geometry.stripe;
    if is_last && stripe < WHOLE_FROM { needed.min(whole) } else { whole }
}
